"""From rows of observations to series on a regular grid: a data set with one row per series.

| role | a row holds |
|---|---|
| series | its name |
| target, past | arrays (steps, variables) of float64, NaN for missing values |
| future | an array (steps + further, variables): columns that are known in advance may go on after the last target |
| time | the time of its first step, if there are times |
| frequency | that of all series, as text |
| history | how many of its steps belong to earlier splits (see `AlongTime`) |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed, plural
from ..dataset import Column, Dataset
from ..kinds import LABEL
from ..stream import Location
from .calendar import Frequency, TimeError, infer_frequency, parse_times
from .schema import HISTORY, TIME

MAX_LISTED = 10  # series whose missing values are noted one by one
SEPARATE_NAME = "value"  # of the variable, if each column of a table is a series
GAP_FACTOR, GAP_OFFSET = 4, 1000  # grids longer than GAP_FACTOR · rows + GAP_OFFSET are rejected


@dataclass(frozen=True)
class Block:
    """A series while it is made: values (steps, targets + past + future) on the grid."""

    name: str
    start: Any
    values: np.ndarray
    location: Location


def make_series(
    rows: Dataset,
    multivariate: bool,
    diagnostics: Diagnostics,
    frequency: Frequency | None = None,
    variables: Mapping[str, str] | None = None,
) -> Dataset:
    """Returns the series of a table, one per row; see the module for their roles.

    Args:
        rows: Observations, or whole series.
        multivariate: Whether several target columns are one series of several variables, not a series each.
        diagnostics: Receives notes on the frequency, gaps and missing values.
        frequency: That of the training data; by default it is inferred.
        variables: Role → names such as "column 2", which choose among the variables of an array (series, steps, F).
    """
    names = {role: [c.name for c in rows.columns.get(role, ())] for role in ("target", "past", "future")}
    if rows.kind("target") is HISTORY:
        blocks, names = read_blocks(rows, variables or {})
        frequency = Frequency("rows")
    else:
        blocks, frequency = grid_rows(rows, frequency, diagnostics)
    counts = [len(names[role]) for role in ("target", "past", "future")]
    if rows.kind("target") is not HISTORY and counts[0] > 1 and not multivariate:
        others = np.arange(counts[0], sum(counts))
        blocks = [
            replace(block, name=f"{block.name}/{column}".lstrip("/"), values=block.values[:, [number, *others]])
            for block in blocks
            for number, column in enumerate(names["target"])
        ]
        counts[0] = 1
    series = build_dataset(rows, blocks, counts, frequency, diagnostics)
    check_future(series, frequency)
    check_leaks(series)
    note_missing(series, diagnostics)
    return series


def read_blocks(rows: Dataset, variables: Mapping[str, str]) -> tuple[list[Block], dict[str, list[str]]]:
    """Returns the series of rows that hold one each, and the variables of each role."""
    column = rows.columns["target"][0]
    widths = {values.shape[1] for values in column.values}
    if len(widths) > 1:
        cause = f"{rows.name}: series of {' and '.join(map(str, sorted(widths)))} variables"
        raise SeriatimError("data.features", cause, "give every series the same variables")
    width = widths.pop()
    all_names = [SEPARATE_NAME] if width == 1 else [f"column {number}" for number in range(1, width + 1)]
    listed = {role: names for role, names in variables.items() if width > 1 and names}
    if column.name not in all_names:  # the array itself may be named, too
        listed = {role: names for role, names in listed.items() if names != column.name}
    chosen = {role: [name.strip() for name in names.split(",")] for role, names in listed.items()}
    for name in (name for names in chosen.values() for name in names):
        if name not in all_names:
            cause = f'{rows.name}: the array has no column "{name}"'
            raise SeriatimError("data.column", cause, f"its columns are: {', '.join(all_names)}")
    future = chosen.get("future", [])
    targets = chosen.get("target") or [name for name in all_names if name not in future]
    past = chosen.get("past") or [name for name in all_names if name not in (*targets, *future)]
    order = [all_names.index(name) for name in (*targets, *past, *future)]
    unnamed = rows.name in ("inputs", "records")  # lists passed to a prediction are no series of the training data
    titles = rows["series"] if "series" in rows else [f"input {n}" if unnamed else f"row {n}" for n in range(len(rows))]
    blocks = [
        Block(str(title), 0.0, values[:, order], location)
        for title, values, location in zip(titles, column.values, rows.locations, strict=True)
    ]
    return blocks, {"target": targets, "past": past, "future": future}


def grid_rows(rows: Dataset, frequency: Frequency | None, diagnostics: Diagnostics) -> tuple[list[Block], Frequency]:
    """Returns series on a grid, sorted by time and with missing values in gaps, and their frequency."""
    times = column_times(rows)
    values = np.concatenate([rows.matrix(role) for role in ("target", "past", "future") if role in rows], axis=1)
    if "series" in rows:
        unnamed = np.flatnonzero(rows["series"] == "")
        if len(unnamed):
            column = rows.columns["series"][0].name
            cause = f'{rows.locations[unnamed[0]]}: column "{column}": the series has no name'
            raise SeriatimError("data.series", cause, "fill in the cell, or remove the line")
    groups = rows.groups("series") if "series" in rows else {"": np.arange(len(rows))}
    ordered = {}
    for name, members in groups.items():
        ordered[name] = members[np.argsort(times[members], kind="stable")]
        check_distinct(rows, name, ordered[name], times)
    if unsorted := sum(bool((np.diff(members) < 0).any()) for members in ordered.values()):
        subject = f"{unsorted} series are" if len(groups) > 1 else "the rows are"
        diagnostics.note(f"{rows.name}: {subject} sorted by time")
    if frequency is None or frequency.kind == "rows":
        frequency = Frequency("rows")
        if "time" in rows:
            frequency = infer_frequency([times[members] for members in ordered.values()])
            diagnostics.note(f"frequency: {frequency.name}")
    elif frequency.has_dates != (times.dtype.kind == "M"):
        kinds = ("numbers", "dates")
        cause = f"{rows.name}: the times are {kinds[not frequency.has_dates]}, the model was trained on "
        raise SeriatimError("data.time", cause + kinds[frequency.has_dates], "pass times of the same kind")
    blocks, irregular = [], []
    for name, members in ordered.items():
        positions = np.rint(frequency.steps(times[members])).astype(np.int64)
        if (np.diff(positions) < 1).any() or positions[-1] + 1 > GAP_FACTOR * len(positions) + GAP_OFFSET:
            irregular.append(name)
            positions = np.arange(len(positions))
        grid = np.full((int(positions[-1]) + 1, values.shape[1]), np.nan)
        grid[positions] = values[members]
        blocks.append(Block(name, times[members[0]], grid, rows.locations[members[0]]))
    if irregular:
        subject = listed([f"series {irregular[0]}" if irregular[0] else "the times"], 1, total=len(irregular))
        diagnostics.note(f"{subject}: not on a regular grid, rows are taken as consecutive steps")
    return blocks, frequency


def column_times(rows: Dataset) -> np.ndarray:
    """Returns the time of each row (rows,), by default its number."""
    if "time" not in rows:
        return np.arange(len(rows), dtype=np.float64)
    cells = rows["time"]
    try:
        return parse_times(cells.tolist())
    except TimeError as error:
        column = rows.columns["time"][0].name
        cause = (
            f'{rows.locations[error.index]}: column "{column}" holds "{cells[error.index]}", not a time like the others'
        )
        remedy = "write dates as 2024-01-31 or 2024-01-31 12:00, or plain numbers"
        raise SeriatimError("data.time", cause, remedy) from None


def check_distinct(rows: Dataset, name: str, members: np.ndarray, times: np.ndarray) -> None:
    """Raises an error if a series has two rows of the same time; `members` are its rows in time order."""
    same = np.flatnonzero(times[members][1:] == times[members][:-1])
    if not len(same):
        return
    earlier, later = sorted(members[same[0] : same[0] + 2].tolist())
    of_series = f" of series {name}" if name else ""
    first = str(rows.locations[earlier]).rpartition(", ")[2]
    cause = f'{rows.locations[later]}: the time "{rows["time"][later]}"{of_series} occurs twice (first on {first})'
    remedy = "remove one of the lines" if name else "remove one, or name the column of the series: data.columns.series"
    raise SeriatimError("data.time-twice", cause, remedy)


def build_dataset(
    rows: Dataset, blocks: list[Block], counts: list[int], frequency: Frequency, diagnostics: Diagnostics
) -> Dataset:
    """Returns a data set of series; each ends with its last target, and series without any are left out."""
    targets, others = counts[0], counts[0] + counts[1]
    ends = []
    for block in blocks:
        known = np.flatnonzero(~np.isnan(block.values[:, :targets]).all(axis=1))
        ends.append(int(known[-1]) + 1 if len(known) else 0)
    if empty := [block for block, end in zip(blocks, ends, strict=True) if not end]:
        title = f"series {empty[0].name}" if empty[0].name else "the series"
        if len(empty) == len(blocks):
            cause = f"{rows.name}: {title} has no value of the target"
            raise SeriatimError("data.empty", cause, "fill the column, or name another target")
        more = f", and so are {len(empty) - 1} more" if len(empty) > 1 else ""
        diagnostics.note(f"{title} has no values and is left out{more}")
    kept = [(block, end) for block, end in zip(blocks, ends, strict=True) if end]
    arrays = {
        "target": [block.values[:end, :targets] for block, end in kept],
        "past": [block.values[:end, targets:others] for block, end in kept],
        "future": [block.values[:, others:] for block, _ in kept],
    }
    names = rows.column_names
    columns = {
        role: (Column(names.get(role, role), HISTORY, HISTORY.store(arrays[role])),)
        for role, count in zip(arrays, counts, strict=True)
        if count
    }
    labels = [block.name for block, _ in kept]
    columns["series"] = (Column(names.get("series", "series"), LABEL, LABEL.store(labels)),)
    if frequency.kind != "rows":
        columns["time"] = (Column(names.get("time", "time"), TIME, np.array([block.start for block, _ in kept])),)
    locations = np.empty(len(kept), dtype=object)
    for number, (block, _) in enumerate(kept):
        locations[number] = block.location
    series = Dataset(rows.name, columns, locations)
    return series.with_column("frequency", LABEL, LABEL.store([str(frequency)] * len(kept)))


def describe_series(series: Dataset, row: int) -> str:
    """Returns how messages name a series."""
    return f"series {series['series'][row]}" if series["series"][row] else "the series"


def start_time(series: Dataset, row: int) -> Any:
    return series["time"][row] if "time" in series else 0.0


def note_missing(series: Dataset, diagnostics: Diagnostics) -> None:
    """Notes how many series there are, and which have gaps and missing values."""
    sizes = [len(values) for values in series["target"]]
    if len(series) > 1:
        lengths = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        diagnostics.note(f"{len(series):,} series of {lengths} steps")
    incomplete = []
    for row, size in enumerate(sizes):
        parts = [series[role][row][:size] for role in ("target", "past", "future") if role in series]
        missing = np.isnan(np.concatenate(parts, axis=1))
        if missing.any():
            gaps = int(np.count_nonzero(np.diff(missing.all(axis=1).astype(int), prepend=0) == 1))
            incomplete.append((int(missing.sum()), gaps, missing.size, row))
    incomplete.sort(key=lambda counts: -counts[0])
    for count, gaps, size, row in incomplete[:MAX_LISTED]:
        gap = f"{plural(gaps, 'gap')}, " if gaps else ""
        diagnostics.note(f"{describe_series(series, row)}: {gap}{plural(count, 'missing value')} of {size:,}")
    if len(incomplete) > MAX_LISTED:
        diagnostics.note(f"and {len(incomplete) - MAX_LISTED:,} more series with missing values")


def check_future(series: Dataset, frequency: Frequency, further: int = 0) -> None:
    """Raises an error if a future column lacks a value within a series, or in the `further` steps after it."""
    for number, name in enumerate(series.columns["future"][0].name.split(",") if "future" in series else ()):
        for row, (target, future) in enumerate(zip(series["target"], series["future"], strict=True)):
            values = np.full(len(target) + further, np.nan)
            known = future[: len(values), number]
            values[: len(known)] = known
            lacking = np.isnan(values)
            lacking[: len(target)] &= ~np.isnan(target).all(axis=1)
            if lacking.any():
                time = frequency.format(frequency.after(start_time(series, row), np.array([lacking.argmax()]))[0])
                cause = f'{describe_series(series, row)}: the future column "{name}" has no value at {time}'
                add_rows = f"add {further} rows after the end with {name} filled in and the target empty"
                remedy = add_rows if further else "fill it in, or name the column as data.columns.past"
                raise SeriatimError("data.future", cause, remedy)


def check_leaks(series: Dataset) -> None:
    """Raises an error if a future column equals a target up to scale and offset."""
    for number, name in enumerate(series.columns["future"][0].name.split(",") if "future" in series else ()):
        known = np.concatenate([f[: len(t), number] for t, f in zip(series["target"], series["future"], strict=True)])
        for target in np.concatenate(list(series["target"])).T:
            if is_linear_copy(known, target):
                cause = f'the future column "{name}" is a function of the target, which leaks what is forecast'
                raise SeriatimError("data.leak", cause, f"remove {name} from data.columns.future")


def is_linear_copy(first: np.ndarray, second: np.ndarray) -> bool:
    """Returns whether two columns (n,) are equal up to a factor and an offset."""
    both = ~np.isnan(first) & ~np.isnan(second)
    first, second = first[both], second[both]
    if len(first) < 3 or first.std() == 0 or second.std() == 0:
        return False
    return bool(abs(np.corrcoef(first, second)[0, 1]) > 1 - 1e-9)
