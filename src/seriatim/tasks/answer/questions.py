"""The data of question answering: questions, passages and the spans of the passages that answer them, and metrics.

An answer is a text, which is searched in the passage, or {"text": "…", "answer_start": 34}; a question has one, several
or none, if the passage does not answer it. Positions count characters of the passage from 0.

Exact match and F1 are those of the official programs of SQuAD 1.1 and 2.0. Answers are compared in lower case without
punctuation and articles. F1 is that of the words that prediction and reference share; of several references the best
counts. If questions may have no answer (2.0), no answer is right for these and wrong for the others, and a reference of
nothing but articles and punctuation does not count.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...core.errors import Diagnostics
from ...core.metrics import Measured
from ...core.text import plural
from ...data.dataset import Dataset, factorize
from ...data.formats.squad import shorten
from ...data.split import Grouped
from ..codecs import text_key
from ..metrics import mean_scores
from .spec import ParsedAnswer

FEW_ARTICLES = 10  # below which rows are grouped by passage
Answer = tuple[str, int]  # text and start in the passage
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
SENTENCE = re.compile(r"\S.*?(?:[.!?…](?=\s|$)|[。！？]|$)", re.DOTALL)
WORD_EDGES = ".,;:!?()[]\"'“”„«»"


# Checks and splits


def find_occurrences(text: str, passage: str) -> list[int]:
    """Returns where a text occurs in a passage: not inside of words, if it also occurs by itself."""
    starts = [match.start() for match in re.finditer(re.escape(text), passage)]

    def inside_word(start: int) -> bool:
        end = start + len(text)
        before = start > 0 and text[0].isalnum() and passage[start - 1].isalnum()
        return before or (end < len(passage) and text[-1].isalnum() and passage[end].isalnum())

    return [start for start in starts if not inside_word(start)] or starts


def locate_answer(passage: str, answer: ParsedAnswer) -> Answer:
    """Returns an answer without white space at its ends, and its start; raises ValueError if it is not there."""
    whole, start = answer
    text = whole.strip()
    if not text:
        raise ValueError('"text" is empty')
    occurrences = [] if start is not None else find_occurrences(text, passage)
    if start is None:
        if not occurrences:
            raise ValueError(f"{shorten(text)} is not in the passage")
        return text, occurrences[0]
    if start < 0:
        raise ValueError(f"answer_start is {start}, not a position in the passage")
    if passage[start : start + len(whole)] != whole:
        nearest = min(find_occurrences(text, passage), key=lambda at: abs(at - start), default=None)
        place = "nowhere in the passage" if nearest is None else f"at {nearest}"
        there = shorten(passage[start : start + len(whole)])
        raise ValueError(f"{shorten(whole)} is not at {start}, where {there} is, but {place}")
    return text, start + len(whole) - len(whole.lstrip())


def row_answers(dataset: Dataset, row: int) -> tuple[ParsedAnswer, ...]:
    """Returns the answers of a row; the start of a single one may be in a column of its own."""
    answers: tuple[ParsedAnswer, ...] = dataset["answers"][row]
    if "answer_start" in dataset and len(answers) == 1 and answers[0][1] is None:
        start = dataset["answer_start"][row]
        return ((answers[0][0], None if np.isnan(start) else int(start)),)
    return answers


def locate_answers(dataset: Dataset, row: int) -> list[Answer]:
    """Returns the texts and starts of a row's answers, which have passed `check_answers`."""
    return [locate_answer(dataset["context"][row], answer) for answer in row_answers(dataset, row)]


def check_answers(dataset: Dataset, diagnostics: Diagnostics) -> None:
    """Reports answers that are not in their passage, and contradictory marks; notes oddities."""
    if "answers" not in dataset:
        return
    ambiguous: list[str] = []
    trimmed = without = 0
    for row in range(len(dataset)):
        location, passage = dataset.locations[row], dataset["context"][row]
        answers = row_answers(dataset, row)
        without += not answers
        if answers and "is_impossible" in dataset and dataset["is_impossible"][row] == "true":
            cause = f"{location}: is_impossible is true, but there are answers"
            diagnostics.report("data.questions", cause, "remove one of them")
        for index, answer in enumerate(answers):
            path = f"{location}{'.' if location.path else ', '}answers[{index}]"
            try:
                text, _ = locate_answer(passage, answer)
            except ValueError as error:
                remedy = "correct answer_start, which counts characters of the passage from 0"
                diagnostics.report("data.questions", f"{path}: {error}", remedy)
                continue
            trimmed += text != answer[0]
            if answer[1] is None and len(find_occurrences(text, passage)) > 1:
                ambiguous.append(path)
    if without:
        diagnostics.note(f"{dataset.name}: {plural(without, 'question')} without an answer")
    if ambiguous:
        count = plural(len(ambiguous), "answer")
        diagnostics.note(
            f"{count} without a start at several places of the passage: the first is taken ({ambiguous[0]})"
        )
    if trimmed:
        diagnostics.note(f"{dataset.name}: white space at the ends of {plural(trimmed, 'answer')} is ignored")


