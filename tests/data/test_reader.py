"""The reader: cells by their kinds, further data by the columns and kinds of the training data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_schemas import LABELED, LINES, PAIRS, SCORED, read, refuse, values, write, write_jsonl
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats import ReadOptions
from seriatim.data.kinds import LABEL, LABELS, NUMBER, NUMBERS, TEXT
from seriatim.data.reader import read_dataset
from seriatim.data.source import Source, open_source


def test_lists_of_numbers(tmp_path: Path) -> None:
    cells = [[1, 2.5], [3], [4, 5, 6]]
    expected = [[[1.0], [2.5]], [[3.0]], [[4.0], [5.0], [6.0]]]
    records = [{"series": one, "label": label} for one, label in zip(cells, "aba", strict=True)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    spaced = "series,label\n" + "".join(f"{' '.join(map(str, r['series']))},{r['label']}\n" for r in records)
    quoted = "series,label\n" + "".join(f'"{r["series"]}",{r["label"]}\n' for r in records)
    for path in (
        write_jsonl(tmp_path / "a.jsonl", records),
        tmp_path / "a.parquet",
        write(tmp_path / "b.csv", spaced),
        write(tmp_path / "c.csv", quoted),
    ):
        dataset = read(path, LABELED, input="series")
        assert dataset.kind("input") is NUMBERS
        assert values(dataset, "input") == expected
    assert read(tmp_path / "b.csv", LABELED).kind("input") is TEXT  # only guessed


def test_columns_of_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,t1,t2,t3\na,1,2,3\nb,4,5,6\n")
    dataset = read(path, LABELED, input="t1..t3")
    assert dataset.kind("input") is NUMBER
    assert dataset.matrix("input").tolist() == [[1, 2, 3], [4, 5, 6]]
    slip = write(tmp_path / "b.csv", "a,b,y\n1,2,p\n3,n/a,q\nn/a,6,q\n7,8,q\n9,9,q\n")
    error = refuse(slip, LABELED, "data.cell", "b.csv, line 3", '"b"', '"n/a"', input="a,b")
    assert "b.csv, line 4" in error.cause


def test_several_labels_at_once(tmp_path: Path) -> None:
    lists = write_jsonl(
        tmp_path / "a.jsonl", [{"text": f"t{n}", "label": one} for n, one in enumerate([["a", "b"], [], ["c"]])]
    )
    cells = write(tmp_path / "b.csv", "text,label\nt0,a|b\nt1,\nt2,c\n")
    expected = [("a", "b"), (), ("c",)]
    for path, separator in ((lists, None), (cells, "|")):
        dataset = read(path, LABELED, options=ReadOptions(label_separator=separator))
        assert dataset.kind("target") is LABELS
        assert list(dataset["target"]) == expected
    numbers = write(tmp_path / "c.csv", "text,y\nx,1 2\ny,3 -40\n")
    dataset = read(numbers, SCORED, options=ReadOptions(label_separator=" "))
    assert values(dataset, "target") == [[[1.0], [2.0]], [[3.0], [-40.0]]]
    mixed = write_jsonl(
        tmp_path / "e.jsonl",
        [{"text": "x", "label": ["a"]}, {"text": "z", "label": ["b"]}, {"text": "y", "label": "a"}],
    )
    refuse(mixed, LABELED, "data.cell", "e.jsonl, line 3", "list of labels")


def test_two_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,y\nhow many?,3,p\nand who?,Ann,q\n7,Ben,q\n8 9,,p\n")
    assert values(read(path, LABELED, input="a,b"), "input") == [
        ("how many?", "3"),
        ("and who?", "Ann"),
        ("7", "Ben"),
        ("8 9", ""),
    ]
    assert values(read(path, LABELED, input="b,a"), "input")[1] == ("Ann", "and who?")
    one = write(tmp_path / "b.csv", "a,b,y\n3,four words,p\n4,five words,q\n")
    refuse(one, LABELED, "data.column", 'column "b" holds "four words"', 'column "a" numbers', input="a,b")


def test_cells_that_are_not_of_their_kind_are_reported_together(tmp_path: Path) -> None:
    lines = [
        {"text": "x", "label": "a"},
        {"text": "z", "label": "a"},
        {"text": 5, "label": "b"},
        {"text": "y"},
        {"text": "a\0", "label": "c"},
    ]
    diagnostics = Diagnostics()
    path = write_jsonl(tmp_path / "a.jsonl", lines)
    dataset = read_dataset(open_source(path), LABELED, diagnostics=diagnostics)
    assert [(problem.code, problem.cause) for problem in diagnostics.problems] == [
        ("data.column", 'a.jsonl, line 4: has no column "label"'),
        ("data.cell", 'a.jsonl, line 3: column "text" holds 5, not a text'),
        ("data.binary", 'a.jsonl, line 5: column "text" holds a NUL character'),
    ]
    assert values(dataset, "input") == ["x", "z"]
    half = write(tmp_path / "b.jsonl", '{"text": "x", "label": "\\ud800"}')
    refuse(half, LABELED, "data.binary", "b.jsonl, line 1", "surrogate")


# Further data


def test_columns_and_kinds_of_the_training_data_hold(tmp_path: Path) -> None:
    train = read(write(tmp_path / "train.csv", "id,text,label\n1,a b,p\n2,c,q\n"), LABELED)
    digits = write(tmp_path / "digits.csv", "label,note,text\np,x,12 13\nq,y,7\n")
    dataset = read(digits, LABELED, trained=train)
    assert (values(dataset, "input"), dataset.kind("input")) == (["12 13", "7"], TEXT)
    assert values(read(digits, LABELED.inputs(), trained=train), "input") == ["12 13", "7"]
    other = write(tmp_path / "other.csv", 'sentence\none\n""\n two \n')
    with pytest.warns(UserWarning, match='column "sentence" is read as input, as there is no "text"'):
        assert values(read(other, LABELED.inputs(), trained=train), "input") == ["one", "", " two "]
    assert values(read(["x", "y"], LABELED.inputs(), trained=train), "input") == ["x", "y"]
    refuse([{"text": 5}], LABELED.inputs(), "data.cell", "row 0", "not a text", trained=train)


def test_a_run_of_numbers_reads_numbers_only(tmp_path: Path) -> None:
    train = read({"x": [[1.0, 2.0], [3.0]], "label": ["p", "q"]}, LABELED)
    lines = write(tmp_path / "a.txt", "1 2.5\n\n3\n")
    assert values(read(lines, LABELED.inputs(), trained=train), "input") == [[[1.0], [2.5]], [], [[3.0]]]
    refuse(
        write(tmp_path / "b.txt", "1 2\none two\n"),
        LABELED.inputs(),
        "data.cell",
        "b.txt, line 2",
        "list of numbers",
        trained=train,
    )


def test_the_encoding_of_the_training_data_holds_unless_a_file_is_utf8(tmp_path: Path) -> None:
    options = ReadOptions("cp1252")
    train = read(write(tmp_path / "a.csv", "text,label\nété,p\n".encode("cp1252")), LABELED, options=options)
    for name, data in (("b.txt", "été\n".encode("cp1252")), ("c.txt", "été\n".encode())):
        inputs = read(write(tmp_path / name, data), LABELED.inputs(), options=options, trained=train)
        assert values(inputs, "input") == ["été"]
    wide = ReadOptions("utf-16")
    train = read(write(tmp_path / "a.csv", "text,label\nété,p\n".encode("utf-16")), LABELED, options=wide)
    inputs = read(write(tmp_path / "d.txt", "été\n".encode("utf-16")), LABELED.inputs(), options=wide, trained=train)
    assert values(inputs, "input") == ["été"]


def test_labels_may_be_read_in_any_type() -> None:
    train = read({"text": ["x", "y"], "label": ["1", "0"]}, LABELED)
    further = read({"text": ["x", "y"], "label": [1, 0]}, LABELED, trained=train)
    assert (values(further, "target"), further.kind("target")) == (["1", "0"], LABEL)


def test_what_a_source_knows_of_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "words,stars,n\ncaf\xe9,2,1\nbar,3,4\n".encode("cp1252"))
    plain = open_source(path)
    source = Source(
        "toy", plain.streams, encoding="cp1252", roles={"input": "words", "target": "stars"}, notes=("a note",)
    )
    diagnostics = Diagnostics()
    dataset = read_dataset(source, SCORED, diagnostics=diagnostics)
    assert (values(dataset, "input"), values(dataset, "target")) == (["café", "bar"], [2.0, 3.0])
    assert diagnostics.notes[0] == "a note"
    assert values(read_dataset(source, SCORED, {"target": "n"}), "target") == [1.0, 4.0]
    with pytest.raises(SeriatimError, match="is not ascii"):
        read_dataset(source, SCORED, options=ReadOptions("ascii"))
    some = Source("toy", plain.streams, encoding="cp1252", rows=(1, 2), roles=source.roles)
    assert values(read_dataset(some, SCORED), "input") == ["bar"]


def test_fingerprints_follow_the_values(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "p"}, {"text": "b", "label": "q"}]
    first = read(rows, LABELED)
    assert read(write_jsonl(tmp_path / "a.jsonl", rows), LABELED).fingerprint() == first.fingerprint()
    assert read(rows[::-1], LABELED).fingerprint() != first.fingerprint()
    assert first.take(np.array([0, 1])).fingerprint() == first.fingerprint()
    lists = [
        read({"x": [np.array(cells), [3.0]], "y": ["p", "q"]}, LABELED).fingerprint()
        for cells in ([1.0, 2.0], [1.0, 2.0], [1.0])
    ]
    assert lists[0] == lists[1] != lists[2]


def test_rows_of_nothing(tmp_path: Path) -> None:
    refuse([], LINES, "data.empty")
    train = read({"text": ["x"], "label": ["p"]}, LABELED)
    for empty in ([], write(tmp_path / "a.txt", ""), write(tmp_path / "a.csv", "text\n")):
        assert len(read(empty, LABELED.inputs(), trained=train)) == 0
        refuse(empty, LABELED, "data.empty", trained=train)
    assert len(read([("a", "b")], PAIRS)) == 1
    assert json.loads(json.dumps(read([("a", "b")], PAIRS).column_names)) == {
        "source": "column 1",
        "target": "column 2",
    }


def test_decimal_commas_are_not_two_numbers(tmp_path: Path) -> None:
    """Numbers as much of Europe writes them would be pairs of numbers, and be trained on as such."""
    path = write(tmp_path / "a.csv", "text;score\none;0,25\ntwo;1\nthree;-2,5\n")
    refuse(path, SCORED, "data.number", "score", "0,25", "decimal comma", "3.14", target="score")
    assert len(read(write(tmp_path / "b.csv", "text;score\none;0.25\ntwo;1\n"), SCORED)) == 2


def test_a_column_whose_name_has_a_comma_is_found_again() -> None:
    table = {
        "text, cleaned": ["a fine film", "a dull film"],
        "raw": ["A FINE film", "A DULL film"],
        "label": ["x", "y"],
    }
    source = open_source(table)
    trained = read_dataset(source, LABELED, {LABELED.input_role: "text, cleaned"})
    kinds = {role: trained.kind(role) for role in trained.columns}
    again = read_dataset(source, LABELED, trained_columns=trained.column_names, trained_kinds=kinds)
    assert again.column_names == trained.column_names
