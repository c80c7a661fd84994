"""Events of the training loop, and the callbacks that write them to the run folder and keep the outcome.

Progress bars, logs, files and reports are made from events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..core.files import Json, append_json, atomic_file, json_line, read_json_lines


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

    steps: int | None  # None: as many as fit into the time budget
    parameters: int
    flops: float | None  # of one update, None if there is no matrix product
    ranks: int
    unit: str = "tokens"  # what `tokens` counts, in the plural
    budget: float | None = None  # seconds of training, if these are its end instead of steps


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
class Evaluating(Event):
    """Progress of the final evaluation on a split: how many of its items, or of their generated outputs, are done."""

    split: str
    done: int
    total: int


@dataclass(frozen=True)
class Saved(Event):
    path: str


@dataclass(frozen=True)
class Stopped(Event):
    reason: str  # finished, minutes, patience, or the name of a signal
    best_step: int
    tokens: int
    metrics: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float | None = None  # processor time of the updates, of all threads and processes


# Callbacks

Callback = Callable[[Event], None]
MAX_STEP_LINES = 1_000  # of steps in a finished metrics.jsonl, about


class Recorder:
    """Writes every event as a line; steps are thinned out to about a thousand, each the mean loss since the last.

    Args:
        folder: The run folder.
        notify: Called with a note on lines that cannot be read.
    """

    def __init__(self, folder: Path, notify: Callable[[str], None] = lambda text: None) -> None:
        self.notify = notify
        self.metrics = folder / "metrics.jsonl"
        self.samples = folder / "samples.jsonl"
        self.steps: int | None = None
        self.budget: float | None = None
        self.last_seconds = 0.0  # of the last line of a step
        self.pending = (0.0, 0)  # sum and number of the losses since then

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self.steps, self.budget = event.steps, event.budget
            self._continue(event.step)
        if isinstance(event, Stepped):
            total, count = self.pending[0] + event.loss, self.pending[1] + 1
            self.pending = total, count
            if not self._is_recorded(event):
                return
            self.last_seconds, self.pending = event.seconds, (0.0, 0)
            event = replace(event, loss=total / count)
        record = event.record()
        durable = isinstance(event, Evaluated | Stopped)  # a checkpoint follows, whose history must not be lost
        if isinstance(event, Evaluated | Saved) and self.pending[1]:
            record["pending"] = self.pending
        if isinstance(event, Evaluated):
            sample = {"step": event.step, "tokens": event.tokens, "text": record.pop("sample")}
            append_json(self.samples, sample, durable)
        append_json(self.metrics, record, durable)

    def _is_recorded(self, event: Stepped) -> bool:
        """Returns whether a step has a line: the first, and then the next of each thousandth of the training."""
        if event.step == 1:
            return True
        if self.budget is not None:
            share = MAX_STEP_LINES / self.budget
            return int(event.seconds * share) > int(self.last_seconds * share)
        return event.step % max((self.steps or 0) // MAX_STEP_LINES, 1) == 0

    def _continue(self, step: int) -> None:
        """Removes the lines after a step: a resumed run repeats what came after its checkpoint. Damaged ones go too."""
        for file in (self.metrics, self.samples):
            records, problem = read_json_lines(file) if step else ([], "")
            if problem:
                self.notify(problem)
            before = [record for record in records if isinstance(record.get("step"), int) and record["step"] <= step]
            kept = [record for record in before if record.get("event") not in ("stopped", "evaluating")]
            if file.is_file():
                with atomic_file(file) as temporary:
                    temporary.write_bytes(b"".join(map(json_line, kept)))
            for record in kept:
                match record:
                    case {"event": "stepped", "seconds": float(seconds)}:
                        self.last_seconds = seconds
                    case {"step": at, "pending": [float(total), int(count)]} if at == step:
                        self.pending = total, count


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
