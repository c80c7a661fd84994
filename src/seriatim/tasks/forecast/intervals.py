"""Prediction intervals by conformal prediction (Vovk 2005; Lei et al. 2018), calibrated on all errors known before.

The first forecast of the test split has the errors of the validation split; a later one also those of the test split
whose values came before it (Xu and Xie 2021), and a forecast after the end of the data those of both splits. They are
taken for each step of the horizon, in units of a scale that is known before the forecast: how much the series changed
until then,

    r = (y − ŷ) / s        s = (1 − w) · mean change over all steps before the forecast + w · over the last two seasons

so that intervals widen where a series has become more variable. A change is |y_t − y_{t−season}|, or the mean of
|y_t − y_{t−i}| for i up to the horizon; which one, and w, is what gives the intervals with the best score on the
validation split (their width, and a penalty for values outside), no scale at all being a candidate, too. Of n sorted
errors the interval of 1 − α reaches from the k-th to the (n + 1 − k)-th, k = ⌊(n + 1) α/2⌋; few errors are sorted
without their sign, and the ⌈(n + 1)(1 − α)⌉-th is the half-width. If errors were exchangeable, at least 1 − α of the
values would be covered. Those of a time series are not: they depend on each other, the series may change, and the
weights were chosen on the validation split. Coverage is therefore reported, and intervals of few errors are at least as
wide as those of the anchor alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ...core.text import evenly_spaced
from ..processor import Stored, check_numbers
from .encoded import Origins, SeriesEncoded

if TYPE_CHECKING:
    from .processor import ForecastProcessor

MIN_TAIL = 5  # errors outside each end of an interval from which on its ends are found one by one
SMALLEST_SCALE = 1e-6  # in units of the scaled series
MIN_RECENT = 20  # steps, at least, that are called recent
MAX_LAGS = 8  # of changes over up to the horizon
FEW_ERRORS = 100  # of each step of the horizon
MAX_ORIGINS = 5000  # of a split, whose errors are sorted
MAX_CALIBRATIONS = 20  # of a backtest


class Scale(NamedTuple):
    """The unit of errors."""

    change: Literal["season", "steps", "none"]  # over a season, over one to `horizon` steps; none for 1
    recent: float = 0.0  # weight of the last two seasons, or twice the horizon


SCALES = {
    "season-75": Scale("season", 0.75),
    "season-50": Scale("season", 0.5),
    "season": Scale("season"),
    "steps-75": Scale("steps", 0.75),
    "steps-50": Scale("steps", 0.5),
    "steps": Scale("steps"),
    "none": Scale("none"),
}


@dataclass(frozen=True)
class Interval(Stored):
    """An interval around forecasts, in units of their scale."""

    percent: int  # nominal coverage
    count: int  # errors it is calibrated on, at the step of the horizon that has the fewest
    lower: tuple[float, ...]  # (horizon,)
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        check_numbers("lower and upper", (self.lower, self.upper), 2, len(self.lower))

    def widened(self, other: Interval) -> Interval:
        """Returns the interval that holds both."""
        pairs = zip(self.lower, other.lower, strict=True), zip(self.upper, other.upper, strict=True)
        return replace(self, lower=tuple(map(min, pairs[0])), upper=tuple(map(max, pairs[1])))

    @property
    def reachable(self) -> bool:
        """Whether there are enough errors to calibrate it; otherwise it is as wide as the largest error."""
        return (self.count + 1) * (100 - self.percent) >= 100


def calibrate(errors: np.ndarray, percents: Sequence[int]) -> tuple[Interval, ...]:
    """Returns the intervals of these percentages, given errors (n,horizon) in units of their scale, NaN if unknown.

    A step of the horizon without any error takes those of all steps; without any at all there are no intervals.
    """
    columns = [column[~np.isnan(column)] for column in errors.T]
    everything = np.concatenate(columns)
    if not len(everything):
        return ()
    columns = [column if len(column) else everything for column in columns]
    count = min(map(len, columns))
    bounds = {percent: [find_bounds(column, percent) for column in columns] for percent in percents}
    return tuple(Interval(percent, count, *zip(*ends, strict=True)) for percent, ends in bounds.items())


def find_bounds(errors: np.ndarray, percent: int) -> tuple[float, float]:
    """Returns the lower and the upper end of the interval of errors (n,)."""
    count = len(errors)
    tail = (count + 1) * (100 - percent) // 200
    if tail >= MIN_TAIL:
        ordered = np.sort(errors)
        return float(ordered[tail - 1]), float(ordered[count - tail])
    rank = min(-(-(count + 1) * percent // 100), count)
    width = float(np.sort(np.abs(errors))[rank - 1])
    return -width, width


class KnownErrors(NamedTuple):
    """Errors (n,horizon) in units of their scale, NaN if unknown, and when they became known.

    The test splits of several series are taken to start at one time, as those of equally long series that end together.
    """

    forecasts: np.ndarray
    anchors: np.ndarray  # those of the anchor alone
    steps: np.ndarray  # of the values, counted from the start of the test split of their series; −1 before it

    def calibrate(self, percents: Sequence[int], before: float = np.inf) -> tuple[Interval, ...]:
        """Returns the intervals that are calibrated on the errors of values before a step."""
        forecasts, anchors = (np.where(self.steps < before, errors, np.nan) for errors in self[:2])
        intervals = calibrate(forecasts, percents)
        if not intervals or intervals[0].count >= FEW_ERRORS:
            return intervals
        others = calibrate(anchors, percents)  # few values, on which the weights were chosen, too
        return tuple(own.widened(other) for own, other in zip(intervals, others, strict=True))

    def rolling_offsets(self, encoded: SeriesEncoded, origins: Origins, percents: Sequence[int]) -> np.ndarray:
        """Returns the ends (n,horizon,I,2) of intervals that are calibrated on what is known before each origin.

        A long backtest is calibrated at some of its origins; the others take the last calibration before them.
        """
        elapsed = origins.positions - encoded.history[origins.series]
        elapsed = np.minimum(elapsed, self.steps.max() + 1)  # later ones know no more
        steps = np.unique(elapsed)
        steps = steps[evenly_spaced(len(steps), MAX_CALIBRATIONS)]
        offsets = np.stack([interval_offsets(self.calibrate(percents, step)) for step in steps])
        return np.asarray(offsets[np.searchsorted(steps, elapsed, "right") - 1])


def calibration_errors(
    processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins, forecasts: np.ndarray
) -> np.ndarray:
    """Returns the errors (n·N,horizon) of scaled forecasts (n,horizon,N) in units of their scale; NaN if unknown."""
    targets, known = encoded.targets_after(origins.series, encoded.last_rows(origins), encoded.horizon)
    counted = known[:, 0] & origins.counted[:, :, None]
    errors = np.where(counted, targets[:, 0] - forecasts, np.nan) / local_scale(processor, encoded, origins)[:, None]
    return np.moveaxis(errors, 1, 2).reshape(-1, encoded.horizon)


def interval_score(
    processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins, errors: np.ndarray, percents: Sequence[int]
) -> float:
    """Returns the mean score of the intervals that are calibrated on errors (n·N,horizon), summed over percentages."""
    scale, total = local_scale(processor, encoded, origins).reshape(-1, 1), 0.0
    for interval in calibrate(errors, percents):
        lower, upper = np.array(interval.lower), np.array(interval.upper)
        outside = np.maximum(lower - errors, 0.0) + np.maximum(errors - upper, 0.0)
        total += float(np.nanmean(scale * (upper - lower + 200 / (100 - interval.percent) * outside)))
    return total


def choose_scale(
    processor: ForecastProcessor,
    encoded: SeriesEncoded,
    origins: Origins,
    forecasts: np.ndarray,
    percents: Sequence[int],
) -> str:
    """Returns the name of the scale whose intervals around scaled forecasts (n,horizon,N) have the best score."""
    scores = {}
    for name in SCALES:
        candidate = replace(processor, interval_scale=name)
        errors = calibration_errors(candidate, encoded, origins, forecasts)
        if np.isnan(errors).all():
            return processor.interval_scale
        scores[name] = interval_score(candidate, encoded, origins, errors, percents)
    return min(scores, key=lambda name: scores[name])


def interval_offsets(intervals: Sequence[Interval]) -> np.ndarray:
    """Returns the ends (horizon,I,2) of intervals."""
    return np.moveaxis(np.array([[interval.lower, interval.upper] for interval in intervals]), -1, 0)


def apply_intervals(
    processor: ForecastProcessor,
    encoded: SeriesEncoded,
    origins: Origins,
    forecasts: np.ndarray,
    offsets: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the ends of all intervals (n,horizon,N,I,2) around scaled forecasts (n,horizon,N), unscaled.

    Offsets (n,horizon,I,2) are in units of the scale; by default those of the intervals of the processor.
    """
    offsets = interval_offsets(processor.intervals) if offsets is None else offsets
    scale = local_scale(processor, encoded, origins)[:, None, :, None, None]
    ends = forecasts[..., None, None] + scale * offsets[..., None, :, :]
    return encoded.unscale(origins, ends.reshape(*forecasts.shape, -1)).reshape(ends.shape)


