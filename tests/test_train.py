"""The loop: its mathematics never depends on how a run was cut into processes, batches or sessions."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from helpers import backbones, label, settings_of, torchrun
from seriatim.core.errors import SeriatimError
from seriatim.data.corpus import prepare
from seriatim.data.text import TextSettings
from seriatim.nn.network import count_parameters, token_network, weights
from seriatim.tasks._task import Batch
from seriatim.tasks.language import LanguageTask, Settings
from seriatim.training.budget import solve_width
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.events import Evaluated, Event, Planned, Saved, Started, Stepped, Stopped
from seriatim.training.loop import Loop
from seriatim.training.schedules import SHAPES, share_of_peak
from seriatim.training.settings import OptimiserSettings, ScheduleSettings, TrainSettings

MODELS = backbones()


@pytest.fixture(scope="module")
def task(book: Path) -> LanguageTask:
    return LanguageTask(
        Settings(length=12), prepare(TextSettings(source=str(book), tokenizer={"kind": "char"})), seed=3
    )


def make_loop(task: LanguageTask, case: Any, folder: Path, halt: Any = lambda: "", **changes: Any) -> Loop:
    model = settings_of(case).model_copy(update={"dropout": changes.pop("dropout", 0.2)})
    values: dict[str, Any] = {"steps": 12, "batch": 3, "evaluate_steps": 5, "evaluate_limit": 200}
    train = TrainSettings(**(values | changes))
    own = LanguageTask(task.settings, task.corpus, task.seed)
    return Loop(own, own.build(model), train, 1e-2, 3, Checkpoints(folder / "checkpoints"), halt=halt)


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Stepped)]


# Resuming


@pytest.mark.parametrize("case", MODELS, ids=label)
@settings(max_examples=4, deadline=None)
@given(stop=st.integers(1, 11), ema=st.sampled_from([0.0, 0.9]), optimiser=st.sampled_from(["adamw", "sgd"]))
def test_resume_is_bit_for_bit(
    task: LanguageTask, tmp_path_factory: Any, case: Any, stop: int, ema: float, optimiser: str
) -> None:
    """Stopped at any step, with dropout on and rows in the middle of a stretch: the same losses and weights."""
    changes: dict[str, Any] = {"ema": ema, "optimiser": OptimiserSettings(name=optimiser), "accumulate": 2}
    folder = tmp_path_factory.mktemp("resume")
    whole = make_loop(task, case, folder / "whole", **changes)
    wanted = losses(list(whole.run()))

    done: list[int] = []
    first = make_loop(task, case, folder / "cut", lambda: "SIGINT" if len(done) >= stop else "", **changes)
    found = []
    for event in first.run():
        found.append(event)
        if isinstance(event, Stepped):
            done.append(event.step)
    assert isinstance(found[-1], Stopped)
    assert found[-1].reason == "SIGINT"

    second = make_loop(task, case, folder / "cut", **changes)
    second.resume()
    found += list(second.run())
    assert losses(found) == wanted
    for name, tensor in weights(whole.network).items():
        assert torch.equal(tensor, weights(second.network)[name]), name
    for name, tensor in whole.average.items():
        assert torch.equal(tensor, second.average[name]), name
    assert second.progress.best == whole.progress.best
    shutil.rmtree(folder)


@pytest.mark.parametrize("case", MODELS, ids=label)
def test_accumulation_changes_nothing(task: LanguageTask, tmp_path: Path, case: Any) -> None:
    at_once = make_loop(task, case, tmp_path / "a", batch=8, dropout=0.0)
    in_parts = make_loop(task, case, tmp_path / "b", batch=2, accumulate=4, dropout=0.0)
    for loop in (at_once, in_parts):
        loop.network.double()
    assert losses(list(in_parts.run())) == pytest.approx(losses(list(at_once.run())), rel=1e-8)


def test_same_seed_same_run_and_another_seed_another(task: LanguageTask, tmp_path: Path) -> None:
    runs = [losses(list(make_loop(task, ("gru", {}), tmp_path / str(n)).run())) for n in range(2)]
    assert runs[0] == runs[1]
    other = LanguageTask(task.settings, task.corpus, seed=4)
    assert losses(list(make_loop(other, ("gru", {}), tmp_path / "c").run())) != runs[0]


def test_batches_are_pure_functions_of_the_step(task: LanguageTask) -> None:
    for carry in (False, True):
        own = LanguageTask(task.settings, task.corpus, 3, carry)
        whole = own.batch(7, 0, 6, 6)
        parts = [own.batch(7, first, first + 2, 6) for first in (0, 2, 4)]
        assert torch.equal(whole.inputs, torch.cat([part.inputs for part in parts]))
        assert torch.equal(whole.inputs[:, 1:], whole.targets[:, :-1])
    first, second = (own.batch(step, 0, 4, 4) for step in (0, 1))
    assert first.fresh
    assert not second.fresh
    assert torch.equal(first.targets[:, -1], second.inputs[:, 0]), "rows go on where they stopped"


# Several processes


def recorded(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "stepped"]


def test_two_processes_equal_one_with_the_doubled_batch(book: Path, tmp_path: Path) -> None:
    """And a run begun on two goes on with one, and the reverse: the carried states are regrouped."""
    common = ["--data", str(book), "--model", "lstm", "--length", "12", "--set", "model.width=8", "--quiet"]
    common += ["--set", "train.evaluate_steps=4", "--set", "train.schedule.name=constant"]
    common += ["--set", "train.schedule.warmup=0"]  # what comes does not depend on where it ends
    two = [*common, "--batch", "1", "--set", "train.accumulate=2"]
    torchrun(2, "train", "language", *two, "--steps", "9", "--out", "two", cwd=tmp_path)
    alone = [sys.executable, "-m", "seriatim"]
    whole = [*alone, "train", "language", *common, "--batch", "4", "--steps", "14", "--out", "whole"]
    subprocess.run(whole, cwd=tmp_path, check=True, timeout=300)
    wanted = recorded(tmp_path / "whole")
    assert recorded(tmp_path / "two") == pytest.approx(wanted[:9], rel=1e-4)
    subprocess.run([*alone, "resume", "two", "--steps", "11", "--quiet"], cwd=tmp_path, check=True, timeout=300)
    assert recorded(tmp_path / "two") == pytest.approx(wanted[:11], rel=1e-4)
    torchrun(2, "resume", "two", "--steps", "14", "--quiet", cwd=tmp_path)
    assert recorded(tmp_path / "two") == pytest.approx(wanted, rel=1e-4)


def test_a_comparison_on_two_processes(book: Path, tmp_path: Path) -> None:
    common = ["compare", "language", "--data", str(book), "--models", "ngram,gru", "--steps", "3", "--length", "12"]
    torchrun(2, *common, "--batch", "2", "--out", "both", "--quiet", "--json", cwd=tmp_path)
    events = [json.loads(line)["event"] for line in (tmp_path / "both/ngram/metrics.jsonl").read_text().splitlines()]
    assert events == ["started", "evaluated", "stopped"]


# What a step does


def test_clipping_by_the_global_norm(task: LanguageTask, tmp_path: Path) -> None:
    loop = make_loop(task, ("rnn", {}), tmp_path, clip=1e-3, steps=1)
    stepped = next(event for event in loop.run() if isinstance(event, Stepped))
    gradients = [p.grad for p in loop.network.parameters() if p.grad is not None]
    after = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    assert stepped.norm > 1e-3
    assert after == pytest.approx(1e-3, rel=1e-3)


def test_label_smoothing_and_sums(task: LanguageTask) -> None:
    network = task.build(settings_of(("gru", {})))
    batch = task.batch(0, 0, 4, 4)
    loss, _ = task.loss(network, batch, None, 0.1)
    logits, _ = network(batch.inputs)
    wanted = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), label_smoothing=0.1)
    assert loss.item() / batch.count == pytest.approx(wanted.item(), rel=1e-5)


def test_evaluation_is_the_mean_over_all_tokens(task: LanguageTask) -> None:
    """Chunks, rows and padding of the evaluation against one pass over the whole part."""
    network = task.build(settings_of(("lstm", {}))).eval()
    tokens = torch.from_numpy(task.corpus.valid.astype("int64"))[None]
    with torch.no_grad():
        logits, _ = network(tokens[:, :-1])
        wanted = F.cross_entropy(logits[0], tokens[0, 1:]).item()
    from seriatim.tasks import language

    rows, language.EVALUATION_ROWS = language.EVALUATION_ROWS, 1
    try:
        found = task.evaluate(network, "valid")
    finally:
        language.EVALUATION_ROWS = rows
    assert found["loss"] == pytest.approx(wanted, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(wanted), rel=1e-5)
    assert found["bits_per_character"] == pytest.approx(wanted / math.log(2), rel=0.01)
    assert task.evaluate(network, "valid")["loss"] == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_stops_at_the_first_non_finite_gradient_and_names_it(task: LanguageTask, tmp_path: Path, clip: Any) -> None:
    loop = make_loop(task, ("rnn", {}), tmp_path, clip=clip, evaluate_steps=100)
    loop.network.head.bias.register_hook(lambda gradient: gradient * math.inf if loop.progress.step == 3 else gradient)
    with pytest.raises(SeriatimError) as caught:
        list(loop.run())
    assert caught.value.code == "train.non-finite"
    assert caught.value.exit_code == 1
    assert "at step 4" in caught.value.cause
    assert caught.value.cause.endswith("the gradient of head.bias")


def test_early_stopping_and_the_best_weights(task: LanguageTask, tmp_path: Path) -> None:
    kept: list[dict[str, torch.Tensor]] = []
    loop = make_loop(task, ("rnn", {}), tmp_path, steps=400, evaluate_steps=1, patience=2, dropout=0.0)
    loop.rate = 0.3
    loop.keep_best = lambda tensors: kept.append({k: v.detach().clone() for k, v in tensors.items()})
    events = list(loop.run())
    evaluated = [event for event in events if isinstance(event, Evaluated)]
    assert isinstance(events[-1], Stopped)
    assert events[-1].reason == "patience"
    best = min(evaluated, key=lambda event: event.measures["loss"])
    assert best.step == events[-1].best_step
    assert len(kept) == sum(event.best for event in evaluated)
    steps = loop.checkpoints.steps()
    assert set(steps) == {best.step, events[-1].step}, "the best and the last are kept"
    stored = loop.checkpoints.load(best.step).tensors["weights"]
    assert all(torch.equal(stored[name], kept[-1][name]) for name in stored)


def test_average_of_weights(task: LanguageTask, tmp_path: Path) -> None:
    loop = make_loop(task, ("mlp", {}), tmp_path, ema=0.5, steps=2, dropout=0.0)
    name = "head.bias"
    wanted = weights(loop.network)[name].detach().clone()
    for event in loop.run():
        if isinstance(event, Stepped):
            wanted = 0.5 * wanted + 0.5 * weights(loop.network)[name].detach()
    torch.testing.assert_close(loop.average[name], wanted)


def test_a_budget_of_minutes_is_planned(task: LanguageTask, tmp_path: Path) -> None:
    loop = make_loop(task, ("mlp", {}), tmp_path, steps=None, minutes=0.02, evaluate_steps=None)
    events = list(loop.run())
    planned = [event for event in events if isinstance(event, Planned)]
    assert 1 <= len(planned) <= 6
    stopped = events[-1]
    assert isinstance(stopped, Stopped)
    assert stopped.reason in ("minutes", "finished")
    assert stopped.step <= planned[-1].steps
    assert planned[-1].seconds <= 0.02 * 60
    assert isinstance(events[0], Started)
    assert events[0].flops


def test_bfloat16_trains(task: LanguageTask, tmp_path: Path) -> None:
    for case in (("gpt", {}), ("lstm", {}), ("gru", {}), ("tcn", {})):
        events = list(make_loop(task, case, tmp_path / case[0], precision="bfloat16", steps=3).run())
        assert all(math.isfinite(loss) for loss in losses(events))


# Checkpoints


def test_checkpoints_are_whole_or_not_there(task: LanguageTask, tmp_path: Path, monkeypatch: Any) -> None:
    """A crash in the middle of writing leaves the last good one, and nothing under a checkpoint's name."""
    loop = make_loop(task, ("gru", {}), tmp_path, steps=10)
    for event in loop.run():
        if isinstance(event, Saved):
            break
    before = loop.checkpoints.steps()

    def crash(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("seriatim.training.checkpoint.write_json", crash)
    with pytest.raises(OSError, match="no space"):
        loop._save()
    loop.progress.step += 1
    with pytest.raises(OSError, match="no space"):
        loop._save()
    assert loop.checkpoints.steps() == before
    assert loop.checkpoints.load().progress["step"] == before[-1]
    assert not [path for path in loop.checkpoints.folder.iterdir() if not path.name.isdigit()]


def test_a_damaged_checkpoint_is_refused(task: LanguageTask, tmp_path: Path) -> None:
    loop = make_loop(task, ("gru", {}), tmp_path, steps=5)
    list(loop.run())
    file = loop.checkpoints.folder / "5" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(SeriatimError) as caught:
        loop.checkpoints.load()
    assert caught.value.code == "checkpoint.damaged"
    assert "weights.safetensors" in caught.value.cause


# Schedules and budgets


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_schedules_are_bounded(name: str) -> None:
    settings = ScheduleSettings(name=name, warmup=10)
    values = [share_of_peak(step, 200, settings) for step in range(300)]
    assert all(0 < value <= 1 for value in values)
    if name != "one-cycle":  # it rises by itself
        assert values[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    peak = values.index(max(values))
    assert values[: peak + 1] == sorted(values[: peak + 1]), "it rises once"
    assert values[peak:] == sorted(values[peak:], reverse=True), "and falls once"


def test_schedules_by_hand() -> None:
    def at(name: str, step: int, **changes: Any) -> float:
        return share_of_peak(step, 110, ScheduleSettings(**{"name": name, "warmup": 10, "floor": 0.1} | changes))

    assert at("cosine", 10) == 1
    assert at("cosine", 60) == pytest.approx(0.55)
    assert at("cosine", 110) == pytest.approx(0.1)
    assert at("linear", 60) == pytest.approx(0.55)
    assert at("step", 59, every=25, factor=0.5) == 0.5
    assert at("step", 60, every=25, factor=0.5) == 0.25
    assert at("one-cycle", 0) == pytest.approx(1 / 25)
    assert at("one-cycle", 33) == pytest.approx(1.0)
    assert at("constant", 109) == 1
    # Vaswani et al.: rate = d^−½ · min(s^−½, s · w^−1.5), steps counted from 1; its peak is at s = w
    peak = 10**-0.5
    for step in (0, 4, 9, 10, 40, 100):
        s = step + 1
        assert at("inverse-sqrt", step) == pytest.approx(min(s**-0.5, s * 10**-1.5) / peak)


@pytest.mark.parametrize("wanted", [50_000, 1_000_000, 5_000_000])
@pytest.mark.parametrize("vocabulary", [67, 8_192])
@pytest.mark.parametrize("name", ["mlp", "rnn", "lstm", "gru", "tcn", "gpt"])
def test_budget_is_met_within_two_percent(name: str, vocabulary: int, wanted: int) -> None:
    from seriatim.core import registry

    model = registry.models.load(name).Settings(name=name)

    def build(candidate: Any) -> Any:
        return token_network(candidate, vocabulary, 128)

    solved = solve_width(model, wanted, build)
    size = count_parameters(build(solved))
    assert size <= wanted
    if vocabulary == 67 or wanted > 50_000:
        assert size >= 0.98 * wanted, f"{size:,} of {wanted:,}"


def test_a_budget_that_cannot_be_met_is_told() -> None:
    model = settings_of(("gpt", {}))
    with pytest.raises(SeriatimError) as caught:
        solve_width(model, 10_000, lambda candidate: token_network(candidate, 50_000, 12))
    assert caught.value.code == "budget.too-small"


@pytest.mark.parametrize("name", ["mlp", "rnn", "lstm", "gru", "tcn", "gpt"])
def test_operations_are_about_six_for_each_parameter_and_token(task: LanguageTask, name: str) -> None:
    """Forward 2, backward 4, for every weight that is multiplied; attention comes on top."""
    from seriatim.core import registry
    from seriatim.training.cost import count_flops

    network = task.build(registry.models.load(name).Settings(name=name, tie=False))
    multiplied = [
        p for n, p in network.named_parameters() if p.dim() > 1 and n != "input.weight" and "positions" not in n
    ]
    counted = count_flops(task, network, 3, torch.device("cpu"))
    least = 6 * sum(p.numel() for p in multiplied) * 3 * task.settings.length
    assert counted is not None
    assert 0.98 * least <= counted <= 1.15 * least


def test_of_equal_objectives_the_lower_loss_is_kept(tmp_path: Path) -> None:
    """An error rate that stays the same for a while must not hold on to the weights of the beginning."""

    class Tied:
        objective, unit = "error", "examples"

        def __init__(self) -> None:
            self.losses = iter([3.0, 2.0, 2.5, 1.0])

        def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
            return Batch(torch.ones(1, 1), torch.ones(1, 1), count=1)

        def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> Any:
            return (network(batch.inputs) - batch.targets).square().sum(), None

        def evaluate(self, network: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
            return {"loss": next(self.losses), "error": 0.5}

        def sample(self, network: nn.Module, step: int) -> str:
            return ""

    settings = TrainSettings(steps=4, batch=1, evaluate_steps=1)
    loop = Loop(Tied(), nn.Linear(1, 1), settings, 1e-3, 0, Checkpoints(tmp_path))
    best = [event.best for event in loop.run() if isinstance(event, Evaluated)]
    assert best == [True, True, False, True]
