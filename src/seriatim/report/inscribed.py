"""Fields with words in them: what a model holds likely at each place, or the nearest of each word. The deeper a field,
the larger the figure behind its word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .fields import LETTER, across, checked, depth, down, named, painted, rows_of
from .looks import INK, PALE, WHOLE, data
from .numbers import whole
from .strip import DEEPEST, written
from .text import label, letters

if TYPE_CHECKING:
    from .looks import Drawn

SHORT, LONG = 6, 18  # letters that a field has room for
ROWS, COLUMNS = 60, 60
TALL = 24  # pixels
TOLD = 12


def words(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`texts` and `values` have a row for each of `rows` and in it a word and a figure, 0 or more, for each of
    `columns`; the deepest field is `high` (by default the largest there is)."""
    import altair as alt

    rows, columns = named(view)
    values = checked(rows, columns, view["values"])
    texts = [[written(str(text)) for text in row] for row in view["texts"]]
    if len(texts) != len(rows) or any(len(row) != len(columns) for row in texts):
        raise ValueError("fields with words have a word for every row and every column")
    told = _told(rows, columns, texts, values)
    size = len(rows), len(columns)
    rows, columns = rows[:ROWS], columns[:COLUMNS]
    values = [row[:COLUMNS] for row in values[:ROWS]]
    high = finite(view.get("high")) or max(value for row in values for value in row) or 1.0
    longest = max(letters(text) for row in texts[:ROWS] for text in row[:COLUMNS])
    fit = int((width - 140) / len(columns) / LETTER) - 1
    room = max(min(longest, LONG, max(fit, SHORT)), 2)
    wide = round((room + 1.4) * LETTER)
    cells = rows_of(values, high, -1)
    for cell in cells:
        cell["text"] = _fitted(texts[cell["row"]][cell["column"]], room)
        cell["word"] = texts[cell["row"]][cell["column"]]
    x, y = across(columns, str(view.get("x", "")), wide), down(rows, str(view.get("y", "")))
    titles = str(view.get("y", "")), str(view.get("x", ""))
    fields = painted(cells, True, (rows, columns), titles).encode(x, y, fillOpacity=depth(DEEPEST))
    fields.encoding.tooltip = [alt.Tooltip("word:N", title="word"), *fields.encoding.tooltip]
    ink = data(cells).mark_text(color=INK[0], fontSize=11).encode(x, y, text="text:N")
    hint = [f"the deeper a field, the larger (the deepest: {plain(high, 3)})"]
    hint += [label(view["note"], 160)] if view.get("note") else []
    if size != (len(rows), len(columns)):
        hint.append(f"the first of {whole(size[0])} × {whole(size[1])}")
    chart = alt.layer(fields, ink, view=alt.ViewBackground(fill=PALE[0])).properties(
        width=wide * len(columns),
        height=TALL * len(rows),
        title=looks.title(label(view["title"], 100), "; ".join(hint)),
    )
    return looks.row([chart]), f"{label(view['title'], 100)}: {told}"


def _fitted(text: str, room: int) -> str:
    """As much of a word as its field has room for."""
    if letters(text) <= room:
        return text
    kept = ""
    for letter in text:
        if letters(kept + letter) >= room:
            break
        kept += letter
    return kept + "…"


def _told(rows: list[str], columns: list[str], texts: list[list[str]], values: list[list[float]]) -> str:
    """The deepest of each row, for those who listen."""
    parts = []
    for name, words_of, row in zip(rows[:TOLD], texts, values, strict=False):
        best = max(range(len(columns)), key=row.__getitem__)
        parts.append(f"{name}: {words_of[best]} at {columns[best]} ({plain(row[best], 2)})")
    more = " …" if len(rows) > TOLD else ""
    return f"{whole(len(rows))} × {whole(len(columns))} words; the deepest of each row: {'; '.join(parts)}{more}."
