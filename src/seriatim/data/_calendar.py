"""Times of a series: read from the cells of a table, put on a regular grid, and continued beyond its end.

Dates are microseconds since 1970 (int64), in UTC where they name a time zone; other times are plain numbers.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MINUTE = 60_000_000
HOUR, DAY = 60 * MINUTE, 1440 * MINUTE
NAMED = {  # microseconds of a step → its name, and the number of steps after which things repeat
    MINUTE: ("every minute", 60),
    5 * MINUTE: ("every 5 minutes", 288),
    10 * MINUTE: ("every 10 minutes", 144),
    15 * MINUTE: ("every 15 minutes", 96),
    30 * MINUTE: ("every 30 minutes", 48),
    HOUR: ("hourly", 24),
    DAY: ("daily", 7),
    7 * DAY: ("weekly", 52),
}
MONTHS = {1: ("monthly", 12), 3: ("quarterly", 4), 12: ("yearly", None)}
FORMATS = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%b %Y", "%B %Y", "%d %b %Y", "%Y.%m.%d")
CLOCKS = ("", " %H:%M", " %H:%M:%S")
EPOCH = datetime.datetime(1970, 1, 1)


class UnreadableError(ValueError):
    """No cell of the list up to `index` contradicts; that one is no time like the others."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def parse(cells: Sequence[Any]) -> tuple[np.ndarray, bool]:
    """Times, and whether they are dates (else numbers). Raises `UnreadableError`."""
    if all(isinstance(cell, int | float) for cell in cells):
        return np.array(cells, dtype=np.float64), False
    best = -1
    for reader in (_number, _iso):
        found, bad = _all(reader, cells)
        if bad is None:
            return np.array(found, dtype=np.float64 if reader is _number else np.int64), reader is _iso
        best = max(best, bad)
    fitting: list[np.ndarray] = []
    for form in (date + clock for date in FORMATS for clock in CLOCKS):
        found, bad = _all(lambda cell, form=form: _stamp(datetime.datetime.strptime(str(cell).strip(), form)), cells)
        if bad is None:
            fitting.append(np.array(found, dtype=np.int64))
        else:
            best = max(best, bad)
    if not fitting:
        raise UnreadableError(best)
    # 03/04/2020 may be in March or in April: the reading with the most even steps is the likelier one.
    return min(fitting, key=lambda times: len(np.unique(np.diff(times)))), True


def looks_like_dates(cells: Sequence[Any]) -> bool:
    """Whether the cells are dates, not numbers and not words."""
    there = [cell for cell in cells if cell is not None and str(cell).strip()]
    try:
        return bool(there) and parse(there)[1]
    except UnreadableError:
        return False


def _all(reader: Any, cells: Sequence[Any]) -> tuple[list[Any], int | None]:
    found = []
    for index, cell in enumerate(cells):
        try:
            found.append(reader(cell))
        except (ValueError, TypeError, OverflowError):
            return found, index
    return found, None


