"""Predictions as they leave the command line: line N in, line N out, to pipes, to JSON and to files."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import seriatim
from seriatim import cli
from seriatim.cli.runner import Command, print_records, write_file
from seriatim.data.kinds import LINES, TOKENS
from seriatim.data.schema import Schema
from seriatim.tasks.capability import Capability, NoOptions

Call = Callable[..., Any]
RUN = "films/run"


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes, encoding: str = "utf-8") -> None:
    """Makes bytes the standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding=encoding))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of an output file in any of its formats."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def test_predictions_in_python(story: Path) -> None:
    run = seriatim.load(RUN)
    record = run.classify("a fine film", probabilities=True)
    assert record["prediction"] == "good"
    assert sum(record["probabilities"].values()) == pytest.approx(1)
    many = run.classify(["dull", "", "a fine film", "a fine film and a warm and fine and warm day"])
    assert [row["prediction"] for row in many][::2] == ["bad", "good"]
    assert many[2]["confidence"] == pytest.approx(record["confidence"], rel=1e-5), "neighbors change nothing"


# To a pipe


def test_a_pipe_gets_a_line_per_input(story: Path, call: Call) -> None:
    assert call("classify", RUN, "a fine film", "so dull") == "good\nbad\n"
    assert call("predict", RUN, "a fine film", "so dull") == "good\nbad\n"


