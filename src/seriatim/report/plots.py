"""Drawing of charts with numeric axes: lines, bars, histograms, scatter plots, forecasts, piano rolls.

Each function returns an Altair chart without its title, and hints that stand below the title.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ..core.metrics import format_metric, get_metric, metric_label
from ..core.text import format_number, one_line, text_width
from .charts import Annotation, Bars, BinnedMetric, ForecastPlot, Histogram, Lines, PianoRoll, Scatter
from .theme import Theme, series_colors

Drawing = tuple[alt.LayerChart | alt.FacetChart, list[str]]  # with hints that stand below the title
Records = list[dict[str, Any]]  # what is drawn: field → number or text
HEIGHT = 250  # pixels of a plot
MAX_SERIES, MAX_POINTS, MAX_SCATTER, MAX_BARS = 60, 600, 2_000, 40
MAX_PLACED_LABELS = 60  # labels that are moved away from their point if they would cover others
LETTER, LINE = 6.2, 15  # pixels of a letter and of a line of text
# Labels of a time axis without a digit are months, which have no room for all of their letters.
SHORT_MONTHS = "test(/[0-9]/, datum.label) ? datum.label : slice(datum.label, 0, 3)"


def data(records: Records) -> alt.Chart:
    """Returns a chart of records; they are a JSON text because Altair copies its data many times."""
    return alt.Chart(alt.InlineData(values=json.dumps(records), format=alt.JsonDataFormat(type="json")))


def index_axis(names: Sequence[str], title: str, **options: Any) -> alt.Axis:
    """Returns the axis of cells numbered from 0 that shows their names, which may occur twice."""
    texts = json.dumps([one_line(name, 28) or "␣" for name in names])
    return alt.Axis(title=title or None, labelExpr=f"{texts}[datum.value]", grid=False, ticks=False, **options)


def axis_ticks(low: float, high: float) -> list[float]:
    """Returns the ticks of a logarithmic axis: 1, 2, 5, 10, …, over more than three decades powers of ten.

    Where these are fewer than three, all digits, then halves of them.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in ((1, 2, 5) if high / low < 1000 else (1,), range(1, 10), [n / 2 for n in range(2, 20)]):
        ticks = [tick for power in powers for digit in digits if low <= (tick := digit * 10.0**power) <= high]
        if len(ticks) > 2:
            break
    return ticks


def value_axis(title: str, values: Sequence[float], log: bool, metric: str = "", **options: Any) -> alt.Axis:
    """Returns the axis of numbers: powers of ten, percentages of a metric that is a share, or SI prefixes."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    options = {"title": one_line(title, 80) or None, "tickCount": 5, "labelOverlap": True, **options}
    if log and 0 < low < high:
        ticks = axis_ticks(low, high)
        options["values"] = ticks if len(ticks) > 2 else alt.Undefined
        options["format"] = "~s" if low >= 1 else ",.6~g" if low >= 1e-3 and high < 1e5 else ".0e"
    elif metric and get_metric(metric).percent:
        options["format"] = f".{max(0, -math.floor(math.log10(max(100 * (high - low) / 6, 1e-6))))}%"
    else:
        options["format"] = "~s" if max(abs(low), abs(high)) >= 10_000 else ",.6~g"
    return alt.Axis(labelExpr="datum.value === 0 ? '0' : datum.label", **options)


def padded_domain(values: Sequence[float], log: bool, share: float = 0.04) -> list[float]:
    """Returns the ends of an axis with some room around the values."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if log:
        factor = (high / low) ** share if high > low else 2.0
        return [low / factor, high * factor]
    pad = share * (high - low) if high > low else max(abs(high) * 0.1, 0.01)
    return [low - pad, high + pad]


def color_by(field: str, colors: Mapping[str, str], symbol: str = "stroke", **options: Any) -> alt.Color:
    """Returns the encoding of names as colors, with a legend if there are several."""
    legend = alt.Legend(symbolType=symbol, symbolOpacity=1, **options) if len(colors) > 1 else None
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(colors), range=list(colors.values())), legend=legend)


