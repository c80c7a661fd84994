"""A crash at any moment of a training leaves a folder that can be trained or resumed, with the same result."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import seriatim
from crashes import Tree, recorded, write_tree
from seriatim import cli
from seriatim.core.errors import SeriatimError
from seriatim.core.files import WriteError
from seriatim.runs.run import Run
from seriatim.runs.session import has_started
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.events import Event, Stepped

ROWS = [(f"{word} {number % 5} {word}", word) for number in range(16) for word in ("red", "blue")]
TABLE = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
TRAIN = {"evaluate_steps": 2, "batch_size": 4, "ema": 0.5}
CLASSIFY = {"task": "classify", "model": "gru", "settings": {"model": {"width": 4}, "train": TRAIN}, "steps": 4}
COUNT = {"task": "language", "model": "ngram"}


@dataclass(frozen=True)
class Story:
    """A training whose every moment was recorded."""

    states: list[Tree]
    options: dict[str, Any]  # of the training
    end: int | None  # that the training was resumed to
    weights: bytes  # at the end


@pytest.fixture(scope="module", params=["trained", "counted", "resumed"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("disk")
    (folder / "table.csv").write_text(TABLE, encoding="utf-8")
    options: dict[str, Any] = COUNT if request.param == "counted" else CLASSIFY
    options = options | {"data": str(folder / "table.csv"), "report": False}
    run, end = folder / "runs" / "run", 3 if request.param == "resumed" else None
    run.parent.mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        if end is not None:  # this checkpoint is not evaluated: it is replaced by one that is
            seriatim.train(**options, callbacks=[stop_at(end)], out=run)
        with recorded(run.parent, monkeypatch) as disk:
            seriatim.train(**options, out=run) if end is None else seriatim.resume(run, steps=end, report=False)
    return Story(disk.states, options, end, (run / "model.safetensors").read_bytes())


def stop_at(step: int) -> Callable[[Event], None]:
    def callback(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return callback


def describe(state: Tree) -> str:
    return " ".join(sorted(path.removeprefix("run/") for path in state))


def complete_names(state: Tree) -> frozenset[str]:
    """Returns the names of what is complete."""
    return frozenset(path for path in state if ".partial" not in path)


def finish(run: Path, story: Story) -> bool:
    """Ends an interrupted training as a user would; returns whether anything was left to do."""
    try:
        if (run / "config.yaml").is_file():
            seriatim.resume(run, steps=story.end, report=False)
        else:
            seriatim.train(**story.options, out=run)
    except SeriatimError as error:  # an n-gram model has nothing to resume once it is finished
        if error.code != "run.gradient-free":
            raise
        return False
    return True


def check_finished(story: Story, states: list[Tree], tmp_path: Path) -> None:
    for number, state in enumerate(states):
        root = tmp_path / str(number)
        write_tree(root, state)
        partial = set() if finish(root / "run", story) else set(root.rglob("*.partial"))
        assert (root / "run" / "model.safetensors").read_bytes() == story.weights, describe(state)
        assert set(root.rglob("*.partial")) == partial, describe(state)
        assert not list(root.rglob("*.lock")), describe(state)


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def test_every_state_is_listed_and_whole(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(story.states) > 30
    for number, state in enumerate(story.states):
        root = tmp_path / str(number)
        write_tree(root, state)
        assert cli.run(["runs", str(root)]) == 0, describe(state)
        path = root / "run"
        if not (path / "config.yaml").is_file():
            assert not has_started(path), describe(state)
            continue
        run = Run(path)
        assert run.task.processor is not None
        assert not run.changed_settings(run.stored_data)
        if (path / "model.safetensors").is_file():
            assert run.network is not None
        checkpoints = Checkpoints(path / "checkpoints")
        if checkpoints.steps():
            assert checkpoints.load().progress["step"] == checkpoints.steps()[-1]
        elif has_started(path):
            assert run.summary["reason"] == "finished", describe(state)
    assert "error" not in capsys.readouterr().err


def test_every_kind_of_state_ends_with_the_same_weights(story: Story, tmp_path: Path, no_sync: None) -> None:
    kinds = {complete_names(state): state for state in story.states}
    check_finished(story, list(kinds.values()), tmp_path)


@pytest.mark.slow
def test_every_state_ends_with_the_same_weights(story: Story, tmp_path: Path, no_sync: None) -> None:
    check_finished(story, story.states, tmp_path)


def test_without_a_checkpoint_a_folder_can_be_trained_again(story: Story, tmp_path: Path, no_sync: None) -> None:
    kinds = {complete_names(state): state for state in story.states}
    trained = 0
    for number, state in enumerate(kinds.values()):
        root = tmp_path / str(number)
        write_tree(root, state)
        if has_started(root / "run"):
            with pytest.raises(SeriatimError, match="holds a run already"):
                seriatim.train(**story.options, out=root / "run")
        else:
            trained += 1
            seriatim.train(**story.options, out=root / "run")
            assert (root / "run" / "model.safetensors").read_bytes() == story.weights, describe(state)
            assert [event["step"] for event in Run(root / "run").history("started")] == [0]
    assert trained > 5 or story.end is not None


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "disk.full"), (errno.EROFS, "disk.read-only")])
def test_a_disk_that_cannot_be_written_stops_the_training(
    number: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a file cannot be written, the error says why, and resuming gives the weights of a whole training."""
    (tmp_path / "table.csv").write_text(TABLE, encoding="utf-8")
    options: dict[str, Any] = CLASSIFY | {"data": str(tmp_path / "table.csv"), "report": False}
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    whole = seriatim.train(**options, out=tmp_path / "whole").identity
    total, codes = len(calls), []
    for last in range(1, total, 5):
        calls.clear()

        def fail(descriptor: int, last: int = last) -> None:
            calls.append(descriptor)
            if len(calls) >= last:
                raise OSError(number, os.strerror(number))

        run = tmp_path / str(last)
        with pytest.MonkeyPatch.context() as full:
            full.setattr(os, "fsync", fail)
            with pytest.raises(WriteError) as caught:
                seriatim.train(**options, out=run)
        steps = Checkpoints(run / "checkpoints").steps()
        assert not steps or f"then continues from step {steps[-1]}" in caught.value.remedy
        codes.append(caught.value.code)
        assert not list(tmp_path.rglob("*.partial"))
        if (run / "config.yaml").is_file():
            seriatim.resume(run, report=False)
        else:
            seriatim.train(**options, out=run)
        assert seriatim.load(run).identity == whole
    assert codes == [code] * len(range(1, total, 5))


