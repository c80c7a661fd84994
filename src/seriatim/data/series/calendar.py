"""Times of a series: parsed from the cells of a table, placed on a regular grid, and continued after its end.

Dates are datetime64[us], in UTC if they name a time zone; other times are float64.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..kinds import Cell

SECOND = 1_000_000  # in microseconds, as are all steps of time
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
NAMED_STEPS = {  # step → its name, and the usual season in steps; of other steps below a day it is the day
    MINUTE: ("every minute", 60),
    HOUR: ("hourly", 24),
    DAY: ("daily", 7),
    7 * DAY: ("weekly", 52),
}
NAMED_MONTHS = {1: ("monthly", 12), 3: ("quarterly", 4), 12: ("yearly", None)}
DATE_FORMATS = ["%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%b %Y", "%B %Y", "%d %b %Y", "%Y.%m.%d"]
CLOCK_FORMATS = ("", " %H:%M", " %H:%M:%S")
COMPACT_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])")  # 20200131 is a date, not a number
ISO_TIME = re.compile(r"[12]\d{3}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")  # that numpy reads as well
QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])")
MAX_SEASON_STEPS = 288  # steps per day up to which a day is the season
CYCLES = {"day": DAY, "week": 7 * DAY, "year": 365.25 * DAY}


class TimeError(ValueError):
    """The cell at `index` is not a time, or not one like those before it."""

    def __init__(self, index: int) -> None:
        super().__init__(f"cell {index} is not a time")
        self.index = index


def parse_times(cells: Sequence[Cell]) -> np.ndarray:
    """Returns the times of a whole column, datetime64[us] or float64, read by one format.

    03/04/2020 may be in March or in April: the format that gives the most even steps is chosen.

    Raises:
        TimeError: If no format reads all cells.
    """
    if all(isinstance(cell, int | float) for cell in cells):
        try:
            return np.array(cells, dtype=np.float64)
        except OverflowError:  # a whole number beyond all floats
            raise TimeError(max(range(len(cells)), key=lambda index: abs(cells[index]))) from None
    stripped = [cell.strip() for cell in cells if isinstance(cell, str)]
    if len(stripped) == len(cells) and all(map(ISO_TIME.fullmatch, stripped)):
        try:
            return np.array(stripped, dtype="datetime64[us]")
        except ValueError:
            pass  # such as February 30, which is reported below
    import pandas as pd  # takes half a second

    numbers = np.array([parse_number(cell) for cell in cells])
    if not np.isnan(numbers).any():
        return numbers
    last_failure = int(np.isnan(numbers).argmax())
    texts = pd.Series([cell if isinstance(cell, datetime.date) else write_quarter(str(cell).strip()) for cell in cells])
    candidates = []
    for format in ("ISO8601", *(date + clock for date in DATE_FORMATS for clock in CLOCK_FORMATS)):
        if pd.isna(pd.to_datetime(texts[:1], format=format, utc=True, errors="coerce")).any():
            continue
        times = pd.to_datetime(texts, format=format, utc=True, errors="coerce")
        if times.isna().any():
            last_failure = max(last_failure, int(times.isna().to_numpy().argmax()))
            continue
        candidates.append(times.dt.tz_localize(None).to_numpy().astype("datetime64[us]"))
        if format == "ISO8601":
            break
    if not candidates:
        raise TimeError(last_failure)
    return min(candidates, key=lambda times: len(np.unique(np.diff(times))))


def parse_number(cell: Cell) -> float:
    """Returns a time that is a number, NaN for other cells."""
    try:
        value = np.nan if COMPACT_DATE.fullmatch(str(cell).strip()) else float(cell)
    except (ValueError, TypeError, OverflowError):
        return np.nan
    return value if np.isfinite(value) else np.nan


def write_quarter(text: str) -> str:
    """Returns the first day of a quarter written as 2020-Q1; other texts as they are."""
    quarter = QUARTER.fullmatch(text)
    text = f"{quarter[1]}-{3 * int(quarter[2]) - 2:02d}-01" if quarter else text
    return text.encode("utf-8", "replace").decode()  # pandas does not know half a surrogate pair


def looks_like_dates(cells: Sequence[Cell]) -> bool:
    """Returns whether the filled cells are dates, not numbers or words."""
    filled = [cell for cell in cells if cell is not None and str(cell).strip()]
    try:
        return bool(filled) and parse_times(filled).dtype.kind == "M"
    except TimeError:
        return False


@dataclass(frozen=True)
class Frequency:
    """The step from one element of a series to the next.

    Args:
        kind: "rows" if there are no times, "number" for plain numbers, "time" for microseconds, "months", or
            "business" for Monday to Friday.
        step: In units of the kind.
        month_end: Whether times are the last days of months.
    """

    kind: Literal["rows", "number", "time", "months", "business"]
    step: float = 1.0
    month_end: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.step!r}{' end' if self.month_end else ''}"

    @classmethod
    def parse(cls, text: str) -> Frequency:
        """Returns the frequency that `str` was called on."""
        kind, step, *end = text.split()
        return cls(kind, float(step), bool(end))  # type: ignore[arg-type]

    @property
    def has_dates(self) -> bool:
        return self.kind in ("time", "months", "business")

    @property
    def name(self) -> str:
        """Such as "hourly"; "" if there are no times."""
        if self.kind == "business":
            return "business days"
        if self.kind == "months":
            return NAMED_MONTHS.get(int(self.step), (f"every {self.step:g} months", None))[0]
        if self.kind != "time":
            return "" if self.kind == "rows" else f"steps of {self.step:g}"
        if self.step in NAMED_STEPS:
            return NAMED_STEPS[int(self.step)][0]
        for size, unit in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
            if self.step % size == 0:
                return f"every {self.step / size:g} {unit}"
        return f"every {self.step / SECOND:g} seconds"

    @property
    def season(self) -> int | None:
        """The usual season in steps, if the frequency has one."""
        if self.kind == "business":
            return 5
        if self.kind == "months":
            return NAMED_MONTHS.get(int(self.step), ("", None))[1]
        if self.kind == "time" and self.step in NAMED_STEPS:
            return NAMED_STEPS[int(self.step)][1]
        if self.kind == "time" and self.step < DAY and DAY % self.step == 0 and DAY // self.step <= MAX_SEASON_STEPS:
            return int(DAY // self.step)
        return None

    @property
    def long_season(self) -> int | None:
        """A longer season in steps: the week of steps below a day, the year of days and business days."""
        if self.kind == "time" and self.step < DAY and DAY % self.step == 0:
            return int(7 * DAY // self.step)
        if self.kind == "business":
            return 261
        return 365 if self.kind == "time" and self.step == DAY else None

    @property
    def microseconds(self) -> float:
        """The step in microseconds, about, if times are dates."""
        return {"months": 30.4 * DAY * self.step, "business": 1.4 * DAY}.get(self.kind, self.step)

    def steps(self, times: np.ndarray) -> np.ndarray:
        """Returns the number of steps from the first time to each (n,): whole numbers for times on the grid."""
        if self.kind == "months":
            months = times.astype("M8[M]").astype(np.int64)
            return np.asarray((months - months[0]) / self.step)
        if self.kind == "business":
            days = times.astype("M8[D]")
            return np.busday_count(days[0], days).astype(np.float64)
        differences = times - times[0]
        return np.asarray(differences.astype(np.int64 if self.has_dates else np.float64) / self.step)

    def after(self, start: Any, steps: np.ndarray) -> np.ndarray:
        """Returns the times (n,) that are `steps` (n,) after `start`."""
        steps = np.asarray(steps, dtype=np.int64)
        if not self.has_dates:
            return np.asarray(start + steps * self.step)
        moment = np.datetime64(start, "us")
        if self.kind == "time":
            return np.asarray(moment + (steps * int(self.step)).astype("m8[us]"))
        day = moment.astype("M8[D]")
        clock = moment - day
        if self.kind == "business":
            return np.asarray(np.busday_offset(day, steps) + clock).astype("M8[us]")
        month = day.astype("M8[M]")
        months = month + steps * int(self.step)
        last_days = (months + 1).astype("M8[D]") - np.timedelta64(1, "D")
        days = last_days if self.month_end else months + (day - month)
        return np.asarray(days + clock).astype("M8[us]")

    def format(self, time: Any) -> str | int | float:
        """Returns a time as output shows it: the shortest ISO form of a date, else a number."""
        if not self.has_dates:
            return int(time) if float(time).is_integer() else float(time)
        moment = np.datetime64(time, "us")
        whole_day = moment == moment.astype("M8[D]")
        if whole_day and (self.kind != "time" or self.step % DAY == 0):
            return str(moment.astype("M8[D]"))
        unit = next((unit for unit in ("m", "s") if moment == moment.astype(f"M8[{unit}]")), "us")
        return str(moment.astype(f"M8[{unit}]")).replace("T", " ")


def infer_frequency(groups: Sequence[np.ndarray]) -> Frequency:
    """Returns the frequency of several series, given their sorted times, all of one type."""
    has_dates = groups[0].dtype.kind == "M"
    gaps = np.concatenate([np.diff(times) for times in groups])
    gaps = gaps.astype(np.int64 if has_dates else np.float64)
    gaps = gaps[gaps > 0]
    if len(gaps) == 0:
        return Frequency("time", float(DAY)) if has_dates else Frequency("number")
    step = float(np.median(gaps))
    if not has_dates:
        return Frequency("number", step)
    moments = np.concatenate(list(groups))
    days = moments.astype("M8[D]")
    same_clock = len(np.unique(moments - days)) == 1
    if same_clock and step >= 27 * DAY:
        months = days.astype("M8[M]")
        days_of_month = np.unique((days - months.astype("M8[D]")).astype(np.int64))
        all_last = bool(((days + 1).astype("M8[M]") == months + 1).all())
        if all_last or len(days_of_month) == 1:
            differences = [np.diff(times.astype("M8[M]").astype(np.int64)) for times in groups]
            step = float(np.median(np.concatenate(differences)))
            return Frequency("months", step, all_last and len(days_of_month) > 1)
    weekdays = (days.astype(np.int64) + 3) % 7  # 0 is Monday
    if same_clock and step == DAY and len(days) >= 6 and (weekdays < 5).all() and (gaps >= 3 * DAY).any():
        return Frequency("business")
    return Frequency("time", step)


def useful_cycles(frequency: Frequency, span: float) -> tuple[str, ...]:
    """Returns the cycles of the calendar that are longer than a step and occur twice within `span` microseconds."""
    if not frequency.has_dates:
        return ()
    step = frequency.microseconds
    return tuple(name for name, length in CYCLES.items() if step < 0.6 * length and span >= 2 * length)


def cycle_features(times: np.ndarray, cycle: str) -> np.ndarray:
    """Returns the phase of each date in a cycle, as a point on the unit circle (n,2)."""
    microseconds = times.astype("M8[us]").astype(np.int64)
    if cycle == "day":
        phase = (microseconds % DAY) / DAY
    elif cycle == "week":
        phase = ((microseconds + 3 * DAY) % (7 * DAY)) / (7 * DAY)  # 1970 began on a Thursday
    else:
        year = times.astype("M8[Y]")
        length = ((year + 1).astype("M8[us]") - year.astype("M8[us]")).astype(np.float64)
        phase = (times.astype("M8[us]") - year.astype("M8[us]")).astype(np.float64) / length
    angle = 2 * np.pi * phase
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)
