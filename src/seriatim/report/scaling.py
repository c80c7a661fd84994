"""Scaling curves: how the loss falls with parameters, compute and time, as a power law with its error.

    L(x) = a · x^−α        log L = log a − α log x

The line is fitted by ordinary least squares to one point per size, the mean over its seeds: seeds of one size are no
further sizes, and would make the error too small. The error is the standard error of the slope, with n − 2 degrees of
freedom; two sizes have none. There is no lower bound L∞ in it, so it does not show how far the line goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..core.files import Json
from ..core.metrics import finite, format_metric, label_in_sentence
from ..core.run_summary import RunSummary
from ..core.text import format_amount
from .charts import Lines, Series, Table, View
from .run_data import RunData, mapping

AXES: dict[str, tuple[str, Callable[[RunSummary], float | None]]] = {  # name → title, and the cost of a run
    "parameters": ("parameters", lambda results: results.parameters),
    "flops": ("training compute in FLOP", lambda results: results.flops),
    "seconds": ("training time in seconds", lambda results: results.seconds),
}
MIN_RANGE = 1.5  # of a cost, below which it is the same for all sizes


@dataclass(frozen=True)
class PowerLaw:
    """A fitted power law: `exponent` α, its standard `error` (None of two points), the `factor` a, and R²."""

    exponent: float
    error: float | None
    factor: float
    r2: float

    def at(self, x: float) -> float:
        return self.factor * x**-self.exponent


@dataclass(frozen=True)
class Curve:
    """The sizes of one model, smallest first: their costs x, their losses y, and the power law, if there is one."""

    model: str
    runs: tuple[RunData, ...]
    over: str
    metric: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    law: PowerLaw | None


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """Returns the power law through points, None if there are not two costs or values are not positive."""
    if len(set(x)) < 2 or min(*x, *y) <= 0:
        return None
    u, v = [math.log(value) for value in x], [math.log(value) for value in y]
    mean_u, mean_v = fmean(u), fmean(v)
    square = math.fsum((a - mean_u) ** 2 for a in u)
    slope = math.fsum((a - mean_u) * (b - mean_v) for a, b in zip(u, v, strict=True)) / square
    residual = math.fsum((b - mean_v - slope * (a - mean_u)) ** 2 for a, b in zip(u, v, strict=True))
    total = math.fsum((b - mean_v) ** 2 for b in v)
    error = math.sqrt(residual / (len(x) - 2) / square) if len(x) > 2 else None
    return PowerLaw(-slope, error, math.exp(mean_v - slope * mean_u), 1 - residual / total if total else 1.0)


def scaling_curves(runs: Sequence[RunData]) -> list[Curve]:
    """Returns the curve of each model that was trained at several sizes, over each cost that its sizes differ in."""
    groups: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        if run.budget is not None and run.reached() is not None and not run.interrupted:
            tokenizer = json.dumps(mapping(run.setting("task", "tokenizer")), sort_keys=True)
            groups.setdefault((run.model, tokenizer), []).append(run)
    several = len({tokenizer for _, tokenizer in groups}) > 1
    curves = []
    for (model, tokenizer), own in groups.items():
        if len({run.budget for run in own}) < 2:
            continue
        name = f"{model} {json.loads(tokenizer).get('kind', '')}".rstrip() if several else model
        metric = own[0].main if own[0].main == "bits_per_byte" else "loss"
        for over, (_, cost_of) in AXES.items():
            points = []
            for run in own:
                cost, value = cost_of(run.results), finite(run.metrics("validation").get(metric))
                if cost and value is not None:
                    points.append((float(cost), float(value), run))
            points.sort(key=lambda point: point[0])
            if len(points) > 1 and points[-1][0] / points[0][0] >= MIN_RANGE:
                x, y = tuple(point[0] for point in points), tuple(point[1] for point in points)
                ordered = tuple(point[2] for point in points)
                curves.append(Curve(name, ordered, over, metric, x, y, fit_power_law(x, y)))
    return curves


def scaling_records(runs: Sequence[RunData]) -> list[Json]:
    """Returns the curves as JSON can hold them."""
    return [
        {
            "model": curve.model,
            "metric": f"val_{curve.metric}",
            "over": curve.over,
            "x": list(curve.x),
            "y": list(curve.y),
            "exponent": None if curve.law is None else curve.law.exponent,
            "exponent_error": None if curve.law is None else curve.law.error,
            "factor": None if curve.law is None else curve.law.factor,
            "r2": None if curve.law is None else curve.law.r2,
        }
        for curve in scaling_curves(runs)
    ]


def scaling_views(curves: Sequence[Curve]) -> list[View]:
    """Returns a chart over each cost, and the table of exponents."""
    views: list[View] = []
    for over, (title, _) in AXES.items():
        own = [curve for curve in curves if curve.over == over]
        if not own:
            continue
        lines = [Series(curve.model, curve.x, curve.y, False, False, curve.model) for curve in own]
        for curve in own:
            if curve.law is not None:
                ends = (curve.x[0], curve.x[-1])
                fit = tuple(curve.law.at(x) for x in ends)
                lines.append(Series(f"{curve.model}, power law", ends, fit, True, True, curve.model))
        metric = own[0].metric
        heading = f"Validation {label_in_sentence(metric)} against {title.partition(' in ')[0]}"
        views.append(
            Lines(
                title=heading, note="dashed: the power law", series=lines, x=f"{title}, log scale", y="", log_x=True,
                log_y=True, markers=True, metric=metric,
            )
        )  # fmt: skip
    rows = [
        (
            curve.model,
            AXES[curve.over][0].partition(" in ")[0],
            *format_law(curve.law),
            " → ".join(format_metric(curve.metric, value) for value in (curve.y[0], curve.y[-1])),
        )
        for curve in curves
    ]
    columns = ("model", "over", "exponent α", "R²", "ten times as much", "smallest → largest")
    return [*views, Table(title="Power laws", columns=columns, rows=rows)] if rows else views


def format_law(law: PowerLaw | None) -> tuple[str, str, str]:
    """Returns exponent and error, R², and what ten times as much does to the loss."""
    if law is None:
        return "–", "–", "–"
    error = "" if law.error is None else f" ± {law.error:.3f}"
    change = 100 * (10**-law.exponent - 1)
    return f"{law.exponent:.3f}{error}", f"{law.r2:.2f}", f"{change:+.0f} %".replace("-", "−")


def best_by_size(runs: Sequence[RunData]) -> str:
    """Returns which model is best at each size, in a sentence; "" if there is one size."""
    sizes: dict[int, list[RunData]] = {}
    for run in runs:
        if run.budget is not None and run.score is not None and not run.interrupted:
            sizes.setdefault(run.budget, []).append(run)
    if len(sizes) < 2:
        return ""
    parts = []
    for size, own in sorted(sizes.items()):
        best = min(own, key=lambda run: run.score if run.score is not None else math.inf)
        parts.append(f"{format_amount(size)} {best.model} ({format_metric(best.main, best.reached())})")
    return f"Best at each size: {', '.join(parts)}. The differences between models at one size are not tested."
