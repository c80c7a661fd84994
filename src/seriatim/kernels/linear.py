"""Linear layers by the native kernels: products with packed weights, and fused bias and activation.

    pack(weight (N,K))                                the weights in the order in which `packed_linear` reads them
    packed_linear(x (…,K), packed, N, bias, name)     activation(x Wᵀ + bias)  → (…,N), without gradients
    bias_activation(x (…,N), bias (N,), name)         activation(x + bias)     → (…,N), with first derivatives

float32 and float64 on the CPU.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import load, supports

NAMES = ("relu", "gelu", "gelu-tanh", "silu")  # in the order of `activation.h`


def is_available(x: Tensor) -> bool:
    return supports(x) and _register()


def pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.seriatim.packed_weights(weight)
    return packed


def packed_linear(
    x: Tensor, packed: Tensor, outputs: int, bias: Tensor | None, activation: str | None = None
) -> Tensor:
    y: Tensor = torch.ops.seriatim.packed_linear(x, packed, outputs, bias, _number(activation))
    return y


def bias_activation(x: Tensor, bias: Tensor, activation: str | None = None) -> Tensor:
    y: Tensor = torch.ops.seriatim.biased(x, bias, _number(activation))
    return y


def _number(activation: str | None) -> int:
    return -1 if activation is None else NAMES.index(activation)


# Registration of the operators with torch


@functools.cache
def _register() -> bool:
    if not load():
        return False
    library = "seriatim::"
    torch.library.register_fake(f"{library}biased", lambda x, bias, activation: torch.empty_like(x).contiguous())
    torch.library.register_fake(
        f"{library}biased_backward",
        lambda dy, x, bias, activation: (torch.empty_like(x).contiguous(), torch.empty_like(bias)),
    )
    torch.library.register_autograd(f"{library}biased", _backward, setup_context=_setup)
    return True


_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.activation = inputs[2]


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, bias = ctx.saved_tensors
    return *torch.ops.seriatim.biased_backward(dy, x, bias, ctx.activation), None