def draw_lines(chart: Lines, theme: Theme, width: int) -> Drawing:
    def drawable(x: float | None, y: float | None) -> bool:
        return x is not None and y is not None and (x > 0 or not chart.log_x) and (y > 0 or not chart.log_y)

    records: Records = []
    lone: Records = []
    for series in chart.series[:MAX_SERIES]:
        points = sorted((x, y) for x, y in zip(series.x, series.y, strict=True) if drawable(x, y))
        stride = -(-len(points) // MAX_POINTS) or 1
        group = one_line(series.group or series.name, 40)
        thinned = [point for n, point in enumerate(points) if n % stride == 0 or n == len(points) - 1]
        style = "dashed" if series.dashed else "thin" if series.thin else "solid"
        own = [{"series": series.name, "group": group, "style": style, "x": x, "y": y} for x, y in thinned]
        records += own
        lone += own if len(own) == 1 or chart.markers else []
    dots = [{"x": x, "y": y} for x, y in chart.points if drawable(x, y)]
    notes = [
        note for note in chart.annotations if drawable(1 if note.x is None else note.x, 1 if note.y is None else note.y)
    ]
    xs = [record["x"] for record in [*records, *dots]] + [note.x for note in notes if note.x is not None]
    ys = [record["y"] for record in [*records, *dots]] + [note.y for note in notes if note.y is not None]
    domain = padded_domain(ys, chart.log_y and bool(ys))
    domain = [domain[0] if chart.low is None else chart.low, domain[1] if chart.high is None else chart.high]
    across = padded_domain(xs, chart.log_x and bool(xs), 0.0 if min(xs, default=0) < max(xs, default=0) else 0.04)
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log" if chart.log_x and xs else "linear", domain=across, nice=False),
        axis=value_axis(chart.x, xs, chart.log_x, grid=False),
    )
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(type="log" if chart.log_y and ys else "linear", domain=domain, nice=False, zero=False),
        axis=value_axis(chart.y, domain, chart.log_y, chart.metric),
    )
    dashed_only = {s.group or s.name for s in chart.series} - {s.group or s.name for s in chart.series if not s.dashed}
    groups = list(dict.fromkeys(record["group"] for record in records))
    colors = series_colors(groups, theme, {one_line(name, 40) for name in dashed_only})
    color = color_by("group", colors, columns=max(1, min(6, width // 110)))
    if dashed_only and not any(series.group for series in chart.series):  # then the legend shows dashes, too
        dashes = [[5, 4] if one in {one_line(name, 40) for name in dashed_only} else [1, 0] for one in groups]
        dash = alt.StrokeDash("group:N", scale=alt.Scale(domain=groups, range=dashes), legend=color["legend"])
    else:
        styles = alt.Scale(domain=["solid", "dashed", "thin"], range=[[1, 0], [5, 4], [1, 0]])
        dash = alt.StrokeDash("style:N", scale=styles, legend=None)
    layers: list[alt.Chart] = []
    if dots:
        layers.append(data(dots).mark_circle(size=16, color=theme.muted, opacity=0.55).encode(x, y))
    detail = alt.Detail("series:N")
    for style, stroke, opacity in (("thin", 1.0, 0.45), ("dashed", 1.75, 1.0), ("solid", 2.0, 1.0)):
        own = [record for record in records if record["style"] == style]
        if own:
            mark = data(own).mark_line(strokeWidth=stroke, opacity=opacity, clip=True)
            layers.append(mark.encode(x, y, color, dash, detail))
    if lone:
        layers.append(data(lone).mark_circle(size=34, opacity=1, clip=True).encode(x, y, color))
    tooltip = [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("x:Q", title=chart.x or "x", format=".5~g"),
        alt.Tooltip("y:Q", title=chart.y or "y", format=".4~g"),
    ]
    layers.append(data(records).mark_circle(size=70, opacity=0, clip=True).encode(x, y, tooltip=tooltip))
    layers += annotation_layers(notes, x, y, (across[0], domain[1]), theme)
    hidden = len(chart.series) - MAX_SERIES
    hints = [f"{hidden} more series are not shown"] if hidden > 0 else []
    return alt.layer(*layers).properties(width=width, height=HEIGHT), hints


def annotation_layers(
    notes: Sequence[Annotation], x: alt.X, y: alt.Y, corner: tuple[float, float], theme: Theme
) -> list[alt.Chart]:
    """Returns the texts of annotations, and a dotted line across the plot for those with x or y alone.

    Texts of lines stand at the coordinates of the upper left corner.
    """
    layers = []
    for note in notes:
        at = {"x": corner[0] if note.x is None else note.x, "y": corner[1] if note.y is None else note.y}
        mark = data([{**at, "text": one_line(note.text, 60)}])
        if note.y is None or note.x is None:
            rule = mark.mark_rule(strokeDash=[2, 3], color=theme.muted)
            layers.append(rule.encode(x) if note.y is None else rule.encode(y))
        shift = 10 if note.y is None else -7
        layers.append(mark.mark_text(align="left", dx=5, dy=shift, color=theme.text).encode(x, y, text="text:N"))
    return layers


def draw_bars(chart: Bars, theme: Theme, width: int) -> Drawing:
    text = (lambda value: format_metric(chart.metric, value)) if chart.metric else format_number
    labels = list(dict.fromkeys(chart.labels)) if chart.groups else list(chart.labels)
    errors = chart.errors or (None,) * len(chart.labels)
    groups = chart.groups or ("",) * len(chart.labels)
    records: Records = [
        {
            "index": labels.index(label) if chart.groups else n,
            "group": one_line(group),
            "value": value,
            "end": max(value, 0.0) + (error or 0.0),
            "low": value - (error or 0.0),
            "high": value + (error or 0.0),
            "text": text(value) + (f" ± {text(error)}" if error is not None else ""),
        }
        for n, (label, group, value, error) in enumerate(zip(chart.labels, groups, chart.values, errors, strict=True))
        if value is not None
    ]
    count = len(labels)
    records = [record for record in records if record["index"] < MAX_BARS]
    ends = [0.0, *(record[key] for record in records for key in ("low", "high"))]
    low, high = min(ends), max(ends)
    scale = alt.Scale(domain=[low, high + 0.16 * ((high - low) or 1.0)], nice=False)
    names = [one_line(label) for label in labels[:MAX_BARS]]
    y = alt.Y(
        "index:O",
        axis=index_axis(names, "", domain=False, labelLimit=200),
        scale=alt.Scale(domain=list(range(len(names))), paddingInner=0.28),
    )
    x = alt.X("value:Q", scale=scale, axis=None)
    kinds = list(dict.fromkeys(record["group"] for record in records))
    offset = {"yOffset": alt.YOffset("group:N", sort=kinds)} if len(kinds) > 1 else {}
    color = color_by("group", series_colors(kinds, theme), "square", symbolStrokeWidth=0)
    tooltip = [alt.Tooltip("group:N"), alt.Tooltip("text:N", title=chart.x)]
    base = data(records)
    layers = [base.mark_bar(cornerRadiusEnd=2).encode(x, y, color, tooltip=tooltip, **offset)]
    if chart.errors:
        whiskers = base.mark_rule(color=theme.text, strokeWidth=1.5)
        ends_of = {"x": alt.X("low:Q", scale=scale, axis=None), "x2": "high:Q"}
        layers.append(whiskers.encode(y=y, **ends_of, **offset))
    beside = alt.X("end:Q", scale=scale, axis=None)
    texts = base.mark_text(align="left", dx=5, color=theme.text)
    layers.append(texts.encode(beside, y, text="text:N", **offset))
    hints = [chart.x] + ([f"{count - MAX_BARS} more are not shown"] if count > MAX_BARS else [])
    per_label = 24 if len(kinds) < 2 else 17 * len(kinds) + 8
    return alt.layer(*layers).properties(width=width - 100, height=max(per_label * len(names), 48)), hints


def draw_histogram(chart: Histogram, theme: Theme, width: int) -> Drawing:
    bins = zip(chart.edges, chart.edges[1:], chart.counts, strict=False)
    records = [{"x": low, "end": high, "y": count or 0} for low, high, count in bins]
    mark = data(records).mark_rect(color=theme.accent, stroke=theme.background, strokeWidth=0.75)
    drawing = mark.encode(
        x=alt.X(
            "x:Q", scale=alt.Scale(nice=False, zero=False), axis=value_axis(chart.x, chart.edges, False, grid=False)
        ),
        x2="end:Q",
        y=alt.Y("y:Q", axis=value_axis(chart.y, [record["y"] for record in records], False)),
        y2=alt.Y2Datum(0),
        tooltip=["x:Q", "end:Q", "y:Q"],
    )
    return alt.layer(drawing).properties(width=width, height=HEIGHT), []


def draw_binned_metric(chart: BinnedMetric, theme: Theme, width: int) -> Drawing:
    metric = get_metric(chart.metric)
    records: Records = [
        {"name": one_line(name, 40), "x": n, "y": value, "text": format_metric(chart.metric, value)}
        for name, values in chart.series.items()
        for n, value in enumerate(values)
        if value is not None
    ]
    labels = [
        [one_line(name, 24), f"{format_number(count)} {chart.unit}".strip()]
        for name, count in zip(chart.bins, chart.counts, strict=True)
    ]
    highest = 1.12 * max((record["y"] for record in records), default=1.0) or 1.0
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[-0.3, len(chart.bins) - 0.7], nice=False),
        axis=alt.Axis(
            values=list(range(len(chart.bins))),
            labelExpr=f"{json.dumps(labels, ensure_ascii=False)}[datum.value]",
            labelLineHeight=15,
            labelFlush=False,
            grid=False,
            title=one_line(chart.x, 60),
        ),
    )
    axis = value_axis(metric_label(chart.metric), [0.0, highest], False, chart.metric)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, highest], nice=False), axis=axis)
    names = list(dict.fromkeys(record["name"] for record in records))
    color = color_by("name", series_colors(names, theme))
    base = data(records).encode(x, y, color)
    tooltip = ["name:N", alt.Tooltip("text:N", title=metric.label)]
    layers = [base.mark_line(strokeWidth=2), base.mark_circle(size=52, opacity=1).encode(tooltip=tooltip)]
    if len(names) == 1:
        texts = data(records).mark_text(dy=-13, color=theme.text)
        layers.append(texts.encode(x, y, text="text:N"))
    return alt.layer(*layers).properties(width=max(width, 90 * len(chart.bins)), height=HEIGHT), []


