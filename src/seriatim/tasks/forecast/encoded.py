"""Encoded series: scaled, filled and concatenated arrays, from which windows are gathered.

A missing value is filled with the last one before it, never with a later one, and an input beside it says so. Behind
each series there are `horizon` more rows, for the calendar and the future columns of its forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from ...core.text import evenly_spaced
from ...data.dataset import Dataset
from ...data.sequences import Sequences
from ...data.series.calendar import Frequency, cycle_features
from ...data.series.scaling import Scaler
from ...data.series.table import start_time
from ..values import Encoded
from .simple import MEAN

if TYPE_CHECKING:
    from .baselines import Baselines
    from .processor import ForecastProcessor


@dataclass(frozen=True)
class Origins:
    """Where forecasts begin."""

    series: np.ndarray  # (n,)
    positions: np.ndarray  # (n,) of the first forecast step within the series
    counted: np.ndarray  # (n,horizon) False for steps that another origin forecasts

    def __len__(self) -> int:
        return len(self.series)

    def take(self, items: np.ndarray) -> Origins:
        return Origins(self.series[items], self.positions[items], self.counted[items])

    def sample(self, limit: int | None) -> Origins:
        """Returns at most `limit` origins, evenly spaced."""
        if limit is None or len(self) <= limit:
            return self
        return self.take(evenly_spaced(len(self), max(limit, 1)))

    def by_series(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each series with the origins in it, in order; sorted once, since there may be many of both."""
        order = np.argsort(self.series, kind="stable")
        series, first = np.unique(self.series[order], return_index=True)
        return zip(series.tolist(), np.split(order, first[1:]), strict=False)  # without origins, one empty part


