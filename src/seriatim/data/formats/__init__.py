"""Formats of files and tables, one idea a file. A plug-in adds its own to `FORMATS`."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.diagnostics import Diagnostics
from ...core.errors import SeriatimError
from ..source import Source
from .base import BLOCK_SIZE, Format, ReadOptions, Record, iterate_lines, normalize_name
from .conll import Conll
from .squad import Squad
from .tables import Delimited, JsonLines, Memory
from .text import Text

FORMATS: list[Format] = [
    Memory(),
    JsonLines(),
    Squad(),
    Conll(),
    Delimited(),
    Text(),
]  # in the order in which they are tried


def find_format(source: Source) -> Format:
    """Returns the first format that recognizes the source."""
    for format in FORMATS:
        if format.sniff(source):
            return format
    raise SeriatimError("data.format", f"{source.name}: unknown format", "use CSV, TSV, JSONL, CoNLL or plain text")


def read_records(source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
    """Returns the records of the source, read by the first format that recognizes it."""
    return find_format(source).records(source, options, diagnostics)


__all__ = [
    "BLOCK_SIZE",
    "FORMATS",
    "Format",
    "ReadOptions",
    "Record",
    "find_format",
    "iterate_lines",
    "normalize_name",
    "read_records",
]
