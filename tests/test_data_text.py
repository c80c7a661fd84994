"""Reading text: every accepted form, and a clear answer to every bad input."""

import gzip
import json
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.core.config import validate
from seriatim.core.errors import SeriatimError
from seriatim.data import sources
from seriatim.data.decoded import decoded
from seriatim.data.decoding import Facts, Raw, decode
from seriatim.data.pieces import LIMIT, Piece, stretches, whole
from seriatim.data.tables import lines
from seriatim.data.text import TextSettings, read_documents


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def documents(source: Path | str, **options: str) -> tuple[list[str], list[str]]:
    """The texts of the documents, and the notes."""
    facts = Facts()
    texts, parts = [], []
    for text, last in read_documents(source, facts=facts, **options):
        parts.append(text)
        if last:
            texts.append("".join(parts))
            parts = []
    return texts + (["".join(parts)] if parts else []), facts.notes


def refused(source: Path | str, code: str, *words: str, **options: str) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        documents(source, **options)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)
    return caught.value


# What is accepted


def test_text_file_and_its_note(tmp_path: Path) -> None:
    texts, notes = documents(write(tmp_path / "a.txt", "wörter\nzwei\n"))
    assert texts == ["wörter\nzwei\n"]
    assert notes == ["read 12 characters of UTF-8 from a.txt"]


def test_only_newline_ends_a_line_and_every_character_stays(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x1cd\x0be\x0cf\rg\ufeffh\n"
    assert documents(write(tmp_path / "a.txt", text))[0] == [text]
    assert list(lines([text + "z"])) == [text, "z"]


def test_folder_is_sorted_skips_hidden_and_reports_binary(tmp_path: Path) -> None:
    write(tmp_path / "d/b.txt", "two")
    write(tmp_path / "d/a.txt", "one")
    write(tmp_path / "d/sub/c.md", "three")
    write(tmp_path / "d/.hidden", "no")
    write(tmp_path / "d/picture.png", b"\x89PNG")
    write(tmp_path / "d/unnamed", b"ab\0cd")
    write(tmp_path / "d/empty.txt", "")
    texts, notes = documents(tmp_path / "d")
    assert texts == ["one", "two", "three"]
    assert "skipped 2 binary files: picture.png, unnamed" in notes
    assert "left out 1 empty documents" in notes


def test_packed_text(tmp_path: Path) -> None:
    write(tmp_path / "a.txt.gz", gzip.compress(b"packed\n"))
    assert documents(tmp_path / "a.txt.gz")[0] == ["packed\n"]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("b.txt", "two")
        archive.writestr("a.txt", "one")
        archive.writestr("__MACOSX/._a.txt", "\0")
        archive.writestr("c.png", "\0")
    texts, notes = documents(tmp_path / "a.zip")
    assert texts == ["one", "two"]
    assert "a.zip: skipped 1 binary file" in notes


def test_member_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in/b.txt", "two")
        archive.writestr("in/a.csv", "n,text\n1,one\n")
        archive.writestr("in/c.csv.gz", gzip.compress(b"n,text\n1,three\n"))
        archive.writestr("d.txt", "four")
    assert documents(path / "in/b.txt")[0] == ["two"]
    assert documents(path / "in/a.csv")[0] == ["one"]
    assert documents(path / "in/c.csv.gz")[0] == ["three"]
    assert documents(path / "in")[0] == ["one", "two", "three"]
    refused(path / "in/a.cvs", "data.missing", f'did you mean "{path}/in/a.csv"?')
    refused(tmp_path / "b.zip/in/a.csv", "data.missing")
    # One file on disk, two sources: what is kept of the one is not taken for the other.
    for name, text in (("in/b.txt", "two"), ("d.txt", "four")):
        assert decoded(sources.find(path / name), None, "utf-8").size == len(text)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.csv", "text,text\na,b\n"), "data.column", 'named "text"', column="text")
    assert documents(write(tmp_path / "b.csv", "n,n,text\n1,2,a\n"))[0] == ["a"]


ROWS = [{"id": 1, "text": "one\r\nline"}, {"id": 2, "text": ""}, {"id": 3, "text": 'qu"ote, é'}]
WANTED = ["one\nline", 'qu"ote, é']


def tables(folder: Path) -> list[Path]:
    jsonl = "".join(json.dumps(row) + "\n" for row in ROWS)
    csv = 'id,text\n1,"one\r\nline"\n2,\n3,"qu""ote, é"\n'
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / "a.parquet")
    return [
        write(folder / "a.jsonl", jsonl),
        write(folder / "a.jsonl.gz", gzip.compress(jsonl.encode())),
        write(folder / "a.csv", csv),
        write(folder / "semi.csv", csv.replace(",", ";").replace("ote;", "ote,")),
        folder / "a.parquet",
        write(folder / "a.parquet.gz", gzip.compress((folder / "a.parquet").read_bytes())),
    ]


