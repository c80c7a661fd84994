"""The loop: its mathematics never depends on how a run was cut into processes, batches or sessions."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import Case, backbones, label, settings_of, torchrun
from seriatim.core.errors import SeriatimError
from seriatim.nn.network import weights
from seriatim.tasks import reading
from seriatim.tasks.base import DataSettings, Output, TaskConfig
from seriatim.tasks.batching import Batch
from seriatim.tasks.language.spec import LanguageSettings
from seriatim.tasks.language.task import LanguageTask
from seriatim.tasks.values import AnyEvaluation, Evaluation
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import TrainSettings
from seriatim.training.events import Evaluated, Event, Saved, Stepped, Stopped
from seriatim.training.loop import Loop, check_monitor
from seriatim.training.objective import TaskObjective

# One of each way of carrying states, and of each kind of parameter.
COVERING: list[Case] = [("rnn", {"activation": "relu"}), ("lstm", {"layers": 2}), ("tcn", {}), ("gpt", {})]
SMALL: dict[str, Any] = {"steps": 8, "batch_size": 3, "evaluate_steps": 5, "evaluate_limit": 200}


def cases(covering: list[Case]) -> list[Any]:
    """Returns the covering cases, and all other causal backbones with the marker `slow`."""
    others = [case for case in backbones() if case not in covering]
    params = [pytest.param(case, id=label(case)) for case in covering]
    return params + [pytest.param(case, id=label(case), marks=pytest.mark.slow) for case in others]


@pytest.fixture(scope="module")
def prepared(book: Path) -> Any:
    return reading.prepare(LanguageTask, config_of(settings_of(("gru", {})), book))


def config_of(model: Any, book: Path | str, seed: int = 3) -> TaskConfig:
    settings = LanguageSettings(context_length=12, tokenizer={"kind": "char"})
    return TaskConfig(task=settings, data=DataSettings(source=str(book)), model=model, seed=seed)


def objective_of(prepared: Any, model: Any, seed: int = 3) -> tuple[Any, TaskObjective]:
    """Returns the network and the objective of another model; batches depend on whether that carries a state."""
    task, splits = prepared
    source = task.config.data.source
    task, splits = reading.prepare(LanguageTask, config_of(model, source, seed), processor=task.processor)
    return task.build(splits.train), TaskObjective.of(task, splits, SMALL["evaluate_limit"])


def make_loop(prepared: Any, case: Case, folder: Path, stop: int | None = None, seed: int = 3, **changes: Any) -> Loop:
    """Returns a loop; with `stop`, a signal arrives after so many steps."""
    model = settings_of(case).model_copy(update={"dropout": changes.pop("dropout", 0.2)})
    network, objective = objective_of(prepared, model, seed)
    settings = TrainSettings(**(SMALL | changes))
    loop = Loop(objective, network, settings, 1e-2, seed, Checkpoints(folder / "checkpoints"))
    if stop is not None:
        loop.stop_signal = lambda: "SIGINT" if loop.progress.step >= stop else ""
    return loop


def values_of(**metrics: float) -> AnyEvaluation:
    """Returns an evaluation with these metrics."""
    return Evaluation(SimpleNamespace(), metrics, None)  # type: ignore[arg-type]


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Stepped)]


# Resuming


@pytest.mark.parametrize("optimizer", [{"name": "adamw"}, {"name": "sgd", "layer_decay": 0.7}], ids=["adamw", "sgd"])
@pytest.mark.parametrize("case", cases(COVERING))
def test_resume_is_bit_for_bit(prepared: Any, tmp_path: Path, case: Case, optimizer: dict[str, Any]) -> None:
    """With dropout, accumulation, a moving average and states that are carried from batch to batch."""
    changes = {"ema": 0.9 if optimizer["name"] == "adamw" else 0.0, "optimizer": optimizer, "accumulate": 2}
    whole = make_loop(prepared, case, tmp_path / "whole", **changes)
    expected = losses(list(whole.run()))
    for stop in range(1, 8) if case[0] == "lstm" and optimizer["name"] == "adamw" else (2, 6):
        folder = tmp_path / str(stop)
        events = list(make_loop(prepared, case, folder, stop, **changes).run())
        assert isinstance(events[-1], Stopped)
        assert (events[-1].reason, events[-1].step) == ("SIGINT", stop)
        resumed = make_loop(prepared, case, folder, **changes)
        resumed.resume()
        events += list(resumed.run())
        assert losses(events) == expected
        for name, tensor in weights(whole.network).items():
            assert torch.equal(tensor, weights(resumed.network)[name]), (stop, name)
        for name, tensor in whole.ema.items():
            assert torch.equal(tensor, resumed.ema[name]), (stop, name)
        assert (resumed.progress.best, resumed.progress.best_step) == (whole.progress.best, whole.progress.best_step)


@pytest.mark.parametrize("case", cases([("lstm", {}), ("gpt", {})]))
def test_accumulation_changes_nothing(prepared: Any, tmp_path: Path, case: Case) -> None:
    at_once = make_loop(prepared, case, tmp_path / "a", batch_size=8, dropout=0.0, steps=5)
    in_parts = make_loop(prepared, case, tmp_path / "b", batch_size=2, accumulate=4, dropout=0.0, steps=5)
    for loop in (at_once, in_parts):
        loop.network.double()
    assert losses(list(in_parts.run())) == pytest.approx(losses(list(at_once.run())), rel=1e-8)


def test_tokens_and_operations_are_ends(prepared: Any, tmp_path: Path) -> None:
    """They become steps when the training starts: 3 sequences of 12 tokens each, and what a step costs."""
    loop = make_loop(prepared, ("gru", {}), tmp_path / "tokens", steps=None, tokens=7 * 36)
    events = list(loop.run())
    assert isinstance(events[-1], Stopped)
    assert (events[-1].step, events[-1].tokens) == (7, 7 * 36)
    assert events[-1].cpu_seconds is not None
    assert events[-1].cpu_seconds > 0
    cost = loop.step_flops
    assert cost is not None
    assert make_loop(prepared, ("gru", {}), tmp_path / "flops", steps=None, flops=5 * cost).steps == 5
    wide = make_loop(prepared, ("gru", {"width": 32}), tmp_path / "wide", steps=None, flops=5 * cost)
    assert wide.steps is not None
    assert wide.steps < 5
    resumed = make_loop(prepared, ("gru", {}), tmp_path / "tokens", steps=None, tokens=9 * 36)
    resumed.resume(new_end=True)
    assert resumed.steps == 9
    assert resumed.progress.cpu_seconds == events[-1].cpu_seconds
    with pytest.raises(ValueError, match="tokens or flops"):
        TrainSettings(tokens=3, flops=1e9)


def test_processor_time_may_be_the_clock(prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr("seriatim.training.loop.CLOCKS", {"cpu": lambda: float(next(ticks))})
    changes: dict[str, Any] = {"steps": None, "evaluate_steps": None, "minutes": 5 / 60, "clock": "cpu"}
    events = list(make_loop(prepared, ("gru", {}), tmp_path, **changes).run())
    assert (events[-1].step, events[-1].seconds) == (5, 5.0)  # a step takes a second of this clock


def test_a_seed_decides_everything(prepared: Any, tmp_path: Path) -> None:
    runs = [
        losses(list(make_loop(prepared, ("gru", {}), tmp_path / str(n), seed=seed).run()))
        for n, seed in enumerate((3, 3, 4))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("case", [("gpt", {}), ("lstm", {})], ids=label)
def test_batches_are_pure_functions_of_the_step(prepared: Any, case: Case) -> None:
    _, objective = objective_of(prepared, settings_of(case))
    whole = objective.batch(7, 0, 6, 6)
    parts = [objective.batch(7, first, first + 2, 6) for first in (0, 2, 4)]
    assert torch.equal(whole.inputs, torch.cat([part.inputs for part in parts]))
    assert torch.equal(whole.inputs[:, 1:], whole.targets[:, :-1])
    first, second = (objective.batch(step, 0, 4, 4) for step in (0, 1))
    assert first.fresh
    assert second.fresh == (case[0] == "gpt")
    continued = torch.equal(first.targets[:, -1], second.inputs[:, 0])
    assert continued == (case[0] == "lstm"), "sequences of a model that carries states continue where they stopped"


def test_dropout_differs_from_step_to_step(prepared: Any, tmp_path: Path) -> None:
    """With weights that do not change and the same batch in every step, only the dropout masks differ."""
    loop = make_loop(
        prepared, ("mlp", {}), tmp_path, steps=3, dropout=0.5, optimizer={"name": "sgd", "weight_decay": 0.0}
    )
    loop.lr = 0.0
    batch = loop.objective.batch(0, 0, 3, 3)
    loop.objective.batch = lambda step, first, last, batch_size: batch
    assert len(set(losses(list(loop.run())))) == 3


# Several processes


def recorded(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "stepped"]


def test_two_processes_equal_one_with_the_doubled_batch(book: Path, tmp_path: Path) -> None:
    """A training that started on two processes continues on one: the carried states are regrouped."""
    common = ["--data", str(book), "--model", "lstm", "--context-length", "12", "--set", "model.width=8", "--quiet"]
    common += ["--set", "train.evaluate_steps=4", "--set", "train.schedule.name=constant", "--no-report"]
    common += ["--set", "train.schedule.warmup=0"]  # so that a step does not depend on where the training ends
    two = [*common, "--batch-size", "1", "--set", "train.accumulate=2"]
    torchrun(2, "train", "language", *two, "--steps", "6", "--out", "two", cwd=tmp_path)
    alone = [sys.executable, "-c", "import sys; from seriatim.cli import run; sys.exit(max(map(run, {}))); "]
    whole = ["train", "language", *common, "--batch-size", "4", "--steps", "9", "--out", "whole"]
    commands = [whole, ["resume", "two", "--steps", "9", "--quiet"]]
    alone[-1] = alone[-1].format(json.dumps(commands))
    subprocess.run(alone, cwd=tmp_path, check=True, timeout=300)
    assert recorded(tmp_path / "two") == pytest.approx(recorded(tmp_path / "whole"), rel=1e-4)


@pytest.mark.slow
def test_one_process_continues_on_two(book: Path, tmp_path: Path) -> None:
    common = ["--data", str(book), "--model", "lstm", "--context-length", "12", "--set", "model.width=8", "--quiet"]
    common += ["--set", "train.schedule.name=constant", "--set", "train.schedule.warmup=0", "--no-report"]
    alone = [sys.executable, "-m", "seriatim"]
    for steps, out in (("9", "whole"), ("6", "cut")):
        command = ["train", "language", *common, "--batch-size", "4", "--steps", steps, "--out", out]
        subprocess.run([*alone, *command], cwd=tmp_path, check=True, timeout=300)
    torchrun(2, "resume", "cut", "--steps", "9", "--quiet", cwd=tmp_path)
    assert recorded(tmp_path / "cut") == pytest.approx(recorded(tmp_path / "whole"), rel=1e-4)


@pytest.mark.slow
def test_a_comparison_on_two_processes(book: Path, tmp_path: Path) -> None:
    common = ["compare", "language", "--data", str(book), "--models", "ngram,gru", "--steps", "3", "--quiet", "--json"]
    torchrun(2, *common, "--context-length", "12", "--batch-size", "2", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["compare-language"]  # one folder for both
    folder = tmp_path / "runs/compare-language"
    events = [json.loads(line)["event"] for line in (folder / "ngram/metrics.jsonl").read_text().splitlines()]
    assert events == ["started", "evaluated", "stopped"]


# What a step does


def test_clipping_by_the_global_norm(prepared: Any, tmp_path: Path) -> None:
    loop = make_loop(prepared, ("rnn", {}), tmp_path, clip=1e-3, steps=1)
    stepped = next(event for event in loop.run() if isinstance(event, Stepped))
    gradients = [p.grad for p in loop.network.parameters() if p.grad is not None]
    after = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    assert stepped.grad_norm > 1e-3
    assert after == pytest.approx(1e-3, rel=1e-3)


def test_label_smoothing_and_sums(prepared: Any) -> None:
    task, splits = prepared
    network, batch = task.build(splits.train), TaskObjective.of(task, splits).batch(0, 0, 4, 4)
    loss = task.loss(task.forward(network, batch), batch, 0.1)
    logits, _ = network(batch.inputs)
    expected = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), label_smoothing=0.1)
    assert loss.item() / batch.count == pytest.approx(expected.item(), rel=1e-5)


def test_evaluation_is_the_mean_over_all_tokens(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, rows and padding of the evaluation against one pass over the whole split."""
    task, splits = prepared
    network, validation = task.build(splits.train).eval(), splits["validation"]
    tokens = torch.from_numpy(validation.items.inputs.values[:].astype("int64"))[None]
    with torch.no_grad():
        logits, _ = network(tokens[:, :-1])
        expected = F.cross_entropy(logits[0], tokens[0, 1:]).item()
    assert task.evaluate(network, validation).metrics["loss"] == pytest.approx(expected, rel=0.05)
    monkeypatch.setattr("seriatim.tasks.language.engine.EVALUATION_ROWS", 1)
    metrics = task.evaluate(network, validation).metrics
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert metrics["bits_per_character"] == pytest.approx(expected / math.log(2), rel=0.01)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_stops_at_the_first_non_finite_gradient_and_names_it(prepared: Any, tmp_path: Path, clip: float | None) -> None:
    loop = make_loop(prepared, ("rnn", {}), tmp_path, clip=clip, evaluate_steps=100)
    bias: Any = loop.network.head.bias
    bias.register_hook(lambda gradient: gradient * math.inf if loop.progress.step == 3 else gradient)
    with pytest.raises(SeriatimError) as caught:
        list(loop.run())
    assert caught.value.code == "train.non-finite"
    assert caught.value.exit_code == 1
    assert "at step 4" in caught.value.cause
    assert caught.value.cause.endswith("the gradient of head.bias")


