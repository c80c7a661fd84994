"""Attention by the native kernels, equal to `attention` of nn/attention.py.

    self_attention     inputs (B,T,3·D): queries, keys and values side by side         → (B,T,D)
    cross_attention    query (B,T,D), memory (B,S,2·D): keys and values side by side   → (B,T,D)

`mask` is (B,S), True for keys and False for padding. For short sequences the kernel saves the weights; for longer ones
it works in tiles and recomputes the weights in the backward pass. float32 and float64 on the CPU, first derivatives.

    additive_scores    Σ_h w_h tanh(q_h + k_h) for queries (B,T,H), keys (B,S,H) and a weight (H)    → (B,T,S)
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from . import Context, load, supports

SHORT = 32  # keys; up to this number saving the weights is faster
LONGEST = 512  # keys; more do not fit in the nearest caches, and PyTorch is as fast
SIZES = (8, 16, 32, 64, 128)  # of a head: one, two, four or eight registers of some processor


def is_faster(x: Tensor, keys: int, size: int) -> bool:
    """Returns whether the kernels are available and faster, for heads of `size` numbers."""
    return keys <= LONGEST and size in SIZES and supports(x) and _supports_size(size, x.dtype)


def self_attention(inputs: Tensor, heads: int, mask: Tensor | None, causal: bool) -> Tensor:
    short = inputs.shape[1] <= SHORT
    operator = torch.ops.seriatim.self_attend if short else torch.ops.seriatim.self_attend_tiled
    y, _ = operator(inputs, heads, mask, causal)
    return y


def cross_attention(query: Tensor, memory: Tensor, heads: int, mask: Tensor | None) -> Tensor:
    short = memory.shape[1] <= SHORT
    operator = torch.ops.seriatim.cross_attend if short else torch.ops.seriatim.cross_attend_tiled
    y, _ = operator(query, memory, heads, mask)
    return y


def has_additive_scores(query: Tensor, key: Tensor, weight: Tensor) -> bool:
    same = query.dtype == key.dtype == weight.dtype and query.dtype in (torch.float32, torch.float64)
    return same and query.device.type == key.device.type == "cpu" and _register()


def additive_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Returns the scores (B,T,S)."""
    y: Tensor = torch.ops.seriatim.additive_scores(query, key, weight)
    return y


