"""The pictures of a training: curves, and what quality costs. Altair charts, the same in notebooks and
reports.

Each chart is a row of panels, and each panel can be had alone: a report sets them side by side on a wide screen
and one below the other on a narrow one. A model has the same colour in every picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core import measures
from ..core.measures import finite
from ..runs import Run
from .axes import HEIGHT, Axis, Span, labels
from .figures import Figures, Point, baselines_of, read
from .looks import FAINT, INK, colours, data, nothing, row, save, svg, title
from .schedule import schedule
from .text import label as short

if TYPE_CHECKING:
    import altair as alt

    from .looks import Panel

__all__ = ["colours", "curves", "points", "save", "schedule", "svg", "trade_off"]

WIDTH = 400
BUCKETS = 120  # points of a training curve: each the mean of its share of the steps


def curves(
    runs: Sequence[Run] | Sequence[Figures], over: Sequence[str] = ("seconds", "tokens"), measure: str = "loss"
) -> alt.HConcatChart:
    """Training and validation loss (or another measure) over the seconds and over the elements that they took."""
    figures = read(runs)
    return row([_curves(figures, axis, measure) for axis in over])


def trade_off(runs: Sequence[Run], over: Sequence[str] = ("flops", "seconds")) -> alt.HConcatChart:
    """The main measure on the validation data against what it cost to train."""
    figures = [one for one in read(runs) if one.reached() is not None]
    return row([_costs(figures, axis) for axis in over])


def points(
    figures: Sequence[Figures], costs: Sequence[float], values: Sequence[float], kind: str, name: str, heading: str
) -> alt.HConcatChart:
    """A measure over the size or the speed of models, each a point with its name."""
    import altair as alt

    ends, lows = [1.4 * cost for cost in costs], [cost / 1.6 for cost in costs]
    axis = Axis.over(kind, "", ends, lows, max(costs) / min(costs) > 2)
    span = Span.of(values, name)
    rows = [_row_of(one, cost, value) for one, cost, value in zip(figures, costs, values, strict=True)]
    names, colour = labels(rows, axis, span), _colour(figures, {})
    x, y = axis.x(), span.y()
    layers = [*_label_layers(names, x, y, colour), data(rows).mark_circle(size=110, opacity=1).encode(x, y, colour)]
    return row([alt.layer(*layers).properties(width=_width(names), height=HEIGHT, title=title(heading))])


# Panels


def _curves(figures: Sequence[Figures], kind: str, name: str) -> Panel:
    import altair as alt

    training = {one.label: _thinned(one.training) if name == "loss" else [] for one in figures}
    validation = {one.label: one.evaluations(name) for one in figures}
    if not any([*training.values(), *validation.values()]):
        return nothing("nothing was recorded")
    axis, span = _curve_axes(figures, training, validation, kind, name)
    span, baselines = _within(span, baselines_of(figures, "valid"), name)
    colour = _colour(figures, baselines)
    train = [line for one in figures for line in _rows(one, training[one.label], kind, axis)]
    valid = [line for one in figures for line in _rows(one, validation[one.label], kind, axis)]
    counted = [one for one in figures if one.counts and validation[one.label]]
    level = [_row_of(one, axis.low, validation[one.label][-1].value) | {"end": axis.high} for one in counted]
    level += _levels(baselines, axis)
    learned = [line for line in valid if line["counts"] is False]
    ends = {line["run"]: line for line in [*train, *valid]}  # the last of each, validation before training
    ends |= {line["run"]: {**line, "x": axis.high} for line in level}
    names = labels(list(ends.values()), axis, span)
    x, y = axis.x(), span.y()
    layers = [
        data(train).mark_line(strokeWidth=1, opacity=0.45, clip=True).encode(x, y, colour),
        data(level).mark_rule(strokeWidth=1.5, strokeDash=[5, 4], clip=True).encode(x, y, colour, x2="end:Q"),
        data(learned).mark_line(strokeWidth=2.25, clip=True).encode(x, y, colour),
        data(valid).mark_circle(size=30, opacity=1, clip=True).encode(x, y, colour),
        *_label_layers(names, x, y, colour),
    ]
    hint = ["thick: validation, thin: training" if train else "on the validation data"]
    hint += ["dashed: counted once"] if counted else []
    hint += ["dashed: baselines"] if baselines else []
    heading = title(f"{measures.title(name)}{_per(figures[0], name)}", ", ".join(hint))
    return alt.layer(*layers).properties(width=_width(names), height=HEIGHT, title=heading)


def _curve_axes(
    figures: Sequence[Figures],
    training: dict[str, list[Point]],
    validation: dict[str, list[Point]],
    kind: str,
    name: str,
) -> tuple[Axis, Span]:
    """Several runs are told apart where they have come near their end: the first steep fall is left out."""
    learned = [one for one in figures if not one.counts]
    values = [point.value for points in [*training.values(), *validation.values()] for point in points]
    second = [points[min(1, len(points) - 1)].value for points in validation.values() if points]
    worst = min if measures.measure(name).better == "higher" else max
    span = Span.of(values, name, worst(second) if len(figures) > 1 and second else None)
    paths = [validation[one.label] or training[one.label] for one in (learned or figures)]
    ends = [getattr(path[-1], kind) for path in paths if path]
    furthest = max(ends, default=0.0)
    ends += [
        x for one in figures for point in validation[one.label] if one.counts and (x := getattr(point, kind)) > furthest
    ]
    # a counted model is there from its first moment on; others show from where they come into the picture
    lows = [getattr(points[0], kind) for points in validation.values() if points]
    lows += [getattr(point, kind) for one in learned for point in training[one.label][:1] if len(figures) == 1]
    log = None if len(learned) > 1 else False
    return Axis.over(kind, figures[0].element, ends, [0.5 * low for low in lows], log), span


def _costs(figures: Sequence[Figures], kind: str) -> Panel:
    import altair as alt

    placed = [one for one in figures if finite(one.summary.get(kind))]
    if not placed:
        return nothing(f"no {kind} were recorded")
    name = figures[0].main
    costs = [float(one.summary[kind]) for one in placed]
    far = max(costs) / min(costs) > 2
    axis = Axis.over(kind, "", [1.4 * cost for cost in costs], [cost / 1.6 for cost in costs], far)
    span = Span.of([value for one in figures if (value := one.reached()) is not None], name)
    span, baselines = _within(span, baselines_of(figures, "valid"), name)
    colour = _colour(figures, baselines)
    points = [_row_of(one, float(one.summary[kind]) * axis.factor, one.reached()) for one in placed]
    counted = [one for one in figures if one not in placed and one.counts]
    level = [_row_of(one, axis.low, one.reached()) | {"end": axis.high} for one in counted]
    level += _levels(baselines, axis)
    names = labels([*points, *({**line, "x": axis.high} for line in level)], axis, span)
    x, y = axis.x(), span.y()
    layers = [
        data(_front(points, axis, name))
        .mark_line(interpolate="step-after", stroke=FAINT[0], strokeWidth=1, strokeDash=[2, 3])
        .encode(x, y),
        data(level).mark_rule(strokeWidth=1.5, strokeDash=[5, 4]).encode(x, y, colour, x2="end:Q"),
        *_label_layers(names, x, y, colour),
        data(points).mark_circle(size=110, opacity=1).encode(x, y, colour),
    ]
    hint = "dotted: the best that so much buys"
    hint += ", dashed: counted, nothing is multiplied" if counted else ""
    hint += ", dashed: baselines" if baselines else ""
    heading = title(f"Validation {measures.phrase(name)}{_per(figures[0], name)}", hint)
    return alt.layer(*layers).properties(width=_width(names), height=HEIGHT, title=heading)


def _front(points: list[dict[str, Any]], axis: Axis, name: str) -> list[dict[str, Any]]:
    """The best that could be had for so much, as steps up to the end of the axis."""
    steps: list[dict[str, Any]] = []
    sign = -1 if measures.measure(name).better == "higher" else 1
    for point in sorted(points, key=lambda line: (line["x"], sign * line["y"])):
        if not steps or measures.better(name, point["y"], steps[-1]["y"]):
            steps.append({"x": point["x"], "y": point["y"]})
    return [*steps, {"x": axis.high, "y": steps[-1]["y"]}] if steps else []


# Rows of data


def _row_of(one: Figures, x: float, y: float | int | None) -> dict[str, Any]:
    return {"run": one.label, "x": x, "y": y, "counts": one.counts}


def _rows(one: Figures, points: Sequence[Point], kind: str, axis: Axis) -> list[dict[str, Any]]:
    """The points as data; a logarithmic axis has no zero."""
    rows = [_row_of(one, getattr(point, kind) * axis.factor, point.value) for point in points]
    return [line for line in rows if line["x"] >= axis.low and (line["x"] > 0 or not axis.log)]


def _within(span: Span, baselines: dict[str, dict[str, Any]], name: str) -> tuple[Span, dict[str, float]]:
    """The baselines that fit into the picture, and the axis with them."""
    kept: dict[str, float] = {}
    for baseline, values in baselines.items():
        value = finite(values.get(name))
        wider = None if value is None else span.reaches(value)
        if value is not None and wider is not None:
            span, kept[short(baseline, 24)] = wider, value
    return span, kept


def _levels(baselines: dict[str, float], axis: Axis) -> list[dict[str, Any]]:
    return [
        {"run": name, "x": axis.low, "y": value, "counts": True, "end": axis.high} for name, value in baselines.items()
    ]


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most `BUCKETS` points, each the mean of the losses since the one before."""
    size = max(math.ceil(len(points) / BUCKETS), 1)
    parts = [points[first : first + size] for first in range(0, len(points), size)]
    return [replace(part[-1], value=math.fsum(point.value for point in part) / len(part)) for part in parts]


