"""The loop and time: budgets of minutes are used whatever the pace, and no interruption changes anything."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import settings_of
from random_task import VOCAB_SIZE, RandomTask, TimedTask
from seriatim.core.config import validate
from seriatim.nn.network import token_network, weights
from seriatim.tasks.values import AnyEvaluation
from seriatim.training import loop as loop_module
from seriatim.training.checkpoint import Checkpoints, StepTimes
from seriatim.training.config import TrainSettings
from seriatim.training.events import Evaluated, Event, Recorder, Started, Stepped, Stopped
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective
from seriatim.training.optimizer import timed_lr_factor
from task_helpers import prepare_splits

Pace = Callable[[int], float]  # step → seconds; powers of two, so that sums are exact
PACES: dict[str, Pace] = {
    "even": lambda step: 0.5,
    "slow start": lambda step: 4.0 if step < 10 else 0.25,
    "slow end": lambda step: 0.25 if step < 100 else 2.0,
    "one long step": lambda step: 16.0 if step == 40 else 0.25,
}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of checkpoints are written here: they need not survive a power failure."""
    monkeypatch.setattr("seriatim.core.files.sync", lambda path: None)


def make_network(model: str) -> nn.Module:
    torch.manual_seed(0)
    settings = settings_of((model, {}))
    return token_network(settings.model_copy(update={"dropout": 0.2}), VOCAB_SIZE, 12)


def make_loop(folder: Path, task: RandomTask, model: str = "gru", **train: Any) -> Loop:
    settings = validate(TrainSettings, {"batch_size": 4, **train})
    loop = Loop(task, make_network(model), settings, 1e-2, 0, Checkpoints(folder / "checkpoints"))  # type: ignore[arg-type]
    if isinstance(task, TimedTask):
        loop.clock = task.clock
    return loop


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# A budget of minutes


@pytest.mark.parametrize("pace", list(PACES))
def test_a_budget_of_minutes_is_used_whatever_the_pace(tmp_path: Path, pace: str) -> None:
    loop = make_loop(tmp_path, TimedTask(PACES[pace]), "mlp", minutes=1)
    events = list(loop.run())
    started, stopped = events[0], events[-1]
    assert isinstance(started, Started)
    assert isinstance(stopped, Stopped)
    assert (started.steps, started.budget) == (None, 60.0)
    expected = list(
        itertools.takewhile(lambda seconds: seconds < 60, itertools.accumulate(map(PACES[pace], itertools.count())))
    )
    steps = [event for event in events if isinstance(event, Stepped)]
    assert [event.seconds for event in steps[:-1]] == expected, "no step starts after the end, and none is omitted"
    assert (stopped.step, stopped.reason) == (len(expected) + 1, "minutes")
    assert 60 <= stopped.seconds < 60 + PACES[pace](len(expected)) + 1e-9
    before = [0.0, *expected]
    schedule = loop.settings.schedule
    factors = [timed_lr_factor(step, seconds / 60, schedule) for step, seconds in enumerate(before)]
    assert [event.lr for event in steps] == [1e-2 * factor for factor in factors]
    assert factors[-1] == pytest.approx(0.1, abs=0.004), "the learning rate falls to its floor"
    tenths = [next(event.step for event in steps if event.seconds >= 6 * tenth) for tenth in range(1, 11)]
    evaluated = [event.step for event in events if isinstance(event, Evaluated)]
    assert evaluated == sorted(set(tenths)), "ten evaluations, one less for each tenth that a long step passes over"


@pytest.mark.parametrize("cost", [0.5, 2.0, 16.0])
def test_evaluations_take_a_small_share_of_the_time(tmp_path: Path, cost: float) -> None:
    task = TimedTask(PACES["even"])

    def evaluate(network: nn.Module) -> AnyEvaluation:
        task.now += cost
        return RandomTask.evaluate(task, network)

    task.evaluate = evaluate  # type: ignore[method-assign]
    loop = make_loop(tmp_path, task, minutes=1)
    evaluated = [event.step for event in loop.run() if isinstance(event, Evaluated)]
    spent = loop.progress.evaluation_seconds
    assert spent == cost * len(evaluated)
    assert spent - 2 * cost <= loop_module.EVALUATION_SHARE * (60 + spent), "but for the first and the last one"
    assert len(evaluated) == {0.5: 10, 2.0: 6, 16.0: 2}[cost]
    assert evaluated[-1] == loop.progress.step
    chosen = make_loop(tmp_path / "chosen", task, minutes=1, evaluate_steps=20)
    assert len([event for event in chosen.run() if isinstance(event, Evaluated)]) == 6, "what is set is done"


