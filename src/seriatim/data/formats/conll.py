"""CoNLL: a word per line with its columns, an empty line between sentences.

CoNLL     columns separated by tabs, or by blanks if there are none: "tokens", "column 2", …, "tags"
CoNLL-U   ten named columns; comments, the ranges of multiword tokens (1-2) and empty nodes (1.1) are not words
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import plural
from ..source import Source, Stream
from ..stream import Location
from .base import Format, ReadOptions, Record

EXTENSIONS = ("conll", "conllu", "iob", "bio")
UNIVERSAL = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
WORD_ID = re.compile(r"[1-9]\d*")
OTHER_ID = re.compile(r"\d+[-.]\d+")  # of a multiword token or an empty node
DOCUMENT_START = "-DOCSTART-"  # separates the documents of CoNLL-2003
BLANKS = " \t\r"  # a no-break space does not separate columns


class Line(NamedTuple):
    """A line of a file. An empty line has no cells, a comment has one."""

    number: int
    cells: list[str]
    is_word: bool = False


class Conll(Format):
    """CoNLL and CoNLL-U; a record per sentence, whose cells are lists with an element per word."""

    def usable(self, options: ReadOptions) -> bool:
        # A text in paragraphs looks alike, so a task must have tokens; without a schema, everything is accepted.
        return options.text_unit == "line" and (not options.header_names or "tokens" in options.header_names)

    def sniff(self, source: Source) -> bool:
        return bool(source.streams) and all(map(self._is_conll, source.streams))

    @staticmethod
    def _is_conll(stream: Stream) -> bool:
        """Returns whether a file has an extension of CoNLL, or lines that look like it.

        These have the ten columns of CoNLL-U, or equally many columns in each line, empty lines between sentences, and
        few different cells in the last column.
        """
        head = stream.read_head().replace("\r\n", "\n").removeprefix("\ufeff")
        first_line = head.lstrip().partition("\n")[0].rstrip()
        if first_line.startswith('{"') and (first_line.endswith("}") or "\n" not in head):  # JSON under another name
            return False
        if stream.extension in EXTENSIONS:
            return True
        if stream.extension in ("csv", "tsv", "json", "jsonl"):
            return False
        lines = head.split("\n")[:-1]  # the last line may be cut
        rows = [split_cells(line) for line in lines if line.strip() and not line.startswith("# ")]
        rows = [cells for cells in rows if cells[0] != DOCUMENT_START]
        widths = {len(cells) for cells in rows}
        if len(widths) != 1 or widths == {1}:
            return False
        if is_universal(rows[0]):
            return True
        separated = any(not line.strip() for line in lines[1:-1])
        return separated and 2 * len({cells[-1] for cells in rows}) <= len(rows)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        for stream in source.streams:
            names: tuple[str, ...] = ()
            sentence: list[Line] = []
            for line in read_lines(stream, options, diagnostics):
                if line.is_word:
                    names = names or column_names(line.cells)
                    sentence.append(line)
                elif not line.cells and sentence:
                    yield self._record(stream, names, sentence)
                    sentence = []
            if sentence:
                yield self._record(stream, names, sentence)

    @staticmethod
    def _record(stream: Stream, names: tuple[str, ...], sentence: list[Line]) -> Record:
        columns = [list(cells) for cells in zip(*(line.cells for line in sentence), strict=True)]
        lines = tuple(line.number for line in sentence)
        return Record(dict(zip(names, columns, strict=True)), Location(stream.name, lines[0], lines=lines))


def is_universal(cells: Sequence[str]) -> bool:
    """Returns whether the cells of a line have the form of CoNLL-U."""
    return len(cells) == len(UNIVERSAL) and bool(WORD_ID.fullmatch(cells[0]) or OTHER_ID.fullmatch(cells[0]))


def column_names(cells: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the columns of a file by the cells of its first word."""
    if is_universal(cells):
        return UNIVERSAL
    names = ["tokens", *(f"column {number}" for number in range(2, len(cells))), "tags"]
    return tuple(names[: len(cells)])


def split_cells(text: str) -> list[str]:
    """Returns the cells of a line, split at tabs if there are any (a cell may hold blanks then), else at blanks."""
    text = text.rstrip(BLANKS)
    if "\t" in text:
        return [cell.strip(BLANKS) for cell in text.split("\t")]
    return [cell for cell in text.split(" ") if cell]


def read_lines(stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Line]:
    """Yields all lines of a file; one with another number of columns than the first word is reported and left out.

    In CoNLL-U a line that begins with "#" is a comment. Elsewhere "#" may be a word, as in tweets; a comment stands
    before a sentence and has another number of columns.
    """
    lines = list(enumerate((text.rstrip("\n") for text in stream.lines(options.encoding)), options.first_line))
    first = next((split_cells(text) for _, text in lines if text.strip(BLANKS) and not text.startswith("#")), [])
    universal, width = is_universal(first), len(first) or 2
    before_sentence = True
    for number, text in lines:
        cells = text.split("\t") if universal and text.strip(BLANKS) else split_cells(text)
        if text.startswith("#") and (universal or (before_sentence and len(cells) != width)):
            yield Line(number, [text])
        elif cells and cells[0] == DOCUMENT_START and not universal:
            yield Line(number, cells)
        elif cells and len(cells) != width:
            columns = plural(len(cells), "column")
            expected = "CoNLL-U has 10, separated by tabs" if universal else f"the first word has {width}"
            cause = f"{stream.name}, line {number}: {columns}, but {expected}"
            diagnostics.report("data.columns", cause, "correct the line; an empty line separates sentences")
        elif cells and universal and not (WORD_ID.fullmatch(cells[0]) or OTHER_ID.fullmatch(cells[0])):
            cause = f'{stream.name}, line {number}: "{cells[0]}" is not the number of a word'
            diagnostics.report(
                "data.conll", cause, "number the words 1, 2, 3, …, multiword tokens 1-2, empty nodes 1.1"
            )
        else:
            before_sentence = not cells
            yield Line(number, cells, bool(cells) and not (universal and not WORD_ID.fullmatch(cells[0])))


def append_column(source: Source, values: Iterable[str], options: ReadOptions) -> str:
    """Returns the text of CoNLL files with one more column, a cell for each word; "_" where a line is not a word."""
    diagnostics, remaining, written = Diagnostics(), iter(values), []
    for stream in source.streams:
        for line in read_lines(stream, options, diagnostics):
            if line.is_word:
                written.append("\t".join([*line.cells, next(remaining, "_")]))
            else:
                written.append("\t".join([*line.cells, "_"] if len(line.cells) > 1 else line.cells))
    if next(remaining, None) is not None:
        raise SeriatimError("output.words", f"{source.name} has fewer words than predictions", "predict it again")
    return "".join(f"{line}\n" for line in written)
