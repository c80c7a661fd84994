"""A file of series as columns: which one is the time, which names the series, which hold numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError, did_you_mean

from . import tables
from ._calendar import UnreadableError, looks_like_dates, parse
from .decoding import Facts, check_encoding
from .sources import Found, reading

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})
TIMES = ("time", "date", "datetime", "timestamp", "ds", "month", "year", "day", "t")
IDS = ("series", "unique_id", "id", "item_id", "series_id")
LARGEST = 1e100  # its square is still a number
LOOK = 200  # cells looked at to tell what a column holds


@dataclass(frozen=True)
class Columns:
    """A table column by column. A cell is a text, or what Parquet holds."""

    name: str
    cells: dict[str, list[Any]]
    places: Sequence[str]  # of each row, as "a.csv, line 7"


@dataclass(frozen=True)
class Roles:
    """What the columns are for."""

    time: str | None
    series: str | None
    targets: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.targets + self.past + self.future


@dataclass
class Rows:
    """The rows of one file: an id, a time and numbers each."""

    columns: Columns
    ids: list[str]
    times: np.ndarray
    dates: bool
    values: np.ndarray  # (rows,numbers), NaN where missing
    notes: list[str] = field(default_factory=list)


def load(found: Found, encoding: str, facts: Facts) -> Columns:
    """The one table that a source holds."""
    if len(found.raws) != 1:
        cause = f"{found.title}: series are read from one table"
        raise SeriatimError("data.series", cause, "join the files; a column may name the series of each row")
    raw = found.raws[0]
    if raw.kind == "text":
        cause = f"{raw.name}: not a table of columns"
        raise SeriatimError("data.series", cause, "give a .csv, .tsv or .parquet file (or .npy: a series a row)")
    places: list[str] = []
    cells: dict[str, list[Any]] = {}
    for place, row in tables.rows(raw, check_encoding(encoding), facts, _with_names):
        places.append(place)
        for name, cell in row.items():
            cells.setdefault(name, [None] * (len(places) - 1)).append(cell)
        if len(row) < len(cells):  # JSONL: a line may lack what others have
            cells.update({name: [*column, None] for name, column in cells.items() if len(column) < len(places)})
    if not places:
        raise SeriatimError("data.empty", f"{raw.name}: holds no rows", "give a file with a header and rows")
    return Columns(raw.name, cells, places)


def _with_names(heading: tables.Heading) -> list[str]:
    if all(_is_number(name) for name in heading.columns):
        cause = f"{heading.name}: its first line is numbers, not the names of columns"
        raise SeriatimError("data.header", cause, "add a line of names")
    return heading.columns


def roles(
    columns: Columns,
    time: str | None,
    series: str | None,
    target: Sequence[str] | None,
    past: Sequence[str] | None,
    future: Sequence[str],
    notes: list[str],
) -> Roles:
    """What is named stays as named; the rest is inferred, and told."""
    for name in [time, series, *(target or ()), *(past or ()), *future]:
        if name is not None and name not in columns.cells:
            cause = f'{columns.name}: has no column "{name}"'
            raise SeriatimError("data.column", cause, did_you_mean(name, columns.cells))
    if both := set(target or ()) & set(future):
        name = sorted(both)[0]
        cause = f'"{name}" is both the target and a future column: a future that leaks'
        raise SeriatimError("data.leak", cause, f"take {name} out of data.future: its future is what is forecast")
    taken = {time, series, *(target or ()), *future}
    free = [name for name in columns.cells if name not in taken]
    if time is None:
        time = _time(columns, free)
        notes.append(f'{columns.name}: the time is "{time}"' if time else f"{columns.name}: no time, rows are steps")
    free = [name for name in free if name != time]
    words = [name for name in free if not _numeric(columns.cells[name])]
    if series is None and words:
        named = [name for name in words if name.lower() in IDS]
        if len(words) > 1 and not named:
            cause = f"{columns.name}: several columns hold words: {', '.join(words)}"
            raise SeriatimError("data.series", cause, f"say which names the series: --set data.series={words[0]}")
        series = (named or words)[0]
        notes.append(f'{columns.name}: the series are named by "{series}"')
    left = [name for name in free if name != series and name not in words]
    targets = tuple(target) if target else tuple(left)
    if not targets:
        cause = f"{columns.name}: no column of numbers to forecast; its columns are: {', '.join(columns.cells)}"
        commas = any(
            re.fullmatch(r"-?\d+,\d+", str(cell).strip()) for name in free for cell in columns.cells[name][:LOOK]
        )
        raise SeriatimError(
            "data.column", cause, "write decimals as 3.14" if commas else "add one, or name it: --target"
        )
    others = tuple(past) if past is not None else tuple(name for name in left if name not in targets)
    others = tuple(name for name in others if name not in targets and name not in future)
    return Roles(time, series, targets, others, tuple(future))


def _time(columns: Columns, free: list[str]) -> str | None:
    dated = [name for name in free if looks_like_dates(columns.cells[name][:LOOK])]
    named = [name for name in free if name.lower() in TIMES]
    both = [name for name in dated if name in named]
    return next(iter(both or dated or [name for name in named if _numeric(columns.cells[name])]), None)


def rows(columns: Columns, role: Roles, notes: list[str]) -> Rows:
    """The rows with their numbers; the first cell that is none is an error with its place."""
    count = len(columns.places)
    for name in [*role.numbers, role.time, role.series]:
        if name is not None and name not in columns.cells:
            cause = f'{columns.name}: has no column "{name}"'
            raise SeriatimError("data.column", cause, did_you_mean(name, columns.cells))
    values = np.stack([_numbers(columns, name) for name in role.numbers], axis=1)
    times, dates = np.arange(count, dtype=np.float64), False
    if role.time is not None:
        cells = columns.cells[role.time]
        empty = next((row for row, cell in enumerate(cells) if _missing(cell)), None)
        try:
            if empty is not None:
                raise UnreadableError(empty)
            times, dates = parse(cells)
        except UnreadableError as error:
            cause = f'{columns.places[error.index]}, column "{role.time}": {cells[error.index]!r} is not a time'
            remedy = "write dates as 2024-01-31 or 2024-01-31 12:00, or plain numbers"
            raise SeriatimError("data.time", cause, remedy) from None
    ids = [""] * count
    if role.series is not None:
        cells = columns.cells[role.series]
        empty = next((row for row, cell in enumerate(cells) if cell is None or not str(cell).strip()), None)
        if empty is not None:
            cause = f'{columns.places[empty]}, column "{role.series}": the series is not named'
            raise SeriatimError("data.series", cause, "fill the cell, or remove the line")
        ids = [str(cell).strip() for cell in cells]
    elif role.time is None:
        notes.append(f"{columns.name}: {count:,} rows of one series")
    return Rows(columns, ids, times, dates, values, notes)


def _numbers(columns: Columns, name: str) -> np.ndarray:
    cells = columns.cells[name]
    try:
        values = np.array([np.nan if cell in ("", None) else cell for cell in cells], dtype=np.float64)
    except (ValueError, TypeError):
        values = np.array([_number(columns, name, row) for row in range(len(cells))])
    large = np.abs(values) > LARGEST
    if large.any():
        row = int(np.argmax(large))
        what = "an infinite value" if np.isinf(values[row]) else f"{values[row]:g} is too large a value"
        cause = f'{columns.places[row]}, column "{name}": {what}'
        raise SeriatimError("data.infinite", cause, "leave the cell empty where the value is not known")
    return values


def _number(columns: Columns, name: str, row: int) -> float:
    cell = columns.cells[name][row]
    if _missing(cell):
        return np.nan
    try:
        return float(cell)
    except (ValueError, TypeError):
        cause = f'{columns.places[row]}, column "{name}": {str(cell)[:40]!r} is not a number'
        raise SeriatimError(
            "data.number", cause, "mend the cell, or leave it empty where the value is not known"
        ) from None


def _missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def _numeric(cells: Iterable[Any]) -> bool:
    """Whether the first cells are numbers, or mostly so: a slip far down or a single one is an error, not a name."""
    there = [cell for cell in itertools.islice(cells, LOOK) if not _missing(cell)]
    return not there or sum(map(_is_number, there)) > 0.5 * len(there)


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError):
        return False
    return True


def array(path: Path) -> np.ndarray:
    """Series (n,steps) or (n,steps,columns) of a .npy file."""
    try:
        with reading(str(path)):
            block = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise SeriatimError("data.npy", f"{path}: not a readable array ({error})", "write it with numpy.save") from None
    if block.ndim not in (1, 2, 3) or block.dtype.kind not in "fiu" or not block.size:
        cause = f"{path}: an array of shape {block.shape} and type {block.dtype}"
        raise SeriatimError("data.npy", cause, "series are numbers (n,steps) or (n,steps,columns)")
    block = block.reshape((1, -1, 1) if block.ndim == 1 else (*block.shape[:2], -1)).astype(np.float64)
    if np.isinf(block).any():
        row, step, _ = np.argwhere(np.isinf(block))[0]
        cause = f"{path}: an infinite value in row {row}, step {step}"
        raise SeriatimError("data.infinite", cause, "write nan where the value is not known")
    return block
