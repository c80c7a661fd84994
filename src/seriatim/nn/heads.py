"""Heads: from the outputs of a backbone to scores or values, one for each step or one for the whole sequence.

    last      h_T, and for two directions the last of each      mean     Σ h_t / T
    max       the largest of each unit over the steps           attention Σ α_t h_t, α = softmax_t(w·tanh(W h_t))
    first     tanh(W h_1 + b), or h_1 where the model has no pooler: it looks in both directions, and its first element
              stands for the whole

Padding has no part in any of them, and a sequence without elements gives zeros.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import masked_softmax
from .dropout import Dropout
from .linear import ACTIVATIONS, Activation

Pooling = Literal["last", "mean", "max", "attention", "first"]


def everywhere(hidden: Tensor) -> Tensor:
    """The mask of a batch without padding."""
    return torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)


def mean(hidden: Tensor, mask: Tensor | None = None) -> Tensor:
    """Over the real elements, (B,T,D) → (B,D)."""
    if mask is None:
        return hidden.mean(dim=1)
    total = torch.where(mask[:, :, None], hidden, 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


class Pool(nn.Module):
    """(B,T,D) → (B,D)."""

    def __init__(self, kind: Pooling, width: int, directions: int = 1) -> None:
        super().__init__()
        self.kind = kind
        self.directions = directions
        if kind == "attention":
            self.keys = nn.Linear(width, width)
            self.query = nn.Parameter(torch.randn(width) / width**0.5)

    def weights(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Of the learned attention, (B,T)."""
        return masked_softmax(torch.tanh(self.keys(hidden)) @ self.query, mask)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.kind == "mean":
            return mean(hidden, mask)
        if mask is None:
            mask = everywhere(hidden)
        if self.kind == "attention":
            return (self.weights(hidden, mask)[:, None] @ hidden)[:, 0]
        some = mask.any(dim=1, keepdim=True)
        if self.kind == "max":
            highest = hidden.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
            return torch.where(some, highest, 0.0)
        if self.kind == "first":
            return torch.where(some, hidden[:, 0], 0.0)
        ends = (mask.sum(dim=1) - 1).clamp(min=0)
        last = hidden[torch.arange(len(hidden), device=hidden.device), ends]
        if self.directions == 2:  # what reads backwards has read all of it at the first element
            half = hidden.shape[-1] // 2
            last = torch.cat([last[:, :half], hidden[:, 0, half:]], dim=-1)
        return torch.where(some, last, 0.0)


class StepHead(nn.Linear):
    """Outputs for every step: (B,T,D) → (B,T,O)."""

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(hidden)


class SpanHead(nn.Module):
    """Where an answer begins and where it ends: two scores for every element, (B,T,D) → (B,T,2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, 2)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.output(hidden)
        return y


class VectorHead(nn.Module):
    """Outputs for the whole sequence: (B,T,D) → (B,O)."""

    def __init__(
        self,
        width: int,
        outputs: int,
        pooling: Pooling,
        directions: int = 1,
        dropout: float = 0.0,
        pooler: bool = True,
    ) -> None:
        super().__init__()
        self.pool = Pool(pooling, width, directions)
        self.final = pooling == "last" and directions == 1  # the output of the last element is all it looks at
        self.first = pooling == "first"  # or that of the first
        self.pooler = nn.Linear(width, width) if self.first and pooler else None
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, outputs)
        if self.pooler is not None:  # as BERT's own products
            for layer in (self.pooler, self.output):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.outputs(self.vector(hidden, mask))

    def outputs(self, vectors: Tensor) -> Tensor:
        """From what `vector` gives."""
        y: Tensor = self.output(vectors)
        return y

    def vector(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the outputs are made of, (B,D)."""
        pooled: Tensor = self.pool(hidden, mask)
        return self.dropout(pooled if self.pooler is None else torch.tanh(self.pooler(pooled)))


class MaskedHead(nn.Module):
    """Which token stands at a place: its vector, once more transformed, against the vectors of all tokens.

        y = norm(gelu(W h + b))    scores = y Eᵀ + c    E the table of the input

    Called, it gives y: scores of a large vocabulary are the affair of nn/loss.py.
    """

    def __init__(
        self, width: int, table: nn.Embedding, activation: Activation, epsilon: float, spread: float | None
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, table.embedding_dim)
        self.norm = nn.LayerNorm(table.embedding_dim, epsilon)
        self.activation = ACTIVATIONS[activation]
        self.weight = table.weight
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings))
        _spread(self.dense, spread)

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(hidden)))
        return y

    def scores(self, hidden: Tensor) -> Tensor:
        """Of every token, (…,V)."""
        return F.linear(self(hidden), self.weight, self.bias)


class PretrainHead(nn.Module):
    """BERT's two questions: which token was hidden, and whether the second text follows the first. Either may be
    missing; the pooler is there for the second question, and where there is none at all, for those to come."""

    def __init__(
        self,
        width: int,
        table: nn.Embedding,
        masked: bool,
        next: bool,
        activation: Activation = "gelu",
        epsilon: float = 1e-12,
        spread: float | None = None,
    ) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width) if next or not masked else None
        self.masked = MaskedHead(width, table, activation, epsilon, spread) if masked else None
        self.next = nn.Linear(width, 2) if next else None
        for layer in (self.pooler, self.next):
            if layer is not None:
                _spread(layer, spread)

    def pooled(self, hidden: Tensor) -> Tensor:
        """What stands for the whole, (B,D)."""
        if self.pooler is None:
            raise TypeError("a head for masked tokens alone has no pooler")
        return torch.tanh(self.pooler(hidden[:, 0]))

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """Scores of all tokens at every place (B,T,V), and of "follows" and "from elsewhere" (B,2)."""
        masked = None if self.masked is None else self.masked.scores(hidden)
        return masked, None if self.next is None else self.next(self.pooled(hidden))


def _spread(layer: nn.Linear, spread: float | None) -> None:
    """Fresh weights of a layer; None: as PyTorch makes them."""
    if spread is not None:
        nn.init.normal_(layer.weight, std=spread)
        nn.init.zeros_(layer.bias)


class Scaled(nn.Module):
    """A head whose outputs are in the units of the data: scale · y + shift, both from the training part."""

    scale: Tensor
    shift: Tensor

    def __init__(self, head: nn.Module, outputs: int) -> None:
        super().__init__()
        self.head: Any = head
        self.final = getattr(head, "final", False)
        self.first = getattr(head, "first", False)
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("shift", torch.zeros(outputs))

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._scaled(self.head(hidden, mask))

    def outputs(self, vectors: Tensor) -> Tensor:
        return self._scaled(self.head.outputs(vectors))

    def vector(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.head.vector(hidden, mask)
        return y

    def _scaled(self, y: Tensor) -> Tensor:
        return y * self.scale + self.shift
