"""The data check: all problems together, statistics by kind, and which tasks data fits."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from data_schemas import LABELED, PAIRS, SCORED, STREAM, read, write, write_jsonl
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data import examine as examine_module
from seriatim.data.check import check, check_data
from seriatim.data.dataset import Dataset
from seriatim.data.examine import DataReport
from seriatim.data.kinds import TEXT, Kind
from seriatim.data.schema import Field, Schema
from seriatim.tasks import load_all

SCHEMAS = {"classify": LABELED, "regress": SCORED, "translate": PAIRS, "language": STREAM}


def examine(spec: Any, task: str | None = None, **options: Any) -> DataReport:
    return check_data(spec, SCHEMAS, task, **options)


def problems(report: DataReport) -> dict[str, int]:
    return {problem.code: problem.count for problem in report.problems}


def facts(report: DataReport, role: str) -> dict[str, str]:
    return next(column.statistics for column in report.columns if column.role == role)


# The check of training


def problems_of(dataset: Dataset, schema: Schema) -> list[SeriatimError]:
    diagnostics = Diagnostics()
    check(dataset, schema, diagnostics)
    return diagnostics.problems


def test_missing_cells() -> None:
    diagnostics = Diagnostics()
    rows = [("a b", "p"), ("a b", "q"), ("c", "p"), ("", "p"), ("d", "")]
    check(read([{"text": t, "label": y} for t, y in rows], LABELED), LABELED, diagnostics)
    assert [(problem.code, problem.cause) for problem in diagnostics.problems] == [
        ("data.blank", "records, row 3: the input is empty"),
        ("data.label", "records, row 4: the target is missing"),
    ]


def test_one_of_two_texts_may_be_empty_and_no_number() -> None:
    texts = read({"premise": ["a", "", ""], "hypothesis": ["b", "c", ""], "label": ["p", "q", "p"]}, LABELED)
    assert [problem.cause for problem in problems_of(texts, LABELED)] == ["columns, row 2: the input is empty"]
    numbers = read({"a": [1, None], "b": [2, 3], "y": ["p", "q"]}, LABELED, input="a,b")
    assert [problem.code for problem in problems_of(numbers, LABELED)] == ["data.number"]
    score = read({"text": ["x", "y"], "y": [1.0, None]}, SCORED)
    assert problems_of(score, SCORED)[0].cause == 'columns, row 1: column "y": the number is missing'


def test_constraints_run() -> None:
    def no_x(dataset: Dataset, diagnostics: Diagnostics) -> None:
        for row, text in enumerate(dataset["text"]):
            if "x" in text:
                diagnostics.report("data.x", f"{dataset.locations[row]}: an x")

    schema = Schema((Field("text", (TEXT,)),), constraints=(no_x,))
    assert [problem.cause for problem in problems_of(read(["a", "x"], schema), schema)] == ["inputs, row 1: an x"]


# Streams of text


def test_sound_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "".join(f"line {n} x\n" for n in range(1000)))
    report = examine(path)
    assert (report.task, report.verdict, report.warnings) == ("language", "ready", [])
    assert report.bytes == path.stat().st_size
    assert sum(report.split.values()) == pytest.approx(report.bytes, abs=2)
    assert report.columns[0].histogram == [(0, 0, 0), (1, 1, 0), (2, 3, 0), (4, 7, 0), (8, 15, 1000)]
    text = facts(report, "text")
    assert text["lines"] == "1,000, of which 0 are empty"
    assert text["words"] == "3,000, 1,002 distinct, 100% of them once"
    assert int(text["words unseen in training"]) == pytest.approx(200, abs=25)
    assert report.histograms["lengths of block (characters per line)"][-1] == ("8–15", 1000)


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    data = b"good line\n" * 50 + b"\n\xe9t\xe9\nwin\r\nold\rmac\nbell\x07\n" + b"good line\n" * 40
    path = write(tmp_path / "a.txt", data + "lost \ufffd\n".encode() + "late ☃ ☃\n".encode())
    report = examine(path)
    assert problems(report) == {"data.encoding": 2}
    assert "line 52" in report.problems[0].examples[0]
    assert "one encoding only" in report.problems[0].remedy  # two of Latin-1 among characters of UTF-8
    assert report.verdict == "not usable as it is: 2 problems"
    assert not report.usable
    warnings = " ".join(report.warnings)
    for word in (
        "% of the lines repeat",
        "1 control characters (first in lines 55)",
        "1 carriage returns",
        "only behind",
    ):
        assert word in warnings
    text = facts(report, "text")
    assert text["lines that repeat an earlier one"] == "89"
    assert text["repeated most often"] == '90 × "good line"'
    assert '"☃" 2' in text["characters unseen in training"]
    nul = examine(write(tmp_path / "b.txt", b"a\nb\0\n"))
    assert problems(nul) == {"data.binary": 1}
    assert "line 2" in nul.problems[0].examples[0]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    broken = write(tmp_path / "a.txt.gz", gzip.compress(b"0123456789\n" * 500_000)[:-4000])
    assert problems(examine(broken, "language")) == {"data.broken": 1}
    assert problems(examine(write(tmp_path / "empty.txt", ""), "language")) == {"data.empty": 1}
    with pytest.raises(SeriatimError, match="no file or data set"):
        examine(tmp_path / "nothing.txt")
    with pytest.raises(SeriatimError, match="no text encoding"):
        examine(write(tmp_path / "b.txt", "x"), encoding="utf-9")


def test_many_lines_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_module, "MAX_HASHES", 500)
    monkeypatch.setattr(examine_module, "MAX_WORDS", 1000)
    path = write(tmp_path / "a.txt", "".join(f"line {n}\n" for n in range(20_000)) * 2 + "word " * 30_000 + "\n")
    report = examine(path)
    text = facts(report, "text")
    about, count = text["lines that repeat an earlier one"].split()
    assert about == "about"
    assert int(count.replace(",", "")) == pytest.approx(20_000, rel=0.3)
    assert "at least" in text["words"]
    assert "line 40,001 has 150,000 characters" in report.warnings


# Tables


def test_every_bad_row_is_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", '{"text": "one"}\nnot json\n{"text": 5}\n{"u": "x"}\n{"text": "two\\nlines"}\nalso not\n'
    )
    assert problems(examine(path, "language")) == {"data.jsonl": 2, "data.cell": 1, "data.column": 1}
    rows = write(tmp_path / "a.csv", "n,text\n1,a\n2,b,c\n3,d\n4\n")
    assert problems(examine(rows, "language")) == {"data.csv": 2}
    two = [
        {"a": "x", "b": "y", "y": "p"},
        {"a": 7, "b": "y", "y": "p"},
        {"a": "x", "b": [1], "y": "q"},
        {"a": "x", "b": "y", "y": None},
    ]
    path = write_jsonl(tmp_path / "b.jsonl", [*two, two[0], two[0]])
    report = examine(path, "classify", column="a,b", target="y")
    assert problems(report) == {"data.cell": 2, "data.label": 1}


def test_two_texts(tmp_path: Path) -> None:
    rows = "a man,a dog,p\na man,a dog,q\na man,,p\nsame,same,q\na b c,x,p\na b c,x,p\n"
    report = examine(write(tmp_path / "a.csv", f"premise,hypothesis,label\n{rows}"))
    assert (report.task, report.usable, report.rows) == ("classify", True, 6)
    assert report.statistics["rows that repeat an earlier input"] == "2"
    assert "1 inputs have more than one target" in report.warnings
    assert "rows with one empty text: 1 (a.csv, line 4)" in report.warnings
    assert "rows with the same text on both sides: 1 (a.csv, line 5)" in report.warnings
    assert facts(report, "target")["distinct"] == '2; the most frequent: "p" 4, "q" 2'
    assert [column.column for column in report.columns] == ["premise", "hypothesis", "label"]
    assert "at most 3 (a.csv, line 6)" in report.columns[0].statistics["words per text"]
    assert any("6 rows are too few to split" in warning for warning in report.warnings)


def test_pairs(tmp_path: Path) -> None:
    lines = [f"Sentence number {n} is here.\tVoici la phrase {n}." for n in range(100)]
    lines += ["Same.\tSame.", "One two three four five six seven eight nine ten.\tUn."]
    report = examine(write(tmp_path / "a.txt", "\n".join(lines)))
    assert report.task == "translate"
    assert "rows with the same text on both sides: 1 (a.txt, line 101)" in report.warnings
    assert "rows with one text much longer than the other: 1 (a.txt, line 102)" in report.warnings


def test_predefined_splits(tmp_path: Path) -> None:
    write(tmp_path / "d/train.csv", "text,label\nold words,a\nmore words,b\n")
    write(tmp_path / "d/test.csv", "text,label\nnew words,a\nbad\n")
    report = examine(tmp_path / "d")
    assert report.split == {"train": 2, "test": 1}
    assert facts(report, "input")["words unseen in training"] == "1"
    assert problems(report) == {"data.csv": 1}


def test_labels(tmp_path: Path) -> None:
    table = {"text": [f"t{n}" for n in range(40)], "label": ["a"] * 36 + ["b"] * 4}
    assert "labels with fewer than 10 rows: b" in examine(table).warnings
    assert any("nothing to learn" in warning for warning in examine({"text": ["x", "y"], "label": ["a", "a"]}).warnings)


def test_kinds_examine_their_columns() -> None:
    def examine_values(values: Any) -> tuple[list[str], dict[int, SeriatimError]]:
        error = SeriatimError("thing.bad", "a bad thing", "replace it")
        return [f"{len(values)} things"], {row: error for row, value in enumerate(values) if value == "bad"}

    kind = Kind("thing", str, examine=examine_values)
    schema = Schema((Field("thing", (kind,)),))
    report = check_data({"thing": ["good", "bad"]}, {"task": schema})
    assert problems(report) == {"thing.bad": 1}
    assert report.problems[0].examples == ["columns, row 1: a bad thing"]
    assert facts(report, "thing")["thing"] == "2 things"


# Tasks


def test_which_tasks_data_fits(tmp_path: Path) -> None:
    reviews = {"text": ["a b", "c d"], "label": ["p", "q"]}
    verdicts = examine(reviews).fits
    assert verdicts["classify"] == "yes: target = label, input = text"
    assert verdicts["regress"].startswith("no: ")
    assert verdicts["language"] == "yes: text = text"
    assert examine(reviews).task == "classify"
    assert examine({"text": ["a b", "c d"], "y": [1.5, 2.5]}, "regress").usable
    assert examine({"source": ["a"], "target": ["b"]}).task == "translate"
    nothing = examine({"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    assert problems(nothing) == {"data.column": 1}
    assert len(nothing.problems[0].examples) == 1, "the reasons are among the tasks"
    assert len(nothing.fits) == len(SCHEMAS)
    assert problems(examine(reviews, "regress")) == {"data.column": 1}


def test_columns_of_numbers_are_no_pairs_of_texts(tmp_path: Path) -> None:
    for text in ("Nr;Datum\n1;2022-01-01\n2;2022-01-02\n", "Wert;Menge\n0,25;1,5\n0,75;2,5\n"):
        verdict = examine(write(tmp_path / "a.csv", text)).fits["translate"]
        assert verdict == "no: column 1 holds numbers or times, not text"
    assert examine(write(tmp_path / "b.tsv", "Go.\tVa !\nRun!\tCours !\n")).task == "translate"


def test_columns_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "title,body\na,text one\nb,text two\n")
    report = examine(path, "language", column="body")
    assert (report.rows, facts(report, "text")["words"]) == (2, "4, 3 distinct, 67% of them once")


def test_the_report_as_text_and_json(tmp_path: Path) -> None:
    report = examine(write(tmp_path / "a.csv", "text,label\nx,a\ny\n"), "classify")
    text = str(report)
    for word in (
        "a.csv: not usable as it is: 1 problem",
        "[data.csv] once",
        "a.csv, line 3",
        "remedy:",
        "tasks",
        "input: words",
    ):
        assert word in text
    values = json.loads(json.dumps(report.to_json()))
    assert (values["usable"], values["task"], values["problems"][0]["count"]) == (False, "classify", 1)


# Files that are no tables


@pytest.mark.parametrize("seed", range(8))
def test_bytes_that_are_no_table_are_reported_as_binary(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path / "binary.csv", b"\0" + random.Random(seed).randbytes(5000))
    report = check_data(path, {name: task.schema for name, task in load_all().items()})
    assert report.problems[0].code == "data.binary"
    assert "a NUL byte, so this is not plain text" in report.problems[0].examples[0]


def test_any_bytes_give_a_report(tmp_path: Path) -> None:
    """The schema that joins extra cells needs a header to join them by, which broken quoting or no name leaves out."""
    schemas = {name: task.schema for name, task in load_all().items()}
    generator = random.Random(0)
    tables = ['"\n\na,b\nc,d,e\n', "\n\na,b,c\n", '"a"b\nc,d\ne,f,g\n']
    tables += ["".join(generator.choices(',;\t|"\n\r ab1.0\0\ufffd', k=size)) for size in (1, 3, 20, 100, 300) * 20]
    for table in tables:
        report = check_data(write(tmp_path / "any.csv", table), schemas)
        assert set(report.fits) == set(schemas), table


def test_a_file_that_fits_no_task_says_why_it_cannot_be_read(tmp_path: Path) -> None:
    report = check_data(write(tmp_path / "latin.csv", "a\n\xe9\n".encode("latin-1")), {"translate": PAIRS})
    assert problems(report) == {"data.encoding": 1}


# Which task is checked

ALL_SCHEMAS = {name: task.schema for name, task in load_all().items()}


@pytest.mark.parametrize("column", ["id", "stars"])
def test_a_column_of_single_values_is_not_guessed_to_be_choices_or_answers(column: str) -> None:
    rows = [{"text": f"the text of {n}", column: str(n + 50), "label": "pq"[n % 2]} for n in range(40)]
    report = check_data(rows, ALL_SCHEMAS)
    assert (report.task, problems(report)) == ("classify", {})
    assert report.fits["choose"].startswith("no: ")
    assert report.fits["answer"].startswith("no: ")


@pytest.mark.parametrize("cell", [["red", "green"], '["red", "green"]', {"text": ["red", "green"]}])
def test_a_column_of_lists_is_guessed_to_be_choices(cell: Any) -> None:
    rows = [{"question": f"which color is {n}?", "candidates": cell, "label": n % 2} for n in range(40)]
    assert "choices = candidates" in check_data(rows, ALL_SCHEMAS).fits["choose"]


def test_a_task_with_problems_gives_way_to_one_that_predicts_the_same_column() -> None:
    rows = [{"context": f"it is {n}", "question": f"what is {n}?", "answer": "a number"} for n in range(40)]
    report = check_data(rows, ALL_SCHEMAS)
    assert (report.task, report.usable) == ("translate", True)
    assert "not usable for answer, checked for translate: 40 problems" in report.warnings[0]
    assert not check_data(rows, ALL_SCHEMAS, "answer").usable
    unlabeled = [{"text": f"text {n}", "label": "pq"[n % 2] if n else ""} for n in range(40)]
    assert problems(check_data(unlabeled, ALL_SCHEMAS)) == {"data.label": 1}, "though a language model can read them"


def test_class_folders_of_several_splits_are_checked(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for label in ("pos", "neg"):
            folder = tmp_path / part / label
            folder.mkdir(parents=True)
            for n in range(20):
                write(folder / f"{n}.txt", f"{part} {label} {n}")
    report = check_data(str(tmp_path), ALL_SCHEMAS, "classify")
    assert (report.usable, report.split) == (True, {"train": 40, "test": 40})
    assert "words" in facts(report, "input")


def test_a_folder_of_one_class_names_the_folder_above(tmp_path: Path) -> None:
    for n in range(120):  # more than are sampled
        write(tmp_path / f"{n}_8.txt", f"text {n}\n")
    report = check_data(str(tmp_path), ALL_SCHEMAS, "classify")
    assert problems(report) == {"data.column": 1}
    assert "has no folders of classes" in report.problems[0].examples[0]
    assert "name the folder above" in report.problems[0].remedy
    assert check_data(str(tmp_path), ALL_SCHEMAS, "language").usable


def test_a_header_alone_is_no_pair(tmp_path: Path) -> None:
    report = check_data(write(tmp_path / "header.csv", "text,label\n"), ALL_SCHEMAS)
    assert problems(report) == {"data.empty": 1}
    assert report.problems[0].examples == ["header.csv has no rows"]
    assert check_data(write(tmp_path / "pair.csv", "Go.,Va !\n"), ALL_SCHEMAS).task == "translate"
