"""Series side by side in flat arrays, scaled and filled, and windows gathered from them.

A value that is missing is filled with the last one before it (nothing later, which would tell the future), and a
column beside it says so. Behind each series stand `horizon` rows more: the calendar and the future columns there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..data._calendar import phase
from ..data.scaling import Scaler
from ..data.series import Series
from ._forecast_layout import Layout


@dataclass(frozen=True)
class Arrays:
    layout: Layout
    series: list[Series]
    scalers: list[Scaler]
    starts: np.ndarray  # (series,) row of the first element
    sizes: np.ndarray  # (series,) elements
    inputs: np.ndarray  # (rows,F) float32: targets, past, future, flags, calendar
    values: np.ndarray  # (rows,N) float32: the targets, scaled and filled
    seen: np.ndarray  # (rows,N) where a target is known
    known: np.ndarray  # (rows,K) float32: the future columns

    def features(self, steps: int) -> int:
        return self.inputs.shape[1] + self.known.shape[1] * steps

    def ahead(self, places: np.ndarray, ends: np.ndarray, steps: int) -> np.ndarray:
        """Rows of the next `steps` elements (…,steps), none beyond `ends`."""
        following = places[..., None] + np.arange(1, steps + 1)
        return np.minimum(following, ends.reshape(ends.shape + (1,) * (following.ndim - ends.ndim)) - 1)

    def window(self, rows: np.ndarray, places: np.ndarray, steps: int) -> np.ndarray:
        """Inputs (B,T,F+K·steps) at flat `places` (B,T) of the series `rows` (B,)."""
        if not self.known.shape[1]:
            return self.inputs[places]
        limits = (self.starts + self.sizes + self.layout.horizon)[rows]
        future = self.known[self.ahead(places, limits, steps)]  # (B,T,steps,K)
        return np.concatenate([self.inputs[places], future.reshape(*places.shape, -1)], axis=-1)

    def anchors(self, rows: np.ndarray, places: np.ndarray, steps: int) -> np.ndarray:
        """What the outputs for the next `steps` elements are added to: (B,T,steps,N)."""
        shape = (*places.shape, steps, self.values.shape[1])
        if self.layout.anchor == "none":
            return np.zeros(shape, np.float32)
        if self.layout.anchor == "last":
            return np.broadcast_to(self.values[places][..., None, :], shape)
        first = self.starts[rows].reshape(len(rows), *(1,) * places.ndim)
        if self.layout.linear is not None:
            before = np.maximum(places[..., None] + np.arange(1 - self.layout.length, 1), first)
            return linear(self.layout.linear, self.values[before])
        wanted = places[..., None] + _back(self.layout.season, steps)  # (B,T,steps)
        return self.values[np.where(wanted >= first, wanted, places[..., None])]

    def targets(self, rows: np.ndarray, places: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The next `steps` values (B,T,steps,N), scaled, and which of them are known."""
        limits = (self.starts + self.sizes)[rows]
        following = self.ahead(places, limits, steps)
        inside = places[..., None] + np.arange(1, steps + 1) == following
        return self.values[following], self.seen[following] & inside[..., None]


def linear(weights: np.ndarray, context: np.ndarray) -> np.ndarray:
    """ŷ = b + Σ w y over a context (…,length,N), each target by its own weights: (…,steps,N)."""
    found = [context[..., n] @ w[:-1].astype(np.float32) + w[-1].astype(np.float32) for n, w in enumerate(weights)]
    return np.stack(found, axis=-1)


def _back(season: int, steps: int) -> np.ndarray:
    """From an element to the one a season (or several) before each of the next `steps`, never beyond itself."""
    step = np.arange(1, steps + 1)
    result: np.ndarray = step - season * -(-step // season)
    return result


def make(layout: Layout, series: list[Series], fitted: Callable[[Series], int]) -> Arrays:
    """`fitted` says how many elements may be looked at for the scaling of a series that the layout does not know."""
    scalers = [layout.scaler(one, fitted(one)) for one in series]
    blocks = [_block(layout, one, scaler) for one, scaler in zip(series, scalers, strict=True)]
    sizes = np.array([len(one) for one in series], dtype=np.int64)
    room = sizes + layout.horizon
    inputs, values, seen, known = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Arrays(layout, series, scalers, np.cumsum(room) - room, sizes, inputs, values, seen, known)


def _block(layout: Layout, series: Series, scaler: Scaler) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    roles, horizon = layout.roles, layout.horizon
    targets, others = len(roles.targets), len(roles.targets) + len(roles.past)
    table = np.full((len(series) + horizon, len(roles.numbers)), np.nan)
    table[: len(series)] = series.values
    given = series.ahead[:horizon]
    if given.size:
        table[len(series) : len(series) + len(given), others:] = given
    scaled = scaler.apply(table)
    filled = fill(scaled)
    level = np.zeros_like(filled)
    if layout.level == "running":  # what drifts away from its scaling is still read around zero
        level[:, :others] = running_mean(filled[:, :others], layout.length)
    parts = [filled - level]
    if layout.flags:
        parts.append(np.isnan(scaled[:, list(layout.flags)]))
    times = layout.frequency.after(series.start, np.arange(len(table)))
    parts += [phase(times, name) for name in layout.phases]
    inputs = np.concatenate(parts, axis=1).astype(np.float32)
    values = filled[:, :targets].astype(np.float32)
    return inputs, values, ~np.isnan(table[:, :targets]), inputs[:, others : len(roles.numbers)]


def running_mean(values: np.ndarray, length: int) -> np.ndarray:
    """Of each element and the length − 1 before it, in its column; fewer at the beginning."""
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - length, 0)
    mean: np.ndarray = (sums[ends] - sums[begins]) / (ends - begins)[:, None]
    return mean


def fill(values: np.ndarray) -> np.ndarray:
    """NaN becomes the last value above it in its column, and 0 where there is none."""
    there = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(there, np.arange(len(values))[:, None], -1), axis=0)
    return np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=0), 0.0)


def features(layout: Layout, steps: int) -> int:
    """Numbers of a step that a network reads, where `steps` are those that one pass forecasts."""
    roles = layout.roles
    return len(roles.numbers) + len(layout.flags) + 2 * len(layout.phases) + len(roles.future) * steps