def draw_scatter(chart: Scatter, theme: Theme, width: int) -> Drawing:
    stride = 1 if chart.labels else -(-len(chart.points) // MAX_SCATTER) or 1
    indices = list(range(0, len(chart.points), stride))[:MAX_SCATTER]
    points = np.array([chart.points[n] for n in indices], float).reshape(-1, 2)
    labels = [one_line(chart.labels[n], 44) or "␣" for n in indices] if chart.labels else []
    height = 2 * width * 9 // 16 if chart.projection else width - 60 if chart.diagonal else HEIGHT
    wide = 2 * width if chart.projection else width - 60 if chart.diagonal else width
    if chart.projection:
        spans = np.ptp(points, axis=0) / (wide - 60, height - 40) if len(points) else np.ones(2)
        middle, unit = (points.max(axis=0) + points.min(axis=0)) / 2, float(spans.max()) or 1.0
        ends = np.stack([middle - np.array([wide, height]) * unit / 2, middle + np.array([wide, height]) * unit / 2])
        domains = [ends[:, 0].tolist(), ends[:, 1].tolist()]
    elif chart.diagonal:
        domains = [padded_domain(points.ravel().tolist(), False)] * 2
    else:
        room = 0.22 if labels else 0.05
        levels = [note.y for note in chart.annotations if note.y is not None]
        domains = [
            padded_domain(points[:, 0].tolist(), chart.log_x, room),
            padded_domain([*points[:, 1].tolist(), *levels], False, 0.12),
        ]
    scales = [
        alt.Scale(domain=domains[0], nice=False, zero=False, type="log" if chart.log_x else "linear"),
        alt.Scale(domain=domains[1], nice=False, zero=False),
    ]
    if chart.projection:
        axes = [alt.Axis(title=t, labels=False, ticks=False, grid=False, domain=True) for t in (chart.x, chart.y)]
    else:
        axes = [
            value_axis(chart.x, domains[0], chart.log_x, grid=False),
            value_axis(chart.y, domains[1], False, chart.metric),
        ]
    x, y = alt.X("x:Q", scale=scales[0], axis=axes[0]), alt.Y("y:Q", scale=scales[1], axis=axes[1])
    groups = [one_line(chart.groups[n] if chart.groups else "", 40) for n in indices]
    hints = [
        one_line(chart.hints[n] if chart.hints else labels[i] if labels else "", 200) for i, n in enumerate(indices)
    ]
    records = [
        {"x": a, "y": b, "group": group, "text": hint}
        for (a, b), group, hint in zip(points.tolist(), groups, hints, strict=True)
    ]
    layers: list[alt.Chart] = []
    if chart.diagonal and len(points):
        line = data([{"x": end, "y": end} for end in domains[0]])
        layers.append(line.mark_line(stroke=theme.muted, strokeDash=[5, 4], strokeWidth=1.25).encode(x, y))
    if chart.frontier and len(points):
        sign = 1 if chart.frontier == "lowest" else -1
        steps: list[dict[str, float]] = []
        for a, b in sorted(points.tolist(), key=lambda point: (point[0], sign * point[1])):
            if not steps or sign * b < sign * steps[-1]["y"]:
                steps.append({"x": a, "y": b})
        steps.append({"x": domains[0][1], "y": steps[-1]["y"]})
        line = data(steps).mark_line(interpolate="step-after", stroke=theme.muted, strokeWidth=1, strokeDash=[2, 3])
        rings = data(steps[:-1]).mark_point(size=260, stroke=theme.muted, strokeWidth=1.25, filled=False)
        layers += [line.encode(x, y), rings.encode(x, y)]
    layers += annotation_layers(chart.annotations, x, y, (domains[0][0], domains[1][1]), theme)
    positions = place_labels(points, labels, domains, (wide, height), chart.log_x) if labels else []
    leaders = [record for record in positions if record["leader"]]
    if leaders:
        rules = data(leaders).mark_rule(color=theme.grid)
        layers.append(
            rules.encode(alt.X("at_x:Q", scale=scales[0]), alt.Y("at_y:Q", scale=scales[1]), x2="x:Q", y2="y:Q")
        )
    kinds = list(dict.fromkeys(groups))
    color = color_by("group", series_colors(kinds, theme), "circle", symbolStrokeWidth=0, columns=6)
    if labels and set(kinds) == set(labels):  # then the labels are the legend
        color["legend"] = None
    few = len(records) <= MAX_PLACED_LABELS
    size, opacity = (
        (110, 1.0) if chart.frontier else (60, 0.9) if labels and few else (26, 0.25 if len(records) > 500 else 0.6)
    )
    tooltip = [
        alt.Tooltip("text:N", title="label"),
        alt.Tooltip("group:N"),
        alt.Tooltip("x:Q", format=".4~g"),
        alt.Tooltip("y:Q", format=".4~g"),
    ]
    layers.append(data(records).mark_circle(size=size, opacity=opacity).encode(x, y, color, tooltip=tooltip))
    for align in ("left", "right", "center"):
        own = [record for record in positions if record["align"] == align]
        if own:
            texts = data(own).mark_text(align=align, baseline="middle", color=theme.text)
            layers.append(texts.encode(x, y, text="label:N"))
    notes = [f"{format_number(len(indices))} of {format_number(len(chart.points))} points are shown"]
    return alt.layer(*layers).properties(width=wide, height=height), notes if len(indices) < len(chart.points) else []


DIRECTIONS = ((1, 0), (-1, 0), (1, 0.7), (1, -0.7), (-1, 0.7), (-1, -0.7), (0, 1), (0, -1))  # around a point
DISTANCES = (9, 17, 27, 40, 58, 80, 106, 136, 170)  # pixels from a point


def place_labels(
    points: np.ndarray, labels: Sequence[str], domains: Sequence[Sequence[float]], size: tuple[int, int], log_x: bool
) -> Records:
    """Returns where labels of points (n,2) stand so that none covers another or a point; others are left out.

    `domains` are the ends of both axes, `size` is width and height of the plot in pixels.
    """
    ends = np.array(domains, float)  # (axes,ends)
    coordinates, transformed = points.copy(), ends.copy()
    if log_x:
        coordinates[:, 0], transformed[0] = np.log(points[:, 0]), np.log(ends[0])
    shares = (coordinates - transformed[:, 0]) / (transformed[:, 1] - transformed[:, 0])
    pixels = shares * size  # (n,2) from the lower left
    taken = np.concatenate([pixels - 5, pixels + 5], axis=1)  # boxes: left, bottom, right, top
    distances = DISTANCES if len(labels) <= MAX_PLACED_LABELS else DISTANCES[:2]
    positions = []

    def candidates(x: float, y: float, wide: float) -> Iterator[tuple[float, float, str, tuple[float, ...], bool]]:
        for distance in distances:
            for right, up in DIRECTIONS:
                a, b = x + distance * right, y + distance * up
                left = a if right > 0 else a - wide if right < 0 else a - wide / 2
                align = "left" if right > 0 else "right" if right < 0 else "center"
                yield a, b, align, (left, b - LINE / 2, left + wide, b + LINE / 2), math.hypot(a - x, b - y) > 18

    for (x, y), label in zip(pixels.tolist(), labels, strict=True):
        for a, b, align, box, leader in candidates(x, y, LETTER * text_width(label)):
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]
            beside = (taken[:, 0] >= box[2]) | (taken[:, 2] <= box[0])
            above = (taken[:, 1] >= box[3]) | (taken[:, 3] <= box[1])
            if inside and (beside | above).all():
                taken = np.concatenate([taken, [box]])
                values = []
                for pixel, axis in ((a, 0), (b, 1), (x, 0), (y, 1)):
                    value = transformed[axis, 0] + pixel / size[axis] * (transformed[axis, 1] - transformed[axis, 0])
                    values.append(math.exp(value) if log_x and axis == 0 else float(value))
                keys = ("x", "y", "at_x", "at_y")
                positions.append(
                    {**dict(zip(keys, values, strict=True)), "label": label, "align": align, "leader": leader}
                )
                break
    return positions


