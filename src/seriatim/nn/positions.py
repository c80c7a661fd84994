"""Where an element stands, as a vector: p[i,2j] = sin(i/10000^{2j/d}), p[i,2j+1] = cos(the same); or learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoids(first: int, count: int, width: int, device: torch.device | None = None) -> Tensor:
    """Rows first…first+count−1 of the matrix of Vaswani et al. 2017, (count,width)."""
    places = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    angles = places / 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    return table.to(device=device, dtype=torch.get_default_dtype())


class Sinusoidal(nn.Module):
    """For any number of elements. What was computed is kept for the next call; it is no part of the weights."""

    context: int | None = None
    table: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", torch.empty(0, width), persistent=False)

    def forward(self, first: int, count: int) -> Tensor:
        if len(self.table) < first + count:
            self.table = sinusoids(0, max(2 * len(self.table), first + count, 64), self.width, self.table.device)
        return self.table[first : first + count]


class Learned(nn.Embedding):
    """For at most `context` elements: what stands beyond was never learned."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__(context, width)
        self.context: int | None = context
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, first: int, count: int) -> Tensor:  # type: ignore[override]
        return self.weight[first : first + count]
