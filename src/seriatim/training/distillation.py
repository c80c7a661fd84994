"""Distillation: a student is trained on the outputs of a teacher, besides the targets.

    loss = (1 − w) · loss of the targets + w · distance from the teacher's scores + h · similarity loss of the features

(nn/loss.py has the distances.) A `Distillation` is the objective of the loop in place of the task's own. If student
and teacher must read the same tokens (`Task.teacher_tokenizer`), the teacher reads each batch (`OnlineTeacher`).
Otherwise it predicts all targets once before the training (`CachedTeacher`): it may then read other tokens than the
student, and costs little.

The similarity loss is a mean over pairs within a batch, so that it alone depends on how a step is split into batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import Diagnostics, SeriatimError
from ..core.files import sha256
from ..core.run_summary import RunSummary, TeacherSummary
from ..core.state import State
from ..data.dataset import Dataset
from ..data.source import Source
from ..nn.inference import run_batches
from ..nn.loss import similarity_loss
from ..tasks.base import AnyTask, Task
from ..tasks.batching import Batch
from ..tasks.predictor import Predictor
from ..tasks.reading import without_empty
from ..tasks.values import AnyEvaluation, Output, Splits
from .config import Config, DistillSettings
from .objective import B, Objective, TaskObjective

Notify = Callable[[str], None]
NOTE_SECONDS = 10.0  # between notes while a teacher predicts


class TrainedRun(Protocol):
    """What a teacher needs of a `runs.Run`."""

    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> Config: ...
    @property
    def results(self) -> RunSummary: ...
    @property
    def task(self) -> AnyTask: ...
    @property
    def predictor(self) -> Predictor[Any]: ...


class Teacher:
    """A trained run, opened as a teacher.

    Args:
        run: The run.
    """

    def __init__(self, run: TrainedRun) -> None:
        if run.config.model.gradient_free:
            cause = f"{run.path} was not trained by gradient descent: it has no scores to learn from"
            raise SeriatimError("distill.teacher", cause, "name a run of another model as --teacher")
        self.run = run
        self.path: Path = run.path
        self.config = run.config
        self.task = run.task
        self.predictor = run.predictor

    def release(self) -> None:
        """Frees the memory of its weights."""
        del self.predictor
        self.run.__dict__.pop("predictor", None)  # cached properties
        self.run.__dict__.pop("network", None)

    @property
    def summary(self) -> TeacherSummary:
        """What a student's run stores: where the teacher was, a hash of its weights, its metrics."""
        results = self.run.results
        return TeacherSummary(
            path=str(self.path),
            fingerprint=sha256(self.path / "model.safetensors"),
            model=results.model,
            parameters=results.parameters,
            metrics=results.metrics,
        )

    def check_compatible(self, task: AnyTask, config: Config) -> None:
        """Raises SeriatimError unless teacher and student predict the same outputs for the same task."""
        name, teacher_name = config.task.name, self.config.task.name
        if name != teacher_name:
            cause = f"the teacher {self.path} was trained for the task {teacher_name}, the student is for {name}"
            raise SeriatimError("distill.task", cause, f"name a run of the task {name} as --teacher")
        if not overrides(task, "distillation_loss"):
            raise SeriatimError("distill.task", f"the task {name} has no distillation", "omit --teacher")
        if (
            config.distill is not None
            and config.distill.unlabeled_data is not None
            and (task.teacher_tokenizer or not overrides(task, "with_unlabeled"))
        ):
            cause = f"the task {name} does not support unlabeled data"
            raise SeriatimError("distill.unlabeled", cause, "omit --unlabeled-data; classify and regress support it")
        if problems := task.teacher_mismatches(self.predictor):
            lines = "\n".join(f"    {problem}" for problem in problems)
            cause = f"the outputs of the teacher {self.path} differ:\n{lines}"
            raise SeriatimError("distill.outputs", cause, "train both on the same data, read in the same way")


def overrides(task: AnyTask, hook: str) -> bool:
    """Returns whether a task has its own version of an optional hook."""
    return getattr(type(task), hook) is not getattr(Task, hook)


def check_same_teacher(before: TeacherSummary, now: TeacherSummary) -> None:
    """Raises SeriatimError unless a resumed training has the teacher and the unlabeled examples it began with."""
    if before.fingerprint != now.fingerprint:
        cause = f"{now.path} has other weights than the teacher that this training began with"
    elif before.unlabeled != now.unlabeled:
        cause = "the unlabeled examples differ from those at the start of this training"
    else:
        return
    raise SeriatimError("distill.changed", cause, "restore it; a new path goes under distill in config.yaml")


