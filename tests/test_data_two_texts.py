"""Two texts at once: columns of text in pairs, told from columns of numbers, and lines with a tab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.data import two_texts
from seriatim.data.examples import ExampleSettings, read, read_inputs, read_single
from seriatim.data.sequences import Parts, Sequences
from seriatim.data.two_texts_doctor import check_two_texts, holds_two_texts

ROWS = [
    {"id": n, "premise": f"a man, number {n}", "hypothesis": f"nobody is {n % 3}", "label": "ab"[n % 2]}
    for n in range(20)
]
WANTED = [(row["premise"], row["hypothesis"]) for row in ROWS]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def parts(source: Path, numeric: bool = False, **options: Any) -> Parts:
    options.setdefault("fractions", (1, 0, 0))
    return read(ExampleSettings(source=str(source), **options), numeric_target=numeric)


def refused(source: Path, code: str, *words: str, **options: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        parts(source, **options)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value), str(caught.value)


def lines_of(delimiter: str) -> str:
    quote = '"' if delimiter == "," else ""
    rows = [list(ROWS[0]), *([f"{quote}{value}{quote}" for value in row.values()] for row in ROWS)]
    return "".join(delimiter.join(row) + "\n" for row in rows)


# Tables


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("column", ["premise,hypothesis", "premise..hypothesis", None])
def test_every_form_gives_the_same_pairs(tmp_path: Path, ending: str, column: str | None) -> None:
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif ending == "jsonl":
        write(path, "".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        write(path, lines_of("," if ending == "csv" else "\t"))
    found = parts(path, column=column)
    assert found.train.inputs == WANTED
    assert found.columns == {"column": "premise,hypothesis", "target": "label"}
    assert found.features == ()
    took = f'a.{ending}: took columns "premise" and "hypothesis" as the two texts of the input'
    said = took if column is None else 'columns "premise" and "hypothesis" are the two texts of an input'
    assert said in found.notes


def test_the_order_is_that_of_the_columns_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", lines_of(","))
    turned = parts(path, column="hypothesis,premise")
    assert turned.train.inputs == [(second, first) for first, second in WANTED]
    assert turned.fingerprint != parts(path, column="premise,hypothesis").fingerprint


@pytest.mark.parametrize("names", ["sentence1,sentence2", "Sentence_A,Sentence_B", "text 1,text 2", "query,passage"])
def test_usual_names_are_guessed_and_the_target_beside_them(tmp_path: Path, names: str) -> None:
    path = write(tmp_path / "a.csv", f"{names},score\nx y,z,1.5\nu,v w,2\n")
    found = parts(path, numeric=True)
    assert found.train.inputs == [("x y", "z"), ("u", "v w")]
    assert found.train.targets == [1.5, 2.0]
    assert found.columns == {"column": names, "target": "score"}


def test_no_guess_where_there_is_doubt(tmp_path: Path) -> None:
    two = write(tmp_path / "a.csv", "premise,hypothesis,text1,text2,label\na,b,c,d,x\n")
    refused(two, "data.column", "several columns that may be the input")
    other = write(tmp_path / "b.csv", "title,body,label\na,b,x\n")
    refused(other, "data.column", "--column title", "two texts at once: --column title,body")
    numbers = write(tmp_path / "c.csv", "text,text1,text2,label\na,1,2,x\nb,3,4,y\n")
    assert parts(numbers).train.inputs == ["a", "b"]  # text1 and text2 are numbers


# Texts or numbers


def test_two_columns_of_numbers_stay_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,y\n1,2,p\n3,4,q\n")
    found = parts(path, column="a,b").train.inputs
    assert isinstance(found, Sequences)
    assert found.values[:, 0].tolist() == [1, 2, 3, 4]
    assert parts(path, column="a,b", kind="text").train.inputs == [("1", "2"), ("3", "4")]


def test_a_text_that_is_a_number_is_a_text_among_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,y\nhow many?,3,p\nand who?,Ann,q\n7,Ben,q\n8 9,,p\n,Tim,q\nx,Jo,q\n")
    found = parts(path, column="a,b").train.inputs
    assert found == [("how many?", "3"), ("and who?", "Ann"), ("7", "Ben"), ("8 9", ""), ("", "Tim"), ("x", "Jo")]


def test_one_of_text_and_one_of_numbers_is_refused(tmp_path: Path) -> None:
    for heading, row in (("a,b", "3,four words it is"), ("b,a", "four words it is,3")):
        path = write(tmp_path / "a.csv", f"{heading},y\n{row},p\n{row},q\n")
        says = ('column "b" holds "four words it is"', 'column "a" numbers', "a.csv, line 2", "data.kind=text")
        refused(path, "data.column", *says, column=heading)
        asked = parts(path, column=heading, kind="text").train.inputs
        assert asked == [tuple(row.split(","))] * 2


def test_a_slip_in_a_column_of_numbers_is_told_with_its_line(tmp_path: Path) -> None:
    """However many columns it is in: a pair of texts is never made of numbers with slips in them."""
    path = write(tmp_path / "a.csv", "a,b,y\n1,2,p\n3,n/a,q\nn/a,6,q\n7,8,q\n")
    refused(path, "data.number", "a.csv, line 3", '"n/a"', "for two texts two", column="a,b")
    lists = write(tmp_path / "b.csv", "a,b,y\n1 2,2 3,p\n3 4,5 6,q\n")
    refused(lists, "data.number", "b.csv, line 2", '"1 2", not a number', column="a,b")
    three = write(tmp_path / "c.csv", "a,b,c,y\nx,y,z,p\n")
    refused(three, "data.number", "c.csv, line 2", "for two texts two", column="a,b,c")


def test_cells_that_are_no_text(tmp_path: Path) -> None:
    rows = [{"a": ["two", "words"], "b": "x", "y": "p"}, {"a": [], "b": "z", "y": "q"}, {"a": None, "b": "u", "y": "q"}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert parts(path, column="a,b").train.inputs == [("two words", "x"), ("", "z"), ("", "u")]
    for bad, says in ((7, "holds 7, not a text"), ([1, 2], "holds [1, 2], not a text")):
        rows[1]["a"] = bad
        write(path, "".join(json.dumps(row) + "\n" for row in [*rows, rows[0], rows[0]]))
        refused(path, "data.column", "a.jsonl, line 2", 'column "a"', says, column="a,b")


# Empty cells, repeats, parts


def test_a_row_of_nothing_is_left_out_and_one_of_half_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'premise,hypothesis,y\na,b,p\n, ,q\nc,,q\n" ",d,p\n')
    found = parts(path)
    assert found.train.inputs == [("a", "b"), ("c", ""), (" ", "d")]
    assert found.train.targets == ["p", "q", "p"]
    assert "left out 1 rows of two empty texts (the first: a.csv, line 3)" in found.notes
    assert "2 examples have one text of two, the other is empty (the first: a.csv, line 4)" in found.notes


def test_repeats_are_of_both_texts(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", "text1,text2,y\na,b,p\nc,d,q\n")
    test = write(tmp_path / "b.csv", "y,text1,text2\np,a,b\np,a,d\nq,b,a\n")
    found = parts(train, test=str(test), fractions=(0.8, 0.1, 0.1), valid=str(test))
    assert found.test.inputs == [("a", "b"), ("a", "d"), ("b", "a")]
    assert "1 of 3 test examples have an input that is in the training part too" in found.notes


def test_another_file_of_digits_is_read_as_texts(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", "text1,text2,y\na x,b,p\nc,d,q\n")
    test = write(tmp_path / "b.csv", "text1,text2,y\n1,2,p\n")
    assert parts(train, test=str(test), valid=str(test)).test.inputs == [("1", "2")]


def test_a_column_that_is_input_says_no_part(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "set,text,y\ntrain,a b,p\ntest,c,q\ntest,d,p\n")
    assert len(parts(path, column="set,text", target="y").train) == 3


# What a trained model is given


def test_columns_of_the_training_are_taken_again(tmp_path: Path) -> None:
    known = {"column": "premise,hypothesis", "target": "y"}
    settings = ExampleSettings(source="train.csv")
    more: dict[str, Any] = {"numeric_input": False, "columns": known, "pairs": True}
    path = write(tmp_path / "a.csv", "note,hypothesis,premise,y\nn,42,7,p\nn,,,q\n")
    assert read_inputs(str(path), settings, **more).inputs == [("7", "42"), ("", "")]
    told: list[str] = []
    assert read_single(str(path), settings, notify=told.append, **more).inputs == [("7", "42")]
    named = ExampleSettings(source="train.csv", column="a,b")
    other = write(tmp_path / "b.csv", "a,b\nx,y\n")
    assert read_inputs(str(other), named, **more).inputs == [("x", "y")]
    with pytest.raises(SeriatimError, match='no column "premise"'):
        read_inputs(str(other), settings, **more)


def test_one_text_for_a_model_of_two_and_the_reverse(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.csv", "a,b,y\nx,u,p\nz,v,q\n"))
    for read_it in (read_inputs, read_single):
        one = ExampleSettings(source="t", column="a", target="y")
        with pytest.raises(SeriatimError, match=r'(?s)gives one input.*"a".*--column first,second') as caught:
            read_it(path, one, numeric_input=False, pairs=True)
        assert caught.value.code == "data.pair"
        two = ExampleSettings(source="t", column="a,b", target="y")
        with pytest.raises(SeriatimError, match=r'(?s)two texts at once.*"a" and "b".*--column a'):
            read_it(path, two, numeric_input=False, pairs=False)


def test_lines_with_a_tab(tmp_path: Path) -> None:
    settings = ExampleSettings(source="t")
    lines = write(tmp_path / "a.txt", "one\ttwo\n\t\nthree \t\n")
    found = read_inputs(str(lines), settings, numeric_input=False, pairs=True)
    assert found.inputs == [("one", "two"), ("", ""), ("three ", "")]
    assert read_inputs(str(lines), settings, numeric_input=False, pairs=False).inputs[0] == "one\ttwo"  # type: ignore[index]
    write(lines, "one\ttwo\nthree\n\na\tb\tc\n")
    with pytest.raises(SeriatimError) as caught:
        read_inputs(str(lines), settings, numeric_input=False, pairs=True)
    assert caught.value.code == "data.pair"
    for says in ('a.txt, line 2: "three"', 'a.txt, line 3: ""', 'a.txt, line 4: "a\\tb\\tc"'):
        assert says in caught.value.cause


def test_many_lines_without_a_tab_are_counted() -> None:
    with pytest.raises(SeriatimError, match=r"text 5: \"x\" \(and 4 more\)"):
        two_texts.of_lines(["x"] * 9, True, lambda index: f"text {index + 1}")


def test_lines_for_a_model_that_takes_both() -> None:
    """One that was trained elsewhere does not say what it was trained on."""
    place = str
    assert two_texts.of_lines(["a\tb", "c\td"], None, place) == [("a", "b"), ("c", "d")]
    assert two_texts.of_lines(["a\tb", "c"], None, place) == ["a\tb", "c"]
    assert two_texts.of_lines(["a\tb"], False, place) == ["a\tb"]


# The doctor


def test_the_doctor_counts_what_is_odd_in_two_columns(tmp_path: Path) -> None:
    rows = "a man,a dog,p\na man,a dog,q\na man,,p\nsame,same,q\n,,p\na b c,x,p\na b c,x,p\n"
    report = check_two_texts(str(write(tmp_path / "a.csv", f"premise,hypothesis,label\n{rows}")))
    assert report.usable
    assert (report.examples, report.empty, report.half) == (6, 1, 1)
    assert (report.duplicates, report.contradictions, report.identical) == (2, 1, 1)
    assert report.targets == [("p", 4), ("q", 2)]
    assert [side.longest for side in report.sides.values()] == [3, 2]
    assert list(report.sides) == ["premise", "hypothesis"]
    assert sum(report.split.values()) == 6
    assert "rows of which one text is empty: 1 (a.csv, line 4)" in report.remarks


def test_the_doctor_tells_all_troubles(tmp_path: Path) -> None:
    rows = [
        {"a": "x", "b": "y", "y": "p"},
        {"a": 7, "b": "y", "y": "p"},
        {"a": "x", "b": [1], "y": "q"},
        {"a": "x", "b": "y", "y": None},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + "{\n")
    report = check_two_texts(str(path), "a,b", "y")
    found = {problem.code: problem.count for problem in report.problems}
    assert found == {"data.label": 1, "data.jsonl": 1, "data.column": 2}


def test_data_check_knows_two_texts_from_pairs_to_translate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\na b\tc\tp\nd\te\tq\n")
    assert holds_two_texts(str(two), None, None)
    assert cli(["data", "check", str(two)]) == 0
    assert "hypothesis: words a text" in capsys.readouterr().out
    pairs = str(write(tmp_path / "b.csv", "source,target\na,b\n"))
    assert not holds_two_texts(pairs, None, None)
    assert holds_two_texts(pairs, "source,target", None)
    assert not holds_two_texts(str(write(tmp_path / "c.csv", "a,b\n1,2\n")), "a,b", None)
    assert not holds_two_texts(str(write(tmp_path / "d.txt", "a\tb\n")), None, None)
    assert not holds_two_texts(pairs, "source,nothing", None)
