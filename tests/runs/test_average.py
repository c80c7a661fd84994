"""Averaged weights: of the last checkpoints of a run, and of several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.core.errors import SeriatimError
from seriatim.core.files import load_tensors
from seriatim.core.text import format_number

SETTINGS: dict[str, Any] = {
    "model": {"width": 8},
    "train": {"batch_size": 4, "evaluate_steps": 2, "keep_checkpoints": 3, "optimizer": {"lr": 0.01}},
}


def train(book: Path, out: Path, **options: Any) -> Any:
    options = {"steps": 6, "context_length": 12, "settings": SETTINGS, "report": False} | options
    return seriatim.train("language", book, "rnn", out=out, **options)


@pytest.fixture(scope="module")
def runs(book: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("average")
    return [train(book, folder / f"run{seed}", seed=seed) for seed in range(2)]


def test_mean_of_checkpoints(runs: list[Any], tmp_path: Path) -> None:
    run = runs[0]
    mean = seriatim.average(run.path, last=2, out=tmp_path / "mean")
    parts = [load_tensors(run.path / "checkpoints" / step / "weights.safetensors") for step in ("4", "6")]
    actual = load_tensors(mean.path / "model.safetensors")
    assert actual.keys() == parts[0].keys()
    for name, tensor in actual.items():
        expected = torch.stack([part[name].double() for part in parts]).mean(dim=0)
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=1e-7)
    opened = seriatim.load(mean.path)
    assert opened.summary["averaged"] == {"run": str(run.path), "steps": [4, 6]}
    assert opened.summary["reason"] == "averaged"
    assert opened.evaluate()["loss"] == pytest.approx(opened.summary["metrics"]["test"]["loss"])
    assert isinstance(opened.generate("the", max_tokens=3), str)
    assert f"the steps 4, 6 of {run.path}" in (mean.path / "report.html").read_text("utf-8")


def test_all_checkpoints_by_default(runs: list[Any], tmp_path: Path) -> None:
    mean = seriatim.average(runs[0].path, out=tmp_path / "mean", evaluate=False)
    assert mean.summary["averaged"]["steps"] == [2, 4, 6]
    assert "metrics" not in mean.summary


def test_moving_averages_are_averaged(book: Path, tmp_path: Path) -> None:
    """Of a training with `ema`, the weights that were evaluated."""
    train_settings = SETTINGS["train"] | {"ema": 0.5}
    run = train(book, tmp_path / "run", settings=SETTINGS | {"train": train_settings})
    mean = seriatim.average(run.path, last=2, out=tmp_path / "mean", evaluate=False)
    parts = [load_tensors(run.path / "checkpoints" / step / "ema.safetensors") for step in ("4", "6")]
    for name, tensor in load_tensors(mean.path / "model.safetensors").items():
        torch.testing.assert_close(tensor, (parts[0][name] + parts[1][name]) / 2)


def test_mean_of_runs(runs: list[Any], tmp_path: Path) -> None:
    mean = seriatim.average([run.path for run in runs], out=tmp_path / "mean", evaluate=False)
    first, second, both = (load_tensors(path / "model.safetensors") for path in (*(r.path for r in runs), mean.path))
    for name, tensor in both.items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
    assert mean.summary["averaged"] == {"runs": [str(run.path) for run in runs]}


def test_what_cannot_be_averaged(runs: list[Any], book: Path, tmp_path: Path) -> None:
    paths = [run.path for run in runs]
    wider = train(book, tmp_path / "wider", settings=SETTINGS | {"model": {"width": 9}}, steps=1)
    words = train(book, tmp_path / "words", tokenizer="word", steps=1)
    cases: list[tuple[Any, dict[str, Any], str, str]] = [
        (paths[0], {"last": 9}, "average.few", "keep_checkpoints=9"),
        (paths[0], {"last": 0}, "average.last", "--last 0"),
        ([], {}, "average.few", "no run"),
        (paths, {"last": 2}, "average.last", "one run"),
        ([paths[0], wider.path], {}, "average.shape", "not of one shape"),
        ([paths[0], words.path], {}, "average.differs", "data.json"),
        (paths[0], {"out": paths[0]}, "run.exists", "another --out"),
    ]
    for source, options, code, words_of_it in cases:
        with pytest.raises(SeriatimError) as caught:
            seriatim.average(source, **{"out": tmp_path / "none", **options})
        assert caught.value.code == code
        assert words_of_it in f"{caught.value.cause} {caught.value.remedy}"
        assert not (tmp_path / "none").exists()


# Gradient-free models


def count(book: Path, out: Path, order: int, **options: Any) -> Any:
    settings = {"model": {"name": "ngram", "order": order}}
    return seriatim.train("language", book, settings=settings, out=out, report=False, **options)


def test_ngram_models_are_interpolated(book: Path, tmp_path: Path) -> None:
    runs = [count(book, tmp_path / str(order), order) for order in (2, 4)]
    notes: list[str] = []
    mixed = seriatim.average([run.path for run in runs], out=tmp_path / "mixed", notify=notes.append)
    weights = mixed.summary["averaged"]["weights"]
    assert sum(weights) == pytest.approx(1, abs=1e-5)
    assert any(note.startswith("weights: ") for note in notes)
    losses = [run.evaluate(split="validation")["loss"] for run in (*runs, mixed)]
    assert losses[2] <= min(losses[:2]) + 1e-6
    opened = seriatim.load(mixed.path)
    assert opened.evaluate()["loss"] == pytest.approx(opened.summary["metrics"]["test"]["loss"])
    assert opened.summary["parameters"] == sum(run.summary["parameters"] for run in runs)

    log_probs = [[value for _, value in run.score("the old cat")["token_log_probabilities"]] for run in (*runs, opened)]
    expected = sum(weight * np.exp(own) for weight, own in zip(weights, map(np.array, log_probs[:2]), strict=True))
    assert np.exp(log_probs[2]) == pytest.approx(expected, rel=1e-4)

    assert isinstance(opened.generate("the", max_tokens=3), str)
    assert opened.next("the ", top=2)[0]["probability"] > 0
    assert (mixed.path / "report.html").is_file()
    for page in ("report.html", "README.md"):
        text = (mixed.path / page).read_text(encoding="utf-8").replace("\\_", "_")
        for run, weight in zip(runs, weights, strict=True):
            assert f"{format_number(weight)} × {run.path}" in text

    again = seriatim.average([mixed.path, runs[0].path], out=tmp_path / "again", evaluate=False)
    assert again.summary["parameters"] > mixed.summary["parameters"]
    assert again.summary["averaged"]["runs"] == [str(runs[number].path) for number in (0, 1, 0)]
    assert len(again.summary["averaged"]["weights"]) == 3


def test_what_cannot_be_interpolated(runs: list[Any], book: Path, tmp_path: Path) -> None:
    counted, words = count(book, tmp_path / "chars", 3), count(book, tmp_path / "words", 3, tokenizer="word")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (counted.path, {}, "run.gradient-free"),
        ([counted.path, words.path], {}, "average.differs"),
        ([counted.path, runs[0].path], {}, "average.differs"),
        ([counted.path, counted.path], {"last": 2}, "average.last"),
    ]
    for source, options, code in cases:
        with pytest.raises(SeriatimError) as caught:
            seriatim.average(source, **{"out": tmp_path / "none", **options})
        assert caught.value.code == code
        assert not (tmp_path / "none").exists()
