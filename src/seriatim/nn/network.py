"""Networks: an input, a backbone and a head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .backbone import Backbone, BackboneSettings, Trace
from .layers import TokenInput

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
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        hidden, mask, state = self.head_input(x, mask, state, trace)
        return self.head(hidden, mask), state

    def head_input(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Tensor | None, Any]:
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
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        """Returns the backbone's outputs for all elements (B,T,width), and the state."""
        y, state = self.backbone(self.input(x), mask, state, trace)
        return y, state


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
    """Copies tensors into a network; raises KeyError or ValueError if names or shapes differ."""
    own = weights(network)
    if missing := own.keys() ^ stored.keys():
        raise KeyError(f"weights without a counterpart: {', '.join(sorted(missing))}")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != stored[name].shape:
                expected, actual = tuple(tensor.shape), tuple(stored[name].shape)
                raise ValueError(f"{name} has shape {actual}, the model expects {expected}")
            tensor.copy_(stored[name])


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
