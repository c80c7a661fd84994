"""The contract of every task over examples and series, held for every architecture in `models/`."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import seriatim
from helpers import BIDIRECTIONAL, TINY, backbones, label, pair_models, picture_models
from seriatim import api
from seriatim.core import registry
from seriatim.nn.network import weights
from seriatim.training.budget import size_of, solve_width
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.events import Event, Stepped
from seriatim.training.loop import Loop

TEXT = "a fine film full of light and warm humour that dull people will not see twice"
WORDS = TEXT.split()


def _write(path: Path, columns: list[str], rows: list[list[Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def labelled(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    rows = []
    for number in range(120):
        words = draw.choice(WORDS, 1 + number % 9).tolist()
        rows.append([" ".join(words), "good" if "fine" in words or "warm" in words else "bad", len(words) / 3])
    return _write(folder / "labelled.csv", ["text", "label", "value"], rows)


def many_labels(folder: Path) -> Path:
    draw = np.random.default_rng(1)
    rows = []
    for number in range(90):
        words = draw.choice(WORDS, 2 + number % 5).tolist()
        found = [name for name in ("film", "light", "dull") if name in words]
        rows.append([" ".join(words), "|".join(found)])
    rows = [row for row in rows if row[1]]
    return _write(folder / "many.csv", ["text", "label"], rows)


def numbers(folder: Path) -> Path:
    draw = np.random.default_rng(2)
    with open(folder / "numbers.jsonl", "w", encoding="utf-8") as file:
        for number in range(100):
            values = draw.normal(size=(1 + number % 8, 2)).round(3)
            row = {"x": values.tolist(), "label": "up" if values.sum() > 0 else "down", "value": float(values.sum())}
            file.write(json.dumps(row) + "\n")
    return folder / "numbers.jsonl"


def tagged(folder: Path) -> Path:
    draw = np.random.default_rng(3)
    lines = []
    for number in range(60):
        words = draw.choice(WORDS, 1 + number % 7).tolist()
        lines += [f"{word}\t{'LONG' if len(word) > 4 else 'SHORT'}" for word in words] + [""]
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")
    return folder / "tagged.conll"


def asked(folder: Path) -> Path:
    draw = np.random.default_rng(6)
    with open(folder / "asked.jsonl", "w", encoding="utf-8") as file:
        for number in range(60):
            words = draw.choice(WORDS, 4 + number % 9, replace=False).tolist()
            row = {"question": f"what follows {words[1]}?", "context": " ".join(words), "answers": [words[2]]}
            file.write(json.dumps(row | ({"answers": []} if number % 5 == 0 else {})) + "\n")
    return folder / "asked.jsonl"


def series(folder: Path) -> Path:
    time = np.arange(240)
    wave = np.sin(time / 4) + 0.1 * np.random.default_rng(4).normal(size=240)
    rows = [[int(t), f"{value:.4f}"] for t, value in zip(time, wave, strict=True)]
    return _write(folder / "series.csv", ["time", "value"], rows)


def rolls(folder: Path) -> Path:
    draw = np.random.default_rng(5)
    np.save(folder / "rolls.npy", (draw.random((12, 9, 88)) < 0.05).astype(np.float32))
    return folder / "rolls.npy"


def documents(folder: Path) -> Path:
    draw = np.random.default_rng(6)
    texts = []
    for number in range(60):
        sentences = [" ".join(draw.choice(WORDS, 2 + number % 5)) for _ in range(2 + number % 4)]
        texts.append("\n".join(f"{sentence.capitalize()}." for sentence in sentences))
    (folder / "documents.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return folder / "documents.txt"


def shown(folder: Path) -> Path:
    """Pictures with something bright, left or right, and how bright it is."""
    draw = np.random.default_rng(7)
    rows = []
    for number in range(40):
        picture = draw.integers(0, 60, (10, 12, 3), dtype=np.uint8)
        bright = int(draw.integers(120, 250))
        picture[2:8, 1:6] += np.uint8(bright - 60) if number % 2 else np.uint8(0)
        picture[2:8, 7:11] += np.uint8(0) if number % 2 else np.uint8(bright - 60)
        Image.fromarray(picture).save(folder / f"{number}.png")
        rows.append([f"{number}.png", "left" if number % 2 else "right", bright / 100])
    return _write(folder / "shown.csv", ["picture", "label", "value"], rows)


# name → task, data, settings on top
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "classify": ("classify", labelled, {"data": {"target": "label", "column": "text"}}),
    "classify-several": ("classify", many_labels, {"data": {"target": "label", "separator": "|"}}),
    "classify-numbers": (
        "classify",
        numbers,
        {"data": {"column": "x", "target": "label"}, "task": {"pooling": "last"}},
    ),
    "regress": ("regress", labelled, {"data": {"column": "text", "target": "value"}, "task": {"pooling": "max"}}),
    "regress-numbers": (
        "regress",
        numbers,
        {"data": {"column": "x", "target": "value"}, "task": {"pooling": "attention"}},
    ),
    "tag": ("tag", tagged, {"task": {"characters": 8}}),
    "answer": ("answer", asked, {"task": {"length": 12, "stride": 3, "unanswerable": False}}),
    "answer-or-none": ("answer", asked, {}),
    "forecast": ("forecast", series, {"task": {"length": 12, "horizon": 3}}),
    "music": ("music", rolls, {}),
    "classify-pictures": ("classify", shown, {"data": {"target": "label", "pictures": {"flips": False}}}),
    "regress-pictures": ("regress", shown, {"data": {"target": "value"}, "task": {"pooling": "last"}}),
    "pretrain": ("pretrain", documents, {"data": {"fractions": [0.8, 0.1, 0.1]}, "task": {"length": 24}}),
}
CAUSAL_ONLY = ("music", "forecast")
BOTH_WAYS_ONLY = ("pretrain",)
PICTURES = ("classify-pictures", "regress-pictures")
SMALL = {"vit": {"width": 8, "heads": 2, "layers": 1}}
BACKBONES = [case for case in backbones() if case[1].get("reset") != "after"]
every = pytest.mark.parametrize("name", CASES)


def config_of(name: str, model: tuple[str, dict[str, Any]], folder: Path, **train: Any) -> Any:
    task, data, settings = CASES[name]
    tiny = {"width": 6} | (SMALL | TINY).get(model[0], {}) | {"name": model[0]} | model[1]
    tiny.pop("context", None)
    own = {"steps": 6, "batch": 4, "evaluate_steps": 3, **train}
    return api.configure(task, str(data(folder)), None, settings | {"model": tiny, "train": own})


def prepared(config: Any) -> Any:
    return registry.tasks.load(config.task.name).prepare(config)


def combinations() -> list[Any]:
    found = [(name, model) for name in CASES if name not in BOTH_WAYS_ONLY for model in BACKBONES]
    found += [(name, model) for name in CASES if name not in CAUSAL_ONLY for model in BIDIRECTIONAL]
    found += [(name, (model, {})) for name in PICTURES for model in picture_models()]
    return [pytest.param(name, model, id=f"{name}-{label(model)}") for name, model in found]


@pytest.mark.parametrize(("name", "model"), combinations())
def test_learns_and_every_parameter_has_a_part_in_it(name: str, model: Any, tmp_path: Path) -> None:
    config = config_of(name, model, tmp_path)
    task = prepared(config)
    network = task.build(config.model)
    again = task.build(config.model)
    assert all(torch.equal(a, b) for a, b in zip(weights(network).values(), weights(again).values(), strict=True))
    batch = task.batch(0, 0, 4, 4)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for step in range(25):
        optimiser.zero_grad()
        torch.manual_seed(0)  # the same words are left out each time
        loss, _ = task.loss(network.train(), batch, None, 0.0)
        (loss / batch.count).backward()
        if step == 0:
            idle = [n for n, p in network.named_parameters() if p.grad is None]
            assert not idle, f"no gradient: {idle}"
        losses.append(loss.item() / batch.count)
        optimiser.step()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("name", "model"), combinations())
def test_rows_of_a_batch_do_not_know_each_other(name: str, model: Any, tmp_path: Path) -> None:
    """Padding, batch size and neighbours never change the loss: that of all rows is the sum of each row's."""
    config = config_of(name, model, tmp_path)
    task = prepared(config)
    network = task.build(config.model).double().eval()
    together = task.batch(0, 0, 5, 5)
    alone = [task.batch(0, row, row + 1, 5) for row in range(5)]
    assert together.count == sum(batch.count for batch in alone)
    total, _ = task.loss(network, _double(together), None, 0.0)
    parts = sum(task.loss(network, _double(batch), None, 0.0)[0] for batch in alone)
    torch.testing.assert_close(total, parts, rtol=1e-9, atol=1e-9)


