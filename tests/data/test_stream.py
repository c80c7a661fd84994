"""Streams: every encoding and compression is read alike, and what cannot be read is reported with its place."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_schemas import write
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data import stream as stream_module
from seriatim.data.source import open_source
from seriatim.data.stream import Stream, check_encoding, file_extension


def open_stream(path: Path) -> Stream:
    (stream,) = open_source(path).streams
    return stream


def refused(path: Path, code: str, *words: str, encoding: str = "utf-8") -> None:
    with pytest.raises(SeriatimError) as caught:
        open_stream(path).read_text(encoding)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_only_newline_ends_a_line_and_every_character_stays(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x1cd\x0be\x0cf\rg\ufeffh\nz"
    stream = open_stream(write(tmp_path / "a.txt", text))
    assert stream.read_text() == text
    assert list(stream.lines()) == [text[:-1], "z"]


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16"),
        ("utf-16-be", "utf-16-be"),
        ("utf-32", "utf-32"),
        ("cp1252", "CP1252"),
    ],
)
def test_encodings(tmp_path: Path, codec: str, name: str) -> None:
    text = "grüße\n" + ("𝄞" if codec != "cp1252" else "…")
    assert open_stream(write(tmp_path / "a.txt", text.encode(codec))).read_text(name) == text


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    stream, diagnostics = open_stream(write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\r\nc\rd")), Diagnostics()
    assert list(stream.lines("utf-8", diagnostics=diagnostics)) == ["a\n", "b\n", "c\rd"]
    assert diagnostics.notes == ["a.txt: 2 Windows line ends (CRLF) are read as \\n"]
    assert open_stream(write(tmp_path / "b.txt", "x\ty".encode("utf-16"))).read_head() == "x\ty"


@given(st.text(max_size=60), st.integers(4, 9))
def test_block_borders_change_nothing(text: str, size: int) -> None:
    """Cut anywhere, in the middle of characters and of CRLF, the decoded text is the same."""
    text = text.replace("\0", "").removeprefix("\ufeff")
    stream = Stream("x", "txt", lambda: io.BytesIO(text.encode()))
    before = stream_module.BLOCK_SIZE
    try:
        stream_module.BLOCK_SIZE = size
        assert stream.read_text() == text.replace("\r\n", "\n")
        assert "".join(stream.lines()) == text.replace("\r\n", "\n")
    finally:
        stream_module.BLOCK_SIZE = before


def test_undecodable_bytes_name_line_offset_and_an_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo caf\xe9 \x96 x\n")
    refused(path, "data.encoding", "a.txt, line 2, byte offset 11", "0xe9", "--encoding cp1252")
    assert open_stream(path).read_text("cp1252") == "one\ntwo café – x\n"
    assert open_stream(path).read_text("utf-8", "replace") == "one\ntwo caf\ufffd \ufffd x\n"
    assert open_stream(path).count_undecodable("utf-8") == 2
    refused(write(tmp_path / "c.txt", "abc é".encode()[:-1]), "data.encoding", "line 1, byte offset 4")
    japanese = write(tmp_path / "d.txt", "日本語のテキスト".encode("shift-jis") * 9)
    refused(japanese, "data.encoding", "--encoding shift-jis")


def test_undecodable_bytes_in_a_later_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "BLOCK_SIZE", 1 << 10)
    path = write(tmp_path / "b.txt", b"line\n" * 3_000 + "é".encode() + b"\xff\n")
    refused(path, "data.encoding", "b.txt, line 3001, byte offset 15002")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_byte_order_marks_take_precedence_over_the_default(tmp_path: Path, codec: str) -> None:
    path, diagnostics = write(tmp_path / "a.txt", "\ufeffgrüße\nhi".encode(codec)), Diagnostics()
    assert list(open_stream(path).lines(diagnostics=diagnostics)) == ["grüße\n", "hi"]
    assert diagnostics.notes == [f"a.txt: its byte order mark says that it is {codec.upper()}"]
    refused(path, "data.encoding", codec[:6].upper(), f"--encoding {codec[:6]}", encoding="cp1252")


def test_byte_order_mark_of_utf8_and_another_encoding(tmp_path: Path) -> None:
    refused(write(tmp_path / "c.txt", b"\xef\xbb\xbfhi"), "data.encoding", "--encoding utf-8", encoding="cp1252")


def test_nul_bytes(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.txt", b"a\nb\nc\0d\n"), "data.binary", "a.txt, line 3", "NUL")
    refused(write(tmp_path / "b.txt", "hello".encode("utf-16-le")), "data.binary", "--encoding utf-16-le")
    refused(write(tmp_path / "program", b"\x7fELF\0\0\xd0\xff\n"), "data.binary", "NUL")
    assert open_stream(tmp_path / "a.txt").is_binary()
    assert not open_stream(write(tmp_path / "c.txt", "x".encode("utf-16"))).is_binary()


def test_unknown_encodings() -> None:
    for name, word in (("cp-1252x", 'did you mean "cp1252"?'), ("zzz", "common ones"), ("base64", "")):
        with pytest.raises(SeriatimError) as caught:
            check_encoding(name)
        assert caught.value.code == "data.encoding-name"
        assert word in caught.value.remedy


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_compressed_files(tmp_path: Path, suffix: str, compress: object) -> None:
    packed = compress(b"packed\n" * 50)  # type: ignore[operator]
    stream = open_stream(write(tmp_path / f"a.txt.{suffix}", packed))
    assert (stream.extension, stream.read_text()) == ("txt", "packed\n" * 50)
    refused(write(tmp_path / f"b.txt.{suffix}", packed[:30]), "data.broken", f"b.txt.{suffix}")
    refused(write(tmp_path / f"c.txt.{suffix}", b"not packed"), "data.broken", f"c.txt.{suffix}")


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_what_compressed_files_decompress_to_is_limited(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / f"zeros.txt.{suffix}", compress(b"0" * (1 << 20)))
    assert len(open_stream(path).read_bytes()) == 1 << 20  # small enough, whatever the ratio
    monkeypatch.setattr(stream_module, "SMALL_BYTES", 1 << 16)
    refused(path, "limit.exceeded", f"zeros.txt.{suffix}", "the limit is 200", "SERIATIM_MAX_COMPRESSION_RATIO")
    monkeypatch.setenv("SERIATIM_MAX_COMPRESSION_RATIO", "1M")
    assert len(open_stream(path).read_text()) == 1 << 20
    monkeypatch.setenv("SERIATIM_MAX_DECOMPRESSED_BYTES", "1000")
    refused(path, "limit.exceeded", "the limit is 1,000", "SERIATIM_MAX_DECOMPRESSED_BYTES")


def test_lines_and_whole_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "BLOCK_SIZE", 8)
    path = write(tmp_path / "a.txt", "ab\n" + "c" * 30 + "\nd\n")
    monkeypatch.setenv("SERIATIM_MAX_LINE_CHARACTERS", "31")
    assert list(open_stream(path).lines()) == ["ab\n", "c" * 30 + "\n", "d\n"]
    monkeypatch.setenv("SERIATIM_MAX_LINE_CHARACTERS", "30")
    with pytest.raises(SeriatimError, match=r"a\.txt, line 2: \d+ characters in a line, but the limit is 30"):
        list(open_stream(path).lines())
    monkeypatch.setenv("SERIATIM_MAX_FILE_BYTES", "20")
    refused(path, "limit.exceeded", "a.txt: ", "but the limit is 20", "SERIATIM_MAX_FILE_BYTES")
    with pytest.raises(SeriatimError, match=r"a\.txt: 36 bytes, but the limit is 20"):
        open_stream(path).read_bytes()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x")
    path.chmod(0)
    refused(path, "data.permission", "a.txt")


def test_permission_denied_while_opening() -> None:
    def denied() -> io.BufferedIOBase:
        raise PermissionError(13, "denied")

    with pytest.raises(SeriatimError, match="reading it is not permitted"):
        Stream("a.txt", "txt", denied).read_text()


def test_extensions() -> None:
    names = ["a.CSV", "a.csv.gz", "train-images-idx3-ubyte.gz", "b/c.tar", ".hidden"]
    assert [file_extension(name) for name in names] == ["csv", "csv", "txt", "tar", "txt"]
