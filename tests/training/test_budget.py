"""Defaults that follow from the budget, and the memory that a batch needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import seriatim
from helpers import questions_file, tagged_file
from seriatim import tasks
from seriatim.core.device import Ranks
from seriatim.core.errors import SeriatimError
from seriatim.runs.configure import configure
from seriatim.tasks import reading
from seriatim.tasks.base import AnyTask
from seriatim.training import budget
from seriatim.training.budget import Pace, check_batch_memory, make_plan, measure_pace
from seriatim.training.config import Config, learning_rates
from seriatim.training.cost import parameter_count
from seriatim.training.objective import TaskObjective
from task_helpers import prepare_splits

TEXT = "the cat sat on the mat, and the dog saw the cat that sat on the mat. " * 300


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(TEXT)
    return path


def open_objective(config: Config) -> tuple[AnyTask, TaskObjective]:
    task, splits = reading.prepare(tasks.load(config.task.name), config.task_config())
    return task, TaskObjective.of(task, splits)


def plan(
    book: Path, monkeypatch: pytest.MonkeyPatch, rows: Any = None, name: str = "gru", **settings: Any
) -> budget.Plan:
    """Returns the plan of a language model; `rows` gives the rows within the time by the width."""
    config = configure("language", str(book), name, settings)
    task, objective = open_objective(config)
    if rows is not None:
        pace = lambda config, *rest: Pace(rows(config.model.width), float(config.task.context_length))  # noqa: E731
        monkeypatch.setattr(budget, "measure_pace", pace)
    return make_plan(config, objective, task.network, torch.device("cpu"), Ranks())


@pytest.mark.parametrize(("targets", "batch_size"), [(10**5, 8), (5 * 10**5, 16), (10**6, 16), (10**7, 32)])
def test_the_batch_follows_from_the_root_of_all_targets(
    book: Path, monkeypatch: pytest.MonkeyPatch, targets: int, batch_size: int
) -> None:
    made = plan(book, monkeypatch, lambda width: targets / 128, train={"minutes": 1}, model={"width": 16})
    assert made.config.train.batch_size == batch_size
    assert made.updates == -(-targets // (128 * batch_size))
    assert f"batch size {batch_size}" in made.note
    assert "in 1 minutes" in made.note


def test_a_network_that_is_too_slow_becomes_narrower(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lambda width: 1_000 * 256 / width  # noqa: E731
    made = plan(book, monkeypatch, rows, train={"minutes": 1})
    assert (made.config.model.width, made.config.train.batch_size) == (64, 16)
    assert "width 64" in made.note
    fixed = plan(book, monkeypatch, rows, train={"minutes": 1, "batch_size": 4}, model={"width": 200})
    assert (fixed.config.model.width, fixed.config.train.batch_size) == (200, 4)
    assert plan(book, monkeypatch, rows, train={"minutes": 1}, params=50_000).config.model.width == 256


@pytest.mark.parametrize(("updates", "factor"), [(100, 2.0), (1_000, 4**0.32), (4_000, 1.0), (40_000, 1.0)])
def test_few_updates_have_a_higher_learning_rate(
    book: Path, monkeypatch: pytest.MonkeyPatch, updates: int, factor: float
) -> None:
    rows, train = (lambda width: 8 * updates), {"minutes": 1, "batch_size": 8}
    made = plan(book, monkeypatch, rows, train=train)
    assert learning_rates(made.config) == pytest.approx((4e-3 * factor, 0.05 * factor), rel=0.02)
    assert ("train.optimizer.lr" in made.decided) == (factor > 1) == ("learning rate" in made.note)
    fixed = plan(book, monkeypatch, rows, train=train | {"optimizer": {"lr": 1e-3}})
    assert learning_rates(fixed.config)[0] == 1e-3
    assert "train.optimizer.lr" not in fixed.decided
    scaled = plan(book, monkeypatch, rows, train=train | {"optimizer": {"lr_scale": 0.5}})
    assert learning_rates(scaled.config) == pytest.approx([rate / 2 for rate in learning_rates(made.config)])
    attention = plan(book, monkeypatch, rows, "gpt", train=train, model={"width": 128})
    higher = 3**0.32 if updates == 100 else 1.0
    assert learning_rates(attention.config)[0] == pytest.approx(0.5 / 128 * higher, rel=0.02)
    config = configure("language", str(book), "gru", {"train": train}).model_copy(update={"start": "a run"})
    task, objective = open_objective(config)
    pretrained = make_plan(config, objective, task.network, torch.device("cpu"), Ranks())
    assert learning_rates(pretrained.config)[0] == pytest.approx(4e-3 / 5)


def test_steps_need_no_pace(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_pace", None)
    made = plan(book, monkeypatch, train={"steps": 100})
    train = made.config.train
    assert (train.batch_size, made.updates, made.config.model.width) == (32, 100, 256)
    assert made.passes == pytest.approx(100 * 32 * 128 / (0.9 * len(TEXT)), rel=0.2)
    assert train.evaluate_limit is None, "a sample does not depend on the pace"
    assert 10 < train.evaluations == int(made.passes) < 40
    epochs = plan(book, monkeypatch, train={"epochs": 2, "batch_size": 8})
    assert epochs.passes == pytest.approx(2, rel=0.1)
    assert epochs.config.train.evaluations == 10
    tokens = [
        plan(book, monkeypatch, train={"tokens": 10**6, "batch_size": 8, "accumulate": number}) for number in (1, 4)
    ]
    assert [made.updates for made in tokens] == [-(-(10**6) // (8 * 128)), -(-(10**6) // (32 * 128))]
    assert tokens[0].passes == pytest.approx(tokens[1].passes, rel=0.2)


def test_dropout_does_not_depend_on_how_gradients_are_accumulated(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropouts = []
    for number in (1, 8):  # as many rows, in fewer updates
        rows = lambda width, number=number: 4_000 / number  # noqa: E731
        train = {"minutes": 1, "batch_size": 4, "accumulate": number}
        made = plan(book, monkeypatch, rows, train=train, model={"width": 200})
        dropouts.append(made.config.model.dropout)
    assert dropouts[0] == dropouts[1] > 0


def test_a_transformer_gets_dropout_later(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT applies it in every block, and loses by it where an LSTM of the same size gains (docs/results.md)."""

    def dropout(model: str, onset: float) -> float:
        config = configure("language", str(book), model, {"train": {"minutes": 1, "batch_size": 4}})
        task, objective = open_objective(config)
        targets = 128 * 4 * objective.steps_per_epoch(4)
        rows = onset * targets**2 / 128 / parameter_count(config.model, task.network)
        monkeypatch.setattr(budget, "measure_pace", lambda *rest: Pace(rows, 128.0))
        monkeypatch.setattr(budget, "MIN_UPDATES", 0)
        return float(make_plan(config, objective, task.network, torch.device("cpu"), Ranks()).config.model.dropout)

    assert [dropout("lstm", ratio) for ratio in (0.9, 25, 250)] == [0.0, 0.2, 0.4]
    assert [dropout("gpt", ratio) for ratio in (0.9, 25, 250)] == [0.0, 0.0, 0.1]