def _double(batch: Any) -> Any:
    from dataclasses import replace

    from seriatim.core.state import map_state

    wider = lambda tensor: tensor.double() if tensor.is_floating_point() else tensor  # noqa: E731
    return replace(batch, inputs=map_state(wider, batch.inputs), targets=map_state(wider, batch.targets))


@every
def test_a_batch_is_a_function_of_its_step(name: str, tmp_path: Path) -> None:
    config = config_of(name, ("gru", {}), tmp_path)
    one, other = prepared(config), prepared(config)
    for step in (0, 3, 50):
        _, later = one.batch(step + 1, 0, 4, 4), one.batch(step, 0, 4, 4)
        straight = other.batch(step, 0, 4, 4)
        assert later.count == straight.count
        assert _equal(later.inputs, straight.inputs)
        assert _equal(later.targets, straight.targets)


def _equal(a: Any, b: Any) -> bool:
    from seriatim.core.state import flatten

    return all(torch.equal(x, y) for x, y in zip(flatten(a)[0], flatten(b)[0], strict=True))


@pytest.mark.parametrize("name", [name for name in CASES if name != "forecast"])  # windows come from anywhere
def test_an_epoch_has_every_example_once(name: str, tmp_path: Path) -> None:
    task = prepared(config_of(name, ("gru", {}), tmp_path))
    per_epoch = task.size // 4
    rows = np.concatenate([task.rows(step, 4) for step in range(per_epoch)])
    assert len(set(rows.tolist())) == len(rows) == per_epoch * 4


