"""A forecast as a picture: what was known, what came, what was forecast with its band, and what a naive guess says."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .axes import horizontal
from .looks import ACCENT, FAINT, HALF, INK, SECOND, data
from .numbers import whole
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

KNOWN, AHEAD = "what happened", "forecast"


def forecast(view: dict[str, Any], width: int = HALF) -> Drawn:
    """What was known, what came, what was forecast with its band, and what a naive forecast would have been."""
    import altair as alt

    simple = label(view.get("baseline_name", "naive forecast"), 30)
    place, dated = _places([pair[0] for key in ("history", "actual", "forecast") for pair in view.get(key) or []])
    line = lambda key, run: [  # noqa: E731
        {"x": place(t), "y": finite(v), "run": run} for t, v in view.get(key) or []
    ]
    past, actual = line("history", KNOWN), line("actual", KNOWN)
    ahead, naive = line("forecast", AHEAD), line("baseline", simple)
    highs = {place(t): finite(v) for t, v in view.get("high") or []}
    band = [
        {"x": place(t), "y": finite(v), "high": highs.get(place(t)), "run": AHEAD} for t, v in view.get("low") or []
    ]
    band = [row for row in band if row["y"] is not None and row["high"] is not None]
    last = [row for row in past if row["y"] is not None][-1:]
    shades = {KNOWN: INK[0], AHEAD: ACCENT[0]} | ({simple: SECOND[0]} if naive else {})
    colour = alt.Color("run:N", scale=alt.Scale(domain=list(shades), range=list(shades.values())), legend=alt.Legend())
    kind = "T" if dated else "Q"
    scale = alt.Scale(type="utc", nice=False) if dated else alt.Scale(nice=False, zero=False)
    axis = alt.Axis(title=None, grid=False, labelOverlap=True, tickCount=6) if dated else horizontal("", "~s")
    x = alt.X(f"x:{kind}", scale=scale, axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title=None, tickCount=5))
    layers = []
    if band:
        area = data(band).mark_area(color=ACCENT[0], opacity=0.2)
        layers.append(area.encode(x, y, alt.Y2("high:Q")))
    if ahead:
        layers.append(data([{"x": ahead[0]["x"]}]).mark_rule(stroke=FAINT[0], strokeDash=[2, 3]).encode(x))
    layers += [
        data([*past, *actual]).mark_line(strokeWidth=1.5).encode(x, y, colour),
        data([*_joined(last, naive)]).mark_line(strokeWidth=1.75, strokeDash=[5, 4]).encode(x, y, colour),
        data([*_joined(last, ahead)]).mark_line(strokeWidth=2.25).encode(x, y, colour),
    ]
    if len(ahead) == 1:  # a single step is a point, not a line
        layers.append(data(ahead).mark_circle(size=60, opacity=1).encode(x, y, colour))
    unit = f", {label(view['unit'], 20)}" if view.get("unit") else ""
    hint = "shaded: the band of the forecast" if band else ""
    chart = alt.layer(*layers).properties(
        width=width, height=220, title=looks.title(f"{label(view['title'], 60)}{unit}", hint)
    )
    return looks.row([chart]), _told(view, actual, ahead, naive, band)


def _joined(last: list[dict[str, Any]], line: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A forecast begins where the known values end, so that no gap is left between them."""
    return [{**last[0], "run": line[0]["run"]}, *line] if last and line else line


def _places(times: list[Any]) -> tuple[Any, bool]:
    """How moments stand on the axis: dates as milliseconds, numbers as they are, anything else in its order."""
    if all(finite(t) is not None for t in times):
        return (lambda t: t), False
    try:
        stamps = {t: _milliseconds(t) for t in times}
    except (ValueError, TypeError):
        order = {t: index for index, t in enumerate(dict.fromkeys(map(str, times)))}
        return (lambda t: order.get(str(t), len(order))), False
    return (lambda t: stamps.get(t) if t in stamps else _milliseconds(t)), True


def _milliseconds(text: str) -> float:
    moment = datetime.datetime.fromisoformat(text)
    return 1000 * (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _told(
    view: dict[str, Any],
    actual: list[dict[str, Any]],
    ahead: list[dict[str, Any]],
    naive: list[dict[str, Any]],
    band: list[dict[str, Any]],
) -> str:
    """The sentence of a forecast: its mean error beside that of the naive one, and how much the band holds."""
    truth = {row["x"]: row["y"] for row in actual if row["y"] is not None}

    def error(line: list[dict[str, Any]]) -> float | None:
        gaps = [abs(row["y"] - truth[row["x"]]) for row in line if row["x"] in truth and row["y"] is not None]
        return math.fsum(gaps) / len(gaps) if gaps else None

    parts = [f"{label(view['title'], 100)}: {whole(len(ahead))} steps ahead"]
    if (off := error(ahead)) is not None:
        parts.append(f"on average {plain(off)} from what happened")
    if (other := error(naive)) is not None:
        parts.append(f"the naive forecast {plain(other)}")
    if inside := [row for row in band if row["x"] in truth]:
        held = sum(row["y"] <= truth[row["x"]] <= row["high"] for row in inside)
        parts.append(f"{held} of {len(inside)} values within the band")
    return ", ".join(parts) + "."
