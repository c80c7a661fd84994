"""Wu et al. 2016: a translation that leaves parts of its source unread is worth less.

cp = β Σ_i log min(Σ_j p_ij, 1) over the places i of the source, p_ij the attention that target token j gave to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

# A place never read costs about 100 β, not infinitely much: all may have left one unread, and one must win.
LEAST = 1e-44


@dataclass(frozen=True)
class Coverage:
    weight: float  # β
    attention: Callable[[Any], Tensor]  # state → the weights (N,S) with which its step read the source
    mask: Tensor | None = None  # (rows,S): which places of the source are real; None: all

    def read(self, state: Any) -> Tensor:
        return self.attention(state).cpu().double()

    def penalty(self, covered: Tensor, rows: Tensor) -> Tensor:
        """Of what hypotheses (N,K,S) of some `rows` (N,) have read."""
        missed = covered.clamp(LEAST, 1.0).log()
        if self.mask is not None:
            missed = missed.masked_fill(~self.mask.cpu()[rows][:, None], 0.0)
        penalty: Tensor = self.weight * missed.sum(dim=-1)
        return penalty
