"""Charts of trainings: curves, schedule, and quality against cost. A model has the same color in every chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from ..core.metrics import finite, format_metric, get_metric, is_better, label_in_sentence, metric_label
from ..core.run_summary import RunSummary
from ..core.text import format_amount, format_number, one_line
from .charts import Annotation, BinnedMetric, Lines, Scatter, Series, View
from .run_data import BrokenView, Point, RunData, shared_baselines

MAX_TRAINING_POINTS = 120  # of a training curve: each the mean of its share of the steps
MAX_COLORS = 9  # of models in a chart
MAX_STEPS = 400  # of a schedule: each the largest of its share of the steps
SAME_COST = 1.05  # a ratio of costs up to which they are equal
LOG_RATIO = 4.0  # runs that differ by more than this in length are shown on a logarithmic axis
Axis = Literal["seconds", "tokens"]


def training_curves(runs: Sequence[RunData], over: Axis = "seconds", metric: str = "loss") -> Lines:
    """Returns training and validation loss, or another metric, over the time or the elements that they took.

    With several runs the steep beginning may leave the chart: they differ near their end. Of several seeds it shows the
    mean validation curve, and thin the curve of each instead of the training loss.
    """
    several = any(len(run.runs) > 1 for run in runs)
    training = {run.label: thin_out(run.training) if metric == "loss" and not several else [] for run in runs}
    validation = {run.label: run.evaluations(metric) for run in runs}
    trained = [run for run in runs if not run.gradient_free]
    paths = [validation[run.label] or training[run.label] for run in (trained or runs)]
    ends = [getattr(path[-1], over) for path in paths if path]
    starts = [getattr(points[0], over) for points in validation.values() if points]
    of_seeds = [one.evaluations(metric) for run in (trained or runs) for one in run.runs]
    longest = max([*ends, *(getattr(path[-1], over) for path in of_seeds if path)], default=1.0) or 1.0
    unit = ""
    factor = 1.0
    if over == "seconds":
        unit, factor = (
            ("seconds", 1.0) if longest < 300 else ("minutes", 1 / 60) if longest < 10_800 else ("hours", 1 / 3600)
        )
    log = len(trained) > 1 and longest / min((end for end in ends if end > 0), default=longest) > LOG_RATIO
    first = factor * (0.5 * min((start for start in starts if start > 0), default=longest / 10) if log else 0.0)

    curves = [(run, run.label, validation[run.label], False) for run in runs]
    curves += [(run, f"{run.label} training", training[run.label], True) for run in runs if not run.gradient_free]
    seeded = [(run, one) for run in runs if len(run.runs) > 1 for one in run.runs]
    curves += [(run, f"{run.label} seed {one.setting('seed')}", one.evaluations(metric), True) for run, one in seeded]
    series: list[Series] = []
    for run, name, points, thin in curves:
        x, y = [factor * getattr(point, over) for point in points], [point.value for point in points]
        if run.gradient_free and points:  # one value, from the first moment on
            x, y = [first, factor * longest], [y[-1], y[-1]]
        selected = [(a, b) for a, b in zip(x, y, strict=True) if not log or a >= first]
        if points:
            xs, ys = tuple(a for a, _ in selected), tuple(b for _, b in selected)
            series.append(Series(name, xs, ys, run.gradient_free, thin, run.label))
    low, high = value_range(runs, training, validation, metric)
    baselines: list[Series] = []
    beyond: list[str] = []
    for name, values in shared_baselines(runs, "validation").items():
        value = finite(values.get(metric))
        room = high - low
        if value is not None and low - room <= value <= high + room:  # else the curves would be squeezed
            low, high = min(low, value - 0.03 * room), max(high, value + 0.03 * room)
            baselines.append(Series(name, (first, factor * longest), (value, value), True, False, name))
        elif value is not None:
            beyond.append(f"{name} {format_metric(metric, value)}")
    hints = ["thick: validation, thin: training" if any(training.values()) else "on the validation split"]
    hints += ["thick: mean of the seeds, thin: each seed"] if several else []
    dashed = ["fitted in one pass"] if any(line.dashed for line in series) else []
    dashed += ["baselines"] if baselines else []
    hints += [f"dashed: {' and '.join(dashed)}"] if dashed else []
    hints += [f"outside: {', '.join(beyond)}"] if beyond else []
    per = f", {runs[0].loss_unit} per token" if runs and runs[0].loss_unit and metric == "loss" else ""
    return Lines(
        title=f"{metric_label(metric)}{per}",
        note=", ".join(hints),
        series=(*series, *baselines),
        x=(f"training time in {unit}" if over == "seconds" else f"training {runs[0].unit}")
        + (", log scale" if log else ""),
        y="",
        log_x=log,
        metric=metric,
        low=low,
        high=high,
    )


def value_range(
    runs: Sequence[RunData], training: dict[str, list[Point]], validation: dict[str, list[Point]], metric: str
) -> tuple[float, float]:
    """Returns the ends of the axis of a metric; of several runs, what is worse than their second evaluation is cut."""
    values = [point.value for paths in (training, validation) for points in paths.values() for point in points]
    low, high = min(values, default=0.0), max(values, default=1.0)
    second = [points[min(1, len(points) - 1)].value for points in validation.values() if points]
    if len(runs) > 1 and second:
        if get_metric(metric).direction == "higher":
            low = min(second)
        else:
            high = max(second)
    pad = max(0.05 * (high - low), abs(high) * 0.005 if high > low else max(abs(high) * 0.1, 0.01), 1e-6)
    floor = 0.0 if get_metric(metric).percent and low >= 0 else -math.inf  # no share is below 0
    return max(low - pad, floor), high + pad


def thin_out(points: Sequence[Point]) -> list[Point]:
    """Returns at most `MAX_TRAINING_POINTS` points, each the mean of the values since the one before."""
    size = max(math.ceil(len(points) / MAX_TRAINING_POINTS), 1)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [
        Point(group[-1].step, group[-1].seconds, group[-1].tokens, math.fsum(p.value for p in group) / len(group))
        for group in groups
    ]


# Schedule


def clipped_steps(run: RunData) -> tuple[int, int, float | None]:
    """Returns at how many of how many recorded steps the gradient was clipped, and above which norm."""
    level = finite(run.setting("train", "clip"))
    norms = [norm for _, norm in run.steps("grad_norm")]
    return sum(level is not None and norm > level for norm in norms), len(norms), level


def clipping_note(run: RunData) -> str:
    """Returns a sentence on how often gradients were clipped; empty if none were recorded."""
    clipped, count, level = clipped_steps(run)
    if not count:
        return ""
    if level is None:
        return "Gradients were not clipped."
    share = 100 * clipped / count
    steps = f"{count:,} recorded steps"
    if not clipped:
        return f"Gradients with a norm above {format_number(level)} would have been clipped; at {steps} there was none."
    return (
        f"Gradients with a norm above {format_number(level)} were clipped: at {clipped:,} of {steps} "
        f"({share:.{0 if share >= 1 else 1}f} %)."
    )


def schedule_charts(run: RunData) -> list[Lines]:
    """Returns the learning rate and the gradient norm over the steps; empty for a model without gradient descent."""

    def chart(key: str, title: str, **options: Any) -> Lines:
        steps = run.steps(key)
        size = -(-len(steps) // MAX_STEPS) or 1
        selected = [max(steps[at : at + size], key=lambda pair: pair[1]) for at in range(0, len(steps), size)]
        x, y = tuple(float(step) for step, _ in selected), tuple(value for _, value in selected)
        line = Series(title.lower(), x, y, thin=key == "grad_norm")
        return Lines(title=title, series=(line,), x="step", y="", **options)

    if not run.steps("lr") and not run.steps("grad_norm"):
        return []
    clipped, count, level = clipped_steps(run)
    dots = tuple((float(step), norm) for step, norm in run.steps("grad_norm") if level is not None and norm > level)
    return [
        chart("lr", "Learning rate", low=0.0),
        chart(
            "grad_norm",
            "Gradient norm before clipping",
            log_y=True,
            points=dots[:MAX_STEPS],
            annotations=() if level is None else (Annotation(f"clipped above {format_number(level)}", y=level),),
            note=f"dots: clipped, {clipped:,} of {count:,} recorded steps" if clipped else "",
        ),
    ]


# Comparison


def compute(results: RunSummary) -> float | None:
    return results.flops


def processor_time(results: RunSummary) -> float | None:
    return results.cpu_seconds


COSTS: dict[str, Callable[[RunSummary], float | None]] = {  # title of the axis → the cost of a run
    "training compute in FLOP": compute,
    "training time in seconds": lambda results: results.seconds,
    "processor time in seconds": processor_time,
    "peak memory in bytes": lambda results: results.memory,
}


def cost_charts(runs: Sequence[RunData]) -> list[Scatter]:
    """Returns the main metric on the validation split against compute, and against time and memory if these differ.

    Baselines, and models without such a cost, are lines across the chart as far as they are near the others.
    """
    scored = [run for run in runs if run.reached() is not None]
    charts = []
    for title, cost_of in COSTS.items():
        if cost_of is processor_time and all(run.results.threads in (None, 1) for run in scored):  # then it is the time
            continue
        costed = [run for run in scored if cost_of(run.results)]
        costs = [float(cost_of(run.results) or 1.0) for run in costed]
        if len(costed) > 1 and (cost_of is compute or max(costs) / min(costs) > SAME_COST):
            values = [float(run.reached() or 0.0) for run in costed]
            main, room = scored[0].main, 2 * (max(values) - min(values))
            levels = {run.label: run.reached() for run in scored if run not in costed}
            levels |= {name: finite(own.get(main)) for name, own in shared_baselines(runs, "validation").items()}
            known = {name: float(value) for name, value in levels.items() if value is not None}
            near = {name for name, value in known.items() if min(values) - room <= value <= max(values) + room}
            notes = [Annotation(name, y=value) for name, value in known.items() if name in near]
            outside = [f"{name} {format_metric(main, value)}" for name, value in known.items() if name not in near]
            chart = quality_scatter(costed, costs, values, main, title, "validation", levels=notes)
            if outside:
                chart = replace(chart, note=f"ringed: the Pareto front; outside: {', '.join(outside)}")
            charts.append(chart)
    return charts


def quality_scatter(
    runs: Sequence[RunData],
    costs: Sequence[float],
    values: Sequence[float],
    metric: str,
    cost: str,
    split: str,
    frontier: bool = True,
    levels: Sequence[Annotation] = (),
) -> Scatter:
    """Returns a metric of models over what they cost, each a point with its label."""
    lower = get_metric(metric).direction != "higher"
    labels = tuple(run.label for run in runs)
    groups = tuple(run.label.partition("-")[0] for run in runs)  # sizes of one model have one color
    hints = [f"{run.label}: {format_amount(value)} {cost}" for run, value in zip(runs, costs, strict=True)]
    return Scatter(
        title=f"{split.capitalize()} {label_in_sentence(metric)} against {cost.partition(' in ')[0]}",
        note="dotted and ringed: the Pareto front, the best for at most so much" if frontier else "",
        points=list(zip(costs, values, strict=True)),
        labels=labels,
        groups=labels if len(runs) <= MAX_COLORS else groups,
        hints=hints,
        x=cost,
        y="",
        log_x=max(costs) / min(costs) > 2,
        frontier=("lowest" if lower else "highest") if frontier else "",
        metric=metric,
        annotations=levels,
    )


def best_value(metric: str, values: Sequence[float]) -> float | None:
    """Returns the best of values, None if there are none or the metric has no direction."""
    if not values or get_metric(metric).direction == "neither":
        return None
    best = values[0]
    for value in values:
        best = value if is_better(metric, value, best) else best
    return best


def joined_charts(runs: Sequence[RunData], views: Sequence[Sequence[View | BrokenView]]) -> list[View]:
    """Returns the charts of several runs with the same `join` as one chart each, with a line per run."""
    groups: dict[tuple[str, str], list[tuple[RunData, View]]] = {}
    for run, own in zip(runs, views, strict=True):
        for view in own:
            if isinstance(view, Lines | BinnedMetric) and view.join:
                groups.setdefault((view.kind, view.join), []).append((run, view))
    return [chart for pairs in groups.values() if (chart := join_views(pairs)) is not None]


def join_views(pairs: Sequence[tuple[RunData, View]]) -> View | None:
    """Returns one chart made of the charts of several runs, None if fewer than two fit together."""
    first = pairs[0][1]
    if isinstance(first, BinnedMetric):
        same = [(run, view) for run, view in pairs if isinstance(view, BinnedMetric) and view.bins == first.bins]
        series = {run.label: next(iter(view.series.values()), ()) for run, view in same}
        if len(same) < 2:
            return None
        return BinnedMetric(
            title=first.title, note=first.note, metric=first.metric, x=first.x, bins=first.bins, counts=first.counts,
            unit=first.unit, series=series,
        )  # fmt: skip
    lines = [(run, view) for run, view in pairs if isinstance(view, Lines)]
    if not isinstance(first, Lines) or len(lines) < 2:
        return None
    joined: list[Series] = []
    for run, view in lines:
        heads = {line.name.partition(", ")[0] for line in view.series}
        for line in view.series:  # "rnn, before training" of a run "rnn (a)" becomes "rnn (a), before training"
            rest = line.name.partition(", ")[2] if len(heads) == 1 else line.name
            name = f"{run.label}, {rest}" if rest else run.label
            joined.append(Series(one_line(name, 60), line.x, line.y, line.dashed, line.thin, run.label))
    return Lines(
        title=first.title, note=first.note, series=joined, x=first.x, y=first.y, log_x=first.log_x,
        log_y=first.log_y, markers=first.markers, annotations=first.annotations, metric=first.metric,
    )  # fmt: skip
