"""The pictures: loss curves, what quality costs, the schedule. Altair charts, the same in notebooks and reports.

Each chart is a row of panels, and each panel can be had alone: a report sets them side by side on a wide screen
and one below the other on a narrow one. A model has the same colour in every picture.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import SeriatimError
from ..core.files import atomic_file, write_text
from ..runs import Run
from .figures import Figures, Point, finite, read, scaled

if TYPE_CHECKING:
    import altair as alt

    Panel = alt.LayerChart | alt.FacetChart

WIDTH, HEIGHT = 400, 270
BUCKETS = 120  # points of a training curve: each the mean of its share of the steps
LINE = 15  # pixels that a label needs
WIDE = 4.0  # a logarithmic axis helps where the shortest and the longest run differ by more than this
ENDINGS = (".png", ".svg", ".html", ".json")

# Light and dark. The hues of Okabe and Ito (2008), which the colour-blind tell apart; those that would be faint on
# a dark ground are lighter there.
INK = ("#1f2328", "#e6e8eb")
FAINT = ("#656d76", "#9aa3ad")
GRID = ("#e3e6ea", "#31363d")
GROUND = ("#ffffff", "#14171b")
OWN = {
    "ngram": ("#50565e", "#c3c9d1"),
    "mlp": ("#e69f00", "#f0b437"),
    "rnn": ("#56b4e9", "#9ad6f7"),
    "lstm": ("#0072b2", "#3d9be0"),
    "gru": ("#009e73", "#22b98d"),
    "tcn": ("#cc79a7", "#de93bc"),
    "gpt": ("#d55e00", "#f07c2b"),
}
SPARE = (
    ("#8a7a00", "#f0e442"),
    ("#6a51a3", "#a894dd"),
    ("#8c510a", "#c98d4b"),
    ("#3b7d2f", "#7cc46c"),
    ("#a50f4e", "#ec6a9c"),
    ("#2b6f77", "#6fc1ca"),
)


def curves(runs: Sequence[Run], over: Sequence[str] = ("seconds", "tokens")) -> alt.HConcatChart:
    """Training and validation loss over the seconds and over the tokens that they took."""
    figures = read(runs)
    return _row([_losses(figures, axis) for axis in over])


def trade_off(runs: Sequence[Run], over: Sequence[str] = ("flops", "seconds")) -> alt.HConcatChart:
    """The validation loss against what it cost to train."""
    figures = [one for one in read(runs) if one.loss is not None]
    return _row([_costs(figures, axis) for axis in over])


def schedule(run: Run, parts: Sequence[str] = ("rate", "norm")) -> alt.HConcatChart:
    """The learning rate and the norm of the gradient, step by step."""
    one = read([run])[0]
    return _row([_rate(one) if part == "rate" else _norm(one) for part in parts])


def svg(chart: alt.TopLevelMixin, dark: bool = False) -> str:
    """The picture as SVG without a ground of its own."""
    import vl_convert

    spec = _dressed(chart, dark) | {"background": None}
    return _renumbered(vl_convert.vegalite_to_svg(spec))


def _renumbered(text: str) -> str:
    """The renderer numbers its clipping paths through all its pictures; a picture made again should be the same."""
    numbers: dict[str, int] = {}
    return re.sub(r"\bclip(\d+)\b", lambda match: f"clip{numbers.setdefault(match[1], len(numbers))}", text)


def save(chart: alt.TopLevelMixin, path: str | Path) -> None:
    """Writes .png, .svg, .html (with all that it needs to work offline) or .json (Vega-Lite)."""
    import vl_convert

    path = Path(path)
    ending = path.suffix.lower()
    spec = _dressed(chart, dark=False)
    if ending == ".png":
        with atomic_file(path) as aside:
            aside.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    elif ending == ".svg":
        write_text(path, vl_convert.vegalite_to_svg(spec))
    elif ending == ".html":
        write_text(path, vl_convert.vegalite_to_html(spec, bundle=True))
    elif ending == ".json":
        write_text(path, json.dumps(spec, indent=1, ensure_ascii=False))
    else:
        raise SeriatimError(
            "chart.format", f'{path}: a chart cannot be saved as "{ending}"', f"choose from: {', '.join(ENDINGS)}"
        )


def colours(figures: Sequence[Figures]) -> dict[str, tuple[str, str]]:
    """Light and dark colour of each run. The first of a known model gets its own, all others one that is left."""
    free = list(SPARE)
    used: set[str] = set()
    found: dict[str, tuple[str, str]] = {}
    for index, one in enumerate(figures):
        if one.model in OWN and one.model not in used:
            used.add(one.model)
            found[one.label] = OWN[one.model]
        else:
            found[one.label] = free.pop(0) if free else SPARE[index % len(SPARE)]
    return found


# Axes


@dataclass(frozen=True)
class Axis:
    """A horizontal axis: its title, the form of its labels, the factor from the unit of the figures, its ends and
    whether it is logarithmic."""

    title: str
    form: str
    factor: float
    low: float
    high: float
    log: bool

    @property
    def edge(self) -> float:
        """Where names stand: a little further than any figure."""
        return self.high * (self.high / self.low) ** 0.06 if self.log else self.high + 0.06 * (self.high - self.low)

    def x(self, field: str = "x") -> alt.X:
        import altair as alt

        scale = alt.Scale(type="log" if self.log else "linear", domain=[self.low, self.edge], nice=False)
        title = f"{self.title} (log scale)" if self.log else self.title
        axis = _horizontal(title, self.form)
        if self.log:
            axis["values"] = _ticks(self.low, self.edge)
        return alt.X(f"{field}:Q", scale=scale, axis=axis)


def _axis(kind: str, ends: Sequence[float], lows: Sequence[float], log: bool | None = None) -> Axis:
    """An axis up to the furthest of `ends`; it starts below all of `lows` where it is logarithmic, else at zero."""
    positive = [end for end in ends if end > 0]
    highest = max(positive, default=1.0)
    counted = {"tokens": ("Training tokens", "~s", 1.0), "flops": ("Training compute in FLOP", "~s", 1.0)}
    title, form, factor = counted.get(kind) or _clock(highest)
    wide = highest / min(positive, default=1.0) > WIDE if log is None else log
    low = min((value for value in lows if value > 0), default=highest / 10)
    return Axis(title, form, factor, low * factor if wide else 0.0, highest * factor, wide)


def _clock(longest: float) -> tuple[str, str, float]:
    if longest < 300:
        return "Training time in seconds", "~f", 1.0
    if longest < 3 * 3600:
        return "Training time in minutes", "~f", 1 / 60
    return "Training time in hours", "~f", 1 / 3600


def _ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, … within the ends of a logarithmic axis; over many decades the powers of ten suffice."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def _horizontal(title: str, form: str) -> alt.Axis:
    import altair as alt

    bare_zero = "datum.value === 0 ? '0' : datum.label"  # else it reads 0M
    return alt.Axis(title=title, grid=False, labelOverlap=True, tickCount=5, format=form, labelExpr=bare_zero)


def _step_axis() -> alt.X:
    import altair as alt

    return alt.X("step:Q", axis=_horizontal("Step", "~s"), scale=alt.Scale(nice=False))


@dataclass(frozen=True)
class Span:
    """The vertical axis: its ends, and how many units a label needs."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], top: float | None = None) -> Span:
        low, high = min(values, default=0.0), max(values, default=1.0) if top is None else top
        pad = max((high - low) * 0.05, abs(high) * 0.005, 1e-6)
        return cls(low - pad, high + pad)

    @property
    def line(self) -> float:
        return (self.high - self.low) * LINE / HEIGHT

    def y(self, field: str = "y") -> alt.Y:
        import altair as alt

        scale = alt.Scale(domain=[self.low, self.high], nice=False, zero=False)
        return alt.Y(f"{field}:Q", scale=scale, axis=alt.Axis(title=None, tickCount=6))


