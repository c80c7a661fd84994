"""Arrays as charts store and fold them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..core.text import format_number, listed

MAX_LISTED = 12  # values named in an alt text


def list_values(pairs: Iterable[tuple[str, float | None]], limit: int = MAX_LISTED) -> str:
    """Returns "name value, name value, …" of the pairs with a value."""
    present = [f"{name} {format_number(value)}".strip() for name, value in pairs if value is not None]
    return listed(present, limit)


# Arrays


def row(values: np.ndarray | Sequence[float]) -> tuple[float | None, ...]:
    """Returns an array (n,) with four significant digits, which is what a drawing shows; NaN becomes None."""
    return tuple(float(f"{value:.4g}") if math.isfinite(value) else None for value in np.asarray(values, float))


def matrix(values: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """Returns an array (rows, columns) with four significant digits; NaN becomes None."""
    return tuple(row(line) for line in values)


def fold(
    values: np.ndarray, labels: Sequence[str], limit: int, axis: int, keep_first: bool = False
) -> tuple[np.ndarray, list[str]]:
    """Returns the values with at most `limit` cells along an axis, and the labels of these cells.

    Neighbors are averaged; with `keep_first`, the first cells stay and the others are summed in one, as for counts.
    """
    count = values.shape[axis]
    if count <= limit:
        return values, list(labels)
    if keep_first:
        first, others = np.split(values, [limit - 1], axis=axis)
        names = [*labels[: limit - 1], f"{count - limit + 1} others"]
        return np.concatenate([first, others.sum(axis=axis, keepdims=True)], axis=axis), names
    groups = np.array_split(np.arange(count), limit)
    missing = np.isnan(values)
    sums = np.stack([np.where(missing, 0, values).take(group, axis=axis).sum(axis=axis) for group in groups], axis=axis)
    counts = np.stack([(~missing).take(group, axis=axis).sum(axis=axis) for group in groups], axis=axis)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means, [f"{labels[group[0]]}…" if len(group) > 1 else labels[group[0]] for group in groups]


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Returns vectors (n,D) along their first two principal components (n,2), and the share of variance of each.

    The sign of a component is such that the vector furthest out has a positive coordinate.
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    directions = np.concatenate([directions[:2], np.zeros((2 - len(directions[:2]), vectors.shape[1]))])
    points = centered @ directions.T  # (n,2)
    outermost = points[np.abs(points).argmax(axis=0), [0, 1]]
    total = float((sizes**2).sum())
    differ = total > 1e-12 * max(float((vectors.astype(np.float64) ** 2).sum()), 1e-300)
    shares = [float(size**2) / total if differ else 0.0 for size in [*sizes[:2].tolist(), 0.0, 0.0][:2]]
    return points * np.where(outermost < 0, -1.0, 1.0) * differ, (shares[0], shares[1])
