"""Integrated gradients: how much each element of an input moved an output.

Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks" (2017). From a baseline b, which says nothing, the
input x is approached on a straight line, and the gradients met on the way are added up:

    a_t = Σ_d (x_td − b_td) ∫₀¹ ∂F(b + α (x − b)) / ∂x_td dα        Σ_t a_t = F(x) − F(b)

That the parts sum to the whole (completeness) holds for the integral; for a sum of n gradients it shows how good the
sum is. It is taken at the points of Gauss and Legendre, and with twice as many until it holds within 1 %. For a linear
F any number of points is exact. The way must stay where a network knows its way: from vectors that no text has, the
output of a BERT leaps about so wildly that no number of points will do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .trace import at_rest

STEPS, MOST = 16, 512  # points to begin with, and at most
ELEMENTS = 4_096  # that go through a network and back at once
WITHIN = 0.01  # of the difference that is explained …
LEAST = 1e-4  # … or, where that is next to nothing, of all that was moved to and fro


@dataclass(frozen=True)
class Integrated:
    """`values` (T,) sum to `there` − `baseline`, the outputs at both ends, but for the `gap`."""

    values: np.ndarray
    there: float
    baseline: float
    steps: int

    @property
    def difference(self) -> float:
        return self.there - self.baseline

    @property
    def gap(self) -> float:
        return abs(float(self.values.sum()) - self.difference)

    @property
    def complete(self) -> bool:
        return self.gap <= max(WITHIN * abs(self.difference), LEAST * float(np.abs(self.values).sum()))


@contextlib.contextmanager
def asked(network: nn.Module) -> Iterator[None]:
    """Within the block the network answers as it does for people, and can be differentiated; nothing stays behind."""
    with at_rest(network), torch.inference_mode(False), torch.enable_grad():
        yield


def integrated(output: Callable[[Tensor], Tensor], vectors: Tensor, baseline: Tensor, steps: int = STEPS) -> Integrated:
    """`output` is a figure (n,) for each of n inputs (n,T,D); `vectors` and `baseline` are (T,D)."""
    with torch.no_grad():
        there, before = (float(output(one[None])[0]) for one in (vectors, baseline))
    while True:
        found = Integrated(_along(output, vectors, baseline, steps), there, before, steps)
        if found.complete or 2 * steps > MOST:
            return found
        steps *= 2


def _along(output: Callable[[Tensor], Tensor], vectors: Tensor, baseline: Tensor, steps: int) -> np.ndarray:
    places, weights = np.polynomial.legendre.leggauss(steps)  # on [−1, 1], where weights sum to 2
    way = vectors - baseline  # (T,D)
    total = torch.zeros(vectors.shape, dtype=torch.float64, device=vectors.device)
    points = torch.from_numpy((places + 1) / 2).to(way)
    for some in torch.arange(steps).split(max(ELEMENTS // len(vectors), 1)):
        inputs = (baseline + points[some, None, None] * way).requires_grad_()  # (n,T,D)
        (gradient,) = torch.autograd.grad(output(inputs).sum(), inputs)
        weight = torch.from_numpy(weights[some.numpy()] / 2).to(total)
        total += torch.einsum("n,ntd->td", weight, gradient.double())
    values: np.ndarray = (total * way.double()).sum(dim=-1).cpu().numpy()
    return values
