"""Curves over one axis, such as the size of the gradient over the distance in time; a curve of a model in its colour.

Names stand at the ends of the curves, where every eye finds them; of very many only a legend is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .axes import horizontal, spread, ticks
from .fields import rounded
from .looks import ACCENT, FAINT, INK, OWN, SPARE, WHOLE, data
from .text import label, letters

if TYPE_CHECKING:
    import altair as alt

    from .looks import Drawn

SERIES = 60
NAMED = 16  # curves whose names stand at their ends
POINTS = 600  # of a curve: a picture has no more columns
NAME = 36  # letters
LETTER = 6.2  # pixels
LINE = 15
DASHED = [5, 4]
TICKS = 14  # places of a logarithmic axis that are all written
TOLD = 16


@dataclass(frozen=True)
class Scale:
    """One axis: its ends, and whether it goes by powers of ten."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, values: Iterable[float], log: bool, room: float = 0.0) -> Scale:
        found = list(values)
        low, high = min(found), max(found)
        if log:
            part = (high / low) ** room
            low, high = low / part, high * part
            return cls(low / 2, high * 2, True) if high == low else cls(low, high, True)
        pad = room * (high - low)
        return cls(low - pad, high + pad, False) if high > low else cls(low - 0.5, high + 0.5, False)

    def share(self, value: float) -> float:
        """Where a value is between the ends: 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, share: float) -> float:
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def scale(self) -> alt.Scale:
        import altair as alt

        domain = [self.low, self.high]
        return alt.Scale(type="log", domain=domain, nice=False) if self.log else alt.Scale(domain=domain, nice=False)


def lines(view: dict[str, Any], width: int = WHOLE, colours: Mapping[str, tuple[str, str]] | None = None) -> Drawn:
    """`series` are names with their points [x, y]; `log_x` and `log_y` (or `log`) draw by powers of ten, without what
    is not above 0. `dashes` are the names of curves that are dashed, `marks` puts a dot at every figure, `points` are
    what the curves are to follow: dots behind them. `annotations` have a `text` and `x`, `y` or both: a line across, or
    a word at a place."""
    import altair as alt

    logs = bool(view.get("log_x")), bool(view.get("log_y", view.get("log")))
    series = _series(view, logs)
    names = list(series)
    dots = list(_kept(view.get("points", ()), logs))
    notes = [note for note in view.get("annotations") or () if _fits(note, logs)]
    every = [point for points in series.values() for point in points] + dots
    across = Scale.of([x for x, _ in every] + _given(notes, "x"), logs[0])
    up = Scale.of([y for _, y in every] + _given(notes, "y"), logs[1], 0.04)
    tall = 340 if dots or len(names) > 8 else 270
    at_ends = 1 < len(names) <= NAMED
    room = min(LETTER * max(map(letters, names)) + 26, 250) if at_ends else 0
    x, y = _axes(view, across, up, sorted({x for x, _ in every}))
    dashed = {label(name, NAME) for name in view.get("dashes") or ()}
    pairs = {**coloured(names, dashed), **(colours or {})}
    shown = alt.Legend(columns=6, symbolType="stroke", labelLimit=220, symbolLimit=0) if len(names) > NAMED else None
    hue = alt.Scale(domain=names, range=[pairs[name][0] for name in names])
    colour = alt.Color("name:N", scale=hue, legend=shown)
    strokes = [DASHED if name in dashed else [1, 0] for name in names]
    dash = alt.StrokeDash("name:N", scale=alt.Scale(domain=names, range=strokes), legend=shown)
    rows: list[dict[str, Any]] = [{"name": name, "x": x, "y": y} for name, points in series.items() for x, y in points]
    layers = _annotated(notes, across, up, x, y)
    if dots:
        behind = data([{"x": a, "y": b} for a, b in dots])
        layers.append(behind.mark_circle(size=16, color=FAINT[0], opacity=0.55).encode(x, y))
    layers.append(data(rows).mark_line(strokeWidth=1.75).encode(x, y, colour, dash))
    alone = [row for row in rows if len(series[row["name"]]) == 1]
    marked = rows if view.get("marks") else alone
    if marked:
        layers.append(data(marked).mark_circle(size=34, opacity=1).encode(x, y, colour))
    tips = [
        alt.Tooltip("name:N", title="curve"),
        alt.Tooltip("x:Q", title=label(view.get("x", ""), 60) or "x", format=".5~g"),
        alt.Tooltip("y:Q", title=label(view.get("y", ""), 80) or "y", format=".4~g"),
    ]
    layers.append(data(rows).mark_circle(size=70, color=INK[0], opacity=0).encode(x, y, tooltip=tips))  # for pointers
    if at_ends:
        layers += _names(series, across, up, tall, width - room, x, y, colour)
    hint = [label(view["note"], 160)] if view.get("note") else []
    hint += [f"{len(view['series']) - len(series)} curves are not shown"] if len(view["series"]) > len(series) else []
    chart = alt.layer(*layers).properties(
        width=width - room, height=tall, title=looks.title(label(view["title"], 100), "; ".join(hint))
    )
    return looks.row([chart]), f"{label(view['title'], 100)}: {_told(series)}."


def coloured(names: Sequence[str], dashed: Collection[str] = ()) -> dict[str, tuple[str, str]]:
    """A curve whose name begins with a model's has that model's colour, and so has its dashed twin; any further curve
    of the model gets a colour that is left."""
    if len(names) == 1:
        return {names[0]: ACCENT}
    hues = [*SPARE, *dict.fromkeys(OWN.values())]
    free = iter(hues * (1 + len(names) // len(hues)))
    used: set[tuple[str, bool]] = set()
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        model = next(iter(re.findall(r"[a-z0-9]+", name.lower())), "")
        own = model in OWN and (model, name in dashed) not in used
        used.add((model, name in dashed))
        found[name] = OWN[model] if own else next(free)
    return found


def _series(view: dict[str, Any], logs: tuple[bool, bool]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for name, points in view["series"]:
        kept = sorted(_kept(points, logs))
        stride = -(-len(kept) // POINTS) or 1
        if kept and len(found) < SERIES:
            found.setdefault(label(name, NAME), []).extend(
                point for index, point in enumerate(kept) if index % stride == 0 or index == len(kept) - 1
            )
    if not found:
        raise ValueError("curves have points")
    return found


def _kept(points: Iterable[Sequence[Any]], logs: tuple[bool, bool]) -> Iterable[tuple[float, float]]:
    """Those that can be drawn."""
    for x, y in points:
        across, up = finite(x), finite(y)
        if across is not None and up is not None and (across > 0 or not logs[0]) and (up > 0 or not logs[1]):
            yield rounded(across, 6), rounded(up)


def _fits(note: Mapping[str, Any], logs: tuple[bool, bool]) -> bool:
    given = [(finite(note[side]), log) for side, log in zip("xy", logs, strict=True) if note.get(side) is not None]
    return bool(given) and all(value is not None and (value > 0 or not log) for value, log in given)


def _given(notes: Sequence[Mapping[str, Any]], side: str) -> list[float]:
    return [float(note[side]) for note in notes if note.get(side) is not None]


def _axes(view: dict[str, Any], across: Scale, up: Scale, measured: Sequence[float]) -> tuple[alt.X, alt.Y]:
    import altair as alt

    below = horizontal(label(view.get("x", ""), 60), "~s")
    beside = alt.Axis(title=label(view.get("y", ""), 80), format="~s", tickCount=6, domain=False)
    if across.log:
        few = len(measured) <= TICKS
        below["values"] = list(measured) if few else ticks(across.low, across.high)
        below["format"] = ",.6~g" if few else "~s"
    if up.log:
        beside["values"] = ticks(up.low, up.high)
        beside["format"] = "~g" if up.low >= 1e-3 and up.high < 1e5 else ".0e"
    elif max(abs(up.low), abs(up.high)) < 1:
        beside["format"] = "~g"  # parts of one are no milli
    return alt.X("x:Q", scale=across.scale(), axis=below), alt.Y("y:Q", scale=up.scale(), axis=beside)


def _annotated(notes: Sequence[Mapping[str, Any]], across: Scale, up: Scale, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    layers = []
    for note in notes:
        text = label(note.get("text", ""), 60)
        place = {"x": note.get("x", across.low), "y": note.get("y", up.at(0.97)), "text": text}
        rule = data([place]).mark_rule(strokeDash=[2, 3], color=FAINT[0])
        if note.get("y") is None:
            layers.append(rule.encode(x))
        elif note.get("x") is None:
            layers.append(rule.encode(y))
        over = {"dx": 4, "dy": -7} if note.get("y") is not None else {"dx": 5, "dy": 0}
        word = data([place]).mark_text(align="left", color=INK[0], dx=over["dx"], dy=over["dy"])
        layers.append(word.encode(x, y, text="text:N"))
    return layers


def _names(
    series: dict[str, list[tuple[float, float]]],
    across: Scale,
    up: Scale,
    tall: int,
    wide: float,
    x: alt.X,
    y: alt.Y,
    colour: alt.Color,
) -> list[alt.Chart]:
    """Names at the right edge, level with the ends of their curves as far as they do not cover each other, each with a
    thin line that leads to it."""
    import altair as alt

    ends = sorted(((up.share(points[-1][1]), name) for name, points in series.items()), reverse=True)
    places = spread([share for share, _ in ends], LINE / tall, 0.0, 1.0)
    edge = across.at(1 + 10 / wide)
    leaders, words = [], []
    for (share, name), place in zip(ends, places, strict=True):
        last = series[name][-1][0]
        leaders += [{"name": name, "x": last, "y": up.at(share)}, {"name": name, "x": edge, "y": up.at(place)}]
        words.append({"name": name, "x": edge, "y": up.at(place)})
    thin = alt.StrokeDash(value=[1, 0])
    return [
        data(leaders).mark_line(strokeWidth=0.75, opacity=0.6).encode(x, y, colour, thin),
        data(words).mark_circle(size=45, opacity=1).encode(x, y, colour),
        data(words).mark_text(align="left", dx=8, fontSize=12, color=INK[0]).encode(x, y, text="name:N"),
    ]


def _told(series: dict[str, list[tuple[float, float]]]) -> str:
    """Where each begins and ends, for those who listen."""
    ends = [
        f"{name} from {plain(points[0][1], 3, 2)} to {plain(points[-1][1], 3, 2)}" for name, points in series.items()
    ]
    return "; ".join(ends[:TOLD]) + (" …" if len(ends) > TOLD else "")
