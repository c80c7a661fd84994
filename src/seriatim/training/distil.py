"""Distillation: a student learns from what a teacher answers, besides from the truth.

    loss = (1 − α) · loss against the targets + α · distance from the teacher's scores + β · unlikeness of the vectors

(nn/soft.py has the distances.) A `Distilled` task stands around another: the loop sees batches and a sum of losses as
ever, and knows nothing of teachers. Where every example has an answer of its own the teacher is asked about all of
them once, before the training: it may then read other tokens than the student, and costs little (`Recalled`). Where
each token is an answer it is asked batch by batch, about the same tokens (`Asked`).

The unlikeness of vectors is a mean over pairs within a batch as it goes through the network, so that it depends, alone
of all terms, on how the rows of a step are cut into batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.files import sha256
from ..nn.soft import likeness_loss
from ..tasks._task import Batch
from .settings import DistilSettings

Notify = Callable[[str], None]
ELEMENTS = 32_768  # that go through a teacher at once
TOLD_EVERY = 10.0  # seconds between notes while a teacher answers
FIGURES = ("model", "parameters", "measures")  # of a teacher's summary that a student's run keeps


class Teacher:
    """A trained run, opened."""

    def __init__(self, run: Any) -> None:
        if run.config.model.counts:
            cause = f"{run.path} learnt nothing by gradients: it has no scores to learn from"
            raise SeriatimError("distil.teacher", cause, "name a run of another model as --teacher")
        self.run = run
        self.path: Path = run.path
        self.config = run.config
        self.predictor = run.predictor

    def dismiss(self) -> None:
        """Its weights are no longer needed."""
        del self.predictor, self.run.predictor

    @property
    def about(self) -> dict[str, Any]:
        """What a student's run says of it: where it was, which weights it had, how good it was."""
        known = {name: value for name, value in self.run.summary.items() if name in FIGURES}
        return {"path": str(self.path), "fingerprint": sha256(self.path / "model.safetensors"), **known}

    def must_suit(self, task: Any, config: Any) -> None:
        """Both answer the same question in the same terms, or an error that says in what they differ."""
        name, theirs = config.task.name, self.config.task.name
        if name != theirs:
            cause = f"the teacher {self.path} was trained for the task {theirs}, the student is for {name}"
            raise SeriatimError("distil.task", cause, f"name a run of the task {name} as --teacher")
        if not hasattr(task, "unlike"):
            raise SeriatimError("distil.task", f"the task {name} has no distillation", "leave --teacher away")
        if config.distil.unlabelled is not None and not hasattr(task, "with_unlabelled"):
            cause = f"the task {name} takes no unlabelled data"
            raise SeriatimError("distil.unlabelled", cause, "leave --unlabelled away; classify and regress take some")
        if problems := task.unlike(self.predictor):
            cause = f"the teacher {self.path} answers in other terms:\n" + "\n".join(f"    {one}" for one in problems)
            remedy = "train both on the same data, read in the same way"
            raise SeriatimError("distil.outputs", cause, remedy)


