"""Fields of a heat map: their names, their sizes, and how deep they are.

A field is deep by its opacity over a pale ground, never by a colour between two: so a picture for a dark ground differs
in nothing but the few colours that all pictures have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.measures import finite
from .looks import ACCENT, GROUND, SECOND, data
from .text import label, letters

if TYPE_CHECKING:
    import altair as alt

LEGIBLE = 60  # names on an axis that are all written; of more, some
FIELDS = 120  # on a side; more are put together
LETTER = 6.5  # pixels
FEW = 600  # fields that are drawn one and all, with lines between them
FAINTEST = 0.004  # of the deepest colour: nobody would see it

Values = list[list[float]]


def named(view: dict[str, Any]) -> tuple[list[str], list[str]]:
    rows, columns = ([label(name, 24) or "␣" for name in view[side]] for side in ("rows", "columns"))
    return rows, columns


def checked(rows: Sequence[str], columns: Sequence[str], found: Sequence[Sequence[Any]]) -> Values:
    """Figures for every row and every column; what is none counts as 0."""
    values = [[float(finite(value) or 0) for value in row] for row in found]
    if not rows or not columns or len(values) != len(rows) or any(len(row) != len(columns) for row in values):
        raise ValueError("a heat map has a figure for every row and every column")
    return values


def folded(
    rows: list[str], columns: list[str], values: Values, most: int = FIELDS, mean: bool = False
) -> tuple[list[str], list[str], Values]:
    """At most so many on a side: the weights of neighbouring columns are added, of neighbouring rows the mean is taken,
    so that a row whose weights sum to one still does; `mean` takes the mean of columns too, for what is no weight. A
    group bears the name of its first."""
    across, down = (_groups(len(names), most) for names in (columns, rows))
    added = [[sum(row[j] for j in some) / (len(some) if mean else 1) for some in across] for row in values]
    means = [[sum(added[i][j] for i in some) / len(some) for j in range(len(across))] for some in down]
    return [rows[some[0]] for some in down], [columns[some[0]] for some in across], means


def _groups(count: int, most: int) -> list[range]:
    size = -(-count // most)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def sizes(rows: list[str], columns: list[str], room: int) -> tuple[int, int]:
    """Pixels of a field: names that are all written need their line, and lie flat where there is room for it."""
    wide, tall = _cell(len(columns), room), _cell(len(rows), 620)
    if max(len(rows), len(columns)) > LEGIBLE:
        return wide, tall
    flat = longest(columns)
    return (flat if min(wide, tall) < flat <= room // len(columns) else min(wide, tall)), min(wide, tall)


def _cell(count: int, room: int) -> int:
    return max(15 if count <= LEGIBLE else 5, min(44, room // count))


def longest(names: Sequence[str]) -> int:
    """Pixels of the longest name."""
    return round(max(map(letters, names)) * LETTER) + 8


def across(names: Sequence[str], title: str, wide: int) -> alt.X:
    """The axis of columns, above the fields."""
    import altair as alt

    long = longest(names) > wide
    axis = alt.Axis(
        orient="top",
        title=label(title, 60),
        labelExpr=_naming(names),
        labelAngle=0 if not long else -45 if wide > 30 else -90,
        **_plain(),
    )
    return alt.X("column:O", axis=axis, scale=alt.Scale(padding=0, domain=list(range(len(names)))))


def down(names: Sequence[str], title: str) -> alt.Y:
    """The axis of rows, left of the fields."""
    import altair as alt

    axis = alt.Axis(
        title=label(title, 60),
        labelExpr=_naming(names),
        titleAngle=0,
        titleAlign="right",
        titleAnchor="start",
        **_plain(),
    )
    return alt.Y("row:O", axis=axis, scale=alt.Scale(padding=0, domain=list(range(len(names)))))


def _naming(names: Sequence[str]) -> str:
    """The expression that labels the places 0, 1, …; where there are too many names, some."""
    every = 1 if len(names) <= LEGIBLE else -(-len(names) // 20)
    return f"datum.value % {every} === 0 ? {json.dumps(list(names))}[datum.value] : ''"


def _plain() -> dict[str, Any]:
    return {"ticks": False, "domain": False, "labelLimit": 170, "labelOverlap": False}


def rows_of(values: Values, deepest: float, faintest: float = FAINTEST, **more: Any) -> list[dict[str, Any]]:
    """The fields as data, without those too faint to be seen (a `faintest` below 0 keeps them)."""
    return [
        {**more, "row": i, "column": j, "value": rounded(value), "share": round(min(abs(value) / deepest, 1.0), 3)}
        for i, row in enumerate(values)
        for j, value in enumerate(row)
        if abs(value) > faintest * deepest
    ]


def rounded(value: float, digits: int = 4) -> float:
    """So many digits: more nobody reads, and they make files large."""
    return float(f"{value:.{digits}g}")


def painted(
    rows: list[dict[str, Any]], lines: bool, names: Sequence[Sequence[str]], titles: Sequence[str]
) -> alt.Chart:
    """The fields in blue, those below 0 in orange; at the pointer what they stand for. `names` and `titles` are those
    of rows and of columns."""
    import altair as alt

    own = [label(title, 40) or instead for title, instead in zip(titles, ("row", "column"), strict=True)]
    tips = [
        alt.Tooltip("row_name:N", title=own[0]),
        alt.Tooltip("column_name:N", title=own[1]),
        alt.Tooltip("value:Q", title="value", format=".4~g"),
    ]
    chart = data(rows).mark_rect(stroke=GROUND[0], strokeWidth=1 if lines else 0)
    return chart.transform_calculate(
        row_name=f"{json.dumps(list(names[0]))}[datum.row]", column_name=f"{json.dumps(list(names[1]))}[datum.column]"
    ).encode(fill=sign(), fillOpacity=depth(), tooltip=tips)


def depth(deepest: float = 1.0) -> alt.FillOpacity:
    import altair as alt

    return alt.FillOpacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0, deepest]), legend=None)


def sign() -> Any:
    import altair as alt

    return alt.condition("datum.value < 0", alt.value(SECOND[0]), alt.value(ACCENT[0]))
