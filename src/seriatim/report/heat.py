"""Weights between two rows of things as a picture: an alignment of words, or a kernel over the points it knows."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .looks import ACCENT, GROUND, PALE, WHOLE, data
from .numbers import whole
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

LEGIBLE = 60  # names on an axis that are all written; of more, some
FIELDS = 120  # on a side; more are put together
LETTER = 6.5  # pixels
FEW = 600  # fields that are drawn one and all, with lines between them
FAINTEST = 0.004  # of the deepest colour: nobody would see it
TOLD = 12


def heat(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`values` has a row for each of `rows` and in it a figure, 0 or more, for each of `columns`; the deeper a field,
    the larger it is, up to `high` (by default the largest there is)."""
    import altair as alt

    rows, columns, values = _checked(view)
    told = _told(rows, columns, values)
    note = [label(view["note"], 160)] if view.get("note") else []
    if len(rows) > FIELDS or len(columns) > FIELDS:
        note.append(f"{whole(len(rows))} × {whole(len(columns))}, neighbours put together")
    rows, columns, values = folded(rows, columns, values)
    largest = max((value for row in values for value in row), default=0.0)
    high = finite(view.get("high")) or largest or 1.0
    few = len(rows) * len(columns) <= FEW
    fields = [
        {"row": i, "column": j, "share": min(value / high, 1.0)}
        for i, row in enumerate(values)
        for j, value in enumerate(row)
        if few or value > FAINTEST * high
    ]
    wide, tall = _sizes(rows, columns, width - 120)
    long = _longest(columns) > wide
    x = alt.X(
        "column:O",
        axis=alt.Axis(
            orient="top",
            title=label(view.get("x", ""), 60),
            labelExpr=_naming(columns),
            labelAngle=0 if not long else -45 if wide > 30 else -90,
            **_plain_axis(),
        ),
        scale=alt.Scale(padding=0, domain=list(range(len(columns)))),
    )
    y = alt.Y(
        "row:O",
        axis=alt.Axis(
            title=label(view.get("y", ""), 60),
            labelExpr=_naming(rows),
            titleAngle=0,
            titleAlign="right",
            titleAnchor="start",
            **_plain_axis(),
        ),
        scale=alt.Scale(padding=0, domain=list(range(len(rows)))),
    )
    fill = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=[PALE[0], ACCENT[0]]), legend=None)
    mark = data(fields).mark_rect(stroke=GROUND[0], strokeWidth=1 if few else 0).encode(x, y, fill)
    hint = "; ".join([f"the deeper a field, the larger its weight (the deepest: {plain(high, 3)})", *note])
    chart = alt.layer(mark, view=alt.ViewBackground(fill=PALE[0])).properties(
        width=wide * len(columns), height=tall * len(rows), title=looks.title(label(view["title"], 100), hint)
    )
    return looks.row([chart]), f"{label(view['title'], 100)}: {told}"


def _checked(view: dict[str, Any]) -> tuple[list[str], list[str], list[list[float]]]:
    rows, columns = ([label(name, 24) or "␣" for name in view[side]] for side in ("rows", "columns"))
    values = [[max(float(finite(value) or 0), 0.0) for value in row] for row in view["values"]]
    if not rows or not columns or len(values) != len(rows) or any(len(row) != len(columns) for row in values):
        raise ValueError("a heat map has a figure for every row and every column")
    return rows, columns, values


def folded(
    rows: list[str], columns: list[str], values: list[list[float]]
) -> tuple[list[str], list[str], list[list[float]]]:
    """At most FIELDS on a side: the weights of neighbouring columns are added, of neighbouring rows the mean is taken,
    so that a row whose weights sum to one still does. A group bears the name of its first."""
    across, down = (_groups(len(names)) for names in (columns, rows))
    added = [[sum(row[j] for j in some) for some in across] for row in values]
    means = [[sum(added[i][j] for i in some) / len(some) for j in range(len(across))] for some in down]
    return [rows[some[0]] for some in down], [columns[some[0]] for some in across], means


def _groups(count: int) -> list[range]:
    size = -(-count // FIELDS)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _sizes(rows: list[str], columns: list[str], room: int) -> tuple[int, int]:
    """Pixels of a field: names that are all written need their line, and lie flat where there is room for it."""
    wide, tall = _cell(len(columns), room), _cell(len(rows), 620)
    if max(len(rows), len(columns)) > LEGIBLE:
        return wide, tall
    flat = _longest(columns)
    return (flat if min(wide, tall) < flat <= room // len(columns) else min(wide, tall)), min(wide, tall)


def _cell(count: int, room: int) -> int:
    return max(15 if count <= LEGIBLE else 5, min(44, room // count))


def _naming(names: Sequence[str]) -> str:
    """The expression that labels the places 0, 1, …; where there are too many names, some."""
    every = 1 if len(names) <= LEGIBLE else -(-len(names) // 20)
    return f"datum.value % {every} === 0 ? {json.dumps(list(names))}[datum.value] : ''"


def _plain_axis() -> dict[str, Any]:
    return {"ticks": False, "domain": False, "labelLimit": 170, "labelOverlap": False}


def _longest(names: Sequence[str]) -> int:
    """Pixels of the longest name; a letter of Chinese, Japanese and Korean is as wide as two."""
    letters = (sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name) for name in names)
    return round(max(letters) * LETTER) + 8


def _told(rows: list[str], columns: list[str], values: list[list[float]]) -> str:
    """What each row weighs most, for those who listen."""
    best = [max(range(len(columns)), key=row.__getitem__) for row in values]
    pairs = [f"{name} – {columns[j]} ({plain(row[j], 2)})" for name, j, row in zip(rows, best, values, strict=True)]
    more = " …" if len(pairs) > TOLD else ""
    size = f"{whole(len(rows))} × {whole(len(columns))} fields"
    return f"{size}; the largest of each row: {', '.join(pairs[:TOLD])}{more}."
