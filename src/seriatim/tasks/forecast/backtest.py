"""The backtest of forecasts in the units of the data: metrics, charts and tables, and samples in words.

MASE = mean |y − ŷ| / mean |y_t − y_{t−season}| in training        sMAPE = mean 2|y − ŷ| / (|y| + |ŷ|)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...report.charts import Band, ForecastPlot, Lines, Scatter, Series, Table, View, row
from ..base import Metrics
from ..batching import evenly_spaced
from .encoded import Origins, SeriesEncoded

MAX_PLOTS = 6  # series or variables with a plot
MAX_ROWS = 20  # of a table
MAX_HISTORY = 120  # steps shown before a forecast
SAMPLED_STEPS, SAMPLED_HISTORY = 8, 6


# Metrics


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
    for series, rows in [(-1, np.arange(len(origins)))] if encoded.processor.pooled else origins.by_series():
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


# Charts and tables


def make_views(
    encoded: SeriesEncoded,
    origins: Origins,
    quantiles: np.ndarray,
    levels: Sequence[float],
    simple: Mapping[str, np.ndarray],
) -> list[View]:
    """Returns plots of forecasts, the error by step of the horizon and by series, and the calibration.

    Forecasts `quantiles` (n,horizon,N,Q) and baselines `simple` (n,horizon,N) are in the units of the data; `levels`
    are the quantiles, () for a single forecast.
    """
    references = encoded.references(origins)
    forecasts = quantiles[..., median_index(levels)]
    baseline = "seasonal naive" if "seasonal naive" in simple else "naive"
    pairs = [(s, n) for s in np.unique(origins.series).tolist() for n in range(len(encoded.processor.targets))]
    chosen = evenly_spaced(len(pairs), MAX_PLOTS)
    views: list[View] = []
    for series, target in (pairs[index] for index in chosen):
        item = int(np.flatnonzero(origins.series == series)[-1])
        views.append(
            plot_forecast(encoded, origins, item, target, quantiles, levels, (baseline, simple[baseline]), actual=True)
        )
    views.append(plot_steps(references, {"model": forecasts, **simple}))
    errors = series_errors(encoded, origins, references, forecasts)
    if not encoded.processor.pooled and len(errors) > 1:
        baseline_errors = series_errors(encoded, origins, references, simple[baseline])
        views.append(tabulate_series(encoded, errors, baseline, baseline_errors))
    if levels:
        shares = shares_below(references, quantiles)
        note = f"the band from {levels[0]:g} to {levels[-1]:g} should hold {levels[-1] - levels[0]:.0%} of the values"
        views.append(
            Scatter(
                title="Calibration of the quantiles",
                note=note if len(levels) > 1 else "",
                points=tuple(zip(levels, shares, strict=True)),
                labels=tuple(f"{level:g}" for level in levels),
                x="quantile",
                y="share of values below",
                diagonal=True,
            )
        )
    return views


def plot_forecast(
    encoded: SeriesEncoded,
    origins: Origins,
    item: int,
    target: int,
    quantiles: np.ndarray,
    levels: Sequence[float],
    baseline: tuple[str, np.ndarray] | None = None,
    actual: bool = False,
) -> ForecastPlot:
    """Returns the plot of a target from the origin `item` on; see `make_views`.

    A `baseline` is a name with its forecasts (n,horizon,N); `actual` tells whether what came is known.
    """
    processor, series, position = encoded.processor, int(origins.series[item]), int(origins.positions[item])
    shown = min(max(processor.context_length, 2 * processor.horizon), MAX_HISTORY)
    start, end = max(position - shown, 0), position + processor.horizon
    times = encoded.frequency.after(encoded.start_times[series], np.arange(start, end))
    texts = tuple(encoded.frequency.format(time) for time in times)
    values = encoded.raw[series][:, target]
    variable = processor.targets[target]
    forecasts = quantiles[item, :, target]  # (horizon,Q)
    bands = tuple(
        Band(f"{levels[low]:g} to {levels[-1 - low]:g}", row(forecasts[:, low]), row(forecasts[:, -1 - low]))
        for low in range(len(levels) // 2)
    )
    return ForecastPlot(
        title=" · ".join(part for part in (encoded.names[series], variable) if part),
        history_times=texts[: position - start],
        history=row(values[start:position]),
        times=texts[position - start :],
        forecast=row(forecasts[:, median_index(levels)]),
        actual=row(values[position:end]) if actual else (),
        bands=bands,
        baseline=() if baseline is None else row(baseline[1][item, :, target]),
        baseline_name="" if baseline is None else baseline[0],
        y=variable,
    )


def plot_steps(references: np.ndarray, forecasts: Mapping[str, np.ndarray]) -> Lines:
    """Returns the mean absolute error of each forecast (n,horizon,N) by the step of the horizon."""
    errors = {name: step_errors(references, values) for name, values in forecasts.items()}
    title, note = "Error by step of the horizon", "mean absolute error of the forecast so many steps ahead"
    steps = references.shape[1]
    x = row(np.arange(1, steps + 1))
    lines = tuple(Series(name, x, row(np.array(y)), dashed=name != "model") for name, y in errors.items())
    return Lines(
        title=title, note=note, series=lines, x="step", y="MAE", metric="mae", low=0.0, markers=steps <= MAX_ROWS
    )


def step_errors(references: np.ndarray, forecasts: np.ndarray) -> list[float]:
    """Returns the mean absolute error of each step of the horizon; NaN where nothing is known."""
    errors = np.abs(references - forecasts)
    known = [errors[:, step][~np.isnan(errors[:, step])] for step in range(errors.shape[1])]
    return [float(values.mean()) if len(values) else np.nan for values in known]


def tabulate_series(
    encoded: SeriesEncoded, errors: list[SeriesError], baseline: str, baseline_errors: list[SeriesError]
) -> Table:
    """Returns a table of the series with the largest errors, relative to the naive forecast."""
    maes = {(error.series, error.target): error.mae for error in baseline_errors}
    hardest = sorted(errors, key=lambda error: -error.mase if np.isfinite(error.mase) else np.inf)[:MAX_ROWS]
    rows = tuple(
        (
            encoded.names[error.series],
            encoded.processor.targets[error.target],
            error.mae,
            maes[error.series, error.target],
            error.mase if np.isfinite(error.mase) else None,
        )
        for error in hardest
    )
    columns = ("series", "variable", "MAE", f"MAE of {baseline}", "MASE")
    return Table(title="Series with the largest errors", columns=columns, rows=rows)


def describe_forecasts(encoded: SeriesEncoded, origins: Origins, forecasts: np.ndarray) -> str:
    """Returns a line per origin: the steps before it, the forecast (n,horizon,N) and what came."""
    references, lines = encoded.references(origins), []
    for item, (series, position) in enumerate(zip(origins.series.tolist(), origins.positions.tolist(), strict=True)):
        title = " · ".join(part for part in (encoded.names[series], encoded.processor.targets[0]) if part)
        before = encoded.raw[series][max(position - SAMPLED_HISTORY, 0) : position, 0]
        parts = (before, forecasts[item, :SAMPLED_STEPS, 0], references[item, :SAMPLED_STEPS, 0])
        history, forecast, actual = (" ".join("?" if np.isnan(v) else f"{v:.4g}" for v in part) for part in parts)
        lines.append(f"{title}: … {history} → {forecast} (actual {actual})")
    return "\n".join(lines)