def test_early_stopping_and_the_best_weights(prepared: Any, tmp_path: Path) -> None:
    saved: list[dict[str, torch.Tensor]] = []
    loop = make_loop(prepared, ("rnn", {}), tmp_path, steps=400, evaluate_steps=1, patience=2, dropout=0.0)
    loop.lr = 0.3
    loop.save_best = lambda tensors: saved.append({k: v.detach().clone() for k, v in tensors.items()})
    events = list(loop.run())
    evaluated = [event for event in events if isinstance(event, Evaluated)]
    assert isinstance(events[-1], Stopped)
    assert events[-1].reason == "patience"
    best = min(evaluated, key=lambda event: event.metrics["loss"])
    assert best.step == events[-1].best_step
    assert len(saved) == sum(event.best for event in evaluated)
    assert set(loop.checkpoints.steps()) == {best.step, events[-1].step}, "the best and the last are kept"
    stored = loop.checkpoints.load(best.step).tensors["weights"]
    assert all(torch.equal(stored[name], saved[-1][name]) for name in stored)


@pytest.mark.parametrize(("monitor", "best"), [("accuracy", 3), ("loss", 2), (None, 2)])
def test_a_metric_of_choice_selects_the_weights(
    prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monitor: str | None, best: int
) -> None:
    loop = make_loop(prepared, ("mlp", {}), tmp_path, steps=5, evaluate_steps=1, patience=2, monitor=monitor)
    losses, accuracies = {1: 3.0, 2: 1.0, 3: 2.0, 4: 4.0, 5: 5.0}, {1: 0.1, 2: 0.1, 3: 0.8, 4: 0.8, 5: 0.7}
    evaluated = lambda *_: values_of(loss=losses[loop.progress.step], accuracy=accuracies[loop.progress.step])  # noqa: E731
    monkeypatch.setattr(loop.objective, "evaluate", evaluated)
    monkeypatch.setattr(loop.objective, "sample", lambda *_: "")
    events = list(loop.run())
    assert isinstance(events[-1], Stopped)
    assert (events[-1].best_step, events[-1].step) == (best, best + 2), "patience counts from the best"


