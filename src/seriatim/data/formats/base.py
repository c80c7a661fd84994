"""Formats: from a source to records, which are rows with the file and line they come from.

A format is a class with two methods. It names columns and knows nothing of tasks; a `Schema` maps columns to roles.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from ...core.errors import Diagnostics
from ..kinds import Cell
from ..source import Source
from ..stream import COMPRESSED, Errors, Location

COMPRESSION = re.compile(rf"({'|'.join(map(re.escape, COMPRESSED))})$")
BLOCK_SIZE = 1 << 12  # characters of a block of plain text


class Record(NamedTuple):
    values: dict[str, Cell]  # column → cell
    location: Location


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    Args:
        encoding: Of text files.
        label_separator: What separates several labels in one cell; None if a cell holds one label.
        text_unit: What a record of plain text is: a line, a block of whole lines of about `BLOCK_SIZE` characters, or
            a whole file.
        headerless: A table may lack a header; `is_header` recognizes one.
        header_names: Normalized column names that the schema knows.
        first_line: The number of the first line, if the source is a part of a file.
        memory_limit: Sources of more bytes are read to disk, if all their columns are text or labels.
        errors: What is done with bytes that cannot be decoded: see `Stream.text_blocks`.
        tabs: Whether plain text is a table: "any" if a line has a tab, "all" if every line has one, or "never".
        positions: The roles of the first columns of a table without a header; a row must have as many cells.
        is_header: Returns whether the cells of the first row are a header; None if `header_names` decide.
        join_extra: Whether a row with too many cells has delimiters in its last one.
        predicting: Whether targets are not read: every row counts, also one without a label.
    """

    encoding: str = "utf-8"
    label_separator: str | None = None
    text_unit: Literal["line", "block", "document"] = "line"
    headerless: bool = False
    header_names: frozenset[str] = frozenset()
    first_line: int = 1
    memory_limit: int = 1 << 26
    errors: Errors = "strict"
    tabs: Literal["any", "all", "never"] = "any"
    positions: tuple[str, ...] = ()
    is_header: Callable[[Sequence[str]], bool | None] = field(default=lambda cells: None, compare=False)
    join_extra: bool = False
    predicting: bool = False


class Format(ABC):
    """Reads sources of one file format."""

    @abstractmethod
    def sniff(self, source: Source) -> bool:
        """Returns whether the source has this format, judged by file extensions and first bytes."""

    @abstractmethod
    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        """Yields the records in order; a malformed one is reported and skipped."""

    def usable(self, options: ReadOptions) -> bool:
        """Returns whether sources of this format can be read with these options."""
        return True

    def matches(self, source: Source, options: ReadOptions) -> bool:
        """Returns whether the source has this format and is to be read by it."""
        return self.usable(options) and self.sniff(source)


@dataclass(frozen=True)
class LazyFormat(Format):
    """A format whose module is imported when a file of its kind is met, since it needs a library that few need.

    Args:
        module: In this package, or the full name of a plug-in's.
        name: Of the class.
        pattern: A regular expression for the names of its files, in lower case and without that of a compression.
        role: The role or alias that a schema must have for the format to be of use; by default any schema.
    """

    module: str
    name: str
    pattern: str
    role: str = ""

    @cached_property
    def format(self) -> Format:
        module = importlib.import_module(self.module if "." in self.module else f"{__package__}.{self.module}")
        format: Format = getattr(module, self.name)()
        return format

    def _is_candidate(self, source: Source) -> bool:
        names = (stream.name.lower() for stream in source.streams)
        pattern = re.compile(self.pattern)
        return any(pattern.search(COMPRESSION.sub("", name)) for name in names)

    def sniff(self, source: Source) -> bool:
        return self._is_candidate(source) and self.format.sniff(source)

    def matches(self, source: Source, options: ReadOptions) -> bool:
        useful = not self.role or self.role in options.header_names
        return useful and self._is_candidate(source) and self.format.matches(source, options)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        return self.format.records(source, options, diagnostics)
