"""A table as a picture, for files that hold nothing but pictures; pages have real tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .looks import FAINT, GRID, INK, WHOLE, data
from .numbers import whole
from .text import label, letters

if TYPE_CHECKING:
    from .looks import Drawn

ROWS = 60
LETTER = 6.4  # pixels
LINE = 22
ROOM = 22  # pixels between columns
LONGEST = 60  # letters of a text


def tabular(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """Texts stand left, figures right, as on a page."""
    import altair as alt

    columns, rows = [str(column) for column in view["columns"]], list(view["rows"])
    if not columns or any(len(row) != len(columns) for row in rows):
        raise ValueError("a table has a value for every column in each row")
    texts = [any(isinstance(row[index], str) for row in rows) for index in range(len(columns))]
    heads = [label(column[:1].upper() + column[1:], LONGEST).replace("_", " ") for column in columns]
    cells = [[_cell(value) for value in row] for row in rows[:ROWS]]
    cells = [*cells, [f"… {len(rows) - ROWS} more", *[""] * (len(columns) - 1)]] if len(rows) > ROWS else cells
    words, lines, left = [], [], 0.0
    for index, head in enumerate(heads):
        wide = max([letters(head), *(letters(row[index]) for row in cells)]) * LETTER
        at = left if texts[index] else left + wide
        column = [(head, 0), *((row[index], place + 1) for place, row in enumerate(cells))]
        words += [
            {"x": at, "y": (place + 0.5) * LINE, "text": text, "left": texts[index], "head": place == 0}
            for text, place in column
        ]
        left += wide + ROOM
    end, tall = max(left - ROOM, 1.0), (len(cells) + 1) * LINE
    lines = [{"x": 0, "end": end, "y": place * LINE, "head": place == 1} for place in range(1, len(cells) + 2)]
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, end], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[tall, 0], nice=False))
    under = alt.condition("datum.head", alt.value(FAINT[0]), alt.value(GRID[0]))
    ink = alt.condition("datum.head", alt.value(FAINT[0]), alt.value(INK[0]))
    layers = [data(lines).mark_rule().encode(x, y, x2="end:Q", color=under)]
    for align in ("left", "right"):
        some = [word for word in words if word["left"] == (align == "left")]
        if some:
            mark = data(some).mark_text(align="left" if align == "left" else "right", baseline="middle", fontSize=12)
            layers.append(mark.encode(x, y, text="text:N", color=ink))
    heading = looks.title(label(view["title"], 100), label(view.get("note", ""), 160))
    chart = alt.layer(*layers).properties(width=end, height=tall, title=heading)
    return looks.row([chart]), f"{label(view['title'], 100)}: {_told(heads, cells)}."


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return "a picture"
    if value is None or isinstance(value, str):
        return label("" if value is None else value, LONGEST)
    number = finite(value)
    if number is None:
        return plain(value)
    return whole(number) if float(number).is_integer() and abs(number) < 1e12 else plain(number, 3, 3)


def _told(heads: list[str], cells: list[list[str]]) -> str:
    """The first rows, for those who listen."""
    said = ["; ".join(f"{head} {text}" for head, text in zip(heads, row, strict=True) if text) for row in cells[:8]]
    return ". ".join(said) + (" …" if len(cells) > 8 else "")