def test_steps_define_the_schedule_and_minutes_are_a_limit(tmp_path: Path) -> None:
    whole = list(make_loop(tmp_path / "whole", TimedTask(PACES["even"]), steps=30).run())
    cut = list(make_loop(tmp_path / "cut", TimedTask(PACES["even"]), steps=30, minutes=0.1).run())
    assert isinstance(cut[0], Started)
    assert (cut[0].steps, cut[0].budget) == (30, None)
    rates = [[event.lr for event in events if isinstance(event, Stepped)] for events in (whole, cut)]
    assert (len(rates[0]), rates[1]) == (30, rates[0][:12])
    assert isinstance(cut[-1], Stopped)
    assert cut[-1].reason == "minutes"


@pytest.mark.parametrize("killed", [6, 9, 16, 29])
def test_steps_repeated_after_a_crash_are_the_same(tmp_path: Path, killed: int) -> None:
    """A process that was killed leaves steps after its last checkpoint: they are repeated on a faster machine."""
    task = TimedTask(lambda step: 1.0 if step % 3 else 3.0)
    first = make_loop(tmp_path, task, ema=0.9, minutes=1)
    lost: list[Event] = []
    for event in first.run():
        if isinstance(event, Stepped | Evaluated):
            lost.append(event)
        if isinstance(event, Stepped) and event.step == killed:
            break
    saved = max(first.checkpoints.steps())
    with open(first.times.file, "a", encoding="utf-8") as file:
        file.write('{"step": ')  # a line that was cut off
    resumed = make_loop(tmp_path, TimedTask(lambda step: 0.5), ema=0.9, minutes=1)
    resumed.resume()
    assert resumed.progress.step == saved < killed
    events = []
    for event in resumed.run():
        events.append(event)
        if isinstance(event, Stepped) and event.step == killed:
            assert equal(weights(resumed.network), weights(first.network))
            assert equal(resumed.ema, first.ema)
    repeated = [event for event in events if isinstance(event, Stepped | Evaluated)]
    after = [event for event in lost if event.step > saved]
    assert repeated[: len(after)] == after
    assert isinstance(events[-1], Stopped)
    assert events[-1].seconds == 60.0
    assert list(resumed.times.load()) == list(range(1, events[-1].step + 1))


def test_a_new_end_is_a_new_schedule(tmp_path: Path) -> None:
    first = make_loop(tmp_path, TimedTask(PACES["even"]), minutes=0.1)
    list(first.run())
    longer = make_loop(tmp_path, TimedTask(PACES["even"]), minutes=0.2)
    longer.times.append(13, 100.0)  # of a step after the checkpoint, under another end
    longer.resume(new_end=True)
    steps = [event for event in longer.run() if isinstance(event, Stepped)]
    assert [event.seconds for event in steps] == [6.5 + 0.5 * n for n in range(12)]
    assert steps[0].lr == 1e-2 * timed_lr_factor(12, 0.5, longer.settings.schedule)


@pytest.mark.parametrize("pauses", [(3.0, 7.0), (5.0, 5.0, 5.5)])
def test_a_training_that_pauses_is_the_same(tmp_path: Path, pauses: tuple[float, ...]) -> None:
    """A pause is followed by an evaluation, and neither changes what comes after it."""
    whole = make_loop(tmp_path / "whole", TimedTask(PACES["even"]), minutes=10 / 60, ema=0.8)
    expected = [event for event in whole.run() if isinstance(event, Stepped)]
    steps: list[Event] = []
    for number, end in enumerate((*pauses, None)):
        loop = make_loop(tmp_path / "paused", TimedTask(PACES["even"]), minutes=10 / 60, ema=0.8)
        loop.pause = None if end is None else (end, "paused")
        if number:
            loop.resume()
        events = list(loop.run())
        steps += [event for event in events if isinstance(event, Stepped)]
        stopped = events[-1]
        assert isinstance(stopped, Stopped)
        assert (stopped.reason, stopped.seconds) == (("minutes", 10.0) if end is None else ("paused", end))
        assert loop.progress.evaluated == stopped.step
    assert steps == expected
    assert equal(weights(loop.network), weights(whole.network))
    assert equal(loop.ema, whole.ema)


