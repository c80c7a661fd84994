"""Depths of parameters, and layers that are frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim import tasks
from seriatim.core.errors import SeriatimError
from seriatim.nn.network import weights
from seriatim.runs.configure import configure
from seriatim.tasks import reading
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective
from seriatim.training.optimizer import freeze, layer_depths

DRAW = np.random.default_rng(0)
WORDS = {"good": ["fine", "lovely", "great"], "bad": ["dull", "awful", "poor"]}
REVIEWS = [
    (" ".join(DRAW.choice([*WORDS[name], "the", "film", "was"], DRAW.integers(2, 9))), name)
    for name in ["good", "bad"] * 30
]
PAIRS = [(line, " ".join(reversed(line.split()))) for line, _ in REVIEWS]


def prepare(task: str, model: str, sizes: dict[str, Any], train: dict[str, Any] | None = None) -> Any:
    """Returns the configuration, the task and its splits."""
    config = configure(task, "data", model, {"model": sizes, "train": train or {}})
    data = REVIEWS if task == "classify" else PAIRS
    return config, *reading.prepare(tasks.load(task), config.task_config(), data)


def from_output(task: str, model: str, sizes: dict[str, Any]) -> dict[str, int]:
    """Returns the depth of each parameter, counted from the head."""
    config, prepared, _ = prepare(task, model, sizes)
    with torch.device("meta"):
        network = prepared.network(config.model)
    return {name.removeprefix("backbone."): depth.from_output for name, depth in layer_depths(network).items()}


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


@pytest.mark.parametrize(("model", "sizes", "expected"), DEPTHS)
def test_depth_is_counted_from_the_head(model: str, sizes: dict[str, Any], expected: dict[str, int]) -> None:
    depths = from_output("classify", model, sizes)
    assert {name: depths[name] for name in expected} == expected


def test_encoder_and_decoder_are_each_counted_from_their_own_top() -> None:
    depths = from_output("translate", "transformer", {"layers": 3, "decoder_layers": 2, "tie": False})
    for stack, depth in [("encoder.2", 1), ("encoder.0", 3), ("decoder.1", 1), ("decoder.0", 2)]:
        assert depths[f"{stack}.feedforward.output.bias"] == depth
    assert depths["source.weight"] == 4
    assert depths["head.weight"] == 0


# Frozen layers

FROZEN: dict[Any, tuple[str, ...]] = {
    "embeddings": ("input", "backbone.positions"),
    1: ("input", "backbone.positions", "backbone.cells.0", "backbone.blocks.0", "backbone.layers.0"),
    "backbone": ("input", "backbone"),
}


def make_loop(folder: Path, model: str, stop: int | None = None, dropout: float = 0.0, **train: Any) -> Loop:
    sizes = {"width": 8, "dropout": dropout} | ({"heads": 2} if model == "gpt" else {})
    sizes |= {"levels": 2} if model == "tcn" else {"layers": 2}
    values = {"steps": 6, "batch_size": 8, "schedule": {"name": "constant", "warmup": 0}, "evaluate_steps": 2}
    config, task, splits = prepare("classify", model, sizes, values | train)
    objective = TaskObjective.of(task, splits)
    loop = Loop(
        objective, task.build(splits.train), config.train, 1e-2, config.seed, Checkpoints(folder / "checkpoints")
    )
    if stop is not None:
        loop.stop_signal = lambda: "SIGINT" if loop.progress.step >= stop else ""
    return loop


@pytest.mark.parametrize("model", ["lstm", "rnn", "gru", "tcn", "gpt", "mlp"])
@pytest.mark.parametrize("setting", FROZEN)
def test_what_is_frozen_stays_and_the_rest_is_trained_as_ever(tmp_path: Path, model: str, setting: Any) -> None:
    """The first update of what is trained is that of a training without frozen layers."""
    plain = {"clip": None, "optimizer": {"name": "sgd"}}
    free = make_loop(tmp_path / "free", model, **plain)
    partial = make_loop(tmp_path / "partial", model, **plain, freeze=setting, ema=0.5)
    before = {name: p.detach().clone() for name, p in partial.network.named_parameters()}
    free._update()
    partial._update()
    frozen = {name for name in before if name.startswith(FROZEN[setting])}
    moved = {name for name, p in partial.network.named_parameters() if not torch.equal(p, before[name])}
    assert moved == before.keys() - frozen
    for (name, parameter), other in zip(partial.network.named_parameters(), free.network.parameters(), strict=True):
        if name in frozen:
            assert parameter.grad is None
            assert torch.equal(partial.ema[name], before[name])
        else:
            assert torch.allclose(parameter, other, rtol=1e-6, atol=1e-8), name
    partial._update()
    assert all(torch.equal(p, before[name]) for name, p in partial.network.named_parameters() if name in frozen)


@pytest.mark.parametrize(
    "train", [{"freeze": 1}, {"freeze": "embeddings", "optimizer": {"name": "sgd", "layer_decay": 0.7}}]
)
def test_resuming_with_frozen_layers_is_exact(tmp_path: Path, train: dict[str, Any]) -> None:
    options = {"dropout": 0.2, "ema": 0.5, **train}
    whole = make_loop(tmp_path / "whole", "lstm", **options)
    list(whole.run())
    list(make_loop(tmp_path / "cut", "lstm", stop=3, **options).run())
    resumed = make_loop(tmp_path / "cut", "lstm", **options)
    resumed.resume()
    list(resumed.run())
    for name, tensor in weights(whole.network).items():
        assert torch.equal(tensor, weights(resumed.network)[name]), name
        assert torch.equal(whole.ema[name], resumed.ema[name]), name


def test_freezing_is_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    settings = {"model": {"layers": 2, "width": 8}, "train": {"freeze": 1}}
    run = seriatim.train(
        "classify", REVIEWS, "gru", out=tmp_path / "r", steps=1, settings=settings, notify=notes.append, report=False
    )
    depths = layer_depths(run.network)
    frozen = sum(p.numel() for name, p in run.network.named_parameters() if depths[name].from_input < 2)
    (note,) = (text for text in notes if text.startswith("frozen:"))
    assert note.startswith(f"frozen: the embeddings and the lowest block, {frozen:,} of {run.summary['parameters']:,} ")
    assert any("frozen layers have random weights" in text for text in notes)


def test_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="the model has 2") as caught:
        make_loop(tmp_path, "gru", freeze=3)
    assert caught.value.code == "train.freeze"
    with pytest.raises(SeriatimError, match="all 6 parameters would be frozen"):
        freeze(torch.nn.ModuleDict({"input": torch.nn.Linear(2, 2)}), "embeddings")
    for wrong in ("head", 0, -1, 1.5, True):
        with pytest.raises(SeriatimError, match=r"train\.freeze: none, embeddings, backbone"):
            configure("classify", "data", "gru", {"train": {"freeze": wrong}})
