"""Tables: every format gives the same rows, and malformed ones are reported by file and line."""

from __future__ import annotations

import gzip
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_schemas import LABELED, LINES, PAIRS, SCORED, read, refuse, values, write, write_jsonl
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats import ReadOptions, find_format, read_records
from seriatim.data.reader import format_options, read_dataset
from seriatim.data.source import open_source

ROWS = [{"id": n, "text": f"film, number {n}", "label": "ab"[n % 2], "score": n / 4} for n in range(20)]


def csv_of(records: list[dict[str, Any]], delimiter: str = ",") -> str:
    def cell(value: Any) -> str:
        return f'"{value}"' if delimiter in str(value) and delimiter != "\t" else str(value)

    rows = [list(records[0]), *(record.values() for record in records)]
    return "".join(delimiter.join(cell(value) for value in row) + "\n" for row in rows)


def tables(folder: Path) -> list[Path]:
    """Returns the same table in every format."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [list(ROWS[0]), *(list(record.values()) for record in ROWS)]:
        book.active.append(row)
    book.save(folder / "r.xlsx")
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "r.parquet")
    with zipfile.ZipFile(folder / "r.zip", "w") as archive:
        archive.writestr("in/r.csv", csv_of(ROWS))
        archive.writestr("notes.txt", "no table")
        archive.write(folder / "r.parquet", "in/more/r.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    return [
        write(folder / "r.csv", csv_of(ROWS)),
        write(folder / "semicolons.csv", csv_of(ROWS, ";")),
        write(folder / "r.tsv", csv_of(ROWS, "\t")),
        write(folder / "utf16.tsv", csv_of(ROWS, "\t").encode("utf-16")),
        write(folder / "r.jsonl", lines),
        write(folder / "other.data", lines),
        write(folder / "r.json", json.dumps(ROWS)),
        write(folder / "data.json", json.dumps({"data": ROWS}, indent=1)),
        folder / "r.parquet",
        folder / "r.xlsx",
        write(folder / "r.csv.gz", gzip.compress(csv_of(ROWS).encode())),
        write(folder / "r.parquet.gz", gzip.compress((folder / "r.parquet").read_bytes())),
        folder / "r.zip/in/r.csv",
        folder / "r.zip/in/more/r.parquet",
    ]


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    fingerprints = set()
    for path in tables(tmp_path):
        options = ReadOptions("utf-16" if "utf16" in path.name else "utf-8")
        dataset = read(path, LABELED, options=options)
        assert values(dataset, "input") == [row["text"] for row in ROWS], path
        assert values(dataset, "target") == [row["label"] for row in ROWS], path
        fingerprints.add(dataset.fingerprint())
        scores = read(path, SCORED, options=options, input="text", target="score")
        assert values(scores, "target") == [row["score"] for row in ROWS], path
    assert len(fingerprints) == 1


def test_locations(tmp_path: Path) -> None:
    tables(tmp_path)
    firsts = {
        "r.csv": "line 2",
        "r.tsv": "line 2",
        "r.jsonl": "line 1",
        "r.json": "record 1",
        "r.parquet": "row 1",
        "r.xlsx": "row 2",
    }
    for name, place in firsts.items():
        assert str(read(tmp_path / name, LABELED).locations[0]) == f"{name}, {place}"
    cells = write(tmp_path / "lines.csv", 'text,label\n"two\nlines",a\nb,c\n')
    assert [location.number for location in read(cells, LABELED).locations] == [2, 4]


def test_tsv_has_no_quoting_and_csv_has(tmp_path: Path) -> None:
    assert values(read(write(tmp_path / "a.tsv", 'n\ttext\n1\t"open\n2\tclosed\n'), LINES), "text") == [
        '"open',
        "closed",
    ]
    path = write(tmp_path / "a.csv", 'n,text\n1,"a ""b"", c\r\nd"\n2,\n')
    assert values(read(path, LINES), "text") == ['a "b", c\nd', ""]


def test_delimiters(tmp_path: Path) -> None:
    for name, delimiter in (("semicolons", ";"), ("bars", "|"), ("tabs", "\t")):
        diagnostics = Diagnostics()
        path = write(tmp_path / "a.csv", f"text{delimiter}label\nx{delimiter}y\n")
        assert values(read(path, LABELED, diagnostics), "target") == ["y"]
        assert f"a.csv: its columns are separated by {name}" in diagnostics.notes
    assert values(read(write(tmp_path / "b.csv", "text,label;a;b\nx,y\n"), LABELED), "input") == ["x"]


def test_malformed_rows_are_reported_together(tmp_path: Path) -> None:
    error = refuse(
        write(tmp_path / "a.csv", 'n,text\n1,"two\nlines"\n2,b,c\n3,d\n4\n'),
        LINES,
        "data.csv",
        "line 4: 3 cells",
        "header has 2",
    )
    assert "a.csv, line 6: 1 cells" in error.cause
    refuse(write(tmp_path / "b.csv", 'n,text\n1,"a"b\n2,c\n'), LINES, "data.csv", "b.csv, line 2")
    refuse(write(tmp_path / "c.csv", 'n,text\n1,"open\n'), LINES, "data.csv", "c.csv, line 2")
    error = refuse(
        write(tmp_path / "a.jsonl", '{"text": "a"}\n\n{"text": \n["a"]\n'), LINES, "data.jsonl", "a.jsonl, line 3"
    )
    assert "line 4: list, not an object" in error.cause
    refuse(write(tmp_path / "a.json", '[{"text": 1'), LINES, "data.json", "a.json")
    refuse(write(tmp_path / "b.json", '{"other":\n1}'), LINES, "data.json", "not an array")
    refuse(write(tmp_path / "a.parquet", b"PAR1 no"), LINES, "data.parquet", "a.parquet")
    refuse(write(tmp_path / "a.xlsx", b"no"), LINES, "data.excel", "a.xlsx")


def test_a_last_cell_with_unquoted_delimiters(tmp_path: Path) -> None:
    from dataclasses import replace

    path = write(tmp_path / "a.csv", "label,text\np,one, two, three\n")
    refuse(path, LABELED, "data.csv")
    assert values(read(path, replace(LABELED, join_extra=True)), "input") == ["one, two, three"]


def test_columns_of_one_name(tmp_path: Path) -> None:
    path, diagnostics = write(tmp_path / "a.csv", "text,label,label\nx,a,b\n"), Diagnostics()
    refuse(path, LABELED, "data.column", 'no column "label"', "label (column 2)", target="label")
    assert values(read(path, LABELED, diagnostics, input="text", target="label (column 3)"), "target") == ["b"]
    assert '2 of its columns are named "label"' in diagnostics.notes[0]
    assert values(read(write(tmp_path / "b.csv", "n,n,text\n1,2,a\n"), LINES), "text") == ["a"]


# Tables without a header


def test_headers_are_told_from_rows(tmp_path: Path) -> None:
    rows = "Go.\tVa !\nHi.\tSalut !\n"
    for head in ("", "source\ttarget\n", "src\ttgt\n", "EN\tFR\n"):
        dataset = read(write(tmp_path / "a.tsv", head + rows), PAIRS)
        assert values(dataset, "source") == ["Go.", "Hi."]
        assert dataset.locations[0].number == 1 + bool(head)
    assert len(read(write(tmp_path / "b.tsv", "Source?\tCible ?\n" + rows), PAIRS)) == 3
    diagnostics = Diagnostics()
    assert len(read(write(tmp_path / "c.csv", "Go.,Va !\nHi.,Salut !\n"), PAIRS, diagnostics)) == 2
    assert any("the first line is taken for a row" in note for note in diagnostics.notes)
    named = write(tmp_path / "d.tsv", "left\tright\n" + rows)
    assert values(read(named, PAIRS, source="right", target="left"), "source") == ["Va !", "Salut !"]


def test_wide_and_short_rows_without_a_header(tmp_path: Path) -> None:
    path, diagnostics = write(tmp_path / "a.txt", "a\tb\tc\nd\te\n\nf\tg\th\ti\n"), Diagnostics()
    dataset = read(path, PAIRS, diagnostics)
    assert values(dataset, "source") == ["a", "d", "", "f"]
    assert any("not read" in note for note in diagnostics.notes)
    refuse(write(tmp_path / "b.txt", "a\tb\nc\n"), PAIRS, "data.csv", "b.txt, line 2: no target", "1 column")
    assert values(read(path, PAIRS, source="2", target="1"), "source") == ["b", "e", "", "g"]


def test_text_with_tabs_is_a_table_if_the_task_needs_columns(tmp_path: Path) -> None:
    tabbed = write(tmp_path / "a.txt", "one\ttwo\nthree\tfour\n")
    some = write(tmp_path / "b.txt", "one\ttwo\nthree\n")
    assert values(read(tabbed, LINES), "text") == ["one\ttwo", "three\tfour"]
    assert values(read(tabbed, PAIRS.inputs()), "source") == ["one", "three"]
    assert values(read(some, PAIRS.inputs()), "source") == ["one\ttwo", "three"]


# Several files


def test_tables_among_other_files(tmp_path: Path) -> None:
    write(tmp_path / "d/r-1.csv", "text,label\nx,a\n")
    write(tmp_path / "d/r-2.csv", "text,label\ny,b\n")
    write(tmp_path / "d/notes.txt", "about")
    diagnostics = Diagnostics()
    assert values(read(tmp_path / "d", LABELED, diagnostics), "input") == ["x", "y"]
    assert "d: 1 files that are not tables are left out" in diagnostics.notes
    write(tmp_path / "d/other.csv", "text,label\nx,a\n")
    refuse(tmp_path / "d", LABELED, "data.several", "d/other.csv", "--data")


def test_unknown_formats(tmp_path: Path) -> None:
    refuse(write(tmp_path / "c.pdf", b"%PDF"), LINES, "data.binary", ".pdf")
    write(tmp_path / "bin/a.so", b"\x7fELF")
    write(tmp_path / "bin/b.so", b"\x7fELF")
    refuse(tmp_path / "bin", LINES, "data.empty", "a.so")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.parquet"])
def test_empty_files(tmp_path: Path, name: str) -> None:
    if name == "a.parquet":
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / name)
    else:
        write(tmp_path / name, b"")
    refuse(tmp_path / name, LINES, "data.empty", name)


def test_records_may_be_read_without_a_schema(tmp_path: Path) -> None:
    source = open_source(write_jsonl(tmp_path / "a.jsonl", [{"a": 1}, {"a": [2]}]))
    assert type(find_format(source)).__name__ == "JsonLines"
    assert [record.values for record in read_records(source, ReadOptions(), Diagnostics())] == [{"a": 1}, {"a": [2]}]


def test_missing_dependency_of_excel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openpyxl", None)
    source = open_source(write(tmp_path / "a.xlsx", b""))
    with pytest.raises(SeriatimError, match="needs openpyxl") as caught:
        read_dataset(source, LINES)
    assert caught.value.code == "dependency.missing"
    assert format_options(LINES, ReadOptions()).tabs == "never"


def test_reading_a_workbook_hides_no_warnings_of_others(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["text"], ["a"], ["b"]):
        book.active.append(row)
    book.save(tmp_path / "r.xlsx")
    before = list(warnings.filters)
    for _ in read_records(open_source(tmp_path / "r.xlsx"), ReadOptions(), Diagnostics()):
        assert warnings.filters == before