def test_a_metric_that_is_not_evaluated_has_candidates(prepared: Any, tmp_path: Path) -> None:
    loop = make_loop(prepared, ("mlp", {}), tmp_path, steps=2, monitor="lsos")
    with pytest.raises(SeriatimError, match='did you mean "loss"'):
        list(loop.run())
    with pytest.raises(SeriatimError, match="of no value is better"):
        check_monitor("tokens", {"loss": 1.0, "tokens": 5.0})


def test_last_checkpoints_are_kept(prepared: Any, tmp_path: Path) -> None:
    loop = make_loop(prepared, ("mlp", {}), tmp_path, steps=6, evaluate_steps=1, keep_checkpoints=3)
    list(loop.run())
    assert set(loop.checkpoints.steps()) == {loop.progress.best_step, 4, 5, 6}


def test_moving_average_of_weights(prepared: Any, tmp_path: Path) -> None:
    loop = make_loop(prepared, ("mlp", {}), tmp_path, ema=0.75, steps=2, dropout=0.0)
    expected = weights(loop.network)["head.bias"].detach().clone()
    for event in loop.run():
        if isinstance(event, Stepped):
            expected = 0.75 * expected + 0.25 * weights(loop.network)["head.bias"].detach()
    torch.testing.assert_close(loop.ema["head.bias"], expected)


