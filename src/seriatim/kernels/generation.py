"""Native generation: the weights of a network are packed once, then one call generates a token, or many.

The network is described by tensors in a fixed order (see `blocks.h` and `cells.h`). The modules of `nn/` are the
reference; tests hold both equal. float32 on the CPU; weights may be stored in 8 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.state import RowState
from . import load


@dataclass(frozen=True)
class NetworkParts:
    """A network for the native step: its kind, tensors, sizes, and floating-point numbers."""

    kind: str
    tensors: Sequence[Tensor | None]
    sizes: Sequence[int]
    numbers: Sequence[float] = ()

    @property
    def supported(self) -> bool:
        """Whether the tensors are float32 on the CPU."""
        tensors = [tensor for tensor in self.tensors if tensor is not None]
        return all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


@dataclass(frozen=True)
class TokenChoice:
    """How `NativeGenerator.generate` chooses tokens."""

    eos: int | None
    min_tokens: int = 0  # before the end
    forbidden: tuple[int, ...] = ()
    temperature: float = 0.0  # 0: the most likely token
    top_k: int | None = None
    top_p: float | None = None


class NativeState(RowState):
    """The state of a batch of rows."""

    def __init__(self, generator: Any, inner: Any) -> None:
        self.generator, self.inner = generator, inner

    def select(self, rows: Tensor) -> NativeState:
        return NativeState(self.generator, self.generator.select(self.inner, rows.cpu()))


class NativeGenerator:
    """A network with packed weights, in float32 or 8 bits."""

    def __init__(self, parts: NetworkParts, int8: bool = False) -> None:
        tensors = [torch.empty(0) if tensor is None else tensor.detach() for tensor in parts.tensors]
        numbers = [float(number) for number in parts.numbers]
        self.generator = _classes().Generator(parts.kind, tensors, list(parts.sizes), numbers, int8)

    def from_state(
        self,
        state: Sequence[Tensor],
        state_mask: Tensor | None = None,
        memory: Sequence[Tensor] = (),
        memory_mask: Tensor | None = None,
    ) -> NativeState:
        """Returns the native state of exported tensors, with the memory of an encoder."""
        return NativeState(
            self.generator, self.generator.from_state(list(state), state_mask, list(memory), memory_mask)
        )

    def prefill(self, tokens: Tensor) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities (N,V) after prompts (N,T), and the state."""
        log_probs, inner = self.generator.prefill(tokens)
        return log_probs, NativeState(self.generator, inner)

    def extend_positions(self, positions: Tensor) -> None:
        """Replaces the table of positions by a longer one (P,D)."""
        self.generator.extend_positions(positions)

    def step(self, tokens: Tensor, state: NativeState) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities (N,V) after one more token of each row (N,), and the state."""
        log_probs, inner = self.generator.step(tokens, state.inner)
        return log_probs, NativeState(self.generator, inner)

    def generate(
        self,
        tokens: Tensor,
        state: NativeState,
        steps: int,
        limits: Tensor,
        choice: TokenChoice,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, NativeState]:
        """Returns up to `steps` tokens of each row after `tokens`, their log-probabilities, and a state.

        Both are (N,steps); −1 marks tokens after the end of a row. The state is that of the rows that have not ended,
        before their last token.
        """
        generated, log_probs, inner = self.generator.generate(
            tokens,
            state.inner,
            steps,
            limits,
            -1 if choice.eos is None else choice.eos,
            choice.min_tokens,
            list(choice.forbidden),
            uniforms,
            choice.temperature,
            0 if choice.top_k is None else choice.top_k,
            1.0 if choice.top_p is None else choice.top_p,
        )
        return generated, log_probs, NativeState(self.generator, inner)


def is_available() -> bool:
    return load()


@functools.cache
def _classes() -> Any:
    if not load():
        raise RuntimeError("the native kernels are not available: see `seriatim doctor`")
    return torch.classes.seriatim
