"""Figures above and below zero between two rows of things: blue above, orange below, which all eyes tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .fields import FAINTEST, FEW, FIELDS, Values, across, checked, down, folded, named, painted, rows_of, sizes
from .looks import PALE, WHOLE
from .numbers import whole
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn


def signed(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """As a heat map; the deepest colour stands for the larger of −`low` and `high` on both sides (by default the
    furthest from 0 that there is), so that equal distances look equal."""
    import altair as alt

    rows, columns = named(view)
    values = checked(rows, columns, view["values"])
    told = _told(rows, columns, values)
    note = [label(view["note"], 160)] if view.get("note") else []
    if len(rows) > FIELDS or len(columns) > FIELDS:
        note.append(f"{whole(len(rows))} × {whole(len(columns))}, of neighbours the mean")
    rows, columns, values = folded(rows, columns, values, mean=True)
    furthest = max((abs(value) for row in values for value in row), default=0.0)
    deepest = max(-(finite(view.get("low")) or 0), finite(view.get("high")) or 0) or furthest or 1.0
    few = len(rows) * len(columns) <= FEW
    wide, tall = sizes(rows, columns, width - 120)
    x, y = across(columns, str(view.get("x", "")), wide), down(rows, str(view.get("y", "")))
    titles = str(view.get("y", "")), str(view.get("x", ""))
    mark = painted(rows_of(values, deepest, -1 if few else FAINTEST), few, (rows, columns), titles).encode(x, y)
    hint = "; ".join([f"blue: above 0, orange: below (the deepest: ±{plain(deepest, 3)})", *note])
    chart = alt.layer(mark, view=alt.ViewBackground(fill=PALE[0])).properties(
        width=wide * len(columns), height=tall * len(rows), title=looks.title(label(view["title"], 100), hint)
    )
    return looks.row([chart]), f"{label(view['title'], 100)}: {told}"


def _told(rows: list[str], columns: list[str], values: Values) -> str:
    """The ends of the figures and where they are, for those who listen."""
    places = [(value, rows[i], columns[j]) for i, row in enumerate(values) for j, value in enumerate(row)]
    low, high = min(places), max(places)
    size = f"{whole(len(rows))} × {whole(len(columns))} fields"
    return (
        f"{size}; the lowest is {plain(low[0], 3, 2)} ({low[1]} – {low[2]}), "
        f"the highest {plain(high[0], 3, 2)} ({high[1]} – {high[2]})."
    )
