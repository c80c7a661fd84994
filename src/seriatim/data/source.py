"""Sources: where data comes from, as files (a path, a folder, an archive, a catalogue name) or as columns in memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import pyarrow as pa

from ..core import limits
from ..core.errors import SeriatimError, did_you_mean
from ..core.text import listed, plural
from .kinds import SPLIT_ALIASES, Cell
from .stream import COMPRESSED, Decompressed, Stream, check_decompressed, expand_user, file_extension, reading

if TYPE_CHECKING:
    import pandas as pd

    from .catalogue.download import Progress
    from .catalogue.generated import Splits

MAX_PATH = 8_192  # characters of two paths
COMPRESSION_RATIO = 4  # bytes of text in a byte of a compressed file
NO_DATA = ("readme", "license", "licence", "_about")  # files that are about the data
OPENERS: dict[str, Callable[[Any], io.BufferedIOBase]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

Columns = Mapping[str, Sequence[Cell]]  # column → cells

__all__ = ["SPLIT_ALIASES", "Source", "Stream", "open_source"]


@dataclass(frozen=True)
class Source:
    """Files or columns in memory, with what is known of them.

    Args:
        name: As messages show it.
        streams: The files.
        columns: Column → cells, if the data is in memory.
        index: Of a pandas DataFrame; `Predictions.to_frame` restores it.
        splits: Split → its source, if splits are named by files, folders, the catalogue or the caller.
        notes: What was found on the way, such as files that are skipped.
        encoding: Of the files, if the catalogue knows it.
        roles: Role → columns, if the catalogue knows them; see `Schema.resolve`.
        rows: The first and the last row + 1 to read; None for all.
        options: Of the format, if the catalogue has some.
        aligned: Whether line N of each file belongs together ("train.en,train.fr").
    """

    name: str
    streams: tuple[Stream, ...] = ()
    columns: Columns | None = None
    index: pd.Index | None = None
    splits: Mapping[str, Source] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    encoding: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[int, int] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    aligned: bool = False

    @property
    def folder(self) -> Path:
        """The base folder of relative paths in cells: the folder of the first text file, or the current one."""
        streams = sorted(self.streams, key=Stream.has_binary_extension)  # images may be beside a table
        path = next((stream.path for stream in streams if stream.path is not None), None)
        return Path() if path is None else path.parent

    @property
    def data_streams(self) -> tuple[Stream, ...]:
        """The files without documentation such as README; all files if there are no others."""
        return tuple(stream for stream in self.streams if not is_about(stream)) or self.streams

    @property
    def size(self) -> int:
        """The bytes of all files, about."""
        return sum(stream.size for stream in self.streams)


@runtime_checkable
class ArrowStream(Protocol):
    """A table that exports the Arrow stream protocol: pandas, polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class HubDataset(Protocol):
    """A data set of the library `datasets`."""

    def with_format(self, type: str) -> Any: ...

    def class_encode_column(self, column: str) -> object: ...


DataInput: TypeAlias = (
    str | Path | Source | ArrowStream | HubDataset | Mapping[str, object] | Sequence[object] | np.ndarray
)
"""Data that a user names or passes: a path or a name, a table, a data set of `datasets`, or columns, rows and arrays.

`open_source` says what each of them may be.
"""


def open_source(spec: DataInput, data_dir: str | None = None, progress: Progress | None = None) -> Source:
    """Returns the source for what a user names or passes.

    Args:
        spec: A path (file, folder, zip archive or a member of it), two aligned files as "a.en,a.fr", the name of a
            catalogue data set; or data in memory: a DataFrame or any Arrow table, a `datasets.Dataset` or
            `DatasetDict`, a mapping of columns, a mapping of splits, a list of records, tuples or single values,
            arrays, or a pair (inputs, targets) of them.
        data_dir: The folder of catalogue data sets; by default the environment variable SERIATIM_DATA.
        progress: Called with the bytes downloaded so far, and the total.
    """
    if isinstance(spec, Source):
        return spec
    if isinstance(spec, (str, Path)):
        return _open_name(str(spec), data_dir, progress)
    if isinstance(spec, Mapping):
        return _open_mapping(spec, data_dir)
    if isinstance(spec, (ArrowStream, HubDataset)):
        return _open_table(spec)
    if (
        isinstance(spec, tuple)
        and len(spec) == 2
        and not any(isinstance(part, (str, bytes, float, int)) for part in spec)
    ):
        return _open_inputs_and_targets(*spec)
    if isinstance(spec, tuple):
        return _open_rows([spec])
    if isinstance(spec, (list, np.ndarray)):
        return _open_rows(spec)
    cause = f"{type(spec).__name__} is not a source of data"
    raise SeriatimError("data.source", cause, "pass a path, a table, a mapping of columns or a list")


