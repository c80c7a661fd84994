"""Objectives: what the training loop needs. A task with its splits is one, a distillation is another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor, nn

from ..core.errors import Diagnostics
from ..core.state import State
from ..tasks.base import AnyTask
from ..tasks.batching import Batch, Sampler
from ..tasks.values import AnyEvaluation, Output, Split, Splits


class Carried(Protocol):
    """An output whose state may be carried into the next batch."""

    @property
    def state(self) -> State: ...


B = TypeVar("B", bound=Batch)
Q = TypeVar("Q", bound=Carried)


class Objective(ABC, Generic[B, Q]):
    """What a loop minimizes and monitors. It is generic in its batches and in the outputs of a forward pass."""

    unit: str  # what the loss is averaged over
    monitor: str  # the metric that selects the best weights
    batch_size: int  # rows of a batch, if the settings name no number
    prefetch: bool  # whether batches are made in a background thread

    @abstractmethod
    def batch(self, step: int, first: int, last: int, batch_size: int) -> B:
        """Returns rows first…last−1 of the global batch of a step: the same on every rank, resumed or not."""

    @abstractmethod
    def steps_per_epoch(self, batch_size: int) -> int:
        """Returns the number of steps in which every item occurs once."""

    @abstractmethod
    def forward(self, network: nn.Module, batch: B, state: State = None) -> Q:
        """Returns the scores of a batch; `state` is that of the batch before, if states are carried."""

    @abstractmethod
    def loss(self, output: Q, batch: B, smoothing: float = 0.0) -> Tensor:
        """Returns the sum of the losses over the targets of a batch."""

    @abstractmethod
    def evaluate(self, network: nn.Module) -> AnyEvaluation:
        """Returns the evaluation on the validation split, or on a sample that depends on nothing but the split."""

    @abstractmethod
    def sample(self, evaluation: AnyEvaluation) -> str:
        """Returns a few predictions of an evaluation, to be shown."""


class TaskObjective(Objective[Batch, Output[Any]]):
    """The loss of a task on its training split, and its evaluation on the validation split.

    Args:
        task: The task.
        train: What is trained on.
        validation: What is evaluated: a sample of the validation split, or all of it.
        diagnostics: Receives notes of the sampler, such as on items that are not trained on.
    """

    def __init__(self, task: AnyTask, train: Any, validation: Split[Any], diagnostics: Diagnostics) -> None:
        self.task, self.train, self.validation = task, train, validation
        self.sampler: Sampler = task.sampler(train, diagnostics)
        self.unit, self.monitor, self.batch_size = task.unit, task.monitor, task.batch_size
        self.prefetch = task.prefetch

    @classmethod
    def of(
        cls, task: AnyTask, splits: Splits[Any], limit: int | None = None, diagnostics: Diagnostics | None = None
    ) -> TaskObjective:
        """Returns the objective of a task on its splits; `limit` is the number of elements of an evaluation."""
        validation = task.sample_split(splits["validation"], limit)
        return cls(task, splits.train.items, validation, Diagnostics() if diagnostics is None else diagnostics)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        items = self.sampler.items(step, batch_size)
        share = slice(first * len(items) // batch_size, last * len(items) // batch_size)
        batch = self.task.training_batch(self.train, items, share, step)
        return replace(batch, fresh=not self.sampler.continues(step))

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.sampler.steps_per_epoch(batch_size)

    def forward(self, network: nn.Module, batch: Batch, state: State = None) -> Output[Any]:
        return self.task.forward(network, batch, state)

    def loss(self, output: Output[Any], batch: Batch, smoothing: float = 0.0) -> Tensor:
        return self.task.loss(output, batch, smoothing)

    def evaluate(self, network: nn.Module) -> AnyEvaluation:
        return self.task.evaluate(network, self.validation)

    def sample(self, evaluation: AnyEvaluation) -> str:
        return self.task.sample(evaluation)
