"""Causal convolutions by the native kernel: y_t = b + Σ_j W_j x_{t + j·dilation}, with first derivatives.

    convolution(x (B,S,C), weight (D,C,k), bias (D,), dilation)  → (B, S − (k−1)·dilation, D)

float32 and float64 on the CPU.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import load, supports


def is_faster(x: Tensor) -> bool:
    """Returns whether the kernel is available and has sequences for every thread."""
    return len(x) >= torch.get_num_threads() and supports(x) and _register()


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    y: Tensor = torch.ops.seriatim.convolution(x, weight, bias, dilation)
    return y


# Registration of the operators with torch


@functools.cache
def _register() -> bool:
    if not load():
        return False
    torch.library.register_fake("seriatim::convolution", _fake_convolution)
    torch.library.register_fake("seriatim::convolution_backward", _fake_gradients)
    torch.library.register_autograd("seriatim::convolution", _backward, setup_context=_setup)
    return True


_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


def _fake_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    return x.new_empty(len(x), x.shape[1] - (weight.shape[2] - 1) * dilation, len(weight))


def _fake_gradients(
    dy: Tensor, x: Tensor, weight: Tensor, dilation: int, inputs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dx = x.new_empty(x.shape if inputs else (0,))
    return dx, weight.new_empty(weight.shape), weight.new_empty(len(weight))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.dilation = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    inputs = ctx.needs_input_grad[0]
    dx, dw, db = torch.ops.seriatim.convolution_backward(dy, x, weight, ctx.dilation, inputs)
    return dx if inputs else None, dw, db if ctx.biased else None, None
