"""Axes of curves: what was spent runs to the right, a measure goes up, and names stand at the right edge."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.measures import measure

if TYPE_CHECKING:
    import altair as alt

HEIGHT = 270
LINE = 15  # pixels that a label needs
WIDE = 4.0  # a logarithmic axis helps where the shortest and the longest run differ by more than this


@dataclass(frozen=True)
class Axis:
    """A horizontal axis: its title, the form of its labels, the factor from the unit of the figures, its ends and
    whether it is logarithmic."""

    title: str
    form: str
    factor: float
    low: float
    high: float
    log: bool

    @classmethod
    def over(
        cls, kind: str, element: str, ends: Sequence[float], lows: Sequence[float], log: bool | None = None
    ) -> Axis:
        """An axis up to the furthest of `ends`; it starts below all of `lows` where it is logarithmic, else at zero."""
        positive = [end for end in ends if end > 0]
        highest = max(positive, default=1.0)
        counted = {
            "tokens": (f"Training {element}", "~s", 1.0),
            "flops": ("Training compute in FLOP", "~s", 1.0),
            "parameters": ("Parameters", "~s", 1.0),
            "speed": ("Answers a second, 32 at a time", "~s", 1.0),
        }
        title, form, factor = counted.get(kind) or _clock(highest)
        wide = highest / min(positive, default=1.0) > WIDE if log is None else log
        low = min((value for value in lows if value > 0), default=highest / 10)
        return cls(title, form, factor, low * factor if wide else 0.0, highest * factor, wide)

    @property
    def edge(self) -> float:
        """Where names stand: a little further than any figure."""
        return self.high * (self.high / self.low) ** 0.06 if self.log else self.high + 0.06 * (self.high - self.low)

    def x(self, field: str = "x") -> alt.X:
        import altair as alt

        scale = alt.Scale(type="log" if self.log else "linear", domain=[self.low, self.edge], nice=False)
        title = f"{self.title} (log scale)" if self.log else self.title
        axis = horizontal(title, self.form)
        if self.log:
            axis["values"] = ticks(self.low, self.edge)
        return alt.X(f"{field}:Q", scale=scale, axis=axis)


def _clock(longest: float) -> tuple[str, str, float]:
    if longest < 300:
        return "Training time in seconds", "~f", 1.0
    if longest < 3 * 3600:
        return "Training time in minutes", "~f", 1 / 60
    return "Training time in hours", "~f", 1 / 3600


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, … within the ends of a logarithmic axis; over many decades the powers of ten suffice."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    found = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return [tick for tick in found if low <= tick <= high]


def horizontal(title: str, form: str) -> alt.Axis:
    import altair as alt

    bare_zero = "datum.value === 0 ? '0' : datum.label"  # else it reads 0M
    return alt.Axis(title=title, grid=False, labelOverlap=True, tickCount=5, format=form, labelExpr=bare_zero)


def named(names: Sequence[str]) -> str:
    """The expression that labels the places 0, 1, … of an axis with names, of which two may be the same."""
    return f"{json.dumps(list(names))}[datum.value]"


@dataclass(frozen=True)
class Span:
    """The vertical axis: its ends, and whether its labels are percentages."""

    low: float
    high: float
    form: str

    @classmethod
    def of(cls, values: Sequence[float], name: str, bound: float | None = None) -> Span:
        """All the values of a measure; the bad ones beyond `bound` may leave the picture."""
        about = measure(name)
        low, high = min(values, default=0.0), max(values, default=1.0)
        if bound is not None:
            low, high = (bound, high) if about.better == "higher" else (low, bound)
        least = abs(high) * 0.005 if high > low else max(abs(high) * 0.1, 0.01)  # a level line needs room around it
        pad = max((high - low) * 0.05, least, 1e-6)
        return cls(low - pad, high + pad, "%" if about.percent else "")

    def reaches(self, value: float) -> Span | None:
        """The axis with a value on it, unless that would leave less than half of it to all the others."""
        size = self.high - self.low
        if not self.low - size <= value <= self.high + size:
            return None
        pad = 0.03 * size
        return Span(min(self.low, value - pad), max(self.high, value + pad), self.form)

    @property
    def line(self) -> float:
        """How many units a label needs."""
        return (self.high - self.low) * LINE / HEIGHT

    def y(self, field: str = "y") -> alt.Y:
        import altair as alt

        scale = alt.Scale(domain=[self.low, self.high], nice=False, zero=False)
        axis = alt.Axis(title=None, tickCount=6)
        if self.form:
            step = 100 * (self.high - self.low) / 6
            axis["format"] = f".{max(0, -math.floor(math.log10(step)))}%"  # so fine that no two labels are the same
        return alt.Y(f"{field}:Q", scale=scale, axis=axis)


def labels(ends: list[dict[str, Any]], axis: Axis, span: Span) -> list[dict[str, Any]]:
    """Names at the right edge, as level with the ends of their lines as can be without covering each other."""
    names = sorted(ends, key=lambda row: -row["y"])
    wanted = [min(max(row["y"], span.low), span.high) for row in names]
    places = spread(wanted, span.line, span.low, span.high)
    return [
        {**row, "edge": axis.edge, "place": place, "y": y} for row, y, place in zip(names, wanted, places, strict=True)
    ]


def spread(wanted: list[float], gap: float, floor: float, ceiling: float = math.inf) -> list[float]:
    """Falling values moved apart by at least `gap`: those that crowd together become a block around their mean, but
    none stands above `ceiling` where there is room below, and none below `floor`."""
    blocks: list[list[float]] = []
    for value in wanted:
        blocks.append([value])
        while len(blocks) > 1 and _ends(blocks[-2], gap)[1] - _ends(blocks[-1], gap)[0] < gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    places = [_ends(block, gap)[0] - gap * index for block in blocks for index in range(len(block))]
    for index in range(len(places)):
        places[index] = min(places[index], ceiling if index == 0 else places[index - 1] - gap)
    for index in reversed(range(len(places))):
        lowest = floor if index == len(places) - 1 else places[index + 1] + gap
        places[index] = max(places[index], lowest)
    return places


def _ends(block: list[float], gap: float) -> tuple[float, float]:
    """The highest and the lowest place of a block."""
    middle, half = math.fsum(block) / len(block), gap * (len(block) - 1) / 2
    return middle + half, middle - half
