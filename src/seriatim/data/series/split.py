"""Splits of series: along time, or by series where there are many short ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ...core.errors import Diagnostics
from ..dataset import Dataset
from ..kinds import LABEL, NUMBER
from ..split import Fractions, SplitPolicy, take_splits
from .calendar import Frequency
from .schema import HISTORY
from .table import GAP_FACTOR, GAP_OFFSET, start_time

SHUFFLE_SEED = 0  # of series from tables; series from arrays keep their order


class AlongTime(SplitPolicy):
    """Each series is cut in time order. Later splits carry the earlier steps, which the role `history` counts:
    forecasts read them, metrics skip them."""

    reports_overlap: ClassVar[bool] = False
    unit: ClassVar[str] = "series"

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        shares = np.cumsum(fractions)
        if dataset.kind("target") is not HISTORY:  # rows of observations, in the data check
            ranks = np.empty(len(dataset))
            for rows in dataset.groups("series").values() if "series" in dataset else [np.arange(len(dataset))]:
                ranks[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
            return take_splits(dataset, np.searchsorted(shares[:2], ranks))
        sizes = np.array([len(values) for values in dataset["target"]])
        bounds = [[0, *(round(float(size * share)) for share in shares[:2]), int(size)] for size in sizes]
        cuts = np.array(bounds, dtype=np.int64).reshape(-1, 4)
        return [
            take_steps(dataset, cuts[:, split], cuts[:, split + 1], last=split == 2, with_history=split > 0)
            for split in range(3)
        ]

    def separate(self, splits: dict[str, Dataset], diagnostics: Diagnostics) -> dict[str, Dataset]:
        """Joins series of further files to those they continue; others start a new one with the same name."""
        joined = {"train": splits["train"]}
        earlier = splits["train"]
        for name in ("validation", "test"):
            if name in splits:
                joined[name] = continue_series(earlier, splits[name])
                earlier = joined[name]
        return joined

    def describe(self) -> str:
        return "along time"


class BySeries(SplitPolicy):
    """Whole series, drawn at random from tables and in order from arrays. The role `divided` marks them: they share
    one scaling."""

    reports_overlap: ClassVar[bool] = False
    unit: ClassVar[str] = "series"

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        in_order = dataset["frequency"][0] == str(Frequency("rows")) and dataset.locations[0].unit == "row"
        order = np.arange(len(dataset))
        if not in_order:
            order = np.random.default_rng(SHUFFLE_SEED).permutation(len(dataset))
        cuts = np.rint(np.cumsum(fractions) * len(dataset)).astype(int)
        divided = dataset.with_column("divided", LABEL, LABEL.store([self.describe()] * len(dataset)))
        return [divided.take(np.sort(rows)) for rows in np.split(order, cuts[:2])]

    def describe(self) -> str:
        return "by series"


def take_steps(dataset: Dataset, first: np.ndarray, end: np.ndarray, last: bool, with_history: bool) -> Dataset:
    """Returns the steps up to `end` of the series that have any from `first` on; the last split has future columns
    beyond its end."""
    rows = np.flatnonzero(end > first)
    taken = dataset.take(rows)
    columns = dict(taken.columns)
    for role in ("target", "past", "future"):
        if role in columns and not (last and role == "future"):
            column = columns[role][0]
            values = [array[:size] for array, size in zip(column.values, end[rows], strict=True)]
            columns[role] = (replace(column, values=column.kind.store(values)),)
    taken = replace(taken, columns=columns)
    return taken.with_column("history", NUMBER, first[rows].astype(np.float64)) if with_history else taken


def continue_series(earlier: Dataset, later: Dataset) -> Dataset:
    """Returns the later series with the steps of those they continue before them, counted as history."""
    frequency = Frequency.parse(earlier["frequency"][0])
    known = {name: row for row, name in enumerate(earlier["series"])}
    columns: dict[str, list[Any]] = {role: list(later[role]) for role in ("target", "past", "future") if role in later}
    starts = [start_time(later, row) for row in range(len(later))]
    history = np.zeros(len(later))
    for row, name in enumerate(later["series"]):
        before = known.get(name)
        if before is None or "time" not in later:
            continue
        begin, size = start_time(earlier, before), len(earlier["target"][before])
        offset = int(np.rint(frequency.steps(np.array([begin, starts[row]]))[1]))
        if offset < size:
            continue
        if offset > GAP_FACTOR * size + GAP_OFFSET:
            offset = size  # not on a grid
        for role, arrays in columns.items():
            past = earlier[role][before][:offset]
            gap = np.full((offset - len(past), past.shape[1]), np.nan)
            arrays[row] = np.concatenate([past, gap, arrays[row]])
        starts[row], history[row] = begin, size
    changed = dict(later.columns)
    for role, arrays in columns.items():
        changed[role] = (replace(changed[role][0], values=changed[role][0].kind.store(arrays)),)
    if "time" in later:
        changed["time"] = (replace(changed["time"][0], values=np.array(starts)),)
    return replace(later, columns=changed).with_column("history", NUMBER, history)


def latest_series(splits: list[Dataset]) -> Dataset:
    """Returns each series as the last of the splits that has it holds it."""
    kept: list[Dataset] = []
    names: set[str] = set()
    for split in reversed(splits):
        new = [row for row, name in enumerate(split["series"]) if name not in names]
        kept.insert(0, split.take(np.array(new, dtype=np.int64)).without("history"))
        names |= set(split["series"])
    columns = {
        role: (replace(column, values=np.concatenate([part[role] for part in kept])),)
        for role, (column,) in kept[0].columns.items()
    }
    return replace(kept[0], columns=columns, locations=np.concatenate([part.locations for part in kept]))
