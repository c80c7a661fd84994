"""What the training loop asks of a task. Nothing else about a task is known to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..core.state import map_state


@dataclass(frozen=True)
class Batch:
    """Rows of a training batch. `count` is the number of real targets: losses are divided by it once, globally."""

    inputs: Any
    targets: Any
    count: int
    mask: Tensor | None = None
    fresh: bool = True  # the rows do not go on where those of the step before ended: carried states start anew

    def to(self, device: torch.device) -> Batch:
        move = lambda tensor: tensor.to(device, non_blocking=True)  # noqa: E731
        return replace(
            self,
            inputs=map_state(move, self.inputs),
            targets=map_state(move, self.targets),
            mask=map_state(move, self.mask),
        )


class Task(Protocol):
    unit: str  # what batches count, in the plural: tokens, examples, frames
    objective: str  # the measure that decides which weights are the best: the lower, the better
    # `ahead = True`: batches take long enough to be made in the background, one step ahead

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        """Rows first…last−1 of the `rows` rows of a step: a pure function, the same on every rank, resumed or not."""

    def steps_per_epoch(self, rows: int) -> int:
        """How many steps of `rows` rows make a pass over the training part; one at least."""

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        """The sum of the losses over the real targets, and the state to carry on."""

    def evaluate(self, network: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        """The measures on a split, or on the first `limit` elements of it."""

    def sample(self, network: nn.Module, step: int) -> str:
        """What the model produces at this point of its training, for people to look at."""


class Teachable(Task, Protocol):
    """What distillation (training/distil.py) asks besides. `loss` is then `hard` of what `read` gives."""

    def read(self, network: nn.Module, batch: Batch, state: Any) -> tuple[Any, Tensor, Any]:
        """What a network says about the N targets of a batch: scores (N,C), or the `TokenScores` of a vocabulary; the
        vectors (N,D) that they are made from; and the state to carry on. Scores that cannot be given are −∞."""

    def hard(self, network: nn.Module, scores: Any, batch: Batch, smoothing: float) -> Tensor:
        """The sum of the losses of scores against the true targets."""

    def soft(self, network: nn.Module, scores: Any, taught: Any, temperature: float) -> Tensor:
        """The sum of their distances from the scores of a teacher (see nn/soft.py)."""

    def unlike(self, teacher: Any) -> list[str]:
        """What keeps the predictor of another run from being a teacher: a sentence for each difference."""
