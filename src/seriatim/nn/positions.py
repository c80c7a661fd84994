"""Where an element stands, as a vector: p[i,2j] = sin(i/10000^{2j/d}), p[i,2j+1] = cos(the same); or learned."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

LEAST = 64  # rows of a table; longer ones are twice, four times … as long, so that there are few


def sinusoids(first: int, count: int, width: int) -> Tensor:
    """Rows first…first+count−1 of the matrix of Vaswani et al. 2017, (count,width), in doubles."""
    places = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    angles = places / 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


@lru_cache(maxsize=32)
def _table(rows: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # it will be used while training, too
        return sinusoids(0, rows, width).to(device, dtype)


class Sinusoidal(nn.Module):
    """For any number of elements."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, first: int, like: Tensor) -> Tensor:
        """What is added to the elements first, first+1, … of a sequence (B,T,width): (T,width)."""
        last = first + like.shape[1]
        rows = max(LEAST, 1 << (last - 1).bit_length())
        return _table(rows, self.width, like.device, like.dtype)[first:last]


class Learned(nn.Embedding):
    """For at most `context` elements: what stands beyond was never learned."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__(context, width)
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, first: int, like: Tensor) -> Tensor:  # type: ignore[override]
        return self.weight[first : first + like.shape[1]].to(like.dtype)