class Anchor(Protocol):
    """What outputs of the network are added to: a forecast without a network."""

    def after(self, encoded: SeriesEncoded, series: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """Returns scaled forecasts (B,T,steps,N) of the next steps after `rows` (B,T) of `series` (B,)."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The splits on whose errors intervals are calibrated.

    Args:
        validation: The validation split.
        test: The test split; None if series are divided, since it is not known which of its values came first.
    """

    validation: SeriesEncoded
    test: SeriesEncoded | None


@dataclass(frozen=True, eq=False, kw_only=True)
class SeriesEncoded(Encoded):
    """Series in concatenated arrays (rows,…). `inputs` are targets, past, future, flags and calendar (rows,F).

    Items are forecast origins: of every window in training, of a backtest in later splits.
    """

    inputs: Sequences
    context_length: int
    horizon: int
    names: list[str]
    frequency: Frequency
    start_times: list[object]
    history: np.ndarray  # (series,) steps of earlier splits
    starts: np.ndarray  # (series,) row of the first step
    sizes: np.ndarray  # (series,) steps
    values: np.ndarray  # (rows,N) float32, the targets, scaled and filled
    observed: np.ndarray  # (rows,N) False for missing targets
    known: np.ndarray  # (rows,K) float32, the future columns, scaled
    raw: list[np.ndarray]  # of each series the variables (steps,N+P+K) in the units of the data
    scalers: list[Scaler]
    scaling_steps: int | None  # that what new series need is fitted on; None for all
    items: Origins
    anchor: Anchor = MEAN
    sampled: Origins | None = None  # the origins of a sample that is evaluated during training; None: all of a backtest
    held_out: HeldOut | None = None  # the later splits of the run; None for other data
    baselines: Baselines | None = None  # fitted on the training split; None for other data

    @property
    def lengths(self) -> np.ndarray:
        return np.minimum(self.items.positions, self.context_length)

    def __len__(self) -> int:
        return len(self.items)

    def row_numbers(self, items: np.ndarray) -> np.ndarray:
        return self.items.series[items]

    def take(self, items: np.ndarray) -> Self:
        return replace(self, items=self.items.take(items))

    def window(self, series: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """Returns the inputs (B,T,F+K·steps) at `rows` (B,T) of `series` (B,), with the next future values."""
        if not self.known.shape[1]:
            return np.asarray(self.inputs.values[rows])
        limits = (self.starts + self.sizes + self.horizon)[series]
        following = self.known[next_rows(rows, limits, steps)]  # (B,T,steps,K)
        return np.concatenate([self.inputs.values[rows], following.reshape(*rows.shape, -1)], axis=-1)

    def contexts(self, origins: Origins, steps: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Returns the contexts before origins, of which one pass forecasts `steps` steps.

        Returns:
            Inputs (B,T,F), zero where padded; a mask (B,T), None if nothing is padded; and their rows (B,T).
        """
        lengths = np.minimum(origins.positions, self.context_length)
        first = self.starts[origins.series] + origins.positions - lengths
        steps_back = np.arange(int(lengths.max()))
        mask = steps_back < lengths[:, None]
        rows = np.where(mask, first[:, None] + steps_back, first[:, None])
        inputs = self.window(origins.series, rows, steps)
        if mask.all():
            return inputs, None, rows
        return np.where(mask[:, :, None], inputs, np.float32(0)), mask, rows

    def last_rows(self, origins: Origins) -> np.ndarray:
        """Returns the row before each origin (n,1)."""
        return (self.starts[origins.series] + origins.positions - 1)[:, None]

    def targets_after(self, series: np.ndarray, rows: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the next `steps` scaled targets (B,T,steps,N) after `rows` (B,T), and which are observed."""
        following = next_rows(rows, (self.starts + self.sizes)[series], steps)
        inside = rows[..., None] + np.arange(1, steps + 1) == following
        return self.values[following], self.observed[following] & inside[..., None]

    def anchors(self, series: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """Returns what outputs for the next `steps` steps after `rows` (B,T) are added to, (B,T,steps,N)."""
        return self.anchor.after(self, series, rows, steps)

    def target_matrix(self, steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the targets (T,S·N) of all series, filled and aligned at their begin, and the steps (S·N,) of each.

        They are in the units of the data; `steps` limits them to the first ones.
        """
        targets = self.values.shape[1]
        sizes = self.sizes if steps is None else np.minimum(self.sizes, steps)
        matrix = np.zeros((int(sizes.max()), len(sizes), targets))
        for number, (values, size) in enumerate(zip(self.raw, sizes.tolist(), strict=True)):
            filled = fill_forward(values[:size, :targets])
            matrix[:size, number] = filled
            matrix[size:, number] = filled[-1]
        return matrix.reshape(len(matrix), -1), np.repeat(sizes, targets)

    def backtest(self, stride: int | None) -> Origins:
        """Returns origins every `stride` steps of the split, so that each of its steps is forecast."""
        horizon, length = self.horizon, self.context_length
        stride = horizon if stride is None else stride
        series, positions, counted = [], [], []
        for number, (history, size) in enumerate(zip(self.history.tolist(), self.sizes.tolist(), strict=True)):
            first = history if history else length
            begins = list(range(first, size - horizon + 1, stride))
            if not begins:
                continue
            new_steps = [np.ones(horizon, dtype=bool) for _ in begins]
            if begins[-1] + horizon < size:  # the last origin overlaps the one before it: its new steps count
                new_steps.append(np.arange(size - horizon, size) >= begins[-1] + horizon)
                begins.append(size - horizon)
            known = np.asarray(self.observed[self.starts[number] : self.starts[number] + size].any(axis=1))
            for position, steps in zip(begins, new_steps, strict=True):
                if (known[position : position + horizon] & steps).any():
                    series.append(number)
                    positions.append(position)
                    counted.append(steps)
        table = np.stack(counted) if counted else np.zeros((0, horizon), dtype=bool)
        return Origins(np.array(series, dtype=np.int64), np.array(positions, dtype=np.int64), table)

    def every_origin(self) -> Origins:
        """Returns all origins that forecast a step of the split: each step is forecast at every step of the horizon."""
        horizon, length = self.horizon, self.context_length
        first = np.where(self.history > 0, np.maximum(self.history - horizon + 1, 1), length)
        counts = np.maximum(self.sizes - first, 0)
        series = np.repeat(np.arange(len(counts)), counts)
        positions = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts - first, counts)
        steps = positions[:, None] + np.arange(horizon)
        return Origins(
            series, positions, (steps >= self.history[series][:, None]) & (steps < self.sizes[series][:, None])
        )

    def references(self, origins: Origins) -> np.ndarray:
        """Returns the targets (n,horizon,N) in the units of the data; NaN if missing or not counted."""
        steps, targets = np.arange(self.horizon), self.values.shape[1]
        pairs = zip(origins.series, origins.positions, strict=True)
        values = [self.raw[s][np.minimum(p + steps, len(self.raw[s]) - 1), :targets] for s, p in pairs]
        return np.where(origins.counted[:, :, None], np.stack(values), np.nan)

    def unscale(self, origins: Origins, scaled: np.ndarray) -> np.ndarray:
        """Returns forecasts (n,horizon,N,Q) in the units of the data."""
        values = np.empty(scaled.shape, dtype=np.float64)
        for series, rows in origins.by_series():
            inverted = self.scalers[series].invert(np.moveaxis(scaled[rows], -1, 0).astype(np.float64))
            values[rows] = np.moveaxis(inverted, 0, -1)
        return values


def encode_series(
    processor: ForecastProcessor,
    dataset: Dataset,
    values: list[np.ndarray],
    scalers: list[Scaler],
    scaling_steps: int | None,
) -> SeriesEncoded:
    """Returns series as arrays; `values` are the variables (steps,N+P+K) of each."""
    horizon, targets, frequency = processor.horizon, len(processor.targets), Frequency.parse(dataset["frequency"][0])
    others = targets + len(processor.past)
    sizes = np.array([len(array) for array in values], dtype=np.int64)
    history = dataset["history"].astype(np.int64) if "history" in dataset else np.zeros(len(values), np.int64)
    parts: list[tuple[np.ndarray, ...]] = []
    for row, (array, scaler) in enumerate(zip(values, scalers, strict=True)):
        steps = len(array)
        table = np.full((steps + horizon, len(processor.variables)), np.nan)
        table[:steps] = array
        if processor.future:
            further = dataset["future"][row][steps : steps + horizon]
            table[steps : steps + len(further), others:] = further
        scaled = scaler.apply(table)
        filled = fill_forward(scaled)
        level = np.zeros_like(filled)
        if processor.level == "running":  # a series that drifts away from its scaling is still around zero
            level[:, :others] = running_mean(filled[:, :others], processor.context_length)
        columns = [filled - level]
        if processor.flags:
            columns.append(np.isnan(scaled[:, list(processor.flags)]))
        times = frequency.after(start_time(dataset, row), np.arange(len(table)))
        columns += [cycle_features(times, cycle) for cycle in processor.cycles]
        inputs = np.concatenate(columns, axis=1).astype(np.float32)
        known = inputs[:, others : len(processor.variables)]
        parts.append((inputs, filled[:, :targets].astype(np.float32), ~np.isnan(table[:, :targets]), known))
    inputs, scaled_targets, observed, known = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    ends = np.cumsum(sizes + horizon)
    encoded = SeriesEncoded(
        inputs=Sequences(inputs, ends),
        context_length=processor.context_length,
        horizon=horizon,
        names=list(dataset["series"]),
        frequency=frequency,
        start_times=[start_time(dataset, row) for row in range(len(dataset))],
        history=history,
        starts=ends - sizes - horizon,
        sizes=sizes,
        values=scaled_targets,
        observed=observed,
        known=known,
        raw=values,
        scalers=scalers,
        scaling_steps=scaling_steps,
        items=all_windows(sizes, processor.context_length, horizon),
    )
    return replace(encoded, items=encoded.backtest(None)) if "history" in dataset else encoded


def all_windows(sizes: np.ndarray, length: int, horizon: int) -> Origins:
    """Returns every origin with a whole context before and a whole horizon behind it."""
    counts = np.maximum(sizes - length - horizon + 1, 0)
    ends = np.cumsum(counts)
    series = np.repeat(np.arange(len(sizes)), counts)
    positions = length + np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    return Origins(series, positions, np.broadcast_to(np.ones(horizon, dtype=bool), (len(series), horizon)))


def next_rows(rows: np.ndarray, limits: np.ndarray, steps: int) -> np.ndarray:
    """Returns the next `steps` rows (…,steps) after `rows` (B,…), none at or behind `limits` (B,)."""
    following = rows[..., None] + np.arange(1, steps + 1)
    return np.minimum(following, limits.reshape(limits.shape + (1,) * (following.ndim - limits.ndim)) - 1)


def running_mean(values: np.ndarray, length: int) -> np.ndarray:
    """Returns the mean (T,columns) of each row of values and up to length − 1 rows before it."""
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - length, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins)[:, None])


def fill_forward(values: np.ndarray) -> np.ndarray:
    """Returns values (T,columns) with each missing one replaced by the last before it, or 0 at the start."""
    known = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values))[:, None], -1), axis=0)
    return np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=0), 0.0)
