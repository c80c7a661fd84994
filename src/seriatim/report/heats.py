"""Several small heat maps of the same rows and columns in a grid: all heads of a layer, or all layers with all heads.

Everything is set by pixels in one plane: names stand only at the edges of the grid, and where there is no room for them
the ends are told in words, and each field says at the pointer what it is.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .fields import LETTER, Values, checked, depth, folded, longest, named, rows_of, sign
from .looks import FAINT, INK, PALE, WHOLE, data
from .numbers import whole
from .text import label, letters

if TYPE_CHECKING:
    import altair as alt

    from .looks import Drawn

PANELS = 400  # more would be smaller than what they show
ALL = 60_000  # fields of all panels together; of more, neighbours are put together
SMALL, LARGE = 2.0, 22.0  # pixels of a field
TALL = 260  # pixels of a panel at most
WRITTEN = 10.0  # pixels that a name needs
CRISP = 4.0  # pixels from which on a field is a whole number of them
FAINTEST = 0.015  # of the deepest colour, in fields so small
HEAD, GAP, LINE = 20, 10, 14  # pixels above a panel for its name, between panels, of a line
TOLD = 12


@dataclass(frozen=True)
class Grid:
    """Where things stand, in pixels."""

    across: int  # panels beside each other
    wide: float  # a field
    tall: float
    columns: int
    rows: int
    left: float  # room for the names of rows
    top: float  # and of columns

    def x(self, panel: int) -> float:
        return self.left + panel % self.across * (self.columns * self.wide + GAP)

    def y(self, panel: int) -> float:
        return self.top + HEAD + panel // self.across * (self.rows * self.tall + HEAD + GAP)


def heats(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`panels` are names with figures for all of `rows` and `columns`; the deeper a field, the larger, up to `high` (by
    default the largest of all panels). `across` says how many stand beside each other; figures below 0 are orange."""
    import altair as alt

    rows, columns = named(view)
    found = [(label(name, 40), checked(rows, columns, values)) for name, values in view["panels"]]
    if not found:
        raise ValueError("a grid of heat maps has panels")
    told = _told(view, rows, columns, found)
    found, left_out = found[:PANELS], len(found) - PANELS
    names = [name for name, _ in found]
    grid, most = _fitted(view, rows, columns, names, width)
    signed = any(value < 0 for _, values in found for row in values for value in row)
    size, ends = (len(rows), len(columns)), (rows[0], rows[-1], columns[0], columns[-1])
    parts = [folded(rows, columns, values, most, mean=signed) for _, values in found]
    rows, columns = parts[0][0], parts[0][1]
    largest = max((abs(value) for *_, values in parts for row in values for value in row), default=0.0)
    deepest = finite(view.get("high")) or largest or 1.0
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, _end(grid, len(names))], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[_bottom(grid, len(names)), 0], nice=False))
    layers = [_grounds(grid, len(names), x, y), _fields(view, grid, names, rows, columns, parts, deepest, x, y)]
    layers += _names(grid, names, rows, columns, x, y)
    note = [f"the deeper a field, the larger (the deepest: {'±' if signed else ''}{plain(deepest, 3)})"]
    note += ["blue: above 0, orange: below"] if signed else []
    note += [f"{way}: {label(view[side], 40)}" for way, side in (("down", "y"), ("across", "x")) if view.get(side)]
    note += [label(view["note"], 160)] if view.get("note") else []
    if min(grid.wide, grid.tall) < WRITTEN:
        # a blank as the strips write it: fonts lack the other sign, and lend a whole line to a font that has it
        plainly = (end.replace("␣", "·") for end in ends)
        note.append("rows from “{}” to “{}”, columns from “{}” to “{}”".format(*plainly))
    if (len(rows), len(columns)) != size:
        note.append(f"{whole(size[0])} × {whole(size[1])} each, neighbours put together")
    note += [f"{left_out} more panels are not shown"] if left_out > 0 else []
    heading = looks.title(label(view["title"], 100), "")
    heading["subtitle"] = _wrapped(note, width)
    chart = alt.layer(*layers).properties(width=_end(grid, len(names)), height=_bottom(grid, len(names)), title=heading)
    return looks.row([chart]), told


