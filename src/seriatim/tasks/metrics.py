"""Metrics of predictions against references, in NumPy; the tests compare them with scikit-learn and scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Scores = Sequence[np.ndarray] | np.ndarray
MAX_EXPONENT = 700.0  # e to a higher power is not a number


def perplexity(loss: float) -> float:
    """Returns e^loss, limited to what a number can be."""
    return math.exp(min(loss, MAX_EXPONENT))


# Classes


def class_metrics(scores: Scores, references: np.ndarray) -> dict[str, float]:
    """Returns accuracy, macro F1 and error of scores (n,classes) against class indices (n,)."""
    scores = np.stack(list(scores))
    counts = class_counts(scores.argmax(axis=1), references, scores.shape[1])
    accuracy = float(counts[0].sum() / len(references))
    return {
        "accuracy": accuracy,
        "macro_f1": mean_f1(*counts),
        "error": 1 - accuracy,
        "examples": float(len(references)),
    }


def multi_label_metrics(logits: Scores, references: np.ndarray) -> dict[str, float]:
    """Returns subset accuracy, micro and macro F1 of logits (n,labels) against multi-hot references (n,labels).

    The error is 1 − micro F1.
    """
    counts, predicted, expected = multi_label_counts(logits, references)
    correct, predictions, targets = counts
    micro_f1 = float(2 * correct.sum() / max(predictions.sum() + targets.sum(), 1))
    return {
        "accuracy": float((predicted == expected).all(axis=1).mean()),
        "micro_f1": micro_f1,
        "macro_f1": mean_f1(*counts),
        "error": 1 - micro_f1,
        "examples": float(len(references)),
    }


Counts = tuple[np.ndarray, np.ndarray, np.ndarray]  # of each class (classes,): correct, predicted, expected


def class_counts(predictions: np.ndarray, references: np.ndarray, classes: int) -> Counts:
    """Returns how often each class was predicted correctly, predicted, and expected."""
    correct = references[references == predictions]
    counted = [np.bincount(labels, minlength=classes) for labels in (correct, predictions, references)]
    return counted[0], counted[1], counted[2]


def multi_label_counts(logits: Scores, references: np.ndarray) -> tuple[Counts, np.ndarray, np.ndarray]:
    """Returns the counts of each label, and what was predicted and expected as booleans (n,labels)."""
    predicted, expected = np.stack(list(logits)) > 0, references > 0.5
    counts = (predicted & expected).sum(axis=0), predicted.sum(axis=0), expected.sum(axis=0)
    return counts, predicted, expected


def confusion(references: np.ndarray, predictions: np.ndarray, classes: int) -> np.ndarray:
    """Returns how often each class (row) was predicted as each class (column)."""
    return np.bincount(references * classes + predictions, minlength=classes * classes).reshape(classes, classes)


def precision_recall_f1(correct: np.ndarray, predicted: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns precision, recall and F1 from counts; 0 if nothing was predicted or nothing was expected."""
    precision = correct / np.maximum(predicted, 1)
    recall = correct / np.maximum(expected, 1)
    f1 = 2 * correct / np.maximum(predicted + expected, 1)
    return precision, recall, f1


def mean_f1(correct: np.ndarray, predicted: np.ndarray, expected: np.ndarray) -> float:
    """Returns the mean F1 of the classes that occur, as a reference or as a prediction."""
    f1 = precision_recall_f1(correct, predicted, expected)[2]
    occurs = (predicted + expected) > 0
    return float(f1[occurs].mean()) if occurs.any() else 0.0


# Numbers


def regression_metrics(predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """Returns MSE, MAE, R², Spearman's and Pearson's correlation of values (n,targets), as means over the targets."""
    predictions, references = predictions.astype(np.float64), references.astype(np.float64)
    errors = predictions - references
    pairs = list(zip(references.T, predictions.T, strict=True))
    return {
        "mse": float((errors**2).mean()),
        "mae": float(np.abs(errors).mean()),
        "r2": float(np.mean([r_squared(*pair) for pair in pairs])),
        "spearman": float(np.mean([spearman(*pair) for pair in pairs])),
        "pearson": float(np.mean([pearson(*pair) for pair in pairs])),
        "examples": float(len(references)),
    }


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value, 1 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((2 * ends - counts + 1) / 2)[inverse]


def pearson(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Pearson's correlation; 0 if one of them is constant."""
    first, second = first - first.mean(), second - second.mean()
    norm = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / norm if norm > 0 else 0.0


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the correlation of the ranks."""
    return pearson(ranks(first), ranks(second))


def r_squared(references: np.ndarray, predictions: np.ndarray) -> float:
    """Returns 1 − Σ (y − ŷ)² / Σ (y − ȳ)²; 0 if all references are equal."""
    total = float(((references - references.mean()) ** 2).sum())
    return 1.0 - float(((references - predictions) ** 2).sum()) / total if total > 0 else 0.0


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of each column (columns,) in float32; a constant column has std 1."""
    mean = values.mean(axis=0, dtype=np.float64)
    differences = values - mean
    std = np.sqrt(np.square(differences, out=differences).mean(axis=0, dtype=np.float64))
    std = np.where(std > 1e-7 * np.maximum(np.abs(mean), 1e-30), std, 1.0)
    return mean.astype(np.float32), std.astype(np.float32)