@dataclass(frozen=True)
class TeacherBatch(Batch):
    """A batch with the teacher's outputs for its N targets."""

    scores: Tensor | None = None  # (N,C)
    features: Tensor | None = None  # (N,D)
    labeled: Tensor | None = None  # (N,) whether there is a target; None: everywhere

    def to(self, device: torch.device) -> Self:
        batch = super().to(device)
        scores, features, labeled = (
            None if tensor is None else tensor.to(device) for tensor in (self.scores, self.features, self.labeled)
        )
        return replace(batch, scores=scores, features=features, labeled=labeled)


@dataclass(frozen=True)
class Pair:
    """The output of a student beside that of its teacher."""

    student: Output[Any]
    teacher: Output[Any]

    @property
    def state(self) -> State:
        return None if self.student.state is None else (self.student.state, self.teacher.state)


class Distillation(Objective[B, Pair]):
    """An objective whose loss includes a teacher; everything else is that of the student.

    Args:
        student: The objective of the student.
        settings: Temperature and weights.
    """

    prefetch = False

    def __init__(self, student: TaskObjective, settings: DistillSettings) -> None:
        self.student, self.task, self.settings = student, student.task, settings
        self.unit, self.monitor, self.batch_size = student.unit, student.monitor, student.batch_size

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.student.steps_per_epoch(batch_size)

    def evaluate(self, network: nn.Module) -> AnyEvaluation:
        return self.student.evaluate(network)

    def sample(self, evaluation: AnyEvaluation) -> str:
        return self.student.sample(evaluation)

    def loss(self, output: Pair, batch: B, smoothing: float = 0.0) -> Tensor:
        """Returns the sum over the targets; the similarity loss, a mean, counts once per target."""
        student, teacher, weight = output.student, output.teacher, self.settings.weight
        distance = self.task.distillation_loss(student, teacher, self.settings.temperature)
        loss = (1 - weight) * self.target_loss(student, batch, smoothing) + weight * distance
        if not self.settings.hidden_weight or student.features is None or teacher.features is None:
            return loss
        similarity = similarity_loss(student.features, teacher.features)
        return loss + self.settings.hidden_weight * batch.count * similarity

    def target_loss(self, output: Output[Any], batch: B, smoothing: float) -> Tensor:
        return self.task.loss(output, batch, smoothing)


class OnlineTeacher(Distillation[Batch]):
    """The teacher reads each batch; if rows continue from step to step, it carries its state too.

    Args:
        student: The objective of the student.
        settings: Temperature and weights.
        teacher: The network of the teacher.
    """

    def __init__(self, student: TaskObjective, settings: DistillSettings, teacher: nn.Module) -> None:
        super().__init__(student, settings)
        self.teacher = teacher.eval().requires_grad_(False)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        return self.student.batch(step, first, last, batch_size)

    def forward(self, network: nn.Module, batch: Batch, state: State = None) -> Pair:
        student_state, teacher_state = (None, None) if state is None else state
        student = self.task.forward(network, batch, student_state)
        with torch.no_grad():
            teacher = self.task.forward(self.teacher, batch, teacher_state)
        return Pair(student, teacher)


