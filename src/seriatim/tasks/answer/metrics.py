"""Exact match and F1 of answers, as the official programs of SQuAD 1.1 and 2.0 compute them, and a baseline.

Answers are compared in lower case without punctuation and articles. F1 is that of the words that prediction and
reference share; of several references the best counts. If questions may have no answer (2.0), no answer is right for
these and wrong for the others, and a reference of nothing but articles and punctuation does not count.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
SENTENCE = re.compile(r"\S.*?(?:[.!?…](?=\s|$)|[。！？]|$)", re.DOTALL)
WORD_EDGES = ".,;:!?()[]\"'“”„«»"


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


def answer_metrics(
    predictions: Sequence[str], references: Sequence[Sequence[str]], unanswerable: bool
) -> dict[str, float]:
    """Returns the means over all questions; in version 2.0 also over those with and those without an answer."""
    exact, f1 = score_answers(predictions, references, unanswerable)
    metrics = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
    if unanswerable:
        answered = np.array([len(texts) > 0 for texts in references], dtype=bool)
        for name, mask in (("has_answer", answered), ("no_answer", ~answered)):
            if mask.any():
                metrics |= {f"{name}_exact_match": float(exact[mask].mean()), f"{name}_f1": float(f1[mask].mean())}
    return metrics | {"error": 1 - metrics["f1"], "questions": float(len(predictions))}


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