# Data in memory


def _open_table(table: Any) -> Source:
    name, index = type(table).__name__, None
    if isinstance(table, HubDataset):
        arrow = table.with_format("arrow")[:]
        columns = {column: arrow[column].to_pylist() for column in arrow.column_names}
        for column, feature in table.features.items():  # type: ignore[attr-defined]
            inner: Any = getattr(feature, "feature", None)
            if hasattr(feature, "int2str"):  # class labels are stored as numbers
                cells = columns[column]
                columns[column] = [None if cell is None or cell < 0 else feature.int2str(cell) for cell in cells]
            elif hasattr(inner, "int2str"):  # lists of them, such as the tags of words
                columns[column] = [cell and [inner.int2str(label) for label in cell] for cell in columns[column]]
        return Source(name, columns=columns)
    if name in ("DataFrame", "Series") and type(table).__module__.startswith("pandas"):
        frame = table if name == "DataFrame" else table.to_frame()
        index = frame.index
        if index.name is None and None in index.names:
            frame = frame.reset_index(drop=True)
        table = frame
    try:
        arrow = pa.RecordBatchReader.from_stream(table).read_all()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # cells that Arrow does not know
        if index is None:
            raise
        return Source(name, columns={str(column): cells.tolist() for column, cells in table.items()}, index=index)
    names = [column for column in arrow.column_names if not column.startswith("__index_level_")]
    return Source(name, columns={column: arrow[column].to_pylist() for column in names}, index=index)


def _open_mapping(mapping: Mapping[str, Any], data_dir: str | None) -> Source:
    """Columns by name, or sources by split."""
    if mapping and all(str(key).lower() in SPLIT_ALIASES and _is_table(mapping[key]) for key in mapping):
        splits = {SPLIT_ALIASES[str(key).lower()]: open_source(spec, data_dir) for key, spec in mapping.items()}
        if "train" not in splits:
            if len(splits) == 1:
                return next(iter(splits.values()))
            raise SeriatimError("data.split", "there is no split train", f"the splits are: {', '.join(mapping)}")
        return replace(splits["train"], name=type(mapping).__name__, splits=splits)
    for name, cells in mapping.items():
        if isinstance(cells, (str, bytes)) or not isinstance(cells, Iterable):
            cause = f'column "{name}" holds a single {type(cells).__name__}, not a list of cells'
            raise SeriatimError("data.source", cause, "pass a list for each column, or a list of records")
    columns = {str(name): list(cells) for name, cells in mapping.items()}
    return Source("columns", columns=_same_lengths(columns))


def _is_table(spec: object) -> bool:
    """Returns whether a value is a table or its path, not the cells of a column."""
    if isinstance(spec, list):
        return bool(spec) and isinstance(spec[0], (Mapping, tuple))
    return isinstance(spec, (str, Path, Source, ArrowStream, HubDataset, Mapping)) and not hasattr(spec, "str")


def _open_rows(rows: Sequence[Cell] | np.ndarray) -> Source:
    """Records (dicts), tuples or single values; the columns of the last two are named by their position."""
    first = rows[0] if len(rows) else ""
    if isinstance(first, Mapping):
        if (other := next((n for n, record in enumerate(rows) if not isinstance(record, Mapping)), None)) is not None:
            cause = f"records, row {other}: a {type(rows[other]).__name__}, but the first row is a record"
            raise SeriatimError("data.source", cause, "pass rows of one type")
        names = dict.fromkeys(str(name) for record in rows for name in record)
        return Source("records", columns={name: [record.get(name) for record in rows] for name in names})
    if not isinstance(first, tuple):
        return Source("inputs", columns={"column 1": list(rows)})
    for number, row in enumerate(rows):
        if not isinstance(row, tuple) or len(row) != len(first):
            size = len(row) if isinstance(row, tuple) else 1
            cause = f"inputs, row {number}: {size} values, but the first row has {len(first)}"
            raise SeriatimError("data.length", cause, "pass tuples of one length")
    return Source("inputs", columns={f"column {n}": list(cells) for n, cells in enumerate(zip(*rows, strict=True), 1)})


