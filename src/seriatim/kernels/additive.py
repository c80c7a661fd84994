"""Additive attention scores by the native kernel: Σ_h w_h tanh(q_h + k_h) for queries (B,T,H) and keys (B,S,H)."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import load

TYPES = (torch.float32, torch.float64)


def is_available(query: Tensor, key: Tensor, weight: Tensor) -> bool:
    same = query.dtype == key.dtype == weight.dtype and query.dtype in TYPES
    return same and query.device.type == key.device.type == "cpu" and _register()


def scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Returns the scores (B,T,S)."""
    y: Tensor = torch.ops.seriatim.additive_scores(query, key, weight)
    return y


def add_gradients(
    gradient: Tensor, query: Tensor, key: Tensor, weight: Tensor, of_key: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of queries and weight; adds that of the keys to `of_key`."""
    of_query, of_weight = torch.ops.seriatim.additive_scores_backward(gradient, query, key, weight, of_key)
    return of_query, of_weight.sum(dim=0)


@functools.cache
def _register() -> bool:
    if not load():
        return False
    torch.library.register_fake("seriatim::additive_scores", _fake_scores)
    torch.library.register_fake("seriatim::additive_scores_backward", _fake_gradients)
    torch.library.register_autograd("seriatim::additive_scores", _backward, setup_context=_setup)
    return True


_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


def _fake_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    return query.new_empty(query.shape[0], query.shape[1], key.shape[1])


def _fake_gradients(
    gradient: Tensor, query: Tensor, key: Tensor, weight: Tensor, of_key: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query).contiguous(), query.new_empty(query.shape[0], query.shape[2])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, weight = ctx.saved_tensors
    of_key = torch.zeros_like(key, memory_format=torch.contiguous_format)
    of_query, of_weight = add_gradients(gradient, query, key, weight, of_key)
    return of_query, of_key, of_weight