def draw_forecast(chart: ForecastPlot, theme: Theme, width: int) -> Drawing:
    position, is_time = time_positions([*chart.history_times, *chart.times])
    known, ahead, simple = "actual", "forecast", one_line(chart.baseline_name, 30)
    history = [
        {"x": position(t), "y": v, "line": known} for t, v in zip(chart.history_times, chart.history, strict=True)
    ]

    def line(values: Sequence[float | None], name: str) -> Records:
        pairs = zip(chart.times, values, strict=True) if values else ()
        return [{"x": position(t), "y": v, "line": name} for t, v in pairs]

    forecast, baseline = line(chart.forecast, ahead), line(chart.baseline, simple)
    last = [{**record} for record in history if record["y"] is not None][-1:]  # lines begin where history ends
    colors = {known: theme.text, ahead: theme.accent} | ({simple: theme.contrast} if baseline else {})
    color = color_by("line", colors)
    scale = alt.Scale(type="utc", nice=False) if is_time else alt.Scale(nice=False, zero=False)
    axis = (
        alt.Axis(title=None, grid=False, tickCount=6, labelOverlap=True, labelSeparation=8, labelExpr=SHORT_MONTHS)
        if is_time
        else value_axis("", [record["x"] for record in [*history, *forecast]], False, grid=False)
    )
    x = alt.X("x:T" if is_time else "x:Q", scale=scale, axis=axis)
    values = [record["y"] for record in [*history, *forecast] if record["y"] is not None]
    y = alt.Y("y:Q", scale=alt.Scale(zero=False), axis=value_axis(chart.y, values, False))
    layers: list[alt.Chart] = []
    for band in chart.bands:
        limits = zip(chart.times, band.lower, band.upper, strict=True)
        records = [{"x": position(t), "y": a, "high": b} for t, a, b in limits if a is not None and b is not None]
        area = data(records).mark_area(color=theme.accent, opacity=0.18)
        layers.append(area.encode(x, y, alt.Y2("high:Q")))
    if forecast:
        rule = data([{"x": forecast[0]["x"]}]).mark_rule(stroke=theme.muted, strokeDash=[2, 3])
        layers.append(rule.encode(x))
    layers.append(data([*history, *line(chart.actual, known)]).mark_line(strokeWidth=1.5).encode(x, y, color))
    for records, name, options in ((baseline, simple, {"strokeDash": [5, 4]}), (forecast, ahead, {})):
        if records:
            joined = [*({**record, "line": name} for record in last), *records]
            layers.append(data(joined).mark_line(strokeWidth=2, **options).encode(x, y, color))  # type: ignore[arg-type]
    if len(forecast) == 1:
        layers.append(data(forecast).mark_circle(size=60, opacity=1).encode(x, y, color))
    hints = [f"shaded: {', '.join(one_line(band.label) for band in chart.bands)}"] if chart.bands else []
    return alt.layer(*layers).properties(width=width, height=220), hints