def _open_inputs_and_targets(inputs: Any, targets: Any) -> Source:
    """A pair (X, y): the columns of X, or one column "x" with its rows, and the column "y"."""
    table = _open_table(inputs) if isinstance(inputs, (ArrowStream, HubDataset)) else None
    columns = (
        {"x": list(inputs)} if table is None else {name: list(cells) for name, cells in (table.columns or {}).items()}
    )
    values = targets.tolist() if isinstance(targets, np.ndarray) and targets.ndim == 1 else list(targets)
    return Source(
        "(x, y)", columns=_same_lengths(columns | {"y": values}), index=None if table is None else table.index
    )


def _same_lengths(columns: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        cause = "columns of different lengths: " + ", ".join(f"{name} {count:,}" for name, count in lengths.items())
        raise SeriatimError("data.length", cause, "give every column as many values")
    return columns


# Paths and names


def _open_name(name: str, data_dir: str | None, progress: Progress | None) -> Source:
    path = expand_user(name)
    try:
        exists = bool(name.strip()) and path.exists()
    except OSError:  # longer than the file system allows
        exists = False
    try:
        if exists:
            return _open_path(path)
        archive = next((folder for folder in path.parents if folder.suffix.lower() == ".zip"), None)
        if archive is not None and archive.is_file():
            return _open_path(archive, path.relative_to(archive).as_posix())
    except PermissionError as error:
        cause = f"{error.filename or path}: reading it is not permitted"
        raise SeriatimError("data.permission", cause, "check the permissions of the file") from None
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a name that no file can have
        cause = f"{name[:200]}: cannot be read ({getattr(error, 'strerror', None) or error})"
        raise SeriatimError("data.unreadable", cause, "check the path") from None
    if "," in name and len(name) <= MAX_PATH and (aligned := _open_aligned(name)) is not None:
        return aligned
    known = _open_catalogue(name, data_dir, progress)
    if known is not None:
        return known
    try:
        neighbors = [str(path.parent / file.name) for file in path.parent.iterdir() if not file.name.startswith(".")]
    except (OSError, ValueError):
        neighbors = []
    name = name[:MAX_PATH]
    hint = did_you_mean(name, [*neighbors, *known_names()])
    if not hint.startswith("did"):
        hint = f"pass a path, or a name of the catalogue: {', '.join(known_names())}"
    raise SeriatimError("data.missing", f'there is no file or data set "{name}"', hint)


def _open_path(path: Path, member: str = "") -> Source:
    """Returns the source of a file, a folder, an archive, or the members of one that `member` names."""
    if path.is_dir():
        path = path if path.name not in ("", "..") else path.resolve()
        files = _list_files(path)
        if not files:
            raise SeriatimError("data.empty", f"the folder {path} holds no files", "name a folder with data")
        real = os.path.realpath(path)
        streams = tuple(
            stream
            for name, entry in files
            for stream in _open_file(
                entry.path,
                f"{path.name}/{name}",
                status=entry.stat(),
                real_path=os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real, name),
            )
        )
        return _with_splits(path.name, streams)
    if not path.is_file():
        cause = f"{path} is neither a file nor a folder"
        raise SeriatimError("data.unreadable", cause, "a pipe is read once only: write its contents to a file")
    streams = _open_file(str(path), path.name, member)
    if path.suffix.lower() != ".zip":
        return Source(path.name, streams)
    return _with_splits(f"{path.name}/{member}" if member else path.name, streams)


