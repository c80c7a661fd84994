"""Networks: an input, a backbone and a head.

Heads go from the outputs of a backbone to scores or values, per step or for the whole sequence, pooled by

    last      h_T, and for two directions the last of each      mean     Σ h_t / T
    max       the maximum of each unit over the steps           attention Σ α_t h_t, α = softmax_t(w·tanh(W h_t))
    first     tanh(W h_1 + b), or h_1 without pooler: the first element of a bidirectional model summarizes the sequence

Padding never contributes, and an empty sequence gives zeros.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.device import memory_size, on_meta_device
from ..core.errors import SeriatimError
from ..core.state import State
from ..core.text import listed
from .attention import masked_softmax
from .backbone import Backbone, BackboneSettings, Trace
from .fitted import FittedModel
from .layers import ACTIVATIONS, Activation, Dropout, TokenInput
from .names import Pooler, Pooling

TIE_ABOVE = 4_096  # tokens; for more, two embedding matrices would be the larger part of most models


class TokenHead(nn.Module):
    """A score for every token of the vocabulary; tied, it shares the matrix of the input."""

    def __init__(self, width: int, vocab_size: int, tied_to: TokenInput | None = None, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width)) if tied_to is None else tied_to.weight
        if tied_to is None:
            nn.init.uniform_(self.weight, -1 / math.sqrt(width), 1 / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)


class Network(nn.Module):
    def __init__(self, input: nn.Module, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.input = input
        self.backbone = backbone
        self.head = head

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        hidden, mask, state = self.head_input(x, mask, state, trace)
        return self.head(hidden, mask), state

    def head_input(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """Returns the outputs that the head uses, their mask, and the state.

        A head that uses the last or first element only gets that one, computed without the others if possible.
        """
        last = getattr(self.head, "uses_last", False) and mask is None and state is None
        first = getattr(self.head, "uses_first", False) and state is None  # the pool handles empty sequences
        if trace is not None and (last or first):  # the trace records the whole pass; the result is the usual one
            self.hidden(x, mask, None, trace)
        if last:
            return self.backbone.last_output(self.input(x))[:, None], None, None
        if first:
            output = self.backbone.first_output(self.input(x), mask)
            return output[:, None], None if mask is None else mask[:, :1], None
        hidden, state = self.hidden(x, mask, state, trace)
        return hidden, mask, state

    def hidden(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        """Returns the backbone's outputs for all elements (B,T,width), and the state."""
        y, state = self.backbone(self.input(x), mask, state, trace)
        return y, state

    def outputs(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the backbone's outputs for whole sequences (B,T,width), without the state."""
        return self.backbone.outputs(self.input(x), mask)


def as_float32(scores: Tensor) -> Tensor:
    """Returns scores in at least single precision, as a softmax over many tokens needs."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def token_network(settings: BackboneSettings, vocab_size: int, length: int) -> Network:
    """Returns a network from tokens to scores of the next token."""
    fits = settings.embedding in (None, settings.width)  # input and output can share a matrix of one size only
    tied = fits and (vocab_size > TIE_ABOVE if settings.tie is None else settings.tie)
    inputs = settings.token_input(vocab_size, tied=tied)
    backbone = settings.build(settings.input_width(tied), length)
    tied = tied and backbone.width == inputs.embedding_dim
    head = TokenHead(backbone.width, vocab_size, inputs if tied else None, settings.output_bias)
    return Network(inputs, backbone, head)


def assemble(
    settings: BackboneSettings, inputs: nn.Module, width: int, length: int, head: Callable[[Backbone], nn.Module]
) -> Network:
    """Returns the network of an input that gives vectors of size `width`, the backbone, and its head."""
    backbone = settings.build(width, length)
    return Network(inputs, backbone, head(backbone))


def weights(network: nn.Module) -> dict[str, Tensor]:
    """Returns all parameters and buffers by name, each tensor once (a tied matrix has two names)."""
    return dict(network.named_parameters()) | dict(network.named_buffers())


def load_weights(network: nn.Module, stored: dict[str, Tensor]) -> None:
    """Copies tensors into a network; raises KeyError, ValueError or SeriatimError if names or shapes differ."""
    if isinstance(network, FittedModel):
        network.load_state_dict(stored)
        return
    own = weights(network)
    compare_weights(own, stored)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(stored[name])


def compare_weights(own: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
    """Raises KeyError or ValueError if names or shapes differ."""
    if missing := sorted(own.keys() ^ stored.keys()):
        raise KeyError(f"weights without a counterpart: {listed(missing)}")
    for name, tensor in own.items():
        if tensor.shape != stored[name].shape:
            expected, actual = tuple(tensor.shape), tuple(stored[name].shape)
            raise ValueError(f"{name} has shape {actual}, the model expects {expected}")


def weights_digest(network: nn.Module) -> str:
    """Returns a hash of all weights. (Torch's version counters miss the changes of fused optimizers.)"""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def weights_without_memory(build: Callable[[], nn.Module]) -> dict[str, Tensor] | None:
    """Returns the weights of a network on the meta device.

    None if it cannot be built there, as that of a plug-in, or if the data decide their sizes.
    """
    try:
        with on_meta_device():
            network = build()
            return None if isinstance(network, FittedModel) else weights(network)
    except (NotImplementedError, RuntimeError, TypeError):
        return None


def check_memory(build: Callable[[], nn.Module], copies: int) -> None:
    """Raises SeriatimError if `copies` of the weights of a network do not fit into memory; nothing is allocated."""
    tensors, present = weights_without_memory(build) or {}, memory_size()
    needed = copies * sum(tensor.nbytes for tensor in tensors.values())
    if needed > present:
        cause = (
            f"training this model needs {needed / 1e9:,.1f} GB for its weights alone; there are {present / 1e9:,.1f} GB"
        )
        remedy = "lower --params, model.width, the number of layers, --vocab-size or --context-length"
        raise SeriatimError("model.memory", cause, remedy)


def count_parameters(network: nn.Module) -> int:
    """Returns the number of parameters, or of the numbers that a fitted model stores."""
    if isinstance(network, FittedModel):
        return network.entries
    return sum(parameter.numel() for parameter in network.parameters())


# Heads

POOLERS: dict[Pooler, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}


def masked_mean(hidden: Tensor, mask: Tensor | None = None) -> Tensor:
    """Returns the mean over the elements without padding, (B,T,D) → (B,D)."""
    if mask is None:
        return hidden.mean(dim=1)
    total = torch.where(mask[:, :, None], hidden, 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


class Pool(nn.Module):
    """Pooling over the elements, (B,T,D) → (B,D)."""

    def __init__(self, kind: Pooling, width: int, directions: int = 1) -> None:
        super().__init__()
        self.kind = kind
        self.directions = directions
        if kind == "attention":
            self.keys = nn.Linear(width, width)
            self.query = nn.Parameter(torch.randn(width) / width**0.5)

    def weights(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Returns the weights of the learned attention, (B,T)."""
        return masked_softmax(torch.tanh(self.keys(hidden)) @ self.query, mask)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.kind == "mean":
            return masked_mean(hidden, mask)
        if mask is None:
            mask = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        if self.kind == "attention":
            return (self.weights(hidden, mask)[:, None] @ hidden)[:, 0]
        nonempty = mask.any(dim=1, keepdim=True)
        if self.kind == "max":
            highest = hidden.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
            return torch.where(nonempty, highest, 0.0)
        if self.kind == "first":
            return torch.where(nonempty, hidden[:, 0], 0.0)
        ends = (mask.sum(dim=1) - 1).clamp(min=0)
        last = hidden[torch.arange(len(hidden), device=hidden.device), ends]
        if self.directions == 2:  # the backward direction ends at the first element
            half = hidden.shape[-1] // 2
            last = torch.cat([last[:, :half], hidden[:, 0, half:]], dim=-1)
        return torch.where(nonempty, last, 0.0)


class StepHead(nn.Linear):
    """Outputs for every step: (B,T,D) → (B,T,O)."""

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(hidden)


class SpanHead(nn.Module):
    """Scores of each element as begin and as end of an answer, (B,T,D) → (B,T,2)."""

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
        pooler: Pooler | None = "tanh",
    ) -> None:
        super().__init__()
        self.pool = Pool(pooling, width, directions)
        self.uses_last = pooling == "last" and directions == 1  # the output of the last element suffices
        self.uses_first = pooling == "first"  # that of the first element suffices
        self.pooler = nn.Linear(width, width) if self.uses_first and pooler is not None else None
        self.activation = POOLERS[pooler or "tanh"]
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, outputs)
        if self.pooler is not None:  # initialized as BERT's linear layers
            for layer in (self.pooler, self.output):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.outputs(self.pooled(hidden, mask))

    def outputs(self, vectors: Tensor) -> Tensor:
        """Returns the outputs (B,O) of the result of `pooled`."""
        y: Tensor = self.output(vectors)
        return y

    def pooled(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the input of the last layer, (B,D)."""
        pooled: Tensor = self.pool(hidden, mask)
        return self.dropout(pooled if self.pooler is None else self.activation(self.pooler(pooled)))


class MaskedHead(nn.Module):
    """Predicts the token at a position: its transformed vector against the vectors of all tokens.

        y = norm(gelu(W h + b))    scores = y Eᵀ + c    E the token vectors of the input

    `forward` returns y: nn/loss.py computes losses of a large vocabulary without all scores.
    """

    def __init__(
        self, width: int, embeddings: nn.Embedding, activation: Activation, eps: float, std: float | None
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, embeddings.embedding_dim)
        self.norm = nn.LayerNorm(embeddings.embedding_dim, eps)
        self.activation = ACTIVATIONS[activation]
        self.weight = embeddings.weight
        self.bias = nn.Parameter(torch.zeros(embeddings.num_embeddings))
        _initialize(self.dense, std)

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(hidden)))
        return y

    def scores(self, hidden: Tensor) -> Tensor:
        """Returns the scores of all tokens, (…,V)."""
        return F.linear(self(hidden), self.weight, self.bias)


class PretrainHead(nn.Module):
    """BERT's two pretraining heads: masked tokens, and whether the second text follows the first.

    Either may be missing. The pooler belongs to the second one; without any head it is kept for later tasks, if the
    encoder has one.
    """

    def __init__(
        self,
        width: int,
        embeddings: nn.Embedding,
        masked: bool,
        next: bool,
        activation: Activation = "gelu",
        eps: float = 1e-12,
        pooler: bool = True,
        std: float | None = None,
    ) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width) if next or (pooler and not masked) else None
        self.masked = MaskedHead(width, embeddings, activation, eps, std) if masked else None
        self.next = nn.Linear(width, 2) if next else None
        for layer in (self.pooler, self.next):
            if layer is not None:
                _initialize(layer, std)

    def pooled(self, hidden: Tensor) -> Tensor:
        """Returns the vector of the whole sequence, (B,D)."""
        if self.pooler is None:
            raise TypeError("a head for masked tokens only has no pooler")
        return torch.tanh(self.pooler(hidden[:, 0]))

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """Returns the scores of all tokens at every position (B,T,V), and of "follows" and "does not" (B,2)."""
        masked = None if self.masked is None else self.masked.scores(hidden)
        return masked, None if self.next is None else self.next(self.pooled(hidden))


def _initialize(layer: nn.Linear, std: float | None) -> None:
    """Initializes a linear layer; None: as PyTorch does."""
    if std is not None:
        nn.init.normal_(layer.weight, std=std)
        nn.init.zeros_(layer.bias)


class ScaledHead(nn.Module):
    """A head with outputs in the units of the data: scale · y + shift, both from the training split."""

    scale: Tensor
    shift: Tensor

    def __init__(self, head: nn.Module, outputs: int) -> None:
        super().__init__()
        self.head: Any = head
        self.uses_last = getattr(head, "uses_last", False)
        self.uses_first = getattr(head, "uses_first", False)
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("shift", torch.zeros(outputs))

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.head(hidden, mask) * self.scale + self.shift
        return y

    def outputs(self, vectors: Tensor) -> Tensor:
        y: Tensor = self.head.outputs(vectors) * self.scale + self.shift
        return y

    def pooled(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.head.pooled(hidden, mask)
        return y