def group_questions(dataset: Dataset) -> np.ndarray:
    """Returns a group number per row (rows,): its article, or its passage if fewer than `FEW_ARTICLES` are named.

    Articles that share a passage, directly or through others, are one group: no passage is in two splits.
    """
    passages = dataset.group_ids(["context"], text_key)
    if "title" in dataset and all(dataset["title"]) and len(set(dataset["title"])) >= FEW_ARTICLES:
        return connect(dataset.group_ids(["title"]), passages)
    return passages


def connect(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns groups of rows (rows,): rows with the same number in either array are in one group."""
    parents: dict[tuple[int, int], tuple[int, int]] = {}

    def root(key: tuple[int, int]) -> tuple[int, int]:
        while parents.setdefault(key, key) != key:
            parents[key] = key = parents[parents[key]]
        return key

    keys = [(0, int(number)) for number in first]
    for key, other in zip(keys, second.tolist(), strict=True):
        parents[root((1, other))] = root(key)
    return factorize(root(key) for key in keys)


BY_ARTICLE = Grouped(group_questions, "articles", f"by article, or by passage if there are fewer than {FEW_ARTICLES}")


# Metrics


def normalize_answer(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def score_answer(prediction: str, references: Sequence[str], unanswerable: bool) -> tuple[float, float]:
    """Returns exact match and F1 of an answer; "" is no answer.

    Args:
        prediction: The predicted text.
        references: The texts of the answers; none if the question has no answer.
        unanswerable: Whether questions may have no answer, as in version 2.0.
    """
    predicted = normalize_answer(prediction)
    expected = [normalize_answer(reference) for reference in references]
    if unanswerable:
        expected = [reference for reference in expected if reference] or [""]
    exact = max((float(predicted == reference) for reference in expected), default=0.0)
    f1 = max((word_f1(predicted.split(), reference.split(), unanswerable) for reference in expected), default=0.0)
    return exact, f1


def word_f1(predicted: list[str], expected: list[str], unanswerable: bool) -> float:
    if not predicted or not expected:  # version 1.1 has an F1 of 0 even if both are empty
        return float(unanswerable and predicted == expected)
    common = (Counter(predicted) & Counter(expected)).total()
    return 2 * common / (len(predicted) + len(expected))


def score_answers(
    predictions: Sequence[str], references: Sequence[Sequence[str]], unanswerable: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns exact match (n,) and F1 (n,) of each answer."""
    pairs = [score_answer(text, texts, unanswerable) for text, texts in zip(predictions, references, strict=True)]
    exact, f1 = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return exact, f1


def answer_metrics(predictions: Sequence[str], references: Sequence[Sequence[str]], unanswerable: bool) -> Measured:
    """Returns the means over all questions; in version 2.0 also over those with and those without an answer."""
    exact, f1 = score_answers(predictions, references, unanswerable)
    metrics = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
    if unanswerable:
        answered = np.array([len(texts) > 0 for texts in references], dtype=bool)
        for name, mask in (("has_answer", answered), ("no_answer", ~answered)):
            if mask.any():
                metrics |= {f"{name}_exact_match": float(exact[mask].mean()), f"{name}_f1": float(f1[mask].mean())}
    values = metrics | {"error": 1 - metrics["f1"], "questions": float(len(predictions))}
    return Measured(values, examples={"exact_match": mean_scores(exact), "f1": mean_scores(f1)})


def nearest_names(question: str, passage: str) -> str:
    """Returns the names and numbers of the sentence that shares most words with the question, as a baseline.

    They are the longest run of words that begin with a capital or a digit and are not in the question; the whole
    sentence if there is none.
    """

    def words(text: str) -> set[str]:
        return {word.lower() for word in re.findall(r"\w+", text)}

    question_words = words(question)
    sentences = [match.group() for match in SENTENCE.finditer(passage)]
    sentence = max(sentences, key=lambda text: len(question_words & words(text)), default=passage)
    runs: list[str] = []
    start = -1
    for match in re.finditer(r"\S+", sentence):
        word = match.group().strip(WORD_EDGES)
        # The first word of a sentence has a capital anyway.
        is_name = word[:1].isdigit() or (word[:1].isupper() and match.start() > 0)
        if not is_name or word.lower() in question_words:
            start = -1
            continue
        start = match.start() if start < 0 else start
        runs.append(sentence[start : match.end()].strip(WORD_EDGES))
        if match.group()[-1] in WORD_EDGES:  # a comma separates two names
            start = -1
    return max(runs, key=len, default=sentence.strip(WORD_EDGES))
