"""The data doctor reports all troubles at once, and the commands around it."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seriatim.cli.data import app
from seriatim.core.errors import SeriatimError
from seriatim.data import doctor
from seriatim.data.doctor import check


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_sound_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i} x\n" for i in range(1000)))
    report = check(path)
    assert (report.verdict, report.problems, report.remarks) == ("ready", [], [])
    assert (report.lines, report.empty_lines, report.documents, report.duplicates) == (1000, 0, 1, 0)
    assert report.characters == report.bytes == path.stat().st_size
    assert report.histogram == [(0, 0, 0), (1, 1, 0), (2, 3, 0), (4, 7, 0), (8, 15, 1000)]
    assert sum(report.split.values()) == report.characters
    assert (report.words, report.distinct_words) == (3000, 1002)
    assert report.hapax_share == pytest.approx(1000 / 1002)
    assert report.unseen_words == pytest.approx(100, abs=12)
    assert report.other_encoding is None


def test_all_troubles_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    data = b"good line\n" * 50 + b"\n\xe9t\xe9\nwin\r\nold\rmac\nnul\0\nbell\x07\n" + b"good line\n" * 40
    path.write_bytes(data + "lost \ufffd\n".encode() + "late ☃ ☃\n".encode())
    report = check(path)
    problems = {problem.code: problem for problem in report.problems}
    assert set(problems) == {"data.encoding", "data.binary"}
    assert problems["data.encoding"].count == 2
    assert "line 52" in problems["data.encoding"].examples[0]
    assert "line 55" in problems["data.binary"].examples[0]
    assert report.verdict == "not usable as it is: 3 problems"
    assert not report.usable
    assert (report.crlf, report.lone_cr, report.controls, report.replacements) == (1, 1, 2, 1)
    assert report.control_lines == [55, 56]
    assert report.duplicates == 89
    assert report.duplicate_examples == [("good line", 90)]
    assert report.unseen_characters[0] == ("☃", 2)
    assert report.other_encoding == "cp1252"
    assert any("% of the lines repeat" in remark for remark in report.remarks)


def test_every_bad_row_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": "one"}\nnot json\n{"t": 5}\n{"u": "x"}\n{"t": "two\\nlines"}\nalso not\n')
    report = check(path)
    assert {problem.code: problem.count for problem in report.problems} == {"data.jsonl": 2, "data.column": 2}
    assert (report.documents, report.lines) == (2, 3)
    rows = tmp_path / "a.csv"
    rows.write_text("n,text\n1,a\n2,b,c\n3,d\n4\n")
    assert [(problem.code, problem.count) for problem in check(rows).problems] == [("data.csv", 2)]


def test_what_breaks_off_is_reported_with_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"0123456789\n" * 500_000)[:-4000])
    report = check(path)
    assert [problem.code for problem in report.problems] == ["data.broken"]
    assert report.lines > 1000
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert [problem.code for problem in check(empty).problems] == ["data.empty"]
    with pytest.raises(SeriatimError, match="no file or data set"):
        check(tmp_path / "nothing.txt")


def test_many_lines_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MOST_HASHES", 500)
    monkeypatch.setattr(doctor, "MOST_WORDS", 1000)
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i}\n" for i in range(20_000)) * 2)
    report = check(path)
    assert report.duplicates_estimated
    assert report.duplicates == pytest.approx(20_000, rel=0.3)
    assert not report.distinct_words_complete


def test_long_line_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("short\n" + "word " * 400_000 + "\nshort again\n")
    report = check(path)
    assert (report.longest_line, report.longest_line_number) == (2_000_000, 2)
    assert "line 2 has 2,000,000 characters" in report.remarks


# The commands


def test_list() -> None:
    plain = run("list")
    assert plain.exit_code == 0
    assert re.search(r"^tiny-shakespeare +language ", plain.stdout, flags=re.M)
    assert "\x1b" not in plain.stdout
    entries = json.loads(run("list", "--json").stdout)
    assert {"name", "task", "summary", "licence", "size", "origin", "remark"} == set(entries[0])


def test_get() -> None:
    plain = run("get", "copying", "--quiet")
    path = Path(plain.stdout.strip())
    assert path.is_file()
    found = json.loads(run("get", "copying", "--json").stdout)
    assert found == {"name": "copying", "source": "built in", "files": {"train": str(path)}}
    error = run("get", "copyng").exception
    assert isinstance(error, SeriatimError)
    assert 'did you mean "copying"?' in error.remedy


def test_check(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("ein Wort für alle\n".encode("cp1252") * 100)
    bad = run("check", path)
    assert bad.exit_code == 2
    assert "not usable as it is" in bad.stdout
    assert "--encoding cp1252" in bad.stdout
    good = run("check", path, "--encoding", "cp1252")
    assert good.exit_code == 0
    assert "16–31  ████████████████████████████████████████ 100" in good.stdout
    assert run("check", path, "--encoding", "cp1252", "--quiet").stdout == "usable, with remarks\n"
    report = json.loads(run("check", path, "--encoding", "cp1252", "--json").stdout)
    assert report["usable"]
    assert report["lines"] == 100


def test_check_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("title,body\na,text one\nb,text two\n")
    assert run("check", path).exit_code == 2
    report = json.loads(run("check", path, "--column", "body", "--json").stdout)
    assert (report["documents"], report["words"]) == (2, 4)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, seriatim.cli.data; print([m for m in ('torch', 'pyarrow', 'tokenizers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = code.replace("seriatim.cli.data", "seriatim.data.corpus, seriatim.data.doctor")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
