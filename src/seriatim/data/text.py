"""Reading text: what the user named, as pieces of text with document boundaries, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field

from seriatim.core.config import Settings
from seriatim.core.errors import SeriatimError

from . import tables
from .decoding import LONG_LINE, Facts, Raw, check_encoding, decode, normalise
from .fractions import Fractions
from .pieces import Piece
from .sources import Found, blocks, find
from .tokenizers import TokenizerSettings


class TextSettings(Settings):
    source: str = Field(
        description="a text file, a folder of them, .gz, .zip, JSONL, CSV, TSV, Parquet, or a name of the catalogue"
    )
    valid: str | None = Field(None, description="the file to validate on; without one the source is split")
    test: str | None = Field(None, description="the file to test on; without one the source is split")
    column: str | None = Field(None, description="the column that holds the text in JSONL, CSV, TSV and Parquet")
    encoding: str = Field("utf-8", description="the encoding of the files, such as utf-8, utf-16 or cp1252")
    fractions: Fractions = Field(
        (0.9, 0.05, 0.05), description="the shares of training, validation and test where no files are given"
    )
    tokenizer: TokenizerSettings = Field(TokenizerSettings(), description="how the text becomes tokens")


def read_documents(
    source: str | Path,
    column: str | None = None,
    encoding: str = "utf-8",
    *,
    data_dir: str | None = None,
    facts: Facts | None = None,
) -> Iterator[Piece]:
    """The documents of `source` in pieces of at most a megabyte or so.

    A text file is one document, and so is each file of a folder and each row of a table. When all is read,
    `facts.notes` says what was met on the way.
    """
    facts = facts if facts is not None else Facts()
    found = find(source, data_dir)
    facts.notes.extend(found.notes)
    return read_found(found, column, encoding, facts)


def read_found(found: Found, column: str | None, encoding: str, facts: Facts) -> Iterator[Piece]:
    check_encoding(encoding)
    _check_column(found, column)
    for raw in found.raws:
        for piece in _with_end(_pieces(raw, column, encoding, facts)):
            facts.characters += len(piece.text)
            facts.blank = facts.blank and (not piece.text or piece.text.isspace())
            yield piece
    if facts.blank:
        raise SeriatimError(
            "data.empty",
            f"{found.title}: " + ("holds only white space" if facts.characters else "is empty"),
            "give a file that holds text",
        )
    facts.notes.extend(_told(found, facts, encoding))


def _pieces(raw: Raw, column: str | None, encoding: str, facts: Facts) -> Iterator[Piece]:
    if raw.kind == "text":
        size = 0
        for text in decode(raw, blocks(raw), encoding, facts):
            size += len(text)
            yield Piece(text, False)
        if size:
            yield Piece("", True)
        else:
            facts.empty += 1
        return
    for text in tables.texts(raw, column, encoding, facts):
        yield Piece(normalise(text, facts), True)


def _with_end(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Joins the empty end mark of a document to the piece before it."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None and piece == ("", True) and not held.last:
            held = Piece(held.text, True)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


def _check_column(found: Found, column: str | None) -> None:
    if column is not None and all(raw.kind == "text" for raw in found.raws):
        raise SeriatimError(
            "data.column",
            f'{found.title}: plain text has no columns, so there is no "{column}"',
            "leave --column away, or name the file .jsonl, .csv, .tsv or .parquet",
        )


def _told(found: Found, facts: Facts, encoding: str) -> Iterator[str]:
    only_parquet = all(raw.kind == "parquet" for raw in found.raws)
    how = "" if only_parquet else f" of {check_encoding(encoding).upper()}"
    yield f"read {facts.characters:,} characters{how} from {found.title}"
    if facts.boms:
        yield "took off a UTF-8 byte-order mark" + (f" from {facts.boms} files" if facts.boms > 1 else "")
    if facts.crlf:
        yield f"turned {facts.crlf:,} Windows line ends (CRLF) into \\n"
    if facts.empty:
        yield f"left out {facts.empty:,} empty documents"
    length, name, line = facts.longest
    if length > LONG_LINE:
        yield f"{name}, line {line} is {length:,} characters long"
