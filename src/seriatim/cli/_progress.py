"""The progress of a training on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import atexit
import sys
import time
from typing import Any

from ..core.measures import main, told
from ..training.events import Evaluated, Event, Planned, Started, Stepped, Stopped
from ..training.settings import TrainSettings
from ._output import amount, duration, note

PLAIN_EVERY = 15.0  # seconds between lines where there is no terminal


class Progress:
    """A listener of the loop."""

    def __init__(self, label: str, settings: TrainSettings) -> None:
        self.label = label
        self.minutes = settings.minutes
        self.steps: int | None = None
        self.unit = "tokens"
        self.loss: float | None = None
        self.valid = ""
        self.shown = time.monotonic()
        self.bar = make_bar() if sys.stderr.isatty() else None
        self.job: Any = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Planned):
            self.steps = event.steps
        elif isinstance(event, Stepped):
            self._step(event)
        elif isinstance(event, Evaluated) and event.measures:
            self._evaluate(event)
        elif isinstance(event, Stopped):
            self._stop(event)

    def _start(self, event: Started) -> None:
        self.steps, self.unit = event.steps, event.unit
        self.began = event.seconds, event.step
        cost = f", {amount(event.flops, 'FLOP')} a step" if event.flops else ""
        many = f", {event.ranks} processes" if event.ranks > 1 else ""
        size = f"{event.parameters:,} parameters{cost}" if event.parameters else "counting"
        note(f"{self.label}: {size}{many}" + (f", from step {event.step:,}" if event.step else ""))
        if self.bar is not None and event.parameters:
            self.bar.start()
            atexit.register(self.bar.stop)  # an error must not leave the terminal without its cursor
            self.job = self.bar.add_task(self.label, total=self._total(), figures="")

    def _total(self) -> float | None:
        return self.steps if self.minutes is None else self.minutes * 60

    def _step(self, event: Stepped) -> None:
        self.loss = event.loss if self.loss is None else 0.95 * self.loss + 0.05 * event.loss
        speed = event.tokens / max(event.seconds, 1e-9)
        if self.bar is not None and self.job is not None:
            done = event.step if self.minutes is None else event.seconds
            figures = f"loss {self.loss:.3f}{self.valid}  {amount(speed)} {self.unit}/s"
            self.bar.update(self.job, completed=done, total=self._total(), figures=figures)
        elif self.bar is None and time.monotonic() - self.shown > PLAIN_EVERY:
            self._line(event, speed)

    def _line(self, event: Stepped, speed: float) -> None:
        self.shown = time.monotonic()
        of = f"/{self.steps:,}" if self.steps else ""
        left = ""
        if self.steps and event.step > self.began[1]:
            pace = (event.seconds - self.began[0]) / (event.step - self.began[1])
            left = f", {duration(pace * (self.steps - event.step))} left"
        note(f"{self.label}: step {event.step:,}{of}, loss {self.loss:.3f}, {amount(speed)} {self.unit}/s{left}")

    def _evaluate(self, event: Evaluated) -> None:
        loss = event.measures.get("loss", float("nan"))
        self.valid = f"  valid {loss:.3f}"
        judged = judging(event.measures)
        if self.bar is None:
            best = ", the best so far" if event.best else ""
            figures = f"validation loss {loss:.4f}{judged}{best}, {duration(event.seconds)}"
            note(f"{self.label}: step {event.step:,}, {figures}")

    def _stop(self, event: Stopped) -> None:
        if self.bar is not None:
            self.bar.stop()
        why = {
            "finished": "done",
            "minutes": "the time is up",
            "patience": "no more improvement",
            "SIGINT": "interrupted, saved",
            "SIGTERM": "terminated, saved",
        }
        best = f", best at step {event.best_step:,}" if event.best_step else ""
        note(f"{self.label}: {why[event.reason]} after {event.step:,} steps, {duration(event.seconds)}{best}")


def make_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def judging(measures: dict[str, float]) -> str:
    """What people judge by, where that is not the loss: ", accuracy 84.3 %"."""
    name = main(measures, "error" if "error" in measures else "loss")
    return "" if name == "loss" else f", {told(name, measures[name])}"