def _number(cell: Any) -> float:
    value = float(cell)
    if not np.isfinite(value):
        raise ValueError(cell)
    text = str(cell).strip()
    if re.fullmatch(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", text):  # 20200131 is a date
        raise ValueError(cell)
    return value


def _iso(cell: Any) -> int:
    if isinstance(cell, datetime.datetime):
        return _stamp(cell)
    if isinstance(cell, datetime.date):
        return _stamp(datetime.datetime(cell.year, cell.month, cell.day))
    text = str(cell).strip()
    if re.fullmatch(r"\d{4}-\d{2}", text):
        text += "-01"
    elif quarter := re.fullmatch(r"(\d{4})[- ]?Q([1-4])", text):
        text = f"{quarter[1]}-{3 * int(quarter[2]) - 2:02d}-01"
    return _stamp(datetime.datetime.fromisoformat(text))


def _stamp(moment: datetime.datetime) -> int:
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class Frequency:
    """The distance from one element of a series to the next."""

    kind: str  # "rows" and "number": plain numbers; "time": microseconds; "months"; "business": Monday to Friday
    step: float = 1.0
    month_end: bool = False

    @property
    def dates(self) -> bool:
        return self.kind in ("time", "months", "business")

    @property
    def name(self) -> str:
        if self.kind == "business":
            return "business days"
        if self.kind == "months":
            return MONTHS.get(int(self.step), (f"every {self.step:g} months", None))[0]
        if self.kind != "time":
            return "" if self.kind == "rows" else f"steps of {self.step:g}"
        if self.step in NAMED:
            return NAMED[int(self.step)][0]
        for size, word in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
            if self.step % size == 0:
                return f"every {self.step / size:g} {word}"
        return f"every {self.step / 1e6:g} seconds"

    @property
    def season(self) -> int | None:
        """The steps after which things usually repeat, where the frequency tells."""
        if self.kind == "business":
            return 5
        if self.kind == "months":
            return MONTHS.get(int(self.step), ("", None))[1]
        if self.kind == "time" and self.step in NAMED:
            return NAMED[int(self.step)][1]
        if self.kind == "time" and self.step < DAY and DAY % self.step == 0 and DAY // self.step <= 288:
            return int(DAY // self.step)
        return None

    def steps(self, times: np.ndarray) -> np.ndarray:
        """How many steps each time is behind the first; whole numbers where the times lie on the grid."""
        if self.kind == "months":
            months = times.astype("M8[us]").astype("M8[M]").astype(np.int64)
            return (months - months[0]) / self.step
        if self.kind == "business":
            days = times.astype("M8[us]").astype("M8[D]")
            return np.busday_count(days[0], days).astype(np.float64)
        return (times - times[0]) / self.step

    def after(self, start: float, steps: np.ndarray | int) -> np.ndarray:
        """The times so many steps behind `start`."""
        count = np.asarray(steps, dtype=np.int64)
        if not self.dates:
            return np.asarray(start + count * self.step)
        moment = np.array(int(start), dtype="M8[us]")
        if self.kind == "time":
            return (moment.astype(np.int64) + count * int(self.step)).astype(np.int64)
        day = moment.astype("M8[D]")
        clock = moment - day
        if self.kind == "business":
            return (np.busday_offset(day, count) + clock).astype("M8[us]").astype(np.int64)
        month = day.astype("M8[M]")
        target = month + count * int(self.step)
        inside = (target + 1).astype("M8[D]") - np.timedelta64(1, "D") if self.month_end else target + (day - month)
        return (inside + clock).astype("M8[us]").astype(np.int64)

    def text(self, time: float) -> str | float:
        """A time as people write it: the shortest ISO form for dates, else the number."""
        if not self.dates:
            return int(time) if float(time).is_integer() else float(time)
        moment = np.array(int(time), dtype="M8[us]")
        if self.kind == "months" and not self.month_end and moment == moment.astype("M8[M]"):
            return str(moment.astype("M8[D]"))
        whole = moment == moment.astype("M8[D]")
        if whole and (self.kind != "time" or self.step % DAY == 0):
            return str(moment.astype("M8[D]"))
        unit = "m" if moment == moment.astype("M8[m]") else "s" if moment == moment.astype("M8[s]") else "us"
        return str(moment.astype(f"M8[{unit}]")).replace("T", " ")


def infer(groups: Sequence[np.ndarray], dates: bool) -> Frequency:
    """The frequency common to several series of sorted times."""
    gaps = np.concatenate([np.diff(times) for times in groups]) if groups else np.zeros(0)
    gaps = gaps[gaps > 0]
    if len(gaps) == 0:
        return Frequency("time", float(DAY)) if dates else Frequency("number")
    step = float(np.median(gaps))
    if not dates:
        return Frequency("number", step)
    moments = np.concatenate(list(groups)).astype("M8[us]")
    days = moments.astype("M8[D]")
    one_clock = len(np.unique(moments - days)) == 1
    if one_clock and step >= 27 * DAY:
        month = days.astype("M8[M]")
        place = np.unique((days - month.astype("M8[D]")).astype(np.int64))
        last = bool(((days + 1).astype("M8[M]") == month + 1).all())
        if last or len(place) == 1:
            months = [np.diff(g.astype("M8[us]").astype("M8[M]").astype(np.int64)) for g in groups]
            return Frequency("months", float(np.median(np.concatenate(months))), last and len(place) > 1)
    week = (days.astype(np.int64) + 3) % 7  # 0 is Monday
    if one_clock and step == DAY and len(days) >= 6 and bool((week < 5).all()) and bool((gaps >= 3 * DAY).any()):
        return Frequency("business")
    return Frequency("time", step)


PHASES = ("day", "week", "year")


def phases(frequency: Frequency, shortest_span: float) -> list[str]:
    """The cycles of the calendar worth telling a model: longer than a step, and seen at least twice."""
    if not frequency.dates:
        return []
    step = {"business": DAY, "months": 30 * DAY * frequency.step}.get(frequency.kind, frequency.step)
    lengths = {"day": DAY, "week": 7 * DAY, "year": 365.25 * DAY}
    return [name for name in PHASES if step < lengths[name] * 0.6 and shortest_span >= 2 * lengths[name]]


def phase(times: np.ndarray, name: str) -> np.ndarray:
    """Where in a cycle each date stands, as a point on a circle (n,2)."""
    moments = times.astype("M8[us]")
    if name == "day":
        share = (times % DAY) / DAY
    elif name == "week":
        share = ((times + 3 * DAY) % (7 * DAY)) / (7 * DAY)
    else:
        year = moments.astype("M8[Y]")
        length = ((year + 1).astype("M8[us]") - year.astype("M8[us]")).astype(np.float64)
        share = (moments - year.astype("M8[us]")).astype(np.float64) / length
    angle = 2 * np.pi * share
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)