def test_the_pace_is_measured_and_leaves_the_random_numbers(book: Path) -> None:
    config = configure("language", str(book), "gru", {"train": {"minutes": 1}, "model": {"width": 8}})
    task, objective = open_objective(config)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    pace = measure_pace(config, objective, task.network, torch.device("cpu"), Ranks(), 4)
    assert torch.equal(torch.rand(3), expected)
    assert pace.targets == 128
    assert pace.rows > 4


def test_words_have_shorter_sequences_in_a_short_time() -> None:
    def length(kind: str, **settings: Any) -> int:
        task = {"tokenizer": {"kind": kind}, **settings.pop("task", {})}
        return int(configure("language", "book.txt", "lstm", {"task": task, "train": settings}).task.context_length)

    assert length("word", minutes=6) == length("bpe", minutes=1) == 64
    assert length("char", minutes=6) == length("word", minutes=60) == length("word", steps=100) == 128
    assert length("word", minutes=6, task={"context_length": 99}) == 99


def test_what_was_decided_is_stored_and_resumed(book: Path, tmp_path: Path) -> None:
    settings = {"model": {"width": 16}}
    run = seriatim.train("language", book, "gru", out=tmp_path / "run", minutes=0.005, settings=settings, report=False)
    train = run.config.train
    assert train.batch_size in (8, 16, 32)
    assert train.evaluations >= 10
    assert train.evaluate_limit is None, "a sample does not depend on the pace"
    assert any(f"batch size {train.batch_size}" in note for note in run.summary["notes"])
    stages = run.summary["times"]
    assert set(stages) == {"reading", "training", "evaluation", "final_evaluation"}
    assert stages["training"] == run.summary["seconds"]
    resumed = seriatim.resume(run.path, minutes=0.01)
    assert resumed.config.train.model_copy(update={"minutes": 0.005}) == train


