"""Position vectors with their similarity by distance, and the weights of every attention score.

Sinusoids are similar by distance alone, at every position: p_i·p_j = Σ_k cos((i−j) ω_k). Learned vectors have to find
such an order; before training there is none.

Of the scores, queries and keys are points x·u on a line with a direction u of length 1. By their product the farthest
keys win, by their distance the nearest; a kernel has an edge or not; a score with weights of its own can learn any of
it: here they are drawn from a normal distribution.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...core.device import derive
from ...nn.attention import SCORES, Additive, Concat, attention_pool, make_score
from ...nn.layers import LearnedPositions, SinusoidalPositions, sinusoids
from ...report.charts import Heatmap, HeatmapGrid, Lines, Series, Table, View, matrix, row
from ..result import NamedArray, Result
from ..subject import Subject
from . import view

MAX_POSITIONS = 512
MAX_CELLS = 96  # positions and numbers of the matrix that are drawn
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)  # in the table


def position_module(subject: Subject) -> nn.Embedding | SinusoidalPositions | None:
    module = dict(subject.backbone.named_children()).get("positions")
    return module if isinstance(module, nn.Embedding | SinusoidalPositions) else None


@view(
    "positions",
    {"has no position vectors": lambda subject: position_module(subject) is None},
    network=True,
)
def show_positions(subject: Subject) -> Result:
    """Up to the context length of the model, at most 512 positions."""
    module = position_module(subject)
    if isinstance(module, SinusoidalPositions):
        kind = "sinusoidal"
        values = (module.scale * sinusoids(0, MAX_POSITIONS, module.width)).float().numpy()
    else:
        assert module is not None
        kind = "learned" if subject.trained else "before training"
        first = module.offset if isinstance(module, LearnedPositions) else 0
        values = module.weight[first : first + MAX_POSITIONS].detach().float().cpu().numpy()
    count, width = values.shape
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    cosines = unit @ unit.T
    by_distance = cosines_by_distance(cosines)
    positions, numbers = [str(n) for n in range(count)], [str(n) for n in range(width)]
    title = f"Position vectors: {subject.label}, {kind}"
    distances = range(count)
    names = ("mean of all pairs", "lowest tenth", "highest tenth")[: 1 if kind == "sinusoidal" else 3]
    series = [Series(name, distances, row(line)) for name, line in zip(names, by_distance, strict=False)]
    rows = min(count, MAX_CELLS)
    columns = [n for n in range(width) if n // 2 % -(-width // MAX_CELLS) == 0]  # a sine beside its cosine
    charts: list[View] = [
        Heatmap(
            title=title,
            note=f"the first {rows} of {count} positions, {len(columns)} of {width} numbers",
            rows=positions[:rows],
            columns=[numbers[n] for n in columns],
            values=matrix(values[:rows, columns]),
            x="number of the vector",
            y="position",
            diverging=True,
        ),
        Heatmap(
            title="Cosines of position vectors",
            rows=positions,
            columns=positions,
            values=matrix(cosines),
            x="position",
            y="position",
            low=-1,
            high=1,
            diverging=True,
        ),
        Lines(title="Similarity by distance", x="distance", y="cosine", series=series),
    ]
    arrays = {
        "vectors": NamedArray(values, {"position": positions, "number": numbers}),
        "cosines": NamedArray(cosines, {"position": positions, "other position": positions}),
        "by distance": NamedArray(
            by_distance, {"of all pairs": ["mean", "lowest tenth", "highest tenth"], "distance": positions}
        ),
    }
    lines = [(n, round(float(by_distance[0, n]), 3)) for n in DISTANCES if n < count]
    table = Table(title="Similarity by distance", columns=("distance", "mean cosine"), rows=lines)
    return Result(title, arrays, charts, (), [table])


def cosines_by_distance(cosines: np.ndarray) -> np.ndarray:
    """Returns mean, 10 % and 90 % quantile of the cosines of all pairs at each distance (3,n)."""
    diagonals = [np.diagonal(cosines, offset) for offset in range(len(cosines))]
    return np.array([[line.mean(), *np.quantile(line, (0.1, 0.9))] for line in diagonals]).T


# Scores

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


@view("scores")
def show_scores(subject: Subject) -> Result:
    """The same for every model: which score it uses is one of its settings."""
    line = torch.linspace(-LINE_END, LINE_END, POINTS, dtype=torch.float64)
    points = [f"{x:.2f}".replace("-", "−") for x in line.tolist()]
    names = list(SCORES)
    weights = score_weights(line, names).numpy()
    title = "Weights of every attention score over the same queries and keys"
    panels = {f"{name}: {FORMULAS[name]}": matrix(weights[n]) for n, name in enumerate(names)}
    charts: list[View] = [
        HeatmapGrid(
            title=title,
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
    array = NamedArray(weights, {"score": names, "query": points, "key": points})
    note = "concat has the weights of additive, with C = [A B], and gaussian those of distance"
    return Result(title, {"weights": array}, charts, [note], [table])


def score_weights(line: Tensor, names: list[str]) -> Tensor:
    """Returns the weights (scores, queries, keys) of points on a line."""
    with torch.random.fork_rng(devices=[]):  # parameters are drawn again below
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