def _list_files(folder: Path) -> list[tuple[str, os.DirEntry[str]]]:
    """Returns the files of a folder and its subfolders, sorted by relative path, without hidden files.

    (`Path.rglob` takes ten times as long, which is felt with a file for each of a hundred thousand texts.)
    """
    files: list[tuple[str, os.DirEntry[str]]] = []
    waiting, count, limit = [("", str(folder))], 0, limits.FILES.value
    while waiting:
        prefix, path = waiting.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                count += 1
                if count > limit:
                    raise limits.FILES.error(count, str(folder))
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((f"{prefix}{entry.name}/", entry.path))
                elif os.path.isfile(entry.path) if entry.is_symlink() else entry.is_file():  # not a link to itself
                    files.append((prefix + entry.name, entry))
    return sorted(files, key=lambda pair: pair[0])


def _open_file(
    path: str, name: str, member: str = "", status: os.stat_result | None = None, real_path: str | None = None
) -> tuple[Stream, ...]:
    """Returns one stream for a plain or compressed file, one per member for a zip archive.

    Args:
        path: The file.
        name: As messages show it.
        member: A file or folder in an archive; by default all.
        status: Of the file, if it is known.
        real_path: Its path without links, if that is known.
    """
    status = os.stat(path) if status is None else status
    stamp = (os.path.realpath(path) if real_path is None else real_path, status.st_size, status.st_mtime_ns)
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".zip":
        with reading(path), zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
            limits.FILES.check(len(archive.infolist()), path)
            check_decompressed(name, sum(info.file_size for info in archive.infolist()), status.st_size)
        members = [m for m in sorted(sizes) if not any(p.startswith((".", "__MACOSX")) for p in PurePosixPath(m).parts)]
        if member:
            inside = [name for name in members if name == member or name.startswith(f"{member}/")]
            if not inside:
                hint = did_you_mean(f"{path}/{member}", [f"{path}/{name}" for name in members])
                raise SeriatimError("data.missing", f'the archive {path} holds no "{member}"', hint)
            members = inside
        if not members:
            raise SeriatimError("data.empty", f"the archive {path} holds no files", "name an archive with data")
        return tuple(
            Stream(f"{name}/{m}", file_extension(m), partial(_open_member, stamp, m), sizes[m], stamp) for m in members
        )
    if suffix in COMPRESSED:
        opener = partial(_open_compressed, path, name)
        return (Stream(name, file_extension(name), opener, COMPRESSION_RATIO * stamp[1], stamp),)
    return (Stream(name, file_extension(name), partial(cast(Any, open), path, "rb"), stamp[1], stamp),)


def _open_compressed(path: str, name: str) -> io.BufferedIOBase:
    return Decompressed(name, OPENERS[os.path.splitext(path)[1].lower()](path), os.stat(path).st_size)


@lru_cache(maxsize=8)
def _open_archive(path: str, size: int, changed: int) -> zipfile.ZipFile:
    """Returns an open archive: reading its table of contents for each of many members would take quadratic time."""
    return zipfile.ZipFile(path)


def _open_member(stamp: tuple[str, int, int], member: str) -> io.BufferedIOBase:
    archive = _open_archive(*stamp)
    info = archive.getinfo(member)
    contents = cast(io.BufferedIOBase, archive.open(info))
    file = Decompressed(f"{PurePath(stamp[0]).name}/{member}", contents, min(info.compress_size, stamp[1]))
    opener = OPENERS.get(PurePosixPath(member.lower()).suffix)
    return file if opener is None else Decompressed(file.name, opener(file), info.file_size)


def _open_aligned(name: str) -> Source | None:
    """Returns the two files that "train.en,train.fr" names; None if neither exists."""
    commas = [match.start() for match in re.finditer(",", name)]
    pairs = [(expand_user(name[:c].strip()), expand_user(name[c + 1 :].strip())) for c in commas]
    for pair in pairs:
        if all(map(os.path.isfile, pair)):
            streams = tuple(stream for path in pair for stream in _open_file(str(path), path.name))
            return Source(",".join(path.name for path in pair), streams, aligned=True)
    missing = next(
        (path for pair in pairs for path in pair if any(map(os.path.isfile, pair)) and not os.path.isfile(path)), None
    )
    if missing is None:
        return None
    raise SeriatimError("data.missing", f'there is no file "{missing}"', "name two aligned files as train.en,train.fr")


# Splits by names


