"""Curves of an evaluation over one axis, such as the size of the gradient over the distance in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .axes import horizontal
from .looks import ACCENT, FAINT, OWN, SPARE, WHOLE, data
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn


def lines(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`series` are names with their points [x, y]; `log` draws y as powers of ten, without what is not above 0.
    `points` are what the curves are to follow: dots behind them."""
    import altair as alt

    log = bool(view.get("log"))
    rows = [
        {"name": label(name, 28), "x": x, "y": y}
        for name, points in view["series"]
        for x, y in points
        if finite(y) is not None and (not log or y > 0)
    ]
    if not rows:
        raise ValueError("curves have points")
    names = list(dict.fromkeys(row["name"] for row in rows))
    free = iter(SPARE * (1 + len(names) // len(SPARE)))
    colours = [(OWN.get(name) or next(free))[0] for name in names] if len(names) > 1 else [ACCENT[0]]
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
    x = alt.X("x:Q", axis=horizontal(label(view.get("x", ""), 60), "~s"), scale=alt.Scale(nice=False))
    y = alt.Y(
        "y:Q",
        scale=scale,
        axis=alt.Axis(title=label(view.get("y", ""), 80), format=".0e" if log else "~s", tickCount=6, domain=False),
    )
    legend = alt.Legend() if len(names) > 1 else None
    colour = alt.Color("name:N", scale=alt.Scale(domain=names, range=colours), legend=legend)
    dots = [
        {"x": a, "y": b}
        for a, b in view.get("points", ())
        if finite(a) is not None and finite(b) is not None and (not log or b > 0)
    ]
    behind = [data(dots).mark_circle(size=16, color=FAINT[0], opacity=0.55).encode(x, y)] if dots else []
    chart = alt.layer(*behind, data(rows).mark_line(strokeWidth=1.75).encode(x, y, colour)).properties(
        width=width,
        height=340 if dots else 240,
        title=looks.title(label(view["title"], 100), label(view.get("note", ""), 160)),
    )
    ends = []
    for name in names:
        own = [row for row in rows if row["name"] == name]
        ends.append(f"{name} from {plain(own[0]['y'], 3, 2)} to {plain(own[-1]['y'], 3, 2)}")
    return looks.row([chart]), f"{label(view['title'], 100)}: {'; '.join(ends)}."
