"""A measure over ranges of something, such as BLEU over the length of the source: a point a range, a line a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, measure, shown, title
from . import looks
from .looks import ACCENT, INK, OWN, SPARE, WHOLE, data
from .numbers import whole
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

NAMED = 130  # pixels for the names at the ends of lines


def bins(view: dict[str, Any], width: int = WHOLE, colours: Mapping[str, tuple[str, str]] | None = None) -> Drawn:
    """`bins` are the names of the ranges, `counts` how many `of` are in each, `series` names with a value of `measure`
    for each range; `colours` are those of the series."""
    import altair as alt

    ranges, counts, series = _checked(view)
    name = str(view["measure"])
    factor = 100 if measure(name).percent else 1
    pairs = dict(colours or _colours([who for who, _ in series]))
    rows: list[dict[str, Any]] = [
        {"name": who, "x": place, "y": factor * value}
        for who, values in series
        for place, value in enumerate(values)
        if value is not None
    ]
    high = max(row["y"] for row in rows)
    lines = [[one, f"{whole(count)} {view.get('of', '')}".strip()] for one, count in zip(ranges, counts, strict=True)]
    room = NAMED if len(series) > 1 else 20
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[-0.25, len(ranges) - 0.75], nice=False),
        axis=alt.Axis(
            values=list(range(len(ranges))),
            labelExpr=f"{json.dumps(lines, ensure_ascii=False)}[datum.value]",
            labelOverlap=False,
            labelFlush=False,
            labelLineHeight=15,
            grid=False,
            title=label(view.get("x", ""), 60),
        ),
    )
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[0, 1.08 * high or 1.0], nice=False),
        axis=alt.Axis(title=f"{title(name)}{', %' if factor == 100 else ''}", tickCount=6, domain=False),
    )
    scale = alt.Scale(domain=list(pairs), range=[light for light, _ in pairs.values()])
    colour = alt.Color("name:N", scale=scale, legend=None)
    layers = [
        data(rows).mark_line(strokeWidth=2).encode(x, y, colour),
        data(rows).mark_circle(size=52, opacity=1).encode(x, y, colour),
    ]
    if len(series) > 1:
        ends = _ends(rows, 1.08 * high or 1.0)
        leaders = [
            {"name": one["name"], "x": one[a], "y": one[b]} for one in ends for a, b in (("x", "y"), ("edge", "place"))
        ]
        across = alt.X("edge:Q", scale=x["scale"], axis=x["axis"])
        up = alt.Y("place:Q", scale=y["scale"], axis=y["axis"])
        layers += [
            data(leaders).mark_line(strokeWidth=0.75, opacity=0.6).encode(x, y, colour),
            data(ends).mark_circle(size=45, opacity=1).encode(across, up, colour),
            data(ends).mark_text(align="left", dx=8, fontSize=12, color=INK[0]).encode(across, up, text="name:N"),
        ]
    else:
        told = [row | {"text": shown(name, row["y"] / factor)} for row in rows]
        layers.append(data(told).mark_text(dy=-13, color=INK[0]).encode(x, y, text="text:N"))
    heading = looks.title(label(view["title"], 100), label(view.get("note", ""), 160))
    chart = alt.layer(*layers).properties(width=width - room, height=300 if len(series) > 1 else 240, title=heading)
    return looks.row([chart]), f"{label(view['title'], 100)}: {_told(series, ranges, name)}."


def _checked(view: dict[str, Any]) -> tuple[list[str], list[Any], list[tuple[str, list[float | None]]]]:
    ranges, counts = [label(one, 24) for one in view["bins"]], list(view["counts"])
    series = [(label(who, 28), [finite(value) for value in values]) for who, values in view["series"]]
    if len(counts) != len(ranges) or any(len(values) != len(ranges) for _, values in series):
        raise ValueError("there is a count and a value for every range")
    if not any(value is not None for _, values in series for value in values):
        raise ValueError("ranges have values")
    return ranges, counts, series


def _colours(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    if len(names) == 1:
        return {names[0]: ACCENT}
    free = iter(SPARE * (1 + len(names) // len(SPARE)))
    return {name: OWN.get(name) or next(free) for name in names}


def _ends(rows: list[dict[str, Any]], high: float) -> list[dict[str, Any]]:
    """The names at the last points of the lines, so far apart that none covers another."""
    last = {row["name"]: row for row in rows}
    step = 0.055 * high
    found: list[dict[str, Any]] = []
    for row in sorted(last.values(), key=lambda one: one["y"]):
        place = row["y"] if not found else max(row["y"], found[-1]["place"] + step)
        found.append(row | {"place": place, "edge": row["x"] + 0.12})
    over = found[-1]["place"] - 0.98 * high
    for index in reversed(range(len(found))) if over > 0 else ():  # too high: those below give way
        top = 0.98 * high if index + 1 == len(found) else found[index + 1]["place"] - step
        found[index]["place"] = min(found[index]["place"], top)
    return found


def _told(series: list[tuple[str, list[float | None]]], ranges: list[str], name: str) -> str:
    """Every value, for those who listen."""
    parts = []
    for who, values in series:
        points = ", ".join(f"{one} {shown(name, value)}" for one, value in zip(ranges, values, strict=True))
        parts.append(f"{who}: {points}" if who else points)
    return "; ".join(parts)