def test_a_removed_folder_stops_the_training(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE, encoding="utf-8")
    options: dict[str, Any] = CLASSIFY | {"data": str(tmp_path / "table.csv"), "report": False}

    def remove(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(WriteError) as caught:
        seriatim.train(**options, out=tmp_path / "run", callbacks=[remove])
    assert caught.value.code == "disk.removed"
    assert not (tmp_path / "run").exists()


# Processes


def start_training(folder: Path, out: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "seriatim", "train", "classify", "--data", "table.csv", "--model", "gru"]
    command += ["--set", "model.width=4", "--set", "train.evaluate_steps=20", "--batch-size", "4", "--steps", "60"]
    command += ["--out", out, "--quiet", "--no-report"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("name", "delay"),
    [
        ("checkpoints/20", 0.0),
        *(
            pytest.param(name, delay, marks=pytest.mark.slow)
            for name in ("config.yaml", "metrics.jsonl", "model.safetensors", "checkpoints/40", "evaluation.json")
            for delay in (0.0, 0.002, 0.01)
        ),
    ],
)
def test_a_killed_process_is_resumed(
    name: str, delay: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_sync: None
) -> None:
    """The process is killed when a file appears, or a little later; two processes at once do not share a folder."""
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text(TABLE, encoding="utf-8")
    settings = {"model": {"width": 4}, "train": {"evaluate_steps": 20, "batch_size": 4, "steps": 60}}
    whole = seriatim.train("classify", "table.csv", "gru", settings=settings, out="whole", report=False)
    process = start_training(tmp_path, "run")
    wait_for(tmp_path / "run" / name, process)
    if not delay:
        process.send_signal(signal.SIGSTOP)  # it holds the folder
        for call in (lambda: seriatim.resume("run"), lambda: seriatim.average("whole", out="run")):
            with pytest.raises(SeriatimError) as caught:
                call()
            assert caught.value.code == "run.locked"
            assert f"process {process.pid} on {platform.node()}, since 20" in caught.value.cause
        assert cli.run(["report", "run"]) == 0
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert cli.run(["runs", "."]) == 0
    resumed = seriatim.resume("run", report=False)
    assert resumed.identity == whole.identity
    for event in ("stepped", "evaluated"):
        assert [line["step"] for line in resumed.history(event)] == [line["step"] for line in whole.history(event)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "table.csv", "whole"]
