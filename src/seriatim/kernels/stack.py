"""A whole stack of Transformer blocks by one native operator, equal to `Block` of nn/transformer.py.

    block_stack(x (B,T,D), parameters, …)    → (B,T,D)

`parameters` has twelve tensors for each block: scale and shift of the norm of attention, weight and bias of queries,
keys and values side by side, weight and bias of the output; scale and shift of the norm of the feed-forward network,
weight and bias of its hidden layer, weight and bias of its output. With cross-attention six more follow: scale and
shift of its norm, weight and bias of its queries, weight and bias of its output; its keys and values side by side
(B,S,2·D) are given for each block. Rows may have different lengths: nothing is computed for padding, whose outputs are
0. Dropout has the masks that `Dropout` of nn/layers.py would draw with the same seeds.

float32 and float64 on the CPU, first derivatives. The bias of the keys, which changes nothing, has the gradient 0.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import Context, load, supports
from .layers import NAMES

LONGEST = 1024  # elements of a sequence


@dataclass(frozen=True)
class BlockForm:
    """What the blocks of a stack have in common.

    Args:
        heads: The number of heads.
        activation: The name of the activation.
        pre_norm: Whether a norm is before each part, or after it.
        eps: Added to the variance in layer norms.
        dropout: The share of numbers that are dropped.
    """

    heads: int
    activation: str
    pre_norm: bool
    eps: float
    dropout: float


def is_faster(x: Tensor) -> bool:
    """Returns whether the operator is available and faster for x (B,T,D)."""
    rows, steps, _ = x.shape
    return rows >= torch.get_num_threads() and 0 < steps <= LONGEST and supports(x) and _is_loaded()


def block_stack(
    x: Tensor,
    parameters: Sequence[Tensor],
    form: BlockForm,
    causal: bool,
    seeds: Sequence[int],
    lengths: Sequence[int] | None = None,
    packed: bool = False,
    memory: Sequence[Tensor] = (),
    source_lengths: Sequence[int] | None = None,
) -> Tensor:
    """Returns the outputs of the last block.

    Args:
        x: The inputs (B,T,D).
        parameters: The tensors of all blocks.
        form: What the blocks have in common.
        causal: Whether elements attend to earlier ones only.
        seeds: The seeds of dropout, for each part of each block in the order in which they are computed.
        lengths: The elements of each row, after which there is padding; None: there is none.
        packed: Whether dropout counts elements without the padding.
        memory: Keys and values of cross-attention (B,S,2·D) for each block; empty: there is none.
        source_lengths: The elements of each row of the memory, at least one; None: there is no padding.
    """
    rows, steps, _ = x.shape
    starts = list(range(0, rows * steps, steps))
    lengths = [steps] * rows if lengths is None else list(lengths)
    numbers = [0, *itertools.accumulate(lengths)][:-1] if packed else starts
    sources: list[int] = []
    if memory:
        sources = [memory[0].shape[1]] * rows if source_lengths is None else list(source_lengths)
    sizes = form.heads, NAMES.index(form.activation), form.pre_norm, causal, form.eps, form.dropout
    arguments = starts, lengths, numbers, sources, *sizes, list(seeds), torch.get_num_threads()
    y: Tensor = _BlockStack.apply(x, arguments, len(memory), *memory, *parameters)
    return y


@functools.cache
def _is_loaded() -> bool:
    return load()


class _BlockStack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, x: Tensor, arguments: tuple[object, ...], count: int, *tensors: Tensor) -> Tensor:
        memory, parameters = [tensor.contiguous() for tensor in tensors[:count]], tensors[count:]
        y, workspace = torch.ops.seriatim.block_stack(x.reshape(-1, x.shape[-1]), memory, parameters, *arguments)
        ctx.save_for_backward(workspace, *memory, *parameters)
        ctx.arguments, ctx.count = arguments, count
        outputs: Tensor = y.view(x.shape)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, dy: Tensor) -> tuple[Tensor | None, ...]:
        workspace, *tensors = ctx.saved_tensors
        memory, parameters = tensors[: ctx.count], tensors[ctx.count :]
        above = dy.reshape(-1, dy.shape[-1])
        dx, *gradients = torch.ops.seriatim.block_stack_backward(above, workspace, memory, parameters, *ctx.arguments)
        return dx.view(dy.shape), None, None, *gradients
