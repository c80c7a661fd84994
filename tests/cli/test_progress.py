"""The progress of a training on stderr: in steps, or in time if that is the budget."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from rich.console import Console

from seriatim.cli import output, progress
from seriatim.cli.progress import TrainingProgress
from seriatim.training.events import Evaluated, Event, Started, Stepped, Stopped


def events(steps: int | None, budget: float | None) -> list[Event]:
    return [
        Started(0, 0.0, steps, 1_000, None, 1, "tokens", budget),
        Stepped(1, 4.0, 2.5, 0.1, 1.0, 400),
        Evaluated(1, 4.0, {"loss": 2.0}, True, 400),
        Stepped(2, 12.5, 1.5, 0.1, 1.0, 1_000),
        Stopped(2, 12.5, "minutes" if budget else "finished", 1, 1_000),
    ]


def test_lines_of_a_time_budget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1)
    show = TrainingProgress("gru")
    for event in events(None, 12.0):
        show(event)
    assert capsys.readouterr().err.splitlines() == [
        "gru: 1,000 parameters",
        "gru: step 1, loss 2.500, 100 tokens/s, 4 s of 12 s",
        "gru: step 1, val_loss 2.0000, the best so far, 4 s of 12 s",
        "gru: step 2, loss 2.450, 80 tokens/s, 12.5 s of 12 s",
        "gru: the time is up after 2 steps, 12.5 s of 12 s, best at step 1",
    ]


def test_lines_of_a_number_of_steps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1)
    show = TrainingProgress("gru")
    for event in events(4, None):
        show(event)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "gru: step 1/4, loss 2.500, 100 tokens/s, 12 s left"
    assert lines[-1] == "gru: done after 2 steps, 12.5 s, best at step 1"


@pytest.mark.parametrize(("steps", "budget", "total"), [(None, 12.0, 12.0), (4, None, 4)])
def test_the_bar(steps: int | None, budget: float | None, total: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bars: list[Any] = []

    def make_bar() -> Any:
        bars.append(output.make_bar())
        bars[0].live.console = Console(file=io.StringIO())
        return bars[0]

    monkeypatch.setattr(progress, "make_bar", make_bar)
    show = TrainingProgress("gru")
    for event in events(steps, budget):
        show(event)
    (task,) = bars[0].tasks
    assert (task.total, task.completed) == (total, total if budget else 2)
    assert ("12.5 s of 12 s" in task.fields["figures"]) == (budget is not None)
    assert len(bars[0].columns) == (4 if budget else 6)
