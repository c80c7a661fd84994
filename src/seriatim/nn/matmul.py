"""Multiplication by the same matrix at every step of a loop, with one matrix product for its gradient.

    multiply = LoopMatmul(matrix)      for … : y = multiply(x)         y = x M,  x (N,A), M (A,C), or (B,N,A), (B,A,C)

By autograd alone, each step would form a gradient of the size of M and add it to those of the other steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Steps = list[tuple[Tensor, Tensor]]  # x and the gradient of y, of every step
StepsByPass = dict[int, Steps]  # by backward pass: an earlier pass may have been for other gradients only


class LoopMatmul:
    def __init__(self, matrix: Tensor) -> None:
        self.trains = torch.is_grad_enabled() and matrix.requires_grad
        self.steps: StepsByPass = {}
        self.matrix: Tensor = _GatherGradient.apply(_autocast(matrix), self.steps) if self.trains else matrix

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _Multiply.apply(_autocast(x), self.matrix, self.steps) if self.trains else x @ self.matrix
        return y


def _autocast(tensor: Tensor) -> Tensor:
    """Returns the tensor in autocast's type for matrix products, which autocast does not do for our functions."""
    device = tensor.device.type
    if tensor.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, steps: StepsByPass) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.steps = steps
        return x @ matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, matrix = ctx.saved_tensors
        # Detached: otherwise the saved steps would hold the graph, which holds the saved steps.
        ctx.steps.setdefault(torch._C._current_graph_task_id(), []).append((x.detach(), gradient))
        return gradient @ matrix.transpose(-2, -1), None, None


class _GatherGradient(torch.autograd.Function):
    """The identity of the matrix; its backward pass runs after all steps."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, steps: StepsByPass) -> Tensor:
        ctx.steps = steps
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, None]:
        steps = ctx.steps.pop(torch._C._current_graph_task_id(), None)
        ctx.steps.clear()
        if steps is None:
            return None, None
        inputs, gradients = (torch.cat(parts, dim=-2) for parts in zip(*steps, strict=True))
        return inputs.transpose(-2, -1) @ gradients, None