def test_tables_with_and_without_the_column_named(tmp_path: Path) -> None:
    for path in tables(tmp_path):
        assert documents(path, column="text")[0] == WANTED, path
        texts, notes = documents(path)
        assert texts == WANTED, path
        assert f'{path.name}: took the text from its only text column "text"' in notes
        assert "left out 1 empty documents" in notes
        assert "turned 1 Windows line ends (CRLF) into \\n" in notes


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'n\ttext\n1\t"open\n2\tclosed\n')
    assert documents(path)[0] == ['"open', "closed"]


def test_utf16_by_its_mark_and_by_its_name(tmp_path: Path) -> None:
    text = "grüße\n𝄞"
    for codec, name in (
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16"),
        ("utf-16-be", "utf-16-be"),
        ("utf-32", "utf-32"),
    ):
        assert documents(write(tmp_path / "a.txt", text.encode(codec)), encoding=name)[0] == [text]


def test_mark_and_windows_line_ends_are_told(tmp_path: Path) -> None:
    texts, notes = documents(write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\r\nc\rd"))
    assert texts == ["a\nb\nc\rd"]
    assert "took off a UTF-8 byte-order mark" in notes
    assert "turned 2 Windows line ends (CRLF) into \\n" in notes


def test_line_of_ten_megabytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x\n" + b"ab " * 3_500_000 + b"\nend\n")
    facts = Facts()
    pieces = list(read_documents(path, facts=facts))
    assert max(len(piece.text) for piece in pieces) <= 1 << 20
    assert "".join(piece.text for piece in pieces) == path.read_text()
    assert "a.txt, line 2 is 10,500,000 characters long" in facts.notes


@given(st.text(max_size=60), st.integers(1, 7))
def test_block_borders_change_nothing(text: str, size: int) -> None:
    """Cut anywhere, in the middle of characters and of CRLF, the decoded text is the same."""
    data = text.replace("\0", "").encode("utf-8")
    wanted = text.replace("\0", "").replace("\r\n", "\n")
    raw = Raw("x", "text", lambda: None)  # type: ignore[arg-type,return-value]
    blocks = [data[i : i + size] for i in range(0, len(data), size)]
    if not data.startswith((b"\xef\xbb\xbf",)):
        assert "".join(decode(raw, [data], "utf-8", Facts())) == wanted
    if size >= 4:
        assert "".join(decode(raw, blocks, "utf-8", Facts())) == "".join(decode(raw, [data], "utf-8", Facts()))


# What is refused


def test_broken_utf8_names_line_offset_and_an_encoding_that_decodes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo caf\xe9 \x96 x\n")
    refused(path, "data.encoding", "a.txt, line 2, byte offset 11", "0xe9", "--encoding cp1252")
    assert documents(path, encoding="cp1252")[0] == ["one\ntwo café – x\n"]
    late = write(tmp_path / "b.txt", b"line\n" * 300_000 + "é".encode() + b"\xff\n")
    refused(late, "data.encoding", "b.txt, line 300001, byte offset 1500002")
    refused(write(tmp_path / "c.txt", "abc é".encode()[:-1]), "data.encoding", "line 1, byte offset 4")
    refused(
        write(tmp_path / "d.txt", "日本語のテキスト".encode("shift-jis") * 9), "data.encoding", "--encoding shift-jis"
    )


def test_marks_of_other_encodings(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.txt", "hi".encode("utf-16")), "data.encoding", "UTF-16", "--encoding utf-16")
    refused(write(tmp_path / "b.txt", "hi".encode("utf-32")), "data.encoding", "UTF-32", "--encoding utf-32")
    refused(write(tmp_path / "c.txt", b"\xef\xbb\xbfhi"), "data.encoding", "--encoding utf-8", encoding="cp1252")


def test_nul_bytes(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.txt", b"a\nb\nc\0d\n"), "data.binary", "a.txt, line 3", "NUL")
    refused(write(tmp_path / "b.txt", "hello".encode("utf-16-le")), "data.binary", "--encoding utf-16-le")
    refused(write(tmp_path / "c.pdf", b"%PDF"), "data.binary", ".pdf")
    refused(write(tmp_path / "d.jsonl", b'{"t": "a\\u0000"}'), "data.binary", "line 1")
    refused(write(tmp_path / "e.jsonl", b'{"t": "a\\ud800"}'), "data.binary", "line 1", "surrogate")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv"])
def test_empty(tmp_path: Path, name: str) -> None:
    refused(write(tmp_path / name, b""), "data.empty", name, "is empty")


def test_white_space_only(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.txt", b" \n\t\n"), "data.empty", "only white space")
    refused(write(tmp_path / "a.csv", b"text,n\n"), "data.empty")
    refused(write(tmp_path / "a.jsonl", b'{"text": ""}\n'), "data.empty")
    (tmp_path / "void").mkdir()
    refused(tmp_path / "void", "data.empty", "no files")
    write(tmp_path / "pictures/a.png", b"\x89PNG")
    refused(tmp_path / "pictures", "data.empty", "only binary files", "a.png")


def test_missing_path_suggests_neighbours_and_names(tmp_path: Path) -> None:
    write(tmp_path / "book.txt", "x")
    refused(tmp_path / "bok.txt", "data.missing", f'did you mean "{tmp_path / "book.txt"}"?')
    refused("tiny-shakespear", "data.missing", 'did you mean "tiny-shakespeare"?')
    refused("/nowhere/at/all", "data.missing", "pydoc")
    refused("x" * 5000, "data.missing")


def test_path_wins_over_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(documents("brackets")[0][0]) > 100_000
    write(tmp_path / "brackets", "mine")
    assert documents("brackets")[0] == ["mine"]


def test_unknown_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x")
    refused(path, "data.encoding-name", 'did you mean "cp1252"?', encoding="cp-1252x")
    refused(path, "data.encoding-name", "common ones", encoding="zzz")
    refused(path, "data.encoding-name", encoding="base64")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x")
    path.chmod(0)
    refused(path, "data.permission", "a.txt")


def test_permission_denied_while_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "denied", str(path))

    monkeypatch.setattr(sources.io, "FileIO", denied)
    refused(write(tmp_path / "a.txt", "x"), "data.permission", "a.txt")
    refused(write(tmp_path / "a.parquet", "x"), "data.permission", "a.parquet")
    refused(write(tmp_path / "d/a", "x").parent, "data.permission")


def test_broken_packed_files(tmp_path: Path) -> None:
    good = gzip.compress(os.urandom(4000).hex().encode())
    refused(write(tmp_path / "a.txt.gz", good[:2000]), "data.broken", "a.txt.gz")
    refused(write(tmp_path / "b.txt.gz", b"not gzip"), "data.broken", "b.txt.gz")
    refused(write(tmp_path / "c.txt.gz", good[:50] + b"xxxx" + good[54:]), "data.broken", "c.txt.gz")
    refused(write(tmp_path / "d.zip", b"not zip"), "data.broken", "d.zip")


def test_malformed_jsonl_names_file_and_line(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.jsonl", '{"t": "a"}\n\n{"t": \n'), "data.jsonl", "a.jsonl, line 3")
    refused(write(tmp_path / "b.jsonl", '["a"]\n'), "data.jsonl", "b.jsonl, line 1", "list")
    refused(write(tmp_path / "c.jsonl", '{"t": "a"}\n{"u": "b"}\n'), "data.column", "c.jsonl, line 2")
    refused(write(tmp_path / "d.jsonl", '{"t": "a"}\n{"t": 5}\n'), "data.column", "d.jsonl, line 2", "int")


def test_malformed_csv_names_the_line(tmp_path: Path) -> None:
    text = 'n,text\n1,"two\nlines"\n2,b,c\n'
    refused(write(tmp_path / "a.csv", text), "data.csv", "a.csv, line 4", "3 columns", "has 2")
    refused(write(tmp_path / "b.csv", 'n,text\n1,"a"b\n'), "data.csv", "b.csv, line 2")


def test_column_choice(tmp_path: Path) -> None:
    two = write(tmp_path / "a.csv", "title,body,n\na,b,1\n")
    refused(two, "data.column", "2 columns of text", "title, body, n", "--column title")
    refused(two, "data.column", 'no column "boddy"', 'did you mean "body"?', column="boddy")
    refused(write(tmp_path / "b.csv", "n\n1\n"), "data.column", "no column of text")
    refused(write(tmp_path / "b.txt", "x"), "data.column", "plain text has no columns", column="text")
    refused(write(tmp_path / "c.jsonl", '{"text": "x"}'), "data.column", 'did you mean "text"?', column="txt")


def test_what_is_not_parquet(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.parquet", b"PAR1 no"), "data.parquet", "a.parquet")
    refused(write(tmp_path / "b.parquet", b""), "data.parquet", "b.parquet")


def test_settings_are_checked() -> None:
    with pytest.raises(SeriatimError, match="add up to 1"):
        validate(TextSettings, {"source": "x", "fractions": (0.9, 0.2, 0)})
    with pytest.raises(SeriatimError, match="fallback is for char and bpe"):
        validate(TextSettings, {"source": "x", "tokenizer": {"kind": "word", "fallback": True}})
    with pytest.raises(SeriatimError, match="at least 260"):
        validate(TextSettings, {"source": "x", "tokenizer": {"kind": "byte-bpe", "size": 100}})
    for name, info in TextSettings.model_fields.items():
        assert info.description, name


# Where texts may be cut


@given(st.lists(st.text(alphabet="ab \n\u2028\x1c", max_size=8), max_size=12), st.booleans())
def test_stretches_do_not_depend_on_how_the_reader_cut(parts: list[str], last: bool) -> None:
    text = "".join(parts)
    pieces = [Piece(part, False) for part in parts] + ([Piece("", True)] if last else [])
    regrouped = list(whole(pieces))
    assert "".join(piece.text for piece in regrouped) == text
    assert [one for piece in regrouped for one in stretches(piece.text)] == stretches(text)


@pytest.mark.parametrize("unit", ["a", " ", "a" * 50_000 + " " * 70_000, "word " * 9_000 + "z" * 150_000])
def test_long_stretches_are_cut_at_the_same_places(unit: str) -> None:
    text = (unit * (300_000 // len(unit) + 1))[:300_000]
    wanted = stretches(text)
    assert "".join(wanted) == text
    assert max(map(len, wanted)) <= LIMIT
    for size in (1_000, 65_536, 100_003):
        pieces = whole(Piece(text[i : i + size], False) for i in range(0, len(text), size))
        assert [one for piece in pieces for one in stretches(piece.text)] == wanted
