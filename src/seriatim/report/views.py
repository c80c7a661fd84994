"""What a task found worth looking at, as the parts of a page: tables as they are, everything else as pictures.

A view says its kind and brings its figures (evaluation.json in the run folder); a task of a user's own may use every
kind. What cannot be drawn is told instead of breaking the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..core.measures import MEASURES, finite, plain, shown
from .bins import bins
from .confusion import confusion
from .drawings import bars, roll, scatter
from .figures import Figures
from .forecast import forecast
from .heat import heat
from .heats import heats
from .inscribed import words
from .lines import NAME as NAMES
from .lines import lines
from .looks import HALF, WHOLE, colours, stack
from .overlay import overlay
from .overlay import part as overlaid
from .page import escape, group, number, paragraph, picture, section, table
from .places import places
from .signed import signed
from .strip import strip
from .tabular import tabular
from .text import cut, label
from .vectors import word

if TYPE_CHECKING:
    import altair as alt

    from .looks import Drawn

ROWS = 200  # of a table
NAME = 40  # characters of what names a row
PICTURES = 24
ROOM = 1_200_000  # bytes of all views of a section

DRAWN: dict[str, Callable[[dict[str, Any], int], Drawn]] = {
    "confusion": confusion,
    "heat": heat,
    "signed": signed,
    "heats": heats,
    "strip": strip,
    "words": words,
    "places": places,
    "word": word,
    "scatter": scatter,
    "forecast": forecast,
    "lines": lines,
    "bars": bars,
    "bins": bins,
    "roll": roll,
    "overlay": overlay,
}
PAIRED = ("scatter", "forecast", "bars")  # small enough to stand side by side
PARTS = {"test": "On the test data", "valid": "On the validation data"}


def drawn(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """The picture of any one view, with its sentence for those who listen."""
    kind = str(view.get("kind"))
    if kind == "table":
        return tabular(view, width)
    if kind not in DRAWN:
        raise ValueError(f"there is no picture of the kind {label(kind)}")
    return DRAWN[kind](view, width)


def stacked(views: Sequence[dict[str, Any]]) -> alt.VConcatChart:
    """Several views as one picture, one below the other."""
    return stack([drawn(view)[0] for view in views])


def evaluation(one: Figures) -> str:
    """The section of what the task found worth looking at, in its order."""
    split, views = one.views
    return section(PARTS.get(split, ""), *_parts(views, "evaluation.json"))


def inside(one: Figures) -> str:
    """The section of what was seen inside the model."""
    if not one.inside:
        return ""
    more = f"More, and of any text: seriatim inspect {one.run.path}"
    return section("Inside the model", *_parts(one.inside, "inspection.json"), paragraph(more, "note"))


def _parts(views: Sequence[dict[str, Any]], file: str) -> list[str]:
    """Views as parts of a page, of which there are only so many and so large ones: a page is to open at once. Small
    pictures of one kind stand in pairs."""
    pictures = [view for view in views if view.get("kind") in DRAWN]
    shown_views = [view for view in views if view.get("kind") not in DRAWN or view in pictures[:PICTURES]]
    left, room, parts = len(views) - len(shown_views), ROOM, []
    for kind, found in groupby(shown_views, key=lambda view: str(view.get("kind"))):
        some = list(found)
        pairs = kind in PAIRED and len(some) > 1
        kept = []
        for view in some:
            part = _part(view, kind, HALF if pairs else WHOLE)
            fits = len(part.encode()) <= room
            left, room = left + (not fits), room - (len(part.encode()) if fits else 0)
            kept += [part] if fits else []
        parts += [group("pair", kept)] if pairs and kept else kept
    return [*parts, paragraph(f"{left} more {'is' if left == 1 else 'are'} in {file}.", "note")] if left else parts


def together(ordered: Sequence[Figures]) -> str:
    """The views of several runs that belong into one picture: those with the same name under `together`."""
    splits = {one.views[0] for one in ordered if one.views[1]}
    measured = _together(ordered, [one.views[1] for one in ordered]) if len(splits) == 1 else []
    seen = _together(ordered, [one.inside for one in ordered])
    return section(PARTS.get(next(iter(splits), ""), ""), *measured) + section("Inside the models", *seen)


def _together(ordered: Sequence[Figures], views: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    found: dict[tuple[str, str], list[tuple[Figures, dict[str, Any]]]] = {}
    for one, some in zip(ordered, views, strict=True):
        for view in some:
            if view.get("kind") in JOINED and view.get("together"):
                found.setdefault((str(view["kind"]), str(view["together"])), []).append((one, view))
    parts = []
    for (kind, _), pairs in found.items():
        try:
            same = [(one, view) for one, view in pairs if view.get("bins") == pairs[0][1].get("bins")]
            if len(same) > 1:
                chart, told = JOINED[kind](same, {one.label: colours(ordered)[one.label] for one, _ in same})
                parts.append(picture(chart, told, "wide"))
        except (KeyError, ValueError, TypeError, IndexError):
            continue  # the page of the run says what is wrong with it
    return parts


def _bins_of(same: Sequence[tuple[Figures, dict[str, Any]]], hues: dict[str, tuple[str, str]]) -> Drawn:
    series = [[one.label, view["series"][0][1]] for one, view in same]
    return bins(same[0][1] | {"series": series}, WHOLE, hues)


def _lines_of(same: Sequence[tuple[Figures, dict[str, Any]]], hues: dict[str, tuple[str, str]]) -> Drawn:
    """Curves bear the name of their run, and where a run has several, their own behind it."""
    series, dashes, own = [], [], {}
    for one, view in same:
        heads = {str(name).partition(", ")[0] for name, _ in view["series"]}
        for name, points in view["series"]:
            rest = str(name).partition(", ")[2] if len(heads) == 1 else str(name)
            full = f"{one.label}, {rest}" if rest else one.label
            series.append([full, points])
            own[label(full, NAMES)] = hues[one.label]
            dashes += [full] if name in (view.get("dashes") or ()) else []
    return lines(same[0][1] | {"series": series, "dashes": dashes}, WHOLE, own)


JOINED: dict[str, Callable[[Sequence[tuple[Figures, dict[str, Any]]], dict[str, tuple[str, str]]], Drawn]] = {
    "bins": _bins_of,
    "lines": _lines_of,
}


def _part(view: dict[str, Any], kind: str, width: int) -> str:
    try:
        if kind == "table":
            return _table(view)
        if kind == "overlay":
            return overlaid(view)  # by itself, not as a chart: so it follows the reader's ground
        if kind in DRAWN:
            chart, told = drawn(view, width)
            return picture(chart, told, "wide" if width == WHOLE else "")
        why = "there is no such kind of view"
    except KeyError as error:
        why = f"{error} is missing"
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        why = str(error)
    name = label(view.get("title", "A view"), 100)
    return paragraph(f"{name} ({label(kind)}) cannot be drawn: {label(why, 200)}", "note")


def _table(view: dict[str, Any]) -> str:
    columns, rows = [str(column) for column in view["columns"]], list(view["rows"])
    if any(len(row) != len(columns) for row in rows):
        raise ValueError("a table has a value for every column in each row")
    texts = [index for index in range(len(columns)) if any(isinstance(row[index], str) for row in rows)]
    named = 0 in texts and all(len(str(row[0])) <= NAME for row in rows)
    cells: list[Callable[[Any], str]] = [
        _text if index in texts else _number(name, [row[index] for row in rows]) for index, name in enumerate(columns)
    ]
    if named:
        cells[0] = _name
    for index in range(len(columns)):
        if any(isinstance(row[index], dict) for row in rows):
            cells[index] = _small_picture
    lines = [f"<tr>{''.join(cell(value) for cell, value in zip(cells, row, strict=True))}</tr>" for row in rows[:ROWS]]
    note = [str(view["note"])] if view.get("note") else []
    note += [f"The first {ROWS} of {len(rows):,} rows."] if len(rows) > ROWS else []
    return table(" ".join(note), [_head(name) for name in columns], lines, "view", str(view["title"]), texts)


def _measure(column: str) -> str:
    """The measure that a column is named after, by its name or by its title."""
    return next((name for name, about in MEASURES.items() if column.lower() in (name, about.title.lower())), "")


def _head(column: str) -> str:
    name = _measure(column)
    return MEASURES[name].title if name else (column[:1].upper() + column[1:]).replace("_", " ")


def _name(value: Any) -> str:
    return f'<th scope="row">{escape(value)}</th>'


def _text(value: Any) -> str:
    """Texts stand left and may break, figures right."""
    return f'<td class="text">{escape(cut("" if value is None else str(value), 600))}</td>'


def _small_picture(value: Any) -> str:
    """Base64 of a PNG under "png"."""
    data = str(value.get("png", "")) if isinstance(value, dict) else ""
    if not re.fullmatch(r"[A-Za-z0-9+/=]+", data):
        return "<td></td>"
    return f'<td class="text"><img alt="the input of this row" src="data:image/png;base64,{data}"></td>'


def _number(column: str, values: list[Any]) -> Callable[[Any], str]:
    """A measure is written as everywhere, other figures with the decimals of their column: none for whole numbers, for
    others so many that the largest has four digits."""
    name = _measure(column)
    found = [abs(value) for value in values if finite(value) is not None]
    fractions = any(not float(value).is_integer() for value in found)
    decimals = max(0, 3 - max(0, math.floor(math.log10(max(found))))) if fractions else 0
    return lambda value: f"<td>{number(value, shown(name, value) if name else plain(value, decimals))}</td>"
