"""Backtests by rolling origin, their measures in the units of the data, and what is trivial beside a network.

MASE = mean |y − ŷ| / mean |y_t − y_{t−m}| within the training part      sMAPE = mean 2|y − ŷ| / (|y| + |ŷ|)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._forecast_arrays import Arrays, _back

RIDGE = 1e-6
WINDOWS = 20_000  # that the linear forecast is fitted on, spread evenly over all of them
NAMES = ("naive", "seasonal naive", "linear")


@dataclass(frozen=True)
class Origins:
    """Where forecasts begin: the series, the element that is the first unknown one, and which steps count."""

    rows: np.ndarray  # (n,)
    places: np.ndarray  # (n,) within the series
    counted: np.ndarray  # (n,horizon): a last window that overlaps another counts its new steps only

    def __len__(self) -> int:
        return len(self.rows)

    def some(self, limit: int | None) -> Origins:
        """At most `limit` of them, spread evenly."""
        if limit is None or len(self) <= limit:
            return self
        kept = np.unique(np.linspace(0, len(self) - 1, max(limit, 1)).astype(np.int64))
        return Origins(self.rows[kept], self.places[kept], self.counted[kept])


def origins(arrays: Arrays, split: str, stride: int | None) -> Origins:
    """Every `stride` elements of a part, such that each of its elements is forecast at least once."""
    horizon, length = arrays.layout.horizon, arrays.layout.length
    stride = horizon if stride is None else stride
    rows: list[int] = []
    places: list[int] = []
    counted: list[np.ndarray] = []
    for row, series in enumerate(arrays.series):
        if split not in series.spans:
            continue
        begin, end = series.spans[split]
        begin = max(begin, length) if begin == 0 else begin
        found = list(range(begin, end - horizon + 1, stride))
        if not found:
            continue
        new = [np.ones(horizon, dtype=bool) for _ in found]
        if found[-1] + horizon < end:
            new.append(np.arange(end - horizon, end) >= found[-1] + horizon)
            found.append(end - horizon)
        known = ~np.isnan(series.values[:, : len(arrays.layout.roles.targets)]).all(axis=1)
        for place, counts in zip(found, new, strict=True):
            if (known[place : place + horizon] & counts).any():  # else there is nothing to measure
                rows.append(row)
                places.append(place)
                counted.append(counts)
    return Origins(
        np.array(rows, dtype=np.int64),
        np.array(places, dtype=np.int64),
        np.stack(counted) if counted else np.zeros((0, horizon), dtype=bool),
    )


def actual(arrays: Arrays, at: Origins) -> np.ndarray:
    """What came, (n,horizon,N) in the units of the data; NaN where it is not known or does not count."""
    targets = len(arrays.layout.roles.targets)
    steps = np.arange(arrays.layout.horizon)
    found = [arrays.series[row].values[place + steps, :targets] for row, place in zip(at.rows, at.places, strict=True)]
    return np.where(at.counted[:, :, None], np.stack(found), np.nan)


def unscaled(arrays: Arrays, at: Origins, scaled: np.ndarray) -> np.ndarray:
    """Forecasts (n,horizon,N) in the units of the data."""
    result = np.empty(scaled.shape, dtype=np.float64)
    for row in np.unique(at.rows):
        mine = at.rows == row
        result[mine] = arrays.scalers[row].invert(scaled[mine].astype(np.float64))
    return result


def measure(
    arrays: Arrays, at: Origins, true: np.ndarray, guess: np.ndarray, band: tuple[np.ndarray, np.ndarray] | None = None
) -> dict[str, float]:
    """Over all values that are known; MASE is averaged over series and targets."""
    there = ~np.isnan(true)
    off = np.where(there, guess - np.where(there, true, 0.0), 0.0)
    count = max(int(there.sum()), 1)
    found = {"mse": float((off**2).sum() / count), "mae": float(np.abs(off).sum() / count)}
    scaled = [value for _, _, _, value in by_series(arrays, at, true, guess) if np.isfinite(value)]
    if scaled:
        found["mase"] = float(np.mean(scaled))
    if arrays.layout.logs or (there.any() and float(true[there].min()) > 0):
        size = np.abs(np.where(there, true, 1.0)) + np.abs(guess)
        found["smape"] = float((2 * np.abs(off) / size).sum() / count)
    if band is not None:
        inside = there & (true >= band[0]) & (true <= band[1])
        found["coverage"] = float(inside.sum() / count)
    return found


def by_series(arrays: Arrays, at: Origins, true: np.ndarray, guess: np.ndarray) -> list[tuple[int, int, float, float]]:
    """Series, target, MAE and MASE of each pair with known values."""
    there = ~np.isnan(true)
    off = np.abs(np.where(there, guess - np.where(there, true, 0.0), 0.0)).sum(axis=1)  # (n,N)
    count = there.sum(axis=1)
    found = []
    for row in np.unique(at.rows).tolist() if arrays.layout.split != "series" else [-1]:
        mine = at.rows == row if row >= 0 else np.ones(len(at), dtype=bool)
        series = arrays.series[max(row, 0)]
        errors = arrays.layout.naive_errors(series, max(int(at.places[mine].min()), 1))
        for target in range(true.shape[2]):
            known = int(count[mine, target].sum())
            if known:
                mae = float(off[mine, target].sum() / known)
                error = float(errors[target])
                found.append((row, target, mae, mae / error if error > 0 else np.nan))
    return found


def naive(arrays: Arrays, at: Origins, season: int = 1) -> np.ndarray:
    """The last value, or the one a season before: scaled, (n,horizon,N)."""
    first = arrays.starts[at.rows]
    last = (first + at.places - 1)[:, None]
    wanted = last + _back(season, arrays.layout.horizon)
    return arrays.values[np.where(wanted >= first[:, None], wanted, last)]


class Linear:
    """Least squares from the context to every step of the horizon, each target from its own past.

    ŷ_{t+j} = b_j + Σ_i w_ji y_{t−i}, the same for all series, on scaled values: (XᵀX + λI) w = XᵀY, λ = 1e-6 · n.
    """

    def __init__(self, arrays: Arrays, length: int, horizon: int) -> None:
        self.length = length
        places = _training(arrays, length, horizon)
        if len(places) > WINDOWS:
            places = places[np.unique(np.linspace(0, len(places) - 1, WINDOWS).astype(np.int64))]
        before = places[:, None] + np.arange(-length, 0)
        after = places[:, None] + np.arange(horizon)
        self.weights = []
        for target in range(arrays.values.shape[1]):
            whole = arrays.seen[after, target].all(axis=1)
            x = arrays.values[before[whole], target].astype(np.float64)
            y = arrays.values[after[whole], target].astype(np.float64)
            self.weights.append(solve(x, y))

    def forecast(self, arrays: Arrays, at: Origins) -> np.ndarray:
        first = arrays.starts[at.rows]
        wanted = (first + at.places)[:, None] + np.arange(-self.length, 0)
        before = np.maximum(wanted, first[:, None])  # a context that is too short begins with its first value
        found = [_affine(arrays.values[before, target]) @ weights for target, weights in enumerate(self.weights)]
        return np.stack(found, axis=-1)


def solve(x: np.ndarray, y: np.ndarray, ridge: float = RIDGE) -> np.ndarray:
    """The weights (length+1,horizon) that fit x (n,length) to y (n,horizon); the last row is the offset."""
    x = _affine(x)
    penalty = ridge * max(len(x), 1) * np.eye(x.shape[1])
    weights: np.ndarray = np.linalg.solve(x.T @ x + penalty, x.T @ y)
    return weights


def _affine(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x.astype(np.float64), np.ones((len(x), 1))], axis=1)


def _training(arrays: Arrays, length: int, horizon: int) -> np.ndarray:
    """Flat rows where a forecast within the training part could begin."""
    found = [
        start + np.arange(length, series.spans["train"][1] - horizon + 1)
        for start, series in zip(arrays.starts.tolist(), arrays.series, strict=True)
        if "train" in series.spans
    ]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def shares_below(true: np.ndarray, guesses: np.ndarray, quantiles: Sequence[float]) -> list[tuple[float, float]]:
    """Each quantile and the share of the values that lie below it: what calibration compares."""
    there = ~np.isnan(true)
    count = max(int(there.sum()), 1)
    return [
        (quantile, float((there & (true <= guesses[..., at])).sum() / count)) for at, quantile in enumerate(quantiles)
    ]
