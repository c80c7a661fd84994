"""Points on a plane with names beside them: vectors of words or texts, as far apart as two directions can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.measures import finite
from . import looks
from .looks import ACCENT, FAINT, GRID, INK, OWN, SPARE, WHOLE, data
from .numbers import whole
from .projection import Frame, Name, names
from .text import label

if TYPE_CHECKING:
    import altair as alt

    from .looks import Drawn, Panel

NAMED = 60  # points whose names are moved away where they would cover others; of more these have none
POINTS = 2_000
LONGEST = 44  # letters of a name
TALL = 560
COLOURS = (ACCENT, OWN["transformer"], OWN["gru"], OWN["tcn"], OWN["mlp"], *SPARE)
TOLD = 12


def places(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`points` [x, y] with `names`; those of the same of `groups` have the same colour; `shares` are how much of the
    variance the two directions hold, `hints` what is told at the pointer."""
    found = [(finite(x), finite(y)) for x, y in view["points"]]
    titles = [str(name) for name in view["names"]]
    groups = [str(group) for group in view.get("groups") or [""] * len(found)]
    hints = [str(hint) for hint in view.get("hints") or titles]
    if not found or any(x is None or y is None for x, y in found):
        raise ValueError("places are points of two figures")
    if not len(found) == len(titles) == len(groups) == len(hints):
        raise ValueError("every place has a name (and a group and a hint, where there are any)")
    points = np.array(found[:POINTS], dtype=np.float64)
    shares = [float(finite(share) or 0) for share in view.get("shares") or (0, 0)]
    frame = Frame.around(points, width, TALL)
    labels = [label(name, LONGEST) or "␣" for name in titles[:POINTS]]
    chart = plane(frame, points, labels, hints[:POINTS], (shares[0], shares[1]), groups[:POINTS])
    note = [label(view["note"], 160)] if view.get("note") else []
    note += [f"the first {whole(POINTS)} of {whole(len(found))}"] if len(found) > POINTS else []
    chart = chart.properties(title=looks.title(label(view["title"], 100), "; ".join(note)))
    return looks.row([chart]), f"{label(view['title'], 100)}: {_told(points, labels, groups)}"


def plane(
    frame: Frame,
    points: np.ndarray,
    labels: Sequence[str],
    texts: Sequence[str],
    shares: tuple[float, float],
    groups: Sequence[str] = (),
    colour: tuple[str, str] = ACCENT,
) -> Panel:
    """In pixels, so that what was measured is what is drawn; a name that has no room beside its point is moved away,
    and a line leads to it."""
    import altair as alt

    pixels = frame.pixels(points)
    found = names(pixels, labels, frame, far=len(labels) <= NAMED)
    own = list(groups) or [""] * len(labels)
    rows = [
        {"x": round(x, 2), "y": round(y, 2), "text": label(text, 200), "group": label(group, 30)}
        for (x, y), text, group in zip(pixels.tolist(), texts, own, strict=True)
    ]
    x, y = _axis("x", shares[0], frame.width), _axis("y", shares[1], frame.height)
    layers: list[Any] = []
    lines = [_line(place, pixels) for place in found if place.line]
    if lines:
        layers.append(data(lines).mark_rule(color=GRID[0]).encode(x, y, x2="toward:Q", y2="up:Q"))
    tips = [alt.Tooltip("text:N", title="text")]
    kinds = list(dict.fromkeys(row["group"] for row in rows))
    faint, size = (0.9, 60) if len(rows) <= NAMED else (0.5, 24)
    if len(kinds) > 1:
        hues = [COLOURS[index % len(COLOURS)][0] for index in range(len(kinds))]
        legend = alt.Legend(columns=6, symbolType="circle", symbolOpacity=1, symbolStrokeWidth=0)
        shade = alt.Color("group:N", scale=alt.Scale(domain=kinds, range=hues), legend=legend)
        tips.append(alt.Tooltip("group:N", title="group"))
        layers.append(data(rows).mark_circle(size=size, opacity=faint).encode(x, y, shade, tooltip=tips))
    else:
        dots = data(rows).mark_circle(size=size, color=colour[0], opacity=faint)
        layers.append(dots.encode(x, y, tooltip=tips))
    for align in ("left", "right", "center"):
        some = [{"x": p.x, "y": p.y, "text": labels[p.index]} for p in found if p.align == align]
        if some:
            mark = data(some).mark_text(align=align, baseline="middle", color=INK[0])
            layers.append(mark.encode(x, y, text="text:N"))
    return alt.layer(*layers).properties(width=frame.width, height=frame.height)


def _axis(side: str, share: float, size: int) -> alt.X | alt.Y:
    import altair as alt

    number = 1 if side == "x" else 2
    title = f"direction {number}: {100 * share:.0f} % of the variance" if share else None
    axis = alt.Axis(
        title=title, labels=False, ticks=False, grid=False, domain=True, domainColor=GRID[0], titleColor=FAINT[0]
    )
    kind = alt.X if side == "x" else alt.Y
    return kind(f"{side}:Q", scale=alt.Scale(domain=[0, size] if side == "x" else [size, 0], nice=False), axis=axis)


def _line(place: Name, pixels: np.ndarray) -> dict[str, float]:
    x, y = pixels[place.index].tolist()
    return {"x": x, "y": y, "toward": place.x, "up": place.y}


def _told(points: np.ndarray, labels: Sequence[str], groups: Sequence[str]) -> str:
    """For those who listen: the nearest to each of a few."""
    count = f"{whole(len(points))} points"
    kinds = list(dict.fromkeys(group for group in groups if group))
    inside = f" in {len(kinds)} groups ({', '.join(label(kind, 30) for kind in kinds[:TOLD])})" if kinds else ""
    if len(points) < 2:
        return f"{labels[0]}, alone."
    pairs = []
    for index in range(min(TOLD, len(points))):
        apart = ((points - points[index]) ** 2).sum(axis=1)
        apart[index] = np.inf
        pairs.append(f"{labels[index]} – {labels[int(apart.argmin())]}")
    more = " …" if len(points) > TOLD else ""
    return f"{count}{inside}; the nearest to each: {'; '.join(pairs)}{more}."
