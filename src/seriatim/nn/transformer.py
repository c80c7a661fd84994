"""The Transformer's block: attention among the elements, then a network for each element by itself.

Vaswani et al., "Attention is all you need" (2017), with the layer norm before each part instead of after it
(Radford et al. 2019), which trains without warm-up tricks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import attend, attend_visibly
from .backbone import wants_equations

Cache = tuple[Tensor, Tensor]  # keys and values so far, (B,H,S,d) each


class SelfAttention(nn.Module):
    """Multi-head self-attention; queries, keys and values of all heads are one product."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, past: Cache | None, visible: Tensor | None, causal: bool, trace: dict[str, Tensor] | None
    ) -> tuple[Tensor, Cache]:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B,H,T,d)
            for part in self.inputs(x).chunk(3, dim=-1)
        )
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        if trace is None and not wants_equations():
            mixed = attend(query, key, value, visible, causal)
        else:
            mixed, weights = attend_visibly(query, key, value, visible, causal)
            if trace is not None:
                trace["attention"] = weights
        return self.dropout(self.output(mixed.transpose(1, 2).flatten(2))), (key, value)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.output = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.output(F.gelu(self.hidden(x), approximate="tanh")))
        return y


class Block(nn.Module):
    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, dropout)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, feedforward, dropout)

    def forward(
        self, x: Tensor, past: Cache | None, visible: Tensor | None, causal: bool, trace: dict[str, Tensor] | None
    ) -> tuple[Tensor, Cache]:
        mixed, cache = self.attention(self.attention_norm(x), past, visible, causal, trace)
        x = x + mixed
        return x + self.feedforward(self.feedforward_norm(x)), cache
