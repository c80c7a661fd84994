"""Layers by the native kernels: linear layers with packed weights, bias and activation, dropout, causal convolutions.

    pack(weight (N,K))                                the weights in the order in which `packed_linear` reads them
    packed_linear(x (…,K), packed, N, bias, name)     activation(x Wᵀ + bias)  → (…,N), without gradients
    bias_activation(x (…,N), bias (N,), name)         activation(x + bias)     → (…,N), with first derivatives
    dropout(x, p, seed)                               the mask is a hash of position and seed, so the backward pass is
                                                      the same function
    convolution(x (B,S,C), weight (D,C,k), bias (D,), dilation)
                                                      y_t = b + Σ_j W_j x_{t + j·dilation}
                                                      → (B, S − (k−1)·dilation, D), with first derivatives

float32 and float64 on the CPU.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from . import Context, load, supports

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


def has_dropout(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and _register()


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """Returns x with a share p of its numbers 0 and the others divided by 1 − p."""
    y: Tensor = torch.ops.seriatim.dropped(x, p, seed)
    return y


def convolution_is_faster(x: Tensor) -> bool:
    """Returns whether the kernel of convolutions is available and has sequences for every thread."""
    return len(x) >= torch.get_num_threads() and supports(x) and _register()


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    y: Tensor = torch.ops.seriatim.convolution(x, weight, bias, dilation)
    return y


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
    torch.library.register_autograd(f"{library}biased", _biased_backward, setup_context=_biased_setup)
    torch.library.register_fake(f"{library}dropped", lambda x, p, seed: torch.empty_like(x).contiguous())
    torch.library.register_autograd(f"{library}dropped", _dropout_backward, setup_context=_dropout_setup)
    torch.library.register_fake(
        f"{library}convolution",
        lambda x, weight, bias, dilation: x.new_empty(
            len(x), x.shape[1] - (weight.shape[2] - 1) * dilation, len(weight)
        ),
    )
    torch.library.register_fake(f"{library}convolution_backward", _convolution_backward_fake)
    torch.library.register_autograd(f"{library}convolution", _convolution_backward, setup_context=_convolution_setup)
    return True


_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


def _biased_setup(ctx: Context, inputs: tuple[object, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.activation = inputs[2]


def _biased_backward(ctx: Context, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, bias = ctx.saved_tensors
    return *torch.ops.seriatim.biased_backward(dy, x, bias, ctx.activation), None


def _dropout_setup(ctx: Context, inputs: tuple[object, ...], output: Tensor) -> None:
    ctx.p, ctx.seed = inputs[1], inputs[2]


def _dropout_backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.seriatim.dropped(gradient, ctx.p, ctx.seed), None, None


def _convolution_backward_fake(
    dy: Tensor, x: Tensor, weight: Tensor, dilation: int, inputs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dx = x.new_empty(x.shape if inputs else (0,))
    return dx, weight.new_empty(weight.shape), weight.new_empty(len(weight))


def _convolution_setup(ctx: Context, inputs: tuple[object, ...], output: Tensor) -> None:
    x, weight, bias, ctx.dilation = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight)


def _convolution_backward(ctx: Context, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    inputs = ctx.needs_input_grad[0]
    dx, dw, db = torch.ops.seriatim.convolution_backward(dy, x, weight, ctx.dilation, inputs)
    return dx if inputs else None, dw, db if ctx.biased else None, None
