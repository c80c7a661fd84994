"""Callbacks for the events of the loop: metrics.jsonl and samples.jsonl in the run folder, and the outcome."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.files import write_text
from .events import Evaluated, Event, Planned, Started, Stepped, Stopped

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
    def _append(file: Path, record: dict[str, Any]) -> None:
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