@pytest.mark.parametrize("name", ["language", "tag", "pretrain", "answer", "classify", "music"])
def test_a_batch_that_does_not_fit_into_memory_is_refused(
    name: str, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "memory_size", lambda: 10**9)
    data: dict[str, Any] = {
        "language": str(book),
        "pretrain": [{"text": "A cat sat. It slept. A dog saw it. It ran away."} for _ in range(40)],
        "tag": tagged_file(tmp_path),
        "answer": questions_file(tmp_path),
        "classify": [{"text": f"a text of {n} words", "label": str(n % 2)} for n in range(40)],
        "music": [
            {"piece": [[float(key == (n + frame) % 88) for key in range(88)] for frame in range(40)]} for n in range(20)
        ],
    }
    model: dict[str, Any] = {"name": "bert" if name == "pretrain" else "gru", "width": 256}
    if name == "answer":
        model["bidirectional"] = True
    task, splits = prepare_splits(name, data[name], model)
    network, objective = task.build(splits.train), TaskObjective.of(task, splits)
    check_batch_memory(objective, network, 8)
    with pytest.raises(SeriatimError) as caught:
        check_batch_memory(objective, network, 1_000_000)
    assert caught.value.code == "train.memory"
    assert "--batch-size" in str(caught.value.remedy)


@pytest.mark.parametrize("model", ["gpt", "gru"])
def test_the_estimate_of_memory_is_that_of_a_whole_batch(
    model: str, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many rows other operators are used than of two, fewer than there may be threads."""
    task, splits = prepare_splits("language", str(book), {"name": model, "width": 128}, {"context_length": 16})
    network, objective = task.build(splits.train), TaskObjective.of(task, splits)
    rows, batch = 16, objective.batch
    monkeypatch.setattr(objective, "batch", lambda step, first, last, size: batch(step, first, last, rows))
    kept = budget.kept_bytes(objective, network, rows)
    monkeypatch.setattr(budget, "memory_size", lambda: int(1.2 * kept))
    check_batch_memory(objective, network, rows)
    monkeypatch.setattr(budget, "memory_size", lambda: int(0.8 * kept))
    with pytest.raises(SeriatimError, match=r"train\.memory"):
        check_batch_memory(objective, network, rows)


def test_the_estimate_of_memory_is_that_of_autograd(book: Path) -> None:
    """A linear layer keeps its input: B·T·D floats for B sequences of T vectors."""
    objective: Any = TaskObjective.of(
        *prepare_splits("language", str(book), {"name": "gru", "width": 32}, {"context_length": 16})
    )

    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(50, 1)

    network = Counted()
    objective.forward = lambda network, batch: network.layer(torch.ones(*batch.inputs.shape, 50))
    objective.loss = lambda output, batch: output.sum()
    assert budget.kept_bytes(objective, network, 2) - budget.kept_bytes(objective, network, 1) == 16 * 50 * 4
