"""Networks as the native step of generation takes them (kernels/generation.py): their tensors in its order.

`stepper` gives what takes a network of tokens from one token to the next in one call, or None where there is no such
thing for it: other precisions and devices, other architectures, no compiler, or equations wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..kernels import generation as kernels
from ..kernels.generation import Choice, Native, Parts, Progress
from ..kernels.linear import NAMES as ACTIVATION_NAMES
from .backbone import wants_equations
from .inputs import TokenInput
from .network import Network, TokenHead
from .pair import Translator
from .recurrent import Cell
from .transformer import Block

__all__ = ["PLACES", "Choice", "PairStepper", "Progress", "Stepper", "pair_stepper", "stepper", "transformer_parts"]

PLACES = 1024  # for which positions without an end are made at first
QUICK = 1 << 24  # numbers that are multiplied in about the time that a forward pass takes to begin
CELL_KINDS = ("tanh", "relu", "lstm", "gru", "gru-after")  # in the order of `cells.h`


_natives: WeakKeyDictionary[nn.Module, dict[bool, tuple[Any, Native]]] = WeakKeyDictionary()


def transformer_parts(
    tokens: Tensor, positions: Tensor, blocks: Sequence[Block], norm: nn.Module, head: TokenHead, scale: float = 1.0
) -> Parts | None:
    """Of a stack of blocks over tokens, whose vectors (V,D) are multiplied by `scale`; `norm` may be the identity."""
    first = blocks[0]
    if tokens.shape[1] != first.attention.inputs.in_features:
        return None
    last = (norm.weight, norm.bias) if isinstance(norm, nn.LayerNorm) else (None, None)
    tensors = [tokens, positions, *last, head.weight, head.bias]
    for block in blocks:
        tensors += _block(block)
    cross = hasattr(first, "cross")
    activation = ACTIVATION_NAMES.index(first.feedforward.activation)
    sizes = (len(blocks), first.attention.heads, first.before, cross, activation)
    return Parts("transformer", tensors, [int(size) for size in sizes], [first.attention_norm.eps, scale])


def _block(block: Block) -> Iterator[Tensor]:
    parts: list[Any] = [block.attention_norm, block.attention.inputs, block.attention.output]
    if hasattr(block, "cross"):
        parts += [block.cross_norm, block.cross.query, block.cross.output]
    parts += [block.feedforward_norm, block.feedforward.hidden, block.feedforward.output]
    for part in parts:
        yield from (part.weight, part.bias)


def recurrent_parts(tokens: Tensor, cells: Sequence[Cell], head: TokenHead) -> Parts | None:
    """Of cells one above the other."""
    kinds = {cell.native for cell in cells}
    kind = kinds.pop()
    if kinds or kind not in CELL_KINDS:
        return None
    tensors: list[Tensor | None] = [tokens, head.weight, head.bias]
    for cell in cells:
        tensors += [cell.input.weight, cell.input.bias, cell.recurrent, getattr(cell, "bias", None)]
    return Parts("recurrent", tensors, [len(cells), CELL_KINDS.index(kind)])


class Stepper:
    """The native step of a network of tokens; `bytes`: with its weights kept in 8 bits each."""

    def __init__(self, network: Network, bytes: bool = False) -> None:
        self.network, self.bytes = network, bytes
        self.numbers = sum(parameter.numel() for parameter in network.backbone.parameters())
        self._native: Native | None = None

    def quick(self, tokens: int) -> bool:
        """Whether so many tokens are sooner read step by step than by the forward pass, all at once."""
        return tokens * self.numbers <= QUICK

    def read(self, tokens: Tensor) -> tuple[Tensor, Progress]:
        """The first tokens (N,T) of rows."""
        return self._packed().read(tokens)

    def begin(self, state: Any) -> Progress:
        """From the state that the network's own forward pass gave."""
        return self._packed().begin(*self.network.backbone.kept(state))

    def _packed(self) -> Native:
        self._native = _packed(self.network, self.bytes, lambda: parts_of(self.network))
        return self._native

    def step(self, tokens: Tensor, state: Progress) -> tuple[Tensor, Progress]:
        assert self._native is not None  # there is no state without `read` or `begin`
        return self._native.step(tokens, state)

    def go(
        self, tokens: Tensor, state: Progress, steps: int, limits: Tensor, choice: Choice, uniforms: Tensor | None
    ) -> tuple[Tensor, Tensor, Progress]:
        assert self._native is not None
        return self._native.go(tokens, state, steps, limits, choice, uniforms)


class PairStepper:
    """The native step of an encoder–decoder, behind some sources of which it keeps keys and values."""

    def __init__(self, network: Translator, memory: Any, bytes: bool = False) -> None:
        self.backbone = network.backbone
        self._native = _packed(network, bytes, lambda: pair_parts(network))
        remembered, mask = memory
        heads: int = self.backbone.get_submodule("decoder.0.attention").heads  # type: ignore[assignment]
        nothing = torch.empty(len(remembered[0]), 2 * heads, 0, self.backbone.width // heads)
        self._first = self._native.begin([nothing] * len(remembered), None, remembered, mask)
        self._read = 0

    def step(self, tokens: Tensor, state: Progress | None) -> tuple[Tensor, Progress]:
        """From nothing read (None), or on from a state; all rows have read as many tokens."""
        self._read = 0 if state is None else self._read
        if self.backbone.context is None and self._read >= PLACES and self._read & (self._read - 1) == 0:
            like = torch.empty(1, 2 * self._read, self.backbone.width)
            self._native.extend(self.backbone.get_submodule("positions")(0, like))
        self._read += 1
        return self._native.step(tokens, self._first if state is None else state)


def parts_of(network: nn.Module) -> Parts | None:
    if not isinstance(network, Network) or type(network.input) is not TokenInput:
        return None
    if not isinstance(network.head, TokenHead):
        return None
    parts: Parts | None = network.backbone.native(network.input.weight, network.head)
    return parts


def pair_parts(network: nn.Module) -> Parts | None:
    if not isinstance(network, Translator) or type(network.target) is not TokenInput:
        return None
    parts: Parts | None = network.backbone.native(network.target.weight, network.head, network.scale)
    return parts


def stepper(network: nn.Module, bytes: bool = False) -> Stepper | None:
    return Stepper(network, bytes) if _serves(network, parts_of) else None  # type: ignore[arg-type]


def pair_stepper(network: Translator, memory: Any, bytes: bool = False) -> PairStepper | None:
    """Behind the `memory` of some sources."""
    return PairStepper(network, memory, bytes) if _serves(network, pair_parts) else None


def _serves(network: Any, parts_of: Callable[[Any], Parts | None]) -> bool:
    if network.training or wants_equations() or torch.is_autocast_enabled("cpu"):
        return False
    parts = parts_of(network)
    return parts is not None and parts.fit() and kernels.available()


def _packed(network: nn.Module, bytes: bool, parts_of: Callable[[], Parts | None]) -> Native:
    """Its weights are packed when it is first asked, and again if they have changed."""
    now = tuple((parameter.data_ptr(), parameter._version) for parameter in network.parameters())
    kept = _natives.setdefault(network, {})
    if bytes not in kept or kept[bytes][0] != now:
        parts = parts_of()
        assert parts is not None  # asked before
        kept[bytes] = now, Native(parts, bytes)
    return kept[bytes][1]
