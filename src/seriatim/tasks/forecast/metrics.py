"""Metrics of a backtest in the units of the data, and simple forecasts to compare with.

MASE = mean |y − ŷ| / mean |y_t − y_{t−season}| in training        sMAPE = mean 2|y − ŷ| / (|y| + |ŷ|)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base import Metrics
from .encoded import Origins, SeriesEncoded, season_offsets

RIDGE = 1e-6  # of the linear forecast, for each window
MAX_WINDOWS = 20_000  # that the linear forecast is fitted on, evenly spaced


class SeriesError(NamedTuple):
    """The errors of one target of one series; the series is −1 if all share one scaling."""

    series: int
    target: int
    mae: float
    mase: float


def forecast_metrics(
    encoded: SeriesEncoded,
    origins: Origins,
    references: np.ndarray,
    quantiles: np.ndarray,
    levels: Sequence[float] = (),
) -> Metrics:
    """Returns the metrics over all known values; MASE is averaged over series and targets.

    Args:
        encoded: The series.
        origins: Where the forecasts begin.
        references: What came, (n,horizon,N), NaN if unknown.
        quantiles: The forecast quantiles, or one forecast, (n,horizon,N,Q).
        levels: The quantiles; () for a single forecast.
    """
    forecasts = quantiles[..., median_index(levels)]
    known = ~np.isnan(references)
    count = max(int(known.sum()), 1)
    errors = np.where(known, forecasts - np.where(known, references, 0.0), 0.0)
    mse = float((errors**2).sum() / count)
    metrics = {"mse": mse, "rmse": float(np.sqrt(mse)), "mae": float(np.abs(errors).sum() / count)}
    values = references[known]
    if len(values) > 1 and values.var() > 0:
        metrics["r2"] = 1 - mse / float(values.var())
    by_series = [error.mase for error in series_errors(encoded, origins, references, forecasts)]
    if finite := [mase for mase in by_series if np.isfinite(mase)]:
        metrics["mase"] = float(np.mean(finite))
    if encoded.processor.logs or (known.any() and float(values.min()) > 0):
        sizes = np.abs(np.where(known, references, 1.0)) + np.abs(forecasts)
        metrics["smape"] = float((2 * np.abs(errors) / sizes).sum() / count)
    if levels:
        gaps = np.where(known[..., None], references[..., None] - quantiles, 0.0)
        shares = np.array(levels)
        metrics["pinball"] = float(np.maximum(shares * gaps, (shares - 1) * gaps).mean(axis=-1).sum() / count)
    if len(levels) > 1:
        inside = known & (references >= quantiles[..., 0]) & (references <= quantiles[..., -1])
        metrics["coverage"] = float(inside.sum() / count)
    return metrics


def median_index(levels: Sequence[float]) -> int:
    """Returns which quantile is the forecast: the one nearest to the median."""
    return int(np.argmin([abs(level - 0.5) for level in levels])) if levels else 0


def series_errors(
    encoded: SeriesEncoded, origins: Origins, references: np.ndarray, forecasts: np.ndarray
) -> list[SeriesError]:
    """Returns MAE and MASE of each target of each series that has known values."""
    known = ~np.isnan(references)
    errors = np.abs(np.where(known, forecasts - np.where(known, references, 0.0), 0.0)).sum(axis=1)  # (n,N)
    counts = known.sum(axis=1)
    results = []
    for series in [-1] if encoded.processor.pooled else np.unique(origins.series).tolist():
        rows = origins.series == series if series >= 0 else np.ones(len(origins), dtype=bool)
        before = max(int(origins.positions[rows].min()), 1)
        row = max(series, 0)
        scale = encoded.processor.naive_mae(encoded.names[row], encoded.raw[row][:before])
        for target in range(references.shape[2]):
            if count := int(counts[rows, target].sum()):
                mae = float(errors[rows, target].sum() / count)
                mase = mae / float(scale[target]) if scale[target] > 0 else np.nan
                results.append(SeriesError(series, target, mae, mase))
    return results


def shares_below(references: np.ndarray, quantiles: np.ndarray) -> list[float]:
    """Returns for each quantile (n,horizon,N,Q) the share of the known values that lie below it."""
    known = ~np.isnan(references)
    count = max(int(known.sum()), 1)
    return [float((known & (references <= quantiles[..., q])).sum() / count) for q in range(quantiles.shape[-1])]


# Simple forecasts


def naive_forecast(encoded: SeriesEncoded, origins: Origins, season: int = 1) -> np.ndarray:
    """Returns the last value, or the one a season before, scaled (n,horizon,N)."""
    first = encoded.starts[origins.series]
    last = (first + origins.positions - 1)[:, None]
    before = last + season_offsets(season, encoded.processor.horizon)
    return np.asarray(encoded.values[np.where(before >= first[:, None], before, last)])


def fit_linear(train: SeriesEncoded, length: int, steps: int) -> list[np.ndarray]:
    """Returns the weights (length+1,steps) of each target that forecast it from its own past by least squares.

    ŷ_{t+j} = b_j + Σ_i w_ji y_{t−i}, the same for all series, on scaled values; the last row is b.
    """
    sizes, starts = train.sizes, train.starts
    rows = np.concatenate(
        [s + np.arange(length, max(n - steps + 1, length)) for s, n in zip(starts, sizes, strict=True)]
    )
    if len(rows) > MAX_WINDOWS:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, MAX_WINDOWS).astype(np.int64))]
    before, after = rows[:, None] + np.arange(-length, 0), rows[:, None] + np.arange(steps)
    weights = []
    for target in range(train.values.shape[1]):
        complete = train.observed[after, target].all(axis=1)
        x = train.values[before[complete], target].astype(np.float64)
        y = train.values[after[complete], target].astype(np.float64)
        weights.append(solve_ridge(x, y))
    return weights


def solve_ridge(x: np.ndarray, y: np.ndarray, ridge: float = RIDGE) -> np.ndarray:
    """Returns w (length+1,steps) of (XᵀX + λnI) w = XᵀY; X is x (n,length) with a column of ones, Y is y (n,steps)."""
    x = add_ones(x)
    penalty = ridge * max(len(x), 1) * np.eye(x.shape[1])
    return np.asarray(np.linalg.solve(x.T @ x + penalty, x.T @ y))


def add_ones(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x.astype(np.float64), np.ones((len(x), 1))], axis=1)


def linear_forecast(weights: Sequence[np.ndarray], encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
    """Returns the forecasts (n,horizon,N) of `fit_linear`, scaled; a short context is extended by its first value."""
    first = encoded.starts[origins.series]
    context = (first + origins.positions)[:, None] + np.arange(1 - len(weights[0]), 0)
    rows = np.maximum(context, first[:, None])
    return np.stack([add_ones(encoded.values[rows, target]) @ w for target, w in enumerate(weights)], axis=-1)
