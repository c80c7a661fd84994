"""What a review of pre-trained encoders, `--from` and questions found: small things at the edges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.core.tensors import load_tensors

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "tree", "river", "bank", "green", "old"]
BERT: dict[str, Any] = {"model": {"width": 16, "heads": 2, "layers": 1, "context": 32}, "train": {"batch": 8}}
STILL: dict[str, Any] = {"train": {"batch": 8, "optimiser": {"rate": 1e-12, "weight_decay": 0.0}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("review")
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 5).tolist()) for _ in range(120)]
    documents = [" ".join(f"{text.capitalize()}." for text in texts[i : i + 4]) for i in range(0, 120, 4)]
    (path / "documents.txt").write_text("\n\n".join(documents), encoding="utf-8")
    rows = [f"{text},{i % 7 / 7},{'xyz'[i % 3]}" for i, text in enumerate(texts)]
    (path / "rows.csv").write_text("\n".join(["text,value,label", *rows]) + "\n", encoding="utf-8")
    asked = [{"question": "what?", "context": f"{text}.", "answers": [text.split()[i % 5]] if i % 4 else []}
             for i, text in enumerate(texts)]  # fmt: skip
    (path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)) + "\n", encoding="utf-8")
    settings = BERT | {"task": {"length": 24}, "data": {"fractions": [0.6, 0.2, 0.2]}}
    seriatim.train("pretrain", str(path / "documents.txt"), "bert", settings=settings, steps=2, out=path / "pretrained")
    return path


def test_the_pooler_is_taken_over_whatever_head_it_stands_in(folder: Path) -> None:
    """That of a regression stands within a head that scales."""
    begun = {"pretrained": load_tensors(folder / "pretrained" / "model.safetensors")["head.pooler.weight"]}
    for task, target, start in (("regress", "value", "pretrained"), ("classify", "label", "regress")):
        columns = STILL | {"data": {"column": "text", "target": target}}
        seriatim.train(task, str(folder / "rows.csv"), settings=columns, start=str(folder / start), steps=1,
                       out=folder / task)  # fmt: skip
        found = load_tensors(folder / task / "model.safetensors")
        begun[task] = found["head.head.pooler.weight" if task == "regress" else "head.pooler.weight"]
    for task in ("regress", "classify"):
        np.testing.assert_allclose(begun[task], begun["pretrained"], atol=1e-6)


@pytest.mark.parametrize("text", ["model: lstm\n", "task: {name: classify}\n", "model: {width: 3}\n"])
def test_a_folder_whose_config_names_no_model_is_refused(
    folder: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    command = ["train", "classify", "--data", str(folder / "rows.csv"), "--from", str(tmp_path)]
    assert cli([*command, "--out", str(tmp_path / "out")]) == 2
    assert "config.yaml names no model" in capsys.readouterr().err


def test_two_texts_are_one_input_of_a_model_that_judges_two(folder: Path) -> None:
    run = seriatim.load(folder / "pretrained")
    pair = ("The cat sat.", "The dog ran.")
    assert run.predict(pair) == run.predict([pair])[0]
    assert 0 < run.predict(pair)["follows"] < 1


def test_a_passage_without_a_token_has_no_answer(folder: Path) -> None:
    settings = BERT | {"task": {"length": 24}}
    run = seriatim.train("answer", str(folder / "questions.jsonl"), "bert", settings=settings, steps=1,
                         out=folder / "answer")  # fmt: skip
    answer = run.answer("\u200b", "What?", nbest=2)  # a blank without width: BERT's tokenizer leaves it out
    assert [(one.text, one.start, one.end) for one in answer] == [("", 0, 0)]


def test_a_word_that_no_text_of_a_file_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["embed", str(folder / "pretrained"), "--file", str(folder / "documents.txt"), "--word", "zebra"]
    assert cli(command) == 2
    assert 'no text has "zebra"' in capsys.readouterr().err


def test_a_classifier_is_not_asked_questions_about_passages(folder: Path) -> None:
    columns = BERT | {"data": {"column": "text", "target": "label"}}
    run = seriatim.train("classify", str(folder / "rows.csv"), "bert", settings=columns, steps=1, out=folder / "labels")
    with pytest.raises(SeriatimError, match="cannot be asked to answer"):
        run.answer("The cat sat.", "Who?")


def test_the_first_element_stands_for_nothing_where_a_model_looks_back_only(folder: Path, tmp_path: Path) -> None:
    columns = {"data": {"column": "text", "target": "label"}, "model": {"width": 8}}
    with pytest.raises(SeriatimError, match="lstm looks back only"):
        seriatim.train("classify", str(folder / "rows.csv"), "lstm", settings=columns, pooling="first", steps=1,
                       out=tmp_path / "out")  # fmt: skip


def test_a_teacher_with_learned_positions_is_asked_batch_by_batch(folder: Path) -> None:
    """A slice of a weight, as positions are, would want a gradient even where none is computed."""
    student = {"model": BERT["model"] | {"width": 8}, "task": {"length": 24}, "data": {"fractions": [0.6, 0.2, 0.2]}}
    run = seriatim.train("pretrain", str(folder / "documents.txt"), "bert", settings=BERT | student, steps=1,
                         teacher=str(folder / "pretrained"), out=folder / "student")  # fmt: skip
    assert run.summary["flops"] > 0
    assert run.summary["teacher"]["path"] == str(folder / "pretrained")
