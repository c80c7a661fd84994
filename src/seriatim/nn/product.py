"""A product with the same matrix at every step of a loop, whose gradient is one product when the loop has gone back.

    times = Product(matrix)      for … : y = times(x)         y = x M,  x (N,A), M (A,C), or (B,N,A), (B,A,C)

Left to autograd, each step would make a gradient of the size of M and add it to those of the others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Steps = list[tuple[Tensor, Tensor]]  # of every step: x, and the gradient of y
Kept = dict[int, Steps]  # by the pass backwards that asked for it: one for other gradients alone may have come before


class Product:
    def __init__(self, matrix: Tensor) -> None:
        self.learns = torch.is_grad_enabled() and matrix.requires_grad
        self.kept: Kept = {}
        self.matrix: Tensor = _Gathered.apply(_cast(matrix), self.kept) if self.learns else matrix

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _Times.apply(_cast(x), self.matrix, self.kept) if self.learns else x @ self.matrix
        return y


def _cast(tensor: Tensor) -> Tensor:
    """In the type that autocast takes for products, where it is on: a function of ours is not seen to by it."""
    device = tensor.device.type
    if tensor.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, kept: Kept) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.kept = kept
        return x @ matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, matrix = ctx.saved_tensors
        # Detached: else what is kept would hold the graph, which holds what is kept.
        ctx.kept.setdefault(torch._C._current_graph_task_id(), []).append((x.detach(), gradient))
        return gradient @ matrix.transpose(-2, -1), None, None


class _Gathered(torch.autograd.Function):
    """The matrix as it is; backwards, it comes after all steps."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, kept: Kept) -> Tensor:
        ctx.kept = kept
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, None]:
        steps = ctx.kept.pop(torch._C._current_graph_task_id(), None)
        ctx.kept.clear()
        if steps is None:
            return None, None
        given, gradients = (torch.cat(parts, dim=-2) for parts in zip(*steps, strict=True))
        return given.transpose(-2, -1) @ gradients, None
