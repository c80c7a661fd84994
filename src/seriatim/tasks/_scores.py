"""Measures of predictions, in plain numpy; the tests hold them against scikit-learn and scipy."""

from __future__ import annotations

import numpy as np


def confusion(true: np.ndarray, predicted: np.ndarray, size: int) -> np.ndarray:
    """How often each label (row) was taken for each (column)."""
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)


def precision_recall(hits: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, ...]:
    """Precision, recall and F1 from counts; 0 where nothing was predicted or nothing was there."""
    precision = hits / np.maximum(predicted, 1)
    recall = hits / np.maximum(true, 1)
    f1 = 2 * hits / np.maximum(predicted + true, 1)
    return precision, recall, f1


def mean_f1(hits: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> float:
    """The mean of the F1 of the labels that occur, truly or as a prediction."""
    f1 = precision_recall(hits, predicted, true)[2]
    occurs = (predicted + true) > 0
    return float(f1[occurs].mean()) if occurs.any() else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((2 * ends - counts + 1) / 2)[inverse]


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's, 0 where one of them is constant."""
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size > 0 else 0.0


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of the ranks."""
    return correlation(ranks(first), ranks(second))


def r_squared(true: np.ndarray, predicted: np.ndarray) -> float:
    """1 − Σ (y − ŷ)² / Σ (y − ȳ)²; 0 where all true values are equal."""
    total = float(((true - true.mean()) ** 2).sum())
    return 1.0 - float(((true - predicted) ** 2).sum()) / total if total > 0 else 0.0
