"""Vectors of texts: files of them, and nearest neighbors.

A file is .npy, or Parquet with the texts and a description of the model beside the vectors. Both are written block by
block, and appear complete or not at all. A search reads vectors block by block and remembers none but the nearest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from ..core.errors import SeriatimError
from ..core.files import Json, atomic_file
from .stream import parse_json, shorten_error

EXTENSIONS = (".npy", ".parquet")
BLOCK_ROWS = 16_384  # of a Parquet file, written and read together
METADATA_KEY = b"seriatim.vectors"  # of the description in a Parquet file
MAX_SIMILARITIES = 1 << 22  # that are held in memory at once

TextBlocks = Iterable[tuple[Sequence[str], np.ndarray]]  # texts with their vectors, some at a time


# Files


class VectorWriter:
    """Writes vectors to a file, within a `with` block: `writer.write(texts, vectors)`, any number of times.

    Args:
        path: With one of the `EXTENSIONS`.
        width: The size of a vector.
        description: Of the model and the pooling, stored in a Parquet file; see `VectorFile.check_model`.
    """

    def __init__(self, path: str | Path, width: int, description: Mapping[str, object]) -> None:
        self.path, self.width, self.description = Path(path), width, dict(description)
        check_extension(self.path)
        self.rows = 0
        self._stack = ExitStack()
        self._batches: list[pa.RecordBatch] = []

    def __enter__(self) -> Self:
        temporary = self._stack.enter_context(atomic_file(self.path))
        if self.path.suffix.lower() == ".npy":
            self._file = self._stack.enter_context(temporary.open("wb"))
            self._write_npy_header()
            return self
        import pyarrow.parquet as pq

        fields = [pa.field("text", pa.string()), pa.field("vector", pa.list_(pa.float32(), self.width))]
        self._schema = pa.schema(fields, metadata={METADATA_KEY: json.dumps(self.description).encode()})
        self._parquet = self._stack.enter_context(pq.ParquetWriter(temporary, self._schema, use_dictionary=False))
        return self

    def write(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Appends texts and their vectors (n,width)."""
        self.rows += len(vectors)
        if self.path.suffix.lower() == ".npy":
            self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
            return
        flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
        columns = [pa.array(texts, pa.string()), pa.FixedSizeListArray.from_arrays(flat, self.width)]
        self._batches.append(pa.record_batch(columns, schema=self._schema))
        if sum(len(batch) for batch in self._batches) >= BLOCK_ROWS:
            self._write_batches()

    def _write_batches(self) -> None:
        if self._batches:
            self._parquet.write_table(pa.Table.from_batches(self._batches, self._schema))
            self._batches = []

    def _write_npy_header(self) -> None:
        """NumPy pads the header, so that it can be written again with any number of rows."""
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.width)}
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, shape)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_npy_header() if self.path.suffix.lower() == ".npy" else self._write_batches()
        self._stack.__exit__(kind, error, traceback)


def check_extension(path: Path) -> None:
    """Raises SeriatimError unless vectors can be written to a file of this name."""
    if path.suffix.lower() not in EXTENSIONS:
        extension = path.suffix.lower() or "nameless"
        cause = f"{path}: cannot write vectors to a {extension} file"
        raise SeriatimError("output.format", cause, f"use {' or '.join(EXTENSIONS)}")


