"""The confusion matrix as a picture: which class is taken for which."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..core.measures import finite
from . import looks
from .axes import named
from .fields import depth
from .looks import ACCENT, GROUND, INK, PALE, WHOLE, data
from .numbers import whole
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

CLASSES = 50  # more could not be read


def confusion(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """Rows are the true classes, columns the answers; the deeper a field, the larger its share of the row."""
    import altair as alt

    every, table = _checked(view)
    names, counts = folded(every, table)
    cell = max(18, min(52 + 8 * max(6 - len(names), 0), 640 // len(names)))
    rows = [
        {
            "true": true,
            "answer": answer,
            "count": counts[true][answer],
            "share": counts[true][answer] / max(sum(counts[true]), 1),
            "text": _count(counts[true][answer], cell),
        }
        for true in range(len(names))
        for answer in range(len(names))
    ]
    side = cell * len(names)
    long = max(len(name) for name in names) * 6.5 > cell
    angle = 0 if not long else -45 if cell > 30 else -90
    naming = named(names)
    x = alt.X(
        "answer:O",
        axis=alt.Axis(orient="top", title="answer", labelExpr=naming, labelAngle=angle, ticks=False, domain=False),
        scale=alt.Scale(padding=0),
    )
    y = alt.Y(
        "true:O",
        axis=alt.Axis(title="true", labelExpr=naming, titleAngle=0, titleAlign="right", titleAnchor="start"),
        scale=alt.Scale(padding=0),
    )
    ink = alt.condition("datum.share > 0.65", alt.value(GROUND[0]), alt.value(INK[0]))
    tips = [
        alt.Tooltip("true_name:N", title="true"),
        alt.Tooltip("answer_name:N", title="answer"),
        alt.Tooltip("count:Q", format=","),
        alt.Tooltip("share:Q", title="share of the true class", format=".1%"),
    ]
    fields = (
        data(rows)
        .mark_rect(color=ACCENT[0], stroke=GROUND[0], strokeWidth=1)
        .transform_calculate(
            true_name=f"{json.dumps(names)}[datum.true]", answer_name=f"{json.dumps(names)}[datum.answer]"
        )
        .encode(x, y, fillOpacity=depth(), tooltip=tips)
    )
    text = data([row for row in rows if row["text"]]).mark_text(fontSize=max(8, min(13, 0.42 * cell)))
    layers = fields, text.encode(x, y, text="text:N", color=ink)
    chart = alt.layer(*layers, view=alt.ViewBackground(fill=PALE[0])).properties(
        width=side,
        height=side,
        title=looks.title(label(view["title"], 100), "the deeper a field, the larger its share of the true class"),
    )
    return looks.row([chart]), f"{label(view['title'], 100)}. {mistaken(every, table)}"


def _checked(view: dict[str, Any]) -> tuple[list[str], list[list[int]]]:
    names = [label(name, 24) for name in view["labels"]]
    counts = [[int(finite(count) or 0) for count in row] for row in view["counts"]]
    if not names or len(counts) != len(names) or any(len(row) != len(names) for row in counts):
        raise ValueError("a confusion matrix has a row and a column for every label")
    return names, counts


def folded(names: list[str], counts: list[list[int]]) -> tuple[list[str], list[list[int]]]:
    """The classes with the most examples, and all others as one."""
    if len(names) <= CLASSES:
        return names, counts
    often = sorted(sorted(range(len(names)), key=lambda index: -sum(counts[index]))[: CLASSES - 1])
    rest = sorted(set(range(len(names))) - set(often))
    groups = [*([index] for index in often), rest]
    sums = [[sum(counts[i][j] for i in one for j in other) for other in groups] for one in groups]
    return [*(names[index] for index in often), f"{len(rest)} others"], sums


def mistaken(names: list[str], counts: list[list[int]], most: int = 3) -> str:
    """In words: how many are right, and what is taken for what most often."""
    total, right = sum(map(sum, counts)), sum(counts[index][index] for index in range(len(names)))
    pairs = [(counts[i][j], names[i], names[j]) for i in range(len(names)) for j in range(len(names)) if i != j]
    worst = sorted((pair for pair in pairs if pair[0]), key=lambda pair: -pair[0])[:most]
    told = f"{whole(right)} of {whole(total)} are right"
    often = "; ".join(f"{true} taken for {answer} ({whole(count)})" for count, true, answer in worst)
    return f"{told}; most often mistaken: {often}." if often else f"{told}."


def _count(value: int, cell: int) -> str:
    if value == 0:
        return ""
    if value < 1_000 or cell >= 40:
        return whole(value)
    return f"{value / 1000:.1f}k" if value < 9_950 else f"{value / 1000:.0f}k"
