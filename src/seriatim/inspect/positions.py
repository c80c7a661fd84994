"""The vectors of places, and how alike they are by distance.

Sinusoids are alike by distance alone, whatever the place: p_i·p_j = Σ_k cos((i−j) ω_k). What is learned must find such
an order by itself; before training there is none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from ..nn.positions import Sinusoidal, sinusoids
from .seen import Array, Seen
from .sights import describes
from .subject import Subject

PLACES = 512  # that are looked at
DRAWN = 96  # places and numbers of the matrix that are drawn


def suits(subject: Subject) -> str:
    if subject.counts:
        return "counts, and has no vectors of places"
    return "" if _positions(subject) is not None else "has no vectors of places: it knows the order by its structure"


def look(subject: Subject) -> Seen:
    """Up to the context of the model, at most 512 places."""
    values, kind = table(subject)
    count, width = values.shape
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    cosines = unit @ unit.T
    apart = by_distance(cosines)
    places, numbers = [str(place) for place in range(count)], [str(number) for number in range(width)]
    title = f"Vectors of places: {subject.label}, {kind}"
    series = [["mean of all pairs", [[d, float(mean)] for d, mean in enumerate(apart[0])]]]
    if kind != "sinusoidal":
        series += [
            ["lowest tenth", [[d, float(low)] for d, low in enumerate(apart[1])]],
            ["highest tenth", [[d, float(high)] for d, high in enumerate(apart[2])]],
        ]
    down, along = list(range(min(count, DRAWN))), _pairs(width)
    views: list[dict[str, Any]] = [
        {"kind": "signed", "title": title, "rows": places[: len(down)], "columns": [numbers[j] for j in along],
         "x": "number of the vector", "y": "place", "values": values[np.ix_(down, along)].tolist(),
         "note": f"the first {len(down)} of {count} places, {len(along)} of {width} numbers"},
        {"kind": "signed", "title": "Cosines of the vectors of places", "rows": places, "columns": places,
         "x": "place", "y": "place", "values": cosines.tolist(), "low": -1, "high": 1},
        {"kind": "lines", "title": "How alike places are by their distance", "x": "distance", "y": "cosine",
         "series": series},
    ]  # fmt: skip
    arrays = {
        "vectors": Array(values, (("place", places), ("number", numbers))),
        "cosines": Array(cosines, (("place", places), ("other place", places))),
        "by distance": Array(
            apart, (("of all pairs", ("mean", "lowest tenth", "highest tenth")), ("distance", places))
        ),
    }
    return Seen(title, arrays, views, _lines(apart[0]))


def table(subject: Subject) -> tuple[np.ndarray, str]:
    """(places, width), and "sinusoidal", "learned" or "before training"."""
    found = _positions(subject)
    if isinstance(found, Sinusoidal):
        return sinusoids(0, min(PLACES, _taught(subject)), found.width).float().numpy(), "sinusoidal"
    if not isinstance(found, nn.Embedding):
        raise subject.lacks(suits(subject), "choose a Transformer")
    kind = "learned" if subject.trained else "before training"
    with torch.inference_mode():
        return found.weight[:PLACES].float().cpu().numpy(), kind


def by_distance(cosines: np.ndarray) -> np.ndarray:
    """Over all pairs so far apart: the mean, and what a tenth of them lie below and above (3,n)."""
    diagonals = [np.diagonal(cosines, offset) for offset in range(len(cosines))]
    return np.array([[some.mean(), *np.quantile(some, (0.1, 0.9))] for some in diagonals]).T


def _positions(subject: Subject) -> nn.Module | None:
    found = getattr(subject.backbone, "positions", None)
    return found if isinstance(found, nn.Embedding | Sinusoidal) else None


def _taught(subject: Subject) -> int:
    if describes(subject):
        return max(math.prod(subject.run.predictor.grid), subject.run.predictor.coder.longest)  # type: ignore[union-attr]
    return PLACES if subject.run is None else subject.reader.limit or PLACES


def _pairs(width: int) -> list[int]:
    """Numbers of a vector, evenly spread, two by two: a sine stands beside its cosine."""
    every = -(-width // DRAWN)
    return [number for number in range(width) if number // 2 % every == 0]


def _lines(mean: np.ndarray) -> list[str]:
    distances = [d for d in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256) if d < len(mean)]
    return [f"distance {d:>4}  cosine {mean[d]:6.3f}".replace("-", "−") for d in distances]