# Names and colours


def _width(names: list[dict[str, Any]]) -> int:
    """Long names take their room from the panel, so that all pictures of a page are drawn to the same scale."""
    longest = max((len(line["run"]) for line in names), default=0)
    return max(WIDTH - 6 * max(longest - 5, 0), WIDTH - 120)


def _label_layers(names: list[dict[str, Any]], x: alt.X, y: alt.Y, colour: alt.Color) -> list[alt.Chart]:
    """Names in ink, which every eye can read, each behind a dot in its colour and a thin line that leads to it."""
    import altair as alt

    leaders = [
        {"run": line["run"], "x": line[across], "y": line[up], "order": order}
        for line in names
        for order, (across, up) in enumerate((("x", "y"), ("edge", "place")))
    ]
    line = data(leaders).mark_line(strokeWidth=0.75, opacity=0.6).encode(x, y, colour, order="order:O")
    across = alt.X("edge:Q", scale=x["scale"], axis=x["axis"])
    up = alt.Y("place:Q", scale=y["scale"], axis=y["axis"])
    dots = data(names).mark_circle(size=45, opacity=1).encode(across, up, colour)
    text = data(names).mark_text(align="left", dx=8, fontSize=12, color=INK[0]).encode(across, up, text="run:N")
    return [line, dots, text]


def _colour(figures: Sequence[Figures], baselines: dict[str, float]) -> alt.Color:
    import altair as alt

    pairs = {**dict.fromkeys(baselines, FAINT), **colours(figures)}
    scale = alt.Scale(domain=list(pairs), range=[light for light, _ in pairs.values()])
    return alt.Color("run:N", scale=scale, legend=None)


def _per(one: Figures, name: str) -> str:
    return f", {one.unit} per token" if one.unit and name == "loss" else ""
