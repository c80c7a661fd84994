"""Transformer blocks: attention among the elements, then a feed-forward network for each element.

Vaswani et al., "Attention is all you need" (2017). Each part has a residual connection and a layer norm: before the
part, x + part(norm x) (Radford et al. 2019), which needs no long warm-up, or after it as in the paper,
norm(x + part(x)). A decoder's block also has cross-attention to the encoder's outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..core.state import append
from ..kernels import Context, stack
from ..kernels import attention as kernels
from .attention import attention, attention_weights, attention_with_weights
from .backbone import BackboneSettings, SelectiveTrace, Trace, is_traced, record
from .layers import SEEDS, Activation, Dropout, Linear, Positions, equations_enabled, make_positions

HEAD_SIZES = (16, 32, 64)  # of the attention kernel; smaller heads cost more than they do
MAX_PACKED = 0.9  # share of elements without padding; above, packing does not pay off


class AttentionSettings(BackboneSettings):
    """The settings of blocks of attention, whatever their positions."""

    budget_field: ClassVar[str] = "feedforward"
    muon_lr: ClassVar[float | None] = 0.05
    lr_updates: ClassVar[int] = 300  # twice the default of a GPT is too high from there on

    heads: int = Field(4, ge=1, le=256, description="attention heads of a block; the width is a multiple of it")
    feedforward: int | None = Field(
        None, ge=1, le=1_048_576, description="hidden size of the feed-forward network (default: 4·width)"
    )

    def default_lr(self) -> float:
        """Inverse to the width: 4e-3 at width 128, GPT-2's 6e-4 at 768."""
        return 0.5 / self.width

    def width_multiples(self) -> tuple[int, ...]:
        return (self.heads,) if "heads" in self.model_fields_set else (HEAD_SIZES[0], self.heads)

    def with_width(self, width: int) -> Self:
        """Returns the settings with another width and, unless they are set, about as many heads of a fast size."""
        counts = [width // size for size in HEAD_SIZES if width % size == 0]
        if "heads" in self.model_fields_set or not counts:
            return super().with_width(width)
        heads = min(counts, key=lambda count: abs(count - self.heads))
        solved = self.model_copy(update={"width": width, "heads": heads})
        solved.model_fields_set.remove("heads")  # the next width may change it again
        return solved

    def input_width(self, tied: bool) -> int:
        return self.width if self.embedding is None else self.embedding

    def budget_size(self) -> int:
        return 4 * self.width

    def check_heads(self) -> None:
        if self.width % self.heads:
            raise SeriatimError(
                "model.heads", f"width {self.width} is not a multiple of heads {self.heads}", "choose a multiple"
            )


class TransformerSettings(AttentionSettings):
    """The settings that Transformers share, which add positions to their inputs."""

    positions: Positions = Field(
        "learned", description="added to the inputs: learned, for one context length; sinusoidal, fixed; or none"
    )

    def position_scale(self) -> float:
        """Returns the amplitude of sinusoidal positions."""
        return 1.0

    def fixed_positions(self, count: int) -> Tensor | None:
        """Returns the position vectors (count,width) if they are not learned."""
        if self.positions == "learned":
            return None
        module = make_positions(self.positions, self.width, None, self.position_scale())
        return module(0, torch.empty(1, count, self.width))


def initialize_normal(module: nn.Module, std: float) -> None:
    """Draws the weights of all linear layers and embeddings from a normal distribution; biases are 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B,T,D) → (B,H,T,d)


def _use_kernel(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """Returns whether to use the native kernels, which support masks (B,1,1,S) of keys only."""
    key_mask = mask is None or mask.shape == (len(query), 1, 1, key.shape[2])
    return key_mask and not equations_enabled() and kernels.is_faster(query, key.shape[2], query.shape[3])


def _key_mask(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask[:, 0, 0]


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Returns the outputs of all heads side by side (B,T,D)."""
    if equations_enabled():
        y, _ = attention_with_weights(query, key, value, mask, causal)
    else:
        y = attention(query, key, value, mask, causal)
    return y.transpose(1, 2).flatten(2)


def _record_weights(
    trace: Trace | None, name: str, query: Tensor, key: Tensor, mask: Tensor | None, causal: bool
) -> None:
    """Records the weights of every head, computed separately: fused attention does not form them."""
    if trace is not None and is_traced(trace, name):
        if isinstance(trace, SelectiveTrace):  # the size is quadratic in the length
            trace.reserve(query.shape[:3].numel() * key.shape[2] * query.element_size())
        trace[name] = attention_weights(query, key, mask, causal)


def _has_padding(elements: int, shape: torch.Size) -> bool:
    return elements <= MAX_PACKED * shape.numel()


class Packing:
    """The elements of a padded batch without the padding (N,D), for computations on each element separately."""

    def __init__(self, mask: Tensor) -> None:
        self.shape = mask.shape
        self.indices = mask.flatten().nonzero()[:, 0]

    @property
    def is_faster(self) -> bool:
        """Whether there is enough padding to be worth packing and unpacking."""
        return _has_padding(len(self.indices), self.shape)

    def pack(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, self.indices)  # (B,T,D) → (N,D)

    def unpack(self, x: Tensor) -> Tensor:
        y = x.new_zeros(self.shape.numel(), x.shape[-1]).index_copy(0, self.indices, x)
        return y.view(*self.shape, -1)  # (N,D) → (B,T,D), zeros in the padding


def record_norms(trace: Trace | None, part: str, x: Tensor) -> None:
    """Records the norms of the residual stream after a part of a block."""
    if trace is not None and is_traced(trace, name := f"{part}_residual"):
        trace[name] = x.norm(dim=-1)


class _KeyBias(torch.autograd.Function):
    """Returns the bias of `parts` side by side, the second to last of them keys, whose gradient is exactly 0.

    A bias of the keys adds the same number to all scores of a query, which their softmax cancels. Its gradient would be
    a rounding error, and Adam divides a gradient by its size: the bias would move by the whole learning rate, each time
    another way if a sum has another order (number of threads, accumulation, several processes).
    """

    @staticmethod
    def forward(bias: Tensor, parts: int) -> Tensor:
        return bias.view_as(bias)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.parts = inputs[1]

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone()
        gradient.chunk(ctx.parts)[-2].zero_()
        return gradient, None


class Projection(Linear):
    """A linear layer to queries, keys and values side by side, or to keys and values."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__(width, parts * width)
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return self._packed_forward(x) if self._can_pack(x) else F.linear(x, self.weight, self.trained_bias())

    def trained_bias(self) -> Tensor:
        """Returns the bias, without a gradient for that of the keys."""
        bias: Tensor = _KeyBias.apply(self.bias, self.parts) if torch.is_grad_enabled() else self.bias
        return bias


class SelfAttention(nn.Module):
    """Multi-head self-attention; queries, keys and values of all heads are one matrix product."""

    stacked = {"inputs.weight": 3}  # matrices in one parameter, by its name

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = Projection(width, 3)
        self.output = Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, past: Tensor | None, mask: Tensor | None, causal: bool, trace: Trace | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the outputs, and keys and values of all heads (B,2·H,S,d): those of `past` and those of x."""
        inputs = self.inputs(x)  # (B,T,3·D)
        parts = _heads(inputs, 3 * self.heads)
        query, key, value = parts.chunk(3, dim=1)  # in one operation: their gradients are joined in one as well
        cache = parts[:, self.heads :]
        if past is not None:
            cache = append(past, cache, dim=2)
            key, value = cache.chunk(2, dim=1)
        _record_weights(trace, "attention", query, key, mask, causal)
        if past is None and _use_kernel(query, key, mask):
            mixed = kernels.self_attention(inputs, self.heads, _key_mask(mask), causal)
        else:
            mixed = _attend(query, key, value, mask, causal)
        return self.dropout(self.output(mixed)), cache

    def attend_inputs(self, inputs: Tensor, mask: Tensor | None, trace: Trace | None = None) -> Tensor:
        """Returns bidirectional attention (B,T,D) of queries, keys and values side by side (B,T,3·D)."""
        query, key, value = (_heads(part, self.heads) for part in inputs.chunk(3, dim=-1))
        _record_weights(trace, "attention", query, key, mask, False)
        if _use_kernel(query, key, mask):
            return kernels.self_attention(inputs, self.heads, _key_mask(mask), False)
        return _attend(query, key, value, mask, False)

    def first_output(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the output of the first element (B,1,D), with a single query."""
        width = x.shape[-1]
        weight, bias = self.inputs.weight, self.inputs.trained_bias()
        query = _heads(F.linear(x[:, :1], weight[:width], bias[:width]), self.heads)
        keys_values = F.linear(x, weight[width:], bias[width:])  # (B,T,2·D)
        key, value = (_heads(part, self.heads) for part in keys_values.chunk(2, dim=-1))
        y: Tensor = self.dropout(self.output(_attend(query, key, value, mask, False)))
        return y


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another, which are computed once."""

    stacked = {"memory.weight": 2}

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.memory = Projection(width, 2)
        self.output = Linear(width, width)
        self.dropout = Dropout(dropout)

    def keys_values(self, memory: Tensor) -> Tensor:
        """Returns keys and values side by side, (B,S,2·D)."""
        y: Tensor = self.memory(memory)
        return y

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None, trace: Trace | None) -> Tensor:
        inputs = self.query(x)
        query = _heads(inputs, self.heads)
        key, value = (_heads(part, self.heads) for part in memory.chunk(2, dim=-1))
        _record_weights(trace, "cross_attention", query, key, mask, False)
        if _use_kernel(query, key, mask):
            mixed = kernels.cross_attention(inputs, memory, self.heads, _key_mask(mask))
        else:
            mixed = _attend(query, key, value, mask, False)
        y: Tensor = self.dropout(self.output(mixed))
        return y


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float, activation: Activation = "gelu-tanh") -> None:
        super().__init__()
        self.hidden = Linear(width, hidden)
        self.output = Linear(hidden, width)
        self.dropout = Dropout(dropout)
        self.activation: Activation = activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.output(self.hidden.activated(x, self.activation)))
        return y


