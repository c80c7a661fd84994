"""How good answers are: exact match and F1 over words, as the official programs of SQuAD 1.1 and 2.0 count them.

Small letters, without punctuation and articles, are compared. F1 is that of the words which given and true answer have
in common; of several true answers the best counts. Where questions may have no answer (2.0), giving none is right for
these and wrong for the others, and a true answer of nothing but articles and punctuation does not count.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def scored(given: str, wanted: Sequence[str], unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 of an answer; "" is no answer."""
    said = normalised(given)
    true = [normalised(one) for one in wanted]
    if unanswerable:
        true = [one for one in true if one] or [""]
    pairs = [(float(said == one), _overlap(said.split(), one.split(), unanswerable)) for one in true]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)


def _overlap(said: list[str], true: list[str], unanswerable: bool) -> float:
    if not said or not true:  # version 1.1 has no F1 for no words, not even where both have none
        return float(unanswerable and said == true)
    common = sum((Counter(said) & Counter(true)).values())
    return 2 * common / (len(said) + len(true))


def score_all(
    given: Sequence[str], wanted: Sequence[Sequence[str]], unanswerable: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Exact match and F1 of each answer, (n,)."""
    pairs = [scored(one, true, unanswerable) for one, true in zip(given, wanted, strict=True)]
    exact, f1 = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return exact, f1


def measures(given: Sequence[str], wanted: Sequence[Sequence[str]], unanswerable: bool) -> dict[str, float]:
    """The means over all questions; in version 2.0 also over those with an answer and those without."""
    exact, f1 = score_all(given, wanted, unanswerable)
    found = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
    if unanswerable:
        there = np.array([len(true) > 0 for true in wanted], dtype=bool)
        for name, some in (("has_answer", there), ("no_answer", ~there)):
            if some.any():
                found |= {f"{name}_exact_match": float(exact[some].mean()), f"{name}_f1": float(f1[some].mean())}
    return found | {"error": 1 - found["f1"], "questions": float(len(given))}
