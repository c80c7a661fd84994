"""Plain text by lines, blocks and files."""

from __future__ import annotations

from pathlib import Path

from data_schemas import DOCUMENTS, LABELED, LINES, STREAM, read, refuse, values, write
from seriatim.core.errors import Diagnostics
from seriatim.data.formats.base import BLOCK_SIZE
from seriatim.data.formats.text import class_names


def test_lines_keep_their_white_space(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "a.txt", "one\n\n  \n four \nlast"), LINES)
    assert values(dataset, "text") == ["one", "", "  ", " four ", "last"]
    assert [str(location) for location in dataset.locations[:2]] == ["a.txt, line 1", "a.txt, line 2"]


def test_blocks_are_the_file_in_whole_lines(tmp_path: Path) -> None:
    text = "".join(f"line {n} é\n" for n in range(3000)) + "the last without an end"
    dataset = read(write(tmp_path / "a.txt", text.replace("\n", "\r\n")), STREAM)
    blocks = values(dataset, "text")
    assert "".join(blocks) == text
    assert all(block.endswith("\n") and len(block) <= BLOCK_SIZE + 1 for block in blocks[:-1])
    assert min(map(len, blocks[:-1])) > BLOCK_SIZE - 20
    lines = [location.number for location in dataset.locations]
    assert lines[1] == blocks[0].count("\n") + 1
    long = "x\n" + "ab " * 50_000 + "\nend\n"
    assert "".join(values(read(write(tmp_path / "b.txt", long), STREAM), "text")) == long


def test_a_folder_by_blocks_and_by_files(tmp_path: Path) -> None:
    for name, data in (("b.txt", b"two"), ("a.txt", b"one\n1\n"), ("sub/c.md", b"three"), ("README", b"about")):
        write(tmp_path / "d" / name, data)
    write(tmp_path / "d/image.png", b"\x89PNG")
    write(tmp_path / "d/unnamed", b"ab\0cd")
    diagnostics = Diagnostics()
    assert values(read(tmp_path / "d", DOCUMENTS, diagnostics), "text") == ["about", "one\n1\n", "two", "three"]
    assert diagnostics.notes == ["d: 2 binary files are skipped: d/image.png, d/unnamed"]
    blocks = read(tmp_path / "d", STREAM)
    assert values(blocks, "text") == ["about", "one\n1\n", "two", "three"]
    assert [location.file for location in blocks.locations] == ["d/README", "d/a.txt", "d/b.txt", "d/sub/c.md"]


def test_what_tells_files_apart() -> None:
    assert class_names(["rt-polarity.neg", "rt-polarity.pos"]) == ["neg", "pos"]
    assert class_names(["neg.txt", "pos.txt"]) == ["neg", "pos"]
    assert class_names(["film.neg.txt.gz", "film.pos.txt.gz"]) == ["neg", "pos"]
    assert class_names(["French.txt", "Scottish"]) == ["French", "Scottish"]
    assert class_names(["a.one", "b.two"]) == ["a", "b"]


def test_a_file_for_each_class(tmp_path: Path) -> None:
    # U+0085, a separator and a lone CR do not end a line.
    write(tmp_path / "d/film.neg", "bad – awful\nworse\x1cstill\rsame line\nlast\x85\n")
    write(tmp_path / "d/film.pos", "good\nbest \nfinest")
    write(tmp_path / "d/README.txt", "about")
    dataset = read(tmp_path / "d", LABELED)
    assert values(dataset, "input") == [
        "bad – awful",
        "worse\x1cstill\rsame line",
        "last\x85",
        "good",
        "best ",
        "finest",
    ]
    assert values(dataset, "target") == ["neg"] * 3 + ["pos"] * 3
    assert str(dataset.locations[2]) == "d/film.neg, line 3"


def test_plain_text_has_no_target(tmp_path: Path) -> None:
    refuse(write(tmp_path / "f.txt", "x\n"), LABELED, "data.column", "f.txt", "target")
    refuse(write(tmp_path / "b.txt", "x"), LINES, "data.column", 'no column "body"', text="body")