def unchanged(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A training that goes on has the teacher that it began with, and the same unlabelled examples."""
    what = {
        "fingerprint": f"{now['path']} has other weights than the teacher that this training began with",
        "unlabelled": "the unlabelled examples are not those that this training began with",
    }
    for name, cause in what.items():
        if before.get(name) != now.get(name):
            raise SeriatimError("distil.changed", cause, "restore it; a new place goes under distil in config.yaml")


@dataclass(frozen=True)
class TaughtBatch(Batch):
    """A batch with what a teacher says of its N targets."""

    scores: Tensor | None = None  # (N,C)
    vectors: Tensor | None = None  # (N,D)
    known: Tensor | None = None  # (N,) whether there is a true target; None: everywhere

    def to(self, device: torch.device) -> TaughtBatch:
        moved: Any = super().to(device)
        more = {name: getattr(self, name) for name in ("scores", "vectors", "known")}
        found: TaughtBatch = replace(
            moved, **{name: one if one is None else one.to(device) for name, one in more.items()}
        )
        return found


class Distilled:
    """A task whose loss a teacher has a part in. All else is the task's."""

    def __init__(self, task: Any, settings: DistilSettings) -> None:
        self.task = task
        self.settings = settings
        self.unit: str = task.unit
        self.objective: str = task.objective

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        batch: Batch = self.task.batch(step, first, last, rows)
        return batch

    def steps_per_epoch(self, rows: int) -> int:
        return int(self.task.steps_per_epoch(rows))

    def evaluate(self, network: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        measures: dict[str, float] = self.task.evaluate(network, split, limit)
        return measures

    def sample(self, network: nn.Module, step: int) -> str:
        return str(self.task.sample(network, step))

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        raise TypeError(f"{type(self).__name__} has no loss")

    def mixed(self, hard: Tensor, soft: Tensor, vectors: Tensor, taught: Tensor | None, count: int) -> Tensor:
        """All sums over `count` targets: the unlikeness, a mean, counts for each of them."""
        loss = (1 - self.settings.alpha) * hard + self.settings.alpha * soft
        if taught is None:
            return loss
        return loss + self.settings.hidden * count * likeness_loss(vectors, taught)


class Asked(Distilled):
    """The teacher reads each batch beside the student. Where rows of text go on from step to step, it goes on, too."""

    def __init__(self, task: Any, settings: DistilSettings, teacher: nn.Module) -> None:
        super().__init__(task, settings)
        self.teacher = teacher.eval().requires_grad_(False)  # a part of a weight would still be one that learns
        self.carries = bool(getattr(teacher.get_submodule("backbone"), "carries", False))

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        own, theirs = (None, None) if state is None else state
        scores, vectors, own = self.task.read(network, batch, own)
        with torch.no_grad():
            taught, meant, theirs = self.task.read(self.teacher, batch, theirs)
        hard = self.task.hard(network, scores, batch, smoothing)
        soft = self.task.soft(network, scores, taught, self.settings.temperature)
        loss = self.mixed(hard, soft, vectors, meant if self.settings.hidden else None, batch.count)
        return loss, (own, theirs if self.carries else None)


class Recalled(Distilled):
    """The answers of the teacher are at hand: one for every target of the training part, in its order. Examples from
    `labelled` on have no other target than these."""

    def __init__(
        self, task: Any, settings: DistilSettings, scores: np.ndarray, vectors: np.ndarray | None, labelled: int
    ) -> None:
        super().__init__(task, settings)
        self.scores = scores
        self.vectors = vectors
        self.labelled = labelled

    def batch(self, step: int, first: int, last: int, rows: int) -> TaughtBatch:
        chosen = self.task.rows(step, rows)[first:last]
        batch: Batch = self.task.collate("train", chosen)
        places = self.task.answered(chosen)
        known = None if places.max(initial=0) < self.labelled else places < self.labelled
        return TaughtBatch(
            **vars(batch),
            scores=torch.from_numpy(self.scores[places]),
            vectors=None if self.vectors is None else torch.from_numpy(self.vectors[places]),
            known=None if known is None else torch.from_numpy(known),
        )

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        if not isinstance(batch, TaughtBatch):
            raise TypeError("a batch without the teacher's answers")
        scores, vectors, _ = self.task.read(network, batch, None)
        labelled, true = batch, scores
        if batch.known is not None:
            labelled, true = replace(batch, targets=batch.targets[batch.known]), scores[batch.known]
        hard = self.task.hard(network, true, labelled, smoothing)
        soft = self.task.soft(network, scores, batch.scores, self.settings.temperature)
        return self.mixed(hard, soft, vectors, batch.vectors, batch.count), None


def distilled(
    task: Any, settings: DistilSettings, teacher: Teacher, device: torch.device, notify: Notify, more: Any = None
) -> Distilled:
    """The task with its teacher; `more` is the same task with unlabelled examples as well, where there are some."""
    if not hasattr(task, "read_by"):
        return Asked(task, settings, teacher.predictor.model.to(device))
    extended = task if more is None else more
    scores, vectors = recall(extended, teacher, settings.hidden > 0, device, notify)
    teacher.dismiss()
    labelled = len(scores) if more is None else len(task.parts["train"])
    return Recalled(extended, settings, scores, vectors, labelled)


def recall(
    task: Any, teacher: Teacher, hidden: bool, device: torch.device, notify: Notify
) -> tuple[np.ndarray, np.ndarray | None]:
    """What a teacher says of every target of the training part: its scores, and its vectors where they are wanted."""
    read = task.read_by(teacher.config, teacher.predictor)
    network = teacher.predictor.model.to(device).eval()
    ours, theirs = list(task.coder.labels), list(teacher.predictor.coder.labels)
    columns = [theirs.index(name) if name in theirs else place for place, name in enumerate(ours)]
    lengths = np.maximum(read.parts["train"].inputs.lengths, 1)
    found: list[tuple[np.ndarray, ...]] = []
    began = told = time.monotonic()
    done = 0
    for rows in _by_length(lengths):
        with torch.inference_mode():
            scores, vectors, _ = read.read(network, read.collate("train", rows).to(device), None)
        kept = (vectors.half().cpu().numpy(),) if hidden else ()  # angles need no more digits
        found.append((read.answered(rows), scores[:, columns].cpu().numpy(), *kept))
        done += int(lengths[rows].sum())
        if time.monotonic() - told > TOLD_EVERY:
            told = time.monotonic()
            share = done / int(lengths.sum())
            left = (told - began) * (1 - share) / share
            notify(f"the teacher answers: {100 * share:.0f} %, {left:.0f} s left")
    places, *values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    ordered = [value[np.argsort(places)] for value in values]
    seconds = time.monotonic() - began
    notify(f"the teacher {teacher.path} gave {len(places):,} answers in {seconds:.1f} s")
    return ordered[0], ordered[1] if hidden else None


def _by_length(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of like length together, the longest first."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        some = max(ELEMENTS // int(lengths[order[0]]), 1)
        yield order[:some]
        order = order[some:]