# Panels


def _losses(figures: Sequence[Figures], kind: str) -> Panel:
    import altair as alt

    if not any(one.training or one.validation for one in figures):
        return _nothing("no losses were recorded")
    axis, span = _loss_axes(figures, kind)
    colour = _colour(figures)
    train = [row for one in figures for row in _rows(one, _thinned(one.training), kind, axis)]
    valid = [row for one in figures for row in _rows(one, one.validation, kind, axis)]
    level = [
        _row_of(one, axis.low, one.validation[-1].loss) | {"end": axis.high}
        for one in figures
        if one.counts and one.validation
    ]
    learned = [row for row in valid if row["counts"] is False]
    ends = {row["run"]: row for row in [*train, *valid]}  # the last of each, validation before training
    ends |= {row["run"]: {**row, "x": axis.high} for row in level}
    names = _labels(list(ends.values()), axis, span)
    x, y = axis.x(), span.y()
    layers = [
        _data(train).mark_line(strokeWidth=1, opacity=0.45, clip=True).encode(x, y, colour),
        _data(level).mark_rule(strokeWidth=1.5, strokeDash=[5, 4], clip=True).encode(x, y, colour, x2="end:Q"),
        _data(learned).mark_line(strokeWidth=2.25, clip=True).encode(x, y, colour),
        _data(valid).mark_circle(size=30, opacity=1, clip=True).encode(x, y, colour),
        *_label_layers(names, x, y, colour),
    ]
    unit = f", {figures[0].unit} per token" if figures[0].unit else ""
    hint = "thick: validation, thin: training" + (", dashed: counted once" if level else "")
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=_title(f"Loss{unit}", hint))


