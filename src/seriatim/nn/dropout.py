"""Dropout that costs little on a CPU, where drawing a random number for each element takes longer than using it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels import dropout as kernels

SEEDS = 1 << 62


class Dropout(nn.Dropout):
    """What `nn.Dropout` does. With the native kernel a seed is drawn instead of a mask, so the masks are others."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if not kernels.available(x):
            return F.dropout(x, self.p)
        return kernels.dropped(x, self.p, int(torch.randint(SEEDS, ())))
