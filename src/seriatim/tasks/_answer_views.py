"""What a report shows of answers: by question word, by length of the answer, by threshold, the surest mistakes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ._answer_scores import scored
from ._answer_search import Found
from ._spans import SpanPart

MISTAKES = 20
SHOWN = 300  # characters of a text in a table
# What a question asks for, by the first of these words in it.
ASKING = re.compile(r"\b(who|whom|whose|what|which|when|where|why|how (?:many|much)|how)\b", re.IGNORECASE)
LENGTHS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))  # words of an answer
THRESHOLDS = (-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0)


def views(part: SpanPart, found: Found, given: list[str], exact: np.ndarray, f1: np.ndarray) -> list[dict[str, Any]]:
    """`given` are the answers to the questions that were found, with the measures of each."""
    asked = [part.asked.asked[index] for index in found.questions.tolist()]
    kinds = [_kind(one.text) for one in asked]
    sizes = np.array([len(one.answers[0][0].split()) if one.answers else 0 for one in asked])
    return [
        *_by_kind(kinds, exact, f1),
        *_by_length(sizes, f1),
        *(_thresholds(part, found) if part.unanswerable else []),
        *_mistakes(part, found, given, exact),
    ]


def _kind(question: str) -> str:
    match = ASKING.search(question)
    word = match.group().lower() if match else "other"
    return {"whom": "who", "whose": "who", "how much": "how many, how much", "how many": "how many, how much"}.get(
        word, word
    )


def _by_kind(kinds: list[str], exact: np.ndarray, f1: np.ndarray) -> list[dict[str, Any]]:
    """Where most questions have such a word: in another language they have none."""
    names = sorted(set(kinds), key=lambda name: (name == "other", -kinds.count(name)))
    if 2 * kinds.count("other") > len(kinds):
        return []
    rows = []
    for name in names:
        some = np.array([kind == name for kind in kinds])
        rows.append([name, _rounded(exact[some].mean()), _rounded(f1[some].mean()), int(some.sum())])
    columns = ["question word", "exact match", "F1", "questions"]
    return [{"kind": "table", "title": "By question word", "columns": columns, "rows": rows}]


def _by_length(sizes: np.ndarray, f1: np.ndarray) -> list[dict[str, Any]]:
    names, counts, values = [], [], []
    for low, high in LENGTHS:
        some = (sizes >= low) & (sizes <= (high or sizes.max(initial=0)))
        if some.any():
            names.append(f"over {low - 1}" if high is None else str(low) if low == high else f"{low}–{high}")
            counts.append(int(some.sum()))
            values.append(_rounded(f1[some].mean()))
    if len(names) < 2:
        return []
    return [
        {
            "kind": "bins",
            "title": "F1 by length of the answer",
            "note": "questions that have an answer, by the first of their answers",
            "measure": "f1",
            "x": "words of the answer",
            "of": "questions",
            "bins": names,
            "counts": counts,
            "series": [["", values]],
            "together": "f1 by length of the answer",
        }
    ]


def _thresholds(part: SpanPart, found: Found) -> list[dict[str, Any]]:
    """What other thresholds would have given."""
    asked = [part.asked.asked[index] for index in found.questions.tolist()]
    texts = spoken(part, found)
    pairs = [[scored(text, [a for a, _ in one.answers], True) for text, one in zip(some, asked, strict=True)]
             for some in (texts, [""] * len(texts))]  # fmt: skip
    said, silent = np.array(pairs)  # (n,2) each
    rows = []
    for threshold in THRESHOLDS:
        none = found.none(threshold)
        exact, f1 = np.where(none[:, None], silent, said).mean(axis=0)
        rows.append([threshold, _rounded(exact), _rounded(f1), _rounded(none.mean())])
    columns = ["threshold", "exact match", "F1", "share without an answer"]
    note = "No answer is given where its score is above that of the best span by more than task.threshold."
    return [{"kind": "table", "title": "Other thresholds", "columns": columns, "rows": rows, "note": note}]


def _mistakes(part: SpanPart, found: Found, given: list[str], exact: np.ndarray) -> list[dict[str, Any]]:
    """The wrong answers that the model was surest of."""
    sure = np.exp(np.where(found.none(0.0) & part.unanswerable, found.null, found.scores[:, 0]) - found.total)
    wrong = np.flatnonzero(exact == 0)
    rows = []
    for index in wrong[np.argsort(-sure[wrong], kind="stable")][:MISTAKES].tolist():
        one = part.asked.asked[int(found.questions[index])]
        true = " | ".join(dict.fromkeys(text for text, _ in one.answers)) or "(none)"
        texts = [one.text.strip(), given[index] or "(none)", true]
        rows.append([one.place, *(text[:SHOWN] for text in texts), round(float(sure[index]), 3)])
    columns = ["where", "question", "given", "true", "probability"]
    title = "The mistakes it was surest of"
    return [{"kind": "table", "title": title, "columns": columns, "rows": rows}] if rows else []


def spoken(part: SpanPart, found: Found, rank: int = 0) -> list[str]:
    """The texts of the spans of a rank; "" where there is none."""
    places = zip(found.questions.tolist(), found.places(part, rank), strict=True)
    return [part.asked.passages[part.asked.asked[index].passage][start:end] for index, (start, end) in places]


def _rounded(value: Any) -> float:
    return round(float(value), 4)
