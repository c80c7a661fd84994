"""The progress of a training or of a long prediction on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import atexit
import sys
import time
from typing import TYPE_CHECKING

from ..core.metrics import describe_metric, main_metric
from ..core.text import format_amount, format_duration
from ..training.events import Evaluated, Evaluating, Event, Started, Stepped, Stopped
from .output import LINE_SECONDS, make_bar, note

if TYPE_CHECKING:
    from rich.progress import TaskID

SMOOTHING = 0.95  # of the loss that is shown
REASONS = {
    "finished": "done",
    "minutes": "the time is up",
    "patience": "no more improvement",
    "paused": "the round is over",
    "eliminated": "not among the better half",
    "SIGINT": "interrupted, saved",
    "SIGTERM": "terminated, saved",
}


class TrainingProgress:
    """A callback of the training loop that shows its progress: in steps, or in seconds if time is the budget.

    Args:
        label: The name of the model.
        with_bar: Whether to show a bar on a terminal; there can be only one at a time.
    """

    def __init__(self, label: str, with_bar: bool = True) -> None:
        self.label = label
        self.steps: int | None = None
        self.budget: float | None = None
        self.unit = "tokens"
        self.loss: float | None = None
        self.validation = ""
        self.last_line = time.monotonic()
        self.first_seconds, self.first_step = 0.0, 0
        self.bar = make_bar() if with_bar and sys.stderr.isatty() else None
        self.bar_task: TaskID | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Stepped):
            self._step(event)
        elif isinstance(event, Evaluated) and event.metrics:
            self._evaluate(event)
        elif isinstance(event, Evaluating):
            self._follow_evaluation(event)
        elif isinstance(event, Stopped):
            if self.bar is not None:
                self.bar.stop()
                atexit.unregister(self.bar.stop)
            best = f", best at step {event.best_step:,}" if event.best_step else ""
            reason = REASONS.get(event.reason, event.reason)
            note(f"{self.label}: {reason} after {event.step:,} steps, {self._format_time(event)}{best}")

    def _format_time(self, event: Event) -> str:
        """Returns the time of training, and of how much if that is the budget."""
        budget = "" if self.budget is None else f" of {format_duration(self.budget)}"
        return format_duration(event.seconds) + budget

    def _start(self, event: Started) -> None:
        self.steps, self.budget, self.unit = event.steps, event.budget, event.unit
        self.first_seconds, self.first_step = event.seconds, event.step
        cost = f", {format_amount(event.flops, 'FLOP')} per step" if event.flops else ""
        ranks = f", {event.ranks} processes" if event.ranks > 1 else ""
        size = f"{event.parameters:,} parameters{cost}" if event.parameters else "fitting without gradient descent"
        note(f"{self.label}: {size}{ranks}" + (f", from step {event.step:,}" if event.step else ""))
        if self.bar is not None and event.parameters:
            if self.budget is not None:
                self.bar.columns = self.bar.columns[:-2]  # the figures have the times, of training alone
            self.bar.start()
            atexit.register(self.bar.stop)  # an error must not leave the terminal without its cursor
            self.bar_task = self.bar.add_task(self.label, total=self.budget or self.steps, figures="")

    def _step(self, event: Stepped) -> None:
        self.loss = event.loss if self.loss is None else SMOOTHING * self.loss + (1 - SMOOTHING) * event.loss
        speed = f"{format_amount(event.tokens / max(event.seconds, 1e-9))} {self.unit}/s"
        if self.bar is not None and self.bar_task is not None:
            completed = event.step if self.budget is None else min(event.seconds, self.budget)
            time_used = "" if self.budget is None else f"  {self._format_time(event)}"
            figures = f"loss {self.loss:.3f}{self.validation}  {speed}{time_used}"
            self.bar.update(self.bar_task, completed=completed, figures=figures)
        elif self.bar is None and time.monotonic() - self.last_line > LINE_SECONDS:
            self.last_line = time.monotonic()
            total, remaining = (f"/{self.steps:,}" if self.steps else ""), ""
            if self.budget is not None:
                remaining = f", {self._format_time(event)}"
            elif self.steps and event.step > self.first_step:
                pace = (event.seconds - self.first_seconds) / (event.step - self.first_step)
                remaining = f", {format_duration(pace * (self.steps - event.step))} left"
            note(f"{self.label}: step {event.step:,}{total}, loss {self.loss:.3f}, {speed}{remaining}")

    def _follow_evaluation(self, event: Evaluating) -> None:
        """Shows every few seconds how much of a split has been evaluated."""
        if event.done and time.monotonic() - self.last_line > LINE_SECONDS:
            self.last_line = time.monotonic()
            note(f"{self.label}: {event.split} split, {event.done:,} of {event.total:,} evaluated")

    def _evaluate(self, event: Evaluated) -> None:
        loss = event.metrics.get("loss", float("nan"))
        self.validation = f"  val_loss {loss:.3f}"
        if self.bar is not None:
            return
        name = main_metric(event.metrics, "error" if "error" in event.metrics else "loss")
        main = "" if name == "loss" else f", {describe_metric(name, event.metrics[name])}"
        best = ", the best so far" if event.best else ""
        note(f"{self.label}: step {event.step:,}, val_loss {loss:.4f}{main}{best}, {self._format_time(event)}")
