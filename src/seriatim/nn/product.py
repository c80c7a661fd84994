"""A product with the same matrix at every step of a loop, whose gradient is one product when the loop has gone back.

    times = Product(matrix)      for … : y = times(x)         y = x M,  x (N,A), M (A,C), or (B,N,A), (B,A,C)

Left to autograd, each step would make a gradient of the size of M and add it to those of the others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Kept = list[tuple[Tensor, Tensor]]  # of every step: x, and the gradient of y


class Product:
    def __init__(self, matrix: Tensor) -> None:
        self.learns = torch.is_grad_enabled() and matrix.requires_grad
        self.kept: Kept = []
        self.matrix: Tensor = _Gathered.apply(matrix, self.kept) if self.learns else matrix

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _Times.apply(x, self.matrix, self.kept) if self.learns else x @ self.matrix
        return y


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
        ctx.kept.append((x, gradient))
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
        if not ctx.kept:
            return None, None
        given, gradients = (torch.cat(parts, dim=-2) for parts in zip(*ctx.kept, strict=True))
        ctx.kept.clear()
        return given.transpose(-2, -1) @ gradients, None