class CachedTeacher(Distillation[TeacherBatch]):
    """The outputs of the teacher are stored: one for every target of the training items, in order.

    Args:
        student: The objective of the student; its training items may end with unlabeled ones.
        settings: Temperature and weights.
        scores: The teacher's scores of each target (targets,C).
        features: The teacher's features (targets,D), or None.
        labeled: The number of labeled targets, which come first.
    """

    def __init__(
        self,
        student: TaskObjective,
        settings: DistillSettings,
        scores: np.ndarray,
        features: np.ndarray | None,
        labeled: int,
    ) -> None:
        super().__init__(student, settings)
        self.scores, self.features, self.labeled = scores, features, labeled

    def batch(self, step: int, first: int, last: int, batch_size: int) -> TeacherBatch:
        items = self.student.sampler.items(step, batch_size)
        items = items[first * len(items) // batch_size : last * len(items) // batch_size]
        targets = self.student.train.target_numbers(items)
        labeled = None if targets.max(initial=0) < self.labeled else torch.from_numpy(targets < self.labeled)
        return TeacherBatch(
            **vars(self.task.collate(self.student.train, items)),
            scores=torch.from_numpy(self.scores[targets]),
            features=None if self.features is None else torch.from_numpy(self.features[targets]),
            labeled=labeled,
        )

    def forward(self, network: nn.Module, batch: TeacherBatch, state: State = None) -> Pair:
        return Pair(self.task.forward(network, batch), Output(batch.scores, batch.features))

    def target_loss(self, output: Output[Any], batch: TeacherBatch, smoothing: float) -> Tensor:
        if batch.labeled is None:
            return self.task.loss(output, batch, smoothing)
        targets = replace(batch, targets=batch.targets[batch.labeled])
        return self.task.loss(Output(output.scores[batch.labeled]), targets, smoothing)


def read_unlabeled(task: AnyTask, splits: Splits[Any], source: Source, diagnostics: Diagnostics) -> Dataset:
    """Returns the rows of a source without targets, with notes on how many they are and on held-out rows among them."""
    schema = task.schema.inputs()
    rows = without_empty(task.read(source, diagnostics, schema), schema, Diagnostics())
    diagnostics.note(f"{rows.name}: {len(rows):,} unlabeled rows")
    roles = [field.role for field in schema.fields if field.role in rows]
    unlabeled = rows.row_hashes(roles)
    for split in (splits[name] for name in splits.evaluated):
        if repeated := int(np.isin(split.rows.row_hashes(roles), unlabeled).sum()):
            share = f"{repeated:,} of {len(split.rows):,} {split.name} rows"
            diagnostics.note(f"{share} are among the unlabeled rows: their metrics are too optimistic")
    return rows


def make_distillation(
    task: AnyTask,
    splits: Splits[Any],
    settings: DistillSettings,
    teacher: Teacher,
    device: torch.device,
    notify: Notify,
    limit: int | None = None,
    unlabeled: Dataset | None = None,
) -> Distillation[Any]:
    """Returns the objective of a student; the outputs of a teacher that may read other tokens are computed now.

    Args:
        task: The task of the student.
        splits: Its data.
        settings: Temperature and weights.
        teacher: The teacher.
        device: The device to compute on.
        notify: Called with notes.
        limit: The size of the sample that is evaluated during training.
        unlabeled: Further examples without targets.
    """
    student = TaskObjective.of(task, splits, limit)
    if task.teacher_tokenizer:
        return OnlineTeacher(student, settings, teacher.predictor.network.to(device))
    parts = [splits.train.rows]
    if unlabeled is not None:
        parts.append(unlabeled)
        items = task.with_unlabeled(splits.train.items, task.encode(unlabeled, Diagnostics()))
        student = TaskObjective(task, items, student.validation, Diagnostics())
    began = time.monotonic()
    outputs = [teacher_outputs(task, teacher, rows, settings.hidden_weight > 0, device, notify) for rows in parts]
    scores = np.concatenate([part[0] for part in outputs])
    features = [part[1] for part in outputs if part[1] is not None]
    notify(f"the teacher {teacher.path} predicted {len(scores):,} targets in {time.monotonic() - began:.1f} s")
    teacher.release()
    joined = np.concatenate(features) if features else None
    return CachedTeacher(student, settings, scores, joined, len(outputs[0][0]))


def teacher_outputs(
    task: AnyTask, teacher: Teacher, rows: Dataset, with_features: bool, device: torch.device, notify: Notify
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns a teacher's scores and, if needed, features of every target of a data set, in order.

    The scores have the order of the student's outputs.
    """
    reader, network = teacher.task, teacher.predictor.network.to(device).eval()
    inputs = {field.role for field in task.schema.inputs().fields}
    columns = {role: column for role, column in rows.columns.items() if role in inputs}
    encoded = reader.encode(replace(rows, columns=columns), Diagnostics())
    names, teacher_names = list(task.processor.outputs), list(reader.processor.outputs)
    order = [teacher_names.index(name) if name in teacher_names else index for index, name in enumerate(names)]
    parts: list[tuple[np.ndarray, ...]] = []
    began = noted = time.monotonic()
    done, total = 0, max(int(np.maximum(encoded.lengths, 1).sum()), 1)

    def run(items: np.ndarray) -> list[None]:
        nonlocal noted, done
        output = reader.forward(network, reader.collate(encoded, items).to(device))
        features: tuple[np.ndarray, ...] = ()
        if with_features and output.features is not None:
            features = (output.features.half().cpu().numpy(),)  # angles need no more precision
        parts.append((encoded.target_numbers(items), reader.teacher_scores(output)[:, order].cpu().numpy(), *features))
        done += int(np.maximum(encoded.lengths[items], 1).sum())
        if time.monotonic() - noted > NOTE_SECONDS:
            noted, share = time.monotonic(), done / total
            left = (noted - began) * (1 - share) / share
            notify(f"the teacher predicts: {100 * share:.0f} %, {left:.0f} s left")
        return [None] * len(items)

    run_batches(np.maximum(encoded.lengths, 1), run)
    targets, *values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    ordered = [value[np.argsort(targets)] for value in values]
    return ordered[0], ordered[1] if with_features else None