class Block(nn.Module):
    """Self-attention, cross-attention if `cross`, and feed-forward network; `norm` is before or after each part."""

    def __init__(
        self,
        width: int,
        heads: int,
        feedforward: int,
        dropout: float,
        activation: Activation = "gelu-tanh",
        norm: Literal["before", "after"] = "before",
        cross: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.pre_norm = norm == "before"
        self.has_cross = cross
        self.attention_norm = nn.LayerNorm(width, eps)
        self.attention = SelfAttention(width, heads, dropout)
        if cross:
            self.cross_norm = nn.LayerNorm(width, eps)
            self.cross = CrossAttention(width, heads, dropout)
        self.feedforward_norm = nn.LayerNorm(width, eps)
        self.feedforward = FeedForward(width, feedforward, dropout, activation)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None,
        mask: Tensor | None,
        causal: bool,
        trace: Trace | None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        mixed, cache = self.attention(self._in(x, self.attention_norm), past, mask, causal, trace)
        x = self._out(x + mixed, self.attention_norm)
        record_norms(trace, "attention", x)
        if memory is not None:
            context = self.cross(self._in(x, self.cross_norm), memory, memory_mask, trace)
            x = self._out(x + context, self.cross_norm)
            record_norms(trace, "cross_attention", x)
        x = self._out(x + self.feedforward(self._in(x, self.feedforward_norm)), self.feedforward_norm)
        record_norms(trace, "feedforward", x)
        record(trace, "hidden", x)
        return x, cache

    def forward_packed(self, x: Tensor, packing: Packing, mask: Tensor, trace: Trace | None = None) -> Tensor:
        """Returns the outputs of packed elements (N,D): only attention is computed with padding."""
        inputs = packing.unpack(self.attention.inputs(self._in(x, self.attention_norm)))
        mixed = packing.pack(self.attention.attend_inputs(inputs, mask, trace))
        x = self._out(x + self.attention.dropout(self.attention.output(mixed)), self.attention_norm)
        if trace is not None:
            record_norms(trace, "attention", packing.unpack(x))
        x = self._out(x + self.feedforward(self._in(x, self.feedforward_norm)), self.feedforward_norm)
        if trace is not None:
            unpacked = packing.unpack(x)
            record_norms(trace, "feedforward", unpacked)
            trace["hidden"] = unpacked
        return x

    def first_output(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the output of the first element (B,1,D) of a bidirectional block."""
        mixed = self.attention.first_output(self._in(x, self.attention_norm), mask)
        x = self._out(x[:, :1] + mixed, self.attention_norm)
        return self._out(x + self.feedforward(self._in(x, self.feedforward_norm)), self.feedforward_norm)

    def own_parameters(self) -> list[Tensor]:
        """Returns weight and bias of every layer but the projection of the memory; cross-attention is last."""
        parts: list[nn.LayerNorm | nn.Linear] = [self.attention_norm, self.attention.inputs, self.attention.output]
        parts += [self.feedforward_norm, self.feedforward.hidden, self.feedforward.output]
        if self.has_cross:
            parts += [self.cross_norm, self.cross.query, self.cross.output]
        return [tensor for part in parts for tensor in (part.weight, part.bias)]

    def _in(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        y: Tensor = norm(x) if self.pre_norm else x
        return y

    def _out(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        y: Tensor = x if self.pre_norm else norm(x)
        return y


# The modules of a block in the order of `modules()`, and of cross-attention, which come before the last five.
PLAIN_BLOCK: tuple[type[nn.Module], ...] = (
    *(Block, nn.LayerNorm, SelfAttention, Projection, Linear, Dropout),
    *(nn.LayerNorm, FeedForward, Linear, Linear, Dropout),
)
CROSS = (nn.LayerNorm, CrossAttention, Linear, Projection, Linear, Dropout)


def stack_outputs(
    blocks: Sequence[nn.Module],
    x: Tensor,
    mask: Tensor | None,
    causal: bool,
    packs: bool = False,
    memory: Sequence[Tensor] = (),
    memory_mask: Tensor | None = None,
) -> Tensor | None:
    """Returns the outputs (B,T,D) of consecutive blocks by one native operator; None: the equations are to be used.

    The operator trains: it is used in training mode, on a CPU, if all parameters of the blocks have gradients and no
    hook or subclass changes what a part computes. Outputs of padding are 0.

    Args:
        blocks: The blocks.
        x: The inputs (B,T,D).
        mask: (B,T), False for padding, which is on the right.
        causal: Whether elements attend to earlier ones only.
        packs: Whether the equations compute without the padding if there is much of it (`Packing`), on which the masks
            of dropout depend.
        memory: Keys and values of cross-attention (B,S,2·D) for each block; empty: they have none.
        memory_mask: (B,S), False for padding, which is on the right.
    """
    if not torch.is_grad_enabled() or equations_enabled() or torch.compiler.is_compiling() or not stack.is_faster(x):
        return None
    forms = {_native_form(block, bool(memory)) for block in blocks}
    if len(forms) != 1 or (form := forms.pop()) is None:
        return None
    parameters = [tensor for block in blocks for tensor in cast(Block, block).own_parameters()]
    if not all(p.requires_grad and p.dtype == x.dtype and p.is_contiguous() for p in parameters):
        return None
    sources = None if memory_mask is None else memory_mask.sum(dim=1).tolist()
    if any(m.dtype != x.dtype or not 0 < m.shape[1] <= stack.LONGEST for m in memory) or (sources and not all(sources)):
        return None
    count = (3 if memory else 2) * len(blocks)
    seeds = tuple(int(torch.randint(SEEDS, ())) if form.dropout else 0 for _ in range(count))
    lengths = None if mask is None else mask.sum(dim=1).tolist()
    packed = packs and lengths is not None and _has_padding(sum(lengths), x.shape[:2])
    return stack.block_stack(x, parameters, form, causal, seeds, lengths, packed, memory, sources)


def _native_form(block: nn.Module, cross: bool) -> stack.BlockForm | None:
    """Returns what the operator has to know of a block in training; None if it does not compute such a block."""
    modules = list(block.modules())
    expected = (*PLAIN_BLOCK[:6], *CROSS, *PLAIN_BLOCK[6:]) if cross else PLAIN_BLOCK
    if tuple(type(module) for module in modules) != expected or not all(module.training for module in modules):
        return None
    if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks for m in modules):
        return None
    own = cast(Block, block)
    rates = {module.p for module in modules if type(module) is Dropout}
    eps = {module.eps for module in modules if type(module) is nn.LayerNorm}
    if len(rates) > 1 or len(eps) > 1 or rates == {1.0}:
        return None
    return stack.BlockForm(own.attention.heads, own.feedforward.activation, own.pre_norm, eps.pop(), rates.pop())
