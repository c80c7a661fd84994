"""Sources: where data comes from, as files (a path, a folder, an archive) or as columns in memory."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, singledispatch
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa

from ..core.errors import SeriatimError, did_you_mean

HEAD_SIZE = 4096  # bytes of a file by which a format is recognized
SMALL_SIZE = 1 << 24  # bytes of a file that is decoded at once
GZIP_RATIO = 4  # bytes of text in a byte of a gzip file
SPLIT_IN_FILE_NAME = re.compile(r"(?:^|[^a-z])(train|dev|valid|validation|val|test)", re.IGNORECASE)
SPLIT_ALIASES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True)
class Stream:
    """A file, or a member of an archive, that can be opened any number of times."""

    name: str  # as messages show it
    extension: str  # such as "csv", without that of the compression
    open: Callable[[], io.BufferedIOBase]
    size: int = 0  # bytes, of a gzip file about four times those on disk; 0 if unknown
    stamp: tuple[str, int, int] | None = None  # path, bytes and time of the last change of the file; None in memory

    def lines(self, encoding: str = "utf-8") -> Iterator[str]:
        """Yields the decoded lines with `\\n` at their ends; of a large file only a block is in memory.

        Only `\\n` and `\\r\\n` end a line: other line ends may occur in cells.
        """
        if self.size <= SMALL_SIZE:
            yield from io.StringIO(self.read_text(encoding), newline="\n")
            return
        try:
            with io.TextIOWrapper(cast(io.BufferedReader, self.open()), encoding, newline="\n") as file:
                yield (next(file, "")).removeprefix("\ufeff").replace("\r\n", "\n")
                for line in file:
                    yield line if line[-2:-1] != "\r" else line.replace("\r\n", "\n")
        except UnicodeDecodeError:
            self.find_bad_byte(encoding)

    def find_bad_byte(self, encoding: str) -> None:
        """Raises the error that names the first byte that cannot be decoded, with its line."""
        decoder, line = codecs.getincrementaldecoder(encoding)(), 1
        with self.open() as file:
            while block := file.read(SMALL_SIZE):
                try:
                    decoder.decode(block)
                except UnicodeDecodeError as error:
                    line += error.object[: error.start].count(b"\n")
                    raise self.encoding_error(error, line, encoding) from None
                line += block.count(b"\n")

    def encoding_error(self, error: UnicodeDecodeError, line: int, encoding: str) -> SeriatimError:
        cause = f"{self.name}, line {line}: byte 0x{error.object[error.start]:02x} is not {encoding}"
        return SeriatimError("data.encoding", cause, "name the encoding: data.encoding=cp1252")

    def read_text(self, encoding: str = "utf-8") -> str:
        """Returns the decoded contents, without a byte order mark and with `\\n` as the line end."""
        with self.open() as file:
            data = file.read()
        try:
            return data.decode(encoding).removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise self.encoding_error(error, data.count(b"\n", 0, error.start) + 1, encoding) from None

    def read_head(self) -> str:
        """Returns the first characters, to recognize a format by."""
        with self.open() as file:
            return file.read(HEAD_SIZE).decode("utf-8", "replace")


@dataclass(frozen=True)
class Source:
    """Files or columns in memory; `splits` if the file names tell which split each file holds."""

    name: str
    streams: tuple[Stream, ...] = ()
    columns: Mapping[str, Sequence[Any]] | None = None
    index: Any = None  # of a pandas DataFrame; `Predictions.to_frame` restores it
    splits: Mapping[str, Source] = field(default_factory=dict)


@runtime_checkable
class ArrowStream(Protocol):
    """A table that exports the Arrow stream protocol: pandas, polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@singledispatch
def open_source(spec: Any, data_dir: str | None = None) -> Source:
    """Returns the source for a path, an Arrow table, a mapping of columns, or a list of texts, tuples or records.

    Args:
        spec: Where the data is, or the data itself.
        data_dir: The folder of catalogue data sets.
    """
    cause = f"{type(spec).__name__} is not a source of data"
    raise SeriatimError("data.source", cause, "pass a path, a table, a mapping of columns or a list")


@open_source.register
def _(source: Source, data_dir: str | None = None) -> Source:
    return source


@open_source.register
def _(path: str, data_dir: str | None = None) -> Source:
    return open_source(Path(path), data_dir)


@open_source.register
def _(table: ArrowStream, data_dir: str | None = None) -> Source:
    arrow = pa.RecordBatchReader.from_stream(table).read_all()
    names = [name for name in arrow.column_names if not name.startswith("__index_level_")]  # pandas' unnamed index
    columns = {name: arrow[name].to_pylist() for name in names}
    return Source(type(table).__name__, columns=columns, index=getattr(table, "index", None))


@open_source.register
def _(columns: Mapping, data_dir: str | None = None) -> Source:
    return Source("columns", columns=dict(columns))


@open_source.register
def _(rows: list, data_dir: str | None = None) -> Source:
    """Records (dicts), tuples or single values; the columns of the last two are named by their position."""
    first = rows[0] if rows else ""
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for record in rows for name in record)
        return Source("records", columns={name: [record.get(name) for record in rows] for name in names})
    tuples = rows if isinstance(first, tuple) else [(value,) for value in rows]
    columns = {f"column {n}": list(cells) for n, cells in enumerate(zip(*tuples, strict=True), 1)}
    return Source("inputs", columns=columns)


@open_source.register
def _(path: Path, data_dir: str | None = None) -> Source:
    path = path.expanduser()
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")]
        streams = tuple(stream for file in files for stream in _open_file(file, str(file.relative_to(path.parent))))
    elif path.is_file():
        streams = _open_file(path, path.name)
    else:
        suggestion = did_you_mean(path.name, (file.name for file in path.parent.glob("*")))
        raise SeriatimError("data.missing", f"there is no file {path}", suggestion)
    return Source(path.name, streams, splits=_splits_by_file_name(streams))


def _open_file(path: Path, name: str) -> tuple[Stream, ...]:
    """Returns one stream for a plain or gzip file, one per member for a zip archive."""
    status = path.stat()
    stamp = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist() if not member.is_dir()}
        members = [name for name in sizes if not name.startswith("__MACOSX") and Path(name).name[0] not in "._"]
        return tuple(
            Stream(f"{name}/{member}", _extension(member), partial(_open_member, path, member), sizes[member], stamp)
            for member in members
        )
    if path.suffix == ".gz":
        size = GZIP_RATIO * status.st_size
        return (Stream(name, _extension(path.stem), lambda: gzip.open(path, "rb"), size, stamp),)
    return (Stream(name, _extension(name), lambda: path.open("rb"), status.st_size, stamp),)


def _open_member(path: Path, member: str) -> io.BufferedIOBase:
    return cast(io.BufferedIOBase, zipfile.ZipFile(path).open(member))


def _extension(name: str) -> str:
    return Path(name).suffix.lower().removeprefix(".") or "txt"


def _splits_by_file_name(streams: tuple[Stream, ...]) -> dict[str, Source]:
    """Returns the split of each file if every name tells one and one of them is the training split, else nothing."""
    matches = [(SPLIT_IN_FILE_NAME.search(Path(stream.name).name), stream) for stream in streams]
    splits = {SPLIT_ALIASES[match[1].lower()]: Source(stream.name, (stream,)) for match, stream in matches if match}
    return splits if len(streams) > 1 and "train" in splits and len(splits) == len(streams) else {}
