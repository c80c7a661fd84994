"""Prediction intervals by split conformal prediction (Vovk 2005; Lei et al. 2018), calibrated on the validation split.

The errors of the forecasts of the validation split are taken for each step of the horizon, in units of a scale that is
known before the forecast,

    r = (y − ŷ) / s        s = ¼ mean |y_t − y_{t−season}| over all steps before it + ¾ over the last two seasons,

so that intervals widen where a series has become more variable. Of n sorted errors the interval of 1 − α reaches from
the k-th to the (n + 1 − k)-th, k = ⌊(n + 1) α/2⌋; few errors are sorted without their sign, and the ⌈(n + 1)(1 − α)⌉-th
is the half-width. If errors were exchangeable, at least 1 − α of the values would be covered. Those of a time series
are not: they depend on each other, the series may change after the validation split, and the weights were chosen on it.
Coverage is therefore reported, and intervals of few errors are at least as wide as those of the anchor alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..processor import Stored, check_numbers
from .encoded import Origins, SeriesEncoded

MIN_TAIL = 5  # errors outside each end of an interval from which on its ends are found one by one
RECENT_WEIGHT = 0.75  # of the last two seasons in the scale
SMALLEST_SCALE = 1e-6  # in units of the scaled series
FEW_ERRORS = 100  # of each step of the horizon
MAX_ORIGINS = 5000  # whose errors are sorted


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


def calibration_errors(encoded: SeriesEncoded, origins: Origins, forecasts: np.ndarray) -> np.ndarray:
    """Returns the errors (n·N,horizon) of scaled forecasts (n,horizon,N) in units of their scale; NaN if unknown."""
    targets, known = encoded.targets_after(origins.series, encoded.last_rows(origins), encoded.processor.horizon)
    counted = known[:, 0] & origins.counted[:, :, None]
    errors = np.where(counted, targets[:, 0] - forecasts, np.nan) / local_scale(encoded, origins)[:, None]
    return np.moveaxis(errors, 1, 2).reshape(-1, encoded.processor.horizon)


def apply_intervals(encoded: SeriesEncoded, origins: Origins, forecasts: np.ndarray) -> np.ndarray:
    """Returns the ends of all intervals (n,horizon,N,I,2) around scaled forecasts (n,horizon,N), unscaled."""
    intervals = encoded.processor.intervals
    offsets = np.array([[interval.lower, interval.upper] for interval in intervals])  # (I,2,horizon)
    offsets = np.moveaxis(offsets.reshape(len(intervals), 2, -1), -1, 0)[None, :, None]  # (1,horizon,1,I,2)
    scale = local_scale(encoded, origins)[:, None, :, None, None]
    ends = forecasts[..., None, None] + scale * offsets
    return encoded.unscale(origins, ends.reshape(*forecasts.shape, -1)).reshape(ends.shape)


def local_scale(encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
    """Returns the scale (n,N) of errors from origins on; see the module."""
    processor, first, last = encoded.processor, encoded.starts[origins.series], encoded.last_rows(origins)[:, 0]
    scale = np.full((len(origins), encoded.values.shape[1]), np.nan)
    for lag in (processor.season, 1):  # a history shorter than a season has changes from step to step
        recent = np.maximum(last - 2 * max(processor.season, processor.horizon), first + lag - 1)
        sums, counts = change_sums(encoded, lag)
        means = []
        for begin in (np.minimum(first + lag - 1, last), np.minimum(recent, last)):
            with np.errstate(invalid="ignore"):
                means.append((sums[last] - sums[begin]) / (counts[last] - counts[begin]))
        overall, latest = means
        blended = np.where(np.isnan(latest), overall, (1 - RECENT_WEIGHT) * overall + RECENT_WEIGHT * latest)
        scale = np.where(np.isnan(scale), blended, scale)
    return np.asarray(np.where(np.isnan(scale), 1.0, np.maximum(scale, SMALLEST_SCALE)))


def change_sums(encoded: SeriesEncoded, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sums (rows,N) of |y_t − y_{t−lag}| up to each row, of known values, and how many they are."""
    values, known = encoded.values.astype(np.float64), encoded.observed.copy()
    known[lag:] &= encoded.observed[: max(len(known) - lag, 0)]
    known[:lag] = False
    changes = np.zeros_like(values)
    changes[lag:] = np.abs(values[lag:] - values[: max(len(values) - lag, 0)])
    return np.cumsum(np.where(known, changes, 0.0), axis=0), np.cumsum(known, axis=0)