def add_additive_gradients(
    gradient: Tensor, query: Tensor, key: Tensor, weight: Tensor, of_key: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of queries and weight; adds that of the keys to `of_key`."""
    of_query, of_weight = torch.ops.seriatim.additive_scores_backward(gradient, query, key, weight, of_key)
    return of_query, of_weight.sum(dim=0)


# Registration of the operators with torch


@functools.cache
def _supports_size(size: int, dtype: torch.dtype) -> bool:
    """Returns whether the kernels have this head size, which depends on the processor."""
    if not _register():
        return False
    try:
        torch.ops.seriatim.self_attend(torch.zeros(1, 1, 3 * size, dtype=dtype, device="cpu"), 1, None, False)
    except RuntimeError:
        return False
    return True


_supports_size._dynamo_marked_constant = True  # type: ignore[attr-defined]  # see kernels/recurrent.py


@functools.cache
def _register() -> bool:
    if not load():
        return False
    library = "seriatim::"
    torch.library.register_fake(f"{library}self_attend", _self_fake)
    torch.library.register_fake(f"{library}cross_attend", _cross_fake)
    torch.library.register_fake(f"{library}self_attend_backward", lambda dy, x, weights, heads: torch.empty_like(x))
    torch.library.register_fake(
        f"{library}cross_attend_backward",
        lambda dy, query, memory, weights, heads: (torch.empty_like(query), torch.empty_like(memory)),
    )
    torch.library.register_autograd(f"{library}self_attend", _self_backward, setup_context=_self_setup)
    torch.library.register_autograd(f"{library}cross_attend", _cross_backward, setup_context=_cross_setup)
    _register_tiled(library)
    torch.library.register_fake(
        f"{library}additive_scores", lambda query, key, weight: query.new_empty(*query.shape[:2], key.shape[1])
    )
    torch.library.register_fake(
        f"{library}additive_scores_backward",
        lambda gradient, query, key, weight, of_key: (
            torch.empty_like(query).contiguous(),
            query.new_empty(query.shape[0], query.shape[2]),
        ),
    )
    torch.library.register_autograd(f"{library}additive_scores", _additive_backward, setup_context=_additive_setup)
    return True


def _register_tiled(library: str) -> None:
    torch.library.register_fake(f"{library}self_attend_tiled", _self_tiled_fake)
    torch.library.register_fake(f"{library}cross_attend_tiled", _cross_tiled_fake)
    torch.library.register_fake(
        f"{library}self_attend_tiled_backward", lambda dy, x, sums, heads, mask, causal: torch.empty_like(x)
    )
    torch.library.register_fake(
        f"{library}cross_attend_tiled_backward",
        lambda dy, query, memory, sums, heads, mask: (torch.empty_like(query), torch.empty_like(memory)),
    )
    torch.library.register_autograd(
        f"{library}self_attend_tiled", _self_tiled_backward, setup_context=_self_tiled_setup
    )
    torch.library.register_autograd(
        f"{library}cross_attend_tiled", _cross_tiled_backward, setup_context=_cross_tiled_setup
    )


def _self_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], output[1])
    ctx.heads = inputs[1]
    ctx.mark_non_differentiable(output[1])


def _self_backward(ctx: Context, dy: Tensor, dweights: Tensor | None) -> tuple[Tensor | None, ...]:
    inputs, weights = ctx.saved_tensors
    return torch.ops.seriatim.self_attend_backward(dy, inputs, weights, ctx.heads), None, None, None


def _cross_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])
    ctx.heads = inputs[2]
    ctx.mark_non_differentiable(output[1])


def _cross_backward(ctx: Context, dy: Tensor, dweights: Tensor | None) -> tuple[Tensor | None, ...]:
    query, memory, weights = ctx.saved_tensors
    return *torch.ops.seriatim.cross_attend_backward(dy, query, memory, weights, ctx.heads), None, None


def _self_fake(inputs: Tensor, heads: int, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    rows, steps, width = inputs.shape
    return inputs.new_empty(rows, steps, width // 3), inputs.new_empty(rows, heads, steps, steps)


def _cross_fake(query: Tensor, memory: Tensor, heads: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    rows, steps, _ = query.shape
    return torch.empty_like(query), query.new_empty(rows, heads, steps, memory.shape[1])


def _self_tiled_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], output[1], inputs[2])
    ctx.heads, ctx.causal = inputs[1], inputs[3]
    ctx.mark_non_differentiable(output[1])


def _self_tiled_backward(ctx: Context, dy: Tensor, dsums: Tensor | None) -> tuple[Tensor | None, ...]:
    inputs, sums, mask = ctx.saved_tensors
    d_inputs = torch.ops.seriatim.self_attend_tiled_backward(dy, inputs, sums, ctx.heads, mask, ctx.causal)
    return d_inputs, None, None, None


def _cross_tiled_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1], inputs[3])
    ctx.heads = inputs[2]
    ctx.mark_non_differentiable(output[1])


def _cross_tiled_backward(ctx: Context, dy: Tensor, dsums: Tensor | None) -> tuple[Tensor | None, ...]:
    query, memory, sums, mask = ctx.saved_tensors
    return *torch.ops.seriatim.cross_attend_tiled_backward(dy, query, memory, sums, ctx.heads, mask), None, None


def _self_tiled_fake(inputs: Tensor, heads: int, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    rows, steps, width = inputs.shape
    return inputs.new_empty(rows, steps, width // 3), inputs.new_empty(rows, heads, steps)


def _cross_tiled_fake(query: Tensor, memory: Tensor, heads: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    rows, steps, _ = query.shape
    return torch.empty_like(query), query.new_empty(rows, heads, steps)


def _additive_setup(ctx: Context, inputs: tuple[object, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _additive_backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, weight = ctx.saved_tensors
    of_key = torch.zeros_like(key, memory_format=torch.contiguous_format)
    of_query, of_weight = add_additive_gradients(gradient, query, key, weight, of_key)
    return of_query, of_key, of_weight
