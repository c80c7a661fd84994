"""metrics.jsonl and samples.jsonl: flat validation metrics, thinned steps, and resumed runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seriatim.training.events import Evaluated, Outcome, Recorder, Started, Stepped, Stopped


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_events_are_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder(Started(0, 0.0, 4_000, 10, 1.0, 1))
    for step in range(1, 9):
        recorder(Stepped(step, float(step), loss=float(step), lr=0.1, grad_norm=2.0, tokens=step))
    recorder(Evaluated(8, 8.0, {"loss": 1.5, "accuracy": 0.5}, True, 8, "text"))
    records = lines(tmp_path / "metrics.jsonl")
    assert [(record["step"], record["loss"]) for record in records if record["event"] == "stepped"] == [
        (1, 1.0),
        (4, 3.0),  # the mean of steps 2 to 4
        (8, 6.5),
    ]
    evaluated = records[-1]
    assert (evaluated["val_loss"], evaluated["val_accuracy"]) == (1.5, 0.5)
    assert "sample" not in evaluated
    assert lines(tmp_path / "samples.jsonl") == [{"step": 8, "tokens": 8, "text": "text"}]


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder(Started(0, 0.0, 4, 10, 1.0, 1))
    for step in range(1, 5):
        recorder(Stepped(step, 0.0, 1.0, 0.1, 2.0, step))
    recorder(Stopped(4, 0.0, "SIGINT", 2, 4))
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"event": "stepped", "st')  # a line that was cut off
    Recorder(tmp_path)(Started(2, 0.0, 4, 10, 1.0, 1))
    events = [(record["event"], record["step"]) for record in lines(tmp_path / "metrics.jsonl")]
    assert events == [("started", 0), ("stepped", 1), ("stepped", 2), ("started", 2)]


def test_the_outcome_keeps_the_best_sample() -> None:
    outcome = Outcome()
    outcome(Started(0, 0.0, 4, 10, 1.0, 1))
    outcome(Evaluated(1, 0.0, {"loss": 1.0}, True, 1, "best"))
    outcome(Evaluated(2, 0.0, {"loss": 2.0}, False, 2, "worse"))
    outcome(Stopped(2, 0.0, "finished", 1, 2))
    assert outcome.sample == "best"
    assert outcome.stopped is not None
    assert outcome.started is not None
