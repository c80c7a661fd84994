"""The Transformer's block: attention among the elements, then a network for each element by itself.

Vaswani et al., "Attention is all you need" (2017). Around each part stands a residual connection with a layer norm:
before the part, x + part(norm x) (Radford et al. 2019), which trains without warm-up tricks, or after it as in the
paper, norm(x + part(x)). A decoder's block also looks at what an encoder gave: cross-attention.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..core.room import append
from ..kernels import attention as kernels
from .attention import attend, attend_visibly, attention_weights
from .backbone import BackboneSettings, wants_equations
from .dropout import Dropout
from .linear import Activation, Linear
from .trace import Chosen, Trace, show, wants

WORTH = 0.9  # share of real elements up to which padding is left out of what is done to each element


class HeadedSettings(BackboneSettings):
    """What the settings of Transformers share."""

    fine: ClassVar[str] = "feedforward"

    heads: int = Field(4, ge=1, le=256, description="attention heads of a block; they divide the width")
    feedforward: int | None = Field(
        None, ge=1, description="hidden size of the element-wise network (default: 4·width)"
    )

    def rate(self) -> float:
        """The wider, the smaller the steps: 4e-3 at width 128, the 6e-4 of GPT-2 at its 768."""
        return 0.5 / self.width

    def grain(self) -> int:
        return self.heads

    def input_width(self, tied: bool) -> int:
        return self.width if self.embedding is None else self.embedding

    def fine_size(self) -> int:
        return 4 * self.width

    def check_heads(self) -> None:
        if self.width % self.heads:
            raise SeriatimError(
                "model.heads", f"width {self.width} is not a multiple of heads {self.heads}", "choose one that is"
            )


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B,T,D) → (B,H,T,d)


def _natively(query: Tensor, key: Tensor, visible: Tensor | None) -> bool:
    """Whether the native kernels serve: keys are visible to all queries of a row, or to none."""
    for_all = visible is None or visible.shape == (len(query), 1, 1, key.shape[2])
    return for_all and not wants_equations() and kernels.pays(query, key.shape[2], query.shape[3])


def _keys(visible: Tensor | None) -> Tensor | None:
    return None if visible is None else visible[:, 0, 0]


def _mix(query: Tensor, cache: tuple[Tensor, Tensor], visible: Tensor | None, causal: bool) -> Tensor:
    """What the heads gather, side by side (B,T,D)."""
    gather = (lambda *given: attend_visibly(*given)[0]) if wants_equations() else attend
    return gather(query, *cache, visible, causal).transpose(1, 2).flatten(2)


def _show(trace: Trace | None, name: str, query: Tensor, key: Tensor, visible: Tensor | None, causal: bool) -> None:
    """The weights of every head, worked out once more: fused, attention never has them."""
    if trace is not None and wants(trace, name):
        if isinstance(trace, Chosen):  # they grow with the square of the length
            trace.expect(query.shape[:3].numel() * key.shape[2] * query.element_size())
        trace[name] = attention_weights(query, key, visible, causal)


class Packing:
    """The real elements of a padded batch, one behind the other: what is done to each by itself spares padding."""

    def __init__(self, mask: Tensor) -> None:
        self.shape = mask.shape
        self.places = mask.flatten().nonzero()[:, 0]

    @property
    def pays(self) -> bool:
        """Whether there is enough padding to be worth the way there and back."""
        return len(self.places) <= WORTH * self.shape.numel()

    def pack(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, self.places)  # (B,T,D) → (N,D)

    def unpack(self, x: Tensor) -> Tensor:
        whole = x.new_zeros(self.shape.numel(), x.shape[-1]).index_copy(0, self.places, x)
        return whole.view(*self.shape, -1)  # (N,D) → (B,T,D), zero in the padding


def _lengths(trace: Trace | None, part: str, x: Tensor) -> None:
    """Of the vectors of the residual stream behind a part of a block."""
    if trace is not None and wants(trace, name := f"{part}_residual"):
        trace[name] = x.norm(dim=-1)


class SelfAttention(nn.Module):
    """Multi-head self-attention; queries, keys and values of all heads are one product."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = Linear(width, 3 * width)
        self.output = Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, past: Tensor | None, visible: Tensor | None, causal: bool, trace: Trace | None
    ) -> tuple[Tensor, Tensor]:
        """Also gives keys and values of all heads (B,2·H,S,d), `past` and those of x, for what comes next."""
        inputs = self.inputs(x)  # (B,T,3·D)
        parts = _heads(inputs, 3 * self.heads)
        query, key, value = parts.chunk(3, dim=1)  # at once: their gradients are put together in one go
        both = parts[:, self.heads :]
        if past is not None:
            both = append(past, both, dim=2)
            key, value = both.chunk(2, dim=1)
        _show(trace, "attention", query, key, visible, causal)
        if past is None and _natively(query, key, visible):
            mixed = kernels.self_attend(inputs, self.heads, _keys(visible), causal)
        else:
            mixed = _mix(query, (key, value), visible, causal)
        return self.dropout(self.output(mixed)), both

    def gathered(self, inputs: Tensor, visible: Tensor | None, trace: Trace | None = None) -> Tensor:
        """What every element gathers from all, (B,T,D), by queries, keys and values side by side (B,T,3·D)."""
        query, key, value = (_heads(part, self.heads) for part in inputs.chunk(3, dim=-1))
        _show(trace, "attention", query, key, visible, False)
        if _natively(query, key, visible):
            return kernels.self_attend(inputs, self.heads, _keys(visible), False)
        return _mix(query, (key, value), visible, False)

    def first(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """What the first element gathers from all, (B,1,D): one query, so nearly nothing but keys and values."""
        width = x.shape[-1]
        weight, bias = self.inputs.weight, self.inputs.bias
        query = _heads(F.linear(x[:, :1], weight[:width], bias[:width]), self.heads)
        both = F.linear(x, weight[width:], bias[width:])  # (B,T,2·D)
        key, value = (_heads(part, self.heads) for part in both.chunk(2, dim=-1))
        y: Tensor = self.dropout(self.output(_mix(query, (key, value), visible, False)))
        return y


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another, of which they are made once."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.memory = Linear(width, 2 * width)
        self.output = Linear(width, width)
        self.dropout = Dropout(dropout)

    def remember(self, memory: Tensor) -> Tensor:
        """Keys and values side by side, (B,S,2·D)."""
        both: Tensor = self.memory(memory)
        return both

    def forward(self, x: Tensor, memory: Tensor, visible: Tensor | None, trace: Trace | None) -> Tensor:
        inputs = self.query(x)
        query = _heads(inputs, self.heads)
        key, value = (_heads(part, self.heads) for part in memory.chunk(2, dim=-1))
        _show(trace, "cross_attention", query, key, visible, False)
        if _natively(query, key, visible):
            mixed = kernels.cross_attend(inputs, memory, self.heads, _keys(visible))
        else:
            mixed = _mix(query, (key, value), visible, False)
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
    """`norm` stands "before" each part or "after" it; with `cross`, between the two, attention to a memory."""

    def __init__(
        self,
        width: int,
        heads: int,
        feedforward: int,
        dropout: float,
        activation: Activation = "gelu-tanh",
        norm: Literal["before", "after"] = "before",
        cross: bool = False,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.before = norm == "before"
        self.attention_norm = nn.LayerNorm(width, epsilon)
        self.attention = SelfAttention(width, heads, dropout)
        if cross:
            self.cross_norm = nn.LayerNorm(width, epsilon)
            self.cross = CrossAttention(width, heads, dropout)
        self.feedforward_norm = nn.LayerNorm(width, epsilon)
        self.feedforward = FeedForward(width, feedforward, dropout, activation)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None,
        visible: Tensor | None,
        causal: bool,
        trace: Trace | None,
        memory: Tensor | None = None,
        memory_visible: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        mixed, cache = self.attention(self._in(x, self.attention_norm), past, visible, causal, trace)
        x = self._out(x + mixed, self.attention_norm)
        _lengths(trace, "attention", x)
        if memory is not None:
            found = self.cross(self._in(x, self.cross_norm), memory, memory_visible, trace)
            x = self._out(x + found, self.cross_norm)
            _lengths(trace, "cross_attention", x)
        x = self._out(x + self.feedforward(self._in(x, self.feedforward_norm)), self.feedforward_norm)
        _lengths(trace, "feedforward", x)
        show(trace, "hidden", x)
        return x, cache

    def packed(self, x: Tensor, real: Packing, visible: Tensor, trace: Trace | None = None) -> Tensor:
        """The same for real elements alone (N,D): only attention sees them in their rows, with padding between."""
        inputs = real.unpack(self.attention.inputs(self._in(x, self.attention_norm)))
        mixed = real.pack(self.attention.gathered(inputs, visible, trace))
        x = self._out(x + self.attention.dropout(self.attention.output(mixed)), self.attention_norm)
        if trace is not None:
            _lengths(trace, "attention", real.unpack(x))
        x = self._out(x + self.feedforward(self._in(x, self.feedforward_norm)), self.feedforward_norm)
        if trace is not None:
            whole = real.unpack(x)
            _lengths(trace, "feedforward", whole)
            trace["hidden"] = whole
        return x

    def first(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """The output of the first element alone, (B,1,D), of a block that looks in both directions."""
        mixed = self.attention.first(self._in(x, self.attention_norm), visible)
        x = self._out(x[:, :1] + mixed, self.attention_norm)
        return self._out(x + self.feedforward(self._in(x, self.feedforward_norm)), self.feedforward_norm)

    def _in(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        y: Tensor = norm(x) if self.before else x
        return y

    def _out(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        y: Tensor = x if self.before else norm(x)
        return y
