"""Generation by the native step: a network's weights packed once, then one call for each token, or for many.

The network is described by tensors in a fixed order (see `blocks.h` and `cells.h`). The definition of the steps are
the modules of `nn/` themselves; the tests hold the two equal. float32 on the CPU; weights may be kept as bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.state import Rows
from . import load


@dataclass(frozen=True)
class Parts:
    """What the native step needs to know of a network: its kind, its tensors, its sizes, and numbers."""

    kind: str
    tensors: Sequence[Tensor | None]
    sizes: Sequence[int]
    numbers: Sequence[float] = ()

    def fit(self) -> bool:
        """Whether there is a native step for these: single precision, on the processor."""
        there = [tensor for tensor in self.tensors if tensor is not None]
        return all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in there)


@dataclass(frozen=True)
class Choice:
    """How tokens are chosen within `Native.go`."""

    end: int | None
    least: int = 0  # tokens before the end may come
    banned: tuple[int, ...] = ()
    temperature: float = 0.0  # 0: the likeliest
    top_k: int | None = None
    top_p: float | None = None


class Progress(Rows):
    """The state of some rows."""

    def __init__(self, generator: Any, inner: Any) -> None:
        self.generator, self.inner = generator, inner

    def select(self, rows: Tensor) -> Progress:
        return Progress(self.generator, self.generator.select(self.inner, rows.cpu()))


class Native:
    """A network with its weights packed, as numbers or as bytes."""

    def __init__(self, parts: Parts, bytes: bool = False) -> None:
        tensors = [torch.empty(0) if tensor is None else tensor.detach() for tensor in parts.tensors]
        numbers = [float(number) for number in parts.numbers]
        self.generator = _classes().Generator(parts.kind, tensors, list(parts.sizes), numbers, bytes)

    def begin(
        self,
        state: Sequence[Tensor],
        real: Tensor | None = None,
        memory: Sequence[Tensor] = (),
        mask: Tensor | None = None,
    ) -> Progress:
        """The state behind what was read elsewhere."""
        return Progress(self.generator, self.generator.begin(list(state), real, list(memory), mask))

    def read(self, tokens: Tensor) -> tuple[Tensor, Progress]:
        """Log-probabilities (N,V) of what follows the first tokens (N,T) of rows, and the state behind them."""
        log_probs, inner = self.generator.read(tokens)
        return log_probs, Progress(self.generator, inner)

    def extend(self, positions: Tensor) -> None:
        """Another table of positions (P,D), for more places."""
        self.generator.extend(positions)

    def step(self, tokens: Tensor, state: Progress) -> tuple[Tensor, Progress]:
        """Log-probabilities (N,V) of what follows one more token of each row (N,), and the state behind it."""
        log_probs, inner = self.generator.step(tokens, state.inner)
        return log_probs, Progress(self.generator, inner)

    def go(
        self,
        tokens: Tensor,
        state: Progress,
        steps: int,
        limits: Tensor,
        choice: Choice,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Progress]:
        """Up to so many tokens of each row behind `tokens`, −1 where there is none, and their log-probabilities, (N,
        steps) each; and the state of the rows that have not ended, behind all but the last of their tokens."""
        found, gains, inner = self.generator.go(
            tokens,
            state.inner,
            steps,
            limits,
            -1 if choice.end is None else choice.end,
            choice.least,
            list(choice.banned),
            uniforms,
            choice.temperature,
            0 if choice.top_k is None else choice.top_k,
            1.0 if choice.top_p is None else choice.top_p,
        )
        return found, gains, Progress(self.generator, inner)


def available() -> bool:
    return load()


@functools.cache
def _classes() -> Any:
    if not load():
        raise RuntimeError("the native kernels are not there: see `seriatim doctor`")
    return torch.classes.seriatim
