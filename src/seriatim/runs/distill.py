"""Distillation compared: a teacher, a student trained alone and the same student distilled, side by side.

    seriatim.distill("runs/bert", "lstm", params="200k").table()

Both students have the same seed, budget and data, by default those of the teacher; more epochs and dropout if it was
fine-tuned and they start from nothing. Speed is that of prediction, in examples per second: the models take turns, and
each has the median of its rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import report
from ..core.config import merge
from ..core.device import join_ranks
from ..core.errors import Diagnostics, SeriatimError
from ..core.files import Json, write_json
from ..tasks import load as load_task
from ..tasks.predictor import Call
from ..tasks.reading import split_of
from ..tasks.values import Split
from ..training.config import ENDS, Config
from ..training.events import Callback
from .compare import check_same_settings
from .configure import configure, expand_names
from .evaluate import Notify, reopen_task
from .run import WEIGHTS, Run
from .session import Session, locked_by_first_rank, make_folder, train_or_resume

TEACHER, ALONE, DISTILLED = "teacher", "student alone", "student distilled"
FOLDERS = {DISTILLED: "distilled", ALONE: "alone"}  # distilled first: a teacher that does not fit is an error at once
EVALUATION = ("evaluate_steps", "evaluate_minutes", "patience")  # the limit follows from the pace of each model
INHERITED = (*ENDS, "batch_size", "accumulate", *EVALUATION, "precision", "device")  # from the teacher's training
SCRATCH_EPOCHS, SCRATCH_DROPOUT = 6, 0.3  # of a student without pretrained weights, whose teacher had some
BATCH_SIZES = (32, 1)  # examples that are predicted at a time
TURN_SECONDS = 0.1  # of one turn at least
MAX_ROUNDS, MIN_ROUNDS, MAX_SECONDS = 15, 5, 10.0


@dataclass(frozen=True)
class Distillation:
    """A teacher and two students on the same data."""

    path: Path
    runs: dict[str, Run]  # by role: those that were trained, and the teacher
    rows: list[Json] = field(default_factory=list)  # empty if a training was interrupted

    def table(self) -> list[Json]:
        """Returns a row per model: quality on the test split, size and speed."""
        return self.rows


def distill(
    teacher: str | Path,
    model: str | None = None,
    *,
    data: str | None = None,
    settings: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    callbacks: Callable[[str], Iterable[Callback]] = lambda label: (),
    notify: Notify | None = None,
    **short: Any,
) -> Distillation:
    """Trains a student with a teacher and without, measures all three and writes one report.

    Args:
        teacher: The run folder of the teacher.
        model: The architecture of the student.
        data: Another source than that of the teacher's run.
        settings: Nested settings of both students.
        out: The folder. What it holds in part is completed.
        data_dir: The folder of catalogue data sets.
        callbacks: Returns the callbacks of a student's training.
        notify: Called with each note.
        short: Options by their short names; see `runs.configure.short_settings`.
    """
    run = Run(teacher)
    remembered = run.task.layout.data_dir
    if data is None and data_dir is None and remembered is not None and Path(remembered).is_dir():
        data_dir = remembered
    configs = student_configs(run, model, data, settings or {}, **short)
    task = configs[DISTILLED].task.name
    path = make_folder(f"distill-{task}") if out is None else Path(out)
    runs = {TEACHER: run}
    with locked_by_first_rank(path, join_ranks()):
        for label, config in configs.items():
            check_same_settings(path / FOLDERS[label], config)
        for label, config in configs.items():
            session = Session(
                config, path / FOLDERS[label], data_dir=data_dir, callbacks=callbacks(label), notify=notify
            )
            runs[label] = train_or_resume(session)
            if runs[label].results.signal:
                return Distillation(path, runs)
        if not join_ranks().is_first:
            return Distillation(path, runs)
        if notify is not None:
            notify("measuring quality and speed")
        ordered = {label: runs[label] for label in (TEACHER, ALONE, DISTILLED)}
        result = Distillation(path, ordered, measure_runs(ordered, data_dir))
        write_json(path / "distillation.json", {"teacher": str(run.path), "table": result.rows})
        report.write_distillation_report(path, ordered, result.rows)
        return result


def student_configs(
    teacher: Run, model: str | None, data: str | None, settings: Mapping[str, object], **short: Any
) -> dict[str, Config]:
    """Returns the configurations of both students."""
    own = expand_names(settings)
    if model is None and own.get("model", {}).get("name") is None and short.get("start") is None:
        raise SeriatimError("distill.student", "no student is named", "name its architecture: --model lstm")
    names = {"temperature": "temperature", "distillation_weight": "weight", "unlabeled_data": "unlabeled_data"}
    options = {key: value for name, key in names.items() if (value := short.pop(name, None)) is not None}
    pretrained = short.get("start") is not None or own.get("start") is not None
    other_data = data is not None or own.get("data", {}).get("source") is not None
    if not other_data and teacher.config.data.source.startswith("<"):
        cause = f"{teacher.path} was trained on data in memory ({teacher.config.data.source})"
        raise SeriatimError("data.memory", cause, "name a file with the same data: --data")
    other_end = any(short.get(end) is not None or own.get("train", {}).get(end) is not None for end in ENDS)
    common = merge(
        inherited_settings(teacher, other_data, other_end, pretrained),
        {name: value for name, value in own.items() if name != "distill"},
    )
    distilled = {**(own.get("distill") or {}), **options, "teacher": str(teacher.path)}
    # If each token is a prediction, both students need the teacher's tokens, also the one that learns nothing from it.
    needs_tokens = load_task(common["task"]["name"]).teacher_tokenizer
    alone = {"teacher": str(teacher.path), "weight": 0.0} if needs_tokens else None
    return {
        label: configure(None, data, model, merge(common, {"distill": values}), **short)
        for label, values in {DISTILLED: distilled, ALONE: alone}.items()
    }


def inherited_settings(teacher: Run, other_data: bool, other_end: bool, pretrained: bool) -> Json:
    """Returns the task, data and budget of the teacher's run, without what only suits its model.

    A teacher that was fine-tuned saw the data a few times; students that start from nothing need more epochs, and with
    dropout they profit from the teacher in every seed that was tried (docs/results.md).
    """
    stored = teacher.config.model_dump(mode="json")
    defaults = type(teacher.config.model).task_defaults
    task = {key: value for key, value in stored["task"].items() if defaults.get(key) != value or key == "name"}
    if pretrained or load_task(stored["task"]["name"]).teacher_tokenizer:  # the tokens come from elsewhere
        task.pop("tokenizer", None)
    train = {name: stored["train"][name] for name in INHERITED if name not in (ENDS if other_end else ())}
    from_scratch = stored["start"] is not None and not pretrained
    if from_scratch and train.get("epochs") is not None:
        train["epochs"] = max(train["epochs"], SCRATCH_EPOCHS)
    return {
        "task": task,
        "data": {} if other_data else {key: value for key, value in stored["data"].items() if value is not None},
        "train": train,
        "seed": stored["seed"],
    } | ({"model": {"dropout": SCRATCH_DROPOUT}} if from_scratch else {})


def measure_runs(runs: Mapping[str, Run], data_dir: str | None = None) -> list[Json]:
    """Returns the rows of the table, the teacher first."""
    student, teacher = runs[DISTILLED], runs[TEACHER]
    task, splits = reopen_task(student, data_dir=data_dir)
    split = "test" if "test" in splits else "validation"
    metrics = {label: run.results.metrics[split] for label, run in runs.items() if label != TEACHER}
    own = split_of(teacher.task, splits[split].rows, Diagnostics(), split)
    metrics[TEACHER] = dict(teacher.task.evaluate(teacher.network, own).metrics)
    speed = measure_speed({label: prediction_function(run, splits[split]) for label, run in runs.items()})
    return [
        {
            "label": label,
            "path": str(run.path),
            "model": run.config.model.name,
            "parameters": sum(parameter.numel() for parameter in run.network.parameters()),
            "bytes": (run.path / WEIGHTS).stat().st_size,
            "split": split,
            "metrics": metrics[label],
            "monitor": task.monitor,
            "speed": {str(size): round(speed[label][size], 2) for size in BATCH_SIZES},
            "seconds": run.results.seconds,
        }
        for label, run in runs.items()
    ]


def prediction_function(run: Run, split: Split[Any]) -> Callable[[int, int], object]:
    """Returns a function that predicts `count` examples of a split, from the example `first` on.

    It runs the main capability of the run, or a forward pass if that reads other inputs than the training, as prompts.
    """
    task, predictor = run.task, run.predictor
    rows = split.rows
    rows = rows.take(np.unique(np.linspace(0, len(rows) - 1, max(BATCH_SIZES)).astype(np.int64)))
    method = next(iter(predictor.methods.values()))
    inputs = task.schema.inputs()
    capability = method.resolve(inputs)
    if capability.inputs == inputs and capability.per_row:
        options = capability.options()

        def answer(first: int, count: int) -> object:
            chosen = rows.take(np.arange(first, first + count) % len(rows))
            return list(method.run(predictor, Call(chosen, options, Diagnostics())))

        return answer
    items = split_of(task, rows, Diagnostics()).items

    @torch.inference_mode()
    def predict(first: int, count: int) -> None:
        chosen = np.arange(first, first + count) % len(items)
        batch = task.training_batch(items, chosen, slice(0, count), 0)
        task.loss(task.forward(run.network, batch), batch)

    return predict


def measure_speed(functions: Mapping[str, Callable[[int, int], object]]) -> dict[str, dict[int, float]]:
    """Returns the examples per second of each model, by batch size; the models take turns."""
    speed: dict[str, dict[int, float]] = {label: {} for label in functions}
    for size in BATCH_SIZES:
        times: dict[str, list[float]] = {label: [] for label in functions}
        start = time.perf_counter()
        for number in range(MAX_ROUNDS + 1):
            for label, predict in functions.items():
                times[label].append(time_batch(predict, size))
            if number >= MIN_ROUNDS and time.perf_counter() - start > MAX_SECONDS:
                break
        for label, seconds in times.items():  # the first round is a warm-up
            speed[label][size] = size / statistics.median(seconds[1:])
    return speed


def time_batch(predict: Callable[[int, int], object], size: int) -> float:
    """Returns the seconds of one batch, the mean over at least `TURN_SECONDS`."""
    start, batches = time.perf_counter(), 0
    while batches == 0 or time.perf_counter() - start < TURN_SECONDS:
        predict(batches % (max(BATCH_SIZES) - size + 1), size)
        batches += 1
    return (time.perf_counter() - start) / batches
