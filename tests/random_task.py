"""A task of random tokens, for tests of the training loop, and a clock whose pace the test decides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seriatim.tasks.batching import Batch
from seriatim.tasks.values import AnyEvaluation, Evaluation, Output

VOCAB_SIZE = 9


class RandomTask:
    """Predicts the next token of random sequences; the loop needs no more of a task than this."""

    unit, monitor, prefetch = "tokens", "loss", False

    def __init__(self, encoder_decoder: bool = False) -> None:
        self.encoder_decoder = encoder_decoder

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(0, VOCAB_SIZE, (batch_size, 7), generator=generator)[first:last]
        return Batch(tokens[:, :-1], tokens[:, 1:], tokens[:, 1:].numel(), fresh=step % 3 == 0)

    def steps_per_epoch(self, batch_size: int) -> int:
        return 48 // batch_size

    def forward(self, network: Any, batch: Batch, state: Any = None) -> Output:
        if self.encoder_decoder:
            return Output(network(batch.inputs.flip(1), batch.inputs))
        scores, state = network(batch.inputs, None, state)
        return Output(scores, None, state)

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        scores = output.scores.flatten(0, 1)
        return F.cross_entropy(scores, batch.targets.flatten(), reduction="sum", label_smoothing=smoothing)

    def evaluate(self, network: Any) -> AnyEvaluation:
        batch = RandomTask.batch(self, 1_000, 0, 4, 4)  # takes no time
        with torch.no_grad():
            loss = float(self.loss(self.forward(network, batch), batch)) / batch.count
        return Evaluation(SimpleNamespace(), {"loss": loss}, None)

    def sample(self, evaluation: AnyEvaluation) -> str:
        return "a sample"


class TimedTask(RandomTask):
    """Every batch of a step takes as many seconds as the pace says; `clock` returns the time."""

    def __init__(self, pace: Callable[[int], float]) -> None:
        super().__init__()
        self.pace, self.now = pace, 1_000.0

    def clock(self) -> float:
        return self.now

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        self.now += self.pace(step)
        return super().batch(step, first, last, batch_size)
