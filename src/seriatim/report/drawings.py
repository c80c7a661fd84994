"""Smaller pictures of an evaluation: scatter, bars, piano roll.

As all pictures of views, each takes a view as the task wrote it and returns the chart with a sentence for those who
listen.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain, shown, title
from . import looks
from .axes import horizontal, named
from .looks import ACCENT, FAINT, GROUND, HALF, INK, WHOLE, data
from .numbers import whole
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

POINTS = 1_000  # of a scatter: more would only cover each other
BARS = 40


def scatter(view: dict[str, Any], width: int = HALF) -> Drawn:
    """Answers over true values; on the diagonal they are equal."""
    import altair as alt

    pairs = [(x, y) for x, y in view["points"] if finite(x) is not None and finite(y) is not None]
    if not pairs:
        raise ValueError("a scatter has points")
    stride = math.ceil(len(pairs) / POINTS)
    rows = [{"x": x, "y": y} for x, y in pairs[::stride]]
    values = [value for pair in pairs for value in pair]
    low, high = min(values), max(values)
    pad = 0.04 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - pad, high + pad], nice=False, zero=False)
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(title=label(view.get("x", "true value")), tickCount=6))
    y = alt.Y(
        "y:Q",
        scale=scale,
        axis=alt.Axis(title=label(view.get("y", "prediction")), tickCount=6, domain=False),
    )
    ends = [{"x": end, "y": end} for end in (low - pad, high + pad)]
    diagonal = data(ends).mark_line(stroke=FAINT[0], strokeDash=[5, 4], strokeWidth=1.25).encode(x, y)
    opacity = max(0.25, min(0.8, 30 / math.sqrt(len(rows)) / 2))
    points = data(rows).mark_circle(size=26, color=ACCENT[0], opacity=opacity).encode(x, y)
    size = min(width, 400)
    chart = alt.layer(diagonal, points).properties(
        width=size, height=size, title=looks.title(label(view["title"], 70), "dashed: where both are equal")
    )
    off = math.fsum(abs(y - x) for x, y in pairs) / len(pairs)
    spoken = f"{label(view['title'], 100)}: {whole(len(pairs))} points from {plain(low)} to {plain(high)}"
    return looks.row([chart]), f"{spoken}, on average {plain(off)} from the diagonal."


def bars(view: dict[str, Any], width: int = HALF) -> Drawn:
    import altair as alt

    name = str(view.get("measure", "value"))
    found = [(label(who, 28), value) for who, value, *_ in view["rows"] if finite(value) is not None][:BARS]
    if not found:
        raise ValueError("bars have values")
    rows = [
        {"order": index, "name": who, "value": value, "text": shown(name, value), "end": max(value, 0.0)}
        for index, (who, value) in enumerate(found)
    ]
    left = len(view["rows"]) - len(rows)
    low, high = min(0.0, *(row["value"] for row in rows)), max(0.0, *(row["value"] for row in rows))
    high = high if high > low else 1.0  # nothing but zeros
    scale = alt.Scale(domain=[low, high + 0.14 * (high - low)], nice=False)
    y = alt.Y(
        "order:O",
        axis=alt.Axis(title=None, labelExpr=named([row["name"] for row in rows])),  # two may bear the same name
        scale=alt.Scale(paddingInner=0.28),
    )
    x = alt.X("value:Q", scale=scale, axis=None)
    mark = data(rows).mark_bar(color=ACCENT[0]).encode(x, y)
    behind = alt.X("end:Q", scale=scale, axis=None)
    text = data(rows).mark_text(align="left", dx=5, color=INK[0]).encode(behind, y, text="text:N")
    hint = title(name) + (f"; {left} more are not shown" if left else "")
    chart = alt.layer(mark, text).properties(
        width=width - 120, height=max(24 * len(rows), 48), title=looks.title(label(view["title"], 70), hint)
    )
    told = ", ".join(f"{row['name']} {row['text']}" for row in rows[:12])
    return looks.row([chart]), f"{label(view['title'], 100)}, {title(name)}: {told}{' …' if len(rows) > 12 else ''}."


def roll(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """Time to the right, pitch upwards; lines at every C."""
    import altair as alt

    rows = [
        {"x": start, "end": end, "y": pitch, "top": pitch + 1}
        for start, end, pitch in view["notes"]
        if all(finite(value) is not None for value in (start, end, pitch))
    ]
    if not rows:
        raise ValueError("a piano roll has notes")
    frames = finite(view.get("frames")) or max(row["end"] for row in rows)
    low, high = min(row["y"] for row in rows) - 2, max(row["y"] for row in rows) + 3
    octaves = [pitch for pitch in range(0, 128, 12) if low <= pitch <= high]
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, frames], nice=False), axis=horizontal("Frame", "~s"))
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[low, high], nice=False, zero=False),
        axis=alt.Axis(title=None, values=octaves, labelExpr="'C' + (datum.value / 12 - 1)"),
    )
    mark = data(rows).mark_rect(color=ACCENT[0], cornerRadius=1, stroke=GROUND[0], strokeWidth=0.5)
    chart = alt.layer(mark.encode(x, y, x2="end:Q", y2="top:Q")).properties(
        width=width, height=max(110, min(5 * (high - low), 320)), title=looks.title(label(view["title"], 100))
    )
    spoken = f"{whole(len(rows))} notes in {whole(frames)} frames, from {_pitch(low + 2)} to {_pitch(high - 3)}"
    return looks.row([chart]), f"{label(view['title'], 100)}: {spoken}."


def _pitch(number: float | int) -> str:
    """60 → "C4"."""
    names = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")
    return f"{names[int(number) % 12]}{int(number) // 12 - 1}"
