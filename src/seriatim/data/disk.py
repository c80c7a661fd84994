"""Columns on disk: cells as Arrow strings in mapped shards, and arrays that are computed once and kept beside them.

A table is a folder of the cache:

    table.json              columns, files, and the rows of each shard; written last
    00000.arrow …           IPC files of one record batch: the columns as large_string, `file` int32, `line` int64
    derived/<name>.npy      sizes, hashes, group numbers and splits of all rows, each computed when first asked for

Memory grows with the rows by a few numbers each, never with the text: a shard is mapped while it is read, and only
the last few stay mapped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.files import atomic_file, write_json
from .stream import Location

VERSION = 1  # of the files; part of every key
BLOCK_ROWS = 8192  # strings that are Python objects at a time
MAPPED_SHARDS = 8  # that stay mapped for random access
SHORT = 64  # bytes of a string that is hashed by words of 8 bytes
Rows: TypeAlias = "slice | np.ndarray | list[int]"
Strings: TypeAlias = Any  # `pa.LargeStringArray`, which has no types


def cache_key(*parts: object) -> str:
    """Returns the name of what follows from `parts` alone."""
    return hashlib.sha256(json.dumps([VERSION, *parts], sort_keys=True).encode()).hexdigest()[:32]


# Tables


@dataclass(frozen=True)
class Table:
    """The rows of a source on disk."""

    folder: Path
    name: str  # of the source
    files: tuple[str, ...]  # as messages show them
    shard_rows: tuple[int, ...]

    @classmethod
    def open(cls, folder: Path) -> Table | None:
        """Returns the table in a folder, or None if it is not complete."""
        try:
            values = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        except OSError:
            return None
        return cls(folder, values["name"], tuple(values["files"]), tuple(values["rows"]))

    @cached_property
    def starts(self) -> np.ndarray:
        """The first row of each shard, and the number of all rows (shards + 1,)."""
        return np.concatenate([[0], np.cumsum(self.shard_rows, dtype=np.int64)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def column(self, shard: int, name: str) -> pa.Array:
        return map_shard(self.folder / f"{shard:05}.arrow").column(name)

    def shards(self, name: str) -> Iterator[pa.Array]:
        """Yields a column shard by shard; each is unmapped before the next one."""
        for shard in range(len(self.shard_rows)):
            yield open_shard(self.folder / f"{shard:05}.arrow").column(name)

    def derive(self, name: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns an array that follows from the table, mapped from disk; computed if it is not there."""
        path = self.folder / "derived" / f"{cache_key(name)}.npy"
        if not path.exists():
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                np.save(file, compute())
        return np.load(path, mmap_mode="r")