def _fitted(
    view: dict[str, Any], rows: list[str], columns: list[str], names: list[str], width: int
) -> tuple[Grid, int]:
    """The grid, and how many fields a side of a panel may have in it."""
    count = len(names)
    most = max(4, int(math.sqrt(ALL / count)))
    down, along = (-(-len(side) // -(-len(side) // most)) for side in (rows, columns))
    wanted = finite(view.get("across"))
    across = int(wanted) if wanted else _square(count, along / down)
    across = max(1, min(across, count, 24))
    edge = min(longest(rows), 130) + 6
    best = min((width - edge - (across - 1) * GAP) / (across * along), TALL / down, LARGE)
    size = max(best, SMALL)
    size = float(int(size)) if size >= CRISP else size
    if best < SMALL:
        most = max(4, int((width - edge - (across - 1) * GAP) / across / SMALL))
        down, along = (-(-len(side) // -(-len(side) // most)) for side in (rows, columns))
    needed = max(letters(name) for name in names) * LETTER + 4  # panels as wide as their names
    wide = max(size, min(needed / along, (width - edge - (across - 1) * GAP) / (across * along)))
    written = size >= WRITTEN
    top = 0 if not written else LINE if _flat(columns, wide) else min(longest(columns), 110)
    return Grid(across, wide, size, along, down, edge if written else 0, top), most


def _flat(columns: list[str], wide: float) -> bool:
    """Whether names of columns have room without being turned: those of characters mostly have."""
    return max(map(letters, columns)) * LETTER <= wide + 1


def _square(count: int, shape: float) -> int:
    """How many beside each other make a grid that is a little wider than tall; full rows where they can be had."""
    wish = max(1, round(math.sqrt(1.6 * count / max(shape, 0.1))))
    near = [number for number in range(wish, max(wish // 2, 1) - 1, -1) if count % number == 0]
    return near[0] if near else wish


def _end(grid: Grid, count: int) -> float:
    return grid.x(min(grid.across, count) - 1) + grid.columns * grid.wide


def _bottom(grid: Grid, count: int) -> float:
    return grid.y(count - 1) + grid.rows * grid.tall


def _grounds(grid: Grid, count: int, x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [
        {"x": grid.x(panel), "y": grid.y(panel), "end": grid.x(panel) + grid.columns * grid.wide,
         "bottom": grid.y(panel) + grid.rows * grid.tall}
        for panel in range(count)
    ]  # fmt: skip
    return data(rows).mark_rect(color=PALE[0]).encode(x, y, x2="end:Q", y2="bottom:Q")


def _fields(
    view: dict[str, Any],
    grid: Grid,
    names: list[str],
    rows: list[str],
    columns: list[str],
    parts: list[tuple[list[str], list[str], Values]],
    deepest: float,
    x: alt.X,
    y: alt.Y,
) -> alt.Chart:
    import altair as alt

    cells = [
        cell for panel, (*_, values) in enumerate(parts) for cell in rows_of(values, deepest, FAINTEST, panel=panel)
    ]
    starts = [[round(grid.x(panel), 2), round(grid.y(panel), 2)] for panel in range(len(names))]
    lists = {"starts": starts, "names": names, "rows": rows, "columns": columns}
    of = {name: json.dumps(values) for name, values in lists.items()}
    titles = [label(view.get(side, ""), 40) for side in ("y", "x")]
    tips = [
        alt.Tooltip("panel_name:N", title="panel"),
        alt.Tooltip("row_name:N", title=titles[0] or "row"),
        alt.Tooltip("column_name:N", title=titles[1] or "column"),
        alt.Tooltip("value:Q", title="value", format=".4~g"),
    ]
    return (
        data(cells)
        .mark_rect()
        .transform_calculate(x=f"{of['starts']}[datum.panel][0] + datum.column * {grid.wide}")
        .transform_calculate(y=f"{of['starts']}[datum.panel][1] + datum.row * {grid.tall}")
        .transform_calculate(end=f"datum.x + {grid.wide}", bottom=f"datum.y + {grid.tall}")
        .transform_calculate(panel_name=f"{of['names']}[datum.panel]")
        .transform_calculate(row_name=f"{of['rows']}[datum.row]", column_name=f"{of['columns']}[datum.column]")
        .encode(x, y, x2="end:Q", y2="bottom:Q", fill=sign(), fillOpacity=depth(), tooltip=tips)
    )


def _names(grid: Grid, names: list[str], rows: list[str], columns: list[str], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Of panels above each, of rows at the left edge, of columns above the first row of panels."""
    room = int((grid.columns * grid.wide + GAP - 2) / LETTER)
    shown = [_short(name, room) for name in names]
    heads = [{"x": grid.x(panel), "y": grid.y(panel) - 5, "text": name} for panel, name in enumerate(shown)]
    layers = [data(heads).mark_text(align="left", baseline="bottom", color=INK[0]).encode(x, y, text="text:N")]
    if not grid.left:
        return layers
    size = min(11.0, grid.tall - 0.5)
    beside = [
        {"x": grid.left - 5, "y": grid.y(panel) + (row + 0.5) * grid.tall, "text": name}
        for panel in range(0, len(names), grid.across)
        for row, name in enumerate(rows)
    ]
    above = [
        {"x": grid.x(panel) + (column + 0.5) * grid.wide, "y": grid.top - 2, "text": name}
        for panel in range(min(grid.across, len(names)))
        for column, name in enumerate(columns)
    ]
    style: dict[str, Any] = {"fontSize": size, "color": FAINT[0], "baseline": "middle", "limit": 130}
    flat = _flat(columns, grid.wide)
    turned: dict[str, Any] = {"align": "center", "dy": -5} if flat else {"align": "left", "angle": 270}
    return [
        *layers,
        data(beside).mark_text(align="right", **style).encode(x, y, text="text:N"),
        data(above).mark_text(**turned, **style).encode(x, y, text="text:N"),
    ]


def _short(name: str, room: int) -> str:
    """A name as far as there is room above its panel; numbers at its end tell panels apart, so they are kept."""
    if letters(name) <= room:
        return name
    initials = "".join(part if part.isdigit() else part[0].upper() for part in name.split())
    return initials if letters(initials) <= room else ""


def _wrapped(notes: list[str], width: int) -> list[str]:
    """Notes as lines that are no wider than the picture."""
    lines = [""]
    for note in notes:
        joined = f"{lines[-1]}; {note}" if lines[-1] else note
        lines[-1:] = [joined] if letters(joined) * 6 <= width else [lines[-1], note]
    return [line for line in lines if line]


def _told(view: dict[str, Any], rows: list[str], columns: list[str], found: list[tuple[str, Values]]) -> str:
    """Where each panel is deepest, for those who listen."""
    parts = []
    for name, values in found[:TOLD]:
        value, i, j = max((abs(value), i, j) for i, row in enumerate(values) for j, value in enumerate(row))
        parts.append(f"{name}: {rows[i]} – {columns[j]} ({plain(value, 2)})")
    more = " …" if len(found) > TOLD else ""
    size = f"{whole(len(found))} panels of {whole(len(rows))} × {whole(len(columns))} fields"
    return f"{label(view['title'], 100)}: {size}; the largest of each: {'; '.join(parts)}{more}."
