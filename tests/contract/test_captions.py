"""The contract of captions, held for every encoder–decoder and for attention after every causal architecture."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import seriatim
from helpers import TINY, backbones, label, pair_models
from seriatim import api
from seriatim.core import registry
from seriatim.core.state import flatten, select
from seriatim.decode.options import TranslateSettings
from seriatim.nn.network import weights
from seriatim.tasks._captioner import Captioner
from seriatim.training.budget import size_of, solve_width
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop

COLOURS = {"red": (220, 30, 30), "green": (20, 160, 40), "blue": (30, 60, 220), "grey": (120, 120, 120)}
PLACES = {"above": (1, 4), "below": (9, 4), "to the left": (5, 1), "to the right": (5, 9)}
SMALL = {"transformer": {"width": 8, "heads": 2, "layers": 1, "feedforward": 10}} | TINY
NAMES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in pair_models()]
AFTER = [case for case in backbones() if not case[1]]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("showattend", {"cell": "gru", "layers": 2}),
    ("showattend", {"score": "general"}),
    ("showtell", {"cell": "gru", "layers": 2}),
]
every = pytest.mark.parametrize("case", [*NAMES, *VARIANTS, *AFTER], ids=label)
main = pytest.mark.parametrize("case", NAMES, ids=label)


def captioned(folder: Path) -> Path:
    """Pictures of 16 × 16 pixels with a square in each, and one or two captions for each."""
    rows = []
    for number in range(40):
        colour, place = list(COLOURS)[number % 4], list(PLACES)[number // 4 % 4]
        picture = np.full((16, 16, 3), 230 + number % 20, np.uint8)
        top, left = PLACES[place]
        picture[top : top + 6, left : left + 6] = COLOURS[colour]
        Image.fromarray(picture).save(folder / f"{number}.png")
        rows.append([f"{number}.png", f"a {colour} square {place}"])
        if number % 2:
            rows.append([f"{number}.png", f"{place} a {colour} thing"])
    with open(folder / "captions.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "caption"], *rows])
    return folder / "captions.csv"


def settings_of(case: tuple[str, dict[str, Any]], **train: Any) -> dict[str, Any]:
    tiny = {"width": 6} | SMALL.get(case[0], {}) | {"name": case[0]} | case[1]
    tiny.pop("context", None)
    own = {"steps": 6, "batch": 4, "evaluate_steps": 3, **train}
    return {"model": tiny, "task": {"channels": 4, "beams": 2}, "train": own}


def prepared(case: tuple[str, dict[str, Any]], folder: Path, **train: Any) -> tuple[Any, Any]:
    source = folder / "captions.csv"
    config = api.configure(
        "caption", str(source if source.exists() else captioned(folder)), None, settings_of(case, **train)
    )
    return config, registry.tasks.load("caption").prepare(config)


@every
def test_learns_and_every_parameter_has_a_part_in_it(case: Any, tmp_path: Path) -> None:
    config, task = prepared(case, tmp_path)
    network, again = task.build(config.model), task.build(config.model)
    assert all(torch.equal(a, b) for a, b in zip(weights(network).values(), weights(again).values(), strict=True))
    batch = task.batch(0, 0, 4, 4)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for step in range(25):
        optimiser.zero_grad()
        torch.manual_seed(0)
        loss, _ = task.loss(network.train(), batch, None, 0.0)
        (loss / batch.count).backward()
        if step == 0:
            idle = [name for name, parameter in network.named_parameters() if parameter.grad is None]
            assert not idle, f"no gradient: {idle}"
        losses.append(loss.item() / batch.count)
        optimiser.step()
    assert losses[-1] < losses[0]


@every
def test_a_caption_knows_nothing_of_its_neighbours(case: Any, tmp_path: Path) -> None:
    """The loss of all captions is the sum of each picture's; a picture is described alone as among others."""
    config, task = prepared(case, tmp_path)
    network = task.build(config.model).double().eval()
    together = task.batch(0, 0, 5, 5)
    alone = [task.batch(0, row, row + 1, 5) for row in range(5)]
    assert together.count == sum(batch.count for batch in alone)
    total, _ = task.loss(network, together, None, 0.0)
    parts = sum(task.loss(network, batch, None, 0.0)[0] for batch in alone)
    torch.testing.assert_close(total, parts, rtol=1e-9, atol=1e-9)
    captioner, pictures = Captioner([network], task.coder), task.parts["train"].inputs.take(np.arange(7))
    for options in (TranslateSettings(beams=3, nbest=2), TranslateSettings(beams=1, max_tokens=9)):
        all_at_once = captioner.caption(pictures, options)
        for row, found in enumerate(all_at_once):
            (by_itself,) = captioner.caption(pictures.take([row]), options)
            assert [one.text for one in found] == [one.text for one in by_itself]
            assert [one.score for one in found] == pytest.approx([one.score for one in by_itself], rel=1e-9)


