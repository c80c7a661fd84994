"""Formats of files and tables, one idea a file. A plug-in adds its own to `FORMATS`.

Formats are tried in order: those with a clear sign first, plain text last. A format that few need is a
`LazyFormat`: its module is imported when a file whose name matches the pattern is met, and a schema that it serves.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core import limits
from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed
from ..source import Source
from .base import BLOCK_SIZE, Format, LazyFormat, ReadOptions, Record
from .conll import Conll
from .tables import Delimited, Excel, Json, JsonLines, Memory, Parquet
from .text import Aligned, ClassFolders, Text

FORMATS: list[Format] = [
    Memory(),
    LazyFormat("midi", "Music", "", "roll"),
    LazyFormat("arrays", "Arrays", r"\.(npy|npz|mat|idx)$|idx\d[-_.]u?byte$"),
    Aligned(),
    LazyFormat("gettext", "Gettext", r"\.(po|mo)$"),
    LazyFormat("squad", "Squad", r"\.json$"),
    LazyFormat("coco", "Captions", "", "captions"),
    LazyFormat("wic", "WordInContext", r"\.(jsonl|parquet)$|\.data\.txt$", "sentence1"),
    JsonLines(),
    Conll(),
    ClassFolders(),
    Delimited(),
    Parquet(),
    Excel(),
    Json(),
    Text(),
]


def find_format(source: Source, options: ReadOptions | None = None) -> Format:
    """Returns the first format that recognizes the source."""
    options = ReadOptions() if options is None else options
    for format in FORMATS:
        if format.matches(source, options):
            return format
    if not source.streams:
        raise SeriatimError("data.empty", f"{source.name}: holds no files", "pass a file with data")
    if len(source.streams) > 1:
        names = listed([stream.name for stream in source.streams], 3)
        cause = f"{source.name}: holds only files of unknown formats ({names})"
        raise SeriatimError("data.empty", cause, "name a folder or archive with tables or text")
    cause = f"{source.name}: a .{source.streams[0].extension} file holds no text, and no known table"
    raise SeriatimError("data.binary", cause, "pass CSV, TSV, JSONL, Parquet, CoNLL or plain text, .gz or .zip of them")


def read_records(source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
    """Yields the records of the source, read by the first format that recognizes it, within the limits of a table."""
    columns, cells, count = limits.COLUMNS.value, limits.CELLS.value, 0
    for record in find_format(source, options).records(source, options, diagnostics):
        width = len(record.values)
        count += width
        if width > columns:
            raise limits.COLUMNS.error(width, str(record.location))
        if count > cells:
            raise limits.CELLS.error(count, str(record.location))
        yield record


__all__ = [
    "BLOCK_SIZE",
    "FORMATS",
    "Delimited",
    "Format",
    "JsonLines",
    "LazyFormat",
    "ReadOptions",
    "Record",
    "Text",
    "find_format",
    "read_records",
]
