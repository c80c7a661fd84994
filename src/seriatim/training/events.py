"""Events of the training loop, and the callbacks that write them to the run folder and keep the outcome.

Progress bars, logs, files and reports are made from events."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..core.files import Json, write_text


@dataclass(frozen=True)
class Event:
    step: int
    seconds: float  # of training so far, without evaluation and saving

    def record(self) -> Json:
        """Returns a line of metrics.jsonl."""
        return {"event": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True)
class Started(Event):
    """Training starts, or continues from a step above 0."""

    steps: int | None
    parameters: int
    flops: float | None  # of one update, None if there is no matrix product
    ranks: int
    unit: str = "tokens"  # what `tokens` counts, in the plural


@dataclass(frozen=True)
class Planned(Event):
    """With a time budget: the number of steps that fit into it, as measured."""

    steps: int


@dataclass(frozen=True)
class Stepped(Event):
    loss: float
    lr: float
    grad_norm: float  # before clipping
    tokens: int  # so far, without padding


@dataclass(frozen=True)
class Evaluated(Event):
    metrics: dict[str, float]
    best: bool
    tokens: int
    sample: str = ""

    def record(self) -> Json:
        """Returns a line of metrics.jsonl, with a key `val_<metric>` for each metric."""
        values = super().record()
        metrics = values.pop("metrics")
        return values | {f"val_{name}": value for name, value in metrics.items()}


@dataclass(frozen=True)
class Saved(Event):
    path: str


@dataclass(frozen=True)
class Stopped(Event):
    reason: str  # finished, minutes, patience, or the name of a signal
    best_step: int
    tokens: int
    metrics: dict[str, float] = field(default_factory=dict)


# Callbacks

Callback = Callable[[Event], None]
MAX_STEP_LINES = 1_000  # of steps in a finished metrics.jsonl, about


class Recorder:
    """Writes every event as a line; steps are thinned out to about a thousand, each the mean loss since the last."""

    def __init__(self, folder: Path) -> None:
        self.metrics = folder / "metrics.jsonl"
        self.samples = folder / "samples.jsonl"
        self.every = 1
        self.losses: list[float] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._remove_after(event.step)
        if isinstance(event, Started | Planned) and event.steps is not None:
            self.every = max(event.steps // MAX_STEP_LINES, 1)
        if isinstance(event, Stepped):
            self.losses.append(event.loss)
            if event.step % self.every and event.step > 1:
                return
            event = replace(event, loss=statistics.fmean(self.losses))
            self.losses = []
        record = event.record()
        if isinstance(event, Evaluated):
            sample = record.pop("sample")
            self._append(self.samples, {"step": event.step, "tokens": event.tokens, "text": sample})
        self._append(self.metrics, record)

    def _remove_after(self, step: int) -> None:
        """Removes the lines after a step: a resumed run repeats what came after its checkpoint."""
        for file in (self.metrics, self.samples):
            if file.is_file():
                lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
                complete = [line for line in lines if line.endswith("\n")]
                valid = [line for line in complete if json.loads(line)["step"] <= step and '"stopped"' not in line]
                write_text(file, "".join(valid))

    @staticmethod
    def _append(file: Path, record: Json) -> None:
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


class Outcome:
    """Keeps the start and the end of a training, and the sample of its best evaluation."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.stopped: Stopped | None = None
        self.sample = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started = event
        elif isinstance(event, Stopped):
            self.stopped = event
        elif isinstance(event, Evaluated) and event.best:
            self.sample = event.sample
