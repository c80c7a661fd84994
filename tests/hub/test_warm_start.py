"""--from: what a training takes over from a model that was trained before, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.cli import run as cli
from seriatim.core.files import load_tensors
from seriatim.hub.warm_start import WarmStart
from seriatim.runs.configure import FINE_TUNING_EPOCHS, configure

WORDS = ["a", "fine", "film", "that", "warm", "people", "like", "and", "dull", "ones", "do", "not", "see", "twice"]
COLUMNS = {"columns": {"input": "text", "target": "label"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("start")
    draw = np.random.default_rng(0)
    sentences = [draw.choice(WORDS, 2 + number % 6).tolist() for number in range(80)]
    with open(path / "films.csv", "w", newline="", encoding="utf-8") as file:
        rows = [[" ".join(one), "good" if "fine" in one else "bad", len(one) / 3] for one in sentences]
        csv.writer(file).writerows([["text", "label", "value"], *rows])
    tagged = "\n\n".join("\n".join(f"{w}\t{'LONG' if len(w) > 4 else 'SHORT'}" for w in one) for one in sentences)
    (path / "tagged.conll").write_text(tagged + "\n", encoding="utf-8")
    texts = [" ".join(one).capitalize() + "." for one in sentences]
    (path / "documents.txt").write_text("\n\n".join("\n".join(texts[i : i + 4]) for i in range(0, 80, 4)), "utf-8")
    (path / "book.txt").write_text("\n".join(texts * 3), encoding="utf-8")
    bert: dict[str, Any] = {
        "model": {"width": 16, "heads": 2, "context_length": 40},
        "train": {"batch_size": 8},
        "task": {"context_length": 32},
    }
    bert["data"] = {"fractions": [0.6, 0.2, 0.2]}
    seriatim.train(
        "pretrain", str(path / "documents.txt"), "bert", settings=bert, steps=3, out=path / "pretrained", report=False
    )
    lstm = {"model": {"width": 144, "tie": True}, "train": {"batch_size": 8}}
    task = {"task": {"tokenizer": {"kind": "word", "lowercase": True}, "context_length": 8}}
    arguments = {"steps": 3, "out": path / "language", "report": False}
    seriatim.train("language", str(path / "book.txt"), "lstm", settings=lstm | task, **arguments)
    return path


def start_run(folder: Path, start: str, task: str, source: str, **short: Any) -> tuple[Any, list[str]]:
    """A run whose rate is next to nothing: its weights are those it began with."""
    notes: list[str] = []
    out = folder / f"{start}-{task}"
    columns = {"data": COLUMNS} if task == "classify" else {}
    tiny = {"train": {"optimizer": {"lr": 1e-12, "weight_decay": 0.0}}}
    run = seriatim.train(task, str(folder / source), settings=tiny | columns, start=str(folder / start), steps=1,
                         out=out, notify=notes.append, report=False, **short)  # fmt: skip
    return run, notes


@pytest.mark.parametrize(("task", "source"), [("classify", "films.csv"), ("tag", "tagged.conll")])
def test_body_and_tokens_are_taken_over(folder: Path, task: str, source: str) -> None:
    run, notes = start_run(folder, "pretrained", task, source)
    before, after = load_tensors(folder / "pretrained/model.safetensors"), load_tensors(run.path / "model.safetensors")
    shared = [name for name in after if name.startswith(("input.", "backbone."))]
    assert len(shared) > 20
    for name in shared:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9)
    if task == "classify":  # the pooler means the same in every task
        torch.testing.assert_close(after["head.pooler.weight"], before["head.pooler.weight"], rtol=0, atol=1e-9)
    assert (run.path / "tokenizer.json").read_bytes() == (folder / "pretrained/tokenizer.json").read_bytes()
    note = next(note for note in notes if "starting from" in note)
    assert "new: head." in note
    assert run.config.start == str(folder / "pretrained")
    assert run.config.train.schedule.name == "linear"


def test_a_language_model_begins_a_classifier(folder: Path) -> None:
    """Not only BERT: any backbone, also where the vectors of tokens are as wide as the model because they were tied."""
    run, _ = start_run(folder, "language", "classify", "films.csv")
    before, after = load_tensors(folder / "language/model.safetensors"), load_tensors(run.path / "model.safetensors")
    for name in after:
        if name.startswith(("input.", "backbone.")):
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9)
    assert run.config.model.name == "lstm"


def test_the_head_too_where_the_question_is_the_same(folder: Path) -> None:
    first, _ = start_run(folder, "pretrained", "classify", "films.csv") if not (
        folder / "pretrained-classify").exists() else (seriatim.load(folder / "pretrained-classify"), [])  # fmt: skip
    again, notes = start_run(folder, "pretrained-classify", "classify", "films.csv")
    before, after = (load_tensors(run.path / "model.safetensors") for run in (first, again))
    for name in after:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9)
    assert not any("; new: " in note for note in notes)


def test_three_passes_and_small_steps_by_default(folder: Path) -> None:
    config = configure("classify", str(folder / "films.csv"), start=str(folder / "pretrained"))
    assert config.train.epochs == FINE_TUNING_EPOCHS
    assert config.train.steps is None
    assert config.train.schedule.warmup == 0.1
    longer = configure("classify", str(folder / "films.csv"), start=str(folder / "pretrained"), steps=7)
    assert longer.train.epochs is None
    assert longer.model.fine_tuning_lr() < longer.model.default_lr()


def test_resumed_without_what_it_began_with(folder: Path, tmp_path: Path) -> None:
    """A run stands on its own: resuming does not open the origin again."""
    run, _ = start_run(folder, "pretrained", "tag", "tagged.conll") if not (folder / "pretrained-tag").exists() else (
        seriatim.load(folder / "pretrained-tag"), [])  # fmt: skip
    config = run.path / "config.yaml"
    config.write_text(config.read_text("utf-8").replace(str(folder / "pretrained"), str(tmp_path / "gone")), "utf-8")
    assert seriatim.resume(run.path, steps=2).summary["step"] == 2


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["--model", "gru"], "start.model"),
        (["--params", "10k"], "start.params"),
        (["--tokenizer", "char"], "start.tokenizer"),
        (["--set", "model.width=32"], "start.unfit"),
    ],
)
def test_contradictions(folder: Path, tmp_path: Path, extra: list[str], code: str, capsys: Any) -> None:
    command = ["train", "classify", "--data", str(folder / "films.csv"), "--column", "text", "--target", "label"]
    assert cli([*command, "--from", str(folder / "pretrained"), "--out", str(tmp_path / "x"), *extra]) == 2
    assert code in capsys.readouterr().err


def test_all_that_does_not_fit_is_told_at_once(folder: Path) -> None:
    start = WarmStart.open(str(folder / "pretrained"))
    network = torch.nn.Module()
    network.input = torch.nn.Embedding(3, 16)
    network.backbone = torch.nn.Linear(4, 4)
    with pytest.raises(seriatim.SeriatimError) as error:
        start.load_into(network, "tag", "token-classification", (), lambda note: None)
    assert "input.weight has another shape" in error.value.cause
    assert "backbone.weight does not exist there" in error.value.cause


def test_nothing_there(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "empty").mkdir()
    command = ["train", "classify", "--data", "names", "--from", str(tmp_path / "empty")]
    assert cli(command) == 2
    assert "start.missing" in capsys.readouterr().err
    assert cli(["train", "classify", "--data", "names", "--from", str(tmp_path / "gone")]) == 2
    assert "start.missing" in capsys.readouterr().err


def test_numbers_and_texts_do_not_mix(folder: Path, tmp_path: Path, capsys: Any) -> None:
    series = tmp_path / "series.csv"
    series.write_text("time,value\n" + "".join(f"{t},{np.sin(t / 4):.4f}\n" for t in range(200)), encoding="utf-8")
    command = ["train", "forecast", "--data", str(series), "--from", str(folder / "language")]
    assert cli([*command, "--out", str(tmp_path / "x")]) == 2
    assert "start.task" in capsys.readouterr().err
