"""Position vectors, and their similarity by distance.

Sinusoids are similar by distance alone, at every position: p_i·p_j = Σ_k cos((i−j) ω_k). Learned vectors have to find
such an order; before training there is none.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from ...nn.layers import LearnedPositions, SinusoidalPositions, sinusoids
from ...report.charts import Heatmap, Lines, Series, Table, View, matrix, row
from ..catalog import Positions
from ..result import Arrays, Drawing, NamedArray
from ..subject import Subject
from . import Request, implement

MAX_POSITIONS = 512
MAX_CELLS = 96  # positions and numbers of the matrix that are drawn
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)  # in the table


def position_module(subject: Subject) -> nn.Embedding | SinusoidalPositions | None:
    module = dict(subject.backbone.named_children()).get("positions")
    return module if isinstance(module, nn.Embedding | SinusoidalPositions) else None


def position_arrays(subject: Subject, request: Request[Positions]) -> Arrays[bool]:
    """Returns the vectors (n,D), their cosines (n,n), and these by distance (3,n); the fact is whether they are
    sinusoids."""
    module = position_module(subject)
    if isinstance(module, SinusoidalPositions):
        kind = "sinusoidal"
        values = (module.scale * sinusoids(0, MAX_POSITIONS, module.width)).float().numpy()
    else:
        assert module is not None
        kind = "learned" if subject.trained else "before training"
        first = module.offset if isinstance(module, LearnedPositions) else 0
        values = module.weight[first : first + MAX_POSITIONS].detach().float().cpu().numpy()
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    cosines = unit @ unit.T
    positions, numbers = ([str(n) for n in range(size)] for size in values.shape)
    arrays = {
        "vectors": NamedArray(values, {"position": positions, "number": numbers}),
        "cosines": NamedArray(cosines, {"position": positions, "other position": positions}),
        "by distance": NamedArray(
            cosines_by_distance(cosines),
            {"of all pairs": ["mean", "lowest tenth", "highest tenth"], "distance": positions},
        ),
    }
    return Arrays(f"Position vectors: {subject.label}, {kind}", arrays, isinstance(module, SinusoidalPositions))


def position_charts(arrays: Arrays[bool]) -> Drawing:
    values, by_distance = arrays["vectors"].values, arrays["by distance"].values
    positions, numbers = (list(labels) for labels in arrays["vectors"].axes.values())
    count, width = values.shape
    names = ("mean of all pairs", "lowest tenth", "highest tenth")[: 1 if arrays.facts else 3]
    series = [Series(name, range(count), row(line)) for name, line in zip(names, by_distance, strict=False)]
    rows = min(count, MAX_CELLS)
    columns = [n for n in range(width) if n // 2 % -(-width // MAX_CELLS) == 0]  # a sine beside its cosine
    charts: list[View] = [
        Heatmap(
            title=arrays.title,
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
            values=matrix(arrays["cosines"].values),
            x="position",
            y="position",
            low=-1,
            high=1,
            diverging=True,
        ),
        Lines(title="Similarity by distance", x="distance", y="cosine", series=series),
    ]
    lines = [(n, round(float(by_distance[0, n]), 3)) for n in DISTANCES if n < count]
    return Drawing(charts, [Table(title="Similarity by distance", columns=("distance", "mean cosine"), rows=lines)])


implement(
    Positions,
    position_arrays,
    position_charts,
    {"has no position vectors": lambda subject: position_module(subject) is None},
    network=True,
)


def cosines_by_distance(cosines: np.ndarray) -> np.ndarray:
    """Returns mean, 10 % and 90 % quantile of the cosines of all pairs at each distance (3,n)."""
    diagonals = [np.diagonal(cosines, offset) for offset in range(len(cosines))]
    return np.array([[line.mean(), *np.quantile(line, (0.1, 0.9))] for line in diagonals]).T