@dataclass(frozen=True)
class VectorFile:
    """A Parquet file of vectors that a `VectorWriter` wrote."""

    path: Path
    width: int
    description: Json

    def check_model(self, model: str, pooling: str | None) -> str:
        """Returns the pooling of the vectors, or raises SeriatimError if another model or pooling made them.

        Args:
            model: The hash of the weights that vectors are to be compared with.
            pooling: The pooling the user asks for; None for that of the file.
        """
        stored = str(self.description.get("pooling"))
        if self.description.get("model") != model or pooling not in (None, stored):
            expected = "this model" if pooling is None else f"this model with the pooling {pooling}"
            cause = f"{self.path} holds vectors of {self.description.get('run')} ({stored}), not of {expected}"
            raise SeriatimError("embed.vectors", cause, "embed the texts again, or name that run")
        return stored

    def __iter__(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields texts and their vectors (n,width), `BLOCK_ROWS` at a time."""
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=["text", "vector"]):
                    flat = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
                    yield batch.column("text").to_pylist(), flat.reshape(-1, self.width).astype(np.float32, copy=False)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            cause = f"{self.path}: the vectors cannot be read ({shorten_error(error)})"
            raise SeriatimError("embed.vectors", cause, "embed the texts again") from None


def open_vectors(path: str | Path) -> VectorFile | None:
    """Returns the vectors of a file, None if it is not one that a `VectorWriter` wrote."""
    path = Path(path)
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return None
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError):
        return None  # the reader of tables says what is wrong with it
    description = (schema.metadata or {}).get(METADATA_KEY)
    if description is None:
        return None
    try:
        values = parse_json(description.decode())
        return VectorFile(path, schema.field("vector").type.list_size, dict(values))
    except (ValueError, TypeError, KeyError, AttributeError):
        cause = f"{path}: the description of its vectors is damaged"
        raise SeriatimError("embed.vectors", cause, "embed the texts again") from None


# Nearest neighbors


class Neighbor(NamedTuple):
    row: int  # among the texts that were searched, from 0
    similarity: float  # cosine
    text: str


def nearest(
    queries: np.ndarray, blocks: TextBlocks, top: int, own_rows: np.ndarray | None = None
) -> list[list[Neighbor]]:
    """Returns the texts whose vectors have the largest cosine with each query, the nearest first.

    Args:
        queries: Vectors (q,D).
        blocks: The texts to search, with their vectors (n,D).
        top: The number of neighbors.
        own_rows: A row for each query (q,) that is not its neighbor: the query itself.
    """
    queries = normalized(queries)
    rows, similarities = np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0), np.float32)
    texts = np.zeros((len(queries), 0), object)
    first, size = 0, max(MAX_SIMILARITIES // max(len(queries), 1), 1)
    for block, vectors in blocks:
        for start in range(0, len(block), size):
            cosines = queries @ normalized(vectors[start : start + size]).T  # (q,n)
            numbers = first + start + np.arange(cosines.shape[1])
            if own_rows is not None:
                cosines[numbers == own_rows[:, None]] = -np.inf
            count = min(top, cosines.shape[1])
            best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            rows = np.concatenate([rows, numbers[best]], axis=1)
            similarities = np.concatenate([similarities, np.take_along_axis(cosines, best, 1)], axis=1)
            texts = np.concatenate([texts, np.array(block[start : start + size], object)[best]], axis=1)
            order = np.lexsort((rows, -similarities))[:, :top]  # of equally near ones the first
            rows, similarities, texts = (np.take_along_axis(a, order, 1) for a in (rows, similarities, texts))
        first += len(block)
    columns = zip(rows.tolist(), similarities.tolist(), texts.tolist(), strict=True)
    return [[Neighbor(*cells) for cells in zip(*row, strict=True) if cells[1] > -np.inf] for row in columns]


def nearest_to_each(blocks: TextBlocks, top: int) -> list[tuple[str, list[Neighbor]]]:
    """Returns every text with its nearest neighbors among the others; all vectors are in memory."""
    stored = list(blocks)
    texts = [text for block, _ in stored for text in block]
    vectors = np.concatenate([vectors for _, vectors in stored]) if stored else np.zeros((0, 1))
    neighbors: list[list[Neighbor]] = []
    size = int(MAX_SIMILARITIES**0.5)
    for start in range(0, len(vectors), size):
        queries = vectors[start : start + size]
        neighbors += nearest(queries, [(texts, vectors)], top, start + np.arange(len(queries)))
    return list(zip(texts, neighbors, strict=True))


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors scaled to length 1; zero vectors stay zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