def test_a_new_training_forgets_the_times_of_another(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    StepTimes(tmp_path / "checkpoints").append(1, 5.0)
    loop = make_loop(tmp_path, TimedTask(PACES["even"]), minutes=0.1)
    list(loop.run())
    assert list(loop.times.load().values()) == [0.5 * n for n in range(1, 13)]


def test_damaged_times_are_ignored(tmp_path: Path) -> None:
    times = StepTimes(tmp_path)
    assert times.load() == {}
    for step, seconds in ((1, 0.1), (2, 1 / 3), (3, 1.0)):
        times.append(step, seconds)
    with open(times.file, "ab") as file:
        file.write(b'{"step": 4, "seconds": null}\n{"step": \x00\xff\n{"step": 6, "seconds": 2.5}\n{"step": 7, "sec')
    assert times.load() == {1: 0.1, 2: 1 / 3, 3: 1.0, 6: 2.5}
    times.truncate(2)
    assert times.load() == {1: 0.1, 2: 1 / 3}


def test_without_a_clock_no_times_are_recorded(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, TimedTask(PACES["even"]), steps=3)
    list(loop.run())
    assert not loop.times.file.exists()


# Interruptions

MODES: dict[str, dict[str, Any]] = {
    "evaluate_steps": {"steps": 12, "evaluate_steps": 4, "ema": 0.8},
    "evaluate_minutes": {"steps": 12, "evaluate_minutes": 2 / 60, "keep_checkpoints": 3},
    "minutes": {"minutes": 10 / 60, "ema": 0.8},
    "patience": {"steps": 100, "evaluate_steps": 2, "patience": 2},
}


class Recording:
    """A training with everything that it leaves behind."""

    def __init__(self, folder: Path, mode: str) -> None:
        folder.mkdir()
        self.folder, self.mode = folder, mode
        self.best: dict[str, Tensor] = {}
        self.evaluating = False
        self.loop = self._make()

    def _make(self) -> Loop:
        task = TimedTask(lambda step: 0.5 if step % 2 else 1.0)
        evaluate = task.evaluate

        def watched(network: nn.Module) -> AnyEvaluation:
            self.evaluating = True
            return replace(evaluate(network), outputs=float(sum(p.detach().sum() for p in network.parameters())))

        task.evaluate = watched  # type: ignore[method-assign]
        task.sample = lambda evaluation: f"{evaluation.outputs:.9g}"  # type: ignore[method-assign]
        loop = make_loop(self.folder, task, "lstm", **MODES[self.mode])
        if self.mode == "patience":
            loop.lr = 0.2
        loop.save_best = lambda tensors: self.best.update(copied(tensors))
        return loop

    def run(self, stop: int | None = None, in_evaluation: bool = False) -> str:
        """Trains until a signal arrives at a step or in the first evaluation from there, and returns the reason."""
        self.evaluating = False

        def signal() -> str:
            reached = stop is not None and self.loop.progress.step >= stop
            self.evaluating &= reached
            return "SIGTERM" if reached and (self.evaluating or not in_evaluation) else ""

        self.loop.stop_signal = signal
        recorder = Recorder(self.folder)
        for event in self.loop.run():
            recorder(event)
        assert isinstance(event, Stopped)
        return event.reason

    def resume(self) -> None:
        self.loop = self._make()
        self.loop.resume()

    def lines(self, name: str) -> list[Any]:
        lines = [json.loads(line) for line in (self.folder / name).read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if line.get("event") not in ("started", "saved")]
        return [{key: value for key, value in line.items() if key != "cpu_seconds"} for line in lines]

    def result(self) -> dict[str, Any]:
        """Returns all but the tensors and the processor time, which is measured."""
        files = {name: self.lines(name) for name in ("metrics.jsonl", "samples.jsonl")}
        progress = vars(self.loop.progress) | {"cpu_seconds": 0.0}
        return files | {"progress": progress, "checkpoints": self.loop.checkpoints.steps()}


@pytest.mark.parametrize("in_evaluation", [False, True], ids=["at a step", "in an evaluation"])
@pytest.mark.parametrize("mode", list(MODES))
def test_interrupted_at_any_step_equals_uninterrupted(
    tmp_path: Path, mode: str, in_evaluation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.training.events.MAX_STEP_LINES", 5)  # so that a line is the mean of several steps
    whole = Recording(tmp_path / "whole", mode)
    reason = whole.run()
    assert reason == {"minutes": "minutes", "patience": "patience"}.get(mode, "finished")
    last = whole.loop.progress.step
    assert 6 <= last <= 14
    for stop in range(last + 1):
        cut = Recording(tmp_path / f"{stop}", mode)
        assert cut.run(stop, in_evaluation) == "SIGTERM"
        cut.resume()
        assert cut.run() == reason
        assert cut.result() == whole.result(), stop
        assert equal(weights(cut.loop.network), weights(whole.loop.network))
        assert equal(cut.loop.ema, whole.loop.ema)
        assert equal(cut.best, whole.best)


def test_interrupted_at_every_step(tmp_path: Path) -> None:
    whole, cut = Recording(tmp_path / "whole", "minutes"), Recording(tmp_path / "cut", "minutes")
    whole.run()
    stop = 0
    while cut.run(stop) == "SIGTERM":
        cut.resume()
        stop += 1
    assert stop == whole.loop.progress.step + 1
    assert cut.result() == whole.result()
    assert equal(cut.best, whole.best)


# Before the clock starts


def image_loop(folder: Path) -> Loop:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    task, splits = prepare_splits("classify", (pixels, np.arange(24) % 2), {"name": "resnet", "width": 4})
    settings = TrainSettings(steps=3, minutes=1000, batch_size=8)
    return Loop(TaskObjective.of(task, splits), task.build(splits.train), settings, 1e-2, 0, Checkpoints(folder))


@pytest.mark.parametrize("model", ["gpt", "lstm", "resnet"])
def test_the_warm_up_changes_nothing(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither weights with dropout, nor statistics of batch normalization, carried states or random numbers."""
    results = []
    for passes in (0, 3):
        monkeypatch.setattr(loop_module, "WARM_UP_PASSES", passes)
        folder = tmp_path / str(passes)
        train = {"steps": 4, "minutes": 1000}
        loop = image_loop(folder) if model == "resnet" else make_loop(folder, RandomTask(), model, **train)
        networks = set()
        forward = loop.objective.forward
        monkeypatch.setattr(
            loop.objective, "forward", lambda network, *rest, f=forward, n=networks: n.add(network) or f(network, *rest)
        )
        torch.manual_seed(5)
        events = loop.run()
        next(events)
        assert len(networks) == (3 if passes else 2) - 1, "copies that operations and a warm-up are computed with"
        assert loop.network not in networks
        assert all(parameter.grad is None for parameter in loop.network.parameters())
        at_start = copied(weights(loop.network)), torch.random.get_rng_state(), loop.carried_states
        rates = [(event.loss, event.grad_norm) for event in events if isinstance(event, Stepped)]
        results.append((at_start, rates, copied(weights(loop.network)), loop.carried_states))
    (first, rates, trained, carried), (warm_first, warm_rates, warm_trained, warm_carried) = results
    assert equal(first[0], warm_first[0])
    assert torch.equal(first[1], warm_first[1])
    assert first[2] == warm_first[2] == []
    assert rates == warm_rates
    assert equal(trained, warm_trained)
    assert bool(carried) == bool(warm_carried) == (model == "lstm")
    if model == "resnet":
        assert any(name.endswith("norm.variance") for name in trained)


def test_kernels_are_loaded_before_the_clock_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(loop_module, "load_kernels", lambda: calls.append("kernels"))
    loop = make_loop(tmp_path, RandomTask(), steps=2)
    loop.clock = lambda: calls.append("clock") or 0.0  # type: ignore[func-returns-value]
    list(loop.run())
    assert calls == ["kernels", *["clock"] * 8], "before and after two steps and two evaluations"