def _loss_axes(figures: Sequence[Figures], kind: str) -> tuple[Axis, Span]:
    """Several runs are told apart where they have come near their end: the first steep fall is left out."""
    learned = [one for one in figures if not one.counts]
    valid = [point.loss for one in figures for point in one.validation]
    every = valid + [point.loss for one in figures for point in _thinned(one.training)]
    tops = [one.validation[min(1, len(one.validation) - 1)].loss for one in figures if one.validation]
    span = Span.of(every, max(tops) if len(figures) > 1 and tops else None)
    paths = [one.validation or one.training for one in (learned or figures)]
    ends = [getattr(path[-1], kind) for path in paths if path]
    furthest = max(ends, default=0.0)
    ends += [x for one in figures for point in one.validation if one.counts and (x := getattr(point, kind)) > furthest]
    # a counted model is there from its first moment on; others show from where they come into the picture
    lows = [getattr(one.validation[0], kind) for one in figures if one.validation]
    lows += [getattr(point, kind) for one in learned for point in _thinned(one.training)[:1] if len(figures) == 1]
    log = None if len(learned) > 1 else False
    return _axis(kind, ends, [0.5 * low for low in lows], log), span


def _costs(figures: Sequence[Figures], kind: str) -> Panel:
    import altair as alt

    placed = [one for one in figures if finite(one.summary.get(kind))]
    if not placed:
        return _nothing(f"no {kind} were recorded")
    costs = [float(one.summary[kind]) for one in placed]
    axis = _axis(kind, [1.4 * cost for cost in costs], [cost / 1.6 for cost in costs], log=max(costs) / min(costs) > 2)
    span = Span.of([one.loss for one in figures if one.loss is not None])
    colour = _colour(figures)
    points = [_row_of(one, float(one.summary[kind]) * axis.factor, one.loss) for one in placed]
    level = [
        _row_of(one, axis.low, one.loss) | {"end": axis.high} for one in figures if one not in placed and one.counts
    ]
    names = _labels([*points, *({**row, "x": axis.high} for row in level)], axis, span)
    x, y = axis.x(), span.y()
    layers = [
        _data(_front(points, axis))
        .mark_line(interpolate="step-after", stroke=FAINT[0], strokeWidth=1, strokeDash=[2, 3])
        .encode(x, y),
        _data(level).mark_rule(strokeWidth=1.5, strokeDash=[5, 4]).encode(x, y, colour, x2="end:Q"),
        *_label_layers(names, x, y, colour),
        _data(points).mark_circle(size=110, opacity=1).encode(x, y, colour),
    ]
    unit = f", {figures[0].unit} per token" if figures[0].unit else ""
    hint = "dotted: the best that so much buys" + (", dashed: counted, nothing is multiplied" if level else "")
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=_title(f"Validation loss{unit}", hint))


def _front(points: list[dict[str, Any]], axis: Axis) -> list[dict[str, Any]]:
    """The best loss that could be had for so much, as steps up to the end of the axis."""
    steps: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda row: (row["x"], row["y"])):
        if not steps or point["y"] < steps[-1]["y"]:
            steps.append({"x": point["x"], "y": point["y"]})
    return [*steps, {"x": axis.high, "y": steps[-1]["y"]}] if steps else []


