"""Dropout by the native kernel: decisions from a hash of place and seed, and the backward pass is the same function."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import load


def available(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and _register()


def dropped(x: Tensor, share: float, seed: int) -> Tensor:
    """x with this share of its numbers 0 and the others so much larger that the mean stays."""
    y: Tensor = torch.ops.seriatim.dropped(x, share, seed)
    return y


@functools.cache
def _register() -> bool:
    if not load():
        return False
    torch.library.register_fake("seriatim::dropped", lambda x, share, seed: torch.empty_like(x).contiguous())
    torch.library.register_autograd("seriatim::dropped", _backward, setup_context=_setup)
    return True


_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.share, ctx.seed = inputs[1], inputs[2]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.seriatim.dropped(gradient, ctx.share, ctx.seed), None, None
