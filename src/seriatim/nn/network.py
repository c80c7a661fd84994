"""A model is an input, a backbone and a head; this file puts them together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .backbone import Backbone, BackboneSettings
from .inputs import TokenInput
from .trace import Trace

TIE_ABOVE = 4_096  # tokens; beyond, two tables would be the larger part of most models


class TokenHead(nn.Module):
    """A score for every token of the vocabulary; tied, it shares the table of the input."""

    def __init__(self, width: int, vocabulary: int, tied_to: TokenInput | None = None, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width)) if tied_to is None else tied_to.weight
        if tied_to is None:
            nn.init.uniform_(self.weight, -1 / math.sqrt(width), 1 / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)


class Network(nn.Module):
    def __init__(self, input: nn.Module, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.input = input
        self.backbone = backbone
        self.head = head

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        hidden, mask, state = self.given(x, mask, state, trace)
        return self.head(hidden, mask), state

    def given(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Tensor | None, Any]:
        """What the head needs, at no more cost than that: where it looks at one element, the output of that alone."""
        final = getattr(self.head, "final", False) and mask is None and state is None
        first = getattr(self.head, "first", False) and state is None  # an empty sequence is the pool's affair
        if trace is not None and (final or first):  # what is shown is the whole, what is answered as ever
            self.hidden(x, mask, None, trace)
        if final:
            return self.backbone.final(self.input(x))[:, None], None, None
        if first:
            return self.backbone.first(self.input(x), mask)[:, None], None if mask is None else mask[:, :1], None
        hidden, state = self.hidden(x, mask, state, trace)
        return hidden, mask, state

    def hidden(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        """The outputs for all elements, for a loss that has no need of all scores (see nn/loss.py)."""
        y, state = self.backbone(self.input(x), mask, state, trace)
        return y, state


def full(scores: Tensor) -> Tensor:
    """Scores in at least single precision: what a softmax over many tokens needs."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def token_network(settings: BackboneSettings, vocabulary: int, length: int) -> Network:
    """Tokens in, scores of the next token out."""
    fits = settings.embedding in (None, settings.width)  # one table can serve both only where the sizes agree
    tied = fits and (vocabulary > TIE_ABOVE if settings.tie is None else settings.tie)
    inputs = settings.token_input(vocabulary, tied=tied)
    backbone = settings.build(settings.input_width(tied), length)
    tied = tied and backbone.width == inputs.embedding_dim
    head = TokenHead(backbone.width, vocabulary, inputs if tied else None, settings.output_bias)
    return Network(inputs, backbone, head)


def symbol_input(settings: BackboneSettings, vocabulary: int) -> TokenInput:
    """Symbols of a network whose outputs are something else: nothing to tie."""
    return settings.token_input(vocabulary)


def assemble(
    settings: BackboneSettings, inputs: nn.Module, width: int, length: int, head: Callable[[Backbone], nn.Module]
) -> Network:
    """An input that gives vectors of size `width`, the backbone, and the head that suits it."""
    backbone = settings.build(width, length)
    return Network(inputs, backbone, head(backbone))


def weights(network: nn.Module) -> dict[str, Tensor]:
    """All that must be stored, each tensor once (a tied table has two names)."""
    return dict(network.named_parameters()) | dict(network.named_buffers())


def load_weights(network: nn.Module, stored: dict[str, Tensor]) -> None:
    """The inverse of `weights`; raises KeyError or ValueError where names or shapes differ."""
    head = getattr(network, "head", None)
    if isinstance(head, TokenHead) and head.bias is None and "head.bias" in stored:
        head.bias = nn.Parameter(torch.zeros(len(head.weight)))  # a GPT of the time when its output had one
    own = weights(network)
    if missing := own.keys() ^ stored.keys():
        raise KeyError(f"weights without a counterpart: {', '.join(sorted(missing))}")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != stored[name].shape:
                raise ValueError(f"{name} has shape {tuple(stored[name].shape)}, the model wants {tuple(tensor.shape)}")
            tensor.copy_(stored[name])


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
