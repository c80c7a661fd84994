"""The training loop with a task of random tokens: encoder–decoders, events, and packed weights of native generation."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from encoder_decoder_cases import NAMES, pair_network
from helpers import Case, label, settings_of
from random_task import VOCAB_SIZE, RandomTask
from seriatim.core.config import validate
from seriatim.kernels import load
from seriatim.nn.native import make_stepper
from seriatim.nn.network import token_network, weights
from seriatim.tasks.values import AnyEvaluation
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import OptimizerSettings, TrainSettings
from seriatim.training.events import Evaluated, Event, Saved, Started, Stepped, Stopped
from seriatim.training.loop import Loop, fit_events, stop_signals
from seriatim.training.optimizer import make_optimizer, update

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


def answers(network: Any, encoder_decoder: bool) -> list[Tensor]:
    """Returns what a network answers with packed weights: scores of its layers, and of native generation."""
    network.eval()
    tokens = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        if encoder_decoder:
            return [network(tokens.flip(1), tokens).clone()]
        scores = network(tokens)[0].clone()
        stepper = make_stepper(network)
        assert stepper is not None
        _, state = stepper.prefill(tokens)
        return [scores, stepper.step(torch.tensor([4]), state)[0].clone()]


def same(ours: list[Tensor], theirs: list[Tensor]) -> list[bool]:
    return [torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)]


@pytest.mark.skipif(not load(), reason="no native kernels here")
@pytest.mark.parametrize("ema", [0.0, 0.5], ids=["", "ema"])
@pytest.mark.parametrize("optimizer", get_args(OptimizerSettings.model_fields["name"].annotation))
@pytest.mark.parametrize("case", [("gpt", {}), ("lstm", {}), ("gru", {}), ("transformer", {})], ids=label)
def test_packed_weights_follow_every_optimizer_step(
    case: Case, optimizer: str, ema: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fused optimizers do not raise the version of parameters: without `increment_version` the weights were stale."""
    monkeypatch.setattr("seriatim.nn.layers.MIN_PACKED", 1)
    loop = make_loop(case, tmp_path, steps=4, optimizer={"name": optimizer}, ema=ema, evaluate_steps=2)
    ask = partial(answers, encoder_decoder=case[0] in PAIRS)
    evaluated: list[list[Tensor]] = []

    evaluate = loop.objective.evaluate

    def observe(network: Any) -> AnyEvaluation:
        evaluated.append(ask(network))
        assert all(same(evaluated[-1], ask(copy.deepcopy(network))))
        return evaluate(network)

    monkeypatch.setattr(loop.objective, "evaluate", observe)
    before = ask(loop.network)
    for event in loop.run():
        if isinstance(event, Stepped):
            now = ask(loop.network)
            assert all(same(now, ask(copy.deepcopy(loop.network))))
            assert not any(same(now, before)), "every step changes the answers"
            before = now
    assert not any(same(*evaluated))
    assert same(evaluated[1], before) == [not ema] * len(before), "an evaluation is of the averaged weights"
    assert all(same(ask(loop.network), before)), "the own weights are back after it"
    for event in loop.run():
        assert not isinstance(event, Stepped)
    resumed = make_loop(case, tmp_path, steps=4, optimizer={"name": optimizer}, ema=ema, evaluate_steps=2)
    assert not any(same(ask(resumed.network), before))
    resumed.resume()
    assert all(same(ask(resumed.network), before)), "loading weights changes the answers"


def test_updates_without_train_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`train()` drops packed weights; a network that stays in evaluation mode must notice changes by itself."""
    monkeypatch.setattr("seriatim.nn.layers.MIN_PACKED", 1)
    network = make_network(("gpt", {})).eval()
    for name in get_args(OptimizerSettings.model_fields["name"].annotation):
        optimizer = make_optimizer(network, OptimizerSettings(name=name), 1e-1)
        for _ in range(2):
            before = answers(network, encoder_decoder=False)
            network(torch.tensor([[1, 2, 3]]))[0].square().sum().backward()
            update(optimizer, 1e-1)
            now = answers(network, encoder_decoder=False)
            assert not any(same(now, before))
            assert all(same(now, answers(copy.deepcopy(network), encoder_decoder=False)))


def test_gradient_free_models_have_the_same_events() -> None:
    from seriatim.tasks.values import Evaluation

    class Counted:
        unit = "characters"

        def evaluate(self, network: Any) -> Any:
            assert stored == [network]
            return Evaluation(None, {"loss": float(network.total)}, None)

        def sample(self, evaluation: Any) -> str:
            return "text"

    stored: list[Any] = []
    model = nn.Module()
    model.register_buffer("total", torch.tensor(3.0))
    events = list(fit_events(Counted(), lambda: model, stored.append, 100))
    assert [type(event) for event in events] == [Started, Evaluated, Stopped]
    assert events[1].record()["val_loss"] == 3.0
    assert (events[0].unit, events[1].sample, events[2].tokens) == ("characters", "text", 100)


def test_the_second_signal_interrupts() -> None:
    import signal

    with stop_signals() as stop_signal:
        assert stop_signal() == ""
        signal.raise_signal(signal.SIGTERM)
        assert stop_signal() == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
