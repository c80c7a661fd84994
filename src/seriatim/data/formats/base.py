"""Formats: from a source to records, which are rows with the file and line they come from.

A format is a class with two methods. It names columns and knows nothing of tasks; a `Schema` maps columns to roles.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ...core.diagnostics import Diagnostics
from ..location import Location
from ..source import Source

BLOCK_SIZE = 1 << 12  # characters of a block of plain text


class Record(NamedTuple):
    values: dict[str, Any]  # column → cell
    location: Location


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    Args:
        encoding: Of text files.
        label_separator: What separates several labels in one cell; None if a cell holds one label.
        text_unit: What a record of plain text is: a line, or a block of whole lines of about `BLOCK_SIZE` characters.
        headerless: A tab-separated table may lack a header; it has one if a name in `header_names` occurs in it.
        header_names: Normalized column names that the schema knows.
        first_line: The number of the first line, if the source is a part of a file.
        memory_limit: Sources of more bytes are read to disk, if all their columns are text or labels.
    """

    encoding: str = "utf-8"
    label_separator: str | None = None
    text_unit: Literal["line", "block"] = "line"
    headerless: bool = False
    header_names: frozenset[str] = frozenset()
    first_line: int = 1
    memory_limit: int = 1 << 26


class Format(ABC):
    """Reads sources of one file format."""

    @abstractmethod
    def sniff(self, source: Source) -> bool:
        """Returns whether the source has this format, judged by file extensions and first bytes."""

    @abstractmethod
    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        """Yields the records in order; a malformed one is reported and skipped."""


def normalize_name(name: str) -> str:
    """Returns a column name without case and punctuation, as aliases are compared."""
    return re.sub(r"[\W_]+", "", name).lower()


def iterate_lines(source: Source, options: ReadOptions) -> Iterator[tuple[Location, str]]:
    """Yields the lines of all files of a source, without line ends, with their locations."""
    for stream in source.streams:
        for number, line in enumerate(stream.lines(options.encoding), options.first_line):
            yield Location(stream.name, number), line.removesuffix("\n")