def test_a_file_of_lines(story: Path, call: Call, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a fine film\n\nso dull\n", encoding="utf-8")
    printed = call("classify", RUN, "--data", str(lines)).splitlines()
    assert len(printed) == 3
    assert printed[::2] == ["good", "bad"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_standard_input(story: Path, call: Call, monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    feed(monkeypatch, b"\xef\xbb\xbfa fine film\r\n\r\nso dull" + end, "ascii")  # as an editor of Windows writes it
    printed = call("classify", RUN).splitlines()
    assert len(printed) == 3
    assert printed[::2] == ["good", "bad"]


def test_standard_input_of_records(story: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b'{"input": "a fine film"}\n{"input": "so dull"}\n')
    assert call("classify", RUN, "-") == "good\nbad\n"


def test_standard_input_that_is_empty(story: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"")
    assert call("classify", RUN) == ""


def test_standard_input_that_is_not_utf8(
    story: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, b"the\n\xff\n")
    assert cli.run(["score", "runs/lstm"]) == 2
    assert "[file.encoding] stdin, line 2" in capsys.readouterr().err


def test_line_breaks_are_escaped(story: Path, call: Call, tmp_path: Path) -> None:
    prompts = ["the ", "", "the old cat", "the ", "", "a"]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    command = ("generate", "other/ngram", "--max-tokens", "60", "--temperature", "0")
    lines = call(*command, "--data", str(tmp_path / "prompts.txt")).splitlines()
    assert len(lines) == len(prompts)
    for prompt, line in zip(prompts, lines, strict=True):
        assert call(*command, prompt) == f"{line}\n"
    records = call(*command, "--data", str(tmp_path / "prompts.txt"), "--json")
    assert [record["text"].replace("\n", "\\n") for record in records] == lines
    sampled = ("generate", "other/ngram", "the ", "--max-tokens", "200")
    assert call(*sampled).count("\n") == 1
    assert "\n" in call(*sampled, "--json")["text"]


def test_an_alignment_stays_laid_out(story: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In a pipe and in a file of text, with a blank line after each input."""
    outputs = {"alignment": LINES, "target": TOKENS}
    align = Capability("align", "", Schema(()), outputs, NoOptions, per_row=True)
    records = [{"alignment": "le   the 0.90\nchat  cat 0.80", "target": ["le", "chat"]}, {"alignment": "oui  yes 1.00"}]
    command = Command(Path("run"), "align", out=tmp_path / "aligned.txt")
    print_records(command, align, iter([records]))
    printed = capsys.readouterr().out
    assert printed == "le   the 0.90\nchat  cat 0.80\n\noui  yes 1.00\n\n"
    assert write_file(command, seriatim.load(RUN).predictor, align, NoOptions(), iter([records])) == 2
    assert (tmp_path / "aligned.txt").read_text(encoding="utf-8") == printed


def test_a_closed_pipe_is_no_error(story: Path) -> None:
    """As `seriatim next … | head -1` closes it."""
    command = f"{sys.executable} -m seriatim next runs/lstm 'the ' --top 20 --json | head -1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.stderr == ""
    assert json.loads(result.stdout)["probability"] > 0


# To files


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_row_n_in_row_n_out(story: Path, call: Call, tmp_path: Path, ending: str) -> None:
    """An empty text keeps its row; another text column does not confuse: the one of the training is taken."""
    new, out = tmp_path / "new.csv", tmp_path / f"predictions.{ending}"
    new.write_text('note,text\nx,"a fine, warm film"\ny,\nz,"dull\nand long"\n', encoding="utf-8")
    assert call("predict", RUN, "--data", str(new), "--out", str(out)) == ""
    rows = read_rows(out)
    assert [row["note"] for row in rows] == ["x", "y", "z"], "the columns of the input come first"
    assert [rows[0]["prediction"], rows[2]["prediction"]] == ["good", "bad"]
    assert 0 < float(rows[1]["confidence"]) <= 1


def test_lines_of_text(story: Path, call: Call, tmp_path: Path) -> None:
    call("classify", RUN, "a fine film", "so dull", "-o", str(tmp_path / "labels.txt"), "--quiet")
    assert (tmp_path / "labels.txt").read_text(encoding="utf-8") == "good\nbad\n"


def test_probabilities_are_columns(story: Path, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    call("classify", RUN, "a fine film", "--probabilities", "--out", str(out), "--quiet")
    (row,) = read_rows(out)
    assert float(row["probabilities.good"]) + float(row["probabilities.bad"]) == pytest.approx(1, abs=1e-5)


def test_a_failure_leaves_no_file(story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "a fine film", "other": "so dull"}\n{"text": 7, "other": "so dull"}\n', encoding="utf-8")
    (tmp_path / "out").mkdir()
    code = cli.run(["classify", RUN, "--data", str(bad), "--out", str(tmp_path / "out" / "p.csv")])
    assert code == 2
    assert "line 2" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


# Columns of other names, encodings, numbers


def test_a_column_of_another_name(story: Path, call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two columns of text, neither of the training's name: the user says which."""
    new = tmp_path / "new.csv"
    new.write_text("title,remark,stars\nso dull now,a fine film,good\nwarm and fine,so dull,bad\n", encoding="utf-8")
    assert cli.run(["classify", RUN, "--data", str(new)]) == 2
    assert "--column" in capsys.readouterr().err
    assert call("classify", RUN, "--data", str(new), "--column", "remark") == "good\nbad\n"
    alone = tmp_path / "alone.csv"
    alone.write_text("sequence\na fine film\n", encoding="utf-8")
    assert call("classify", RUN, "--data", str(alone)) == "good\n"


def test_another_encoding_than_that_of_the_training(tmp_path: Path) -> None:
    """A model trained on cp1252 files reads a file in UTF-8 as what it is."""
    folder = tmp_path / "old"
    folder.mkdir()
    for label, word in (("yes", "été"), ("no", "hiver")):
        (folder / f"{label}.txt").write_bytes("".join(f"{word} {n}\n" for n in range(30)).encode("cp1252"))
    settings = {"data": {"encoding": "cp1252"}, "model": {"width": 8}}
    run = seriatim.train(
        "classify", folder, "gru", steps=60, settings=settings, out=tmp_path / "run", report=False, batch_size=8
    )
    new = tmp_path / "new.txt"
    for encoding in ("utf-8", "cp1252"):
        new.write_bytes("été 7\nhiver 7\n".encode(encoding))
        assert [row["prediction"] for row in run.classify(new)] == ["yes", "no"]


def test_numbers_in_and_out(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x.sum(axis=1))
    settings = {"model": {"width": 16}, "task": {"pooling": "last"}, "train": {"batch_size": 16}}
    data = f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}"
    run = seriatim.train("regress", data, "gru", steps=120, settings=settings, out=tmp_path / "run", report=False)
    assert run.summary["metrics"]["test"]["r2"] > 0.5
    from_list = run.predict(list(x[:3]))
    from_file = run.predict(tmp_path / "x.npy")
    assert len(from_file) == 120
    for one, other in zip(from_list, from_file, strict=False):
        assert one["prediction"] == pytest.approx(other["prediction"], rel=1e-5)
    with pytest.raises(seriatim.SeriatimError) as caught:
        run.predict([np.zeros((4, 2), np.float32)])
    assert caught.value.code == "data.features"


def test_vectors_in_files(story: Path, call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All numbers of a vector, as a JSON list in a table: never an excerpt."""
    with np.printoptions(threshold=4):
        for name in ("v.npy", "v.csv", "v.tsv", "v.jsonl"):
            call("embed", RUN, "a fine film", "--out", str(tmp_path / name), "--quiet")
    expected = np.load(tmp_path / "v.npy")
    for name in ("v.csv", "v.tsv"):
        (row,) = read_rows(tmp_path / name)
        assert np.array_equal(np.array([json.loads(row["vector"])], dtype=np.float32), expected)
    assert ".npy" in call("embed", "--help")
    assert ".npy" not in call("classify", "--help")
    for verb, ending, named in (("embed", "xyz", True), ("classify", "xyz", False), ("classify", "npy", False)):
        assert cli.run([verb, RUN, "a fine film", "--out", str(tmp_path / f"w.{ending}")]) == 2
        assert (".npy" in capsys.readouterr().err.partition("let the name end with")[2]) == named
