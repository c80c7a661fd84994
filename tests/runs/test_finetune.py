"""Passes over the data as the end of a training, and warm starts at the edges."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim import tasks
from seriatim.cli import run as cli
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.core.files import load_tensors
from seriatim.runs.configure import configure
from seriatim.tasks import reading
from seriatim.tasks.batching import Sampler

SMALL: dict[str, Any] = {"model": {"width": 4}}
REVIEWS = [(f"the film was {word} {'!' * (number % 5)}", label) for number in range(30)
           for word, label in (("fine", "good"), ("dull", "bad"))]  # fmt: skip
PAIRS = [(" ".join("abcd"[: 1 + n % 4]), " ".join("dcba"[3 - n % 4 :])) for n in range(60)]


def sampler_of(name: str, model: str, source: str, data: Any = None, **settings: Any) -> tuple[Any, Sampler]:
    """Returns the training items of a task and their sampler."""
    config = configure(name, source, model, settings).task_config()
    prepared, splits = reading.prepare(tasks.load(name), config, data)
    return splits.train.items, prepared.sampler(splits.train.items, Diagnostics())


def train(out: Path, **options: Any) -> Any:
    options = {"batch_size": 8, "settings": SMALL, "report": False} | options
    return seriatim.train("classify", REVIEWS, "gru", out=out, **options)


# Epochs


def test_epochs_visit_every_example_as_often(tmp_path: Path) -> None:
    assert train(tmp_path / "r", epochs=2.5).summary["step"] == 15, "48 examples are 6 batches of 8"
    items, sampler = sampler_of("classify", "gru", "data", REVIEWS)
    assert len(items) == 48
    visited = Counter(item for step in range(12) for item in sampler.items(step, 8).tolist())
    assert visited == dict.fromkeys(range(48), 2)


def test_epochs_of_pairs_are_their_batches() -> None:
    items, sampler = sampler_of("translate", "seq2seq", "data", PAIRS)
    steps = sampler.steps_per_epoch(8)
    for epoch in range(2):
        batches = [sampler.items(step, 8) for step in range(epoch * steps, (epoch + 1) * steps)]
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(items)))


def test_an_epoch_of_a_text_has_as_many_tokens(book: Path) -> None:
    items, sampler = sampler_of("language", "gru", str(book), task={"context_length": 12})
    tokens = len(items.inputs.values)
    assert tokens - 48 < sampler.steps_per_epoch(4) * 4 * 12 <= tokens


def test_epochs_count_whole_global_batches(tmp_path: Path) -> None:
    run = train(tmp_path / "r", epochs=2, settings=SMALL | {"train": {"accumulate": 3}})
    assert run.summary["step"] == 4, "48 examples are 2 times 3 batches of 8"


def test_epochs_move_the_end(tmp_path: Path) -> None:
    run = train(tmp_path / "r", epochs=1)
    more = seriatim.resume(run.path, data=REVIEWS, epochs=1.5, report=False)
    assert more.summary["step"] == 9
    assert more.settings["train"]["epochs"] == 1.5
    last = seriatim.resume(run.path, data=REVIEWS, steps=10, report=False)
    assert last.settings["train"]["epochs"] is None
    with pytest.raises(SeriatimError, match="not both"):
        seriatim.resume(run.path, data=REVIEWS, steps=12, epochs=2)


# Warm starts

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "tree", "river", "bank", "green", "old"]
BERT: dict[str, Any] = {
    "model": {"width": 16, "heads": 2, "layers": 1, "context_length": 32},
    "train": {"batch_size": 8},
}
NO_LEARNING: dict[str, Any] = {"train": {"batch_size": 8, "optimizer": {"lr": 1e-12, "weight_decay": 0.0}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("review")
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 5).tolist()) for _ in range(120)]
    documents = [" ".join(f"{text.capitalize()}." for text in texts[i : i + 4]) for i in range(0, 120, 4)]
    (path / "documents.txt").write_text("\n\n".join(documents), encoding="utf-8")
    rows = [f"{text},{i % 7 / 7},{'xyz'[i % 3]}" for i, text in enumerate(texts)]
    (path / "rows.csv").write_text("\n".join(["text,value,label", *rows]) + "\n", encoding="utf-8")
    questions = [
        {"question": "what?", "context": f"{text}.", "answers": [text.split()[i % 5]] if i % 4 else []}
        for i, text in enumerate(texts)
    ]
    (path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)) + "\n", encoding="utf-8")
    settings = BERT | {"task": {"context_length": 24}, "data": {"fractions": [0.6, 0.2, 0.2]}}
    seriatim.train(
        "pretrain", path / "documents.txt", "bert", settings=settings, steps=2, out=path / "pretrained", report=False
    )
    return path


def test_the_pooler_is_taken_over_whatever_head_it_is_in(folder: Path) -> None:
    """That of a regression is within a head that scales."""
    start = load_tensors(folder / "pretrained" / "model.safetensors")["head.pooler.weight"]
    for task, target, source in (("regress", "value", "pretrained"), ("classify", "label", "regress")):
        settings = NO_LEARNING | {"data": {"columns": {"input": "text", "target": target}}}
        options = {"start": str(folder / source), "steps": 1, "out": folder / task, "report": False}
        seriatim.train(task, folder / "rows.csv", settings=settings, **options)
        tensors = load_tensors(folder / task / "model.safetensors")
        name = "head.head.pooler.weight" if task == "regress" else "head.pooler.weight"
        np.testing.assert_allclose(tensors[name], start, atol=1e-6)


@pytest.mark.parametrize("text", ["model: lstm\n", "task: {name: classify}\n", "model: {width: 3}\n"])
def test_a_folder_whose_config_names_no_model(
    folder: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    command = ["train", "classify", "--data", str(folder / "rows.csv"), "--from", str(tmp_path)]
    assert cli([*command, "--out", str(tmp_path / "out")]) == 2
    assert "config.yaml" in capsys.readouterr().err


def test_two_texts_are_one_input_of_a_model_that_reads_two(folder: Path) -> None:
    run = seriatim.load(folder / "pretrained")
    pair = ("The cat [MASK].", "The dog ran.")
    assert run.fill(pair) == run.fill([pair])[0]
    assert 0 < run.fill(pair)["follows"] < 1


def test_a_passage_without_a_token_has_no_answer(folder: Path) -> None:
    settings = BERT | {"task": {"context_length": 24}}
    run = seriatim.train(
        "answer", folder / "questions.jsonl", "bert", settings=settings, steps=1, out=folder / "answer", report=False
    )
    record = run.answer(("\u200b", "What?"), nbest=2)  # a blank without width, which BERT's tokenizer leaves out
    assert (record["answer"], record["start"], record["end"]) == ("", 0, 0)


def test_a_word_that_no_text_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["words", str(folder / "pretrained"), "--data", str(folder / "documents.txt"), "--word", "zebra"]
    assert cli(command) == 2
    assert "zebra" in capsys.readouterr().err


def test_the_first_element_is_no_summary_for_a_causal_model(folder: Path, tmp_path: Path) -> None:
    settings = {"data": {"columns": {"input": "text", "target": "label"}}, **SMALL}
    options = {"pooling": "first", "steps": 1, "out": tmp_path / "out", "report": False}
    with pytest.raises(SeriatimError, match="first") as caught:
        seriatim.train("classify", folder / "rows.csv", "lstm", settings=settings, **options)
    assert "lstm" in caught.value.cause


def test_a_teacher_with_learned_positions(folder: Path) -> None:
    """A slice of a weight, as positions are, would need a gradient even where none is computed."""
    student = {"model": BERT["model"] | {"width": 8}, "task": {"context_length": 24}}
    student["data"] = {"fractions": [0.6, 0.2, 0.2]}
    options = {"teacher": str(folder / "pretrained"), "steps": 1, "out": folder / "student", "report": False}
    run = seriatim.train("pretrain", folder / "documents.txt", "bert", settings=BERT | student, **options)
    assert run.summary["flops"] > 0
    assert run.summary["teacher"]["path"] == str(folder / "pretrained")
