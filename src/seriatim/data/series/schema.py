"""The schema of tables of series: which column is the time, which names the series, and which hold numbers.

Wide tables have a column per variable, long ones a column that names the series of each row; without a time column
rows are steps. A cell may also hold a whole series, as in arrays (series, steps) and lists of numbers.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from ...core.errors import Diagnostics, SeriatimError, did_you_mean
from ..kinds import KINDS, LABEL, Cell, CellError, Kind, is_blank, parse_numbers
from ..schema import Field, Header, Roles, Schema

if TYPE_CHECKING:
    import numpy as np

    from ..dataset import Dataset

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))
TIME_NAMES = ("time", "date", "datetime", "timestamp", "ds", "month", "year", "day", "t")
SERIES_NAMES = ("series", "unique_id", "id", "item_id", "series_id")
LARGEST = 1e100  # its square is a number, too
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


def parse_value(cell: Cell) -> float:
    """Returns the value of a variable; NaN if it is missing."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return math.nan
    if isinstance(cell, str) and "_" in cell:  # Python reads 1_000 as a number, others do not
        raise ValueError("not a number")
    return check_size(float(cell))


def check_size(value: float) -> float:
    if abs(value) > LARGEST:
        reason = "holds an infinite value" if math.isinf(value) else f"holds {value:g}, which is too large"
        raise CellError("data.infinite", reason, "leave the cell empty if the value is not known")
    return value


def parse_values(cells: list[Cell]) -> Sequence[float]:
    """Parses a column at once; raises an error if any cell needs a closer look."""
    import numpy as np

    values = np.array([np.nan if cell in ("", None) else cell for cell in cells], dtype=np.float64)
    if (np.abs(values) > LARGEST).any() or any("_" in cell for cell in cells if isinstance(cell, str)):
        raise ValueError("not plain")
    return cast(Sequence[float], values)


def parse_history(cell: Cell) -> np.ndarray:
    """Returns a whole series (steps, variables) of float64 from an array, lists or a text such as "1 2 3"."""
    if isinstance(cell, str):
        if is_number(cell):
            raise ValueError("one number, not a series")
        return parse_numbers(cell).astype("float64")
    import numpy as np

    values = np.asarray(cell)
    if values.ndim not in (1, 2) or values.dtype.kind not in "biuf":
        raise ValueError("not a list of numbers")
    if np.isinf(values).any():
        step = int(np.argwhere(np.isinf(values))[0, 0])
        raise CellError("data.infinite", f"holds an infinite value at step {step}", "write nan for a missing value")
    return values.reshape(len(values), -1).astype(np.float64)


def parse_time_cell(cell: Cell) -> Cell:
    """Returns the cell of a time column as it is; raises an error if it is not a time in any format."""
    from .calendar import parse_times, write_quarter  # the schema is declared without NumPy

    if isinstance(cell, datetime.date):
        return cell
    try:
        if isinstance(cell, int | float) and math.isfinite(cell):
            return cell
        datetime.datetime.fromisoformat(write_quarter(str(cell).strip()))
    except ValueError:
        parse_times([cell])
    return cell


def parse_time_column(cells: list[Cell]) -> list[Cell]:
    from .calendar import parse_times

    parse_times(cells)
    return cells


def describe_values(values: Sequence[float]) -> tuple[list[str], dict[int, SeriatimError]]:
    """Returns the range of a variable for the data check."""
    import numpy as np

    known = np.asarray(values)[~np.isnan(values)]
    return [f"{known.min():.6g} to {known.max():.6g}, mean {known.mean():.6g}"] if len(known) else [], {}


class ValueKind(Kind):
    """Numbers; the first rows may be missing."""

    def accepts(self, cells: Iterable[Cell]) -> bool:
        cells = list(cells)
        return all(map(is_blank, cells)) or super().accepts(cells)


# The format of times follows from the whole column, so cells are kept until `make_series` parses them together.
TIME = Kind("date or number", parse_time_cell, parse_all=parse_time_column)
VALUE = ValueKind(
    "number",
    parse_value,
    "float64",
    size=lambda value: 0 if math.isnan(value) else 1,
    parse_all=parse_values,
    numeric=True,
    examine=describe_values,
)
HISTORY = Kind("series of numbers", parse_history, size=len, key=lambda values: values.tobytes(), numeric=True)
KINDS |= {TIME.name: TIME, HISTORY.name: HISTORY}