@every
def test_word_by_word_is_as_all_at_once(case: Any, tmp_path: Path) -> None:
    config, task = prepared(case, tmp_path)
    network = task.build(config.model).double().eval()
    pictures, given, owners = task.batch(0, 0, 4, 4).inputs
    memory = select(network.encode(pictures), owners)
    whole, _ = network.decode(given, memory)
    state, found = None, []
    for first, last in ((0, 2), (2, 3), (3, given.shape[1])):
        hidden, state = network.decode(given[:, first:last], memory, state)
        found.append(hidden)
    torch.testing.assert_close(torch.cat(found, dim=1), whole, rtol=1e-9, atol=1e-9)


@main
def test_a_score_is_that_of_the_caption_found(case: Any, tmp_path: Path) -> None:
    config, task = prepared(case, tmp_path)
    captioner = Captioner([task.build(config.model).double()], task.coder)
    picture = task.parts["train"].inputs.take([3])
    (found,) = captioner.caption(picture, TranslateSettings(beams=4, nbest=4, max_tokens=12))
    for one in found:
        if one.finished:
            assert one.score == pytest.approx(captioner.score(picture[0], one.text).log_probability, rel=1e-9)
    if captioner.attends:
        glance = captioner.attention(picture, "a red square above")
        assert glance.words == ["a", "red", "square", "above"]
        assert glance.weights.shape == (4, glance.grid[0] * glance.grid[1])
        np.testing.assert_allclose(glance.weights.sum(axis=1), 1.0, rtol=1e-9)


def test_a_batch_is_a_function_of_its_step(tmp_path: Path) -> None:
    (_, one), (_, other) = (prepared(("showattend", {}), tmp_path) for _ in range(2))
    for step in (0, 3, 50):
        _, later = one.batch(step + 1, 0, 4, 4), one.batch(step, 0, 4, 4)
        straight = other.batch(step, 0, 4, 4)
        assert later.count == straight.count
        for a, b in zip(*(flatten((batch.inputs, batch.targets))[0] for batch in (later, straight)), strict=True):
            assert torch.equal(a, b)


def test_an_epoch_shows_every_picture_once(tmp_path: Path) -> None:
    _, task = prepared(("showtell", {}), tmp_path)
    rows = np.concatenate([task.rows(step, 4) for step in range(task.size // 4)])
    assert len(set(rows.tolist())) == len(rows) == task.size // 4 * 4
    owners = task.batch(0, 0, 4, 4).inputs[2]
    counts = [len(task.parts["train"].groups[row]) for row in task.rows(0, 4)]
    assert owners.bincount().tolist() == counts
    assert {1, 2} == {len(some) for some in task.parts["train"].groups}


def test_resumed_is_as_if_never_stopped(tmp_path: Path) -> None:
    def run(folder: str, cut: bool) -> dict[str, torch.Tensor]:
        for resumed in (False, True) if cut else (False,):
            config, task = prepared(("showattend", {}), tmp_path, steps=6, evaluate_steps=2)
            loop = Loop(task, task.build(config.model), config.train, 1e-2, 0, Checkpoints(tmp_path / folder))
            if resumed:
                loop.resume()
            for event in loop.run():
                if cut and not resumed and event.step == 5:
                    break
        return weights(loop.network)

    whole, resumed = run("whole", cut=False), run("cut", cut=True)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


@main
def test_a_budget_of_parameters_is_met(case: Any, tmp_path: Path) -> None:
    config, task = prepared(case, tmp_path)
    solved = solve_width(config.model.model_copy(update={"width": 8}), 60_000, task.shape)
    assert size_of(solved, task.shape) <= 60_000
    wider = solved.model_copy(update={"width": solved.width + solved.grain()})
    assert size_of(wider, task.shape) > 60_000


@pytest.mark.parametrize("case", [*NAMES, ("gru", {})], ids=label)
def test_a_run_answers_as_the_training_did(case: Any, tmp_path: Path) -> None:
    """Through the public door: what it measures opened again is what was written; no pickle in its folder."""
    out = tmp_path / "run"
    run = seriatim.train("caption", str(captioned(tmp_path)), settings=settings_of(case, steps=2), out=out)
    written, measured = run.summary["measures"]["test"], seriatim.evaluate(out)
    assert measured == pytest.approx(written, rel=1e-6)
    assert {"cider", "bleu1", "bleu4", "exact_match", "loss"} <= set(written)
    assert isinstance(run.caption(tmp_path / "3.png"), str)
    kinds = {file.suffix for file in out.rglob("*") if file.is_file()}
    assert kinds <= {".json", ".jsonl", ".yaml", ".safetensors", ".html", ".md"}