def open_shard(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


map_shard = lru_cache(MAPPED_SHARDS)(open_shard)  # for random access


class TableWriter:
    """Writes the shards of a table one by one. After a kill it goes on behind the last complete shard.

    Args:
        folder: Of the table; its name follows from the stamps of the files and how they are read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards: list[dict[str, Any]] = []
        while (path := self._path(len(self.shards), "json")).exists():
            self.shards.append(json.loads(path.read_text(encoding="utf-8")))

    def _path(self, shard: int, extension: str) -> Path:
        return self.folder / f"{shard:05}.{extension}"

    @property
    def position(self) -> dict[str, int]:
        """Where in the source the last complete shard ends; empty at the start."""
        return self.shards[-1]["position"] if self.shards else {}

    def write(self, columns: Mapping[str, pa.Array], file: int, lines: np.ndarray, position: dict[str, int]) -> None:
        """Writes a shard: the cells by column, their file and lines, and where in the source it ends."""
        files = to_numbers(np.full(len(lines), file, np.int32), pa.int32())
        places = {"file": files, "line": to_numbers(lines.astype(np.int64, copy=False), pa.int64())}
        batch = pa.record_batch({**columns, **places})
        path = self._path(len(self.shards), "arrow")
        with (
            atomic_file(path) as temporary,
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)
        facts = {"rows": len(lines), "position": position}
        write_json(self._path(len(self.shards), "json"), facts)
        self.shards.append(facts)

    def finish(self, name: str, files: Sequence[str]) -> Table:
        """Completes the table and returns it."""
        rows = [shard["rows"] for shard in self.shards]
        write_json(self.folder / "table.json", {"name": name, "files": list(files), "rows": rows})
        for shard in range(len(self.shards)):
            self._path(shard, "json").unlink()
        return Table(self.folder, name, tuple(files), tuple(rows))


# Columns


class TextValues:
    """A column of strings on disk, or some rows of one; reads like an array of Python strings.

    Args:
        table: Where the strings are.
        column: The name of the column in the table.
        rows: Rows of the table in this order; None for all.
        extra: Strings that are not in the table: row `len(table) + n` is the n-th of them.
    """

    dtype = np.dtype(object)

    def __init__(self, table: Table, column: str, rows: np.ndarray | None = None, extra: tuple[str, ...] = ()) -> None:
        self.table, self.column, self.rows, self.extra = table, column, rows, extra

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, rows: int | np.integer) -> str: ...
    @overload
    def __getitem__(self, rows: Rows) -> TextValues: ...
    def __getitem__(self, rows: int | np.integer | Rows) -> str | TextValues:
        if isinstance(rows, (int, np.integer)):
            position = range(len(self))[int(rows)]
            return self.strings(position, position + 1)[0].as_py()
        return TextValues(self.table, self.column, select_rows(self.rows, rows, len(self)), self.extra)

    def __iter__(self) -> Iterator[str]:
        for strings in self.blocks():
            yield from strings.to_pylist()

    def tolist(self) -> list[str]:
        return list(self)

    def blocks(self, size: int = BLOCK_ROWS) -> Iterator[Strings]:
        """Yields all strings in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.strings(start, min(start + size, len(self)))

    def strings(self, start: int, stop: int) -> Strings:
        """Returns the strings at positions start…stop−1."""
        rows = np.arange(start, stop) if self.rows is None else np.asarray(self.rows[start:stop])
        shards = np.searchsorted(self.table.starts, rows, side="right") - 1
        order = np.argsort(shards, kind="stable")
        bounds = np.flatnonzero(np.diff(shards[order], prepend=-1, append=len(self.table.starts)))
        parts = [self._take(int(shards[order[a]]), rows[order[a:b]]) for a, b in pairwise(bounds)]
        if not parts:
            return to_strings([])
        strings = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if len(parts) == 1 or (np.diff(order) == 1).all():
            return strings
        inverse = np.empty(len(order), np.int64)
        inverse[order] = np.arange(len(order))
        return strings.take(to_numbers(inverse, pa.int64()))

    def _take(self, shard: int, rows: np.ndarray) -> Strings:
        local = rows - self.table.starts[shard]
        if shard == len(self.table.shard_rows):
            return to_strings([self.extra[row] for row in local.tolist()])
        strings = self.table.column(shard, self.column)
        if local[-1] - local[0] == len(local) - 1 and (np.diff(local) == 1).all():
            return strings.slice(int(local[0]), len(local))
        return strings.take(to_numbers(local, pa.int64()))

    def derive(self, name: str, compute: Callable[[Strings], np.ndarray]) -> np.ndarray:
        """Returns a number for each string (n,), computed once for all rows of the table and kept on disk."""
        stored = self.table.derive(
            f"{self.column} {name}", lambda: np.concatenate([compute(part) for part in self.table.shards(self.column)])
        )
        if self.rows is None:
            return stored
        if not self.extra:
            return np.asarray(stored[self.rows])
        numbers = np.concatenate([stored, compute(to_strings(self.extra))])
        return numbers[self.rows]

    def lengths(self) -> np.ndarray:
        """The number of characters of each string (n,)."""
        return self.derive("length", lambda strings: as_numpy(pc.utf8_length(strings), np.int32))

    def byte_sizes(self) -> np.ndarray:
        """The number of bytes of each string (n,) in UTF-8."""
        return self.derive("bytes", lambda strings: as_numpy(pc.binary_length(strings), np.int64))

    def sizes(self) -> np.ndarray:
        """The number of characters of each string (n,), without white space at its ends."""
        return self.derive("size", lambda strings: as_numpy(pc.utf8_length(pc.utf8_trim_whitespace(strings)), np.int32))

    def hashes(self, key: Callable[[str], Hashable] | None = None) -> np.ndarray:
        """A hash of each string (n,) uint64, or of `key(string)`; see `hash_strings`."""
        if key is None:
            return self.derive("hash", hash_strings)
        return self.derive(f"hash {key.__qualname__}", lambda strings: hash_keys(strings, key))

    def insert(self, positions: np.ndarray, string: str) -> TextValues:
        """Returns the values with a string inserted before each of these positions, as `np.insert` does."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        inserted = np.insert(rows, positions, len(self.table) + len(self.extra))
        return TextValues(self.table, self.column, inserted, (*self.extra, string))

    def replace(self, rows: np.ndarray, strings: Mapping[int, str]) -> TextValues:
        """Returns the values of these rows, with other strings at some positions."""
        selected = np.array(rows if self.rows is None else self.rows[rows], dtype=np.int64)
        selected[list(strings)] = len(self.table) + len(self.extra) + np.arange(len(strings))
        return TextValues(self.table, self.column, selected, (*self.extra, *strings.values()))


class Locations:
    """The locations of rows on disk, each made when it is asked for."""

    def __init__(self, table: Table, rows: np.ndarray | None = None) -> None:
        self.table, self.rows = table, rows

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, rows: int | np.integer) -> Location: ...
    @overload
    def __getitem__(self, rows: Rows) -> Locations: ...
    def __getitem__(self, rows: int | np.integer | Rows) -> Location | Locations:
        if isinstance(rows, (int, np.integer)):
            position = range(len(self))[int(rows)]
            row = position if self.rows is None else int(self.rows[position])
            shard = int(np.searchsorted(self.table.starts, row, side="right")) - 1
            local = row - int(self.table.starts[shard])
            file, line = (self.table.column(shard, name)[local].as_py() for name in ("file", "line"))
            return Location(self.table.files[file], line)
        return Locations(self.table, select_rows(self.rows, rows, len(self)))

    def __iter__(self) -> Iterator[Location]:
        return (self[row] for row in range(len(self)))


def select_rows(selected: np.ndarray | None, rows: Rows, count: int) -> np.ndarray:
    """Returns some of the selected rows of a table, or of all; columns that share `rows` share the result."""
    if selected is not None:
        return selected[rows]
    if isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.min(initial=0) >= 0:
        return rows
    return np.arange(count)[rows]


def to_strings(texts: Sequence[str]) -> Strings:
    """Returns texts as an Arrow array. `pa.array` would import pandas, which takes a second."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def to_numbers(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Returns an array of numbers as an Arrow array, without a copy."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def as_numpy(array: pa.Array, dtype: npt.DTypeLike) -> np.ndarray:
    """Returns an Arrow array of integers without nulls. `to_numpy` would import pandas, which takes half a second."""
    numbers = np.frombuffer(array.buffers()[1], np.dtype(f"i{array.type.bit_width // 8}"))
    return numbers[array.offset : array.offset + len(array)].astype(dtype, copy=False)


# Hashes


def hash_strings(strings: Strings) -> np.ndarray:
    """Returns a 64-bit hash of each string (n,), the same on every machine.

    Two of n different strings have the same hash with a probability of about n² / 2⁶⁵: 10⁻⁶ for five million.
    Strings of at most `SHORT` bytes are hashed together, a word of 8 bytes at a time; longer ones by BLAKE2.
    """
    count = len(strings)
    _, offsets_buffer, data_buffer = strings.buffers()
    if not count or data_buffer is None:
        return np.full(count, mix(np.zeros(1, np.uint64))[0], dtype=np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int64)[strings.offset : strings.offset + count + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)  # the last word may reach beyond the last string
    data[:-8] = np.frombuffer(data_buffer, np.uint8)[first:last]
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    words = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))  # the 8 bytes from each position on
    hashes = mix(lengths.astype(np.uint64))
    short = np.flatnonzero((lengths <= SHORT) & (lengths > 0))
    for position in range(0, SHORT, 8):
        short = short[lengths[short] > position]
        if not len(short):
            break
        missing = np.maximum(8 - (lengths[short] - position), 0).astype(np.uint64) * np.uint64(8)
        mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> missing
        hashes[short] = mix(hashes[short] ^ (words[starts[short] + position] & mask))
    long = np.flatnonzero(lengths > SHORT)
    content, ends = memoryview(data.data), (starts + lengths)[long].tolist()
    digests = (
        hashlib.blake2b(content[start:end], digest_size=8).digest()
        for start, end in zip(starts[long].tolist(), ends, strict=True)
    )
    hashes[long] = np.frombuffer(b"".join(digests), "<u8")
    return hashes


def mix(numbers: np.ndarray) -> np.ndarray:
    """Returns the finalizer of splitmix64 of each number: a bijection that looks random."""
    numbers = (numbers + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def hash_keys(strings: Strings, key: Callable[[str], Hashable]) -> np.ndarray:
    """Returns a hash of `key(string)` for each string (n,)."""
    blocks = [strings.slice(start, BLOCK_ROWS) for start in range(0, len(strings), BLOCK_ROWS)]
    keys = ([str(key(string)) for string in block.to_pylist()] for block in blocks)
    return np.concatenate([hash_strings(to_strings(block)) for block in keys])


def number_groups(keys: np.ndarray) -> np.ndarray:
    """Returns the number of each key (n,), numbered in the order of first occurrence, without Python objects."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int64)
    numbers[np.argsort(first, kind="stable")] = np.arange(len(first))
    return numbers[inverse]