@pytest.mark.parametrize("name", ["gpt", "lstm", "gru", "tcn"])
def test_bfloat16_trains(prepared: Any, tmp_path: Path, name: str) -> None:
    events = list(make_loop(prepared, (name, {}), tmp_path, precision="bfloat16", steps=3).run())
    assert len(losses(events)) == 3
    assert all(math.isfinite(loss) for loss in losses(events))


def test_more_processes_than_divide_a_batch(prepared: Any, tmp_path: Path) -> None:
    loop = make_loop(prepared, ("gpt", {}), tmp_path, steps=1)
    list(loop.run())
    loop.ranks = replace(loop.ranks, world_size=2)
    with pytest.raises(SeriatimError, match="cannot be divided among 2 processes"):
        loop.resume()


# Checkpoints


def test_checkpoints_are_whole_or_not_there(prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle of writing leaves the last good one, and nothing under a checkpoint's name."""
    loop = make_loop(prepared, ("gru", {}), tmp_path)
    for event in loop.run():
        if isinstance(event, Saved):
            break
    before = loop.checkpoints.steps()

    def crash(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("seriatim.training.checkpoint.write_json", crash)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            loop._save()
        loop.progress.step += 1
    assert loop.checkpoints.steps() == before
    assert loop.checkpoints.load().progress["step"] == before[-1]
    assert not [path for path in loop.checkpoints.folder.iterdir() if not path.name.isdigit()]


def test_a_damaged_checkpoint_is_refused(prepared: Any, tmp_path: Path) -> None:
    loop = make_loop(prepared, ("gru", {}), tmp_path, steps=5)
    list(loop.run())
    file = loop.checkpoints.folder / "5" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(SeriatimError) as caught:
        loop.checkpoints.load()
    assert caught.value.code == "checkpoint.damaged"
    assert "weights.safetensors" in caught.value.cause


# Equal values of the monitored metric


@dataclass
class TiedObjective:
    """An objective whose monitored metric never changes."""

    losses: list[float] = field(default_factory=lambda: [3.0, 2.0, 2.5, 1.0])
    monitor: str = "error"
    unit: str = "examples"
    prefetch: bool = False

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        return Batch(torch.ones(1, 1), torch.ones(1, 1), count=1)

    def steps_per_epoch(self, batch_size: int) -> int:
        return 1

    def forward(self, network: nn.Module, batch: Batch, state: Any = None) -> Output:
        return Output(network(batch.inputs))

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> torch.Tensor:
        return (output.scores - batch.targets).square().sum()

    def evaluate(self, network: nn.Module) -> AnyEvaluation:
        return values_of(loss=self.losses.pop(0), error=0.5)

    def sample(self, evaluation: AnyEvaluation) -> str:
        return ""


def test_of_equal_metrics_the_lower_loss_is_the_best(tmp_path: Path) -> None:
    """An error rate that stays the same for a while must not keep the weights of the beginning."""
    settings = TrainSettings(steps=4, batch_size=1, evaluate_steps=1)
    objective: Any = TiedObjective()
    loop = Loop(objective, nn.Linear(1, 1), settings, 1e-3, 0, Checkpoints(tmp_path))
    assert [event.best for event in loop.run() if isinstance(event, Evaluated)] == [True, True, False, True]


def test_what_cannot_be_compared_is_not_the_best(
    prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([math.nan, 2.0, 3.0])
    loop = make_loop(prepared, ("gru", {}), tmp_path / "nan", steps=3, evaluate_steps=1)
    monkeypatch.setattr(loop.objective, "evaluate", lambda *_: values_of(loss=next(values)))
    monkeypatch.setattr(loop.objective, "sample", lambda *_: "")
    events = list(loop.run())
    assert [event.best for event in events if isinstance(event, Evaluated)] == [True, True, False]
    loop = make_loop(prepared, ("gru", {}), tmp_path / "none", steps=1)
    monkeypatch.setattr(loop.objective, "evaluate", lambda *_: values_of(accuracy=0.5))
    with pytest.raises(SeriatimError) as caught:
        list(loop.run())
    assert caught.value.code == "train.monitor"


def test_counts_are_not_averaged(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(1, 1))
    network.register_buffer("batches", torch.tensor(0))
    objective: Any = TiedObjective()
    loop = Loop(objective, network, TrainSettings(steps=3, batch_size=1, ema=0.5), 1e-3, 0, Checkpoints(tmp_path))
    for event in loop.run():
        if isinstance(event, Stepped):
            assert int(loop.ema["batches"]) == event.step - 1
            loop.network.get_buffer("batches").add_(1)