def time_positions(times: Sequence[str | int | float]) -> tuple[Callable[[str | int | float], float], bool]:
    """Returns a function from a time to its place on an axis, and whether the places are milliseconds since 1970.

    Numbers are their own place, ISO 8601 texts are moments, other texts are numbered in the order given.
    """
    if all(not isinstance(time, str) for time in times):
        return float, False
    try:
        moments = {str(time): datetime.datetime.fromisoformat(str(time)) for time in times}
    except ValueError:
        order = {time: float(n) for n, time in enumerate(dict.fromkeys(map(str, times)))}
        return lambda time: order[str(time)], False
    stamps = {
        time: 1000 * (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
        for time, moment in moments.items()
    }
    return lambda time: stamps[str(time)], True


def draw_piano_roll(chart: PianoRoll, theme: Theme, width: int) -> Drawing:
    """Time to the right, pitch upward; lines at every C."""
    records = [{"x": start, "end": end, "y": pitch, "top": pitch + 1} for start, end, pitch in chart.notes]
    low, high = (min((n[2] for n in chart.notes), default=58) - 2, max((n[2] for n in chart.notes), default=62) + 3)
    octaves = [pitch for pitch in range(0, 128, 12) if low <= pitch <= high]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[0, chart.frames], nice=False),
        axis=value_axis("frame", [0, chart.frames], False, grid=False),
    )
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[low, high], nice=False, zero=False),
        axis=alt.Axis(title=None, values=octaves, labelExpr="'C' + (datum.value / 12 - 1)"),
    )
    mark = data(records).mark_rect(color=theme.accent, cornerRadius=1, stroke=theme.background, strokeWidth=0.5)
    drawing = mark.encode(x, y, x2="end:Q", y2="top:Q")
    return alt.layer(drawing).properties(width=2 * width, height=max(110, min(5 * (high - low), 320))), []
