"""Tables of predictions as files, in every format."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data.formats.tables import check_extension, format_table, write_records, write_table

COLUMNS = ["text", "score", "labels"]
ROWS: list[list[Any]] = [["a\tb\nc\\", 0.5, ["x", "y"]], ['q"u', None, []]]


def test_formats(tmp_path: Path) -> None:
    for extension in (".tsv", ".csv", ".jsonl", ".parquet"):
        assert write_table(tmp_path / f"a{extension}", COLUMNS, ROWS) == 2
    tsv = (tmp_path / "a.tsv").read_text()
    assert tsv == 'text\tscore\tlabels\na\\tb\\nc\\\\\t0.5\t["x", "y"]\nq"u\t\t[]\n'
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.reader(file))[1:] == [["a\tb\nc\\", "0.5", '["x", "y"]'], ['q"u', "", "[]"]]
    records = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == records
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == records


def test_lines_between_rows_are_written_to_conll_only() -> None:
    rows = [["# text"], ["The", "DET"], ["cat", "NOUN"], []]
    assert "".join(format_table(["token", "tag"], rows, ".conll")) == "# text\nThe\tDET\ncat\tNOUN\n\n"
    assert "".join(format_table(["token", "tag"], rows, ".tsv")) == "token\ttag\nThe\tDET\ncat\tNOUN\n"


def test_records_and_numpy_values(tmp_path: Path) -> None:
    records = [{"a": np.float64(0.5), "b": np.array([1, 2])}, {"a": 1.0}]
    assert write_records(tmp_path / "a.jsonl", records) == 2
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lines == [{"a": 0.5, "b": [1, 2]}, {"a": 1.0, "b": None}]
    assert write_records(tmp_path / "b.csv", []) == 0


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("old")

    def rows() -> Iterator[list[Any]]:
        yield ROWS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(path, COLUMNS, rows())
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.tsv"]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for name in ("a.pdf", "a"):
        with pytest.raises(SeriatimError, match="cannot write") as caught:
            check_extension(tmp_path / name)
        assert caught.value.code == "output.kind"
    with pytest.raises(SeriatimError, match="values of several kinds"):
        write_table(tmp_path / "a.parquet", ["a"], [[1], ["x"]])
    many = [[None]] * 12_000 + [[1.5]]
    assert write_table(tmp_path / "b.parquet", ["a"], many) == 12_001
    assert pq.read_table(tmp_path / "b.parquet")["a"][-1].as_py() == 1.5
