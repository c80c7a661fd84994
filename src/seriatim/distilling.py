"""What distillation gains: a teacher, a student alone and the same student distilled, measured side by side.

    seriatim.distil("runs/bert", "lstm", params="200k").table()

Both students have one seed, one budget and one data, those of the teacher's run where nothing else is said. Speed is
that of answering, in examples a second: the models take turns, and each has the median of its rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from . import report
from .api import completed, configure, must_agree, sections
from .core import registry
from .core.config import merge
from .core.device import joined_ranks
from .core.errors import SeriatimError
from .core.files import write_json
from .decode.options import TranslateSettings
from .runs import Run, fresh_folder
from .session import Notify
from .training.config import ENDS, Config
from .training.listeners import Listener

TEACHER, ALONE, TAUGHT = "teacher", "student alone", "student distilled"
FOLDERS = {TAUGHT: "distilled", ALONE: "alone"}  # distilled first: a teacher that does not fit shows at once
# What a student takes over from its teacher's training; how to learn is a matter of the model.
EVALUATING = ("evaluate_steps", "evaluate_minutes", "evaluate_limit", "patience")
BUDGET = (*ENDS, "batch", "accumulate", *EVALUATING, "precision", "device")
SIZES = (32, 1)  # examples that are asked about at once
TURN = 0.1  # seconds of one turn at least
ROUNDS, LEAST, LONGEST = 15, 5, 10.0  # rounds; fewest, and seconds after which there are no more


@dataclass(frozen=True)
class Distillation:
    path: Path
    runs: dict[str, Run]  # by what they are; those that were trained, and the teacher
    rows: list[dict[str, Any]] = field(default_factory=list)  # empty where a training was interrupted

    def table(self) -> list[dict[str, Any]]:
        """A row each: quality on the test part, size and speed."""
        return self.rows


def distil(
    teacher: str | Path,
    model: str | None = None,
    *,
    data: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    listeners: Callable[[str], Iterable[Listener]] = lambda label: (),
    notify: Notify | None = None,
    **short: Any,
) -> Distillation:
    """Trains a student with a teacher and without, measures all three and writes one report. A folder that holds a
    part of this already is completed."""
    run = Run(teacher)
    configs = students(run, model, data, settings or {}, **short)
    task = configs[TAUGHT].task.name
    path = fresh_folder("runs", f"distil-{task}") if out is None else Path(out)
    runs = {TEACHER: run}
    for label, config in configs.items():
        must_agree(path / FOLDERS[label], config)
    for label, config in configs.items():
        runs[label] = completed(config, path / FOLDERS[label], data_dir, listeners(label), notify)
        if runs[label].summary["reason"].startswith("SIG"):
            return Distillation(path, runs)
    if not joined_ranks().first:
        return Distillation(path, runs)
    if notify is not None:
        notify("measuring quality and speed")
    ordered = {label: runs[label] for label in (TEACHER, ALONE, TAUGHT)}
    found = Distillation(path, ordered, measured(ordered, data_dir))
    write_json(path / "distillation.json", {"teacher": str(run.path), "table": found.rows})
    report.write_distillation_report(path, ordered, found.rows)
    return found


def students(
    teacher: Run, model: str | None, data: str | None, settings: Mapping[str, Any], **short: Any
) -> dict[str, Config]:
    """The configurations of both students."""
    own = sections(settings)
    named = data is not None or own.get("data", {}).get("source") is not None
    ended = any(short.get(end) is not None or own.get("train", {}).get(end) is not None for end in ENDS)
    if model is None and own.get("model", {}).get("name") is None and short.get("start") is None:
        raise SeriatimError("distil.student", "no student is named", "name its architecture: --model lstm")
    wanted = {name: short.pop(name) for name in ("temperature", "alpha", "unlabelled") if name in short}
    chosen = {name: value for name, value in wanted.items() if value is not None}
    begun = short.get("start") is not None or own.get("start") is not None
    common = merge(_inherited(teacher, named, ended, begun), {n: v for n, v in own.items() if n != "distil"})
    distil = {**(own.get("distil") or {}), **chosen, "teacher": str(teacher.path)}
    # Where each token is an answer both students need the teacher's tokens, also the one that learns nothing from it.
    module = registry.tasks.load(common["task"]["name"])
    alone = {"teacher": str(teacher.path), "alpha": 0.0} if getattr(module, "SAME_TOKENS", False) else None
    return {
        label: configure(None, data, model, merge(common, {"distil": values}), **short)
        for label, values in {TAUGHT: distil, ALONE: alone}.items()
    }


def _inherited(teacher: Run, other_data: bool, other_end: bool, begun: bool) -> dict[str, Any]:
    """What the teacher's run says of the task, the data and the budget. What only suits its own model is left out."""
    stored = teacher.config.model_dump(mode="json")
    suits = getattr(type(teacher.config.model), "suits", {})
    module = registry.tasks.load(stored["task"]["name"])
    data = {} if other_data else {name: value for name, value in stored["data"].items() if value is not None}
    if begun or getattr(module, "SAME_TOKENS", False):  # the tokens come from elsewhere
        data.pop("tokenizer", None)
    skipped = ENDS if other_end else ()
    return {
        "task": {name: value for name, value in stored["task"].items() if suits.get(name) != value or name == "name"},
        "data": data,
        "train": {name: stored["train"][name] for name in BUDGET if name not in skipped},
        "seed": stored["seed"],
    }