@every
def test_resumed_is_as_if_never_stopped(name: str, tmp_path: Path) -> None:
    class PowerCutError(Exception):
        pass

    def run(folder: str, cut: bool) -> dict[str, torch.Tensor]:
        config = config_of(name, ("gru", {}), tmp_path)
        loops = []
        for resumed in (False, True) if cut else (False,):
            task = prepared(config)
            network = task.build(config.model)
            loop = Loop(task, network, config.train, 1e-2, 0, Checkpoints(tmp_path / folder))
            if resumed:
                loop.resume()
            try:
                for event in loop.run():
                    _cut(event, cut and not resumed, PowerCutError)
            except PowerCutError:
                pass
            loops.append(loop)
        return weights(loops[-1].network)

    whole, resumed = run("whole", cut=False), run("cut", cut=True)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


def _cut(event: Event, wanted: bool, error: type[Exception]) -> None:
    if wanted and isinstance(event, Stepped) and event.step == 5:
        raise error


@every
def test_a_budget_of_parameters_is_met(name: str, tmp_path: Path) -> None:
    budget = 20_000
    for model in ("gru", "bert") if name in BOTH_WAYS_ONLY else ("gru", "tcn", "gpt", "mlp"):
        config = config_of(name, (model, {}), tmp_path)
        free = config.model.model_copy(update={"width": 8})
        task = prepared(config)
        solved = solve_width(free, budget, task.shape)
        assert size_of(solved, task.shape) <= budget
        wider = solved.model_copy(update={"width": solved.width + solved.grain()})
        assert size_of(wider, task.shape) > budget


@every
def test_the_folder_of_a_run_answers_as_the_training_did(name: str, tmp_path: Path) -> None:
    """Through the public door: measures of a run opened again are those written at its end; no pickle in it."""
    task, data, settings = CASES[name]
    tiny = {"model": {"name": "gru", "width": 6}, "train": {"steps": 4, "batch": 4}}
    run = seriatim.train(task, str(data(tmp_path)), settings=settings | tiny, out=tmp_path / "run")
    written = run.summary["measures"]["test"]
    measured = seriatim.evaluate(tmp_path / "run")
    assert measured.keys() == written.keys()
    for key, value in written.items():
        assert math.isclose(measured[key], value, rel_tol=1e-6, abs_tol=1e-9), key
    assert next(iter(written)) == "loss"
    assert set(run.summary["baselines"]["test"]) != set()
    views = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert views["test"]
    assert all("kind" in view and "title" in view for view in views["test"])
    kinds = {file.suffix for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert kinds <= {".json", ".jsonl", ".yaml", ".safetensors", ".html", ".md"}
    assert "<html" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@every
def test_a_model_that_counts_is_refused(name: str, tmp_path: Path) -> None:
    task, data, settings = CASES[name]
    with pytest.raises(seriatim.SeriatimError) as caught:
        seriatim.train(task, str(data(tmp_path)), "ngram", settings=settings, out=tmp_path / "run")
    assert caught.value.code == ("task.pictures" if name == "classify-pictures" else "task.counts")


@every
def test_an_encoder_decoder_is_refused(name: str, tmp_path: Path) -> None:
    task, data, settings = CASES[name]
    for model in pair_models():
        with pytest.raises(seriatim.SeriatimError) as caught:
            seriatim.train(task, str(data(tmp_path)), model, settings=settings, out=tmp_path / "run")
        assert caught.value.code == "task.pairs"
        assert "lstm" in caught.value.remedy
        assert not any(other in caught.value.remedy for other in pair_models())
        assert not (tmp_path / "run").exists()


def test_a_comparison_goes_on_without_a_model_that_does_not_fit(book: Path, tmp_path: Path) -> None:
    short = {"steps": 2, "length": 8, "batch": 2}
    both = seriatim.compare("language", str(book), ["transformer", "gru"], out=tmp_path / "both", **short)
    assert [run.config.model.name for run in both.runs] == ["gru"]
    assert "task.pairs" in both.failed["transformer"]


def test_outputs_are_those_of_the_weights_as_they_are(tmp_path: Path) -> None:
    config = config_of("classify", ("gru", {}), tmp_path)
    task = prepared(config)
    network = task.build(config.model)
    before = task.evaluate(network, "test")
    assert task.evaluate(network, "test") == before
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.1, fused=True)
    loss, _ = task.loss(network, task.batch(0, 0, 4, 4), None, 0.0)
    loss.backward()
    optimiser.step()
    assert task.evaluate(network, "test")["loss"] != before["loss"]