class SeriesSchema(Schema):
    """Resolves the columns of a table: the time by its dates or name, the series by words; the others are numbers.

    Further data has exactly the roles of the training data: its other columns are not read.
    """

    gathered: ClassVar[bool] = True

    def resolve(self, header: Header, overrides: Mapping[str, str], diagnostics: Diagnostics) -> Roles:
        roles = [field.role for field in self.fields]
        if unknown := overrides.keys() - set(roles):
            cause, suggestion = f'there is no role "{min(unknown)}"', did_you_mean(min(unknown), roles)
            raise SeriatimError("data.role", cause, suggestion)
        samples = header.samples
        if all(is_number(name) for name in header.columns):
            cause = f"{header.name}: its first line holds numbers, not the names of columns"
            raise SeriatimError("data.header", cause, "add a line of names")
        named_target = overrides.get("target", header.columns[0] if len(header.columns) == 1 else None)
        whole = [
            name
            for name in header.columns
            if HISTORY.accepts(samples[name])
            and not VALUE.accepts(samples[name])
            and (name == named_target or not any(isinstance(cell, str) and "[" not in cell for cell in samples[name]))
        ]
        if whole:
            names = [name for name in header.columns if name.lower() in SERIES_NAMES]
            resolved: Roles = {"target": (whole[0],)}
            return resolved if not names else resolved | {"series": (names[0],)}
        assigned: Roles = {role: self._parse_override(header, names) for role, names in overrides.items() if names}
        if both := set(assigned.get("target", ())) & set(assigned.get("future", ())):
            cause = f'column "{min(both)}" is both a target and a future column, which leaks what is forecast'
            raise SeriatimError("data.leak", cause, f"remove {min(both)} from data.columns.future")
        named = {role: columns for role, columns in assigned.items() if overrides}
        free = [name for name in header.columns if not any(name in columns for columns in assigned.values())]
        if "time" not in overrides and (time := self._find_time(header, free)) is not None:
            assigned["time"] = (time,)
            free.remove(time)
        elif "time" not in assigned:
            diagnostics.note(f"{header.name}: there is no time column, so rows are steps")
        words = [name for name in free if not is_numeric(samples[name])]
        if "series" not in overrides and words:
            usual = [name for name in words if name.lower() in SERIES_NAMES]
            if len(words) > 1 and not usual:
                cause = f"{header.name}: several columns hold words: {', '.join(words)}"
                raise SeriatimError("data.series", cause, f"name that of the series: data.columns.series={words[0]}")
            assigned["series"] = ((usual or words)[0],)
        numbers = [name for name in free if name not in (*words, *assigned.get("series", ()))]
        if "target" not in assigned and numbers:
            assigned["target"] = tuple(numbers)
        if "target" not in assigned:
            raise self._no_numbers(header, free)
        others = tuple(name for name in numbers if name not in assigned["target"])
        if "past" not in overrides and others:
            assigned["past"] = others
        self._note_guesses(header, {role: c for role, c in assigned.items() if role not in named}, diagnostics)
        return {role: assigned[role] for role in roles if role in assigned}

    def _find_time(self, header: Header, free: Sequence[str]) -> str | None:
        """Returns the column with dates, one with a usual name first; or numbers with a usual name."""
        from .calendar import looks_like_dates

        dates = [name for name in free if looks_like_dates(header.samples[name])]
        usual = [name for name in free if name.lower() in TIME_NAMES]
        numbers = [name for name in usual if is_numeric(header.samples[name])]
        return next(iter([name for name in dates if name in usual] or dates or numbers), None)

    @staticmethod
    def _no_numbers(header: Header, free: Sequence[str]) -> SeriatimError:
        if len(header.columns) == 1 and not header.unnamed:
            cause = f"{header.name}: not a table with a column of numbers"
            return SeriatimError(
                "data.series", cause, "pass a .csv, .tsv or .parquet file, or .npy with a series a row"
            )
        cause = f"{header.name}: no column of numbers to forecast; the columns are: {', '.join(header.columns)}"
        commas = any(DECIMAL_COMMA.fullmatch(str(cell).strip()) for name in free for cell in header.samples[name])
        return SeriatimError(
            "data.column", cause, "write decimals as 3.14" if commas else "add one, or name it: --target"
        )

    @staticmethod
    def _note_guesses(header: Header, guesses: Roles, diagnostics: Diagnostics) -> None:
        for role, columns in guesses.items() if len(header.columns) > 1 else ():
            names = ", ".join(f'"{column}"' for column in columns)
            several = len(columns) > 1
            diagnostics.note(f"{header.name}: column{'s' * several} {names} {'are' if several else 'is'} the {role}")


def is_number(cell: Cell) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def is_numeric(cells: Sequence[Cell]) -> bool:
    """Returns whether most of the filled cells are numbers: a wrong one is an error, not a name."""
    filled = [cell for cell in cells if not (cell is None or str(cell).strip().lower() in MISSING)]
    return not filled or sum(map(is_number, filled)) > 0.5 * len(filled)


def check_series(dataset: Dataset, diagnostics: Diagnostics) -> None:
    """Reports what prevents rows from becoming series: times that are not, or that occur twice."""
    from .table import make_series  # imports this module

    if "frequency" in dataset:  # they are series already
        return
    try:
        make_series(dataset, False, diagnostics)
    except SeriatimError as error:
        diagnostics.report(error.code, error.cause, error.remedy)


SCHEMA = SeriesSchema(
    (
        Field("time", (TIME,), TIME_NAMES, required=False),
        Field("series", (LABEL,), SERIES_NAMES, required=False),
        Field("target", (VALUE, HISTORY), max_columns=None, required=False, target=True),
        Field("past", (VALUE,), max_columns=None, required=False),
        Field("future", (VALUE,), max_columns=None, required=False),
    ),
    constraints=(check_series,),
)