def _rate(one: Figures) -> Panel:
    import altair as alt

    rows = _series(one, "rate")
    if not rows:
        return _nothing("no learning rate: this model counts")
    x = _step_axis()
    y = alt.Y("value:Q", axis=alt.Axis(title=None, tickCount=5, format="~g", minExtent=44), scale=alt.Scale(zero=True))
    line = _data(rows).mark_line(strokeWidth=2, color=_first_colour(one)).encode(x, y)
    return alt.layer(line).properties(width=WIDTH, height=190, title=_title("Learning rate"))


def _norm(one: Figures) -> Panel:
    import altair as alt

    rows = [row for row in _series(one, "norm") if row["value"] > 0]
    if not rows:
        return _nothing("no gradient was recorded")
    clip = finite(one.setting("train", "clip"))
    x = _step_axis()
    low, high = _decades([row["value"] for row in rows], clip)
    y = alt.Y(
        "value:Q",
        axis=alt.Axis(title=None, values=_ticks(low, high), format="~g", minExtent=44),
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
    )
    layers = [_data(rows).mark_line(strokeWidth=1, color=_first_colour(one)).encode(x, y)]
    if clip is not None:
        last = [{"step": rows[-1]["step"], "value": clip, "text": f"clipped above {scaled(clip)}"}]
        rule = _data(last).mark_rule(strokeDash=[5, 4], strokeWidth=1.25, color=INK[0]).encode(y=y)
        text = _data(last).mark_text(align="right", dy=-8, color=INK[0]).encode(x, y, text="text:N")
        layers += [rule, text]
    title = _title("Norm of the gradient, log scale")
    return alt.layer(*layers).properties(width=WIDTH, height=190, title=title)


def _decades(values: Sequence[float], clip: float | int | None) -> tuple[float, float]:
    """The ends of a logarithmic axis that holds the values and the threshold with a little air."""
    shown = [*values, *([clip] if clip is not None else [])]
    return min(shown) / 1.3, max(shown) * 1.5


def _nothing(text: str) -> Panel:
    import altair as alt

    mark = _data([{"text": text}]).mark_text(fontSize=13, color=FAINT[0]).encode(text="text:N")
    return alt.layer(mark).properties(width=WIDTH, height=HEIGHT)


# Rows of data


def _row_of(one: Figures, x: float, y: float | int | None) -> dict[str, Any]:
    return {"run": one.label, "x": x, "y": y, "counts": one.counts}


