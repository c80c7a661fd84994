"""Labelled examples: every accepted form gives the same examples, and every bad one a clear answer."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim import api
from seriatim.core.config import validate
from seriatim.core.errors import SeriatimError
from seriatim.data import catalogue, partition
from seriatim.data.catalogue import Entry, File
from seriatim.data.decoding import Facts
from seriatim.data.examples import ExampleSettings, read, read_inputs, read_single
from seriatim.data.labelled import class_names
from seriatim.data.sequences import Examples, Parts, Sequences
from seriatim.data.sources import find
from seriatim.data.tables import Heading, rows

MIRROR = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def parts(source: Path | str, numeric: bool = False, **options: Any) -> Parts:
    return read(ExampleSettings(source=str(source), **options), numeric_target=numeric)


def everything(found: Parts) -> list[tuple[Any, Any, str]]:
    """Input, target and place of all examples, in the order of their places."""
    all_parts = [found.part(name) for name in partition.NAMES]
    listed = [
        (part.inputs[index], part.targets[index], part.place(index))  # type: ignore[index]
        for part in all_parts
        for index in range(len(part))
    ]
    return sorted(listed, key=lambda one: (len(one[2]), one[2]))


def refused(source: Path | str, code: str, *words: str, numeric: bool = False, **options: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        parts(source, numeric, **options)
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    for word in words:
        assert word in str(caught.value), str(caught.value)


REVIEWS = [{"id": n, "text": f"film, number {n}", "label": "ab"[n % 2], "score": n / 4} for n in range(20)]


def csv_of(records: list[dict[str, Any]], delimiter: str = ",") -> str:
    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        return f'"{text}"' if delimiter in text and delimiter != "\t" else text

    lines = [list(records[0]), *(record.values() for record in records)]
    return "".join(delimiter.join(cell(value) for value in line) + "\n" for line in lines)


def tables(folder: Path) -> list[Path]:
    pq.write_table(pa.Table.from_pylist(REVIEWS), folder / "r.parquet")
    packed = folder / "r.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("in/r.csv", csv_of(REVIEWS))
        archive.writestr("notes.txt", "no table")
        archive.write(folder / "r.parquet", "in/more/r.parquet")
    only = folder / "only.zip"
    with zipfile.ZipFile(only, "w") as archive:
        archive.writestr("in/r.csv", csv_of(REVIEWS))
        archive.writestr("notes.txt", "no table")
    return [
        write(folder / "r.csv", csv_of(REVIEWS)),
        write(folder / "r.tsv", csv_of(REVIEWS, "\t")),
        jsonl(folder / "r.jsonl", REVIEWS),
        folder / "r.parquet",
        write(folder / "r.csv.gz", gzip.compress(csv_of(REVIEWS).encode())),
        write(folder / "r.parquet.gz", gzip.compress((folder / "r.parquet").read_bytes())),
        packed / "in/r.csv",
        packed / "in/more/r.parquet",
        only,
    ]


# Tables


def test_rows_of_every_form(tmp_path: Path) -> None:
    seen: list[Heading] = []

    def choose(heading: Heading) -> list[str]:
        seen.append(heading)
        return ["text", "score"]

    for path in tables(tmp_path):
        (raw,) = [raw for raw in find(path).raws if raw.kind != "text"]
        found = list(rows(raw, "utf-8", Facts(), choose))
        assert [row["text"] for _, row in found] == [record["text"] for record in REVIEWS]
        assert [float(row["score"]) for _, row in found] == [record["score"] for record in REVIEWS]
        first = {"jsonl": "line 1", "parquet": "row 1"}.get(raw.kind, "line 2")
        assert found[0][0] == f"{raw.name}, {first}"
        assert seen[-1].of("text") == ["text", "label"]
        assert seen[-1].of("number") == ["id", "score"]


def test_every_table_gives_the_same_examples(tmp_path: Path) -> None:
    wanted = [(record["text"], record["label"]) for record in REVIEWS]
    prints = set()
    for path in tables(tmp_path):
        found = parts(path)
        assert [one[:2] for one in everything(found)] == wanted, path
        assert [len(found.part(name)) for name in partition.NAMES] == [16, 2, 2]
        assert any('took column "label" as the target' in note for note in found.notes)
        assert any('took column "text" as the input' in note for note in found.notes)
        prints.add(found.fingerprint)
        numbers = parts(path, numeric=True, target="score", column="text")
        assert [one[:2] for one in everything(numbers)] == [(r["text"], r["score"]) for r in REVIEWS]
    assert len(prints) == 1
    assert parts(tmp_path / "r.csv", True, column="text", target="score").fingerprint not in prints


def test_the_notes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "text,label\r\n" + "".join(f"t{n},{'aaab'[n % 4]}\r\n" for n in range(40)) + "t0,b\r\n"
    )
    told: list[str] = []
    found = read(ExampleSettings(source=str(path)), notify=told.append)
    assert told == found.notes
    assert told == [
        'a.csv: took column "label" as the target',
        'a.csv: took column "text" as the input',
        "turned 42 Windows line ends (CRLF) into \\n",
        "split 80 / 10 / 10 % at random, each class alike, in the same way each time",
        "examples: 33 train, 4 valid, 4 test",
        "2 classes: a (73 %), b (27 %); the most frequent alone gives accuracy 0.73",
        "1 of 4 valid examples have an input that is in the training part too",
    ]


def test_repeated_inputs_and_single_examples_are_told(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "a.jsonl", [{"x": t, "y": y} for t, y in [("p", "a"), ("q", "a"), ("r", "b")]])
    test = jsonl(tmp_path / "b.jsonl", [{"x": t, "y": "a"} for t in "pqz"])
    notes = parts(train, test=str(test), valid=str(test)).notes
    assert "2 of 3 test examples have an input that is in the training part too" in notes
    assert "1 of them with a single training example: b" in notes


def test_guesses(tmp_path: Path) -> None:
    stars = write(tmp_path / "a.csv", "review,stars\n" + "good,5\nbad,1\n" * 10)
    assert everything(parts(stars, numeric=True))[0][:2] == ("good", 5.0)
    named = write(tmp_path / "b.csv", "a,b\n" + "x,p\ny,q\n" * 10)
    assert everything(parts(named, column="b"))[0][:2] == ("p", "x")
    refused(named, "data.column", "which is the target", "a, b", "--target")
    both = write(tmp_path / "c.csv", "text,label,target\nx,p,q\n")
    refused(both, "data.column", "several columns that may be the target (label, target)", "--target")
    texts = write(tmp_path / "d.csv", "title,body,label\nx,y,p\n")
    refused(texts, "data.column", "several columns that may be the input", "title, body, label", "--column title")
    numbers = write(tmp_path / "e.csv", "a,b,label\n1,2,p\n")
    refused(numbers, "data.column", "no column of text", "a, b, label", "a..z")


def test_labels_of_every_type(tmp_path: Path) -> None:
    values = [True, False, 3, 4.0, 4.5, " spaced ", "nan d'or"]
    path = jsonl(tmp_path / "a.jsonl", [{"text": f"t{i}", "label": value} for i, value in enumerate(values)])
    found = parts(path, fractions=(1, 0, 0))
    assert found.train.targets == ["true", "false", "3", "4", "4.5", "spaced", "nan d'or"]


def test_several_labels_at_once(tmp_path: Path) -> None:
    wanted = [("a", "b"), (), ("c",)]
    lists = jsonl(tmp_path / "a.jsonl", [{"text": f"t{i}", "label": list(one)} for i, one in enumerate(wanted)])
    cells = write(tmp_path / "b.csv", "text,label\nt0,a|b\nt1,\nt2,c\n")
    marks = write(tmp_path / "c.csv", "text,a,b,c\nt0,1,1,0\nt1,0,0,0\nt2,0,0,1\n")
    for found in (
        parts(lists, fractions=(1, 0, 0)),
        parts(cells, fractions=(1, 0, 0), separator="|"),
        parts(marks, fractions=(1, 0, 0), target="a,b,c"),
        parts(marks, fractions=(1, 0, 0), target="a..c", column="text"),
    ):
        assert found.train.targets == wanted
        assert "3 labels, 1 an example on average: a (33 %), b (33 %), c (33 %)" in found.notes
    refused(
        write(tmp_path / "d.csv", "text,a,b\nx,1,2\n"), "data.column", "line 2", '"b"', "neither 1 nor 0", target="a,b"
    )
    mixed = jsonl(tmp_path / "e.jsonl", [{"text": "x", "label": ["a"]}, {"text": "y", "label": "a"}])
    refused(mixed, "data.target", "e.jsonl, line 2", "where the first row has a list")


def test_several_numbers_to_predict(tmp_path: Path) -> None:
    columns = write(tmp_path / "a.csv", "text,p,q\nx,1,2\ny,3,-4e1\n")
    lists = jsonl(tmp_path / "b.jsonl", [{"text": "x", "y": [1, 2]}, {"text": "y", "y": [3, -40]}])
    cells = write(tmp_path / "c.csv", "text,y\nx,1 2\ny,3 -40\n")
    for path, options in ((columns, {"target": "p,q"}), (lists, {}), (cells, {"separator": " "})):
        assert parts(path, numeric=True, fractions=(1, 0, 0), **options).train.targets == [(1.0, 2.0), (3.0, -40.0)]
    ragged = jsonl(tmp_path / "d.jsonl", [{"text": "x", "y": [1, 2]}, {"text": "y", "y": [3]}])
    refused(ragged, "data.target", "d.jsonl, line 2", "1 numbers to predict", numeric=True)


# Sequences of numbers


def numbers(found: Parts) -> list[list[Any]]:
    assert isinstance(found.train.inputs, Sequences)
    assert found.train.inputs.values.dtype == np.float32
    return [found.train.inputs[index].tolist() for index in range(len(found.train))]


def test_lists_of_numbers(tmp_path: Path) -> None:
    values = [[1, 2.5], [3], [4, 5, 6]]
    wanted = [[[1.0], [2.5]], [[3.0]], [[4.0], [5.0], [6.0]]]
    labels = ["a", "b", "a"]
    records = [{"series": one, "label": label} for one, label in zip(values, labels, strict=True)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    spaced = "series,label\n" + "".join(f"{' '.join(map(str, r['series']))},{r['label']}\n" for r in records)
    quoted = "series,label\n" + "".join(f'"{r["series"]}",{r["label"]}\n' for r in records)
    for path in (
        jsonl(tmp_path / "a.jsonl", records),
        tmp_path / "a.parquet",
        write(tmp_path / "b.csv", spaced),
        write(tmp_path / "c.csv", quoted),
    ):
        found = parts(path, column="series", fractions=(1, 0, 0))
        assert numbers(found) == wanted
        assert found.features == ("series",)
        assert found.train.targets == labels
    # A column that was only guessed at, or is said to be text, is text.
    assert parts(tmp_path / "b.csv", fractions=(1, 0, 0)).train.inputs == ["1 2.5", "3", "4 5 6"]
    assert parts(tmp_path / "b.csv", column="series", kind="text", fractions=(1, 0, 0)).train.inputs[1] == "3"
    refused(tmp_path / "a.jsonl", "data.column", "line 1", "a list of numbers, not text", kind="text")


def test_vectors_of_numbers_and_their_width(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"x": [[1, 2], [3, 4]], "y": 1.0}, {"x": [[5, 6]], "y": 2.0}])
    found = parts(path, numeric=True, fractions=(1, 0, 0))
    assert numbers(found) == [[[1, 2], [3, 4]], [[5, 6]]]
    assert found.features == ("x.1", "x.2")
    wide = jsonl(tmp_path / "b.jsonl", [{"x": [[1, 2]], "y": 1.0}, {"x": [[1, 2, 3]], "y": 2.0}])
    refused(wide, "data.column", "b.jsonl, line 2", "steps of 3 numbers, where the first row has 2", numeric=True)
    refused(path, "data.features", "c.jsonl, line 1", numeric=True, test=str(
        jsonl(tmp_path / "c.jsonl", [{"x": [1.0], "y": 1.0}])
    ))  # fmt: skip
    for bad in ([[1, 2], [3]], [[1, "x"]], [[[1]]], [{"a": 1}]):
        refused(jsonl(tmp_path / "d.jsonl", [{"x": bad, "y": 1.0}]), "data.column", "d.jsonl, line 1", numeric=True)


def test_columns_make_a_sequence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,t1,t2,t3\na,1,2,3\nb,4,5,6\n")
    for column in ("t1,t2,t3", "t1..t3", "t1, t2..t3"):
        found = parts(path, column=column, fractions=(1, 0, 0))
        assert numbers(found) == [[[1], [2], [3]], [[4], [5], [6]]]
        assert found.features == ("value",)
        assert "3 columns are a sequence of 3 numbers" in found.notes
    refused(path, "data.column", 'no column "t9"', column="t1..t9")
    refused(path, "data.column", "names no columns", column="t3..t1")
    refused(path, "data.column", '"t1" cannot be input and target', column="t1", target="t1")
    words = write(tmp_path / "b.csv", "y,a,b\np,1,2\nq,3,four\n")
    refused(words, "data.number", "b.csv, line 3", '"b"', '"four"', "name one column", column="a,b")
    refused(write(tmp_path / "c.csv", "y,a,b\np,1,\n"), "data.number", "line 2", '"b"', "missing", column="a,b")
    refused(write(tmp_path / "d.csv", "y,a,b\np,1,nan\n"), "data.number", "line 2", "no finite", column="a,b")
    refused(write(tmp_path / "e.csv", "y,a,b\np,1,1e99\n"), "data.column", "line 2", "too large", column="a,b")


def test_a_number_that_is_missing_in_a_sequence(tmp_path: Path) -> None:
    for bad in ("[1, null]", "[1, NaN]", "[1, 1e99]"):
        path = write(tmp_path / "a.jsonl", f'{{"x": [1, 2], "y": "a"}}\n{{"x": {bad}, "y": "b"}}\n')
        refused(path, "data.number", "a.jsonl, line 2", "step 2", "missing or not finite")
    path = write(tmp_path / "a.csv", "x,y\n1 2,a\n1 nan,b\n")
    refused(path, "data.number", "a.csv, line 3", "step 2", column="x")
    path = write(tmp_path / "b.csv", "x,y\n1 2,a\n1 two,b\n")
    refused(path, "data.column", "b.csv, line 3", '"1 two", not a list of numbers', column="x", kind="numbers")


def test_sequences_of_length_1_and_0(tmp_path: Path) -> None:
    records = [{"x": [1.0], "y": "a"}, {"x": [], "y": "b"}, {"x": [2.0], "y": "b"}]
    path = jsonl(tmp_path / "a.jsonl", records)
    found = parts(path, fractions=(1, 0, 0))
    assert numbers(found) == [[[1.0]], [[2.0]]]
    assert "left out 1 sequences of length 0 (the first: a.jsonl, line 2)" in found.notes
    kept = read_inputs(str(path), ExampleSettings(source="x"))
    assert kept.inputs.lengths.tolist() == [1, 0, 1]  # type: ignore[union-attr]


def test_lists_of_words_are_texts(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"words": ["a", "fine", "film"], "y": "p"}, {"words": ["no"], "y": "q"}])
    assert parts(path, fractions=(1, 0, 0)).train.inputs == ["a fine film", "no"]


def test_arrays(tmp_path: Path) -> None:
    block = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    np.save(tmp_path / "x.npy", block)
    np.save(tmp_path / "y.npy", np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "both.npz", x=block, y=np.array([0, 1, 0, 1]))
    for path, options in (("x.npy", {"target": str(tmp_path / "y.npy")}), ("both.npz", {})):
        found = parts(tmp_path / path, fractions=(1, 0, 0), **options)
        assert numbers(found) == block.tolist()
        assert found.train.targets == ["0", "1", "0", "1"]
        assert found.train.place(3) == f"{path}, row 4"
        assert len(found.features) == 2
        values = parts(tmp_path / path, numeric=True, fractions=(1, 0, 0), **options)
        assert [float(value) for value in values.train.targets] == [0, 1, 0, 1]  # type: ignore[union-attr]
    refused(tmp_path / "x.npy", "data.target", "x.npy: holds no targets", "--target")
    assert read_inputs(str(tmp_path / "x.npy"), ExampleSettings(source="x")).targets is None


def test_sets_that_are_made_know_their_task() -> None:
    found = parts("adding:20", numeric=True)
    assert found.features == ("value", "marker")
    assert "examples: 50,000 train, 1,000 valid, 1,000 test" in found.notes
    refused("adding:20", "data.target", "numbers to predict, not labels", "regress")
    refused("copy:5", "data.target", "an answer for each step", "tag")
    assert len(read_single("adding:20", ExampleSettings(source="x"), numeric_target=True)) == 1000
    assert read_inputs("adding:20", ExampleSettings(source="x")).targets is None


# A file or a folder for each class


def test_what_tells_files_apart() -> None:
    assert class_names(["rt-polarity.neg", "rt-polarity.pos"]) == ["neg", "pos"]
    assert class_names(["neg.txt", "pos.txt"]) == ["neg", "pos"]
    assert class_names(["film.neg.txt.gz", "film.pos.txt.gz"]) == ["neg", "pos"]
    assert class_names(["French.txt", "Scottish"]) == ["French", "Scottish"]
    assert class_names(["a.one", "b.two"]) == ["a", "b"]


def test_a_file_for_each_class(tmp_path: Path) -> None:
    # U+0085, a separator and a lone CR do not end a line; cp1252 has the dash and the dots at 0x96 and 0x85.
    write(tmp_path / "d/film.neg", b"bad \x96 awful\nworse\x1cstill\rsame line\n\nlast\x85\n")
    write(tmp_path / "d/film.pos", b"good\nbetter\nbest \nfinest")
    write(tmp_path / "d/README.txt", "about")
    found = parts(tmp_path / "d", encoding="cp1252", fractions=(1, 0, 0))
    assert found.train.inputs == [
        "bad – awful", "worse\x1cstill\rsame line", "last…", "good", "better", "best ", "finest"
    ]  # fmt: skip
    assert found.train.targets == ["neg"] * 3 + ["pos"] * 4
    assert found.train.place(2) == "d/film.neg, line 4"
    assert "left out 1 empty texts (the first: d/film.neg, line 3)" in found.notes
    assert "left out 1 files without a class: d/README.txt" in found.notes
    refused(tmp_path / "d", "data.encoding", "film.neg, line 1", "--encoding cp1252")
    refused(tmp_path / "d", "data.column", "labels, not numbers", numeric=True)


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_for_each_class_with_parts_above(tmp_path: Path, packed: bool) -> None:
    for part, count in (("train", 8), ("test", 2)):
        for label in ("neg", "pos"):
            for number in range(count):
                write(tmp_path / f"d/imdb/{part}/{label}/{number}.txt", f"{part} {label}\n{number}\n")
        write(tmp_path / f"d/imdb/{part}/urls.txt", "no example")
    write(tmp_path / "d/imdb/train/unsup/0.txt", "nobody knows")
    source = tmp_path / "d"
    if packed:
        source = tmp_path / "d.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for path in sorted((tmp_path / "d").rglob("*.txt")):
                archive.write(path, path.relative_to(tmp_path / "d"))
    found = parts(source)
    assert Counter(found.test.targets) == {"neg": 2, "pos": 2}
    assert sorted(found.test.inputs) == sorted(f"test {label}\n{n}" for label in ("neg", "pos") for n in range(2))
    assert Counter([*found.train.targets, *found.valid.targets]) == {"neg": 8, "pos": 8}  # type: ignore[misc]
    assert Counter(found.valid.targets) == {"neg": 1, "pos": 1}
    assert all(text.startswith("train") for text in [*found.train.inputs, *found.valid.inputs])
    assert "parts by folders: test, train" in found.notes
    assert any(note.startswith("left out 3 files without a class") for note in found.notes)
    assert any("drew 11.1 % of the training examples" in note for note in found.notes)


def test_a_folder_of_tables(tmp_path: Path) -> None:
    for name, text in (
        ("train-0.csv", "p,a\nq,b\n"),
        ("train-1.csv", "r,a\n"),
        ("dev.csv", "s,b\n"),
        ("test.csv", "t,a\n"),
    ):
        write(tmp_path / "d" / name, "text,label\n" + text)
    found = parts(tmp_path / "d")
    assert (found.train.inputs, found.valid.inputs, found.test.inputs) == (["p", "q", "r"], ["s"], ["t"])
    write(tmp_path / "e/a.csv", "text,label\nx,a\n")
    write(tmp_path / "e/b.csv", "text,label\nx,a\n")
    refused(tmp_path / "e", "data.several", "2 tables", "e/a.csv, e/b.csv")


# Parts


def test_the_draw_is_the_same_for_everybody() -> None:
    """The first places drawn, written down once: another draw would make published numbers wrong."""
    part = partition.draw(None, 20, (0.8, 0.1, 0.1))
    assert part.tolist() == [1, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    # The published first outputs of splitmix64 from the state 0.
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert partition._scattered(3).tolist() == known
    longer = partition.draw(["a", "b"] * 10, 20, (0.8, 0.1, 0.1))
    assert Counter(longer[::2].tolist()) == Counter(longer[1::2].tolist()) == {0: 8, 1: 1, 2: 1}


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 9))
def test_a_draw_keeps_the_shares_of_every_label(labels: list[str], train: int, valid: int) -> None:
    total = train + valid + 3
    fractions = (train / total, valid / total, 3 / total)
    part = partition.draw(labels, len(labels), fractions)
    for label, count in Counter(labels).items():
        of = part[[one == label for one in labels]]
        assert (of == 0).any()  # nothing is asked that was not to be learnt
        assert abs((of == 0).sum() - count * fractions[0]) <= 1
        assert abs((of == 1).sum() - count * fractions[1]) <= 2
        assert abs((of == 2).sum() - count * fractions[2]) <= 2
    half = partition.draw(None, len(labels), fractions)
    assert half.tolist() == partition.draw([None] * len(labels), len(labels), fractions).tolist()


def test_many_small_classes_add_up_to_the_shares() -> None:
    labels = [str(number // 4) for number in range(1200)]
    assert np.bincount(partition.draw(labels, 1200, (0.8, 0.1, 0.1))).tolist() == [960, 120, 120]
    assert np.bincount(partition.draw(labels, 1200, (0.75, 0.25, 0.0))).tolist() == [900, 300]
    assert np.bincount(partition.draw(labels, 1200, (0.75, 0.0, 0.25))).tolist() == [900, 0, 300]


def test_a_column_says_the_parts(tmp_path: Path) -> None:
    said = ["train", "Training", "valid", "validation", "dev", "VAL ", "test", "train"]
    lines = "".join(f"t{n},{'ab'[n % 2]},{one}\n" for n, one in enumerate(said))
    for head, options in (("text,label,split", {}), ("text,label,fold", {"split": "fold"})):
        found = parts(write(tmp_path / "a.csv", f"{head}\n{lines}"), **options)
        assert found.train.inputs == ["t0", "t1", "t7"]
        assert found.valid.inputs == ["t2", "t3", "t4", "t5"]
        assert found.test.inputs == ["t6"]
        assert f'parts by the column "{head.split(",")[2]}"' in found.notes
    odd = write(tmp_path / "b.csv", f"text,label,set\n{lines}t9,a,holdout\n")
    refused(odd, "data.split", "b.csv, line 10", '"holdout"', "train, training, valid", split="set")
    assert 'column "set" holds "holdout" and says nothing about parts' in parts(odd).notes
    refused(odd, "data.column", 'no column "sett"', 'did you mean "set"?', split="sett")
    refused(odd, "data.split", "both", split="set", test=str(odd))


def test_flip_has_a_second_column(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "sequence,target,set,validation\nAC,1.5,train,\nCA,2,train,True\nAA,3,test,\nCC,4,train,False\nGG,5,test,True\n",
    )
    found = parts(path, numeric=True)
    assert (found.train.inputs, found.train.targets) == (["AC", "CC"], [1.5, 4.0])
    assert (found.valid.inputs, found.valid.targets) == (["CA"], [2.0])
    assert (found.test.inputs, found.test.targets) == (["AA", "GG"], [3.0, 5.0])
    assert 'parts by the column "set", and of train those where "validation" is true for validation' in found.notes


def test_files_for_the_parts(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", csv_of(REVIEWS))
    other = write(tmp_path / "b.tsv", "label\ttext\na\tone\nb\t \na\ttwo\n")
    found = parts(train, test=str(other))
    assert found.test.inputs == ["one", "two"]
    assert "left out 1 empty texts (the first: b.tsv, line 3)" in found.notes
    assert (len(found.train), len(found.valid)) == (18, 2)
    both = parts(train, valid=str(other), fractions=(1, 0, 0))
    assert (len(both.train), len(both.valid), len(both.test)) == (20, 2, 0)
    assert "no test part is given, so it is empty" in both.notes
    refused(train, "data.missing", "nowhere.csv", test=str(tmp_path / "nowhere.csv"))
    refused(train, "data.column", 'c.csv: has no column "label"', test=str(write(tmp_path / "c.csv", "text,x\na,b\n")))
    # The kind of input follows the training file: here a column of text that holds only numbers.
    digits = write(tmp_path / "d.csv", "text,label\n12 13,a\n")
    assert parts(train, column="text", test=str(digits)).test.inputs == ["12 13"]


# Another file


def test_predict_keeps_row_and_line(tmp_path: Path) -> None:
    settings = ExampleSettings(source="train.csv", column="text", target="label")
    path = write(tmp_path / "a.csv", 'text\none\n""\n two \n')
    found = read_inputs(str(path), settings)
    assert found == Examples(["one", "", " two "], None, [f"a.csv, line {n}" for n in (2, 3, 4)])
    rows = jsonl(tmp_path / "a.jsonl", [{"text": "x", "label": None}, {"text": None}, {"text": ""}])
    assert read_inputs(str(rows), settings).inputs == ["x", "", ""]
    lines = write(tmp_path / "a.txt", "one\n\n  \nfour")
    assert read_inputs(str(lines), settings).inputs == ["one", "", "  ", "four"]
    assert read_inputs(str(write(tmp_path / "b.txt", "")), settings).inputs == []
    assert read_inputs(str(write(tmp_path / "b.csv", "text\n")), settings).inputs == []
    guessed = write(tmp_path / "c.csv", "sentence,label,n\na,p,1\nb,,2\n")
    assert read_inputs(str(guessed), ExampleSettings(source="x")).inputs == ["a", "b"]
    digits = str(write(tmp_path / "d.csv", "text,label\n42,p\n7 8,q\n"))
    assert read_inputs(digits, settings, numeric_input=False).inputs == ["42", "7 8"]
    assert read_single(digits, settings, numeric_input=False).inputs == ["42", "7 8"]
    assert read_inputs(digits, settings, numeric_input=True).inputs.lengths.tolist() == [1, 2]  # type: ignore[union-attr]
    with pytest.raises(SeriatimError, match='no column "text"'):
        read_inputs(str(guessed), settings)


def test_a_model_of_numbers_reads_lines_of_numbers_and_one_of_texts_no_numbers(tmp_path: Path) -> None:
    settings = ExampleSettings(source="x")
    lines = str(write(tmp_path / "a.txt", "1 2.5\n\n3\n"))
    found = read_inputs(lines, settings, numeric_input=True).inputs
    assert isinstance(found, Sequences)
    assert (found.values.tolist(), found.lengths.tolist()) == ([[1.0], [2.5], [3.0]], [2, 0, 1])
    words = str(write(tmp_path / "b.txt", "1 2\none two\n"))
    with pytest.raises(SeriatimError, match=r"b\.txt, line 2.*not a list of numbers"):
        read_inputs(words, settings, numeric_input=True)
    np.save(tmp_path / "x.npy", np.zeros((2, 3)))
    for source in (str(tmp_path / "x.npy"), "adding:20"):
        with pytest.raises(SeriatimError, match="holds numbers, where texts are wanted"):
            read_inputs(source, settings, numeric_input=False)


def test_evaluate_on_another_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label,split\none,p,train\n,q,test\nthree,q,test\n")
    told: list[str] = []
    found = read_single(str(path), ExampleSettings(source="x"), notify=told.append)
    assert found == Examples(["one", "three"], ["p", "q"], ["a.csv, line 2", "a.csv, line 4"])
    assert "left out 1 empty texts (the first: a.csv, line 3)" in told
    assert "examples: 2" in told


# What is refused


def test_labels_that_cannot_be(tmp_path: Path) -> None:
    for cell in ("", " ", "nan", "NaN"):
        path = write(tmp_path / "a.csv", f"text,label\nx,a\ny,{cell}\n")
        refused(path, "data.label", "a.csv, line 3", "the label is missing")
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "label": null}'), "data.label", "a.jsonl, line 1")
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "label": NaN}'), "data.label", "a.jsonl, line 1")
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "label": {"a": 1}}'), "data.column", "not a label")
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "label": "\\ud800"}'), "data.binary", "a.jsonl, line 1")
    pq.write_table(pa.table({"text": ["x", "y"], "label": ["a", None]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "data.label", "a.parquet, row 2")


def test_a_label_never_seen_in_training(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", csv_of(REVIEWS))
    for part in ("valid", "test"):
        other = write(tmp_path / "b.csv", "text,label\nx,a\ny,c\n")
        words = ("b.csv, line 3", 'the label "c" does not occur in the training part', "the labels are: a, b")
        refused(train, "data.label", *words, **{part: str(other)})
    column = write(tmp_path / "c.csv", "text,label,split\nx,a,train\ny,b,train\nz,c,test\n")
    refused(column, "data.label", "c.csv, line 4", '"c"')


def test_one_class_only(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.csv", "text,label\n" + "x,a\n" * 20), "data.one-class", "16 training examples", '"a"')
    write(tmp_path / "d/pos.txt", "x\ny\n" * 10)
    write(tmp_path / "d/README", "x")
    refused(tmp_path / "d", "data.one-class", '"pos"')


def test_numbers_that_cannot_be(tmp_path: Path) -> None:
    for cell, word in (
        ("", "missing"),
        ("nan", "no finite number"),
        ("inf", "no finite number"),
        ("1_0", "not a number"),
    ):
        path = write(tmp_path / "a.csv", f"text,y\nx,1\ny,{cell}\n")
        refused(path, "data.number", "a.csv, line 3", '"y"', word, numeric=True)
    refused(write(tmp_path / "b.csv", "text,y\nx,good\n"), "data.number", '"good"', "classify", numeric=True)
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "y": null}'), "data.number", "line 1", numeric=True)
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "y": NaN}'), "data.number", "line 1", numeric=True)
    refused(write(tmp_path / "a.jsonl", '{"text": "x", "y": [1, null]}'), "data.number", "line 1", numeric=True)


def test_sources_without_examples(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.csv", "text,label\n"), "data.empty", "a.csv", "no examples")
    refused(write(tmp_path / "b.csv", ""), "data.empty", "b.csv")
    refused(write(tmp_path / "c.csv", "text,label\n,a\n ,b\n"), "data.empty", "nothing to learn from")
    refused(
        write(tmp_path / "d.csv", "text,label\nx,a\ny,b\n"),
        "data.too-short",
        "2 examples of 2 classes",
        "80 / 10 / 10 %",
    )
    refused(write(tmp_path / "e.csv", "text,label,split\nx,a,test\n"), "data.empty", "nothing to learn from")
    refused(write(tmp_path / "f.txt", "x\n"), "data.column", "plain text", ".csv")
    refused(tmp_path / "nowhere.csv", "data.missing", "nowhere.csv")


def test_columns_that_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,a\n")
    refused(path, "data.column", 'no column "txt"', 'did you mean "text"?', column="txt")
    refused(path, "data.column", 'no column "lable"', 'did you mean "label"?', target="lable")
    twice = write(tmp_path / "b.csv", "text,label,label\nx,a,b\n")
    refused(twice, "data.column", '2 of its columns are named "label"', target="label")
    number = jsonl(tmp_path / "a.jsonl", [{"text": "x", "label": "a"}, {"text": 5, "label": "b"}])
    refused(number, "data.column", "a.jsonl, line 2", "holds int, not text")
    half = write(tmp_path / "c.jsonl", '{"text": "x", "y": "\\ud800"}')
    refused(half, "data.number", "c.jsonl, line 1", r"\ud800", numeric=True)
    missing = jsonl(tmp_path / "b.jsonl", [{"text": "x", "label": "a"}, {"text": "y"}])
    refused(missing, "data.column", "b.jsonl, line 2", 'no column "label"')


def test_settings_are_checked() -> None:
    with pytest.raises(SeriatimError, match="add up to 1"):
        validate(ExampleSettings, {"source": "x", "fractions": (0.9, 0.2, 0)})
    assert validate(ExampleSettings, {"source": "x", "tokenizer": {"kind": "word"}}).tokenizer.kind == "word"  # type: ignore[union-attr]
    for name, info in ExampleSettings.model_fields.items():
        assert info.description, name


# The catalogue


def test_the_catalogue_knows_how_to_read_its_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def file(path: str, data: bytes, **more: Any) -> File:
        write(tmp_path / "local" / path, data)
        return File(path, hashlib.sha256(data).hexdigest(), **more)

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("in/a.csv", "words,stars,n\n" + "x,2,1\ny,3,1\n" * 10)
        archive.writestr("in/b.csv", "no,table\n")
    classes = {"neg": file("toy/t.neg", b"caf\xe9\n" * 10), "pos": file("toy/t.pos", b"bar\n" * 10)}
    member = {"train": file("zip/a.zip", packed.getvalue(), member="in/a.csv")}
    cp1252, names = {"encoding": "cp1252"}, {"column": "words", "target": "stars"}
    folder = Entry("toy", "classify", "a toy", "CC0", 1, classes, folder=True, options=cp1252)
    table = Entry("stars", "regress", "a toy", "CC0", 1, member, options=names)
    monkeypatch.setitem(catalogue.ENTRIES, "toy", folder)
    monkeypatch.setitem(catalogue.ENTRIES, "stars", table)

    where = str(tmp_path / "local")
    found = read(ExampleSettings(source="toy"), where)
    assert {one[:2] for one in everything(found)} == {("café", "neg"), ("bar", "pos")}
    with pytest.raises(SeriatimError, match="not ASCII"):
        read(ExampleSettings(source="toy", encoding="ascii"), where)
    stars = read(ExampleSettings(source="stars"), where, numeric_target=True)
    assert {one[:2] for one in everything(stars)} == {("x", 2.0), ("y", 3.0)}
    other = read(ExampleSettings(source="stars", target="n"), where, numeric_target=True)
    assert {one[1] for one in everything(other)} == {1.0}
    # What the catalogue says of one set is not taken over to a file of the user's.
    mine = str(write(tmp_path / "mine.txt", "café\n"))
    assert read_inputs(mine, ExampleSettings(source="toy")).inputs == ["café"]
    write(tmp_path / "local/toy/t.pos", b"another\n")
    with pytest.raises(SeriatimError, match="another file than the catalogue knows"):
        read(ExampleSettings(source="toy"), where)
    with pytest.raises(SeriatimError, match="no public address"):
        read(ExampleSettings(source="toy"))


# Real data, where a copy is at hand


@pytest.mark.skipif(not (MIRROR / "rt_polarity").is_dir(), reason="no local copy of the public data")
def test_film_reviews() -> None:
    found = read(ExampleSettings(source="rt-polarity"), str(MIRROR))
    assert [len(found.part(name)) for name in partition.NAMES] == [8530, 1066, 1066]
    for name, count in zip(partition.NAMES, (4265, 533, 533), strict=True):
        assert Counter(found.part(name).targets) == {"neg": count, "pos": count}
    wanted = (MIRROR / "rt_polarity/rt-polarity.neg").read_bytes().decode("cp1252").split("\n")[:-1]
    assert [text for text, label, _ in everything(found) if label == "neg"] == wanted


@pytest.mark.skipif(not (MIRROR / "gb1").is_dir(), reason="no local copy of the public data")
def test_protein_fitness() -> None:
    found = read(ExampleSettings(source="gb1"), str(MIRROR), numeric_target=True)
    assert [len(found.part(name)) for name in partition.NAMES] == [6289, 699, 1745]
    assert (found.valid.targets[0], found.valid.place(0)) == (1.4459050863, "splits.zip/splits/sampled.csv, line 3")  # type: ignore[index]


@pytest.mark.parametrize("task", ["classify", "regress", "tag"])
def test_a_size_alone_asks_for_so_many_words(task: str) -> None:
    """Not for characters, which is what a tokenizer without a kind would be elsewhere."""
    config = api.configure(task, "any.csv", "gru", vocabulary=5000)
    assert (config.data.tokenizer.kind, config.data.tokenizer.size) == ("word", 5000)
    assert api.configure(task, "any.csv", "gru", tokenizer="bpe").data.tokenizer.kind == "bpe"
