"""Dropout with few random numbers: four decisions from each draw, which on a CPU halves what it costs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

STEPS = 1 << 16  # probabilities are multiples of 1/STEPS


class Dropout(nn.Dropout):
    """What `nn.Dropout` does; the masks are others for the same seed."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped: Tensor = _Drop.apply(x, self.p)
        return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        parts = draws.view(torch.int16)[: x.numel()].view(x.shape)
        factors = torch.empty_like(x, memory_format=torch.contiguous_format)  # 0, or what keeps the mean
        torch.ge(parts, round(share * STEPS) - STEPS // 2, out=factors)
        factors *= 1 / (1 - share)
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return gradient * factors, None