def _rows(one: Figures, points: Sequence[Point], kind: str, axis: Axis) -> list[dict[str, Any]]:
    """The points as data; a logarithmic axis has no zero."""
    rows = [_row_of(one, getattr(point, kind) * axis.factor, point.loss) for point in points]
    return [row for row in rows if row["x"] >= axis.low and (row["x"] > 0 or not axis.log)]


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most `BUCKETS` points, each the mean of the losses since the one before."""
    size = max(math.ceil(len(points) / BUCKETS), 1)
    parts = [points[first : first + size] for first in range(0, len(points), size)]
    return [replace(part[-1], loss=math.fsum(point.loss for point in part) / len(part)) for part in parts]


def _series(one: Figures, name: str) -> list[dict[str, Any]]:
    """A quantity of the steps; at most about 400 of them, since a picture has no more columns."""
    rows = [{"step": event["step"], "value": finite(event.get(name))} for event in one.events("stepped")]
    rows = [row for row in rows if row["value"] is not None]
    stride = max(len(rows) // WIDTH, 1)
    return [row for index, row in enumerate(rows) if index % stride == 0 or index == len(rows) - 1]


def _labels(ends: list[dict[str, Any]], axis: Axis, span: Span) -> list[dict[str, Any]]:
    """Names at the right edge, as level with the ends of their lines as can be without covering each other."""
    names = sorted(ends, key=lambda row: -row["y"])
    wanted = [min(row["y"], span.high) for row in names]
    places = _spread(wanted, span.line, span.low)
    return [
        {**row, "edge": axis.edge, "place": place, "y": y} for row, y, place in zip(names, wanted, places, strict=True)
    ]


def _spread(wanted: list[float], gap: float, floor: float) -> list[float]:
    """Falling values moved apart by at least `gap`: those that crowd together become a block around their mean."""
    blocks: list[list[float]] = []
    for value in wanted:
        blocks.append([value])
        while len(blocks) > 1 and _ends(blocks[-2], gap)[1] - _ends(blocks[-1], gap)[0] < gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    places = [_ends(block, gap)[0] - gap * index for block in blocks for index in range(len(block))]
    for index in reversed(range(len(places))):  # none below the picture
        lowest = floor if index == len(places) - 1 else places[index + 1] + gap
        places[index] = max(places[index], lowest)
    return places


def _ends(block: list[float], gap: float) -> tuple[float, float]:
    """The highest and the lowest place of a block."""
    middle, half = math.fsum(block) / len(block), gap * (len(block) - 1) / 2
    return middle + half, middle - half


def _label_layers(names: list[dict[str, Any]], x: alt.X, y: alt.Y, colour: alt.Color) -> list[alt.Chart]:
    """Names in ink, which every eye can read, each behind a dot in its colour and a thin line that leads to it."""
    import altair as alt

    leaders = [
        {"run": row["run"], "x": row[across], "y": row[up], "order": order}
        for row in names
        for order, (across, up) in enumerate((("x", "y"), ("edge", "place")))
    ]
    line = _data(leaders).mark_line(strokeWidth=0.75, opacity=0.6).encode(x, y, colour, order="order:O")
    across = alt.X("edge:Q", scale=x["scale"], axis=x["axis"])
    up = alt.Y("place:Q", scale=y["scale"], axis=y["axis"])
    dots = _data(names).mark_circle(size=45, opacity=1).encode(across, up, colour)
    text = _data(names).mark_text(align="left", dx=8, fontSize=12, color=INK[0]).encode(across, up, text="run:N")
    return [line, dots, text]


# Looks


def _data(rows: list[dict[str, Any]]) -> alt.Chart:
    import altair as alt

    # as text: Altair copies its data again and again, and a text costs nothing to copy
    return alt.Chart(alt.InlineData(values=json.dumps(rows), format=alt.JsonDataFormat(type="json")))


def _colour(figures: Sequence[Figures]) -> alt.Color:
    import altair as alt

    pairs = colours(figures)
    scale = alt.Scale(domain=list(pairs), range=[light for light, _ in pairs.values()])
    return alt.Color("run:N", scale=scale, legend=None)


def _first_colour(one: Figures) -> str:
    return next(iter(colours([one]).values()))[0]


def _title(text: str, hint: str = "") -> alt.TitleParams:
    import altair as alt

    return alt.TitleParams(text, subtitle=[hint] if hint else [])


def _row(panels: list[Panel]) -> alt.HConcatChart:
    import altair as alt

    font = "Liberation Sans, Helvetica, Arial, sans-serif"
    chart: alt.HConcatChart = (
        alt.hconcat(*panels, spacing=36, background=GROUND[0])
        .configure(font=font, padding=6, aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=FAINT[0],
            titleColor=FAINT[0],
            labelFontSize=11.5,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
            gridColor=GRID[0],
            domainColor=GRID[0],
            tickColor=GRID[0],
            labelPadding=5,
        )
        .configure_axisY(domain=False, ticks=False, minExtent=30)
        .configure_title(
            anchor="start",
            frame="group",
            color=INK[0],
            fontSize=13,
            fontWeight=600,
            subtitleColor=FAINT[0],
            subtitleFontSize=11.5,
            subtitlePadding=4,
            offset=12,
        )
        .configure_text(fontSize=11.5)
    )
    return chart


def _dressed(chart: alt.TopLevelMixin, dark: bool) -> dict[str, Any]:
    """The specification in the colours of a ground."""
    pairs = dict([INK, FAINT, GRID, GROUND, *OWN.values(), *SPARE]) if dark else {}
    spec: dict[str, Any] = chart.to_dict()
    data = {name: json.loads(rows) for name, rows in spec.pop("datasets", {}).items()}
    return {**_swapped(spec, pairs), "datasets": data}


def _swapped(value: Any, pairs: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _swapped(inner, pairs) for key, inner in value.items()}
    if isinstance(value, list):
        return [_swapped(inner, pairs) for inner in value]
    return pairs.get(value, value) if isinstance(value, str) else value
