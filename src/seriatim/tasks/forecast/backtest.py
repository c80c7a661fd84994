"""The backtest of forecasts in the units of the data: metrics, charts and tables, and samples in words.

    MASE = mean |y − ŷ| / mean |y_t − y_{t−season}| in training        sMAPE = mean 2|y − ŷ| / (|y| + |ŷ|)
    MSIS = mean (u − l + 2/α max(l − y, 0) + 2/α max(y − u, 0)) / mean |y_t − y_{t−season}| in training

MASE (Hyndman and Koehler 2006) and MSIS, the score of the interval from l to u of 1 − α, are those of the M4
competition: computed for each series, then averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.text import evenly_spaced
from ...report.charts import Band, ForecastPlot, Lines, Scatter, Series, Table, View, row
from ..values import Metrics
from .encoded import Origins, SeriesEncoded

if TYPE_CHECKING:
    from .processor import ForecastProcessor

MAX_PLOTS = 6  # series or variables with a plot
MAX_ROWS = 20  # of a table
MAX_HISTORY = 120  # steps shown before a forecast
SAMPLED_STEPS, SAMPLED_HISTORY = 8, 6


# Metrics


@dataclass(frozen=True)
class Forecasts:
    """Forecasts from origins on, in the units of the data."""

    quantiles: np.ndarray  # (n,horizon,N,Q), or one forecast
    levels: tuple[float, ...] = ()  # the quantiles; () for a single forecast
    intervals: np.ndarray | None = None  # (n,horizon,N,I,2)
    percents: tuple[int, ...] = ()  # of the intervals

    @property
    def values(self) -> np.ndarray:
        """The forecasts (n,horizon,N): single ones, or the quantiles nearest to the median."""
        return np.asarray(self.quantiles[..., median_index(self.levels)])


class SeriesError(NamedTuple):
    """The mean error of one target of one series, and how large that of the seasonal naive forecast is in training."""

    series: int
    target: int
    mean: float
    scale: float  # NaN if it is 0 or unknown

    @property
    def ratio(self) -> float:
        return self.mean / self.scale


def forecast_metrics(
    processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins, forecasts: Forecasts
) -> Metrics:
    """Returns the metrics over all known values; MASE and MSIS are averaged over series and targets."""
    references, values = encoded.references(origins), forecasts.values
    known = ~np.isnan(references)
    count = max(int(known.sum()), 1)
    errors = np.where(known, values - np.where(known, references, 0.0), 0.0)
    mse = float((errors**2).sum() / count)
    metrics = {"mse": mse, "rmse": float(np.sqrt(mse)), "mae": float(np.abs(errors).sum() / count)}
    actual = references[known]
    if len(actual) > 1 and actual.var() > 0:
        metrics["r2"] = 1 - mse / float(actual.var())
    metrics |= mean_ratio("mase", series_errors(processor, encoded, origins, np.abs(references - values)))
    if processor.logs or (known.any() and float(actual.min()) > 0):
        sizes = np.abs(np.where(known, references, 1.0)) + np.abs(values)
        metrics["smape"] = float((2 * np.abs(errors) / sizes).sum() / count)
    if forecasts.levels:
        gaps = np.where(known[..., None], references[..., None] - forecasts.quantiles, 0.0)
        shares = np.array(forecasts.levels)
        metrics["pinball"] = float(np.maximum(shares * gaps, (shares - 1) * gaps).mean(axis=-1).sum() / count)
    if len(forecasts.levels) > 1:
        low, high = forecasts.quantiles[..., 0], forecasts.quantiles[..., -1]
        metrics["coverage"] = float((known & (references >= low) & (references <= high)).sum() / count)
    if forecasts.intervals is not None:
        for number, percent in enumerate(forecasts.percents):
            lower, upper = np.moveaxis(forecasts.intervals[..., number, :], -1, 0)
            inside = known & (references >= lower) & (references <= upper)
            metrics[f"coverage_{percent}"] = float(inside.sum() / count)
        misses = np.maximum(lower - references, 0.0) + np.maximum(references - upper, 0.0)
        scores = upper - lower + 200 / (100 - percent) * misses
        metrics |= mean_ratio(f"msis_{percent}", series_errors(processor, encoded, origins, scores))
    return metrics


def mean_ratio(name: str, errors: Sequence[SeriesError]) -> Metrics:
    """Returns a metric that is averaged over series; none if no series has a scale."""
    ratios = [error.ratio for error in errors if np.isfinite(error.ratio)]
    return {name: float(np.mean(ratios))} if ratios else {}


def median_index(levels: Sequence[float]) -> int:
    """Returns which quantile is the forecast: the one nearest to the median."""
    return int(np.argmin([abs(level - 0.5) for level in levels])) if levels else 0


def series_errors(
    processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins, errors: np.ndarray
) -> list[SeriesError]:
    """Returns the mean of errors (n,horizon,N), NaN where unknown, of each target of each series that has any."""
    known = ~np.isnan(errors)
    sums, counts = np.where(known, errors, 0.0).sum(axis=1), known.sum(axis=1)  # (n,N)
    results = []
    for series, rows in origins.by_series():
        before = max(int(origins.positions[rows].min()), 1)
        scales = processor.naive_mae(encoded.names[series], encoded.raw[series][:before])
        for target in range(errors.shape[2]):
            if count := int(counts[rows, target].sum()):
                scale = float(scales[target]) if scales[target] > 0 else np.nan
                results.append(SeriesError(series, target, float(sums[rows, target].sum() / count), scale))
    return results


def window_errors(
    processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins, forecasts: Forecasts
) -> np.ndarray:
    """Returns the mean absolute scaled error (n,) of each origin; NaN if nothing is known."""
    errors = np.abs(encoded.references(origins) - forecasts.values)
    scales = np.full((len(encoded.names), errors.shape[2]), np.nan)
    for error in series_errors(processor, encoded, origins, errors):
        scales[error.series, error.target] = error.scale
    ratios = errors / scales[origins.series][:, None]
    known = ~np.isnan(ratios)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, ratios, 0.0).sum(axis=(1, 2)) / known.sum(axis=(1, 2)))


def shares_below(references: np.ndarray, quantiles: np.ndarray) -> list[float]:
    """Returns for each quantile (n,horizon,N,Q) the share of the known values that lie below it."""
    known = ~np.isnan(references)
    count = max(int(known.sum()), 1)
    return [float((known & (references <= quantiles[..., q])).sum() / count) for q in range(quantiles.shape[-1])]


# Charts and tables


def make_views(
    processor: ForecastProcessor,
    encoded: SeriesEncoded,
    origins: Origins,
    forecasts: Forecasts,
    simple: Mapping[str, np.ndarray],
) -> list[View]:
    """Returns plots of forecasts, the error by step of the horizon and by series, and the calibration.

    Baselines `simple` (n,horizon,N) are in the units of the data.
    """
    references, levels = encoded.references(origins), forecasts.levels
    baseline = "seasonal naive" if "seasonal naive" in simple else "naive"
    pairs = [(s, n) for s in np.unique(origins.series).tolist() for n in range(len(processor.targets))]
    chosen = evenly_spaced(len(pairs), MAX_PLOTS)
    views: list[View] = []
    for series, target in (pairs[index] for index in chosen):
        item = int(np.flatnonzero(origins.series == series)[-1])
        compared = (baseline, simple[baseline])
        views.append(plot_forecast(processor, encoded, origins, item, target, forecasts, compared, actual=True))
    views.append(plot_steps(references, {"model": forecasts.values, **simple}))
    if forecasts.intervals is not None:
        views.append(plot_coverage(references, forecasts.intervals, forecasts.percents))
    errors = series_errors(processor, encoded, origins, np.abs(references - forecasts.values))
    if len(errors) > 1:
        baseline_errors = series_errors(processor, encoded, origins, np.abs(references - simple[baseline]))
        views.append(tabulate_series(processor, encoded, errors, baseline, baseline_errors))
    if levels:
        shares = shares_below(references, forecasts.quantiles)
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
    processor: ForecastProcessor,
    encoded: SeriesEncoded,
    origins: Origins,
    item: int,
    target: int,
    forecasts: Forecasts,
    baseline: tuple[str, np.ndarray] | None = None,
    actual: bool = False,
) -> ForecastPlot:
    """Returns the plot of a target from the origin `item` on, with the bands of quantiles, or else of intervals.

    A `baseline` is a name with its forecasts (n,horizon,N); `actual`: whether the observed values are known.
    """
    series, position = int(origins.series[item]), int(origins.positions[item])
    shown = min(max(processor.context_length, 2 * processor.horizon), MAX_HISTORY)
    start, end = max(position - shown, 0), position + processor.horizon
    times = encoded.frequency.after(encoded.start_times[series], np.arange(start, end))
    texts = tuple(encoded.frequency.format(time) for time in times)
    values = encoded.raw[series][:, target]
    variable = processor.targets[target]
    levels, quantiles = forecasts.levels, forecasts.quantiles[item, :, target]  # (horizon,Q)
    bands = [
        Band(f"{levels[low]:g} to {levels[-1 - low]:g}", row(quantiles[:, low]), row(quantiles[:, -1 - low]))
        for low in range(len(levels) // 2)
    ]
    if forecasts.intervals is not None and not bands:
        ends = forecasts.intervals[item, :, target]  # (horizon,I,2)
        bands = [
            Band(f"{percent} % interval", row(ends[:, number, 0]), row(ends[:, number, 1]))
            for number, percent in reversed(list(enumerate(forecasts.percents)))
        ]
    return ForecastPlot(
        title=" · ".join(part for part in (encoded.names[series], variable) if part),
        history_times=texts[: position - start],
        history=row(values[start:position]),
        times=texts[position - start :],
        forecast=row(forecasts.values[item, :, target]),
        actual=row(values[position:end]) if actual else (),
        bands=tuple(bands),
        baseline=() if baseline is None else row(baseline[1][item, :, target]),
        baseline_name="" if baseline is None else baseline[0],
        y=variable,
    )


def plot_coverage(references: np.ndarray, intervals: np.ndarray, percents: Sequence[int]) -> Lines:
    """Returns the share of values within each interval by the step of the horizon, beside its nominal share.

    The note has the standard error of a right interval: the values of a horizon, too high or low together, are one.
    """
    known = ~np.isnan(references)
    horizons = max(known.sum() / references.shape[1], 1.0)
    steps = row(np.arange(1, references.shape[1] + 1))
    lines, texts = [], []
    for number, percent in enumerate(percents):
        inside = known & (references >= intervals[..., number, 0]) & (references <= intervals[..., number, 1])
        with np.errstate(invalid="ignore"):
            shares = inside.sum(axis=(0, 2)) / known.sum(axis=(0, 2))
        name = f"{percent} % interval"
        nominal = np.full(len(shares), percent / 100)
        lines += [Series(name, steps, row(shares)), Series(f"{name}, nominal", steps, row(nominal), dashed=True)]
        error = np.sqrt(percent * (100 - percent) / horizons)
        share = 100 * inside.sum() / max(int(known.sum()), 1)
        texts.append(f"{share:.1f} % are within the {name} (standard error {error:.1f} points)")
    note = f"share of the values; of all steps together {' and '.join(texts)}"
    return Lines(
        title="Coverage of the intervals", note=note, series=tuple(lines), x="step", y="share", low=0.0, markers=False
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
    processor: ForecastProcessor,
    encoded: SeriesEncoded,
    errors: list[SeriesError],
    baseline: str,
    baseline_errors: list[SeriesError],
) -> Table:
    """Returns a table of the series with the largest errors, relative to the naive forecast."""
    maes = {(error.series, error.target): error.mean for error in baseline_errors}
    hardest = sorted(errors, key=lambda error: -error.ratio if np.isfinite(error.ratio) else np.inf)[:MAX_ROWS]
    rows = tuple(
        (
            encoded.names[error.series],
            processor.targets[error.target],
            error.mean,
            maes[error.series, error.target],
            error.ratio if np.isfinite(error.ratio) else None,
        )
        for error in hardest
    )
    columns = ("series", "variable", "MAE", f"MAE of {baseline}", "MASE")
    return Table(title="Series with the largest errors", columns=columns, rows=rows)


def describe_forecasts(
    processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins, forecasts: np.ndarray
) -> str:
    """Returns a line per origin: the steps before it, the forecast (n,horizon,N) and what came."""
    references, lines = encoded.references(origins), []
    for item, (series, position) in enumerate(zip(origins.series.tolist(), origins.positions.tolist(), strict=True)):
        title = " · ".join(part for part in (encoded.names[series], processor.targets[0]) if part)
        before = encoded.raw[series][max(position - SAMPLED_HISTORY, 0) : position, 0]
        parts = (before, forecasts[item, :SAMPLED_STEPS, 0], references[item, :SAMPLED_STEPS, 0])
        history, forecast, actual = (" ".join("?" if np.isnan(v) else f"{v:.4g}" for v in part) for part in parts)
        lines.append(f"{title}: … {history} → {forecast} (actual {actual})")
    return "\n".join(lines)
