"""Tables: columns in memory, JSON Lines, CSV and TSV."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

from ...core.diagnostics import Diagnostics
from ..location import Location
from ..source import Source, Stream
from .base import Format, ReadOptions, Record, iterate_lines, normalize_name


class Memory(Format):
    """Columns in memory."""

    def sniff(self, source: Source) -> bool:
        return source.columns is not None

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        columns = source.columns or {}
        for row, cells in enumerate(zip(*columns.values(), strict=True)):
            yield Record(dict(zip(columns, cells, strict=True)), Location(source.name, row, "row"))


class JsonLines(Format):
    """One JSON object per line."""

    def sniff(self, source: Source) -> bool:
        return all(stream.extension in ("jsonl", "ndjson") for stream in source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        for location, line in iterate_lines(source, options):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except json.JSONDecodeError as error:
                diagnostics.report("data.jsonl", f"{location}: invalid JSON ({error})", "correct or remove the line")
                continue
            if isinstance(values, dict):
                yield Record(values, location)
            else:
                cause = f"{location}: {type(values).__name__}, not an object"
                diagnostics.report("data.jsonl", cause, 'write {"column": value, …}')


class Delimited(Format):
    """CSV with quoting, or TSV without. A table without a header gets the columns "column 1", "column 2", …"""

    def sniff(self, source: Source) -> bool:
        return all(stream.extension in ("csv", "tsv") or "\t" in stream.read_head() for stream in source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        for stream in source.streams:
            lines = stream.lines(options.encoding)
            first_line = next(lines, "")
            delimiter = self.delimiter(stream, first_line)
            reader = self.reader(first_line, lines, delimiter)
            first = [name.strip() for name in next(reader, [])]
            has_header, names = self.header(first, delimiter, options)
            for row in reader if has_header else itertools.chain([first], reader):
                location = Location(stream.name, reader.line_num + options.first_line - 1)
                if len(row) == len(names):
                    yield Record(dict(zip(names, row, strict=True)), location)
                elif row:
                    cause = f"{location}: {len(row)} cells, but the header has {len(names)}"
                    diagnostics.report("data.csv", cause, "quote cells that contain the delimiter")

    @staticmethod
    def reader(first_line: str, lines: Iterator[str], delimiter: str) -> Any:
        """Returns a `csv.reader` of the lines; tabs separate cells without quoting."""
        lines = itertools.chain([first_line], lines)
        if delimiter == "\t":
            return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=delimiter)

    @staticmethod
    def delimiter(stream: Stream, first_line: str) -> str:
        tabs = stream.extension == "tsv" or (stream.extension != "csv" and "\t" in first_line)
        return "\t" if tabs else max(",;|", key=first_line.count)

    @staticmethod
    def header(first: list[str], delimiter: str, options: ReadOptions) -> tuple[bool, list[str]]:
        """Returns whether the first row is a header, and the names of the columns."""
        known = any(normalize_name(name) in options.header_names for name in first)
        if known or not (delimiter == "\t" and options.headerless):
            return True, first
        return False, [f"column {n}" for n in range(1, len(first) + 1)]
