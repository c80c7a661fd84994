"""Fine-tuning: passes over the data, rates that fall with depth, frozen parts, warm-up by share."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.api import configure
from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.nn.network import weights
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.depth import freeze, places
from seriatim.training.events import Stepped
from seriatim.training.loop import Loop
from seriatim.training.schedules import share_of_peak
from seriatim.training.settings import ScheduleSettings


@pytest.fixture(scope="module", autouse=True)
def _without_pictures() -> Iterator[None]:
    """They take most of the time, and are tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seriatim.report.write_run_report", lambda run: None)
        yield


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 texts of unequal length: 48 of them to learn from."""
    draw = np.random.default_rng(0)
    moods = {"good": ["fine", "lovely", "great"], "bad": ["dull", "awful", "poor"]}
    rows = [
        f"{' '.join(draw.choice([*moods[label], 'the', 'film', 'was'], draw.integers(2, 9)))},{label}"
        for label in ["good", "bad"] * 30
    ]
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(1)
    words = ["one", "two", "three", "four"]
    lines = [" ".join(draw.choice(words, draw.integers(1, 7))) for _ in range(60)]
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("\n".join(f"{line}\t{' '.join(reversed(line.split()))}" for line in lines) + "\n", encoding="utf-8")
    return path


def prepared(name: str, data: Path, model: str = "gru", **settings: Any) -> Any:
    config = configure(name, str(data), model, settings)
    return registry.tasks.load(name).prepare(config)


# Epochs


def test_epochs_visit_every_example_as_often(reviews: Path, tmp_path: Path) -> None:
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", epochs=2.5, batch=8)
    assert run.summary["step"] == 15, "48 examples are 6 batches of 8"
    task = prepared("classify", reviews)
    assert task.size == 48
    seen = Counter(row for step in range(12) for row in task.rows(step, 8).tolist())
    assert seen == dict.fromkeys(range(48), 2)


def test_epochs_of_pairs_are_their_batches(pairs: Path) -> None:
    task = prepared("translate", pairs)
    steps = task.steps_per_epoch(8)
    for epoch in range(2):
        batches = [task._grouped(8).rows(step) for step in range(epoch * steps, (epoch + 1) * steps)]
        assert sorted(np.concatenate(batches).tolist()) == list(range(task.size))


def test_an_epoch_of_a_text_reads_as_many_tokens(book: Path) -> None:
    task = prepared("language", book, task={"length": 12})
    read = task.steps_per_epoch(4) * 4 * 12
    assert task.size - 48 < read <= task.size


def test_epochs_count_whole_global_batches(reviews: Path, tmp_path: Path) -> None:
    settings = {"train": {"accumulate": 3}}
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", epochs=2, batch=8, settings=settings)
    assert run.summary["step"] == 4, "48 examples are 2 times 3 batches of 8"


def test_epochs_move_the_end(reviews: Path, tmp_path: Path) -> None:
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", epochs=1, batch=8)
    more = seriatim.resume(run.path, epochs=1.5)
    assert more.summary["step"] == 9
    assert more.settings["train"]["epochs"] == 1.5
    assert seriatim.resume(run.path, steps=10).settings["train"]["epochs"] is None


def test_two_ends_are_refused(reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        configure("classify", str(reviews), "gru", steps=3, epochs=2)
    assert "train.epochs: steps or epochs say how long, not both" in caught.value.cause
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", steps=1, batch=8)
    with pytest.raises(SeriatimError, match="not both"):
        seriatim.resume(run.path, steps=3, epochs=2)


def test_what_suits_a_task_gives_way_to_any_end_that_is_said(monkeypatch: pytest.MonkeyPatch, reviews: Path) -> None:
    module = registry.tasks.load("classify")
    monkeypatch.setattr(module, "train_defaults", lambda values: {"epochs": 3.0, "batch": 16}, raising=False)
    assert configure("classify", str(reviews), "gru").train.epochs == 3
    for name, value in {"steps": 5, "minutes": 1.0, "epochs": 2.0}.items():
        train = configure("classify", str(reviews), "gru", **{name: value}).train
        assert (getattr(train, name), train.batch) == (value, 16)
        assert name == "epochs" or train.epochs is None


# Depth


def above(task: str, data: Path, model: str, settings: dict[str, Any]) -> dict[str, int]:
    """How deep the weights of each part lie, seen from the head."""
    config = configure(task, str(data), model, {"model": settings})
    with torch.device("meta"):
        network = registry.tasks.load(task).prepare(config).shape(config.model)
    return {name.removeprefix("backbone."): place.above for name, place in places(network).items()}


DEPTHS: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("lstm", {"layers": 2}, {"head.output.bias": 0, "cells.1.recurrent": 1, "cells.0.recurrent": 2, "input.weight": 3}),
    (
        "lstm",
        {"layers": 2, "bidirectional": True},
        {"cells.3.recurrent": 1, "cells.2.recurrent": 1, "cells.1.recurrent": 2, "cells.0.recurrent": 2},
    ),
    ("tcn", {"levels": 3}, {"blocks.2.first.gain": 1, "blocks.0.first.gain": 3, "input.weight": 4}),
    ("gpt", {"layers": 2}, {"norm.weight": 1, "blocks.1.attention.inputs.weight": 1, "positions.weight": 3}),
    ("bert", {"layers": 2}, {"head.pooler.weight": 0, "norm.weight": 3, "input.segments.weight": 3}),
    ("mlp", {"layers": 2}, {"layers.1.weight": 1, "layers.0.weight": 2, "input.weight": 3}),
]


@pytest.mark.parametrize(("model", "settings", "wanted"), DEPTHS)
def test_depth_is_counted_from_the_head(
    reviews: Path, model: str, settings: dict[str, Any], wanted: dict[str, int]
) -> None:
    found = above("classify", reviews, model, settings)
    assert {name: found[name] for name in wanted} == wanted


def test_encoder_and_decoder_are_each_counted_from_their_own_top(pairs: Path) -> None:
    settings = {"layers": 3, "decoder_layers": 2, "tie": False}
    found = above("translate", pairs, "transformer", settings)
    depths = [("encoder.2", 1), ("encoder.0", 3), ("decoder.1", 1), ("decoder.0", 2)]
    for stack, depth in depths:
        assert found[f"{stack}.feedforward.output.bias"] == depth
    assert found["source.weight"] == 4
    assert found["head.weight"] == 0


@pytest.mark.parametrize(("model", "name"), [("lstm", "adamw"), ("gpt", "sgd")])
def test_rates_fall_with_depth_as_by_hand(reviews: Path, tmp_path: Path, model: str, name: str) -> None:
    """Three updates equal those of an optimiser whose groups are written down here."""
    own = loop(reviews, tmp_path, model, optimiser={"name": name, "layer_decay": 0.5, "weight_decay": 0.3}, clip=None)
    twin = copy.deepcopy(own.network)
    groups = [
        {"params": [p], "lr": 1e-2 * 0.5**depth, "weight_decay": 0.3 if p.dim() > 1 else 0.0}
        for name, p in twin.named_parameters()
        for depth in [places(twin)[name].above]
    ]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    by_hand = adam if name == "adamw" else torch.optim.SGD(groups, momentum=0.9)
    for step in range(3):
        own._update()
        batch = own.task.batch(step, 0, 8, 8)
        loss, _ = own.task.loss(twin, batch, None, 0.0)
        by_hand.zero_grad()
        (loss / batch.count).backward()
        by_hand.step()
    assert len(own.optimiser.param_groups) <= 8
    for (name, one), other in zip(own.network.named_parameters(), twin.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7), name


def loop(data: Path, folder: Path, model: str, halt: Any = lambda: "", dropout: float = 0.0, **train: Any) -> Loop:
    small = {"width": 8, "dropout": dropout} | ({"heads": 2} if model in ("gpt", "bert") else {})
    deep = {"levels": 2} if model == "tcn" else {"layers": 2}
    values = {"steps": 6, "batch": 8, "schedule": {"name": "constant", "warmup": 0}, "evaluate_steps": 2}
    config = configure("classify", str(data), model, {"model": small | deep, "train": values | train})
    task: Any = registry.tasks.load("classify").prepare(config)
    network = task.build(config.model)
    return Loop(task, network, config.train, 1e-2, config.seed, Checkpoints(folder / "checkpoints"), halt=halt)


# Frozen parts

FROZEN: dict[Any, tuple[str, ...]] = {
    "embeddings": ("input", "backbone.positions"),
    1: ("input", "backbone.positions", "backbone.cells.0", "backbone.blocks.0", "backbone.layers.0"),
    "backbone": ("input", "backbone"),
}


@pytest.mark.parametrize("model", ["lstm", "rnn", "gru", "tcn", "gpt", "mlp"])
@pytest.mark.parametrize("freeze", FROZEN)
def test_what_is_frozen_stays_and_the_rest_learns_as_ever(
    reviews: Path, tmp_path: Path, model: str, freeze: Any
) -> None:
    """The first update of what learns is that of a training without frozen parts."""
    plain = {"clip": None, "optimiser": {"name": "sgd"}}
    free = loop(reviews, tmp_path / "free", model, **plain)
    cold = loop(reviews, tmp_path / "cold", model, **plain, freeze=freeze, ema=0.5)
    before = {name: p.detach().clone() for name, p in cold.network.named_parameters()}
    free._update()
    cold._update()
    resting = {name for name in before if name.startswith(FROZEN[freeze])}
    moved = {name for name, p in cold.network.named_parameters() if not torch.equal(p, before[name])}
    assert moved == before.keys() - resting
    for (name, one), other in zip(cold.network.named_parameters(), free.network.parameters(), strict=True):
        if name in resting:
            assert one.grad is None
            assert torch.equal(cold.average[name], before[name])
        else:
            assert torch.allclose(one, other, rtol=1e-6, atol=1e-8), name
    list(cold.run())
    assert all(torch.equal(p, before[name]) for name, p in cold.network.named_parameters() if name in resting)


@pytest.mark.parametrize(
    "train",
    [
        {"freeze": 1},
        {"optimiser": {"layer_decay": 0.7}},
        {"freeze": "embeddings", "optimiser": {"name": "sgd", "layer_decay": 0.7}},
    ],
)
def test_resuming_is_exact(reviews: Path, tmp_path: Path, train: dict[str, Any]) -> None:
    whole = loop(reviews, tmp_path / "whole", "lstm", dropout=0.2, ema=0.5, **train)
    list(whole.run())
    done: list[int] = []
    cut = loop(reviews, tmp_path / "cut", "lstm", lambda: "SIGINT" if len(done) >= 3 else "", 0.2, ema=0.5, **train)
    for event in cut.run():
        done += [event.step] if isinstance(event, Stepped) else []
    again = loop(reviews, tmp_path / "cut", "lstm", dropout=0.2, ema=0.5, **train)
    again.resume()
    list(again.run())
    for name, tensor in weights(whole.network).items():
        assert torch.equal(tensor, weights(again.network)[name]), name
        assert torch.equal(whole.average[name], again.average[name]), name


def test_freezing_is_told_and_too_much_refused(reviews: Path, tmp_path: Path) -> None:
    told: list[str] = []
    settings = {"model": {"layers": 2, "width": 8}, "train": {"freeze": 1}}
    seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", steps=1, settings=settings, notify=told.append)
    run = seriatim.load(tmp_path / "r")
    where = places(run.model)
    cold = sum(p.numel() for name, p in run.model.named_parameters() if where[name].below < 2)
    (note,) = (text for text in told if text.startswith("frozen"))
    assert note.startswith(f"frozen: the embeddings and the lowest block, {cold:,} of {run.summary['parameters']:,} ")
    with pytest.raises(SeriatimError) as caught:
        loop(reviews, tmp_path, "gru", freeze=3)
    assert caught.value.code == "train.freeze"
    assert "the model has 2" in caught.value.cause
    with pytest.raises(SeriatimError, match="nothing is left to learn"):
        freeze(torch.nn.ModuleDict({"input": torch.nn.Linear(2, 2)}), "embeddings")
    for wrong in ("head", 0, -1, 1.5, True):
        with pytest.raises(SeriatimError, match=r"train\.freeze: none, embeddings, backbone"):
            configure("classify", str(reviews), "gru", {"train": {"freeze": wrong}})


# Warm-up


def test_warm_up_by_share() -> None:
    def at(step: int, total: int | None, **changes: Any) -> float:
        return share_of_peak(step, total, ScheduleSettings(name="linear", floor=0.0, **changes))

    assert [at(step, 100, warmup=0.1) for step in (0, 4, 9, 10, 55)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.5])
    assert at(20, 100, warmup=0.4) == pytest.approx(21 / 40), "a share is what it says, also above a fifth"
    assert at(19, 100, warmup=40) == 1.0, "steps are a fifth at most"
    assert at(49, None, warmup=0.1) == 0.5, "100 steps while the total is not known"
    assert share_of_peak(19, 40, ScheduleSettings(name="inverse-sqrt", warmup=0.25)) == pytest.approx((10 / 20) ** 0.5)
    dumped = ScheduleSettings(warmup=100).model_dump(), ScheduleSettings(warmup=2.0).model_dump()
    assert [repr(values["warmup"]) for values in dumped] == ["100", "2"]
    for wrong in (-1, 1.5, "many", float("nan"), True):
        with pytest.raises(ValueError, match="a share of them below 1"):
            ScheduleSettings(warmup=wrong)
