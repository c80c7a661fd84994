"""Weights between two rows of things as a picture: an alignment of words, or a kernel over the points it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .fields import FAINTEST, FEW, FIELDS, Values, across, checked, down, folded, named, painted, rows_of, sizes
from .looks import PALE, WHOLE
from .numbers import whole
from .signed import signed
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

TOLD = 12


def heat(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`values` has a row for each of `rows` and in it a figure, 0 or more, for each of `columns`; the deeper a field,
    the larger it is, up to `high` (by default the largest there is). Where a `low` is below 0, the sign is shown."""
    import altair as alt

    if (finite(view.get("low")) or 0) < 0:
        return signed(view, width)
    rows, columns = named(view)
    values = [[max(value, 0.0) for value in row] for row in checked(rows, columns, view["values"])]
    told = _told(rows, columns, values)
    note = [label(view["note"], 160)] if view.get("note") else []
    if len(rows) > FIELDS or len(columns) > FIELDS:
        note.append(f"{whole(len(rows))} × {whole(len(columns))}, neighbours put together")
    rows, columns, values = folded(rows, columns, values)
    largest = max((value for row in values for value in row), default=0.0)
    high = finite(view.get("high")) or largest or 1.0
    few = len(rows) * len(columns) <= FEW
    wide, tall = sizes(rows, columns, width - 120)
    x, y = across(columns, str(view.get("x", "")), wide), down(rows, str(view.get("y", "")))
    titles = str(view.get("y", "")), str(view.get("x", ""))
    mark = painted(rows_of(values, high, -1 if few else FAINTEST), few, (rows, columns), titles).encode(x, y)
    hint = "; ".join([f"the deeper a field, the larger (the deepest: {plain(high, 3)})", *note])
    chart = alt.layer(mark, view=alt.ViewBackground(fill=PALE[0])).properties(
        width=wide * len(columns), height=tall * len(rows), title=looks.title(label(view["title"], 100), hint)
    )
    return looks.row([chart]), f"{label(view['title'], 100)}: {told}"


def _told(rows: list[str], columns: list[str], values: Values) -> str:
    """What each row weighs most, for those who listen."""
    best = [max(range(len(columns)), key=row.__getitem__) for row in values]
    pairs = [f"{name} – {columns[j]} ({plain(row[j], 2)})" for name, j, row in zip(rows, best, values, strict=True)]
    more = " …" if len(pairs) > TOLD else ""
    size = f"{whole(len(rows))} × {whole(len(columns))} fields"
    return f"{size}; the largest of each row: {', '.join(pairs[:TOLD])}{more}."