# Measuring


def measured(runs: Mapping[str, Run], data_dir: str | None = None) -> list[dict[str, Any]]:
    """The rows of the table, the teacher first."""
    student = runs[TAUGHT]
    module = registry.tasks.load(student.config.task.name)
    asked = module.reopen(student.path, student.config, data_dir)
    split = "test" if asked.has("test") else "valid"
    teacher = runs[TEACHER]
    config = teacher.config.model_copy(update={"data": student.config.data})
    quality = {label: run.summary["measures"][split] for label, run in runs.items() if label != TEACHER}
    quality[TEACHER] = dict(module.reopen(teacher.path, config, data_dir).evaluate(teacher.model, split))
    pace = speeds({label: asker(run, asked, split) for label, run in runs.items()})
    return [
        {
            "label": label,
            "path": str(run.path),
            "model": run.config.model.name,
            "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
            "bytes": (run.path / "model.safetensors").stat().st_size,
            "split": split,
            "measures": quality[label],
            "objective": asked.objective,
            "speed": {str(size): round(pace[label][size], 2) for size in SIZES},
            "seconds": run.summary.get("seconds"),
        }
        for label, run in runs.items()
    ]


def asker(run: Run, task: Any, split: str) -> Callable[[int, int], None]:
    """What asks a run about so many examples of a part, beginning with one of them."""
    predictor = run.predictor
    if not hasattr(task, "some") or not {"predict", "translate"} & set(predictor.questions):
        return lambda first, count: _read(run.model, task, first, count)
    inputs = task.some(split, max(SIZES))
    if "translate" in predictor.questions:
        return lambda first, count: predictor.translate(inputs[first : first + count], TranslateSettings())
    return lambda first, count: predictor.predict(inputs[first : first + count])


@torch.inference_mode()
def _read(network: torch.nn.Module, task: Any, first: int, count: int) -> None:
    """Rows of text, and the probability of each of their tokens."""
    batch = task.batch(0, first, first + count, max(SIZES))
    network.eval()
    scores, _, _ = task.read(network, batch, None)
    task.hard(network, scores, batch, 0.0)


def speeds(askers: Mapping[str, Callable[[int, int], None]]) -> dict[str, dict[int, float]]:
    """Examples a second for each size of a batch."""
    found: dict[str, dict[int, float]] = {label: {} for label in askers}
    for size in SIZES:
        times: dict[str, list[float]] = {label: [] for label in askers}
        began = time.perf_counter()
        for number in range(ROUNDS + 1):
            for label, ask in askers.items():
                times[label].append(_turn(ask, size))
            if number >= LEAST and time.perf_counter() - began > LONGEST:
                break
        for label, taken in times.items():  # the first round only warms up
            found[label][size] = size / statistics.median(taken[1:])
    return found


def _turn(ask: Callable[[int, int], None], size: int) -> float:
    """Seconds that one batch takes. A quick model is asked again and again for a while: a clock that stops once says
    little about it."""
    start, asked = time.perf_counter(), 0
    while asked == 0 or time.perf_counter() - start < TURN:
        ask(asked % (max(SIZES) - size + 1), size)
        asked += 1
    return (time.perf_counter() - start) / asked