def local_scale(processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
    """Returns the scale (n,N) of errors from origins on; see the module."""
    first, last = encoded.starts[origins.series], encoded.last_rows(origins)[:, 0]
    kind, scale = SCALES[processor.interval_scale], np.full((len(origins), encoded.values.shape[1]), np.nan)
    if kind.change == "none":
        return np.ones_like(scale)
    steps = 1 + evenly_spaced(processor.horizon, MAX_LAGS)
    for lags in ([processor.season] if kind.change == "season" else steps.tolist(), [1]):  # a history may be short
        recent = np.maximum(last - max(2 * processor.season, 2 * processor.horizon, MIN_RECENT), first)
        sums, counts = change_sums(encoded, lags)
        with np.errstate(invalid="ignore"):
            overall, latest = ((sums[last] - sums[row]) / (counts[last] - counts[row]) for row in (first, recent))
        blended = np.where(np.isnan(latest), overall, (1 - kind.recent) * overall + kind.recent * latest)
        scale = np.where(np.isnan(scale), blended, scale)
    return np.asarray(np.where(np.isnan(scale), 1.0, np.maximum(scale, SMALLEST_SCALE)))


def change_sums(encoded: SeriesEncoded, lags: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sums (rows,N) up to each row of the mean of |y_t − y_{t−lag}| over lags, and of how many rows.

    Only known values of the same series count.
    """
    values, known = encoded.values.astype(np.float64), encoded.observed
    rows = np.arange(len(values))
    starts = np.repeat(encoded.starts, encoded.sizes + encoded.horizon)
    totals, counts = np.zeros_like(values), np.zeros_like(values)
    for lag in lags:
        before = np.maximum(rows - lag, 0)
        exists = known & known[before] & (rows - lag >= starts)[:, None]
        totals += np.where(exists, np.abs(values - values[before]), 0.0)
        counts += exists
    means = totals / np.maximum(counts, 1)
    return np.cumsum(means, axis=0), np.cumsum(counts > 0, axis=0)
