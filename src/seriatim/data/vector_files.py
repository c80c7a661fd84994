"""Vectors of texts on disk: .npy, or Parquet with the texts beside them. Both are written as the vectors come, and are
whole or not there at all."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError
from seriatim.core.files import atomic_file

ENDINGS = (".npy", ".parquet")
GROUP = 16_384  # rows of a Parquet file that are written together
ABOUT = b"seriatim.vectors"  # where a Parquet file says which model its vectors are of

Add = Callable[[Sequence[str], np.ndarray], None]


def check_ending(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        what = path.suffix.lower() or "nameless"
        raise SeriatimError("output.kind", f"{path}: cannot write vectors to a {what} file", "end it in .npy, .parquet")


@contextlib.contextmanager
def writing(path: str | Path, width: int, about: dict[str, Any]) -> Iterator[Add]:
    """Gives a function that takes texts and their vectors (n,width), as often as there are some."""
    path = Path(path)
    check_ending(path)
    write = _npy if path.suffix.lower() == ".npy" else _parquet
    with atomic_file(path) as aside, write(aside, width, about) as add:
        yield add


@contextlib.contextmanager
def _npy(path: Path, width: int, about: dict[str, Any]) -> Iterator[Add]:
    """The header says how many rows follow: it is written again at the end, NumPy leaves room in it for any number."""
    rows = 0
    with open(path, "wb") as file:

        def head() -> None:
            shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, shape)

        def add(texts: Sequence[str], vectors: np.ndarray) -> None:
            nonlocal rows
            file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
            rows += len(vectors)

        head()
        yield add
        file.seek(0)
        head()


@contextlib.contextmanager
def _parquet(path: Path, width: int, about: dict[str, Any]) -> Iterator[Add]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [pa.field("text", pa.string()), pa.field("vector", pa.list_(pa.float32(), width))]
    schema = pa.schema(fields, metadata={ABOUT: json.dumps(about).encode()})
    waiting: list[Any] = []
    with pq.ParquetWriter(path, schema, use_dictionary=False) as file:

        def write() -> None:
            if waiting:
                file.write_table(pa.Table.from_batches(waiting, schema))
                waiting.clear()

        def add(texts: Sequence[str], vectors: np.ndarray) -> None:
            flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
            columns = [pa.array(texts, pa.string()), pa.FixedSizeListArray.from_arrays(flat, width)]
            waiting.append(pa.record_batch(columns, schema=schema))
            if sum(len(batch) for batch in waiting) >= GROUP:
                write()

        yield add
        write()


@dataclass(frozen=True)
class Vectors:
    """A Parquet file of vectors that was written here; `about` says by which model."""

    path: Path
    width: int
    about: dict[str, Any]

    def checked(self, model: str, pooling: str | None) -> str:
        """The pooling they were made with, if it was the one asked for, and the model too."""
        made = str(self.about.get("pooling"))
        if self.about.get("model") != model or pooling not in (None, made):
            wanted = "this model" if pooling is None else f"this model with the pooling {pooling}"
            cause = f"{self.path} holds vectors of {self.about.get('run')} ({made}), not of {wanted}"
            raise SeriatimError("embed.vectors", cause, "embed the texts again, or name that run")
        return made

    def __iter__(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """Some texts and their vectors (n,width) at a time."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=GROUP, columns=["text", "vector"]):
                flat = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
                yield batch.column("text").to_pylist(), flat.reshape(-1, self.width).astype(np.float32, copy=False)


def stored(path: str | Path) -> Vectors | None:
    """The vectors of a file, where it is one of those written here."""
    path = Path(path)
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError):
        return None  # what reads tables says what is wrong with it
    about = (schema.metadata or {}).get(ABOUT)
    if about is None:
        return None
    return Vectors(path, schema.field("vector").type.list_size, json.loads(about))
