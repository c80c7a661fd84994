"""Dropout by the native kernel: the mask is a hash of position and seed, so the backward pass is the same function."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import load


def is_available(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and _register()


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """Returns x with a share p of its numbers 0 and the others divided by 1 − p."""
    y: Tensor = torch.ops.seriatim.dropped(x, p, seed)
    return y


@functools.cache
def _register() -> bool:
    if not load():
        return False
    torch.library.register_fake("seriatim::dropped", lambda x, p, seed: torch.empty_like(x).contiguous())
    torch.library.register_autograd("seriatim::dropped", _backward, setup_context=_setup)
    return True


_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.p, ctx.seed = inputs[1], inputs[2]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.seriatim.dropped(gradient, ctx.p, ctx.seed), None, None
