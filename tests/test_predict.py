"""From a file to answers: row N to row N, the columns of the training, and messages for what cannot be read."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.cli import run as cli

FINE = ["a fine film", "warm and fine", "what a fine, warm day"]
DULL = ["a dull film", "dull and long", "so long, so dull"]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    with open(folder / "films.csv", "w", newline="", encoding="utf-8") as file:
        rows = [[f"{text} {n}", label] for n in range(12) for texts, label in ((FINE, "good"), (DULL, "bad"))
                for text in texts]  # fmt: skip
        csv.writer(file).writerows([["text", "label"], *rows])
    small: dict[str, Any] = {"model": {"width": 16}, "train": {"batch": 8}}
    seriatim.train("classify", str(folder / "films.csv"), "gru", steps=60, settings=small, out=folder / "run")
    return folder


def test_answers_in_python(films: Path) -> None:
    run = seriatim.load(films / "run")
    one = run.predict("a fine film")
    assert one["prediction"] == "good"
    assert sum(one["probabilities"].values()) == pytest.approx(1)
    many = run.predict(["dull", "", "a fine film", "a fine film and a warm and fine and warm day"])
    assert [answer["prediction"] for answer in many][::2] == ["bad", "good"]
    assert many[2]["confidence"] == pytest.approx(one["confidence"], rel=1e-5)  # neighbours change nothing


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_row_n_in_row_n_out(films: Path, tmp_path: Path, ending: str) -> None:
    """An empty text keeps its row; another text column does not confuse: the one of the training is taken."""
    new = tmp_path / "new.csv"
    new.write_text('note,text\nx,"a fine, warm film"\ny,\nz,"dull\nand long"\n', encoding="utf-8")
    out = tmp_path / f"answers.{ending}"
    assert cli(["predict", str(films / "run"), "--data", str(new), "--out", str(out)]) == 0
    if ending == "parquet":
        import pyarrow.parquet as pq

        rows = pq.read_table(out).to_pylist()
    elif ending == "jsonl":
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    else:
        with open(out, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if ending == "tsv" else ","))
    assert len(rows) == 3
    assert [rows[0]["prediction"], rows[2]["prediction"]] == ["good", "bad"]
    assert 0 < float(rows[1]["confidence"]) <= 1


def test_texts_and_lines(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["predict", str(films / "run"), "a fine film", "so dull"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["prediction", "good", "bad"]
    (tmp_path / "lines.txt").write_text("a fine film\n\nso dull\n", encoding="utf-8")
    assert cli(["predict", str(films / "run"), "--data", str(tmp_path / "lines.txt"), "--json"]) == 0
    answers = [json.loads(line)["prediction"] for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 3
    assert answers[::2] == ["good", "bad"]


def test_another_file_is_measured(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("label,text\ngood,a fine film\nbad,so dull\n", encoding="utf-8")
    assert seriatim.evaluate(films / "run", data=str(other))["accuracy"] == 1.0
    other.write_text("label,text\ngood,a fine film\nmiddling,so dull\n", encoding="utf-8")
    assert cli(["evaluate", str(films / "run"), "--data", str(other)]) == 2
    said = capsys.readouterr().err
    assert "line 3" in said
    assert '"middling"' in said
    assert "bad, good" in said


def test_another_encoding_than_that_of_the_training(tmp_path: Path) -> None:
    """A model trained on cp1252 files reads a file in UTF-8 as what it is."""
    folder = tmp_path / "old"
    folder.mkdir()
    for label, word in (("yes", "été"), ("no", "hiver")):
        (folder / f"{label}.txt").write_bytes("".join(f"{word} {n}\n" for n in range(30)).encode("cp1252"))
    settings = {"data": {"encoding": "cp1252"}, "model": {"width": 8}}
    run = seriatim.train("classify", str(folder), "gru", steps=60, settings=settings, out=tmp_path / "run")
    new = tmp_path / "new.txt"
    new.write_text("été 7\nhiver 7\n", encoding="utf-8")
    assert [row[0] for row in run.predict_file(new).rows] == ["yes", "no"]
    new.write_bytes("été 7\nhiver 7\n".encode("cp1252"))
    assert [row[0] for row in run.predict_file(new).rows] == ["yes", "no"]


def test_numbers_in_and_out(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x.sum(axis=1))
    settings = {"data": {"target": str(tmp_path / "y.npy")}, "model": {"width": 16}, "task": {"pooling": "last"}}
    run = seriatim.train("regress", str(tmp_path / "x.npy"), "gru", steps=150, settings=settings, out=tmp_path / "run")
    assert run.summary["measures"]["test"]["r2"] > 0.5
    found = run.predict(list(x[:3]))
    table = run.predict_file(tmp_path / "x.npy")
    assert [row[0] for row in table.rows[:3]] == pytest.approx([one["prediction"] for one in found], rel=1e-5)
    with pytest.raises(seriatim.SeriatimError) as caught:
        run.predict([np.zeros((4, 2), np.float32)])
    assert caught.value.code == "data.features"


def test_mistakes_of_the_user(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(films / "run")
    cases = (
        (["predict", run], "predict.input"),
        (["predict", run, "a", "--data", "x.csv"], "predict.input"),
        (["predict", run, "--data", str(tmp_path / "none.csv")], "data.missing"),
        (["predict", run, "a", "--out", str(tmp_path / "a.xyz")], "output.kind"),
        (["generate", run], "run.question"),
        (["next", run, "a"], "run.question"),
    )
    for arguments, code in cases:
        assert cli(arguments) == 2, arguments
        assert code in capsys.readouterr().err, arguments


def test_a_column_of_another_name(films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two columns of text, neither of the training's name: the user says which. A bad cell changes no column."""
    new = tmp_path / "new.csv"
    new.write_text("title,review,stars\ndull,a fine film,good\nfine,so dull,bad\n", encoding="utf-8")
    assert cli(["predict", str(films / "run"), "--data", str(new)]) == 2
    assert "--column" in capsys.readouterr().err
    assert cli(["predict", str(films / "run"), "--data", str(new), "--column", "review"]) == 0
    answers = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert answers == ["prediction", "good", "bad"]
    measured = seriatim.evaluate(films / "run", data=str(new), column="review", target="stars")
    assert measured["accuracy"] == 1.0
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "a fine film", "other": "so dull"}\n{"text": 7, "other": "so dull"}\n', encoding="utf-8")
    assert cli(["predict", str(films / "run"), "--data", str(bad)]) == 2
    assert "line 2" in capsys.readouterr().err
