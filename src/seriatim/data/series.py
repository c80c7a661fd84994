"""Series of numbers along time, from wide or long tables or arrays: read, checked, put on a grid, and split.

Wide: a time column and a column for each quantity. Long: a column names the series of each row. Without a time
column the rows are the steps. Times that are missing become rows without values, and are told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from seriatim.core.config import Settings
from seriatim.core.errors import SeriatimError

from . import _series_table, cache, generated
from ._calendar import Frequency
from ._series_grid import PARTS, Piece, Series, check_future, continued, gridded, pieces_of, report, split
from ._series_table import Roles
from .decoding import Facts
from .sources import find_path, locate

SHARES = {"time": (0.7, 0.1, 0.2), "series": (0.7, 0.2, 0.1)}
MANY, SHORT = 100, 200  # so many series, each shorter than this: they are split by series, not along time
Notify = Callable[[str], None]


class SeriesSettings(Settings):
    source: str = Field(
        description="a table of series (CSV, TSV, JSONL, Parquet, .gz), a .npy array (a series a row), or a name of "
        "the catalogue"
    )
    valid: str | None = Field(None, description="the file to validate on; without one the source is split")
    test: str | None = Field(None, description="the file to test on; without one the source is split")
    time: str | None = Field(None, description="the column with the times (default: found by its name or its dates)")
    series: str | None = Field(None, description="the column that names the series of each row (default: the words)")
    target: tuple[str, ...] | None = Field(None, description="the columns to forecast (default: all of numbers)")
    past: tuple[str, ...] | None = Field(
        None, description="further columns to look at (default: the numbers that are neither target nor future)"
    )
    future: tuple[str, ...] = Field((), description="columns whose values are known ahead, such as holidays or prices")
    columns: Literal["apart", "together"] = Field(
        "apart", description="several targets: each a series of its own for one model, or one series of several numbers"
    )
    split: Literal["auto", "time", "series"] = Field(
        "auto", description="along time, or by series (auto: by series where there are many short ones)"
    )
    fractions: tuple[float, float, float] | None = Field(
        None,
        description="the shares of training, validation and test (default: 0.7, 0.1, 0.2 along time; 0.7, 0.2, 0.1 "
        "of the series)",
    )
    scale: Literal["standard", "minmax", "none"] = Field(
        "standard", description="how columns are scaled, by what the training part of each series shows"
    )
    log: bool = Field(False, description="learn the logarithm of the targets, which must be above 0")
    calendar: bool = Field(False, description="tell the model the hour, the weekday and the time of the year")
    encoding: str = Field("utf-8", description="the encoding of the files, such as utf-8, utf-16 or cp1252")

    @field_validator("target", "past", "future", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("fractions")
    @classmethod
    def _shares(cls, fractions: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
        if fractions and (min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-6):
            raise ValueError("three shares that add up to 1, the first above 0, such as 0.7, 0.1, 0.2")
        return fractions


@dataclass(frozen=True)
class SeriesSet:
    series: list[Series]
    roles: Roles
    base: Roles  # as in the file, where `roles` may be those of its columns apart
    frequency: Frequency
    split: str
    notes: list[str]
    fingerprint: str

    @property
    def targets(self) -> tuple[str, ...]:
        return self.roles.targets


@dataclass
class _Read:
    pieces: list[Piece]
    roles: Roles
    base: Roles
    dates: bool = False
    array: bool = False


def prepare(settings: SeriesSettings, data_dir: str | None = None, notify: Notify | None = None) -> SeriesSet:
    """The series of the settings with their parts."""
    notes: list[str] = []
    read = _source(settings.source, "train", settings, None, data_dir, notes)
    located = locate(settings.source, data_dir) if settings.source != "sine" else None
    named = {"valid": settings.valid, "test": settings.test}
    if located is not None and not any(named.values()):
        named = {part: str(path) for part in PARTS[1:] if (path := getattr(located, part)) is not None}
    given = {part: name for part, name in named.items() if name is not None}
    pieces = [*read.pieces]
    for part, name in given.items():
        pieces += continued(pieces, _source(name, part, settings, read.base, data_dir, notes).pieces)
    series, frequency = gridded(pieces, read.roles, read.dates, notes)
    by = _how(settings, series, bool(given))
    if not given:
        series = split(series, by, settings.fractions or SHARES[by], read.array, notes)
    return _told(series, read, frequency, by, settings, notes, notify)


def prepare_single(
    source: str,
    settings: SeriesSettings,
    base: Roles,
    frequency: Frequency,
    data_dir: str | None = None,
    notify: Notify | None = None,
) -> SeriesSet:
    """The series of another file, with the columns and the frequency that a model was trained on; all for testing."""
    notes: list[str] = []
    read = _source(source, "test", settings, base, data_dir, notes)
    series, frequency = gridded(
        read.pieces, read.roles, read.dates, notes, frequency if frequency.kind != "rows" else None
    )
    return _told(series, read, frequency, "series", settings, notes, notify)


def _told(
    series: list[Series],
    read: _Read,
    frequency: Frequency,
    by: str,
    settings: SeriesSettings,
    notes: list[str],
    notify: Notify | None,
) -> SeriesSet:
    check_future(series, read.roles, frequency)
    report(series, read.roles, notes)
    for note in notes:
        if notify:
            notify(note)
    mark = _fingerprint(series, read.roles, settings)
    return SeriesSet(series, read.roles, read.base, frequency, by, notes, mark)


def _source(
    source: str, part: str, settings: SeriesSettings, roles: Roles | None, data_dir: str | None, notes: list[str]
) -> _Read:
    located = None if source == "sine" else locate(source, data_dir)
    path = Path(source).expanduser() if located is None else located.train
    if located is not None:
        notes.append(f"{source}: {located.source}")
    if (source == "sine" and not path.exists()) or path.suffix.lower() == ".npy":
        block = _series_table.array(path) if path.exists() else generated.sine()[:, :, None].astype(np.float64)
        names = ("value",) if block.shape[2] == 1 else tuple(f"column {i + 1}" for i in range(block.shape[2]))
        made = _picked(settings, names)
        order = [names.index(name) for name in made.numbers]
        steps = np.arange(block.shape[1], dtype=np.float64)
        pieces = [Piece(f"row {row}", steps, values[:, order], part) for row, values in enumerate(block)]
        notes.append(f"{path.name}: {block.shape[0]:,} series of {block.shape[1]:,} steps")
        return _Read(pieces, made, made, array=True)
    facts = Facts()
    columns = _series_table.load(find_path(path), settings.encoding, facts)
    if roles is None:
        roles = _series_table.roles(
            columns, settings.time, settings.series, settings.target, settings.past, settings.future, notes
        )
    rows = _series_table.rows(columns, roles, notes)
    notes.extend(facts.notes)
    if settings.columns == "apart" and len(roles.targets) > 1:
        return _apart(pieces_of(rows, roles, part, notes), roles, rows.dates)
    return _Read(pieces_of(rows, roles, part, notes), roles, roles, rows.dates)


def _picked(settings: SeriesSettings, names: tuple[str, ...]) -> Roles:
    targets = settings.target or tuple(name for name in names if name not in settings.future)
    for name in (*targets, *settings.future, *(settings.past or ())):
        if name not in names:
            raise SeriatimError("data.column", f'the array has no column "{name}"', f"there is: {', '.join(names)}")
    others = settings.past or tuple(name for name in names if name not in targets and name not in settings.future)
    return Roles(None, None, tuple(targets), tuple(others), settings.future)


def _apart(pieces: list[Piece], roles: Roles, dates: bool) -> _Read:
    """Every target of every series as a series of its own, named by its column."""
    count = len(roles.targets)
    single = [
        Piece(
            f"{piece.name}/{name}" if piece.name else name,
            piece.times,
            np.concatenate([piece.values[:, [at]], piece.values[:, count:]], axis=1),
            piece.part,
        )
        for piece in pieces
        for at, name in enumerate(roles.targets)
    ]
    one = Roles(roles.time, None, ("value",), roles.past, roles.future)
    return _Read(single, one, roles, dates)


def _how(settings: SeriesSettings, series: list[Series], given: bool) -> str:
    if given:
        return "time"
    if settings.split != "auto":
        return settings.split
    return "series" if len(series) >= MANY and max(map(len, series)) < SHORT else "time"


def _fingerprint(series: list[Series], roles: Roles, settings: SeriesSettings) -> str:
    digest = hashlib.sha256()
    for one in series:
        digest.update(f"{one.name}\0{one.start}\0{one.values.shape}\0{one.spans}".encode())
        digest.update(np.ascontiguousarray(one.values).tobytes())
    how = settings.model_dump(mode="json", include={"scale", "log", "calendar"})
    return cache.key(list(roles.numbers), list(roles.targets), how, digest.hexdigest())
