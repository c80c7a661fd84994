"""The weights of every attention score over the same queries and keys.

Queries and keys are points x·u on a line with a direction u of length 1. By their product the farthest keys win, by
their distance the nearest; a kernel has an edge or not; a score with weights of its own can learn any of it: here they
are drawn from a normal distribution.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...core.device import derive, global_stream
from ...inspect.result import Arrays, Drawing, NamedArray
from ...inspect.subject import Subject
from ...inspect.views import Request, implement
from ...nn.attention import SCORES, Additive, Concat, attention_pool, make_score
from ...report.charts import HeatmapGrid, Lines, Series, Table, View, matrix, row
from .catalog import Scores

FORMULAS = {
    "dot": "q·k",
    "scaled_dot": "q·k / √d",
    "general": "q·M k",
    "additive": "w·tanh(A q + B k)",
    "concat": "w·tanh(C [q; k])",
    "distance": "−½|q−k|²",
    "gaussian": "exp(−½|q−k|²)",
    "boxcar": "1 if |q−k| ≤ 1",
    "epanechnikov": "max(0, 1 − |q−k|)",
}
CURVES = {
    "By products and learned weights": ("dot", "scaled_dot", "general", "additive"),
    "By distance": ("distance", "boxcar", "epanechnikov"),
}
LINE_END = 3.0  # of the line, on both sides of 0
POINTS = 49  # so that their distances are exact: multiples of 1/8
WIDTH = 16  # d
SEED = 2
QUERY = 1.0  # whose weights are drawn as curves
HIGHEST = 0.2  # weight with the darkest color: most are much smaller


def score_arrays(subject: Subject, request: Request[Scores]) -> Arrays[None]:
    """Returns the weights (score, query, key)."""
    line = point_positions()
    names, points = list(SCORES), [f"{x:.2f}".replace("-", "−") for x in line.tolist()]
    axes = {"score": names, "query": points, "key": points}
    arrays = {"weights": NamedArray(score_weights(line, names).numpy(), axes)}
    note = "concat has the weights of additive, with C = [A B], and gaussian the weights of distance"
    return Arrays("Weights of every attention score over the same queries and keys", arrays, None, [note])


def point_positions() -> Tensor:
    return torch.linspace(-LINE_END, LINE_END, POINTS, dtype=torch.float64)


def score_charts(arrays: Arrays[None]) -> Drawing:
    weights, line = arrays["weights"].values, point_positions()
    names, points, _ = (list(labels) for labels in arrays["weights"].axes.values())
    panels = {f"{name}: {FORMULAS[name]}": matrix(weights[n]) for n, name in enumerate(names)}
    charts: list[View] = [
        HeatmapGrid(
            title=arrays.title,
            note=f"points from {points[0]} to {points[-1]} in one direction, d = {WIDTH}",
            rows=points,
            columns=points,
            panels=panels,
            x="key",
            y="query",
            per_row=3,
            low=0,
            high=HIGHEST,
        )
    ]
    query = int((line - QUERY).abs().argmin())
    for heading, group in CURVES.items():
        series = [Series(name, row(line.numpy()), row(weights[names.index(name), query])) for name in group]
        name = f"{heading}: weights of the query at {points[query]}"
        charts.append(Lines(title=name, x="key", y="weight", series=series))
    rows = []
    for name, values in zip(names, weights[:, query], strict=True):
        best = int(values.argmax())
        rows.append((name, FORMULAS[name], points[best], round(float(values[best]), 3), int((values > 0).sum())))
    columns = ("score", "formula", "largest at", "weight", "keys with a weight")
    table = Table(title=f"Weights of the query at {points[query]}", columns=columns, rows=rows)
    return Drawing(charts, [table])


implement(Scores, score_arrays, score_charts)


def score_weights(line: Tensor, names: list[str]) -> Tensor:
    """Returns the weights (scores, queries, keys) of points on a line."""
    with global_stream(SEED, "scores"):  # parameters are drawn again below
        scores = {name: make_score(name, WIDTH, WIDTH, WIDTH).double() for name in names}
    generator = torch.Generator().manual_seed(derive(SEED, "scores"))
    for score in scores.values():
        for parameter in score.parameters():
            nn.init.normal_(parameter, generator=generator)
    additive, concat = scores.get("additive"), scores.get("concat")
    if isinstance(additive, Additive) and isinstance(concat, Concat):  # the same score with one matrix for both
        with torch.no_grad():
            concat.both.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
            concat.weight.copy_(additive.weight)
    points = (line[:, None] * torch.full((WIDTH,), WIDTH**-0.5, dtype=torch.float64))[None]  # (1,N,d)
    with torch.inference_mode():
        weights = [attention_pool(score(points, score.prepare(points)), points)[1][0] for score in scores.values()]
    return torch.stack(weights)
