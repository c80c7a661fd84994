"""Weights of every attention score over the same queries and keys, so that one sees what each takes for near.

Queries and keys are points on a line, x·u with one direction u of length 1. By their product those that lie furthest
out win, by their distance those that lie near; a kernel has an edge or has none; a score with weights of its own can
learn any of it: here they are drawn, once and for all, from a normal distribution.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core.random import derive
from ..nn.attention import KERNELS, SCORES, Score, make_score, pool
from ..nn.scores import Additive, Concat
from .seen import Array, Seen
from .subject import Subject

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
ENDS = 3.0  # of the line, on both sides of 0
POINTS = 49  # so that their distances are exact: multiples of 1/8
WIDTH = 16  # d
SEED = 2  # by which M turns the line round
ASKED = 1.0  # the query whose weights are drawn as curves
DEEPEST = 0.2  # the weight of the deepest colour: most are much smaller
CURVES = {
    "By products and learned weights": ("dot", "scaled_dot", "general", "additive"),
    "By distance": ("distance", "boxcar", "epanechnikov"),
}
SAME = "concat has the weights of additive, with C = [A B], and gaussian those of distance"


def suits(subject: Subject) -> str:
    return ""


def look(subject: Subject) -> Seen:
    """The same for every model: which of them it may use is one of its settings."""
    line = torch.linspace(-ENDS, ENDS, POINTS, dtype=torch.float64)
    places = [f"{x:.2f}".replace("-", "−") for x in line.tolist()]
    names = [*SCORES, *KERNELS]
    values = weights(line, names)
    title = "Weights of every score over the same queries and keys"
    panels = [[f"{name}: {FORMULAS[name]}", values[index].tolist()] for index, name in enumerate(names)]
    note = f"points from {places[0]} to {places[-1]} along one direction, d = {WIDTH}"
    views = [
        {"kind": "heats", "title": title, "rows": places, "columns": places, "x": "key", "y": "query",
         "panels": panels, "across": 3, "high": DEEPEST, "note": note}
    ]  # fmt: skip
    row = int((line - ASKED).abs().argmin())
    for heading, some in CURVES.items():
        series = [
            [name, [[x, y] for x, y in zip(line.tolist(), values[names.index(name), row].tolist(), strict=True)]]
            for name in some
        ]
        views.append(
            {"kind": "lines", "title": f"{heading}: weights of the query at {places[row]}", "x": "key", "y": "weight",
             "series": series}
        )  # fmt: skip
    array = Array(values.numpy(), (("score", names), ("query", places), ("key", places)))
    return Seen(title, {"weights": array}, views, _lines(names, values[:, row], places), [SAME])


def weights(line: Tensor, names: list[str]) -> Tensor:
    """(scores, queries, keys) for points on a line."""
    with torch.random.fork_rng(devices=[]):  # what a score begins with is drawn below once more
        made = {name: make_score(name, WIDTH, WIDTH, WIDTH).double() for name in names}
    drawn = torch.Generator().manual_seed(derive(SEED, "scores"))
    for score in made.values():
        for weight in score.parameters():
            nn.init.normal_(weight, generator=drawn)
    _share(made)
    points = (line[:, None] * torch.full((WIDTH,), WIDTH**-0.5, dtype=torch.float64))[None]  # (1,N,d)
    with torch.inference_mode():
        found = [pool(score(points, score.prepare(points)), points)[1][0] for score in made.values()]
    return torch.stack(found)


def _share(made: dict[str, Score]) -> None:
    """Concat is additive with one matrix for both: the same weights show it."""
    additive, concat = made.get("additive"), made.get("concat")
    if isinstance(additive, Additive) and isinstance(concat, Concat):
        with torch.no_grad():
            concat.both.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
            concat.weight.copy_(additive.weight)


def _lines(names: list[str], values: Tensor, places: list[str]) -> list[str]:
    """For each score the key with the largest weight, and how many keys have any."""
    found = []
    for name, row in zip(names, values, strict=True):
        best, some = int(row.argmax()), int((row > 0).sum())
        found.append(
            f"{name:<13}{FORMULAS[name]:<20} most at {places[best]:>5} ({row[best]:.3f}), {some} of {len(row)} keys"
        )
    return found
