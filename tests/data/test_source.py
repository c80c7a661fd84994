"""Sources: paths, folders, archives and data in memory give the same streams and columns."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from data_schemas import LABELED, LINES, read, values, write
from seriatim.core.errors import SeriatimError
from seriatim.data.source import Source, open_source, split_of_name


def names(source: Source) -> list[str]:
    return [stream.name for stream in source.streams]


def missing(spec: object, code: str, *words: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        open_source(spec)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value), str(caught.value)


# Paths


def test_folder_is_sorted_and_skips_hidden_files_and_broken_links(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.md", ".hidden", "sub/.git/d.txt"):
        write(tmp_path / "d" / name, "x")
    (tmp_path / "d/broken.txt").symlink_to(tmp_path / "nowhere")
    assert names(open_source(tmp_path / "d")) == ["d/a.txt", "d/b.txt", "d/sub/c.md"]
    (tmp_path / "void").mkdir()
    missing(tmp_path / "void", "data.empty", "no files")


def test_archive_and_its_members(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in/b.txt", "two")
        archive.writestr("in/a.csv", "n,text\n1,one\n")
        archive.writestr("in/c.csv.gz", gzip.compress(b"n,text\n1,three\n"))
        archive.writestr("__MACOSX/._a.txt", "\0")
        archive.writestr("d.txt", "four")
    assert names(open_source(path)) == ["a.zip/d.txt", "a.zip/in/a.csv", "a.zip/in/b.txt", "a.zip/in/c.csv.gz"]
    assert open_source(path / "in/b.txt").streams[0].read_text() == "two"
    assert values(read(path / "in/a.csv", LINES), "text") == ["one"]
    assert values(read(path / "in/c.csv.gz", LINES), "text") == ["three"]
    assert len(open_source(path / "in").streams) == 3
    missing(path / "in/a.cvs", "data.missing", f'did you mean "{path}/in/a.csv"?')
    missing(tmp_path / "b.zip/in/a.csv", "data.missing")
    missing(write(tmp_path / "d.zip", b"not zip"), "data.broken", "d.zip")


def test_missing_path_suggests_neighbors_and_names(tmp_path: Path) -> None:
    write(tmp_path / "book.txt", "x")
    missing(tmp_path / "bok.txt", "data.missing", f'did you mean "{tmp_path / "book.txt"}"?')
    missing("tiny-shakespear", "data.missing", 'did you mean "tiny-shakespeare"?')
    missing("/nowhere/at/all", "data.missing", "pydoc")
    missing("x" * 5000, "data.missing")
    missing("", "data.missing")


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "d/a.txt", "x")
    monkeypatch.chdir(tmp_path / "d")
    assert names(open_source(".")) == ["d/a.txt"]


def test_path_takes_precedence_over_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(open_source("brackets").streams[0].read_text()) > 100_000
    write(tmp_path / "brackets", "mine")
    assert open_source("brackets").streams[0].read_text() == "mine"


def test_aligned_files(tmp_path: Path) -> None:
    write(tmp_path / "a.en", "one\n")
    write(tmp_path / "a.fr", "un\n")
    source = open_source(f"{tmp_path / 'a.en'},{tmp_path / 'a.fr'}")
    assert source.aligned
    assert names(source) == ["a.en", "a.fr"]
    missing(f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}", "data.missing", "a.de")
    write(tmp_path / "b,c.tsv", "x")
    assert not open_source(tmp_path / "b,c.tsv").aligned


# Splits by names


def test_splits_by_file_names(tmp_path: Path) -> None:
    for name in ("train-0.csv", "train-1.csv", "dev.csv", "my_test.csv", "README.md"):
        write(tmp_path / "d" / name, "text,label\nx,a\n")
    source = open_source(tmp_path / "d")
    assert {split: names(part) for split, part in source.splits.items()} == {
        "validation": ["d/dev.csv"],
        "test": ["d/my_test.csv"],
        "train": ["d/train-0.csv", "d/train-1.csv"],
    }
    assert "splits by the names of files" in source.splits["train"].notes[0]
    write(tmp_path / "d/other.csv", "text,label\nx,a\n")
    assert not open_source(tmp_path / "d").splits
    assert not open_source(write(tmp_path / "train.csv", "x")).splits


@pytest.mark.parametrize("packed", [False, True])
def test_splits_by_folder_names(tmp_path: Path, packed: bool) -> None:
    for name in ("train/neg/0.txt", "train/pos/0.txt", "test/pos/1.txt", "about.txt"):
        write(tmp_path / "d/imdb" / name, "x")
    spec = tmp_path / "d"
    if packed:
        spec = tmp_path / "d.zip"
        with zipfile.ZipFile(spec, "w") as archive:
            for path in sorted((tmp_path / "d").rglob("*.txt")):
                archive.write(path, path.relative_to(tmp_path / "d"))
    source = open_source(spec)
    assert {split: len(part.streams) for split, part in source.splits.items()} == {"test": 1, "train": 2}
    assert "1 file outside of them is left out" in source.notes[1]


def test_split_names() -> None:
    expected = {
        "train.txt": "train",
        "wnut17train.conll": "train",
        "en_ewt-ud-dev.conllu": "validation",
        "VAL.csv": "validation",
    }
    expected |= {"testing-3.json": "test", "train_test.csv": "", "latest.csv": "", "trainer.csv": "", "a.csv": ""}
    assert {name: split_of_name(name) for name in expected} == expected


# Memory


COLUMNS = {"text": ["good film", "bad film"], "label": ["p", "n"]}


@pytest.mark.parametrize(
    "table",
    [
        COLUMNS,
        pd.DataFrame(COLUMNS, index=["a", "b"]),
        pl.DataFrame(COLUMNS),
        pa.table(COLUMNS),
        [{"text": t, "label": y} for t, y in zip(*COLUMNS.values(), strict=True)],
        (COLUMNS["text"], COLUMNS["label"]),
        (np.array(COLUMNS["text"]), np.array(COLUMNS["label"])),
        (pd.DataFrame({"text": COLUMNS["text"]}), pd.Series(COLUMNS["label"])),
        {"text": np.array(COLUMNS["text"]), "label": pd.Series(COLUMNS["label"])},
    ],
    ids=lambda table: type(table).__name__,
)
def test_tables_in_memory(table: Any) -> None:
    dataset = read(table, LABELED)
    assert (values(dataset, "input"), values(dataset, "target")) == (COLUMNS["text"], COLUMNS["label"])
    assert str(dataset.locations[1]).endswith("row 1")


def test_frames_keep_their_index() -> None:
    frame = pd.DataFrame(COLUMNS, index=["a", "b"])
    source = open_source(frame)
    assert list(source.index) == ["a", "b"]
    assert source.columns == COLUMNS
    dated = frame.set_index(pd.Index(["2020-01-01", "2020-01-02"], name="date"))
    assert set(open_source(dated).columns or {}) == {"text", "label", "date"}
    arrays = pd.DataFrame({"x": [np.zeros((2, 3)), np.ones((4, 3))], "label": ["a", "b"]})
    assert values(read(arrays, LABELED), "input")[1] == [[1.0] * 3] * 4


def test_hub_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["n", "p"])})
    table = datasets.Dataset.from_dict({"text": COLUMNS["text"], "label": [1, 0]}, features=features)
    assert open_source(table).columns == COLUMNS
    assert open_source(table.select([1])).columns == {"text": ["bad film"], "label": ["n"]}
    tags = datasets.Features({"tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B"]))})
    tagged = datasets.Dataset.from_dict({"tags": [[0, 1], []]}, features=tags)
    assert open_source(tagged).columns == {"tags": [["O", "B"], []]}
    source = open_source(
        datasets.DatasetDict({"train": table, "validation": table.select([0]), "test": table.select([1])})
    )
    assert {split: len((part.columns or {})["text"]) for split, part in source.splits.items()} == {
        "train": 2,
        "validation": 1,
        "test": 1,
    }


def test_mapping_of_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,p\n")
    source = open_source({"train": pd.DataFrame(COLUMNS), "dev": path})
    assert set(source.splits) == {"train", "validation"}
    assert set(open_source({"train": [{"text": "a"}], "test": [{"text": "b"}]}).splits) == {"train", "test"}
    assert not open_source({"train": ["a"], "test": ["b"]}).splits  # columns
    assert not open_source({"train": pd.Series(["a"]), "test": pd.Series(["b"])}).splits
    missing({"dev": path, "test": path}, "data.split", "no split train")


def test_rows_in_memory() -> None:
    assert open_source(["a", "b"]).columns == {"column 1": ["a", "b"]}
    assert open_source([("a", 1), ("b", 2)]).columns == {"column 1": ["a", "b"], "column 2": [1, 2]}
    assert open_source(("a", "b")).columns == {"column 1": ["a"], "column 2": ["b"]}
    assert open_source([[1, 2], [3]]).columns == {"column 1": [[1, 2], [3]]}
    rows = open_source(np.arange(6).reshape(2, 3)).columns or {}
    assert [list(row) for row in rows["column 1"]] == [[0, 1, 2], [3, 4, 5]]
    assert open_source([{"a": 1}, {"b": 2}]).columns == {"a": [1, None], "b": [None, 2]}


def test_data_in_memory_that_cannot_be() -> None:
    missing(7, "data.source", "int is not a source")
    missing({"a": [1], "b": [1, 2]}, "data.length", "a 1, b 2")
    missing(([1, 2], [1]), "data.length")
    missing([("a", "b"), ("c",)], "data.length", "row 1")
    missing([{"a": 1}, "b"], "data.source", "row 1")
    missing({"a": ["x"], "b": 5}, "data.source", 'column "b"')


def test_reading_imports_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from seriatim.data.source import open_source; from seriatim.data import check, split;"
        "from seriatim.data.formats import *; find_format(open_source(['a']));"
        "print([name for name in ('torch', 'pandas', 'PIL', 'scipy', 'mido', 'polib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
