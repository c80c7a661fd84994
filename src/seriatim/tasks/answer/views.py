"""Charts and tables of answers: by question word, by length, by threshold, and the most confident mistakes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...report.charts import BinnedMetric, Span, SpanText, Table, View
from .metrics import score_answers
from .processor import AnswerEncoded
from .search import BestSpans

MAX_MISTAKES = 20
MAX_CHARACTERS = 300  # of a text in a table
CONTEXT_CHARACTERS = 120  # shown on each side of an answer
# The first of these words in a question tells what it asks for.
QUESTION_WORDS = re.compile(r"\b(who|whom|whose|what|which|when|where|why|how (?:many|much)|how)\b", re.IGNORECASE)
SYNONYMS = {"whom": "who", "whose": "who", "how much": "how many, how much", "how many": "how many, how much"}
ANSWER_BINS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))  # words of an answer
PASSAGE_BINS = ((1, 50), (51, 100), (101, 150), (151, 200), (201, 300), (301, None))  # words of a passage
THRESHOLDS = (-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0)


def make_views(dataset: Dataset, encoded: AnswerEncoded, best: BestSpans, predictions: list[str]) -> list[View]:
    """Returns the charts and tables of a split.

    Args:
        dataset: The questions.
        encoded: Their windows.
        best: The best span of each question.
        predictions: The predicted answers, "" for none.
    """
    references = [[text for text, _ in answers] for answers in encoded.answers]
    exact, f1 = score_answers(predictions, references, encoded.unanswerable)
    answer_words = np.array([len(texts[0].split()) if texts else 0 for texts in references])
    passage_words = np.array([len(passage.split()) for passage in dataset["context"]])
    note = "questions that have an answer, by the first of their answers"
    return [
        *by_question_word(dataset["question"], exact, f1),
        *by_length("answer", answer_words, ANSWER_BINS, f1, note),
        *by_length("passage", passage_words, PASSAGE_BINS, f1, ""),
        *(by_threshold(dataset, encoded, best, references) if encoded.unanswerable else []),
        *mistakes(dataset, encoded, best, predictions, exact),
    ]


def mark_span(passage: str, start: int, end: int, wrong: bool = False) -> SpanText:
    """Returns the part of a passage around a span, which is highlighted."""
    first = max(start - CONTEXT_CHARACTERS, 0)
    spans = (Span(start - first, end - first, wrong=wrong),) if end > start else ()
    return SpanText(passage[first : end + CONTEXT_CHARACTERS], spans)


def prediction_table(dataset: Dataset, predictions: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table of questions with their answers, which are highlighted in the passages."""
    rows = tuple(
        (
            dataset["question"][row],
            record["answer"] or "(none)",
            mark_span(dataset["context"][row], record["start"], record["end"]),
            record["probability"],
        )
        for row, record in enumerate(predictions)
    )
    return Table(title="Answers", columns=("question", "answer", "passage", "probability"), rows=rows)


def by_question_word(questions: np.ndarray, exact: np.ndarray, f1: np.ndarray) -> list[View]:
    """Returns the metrics by question word; nothing if most questions have none, as in another language."""
    matches = [QUESTION_WORDS.search(question) for question in questions]
    words = [match.group().lower() if match else "other" for match in matches]
    words = [SYNONYMS.get(word, word) for word in words]
    if 2 * words.count("other") > len(words):
        return []
    rows = []
    for name in sorted(set(words), key=lambda name: (name == "other", -words.count(name))):
        mask = np.array([word == name for word in words])
        rows.append((name, float(exact[mask].mean()), float(f1[mask].mean()), int(mask.sum())))
    columns = ("question word", "exact_match", "f1", "questions")
    return [Table(title="Metrics by question word", columns=columns, rows=tuple(rows))]


def by_length(
    noun: str, sizes: np.ndarray, bins: tuple[tuple[int, int | None], ...], f1: np.ndarray, note: str
) -> list[View]:
    """Returns the F1 by the number of words of the answer or the passage."""
    names, counts, values = [], [], []
    for low, high in bins:
        mask = (sizes >= low) & (sizes <= (sizes.max(initial=0) if high is None else high))
        if mask.any():
            names.append(f"over {low - 1}" if high is None else str(low) if low == high else f"{low}–{high}")
            counts.append(int(mask.sum()))
            values.append(float(f1[mask].mean()))
    if len(names) < 2:
        return []
    return [
        BinnedMetric(
            title=f"F1 by length of the {noun}",
            note=note,
            metric="f1",
            x=f"words of the {noun}",
            unit="questions",
            bins=tuple(names),
            counts=tuple(counts),
            series={"": tuple(values)},
            join=f"f1 by length of the {noun}",
        )
    ]


def by_threshold(dataset: Dataset, encoded: AnswerEncoded, best: BestSpans, references: list[list[str]]) -> list[View]:
    """Returns the metrics that other thresholds would give."""
    spans = zip(dataset["context"], best.characters(encoded), strict=True)
    texts = [passage[start:end] for passage, (start, end) in spans]
    answered = np.stack(score_answers(texts, references, True), axis=1)  # (n,2)
    empty = np.stack(score_answers([""] * len(texts), references, True), axis=1)
    rows = []
    for threshold in THRESHOLDS:
        null = best.is_null(threshold)
        exact, f1 = np.where(null[:, None], empty, answered).mean(axis=0).tolist()
        rows.append((threshold, exact, f1, round(float(null.mean()), 4)))
    return [
        Table(
            title="Metrics by threshold",
            note="No answer is predicted if its score is above that of the best span by more than task.threshold.",
            columns=("threshold", "exact_match", "f1", "share without an answer"),
            rows=tuple(rows),
        )
    ]


def mistakes(
    dataset: Dataset, encoded: AnswerEncoded, best: BestSpans, predictions: list[str], exact: np.ndarray
) -> list[View]:
    """Returns a table of the wrong answers with the highest probability, the predicted one marked in its passage."""
    null = np.array([not text for text in predictions]) & encoded.unanswerable
    with np.errstate(invalid="ignore"):
        probability = np.nan_to_num(np.exp(np.where(null, best.null, best.scores[:, 0]) - best.total))
    characters = best.characters(encoded)
    wrong = np.flatnonzero(exact == 0)
    rows = []
    for row in wrong[np.argsort(-probability[wrong], kind="stable")][:MAX_MISTAKES].tolist():
        references = " | ".join(dict.fromkeys(text for text, _ in encoded.answers[row])) or "(none)"
        start, end = (0, 0) if null[row] else characters[row]
        rows.append(
            (
                str(dataset.locations[row]),
                dataset["question"][row].strip()[:MAX_CHARACTERS],
                (predictions[row] or "(none)")[:MAX_CHARACTERS],
                references[:MAX_CHARACTERS],
                mark_span(dataset["context"][row], start, end, wrong=True),
                round(float(probability[row]), 3),
            )
        )
    columns = ("location", "question", "prediction", "reference", "passage", "probability")
    return [Table(title="Most confident mistakes", columns=columns, rows=tuple(rows))] if rows else []