def split_of_name(name: str) -> str:
    """Returns the split named in a file or folder name, such as "train-0.csv"; "" if there is none or several."""
    words = re.split(r"[^a-z]+", PurePosixPath(name.lower()).name)
    splits = {SPLIT_ALIASES[word] for word in words if word in SPLIT_ALIASES}
    return splits.pop() if len(splits) == 1 else ""


def is_about(stream: Stream) -> bool:
    """Returns whether a file is about the data, such as README.md."""
    return stream.parts[-1].lower().startswith(NO_DATA)


def _with_splits(name: str, streams: tuple[Stream, ...]) -> Source:
    """Returns a source of several files, with splits if their folders, or all files, are named after splits."""
    paths = [stream.parts[1:] for stream in streams]
    while paths and all(len(parts) > 1 for parts in paths) and len({parts[0] for parts in paths}) == 1:
        paths = [parts[1:] for parts in paths]  # a folder around all others names no split
    split_names = [SPLIT_ALIASES.get(parts[0].lower(), "") if len(parts) > 1 else "" for parts in paths]
    what = "folders"
    if "train" not in split_names:
        split_names = ["" if is_about(s) else split_of_name(p[-1]) for s, p in zip(streams, paths, strict=True)]
        what = "files"
        data = [split for stream, split in zip(streams, split_names, strict=True) if not is_about(stream)]
        if len(data) < 2 or not all(data) or "train" not in data:
            return Source(name, streams)
    members: dict[str, list[Stream]] = {}
    for stream, split in zip(streams, split_names, strict=True):
        members.setdefault(split, []).append(stream)
    outside = members.pop("", [])
    notes: tuple[str, ...] = (f"splits by the names of {what}: {', '.join(members)}",)
    if outside:
        files = plural(len(outside), "file outside of them is", "files outside of them are")
        notes += (f"{files} left out: {listed([stream.name for stream in outside], 3)}",)
    if len(members) < 2:
        return Source(name, streams)
    splits = {
        split: Source(files[0].name if len(files) == 1 else f"{name}, {split}", tuple(files))
        for split, files in members.items()
    }
    splits["train"] = replace(splits["train"], notes=notes)
    return Source(name, streams, splits=splits, notes=notes)


# The catalogue


def known_names() -> list[str]:
    """Returns the names of all catalogue and synthetic data sets."""
    from .catalogue import entries
    from .catalogue.generated import SETS

    return sorted([*entries(), *SETS])


def _open_catalogue(name: str, data_dir: str | None, progress: Progress | None) -> Source | None:
    """Returns the source of a catalogue data set, in its splits, or of a synthetic one; None for other names."""
    from .catalogue import find_entry, locate
    from .catalogue.generated import SETS, read_image_splits

    entry = find_entry(name)
    if entry is None or name.partition(":")[0] in SETS:

        def load_base(base: str) -> Splits:
            source = _open_catalogue(base, data_dir, progress)
            return read_image_splits(() if source is None else source.streams)

        return synthetic_source(name, load_base)
    located = locate(entry.name, data_dir, progress)
    splits = {}
    for split, files in located.files.items():
        streams = tuple(stream for file in files for stream in _open_file(str(file.path), file.path.name, file.member))
        splits[split] = Source(
            streams[0].name if len(streams) == 1 else entry.name,
            streams,
            encoding=entry.encoding,
            roles=entry.columns,
            rows=entry.rows.get(split),
            options=entry.options,
        )
    notes = (f"{entry.name}: {located.origin}",)
    splits["train"] = replace(splits["train"], notes=notes)
    return splits["train"] if len(splits) == 1 else replace(splits["train"], name=entry.name, rows=None, splits=splits)


def synthetic_source(name: str, load_base: Callable[[str], Splits] | None = None) -> Source | None:
    """Returns the source of a synthetic set, such as "adding:200"; None for other names. See `generated.generate`."""
    from .catalogue.generated import generate

    values = generate(name, load_base)
    if values is None:
        return None
    if isinstance(values, str):
        data = values.encode()
        return Source(name, (Stream(f"{name}.txt", "txt", lambda: io.BytesIO(data), len(data)),))
    columns = {split: cast(Columns, part) for split, part in values.items()}  # arrays, too
    splits = {split: Source(f"{name}, {split}", columns=part) for split, part in columns.items()}
    return Source(name, columns=columns["train"], splits=splits if len(splits) > 1 else {})
