"""The training loop with a task of random tokens: encoder–decoders, events, and packed weights of native generation."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_decoder_cases import NAMES, pair_network
from helpers import Case, label, settings_of
from random_task import VOCAB_SIZE, RandomTask
from seriatim.core.config import validate
from seriatim.nn.native import make_stepper
from seriatim.nn.network import token_network, weights
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import TrainSettings
from seriatim.training.events import Evaluated, Event, Saved, Started, Stepped, Stopped
from seriatim.training.loop import Loop, fit_events, stop_signals

CASES = [("gpt", {}), ("lstm", {}), ("tcn", {}), *NAMES]  # test_loop.py has all backbones
PAIRS = {name for name, _ in NAMES}


def make_network(case: Case) -> nn.Module:
    torch.manual_seed(0)
    if case[0] in PAIRS:
        return pair_network(case)
    return token_network(settings_of(case), VOCAB_SIZE, 12)


def make_loop(case: Case, folder: Path, lr: float = 1e-2, **train: Any) -> Loop:
    values = {"steps": 6, "batch_size": 4, "evaluate_steps": 3, **train}
    settings = validate(TrainSettings, values)
    return Loop(RandomTask(case[0] in PAIRS), make_network(case), settings, lr, 0, Checkpoints(folder))  # type: ignore[arg-type]


def run(loop: Loop) -> list[Event]:
    return list(loop.run())


@pytest.mark.parametrize("case", CASES, ids=label)
def test_resumed_equals_uninterrupted(case: Case, tmp_path: Path) -> None:
    """Bit for bit, with dropout, momentum, averaged weights and carried states."""
    train = {"optimizer": {"name": "sgd" if case[0] == "lstm" else "adamw"}, "ema": 0.9}
    whole = make_loop(case, tmp_path / "whole", **train)
    run(whole)
    for event in make_loop(case, tmp_path / "cut", **train).run():
        if isinstance(event, Stepped) and event.step == 5:
            break
    resumed = make_loop(case, tmp_path / "cut", **train)
    resumed.resume()
    assert resumed.progress.step == 3
    run(resumed)
    for ours, theirs in ((weights(whole.network), weights(resumed.network)), (whole.ema, resumed.ema)):
        assert ours
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_events_of_a_training(tmp_path: Path) -> None:
    best: list[dict[str, Tensor]] = []
    loop = make_loop(("gru", {}), tmp_path, evaluate_steps=2, steps=5)
    loop.save_best = best.append
    events = run(loop)
    assert isinstance(events[0], Started)
    assert (events[0].steps, events[0].unit, events[0].ranks) == (5, "tokens", 1)
    assert events[0].flops is not None
    assert events[0].flops > 0
    steps = [event for event in events if isinstance(event, Stepped)]
    assert [event.step for event in steps] == [1, 2, 3, 4, 5]
    assert steps[-1].tokens == 5 * 4 * 6
    evaluations = [event for event in events if isinstance(event, Evaluated)]
    assert [event.step for event in evaluations] == [2, 4, 5]
    assert len(best) == sum(event.best for event in evaluations)
    assert [event.step for event in events if isinstance(event, Saved)] == [2, 4, 5]
    assert isinstance(events[-1], Stopped)
    assert events[-1].reason == "finished"
    assert evaluations[0].record().keys() >= {"val_loss", "best", "step", "sample", "event"}


def test_a_new_end(tmp_path: Path) -> None:
    run(make_loop(("gru", {}), tmp_path))
    longer = make_loop(("gru", {}), tmp_path, steps=9)
    longer.resume(new_end=True)
    assert [event.step for event in run(longer) if isinstance(event, Stepped)] == [7, 8, 9]


def generate(network: Any) -> Tensor:
    """Returns log-probabilities of native generation, from a prompt and one more token."""
    network.eval()
    with torch.inference_mode():
        stepper = make_stepper(network)
        assert stepper is not None
        _, state = stepper.prefill(torch.tensor([[1, 2, 3]]))
        return stepper.step(torch.tensor([4]), state)[0].clone()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("case", [("gpt", {}), ("lstm", {}), ("gru", {})], ids=label)
def test_packed_weights_follow_every_optimizer_step(case: Case, optimizer: str, tmp_path: Path) -> None:
    """Fused optimizers do not raise the version of parameters: without `increment_version` the weights were stale."""
    loop = make_loop(case, tmp_path, steps=4, optimizer={"name": optimizer}, ema=0.5, evaluate_steps=2)
    seen: list[Tensor] = []
    loop.task.sample = lambda network: str(seen.append(generate(network)))  # type: ignore[method-assign]
    for event in loop.run():
        if isinstance(event, Stepped):
            packed = generate(loop.network)
            assert torch.equal(packed, generate(copy.deepcopy(loop.network)))
            assert not seen or not torch.equal(packed, seen[-1])
    assert len(seen) == 2  # of the averaged weights
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], generate(loop.network)), "the own weights are back after an evaluation"


def test_gradient_free_models_have_the_same_events() -> None:
    events = list(fit_events(lambda: 3, lambda model: ({"loss": float(model)}, "text"), 100, "characters"))
    assert [type(event) for event in events] == [Started, Evaluated, Stopped]
    assert events[1].record()["val_loss"] == 3.0


def test_the_second_signal_interrupts() -> None:
    import signal

    with stop_signals() as stop_signal:
        assert stop_signal() == ""
        signal.raise_signal(signal.SIGTERM)
        assert stop_signal() == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
