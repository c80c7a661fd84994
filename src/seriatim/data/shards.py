"""Token shards: the encoded items of a large column on disk, written once, shard by shard, by several processes.

A folder of the cache holds

    job.json, rows.npy, tokenizer.json      what is encoded: enough for a worker process to do its part
    00000.tokens, 00000.ends, 00000.json    tokens of the smallest dtype, the end of each item, counts
    index.json                              the counts of all shards; written last

A shard appears complete or not at all, since its JSON file is written last. After a kill the missing ones are made.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..core.errors import SeriatimError
from ..core.files import Json, atomic_file, cache_folder, locked, write_json
from .cache import cache_errors
from .disk import Table, TextValues, cache_key
from .tokenizers import Tokenizer
from .tokenizers.segments import SPACE

SHARD_CHARACTERS = 1 << 25  # of text in a shard, about
WORKER_CHARACTERS = 1 << 27  # per worker process: below, starting one costs more than it saves
BATCH_CHARACTERS = 1 << 19  # of text that is encoded at a time
END_MARK = "\x03"  # a row of a stream that ends a document
WHITESPACE = "".join(character for character in map(chr, range(0x3001)) if re.match(f"[{SPACE}]", character))
Texts = Sequence[list[str]]  # column → texts
Framing = Callable[[Tokenizer, Texts, int | None], list[np.ndarray]]


# Framings: how the tokens of the texts of a row become an item


def frame_plain(tokenizer: Tokenizer, texts: Texts, limit: int | None) -> list[np.ndarray]:
    return tokenizer.encode_many(texts[0], strict=False)


def frame_eos(tokenizer: Tokenizer, texts: Texts, limit: int | None) -> list[np.ndarray]:
    """Returns the tokens of each text, `<eos>` appended."""
    end = np.array([tokenizer.eos], dtype=np.int64)
    return [np.concatenate((ids, end)) for ids in tokenizer.encode_many(texts[0], strict=False)]


def frame_texts(tokenizer: Tokenizer, texts: Texts, limit: int | None) -> list[np.ndarray]:
    """Returns the tokens of one text, or of two with a separator; truncated to `limit`, and never none at all."""
    ids = [tokenizer.encode_many(column, strict=False) for column in texts]
    rows = (tokenizer.frame(row[0], row[1] if len(row) > 1 else None, limit=limit) for row in zip(*ids, strict=True))
    empty = np.array([0 if tokenizer.eos is None else tokenizer.eos])
    return [row if len(row) else empty for row in rows]


def frame_stream(tokenizer: Tokenizer, texts: Texts, limit: int | None) -> list[np.ndarray]:
    """Returns the tokens of each block of a stream that `shift_whitespace` has aligned; `END_MARK` is `<eos>`."""
    rows = tokenizer.encode_many([text.removesuffix(END_MARK) for text in texts[0]], strict=False)
    end = np.array([] if tokenizer.eos is None else [tokenizer.eos], dtype=np.int64)
    return [end if text == END_MARK else ids for text, ids in zip(texts[0], rows, strict=True)]


def shift_whitespace(column: Sequence[str] | TextValues, start: int, stop: int) -> list[str]:
    """Returns rows start…stop−1 of a stream, the white space at the end of each moved to the beginning of the next.

    No token goes from another character to white space behind it, so a stream has the same tokens wherever its rows
    were cut. The end of a document stays as it is.
    """
    texts = list(column[start : min(stop + 1, len(column))])
    following = texts[1:] if len(texts) > stop - start else [*texts[1:], END_MARK]
    carried = ""
    for row in range(start - 1, -1, -1):  # what the row before passes on
        text = column[row]
        carried = text[len(text.rstrip(WHITESPACE)) :].replace(END_MARK, "") + carried
        if text.strip(WHITESPACE):
            break
    rows = []
    for text, next_text in zip(texts[: stop - start], following, strict=True):
        text = text if text == END_MARK else carried + text
        size = len(text) if END_MARK in (text, next_text) else len(text.rstrip(WHITESPACE))
        rows.append(text[:size])
        carried = text[size:]
    return rows


FRAMINGS: Mapping[str, Framing] = {
    "plain": frame_plain,
    "eos": frame_eos,
    "texts": frame_texts,
    "stream": frame_stream,
}


# Reading


@dataclass(frozen=True)
class TokenStream:
    """All tokens of a folder, one shard behind the other; reads like an array (tokens,)."""

    shards: tuple[np.ndarray, ...]

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum([len(shard) for shard in self.shards], dtype=np.int64)]).astype(np.int64)

    @property
    def dtype(self) -> np.dtype:
        return self.shards[0].dtype

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, span: slice) -> np.ndarray:
        """Returns the tokens of a span, as a view if one shard holds them."""
        start, stop, _ = span.indices(len(self))
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        parts = []
        while start < stop:
            offset = int(self.starts[first])
            parts.append(self.shards[first][start - offset : stop - offset])
            start, first = offset + len(self.shards[first]), first + 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, self.dtype)


class TokenShards:
    """Sequences of tokens on disk, with the methods of `Sequences`; made by `encode_column`."""

    numeric = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        shards = range(len(self.index["items"]))
        try:
            tokens = tuple(self._map(shard, "tokens", self.index["dtype"]) for shard in shards)
            self.shard_ends = [self._map(shard, "ends", "<i8") for shard in shards]
        except (OSError, ValueError) as error:
            cause = f"the tokens in {folder} are incomplete ({error})"
            raise SeriatimError("data.cache", cause, "remove the folder; it is made again") from None
        self.values = TokenStream(tokens)
        self.item_starts = np.concatenate([[0], np.cumsum(self.index["items"], dtype=np.int64)]).astype(np.int64)

    def _map(self, shard: int, name: str, dtype: str) -> np.ndarray:
        count = self.index["tokens" if name == "tokens" else "items"][shard]
        if count == 0:
            return np.zeros(0, dtype)  # an empty file cannot be mapped
        return np.memmap(self.folder / f"{shard:05}.{name}", dtype, "r", shape=(count,))

    def __len__(self) -> int:
        return int(self.item_starts[-1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """The length of each item (items,) int32: four bytes each are all that is in memory."""
        lengths = [np.diff(ends, prepend=0).astype(np.int32) for ends in self.shard_ends]
        return np.concatenate(lengths) if lengths else np.zeros(0, np.int32)

    def __getitem__(self, item: int) -> np.ndarray:
        item = range(len(self))[item]
        shard = int(np.searchsorted(self.item_starts, item, side="right")) - 1
        local, ends = item - int(self.item_starts[shard]), self.shard_ends[shard]
        return self.values.shards[shard][int(ends[local - 1]) if local else 0 : int(ends[local])]

    def padded(self, items: Sequence[int] | np.ndarray, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns some items side by side (n,longest) int64, and where they have tokens (n,longest)."""
        sequences = [self[int(item)] for item in items]
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        block = np.full((len(sequences), max(int(lengths.max(initial=1)), 1)), int(fill), dtype=np.int64)
        for row, sequence in zip(block, sequences, strict=True):
            row[: len(sequence)] = sequence
        return block, np.arange(block.shape[1]) < lengths[:, None]


# Writing


def encode_column(
    tokenizer: Tokenizer,
    columns: Sequence[TextValues],
    framing: str,
    limit: int | None = None,
    workers: int | None = None,
) -> TokenShards:
    """Returns the items of columns on disk, encoded if they are not in the cache.

    Args:
        tokenizer: The tokenizer.
        columns: The text of each row, or two texts; rows of one table.
        framing: How they become an item of at most `limit` tokens, a name in `FRAMINGS`.
        workers: The number of processes; by default as many as pay.
    """
    description = tokenizer.to_json()
    content = [hashlib.sha256(column.hashes().tobytes()).hexdigest() for column in columns]
    folder = cache_folder(
        "tokens", cache_key(content, hashlib.sha256(description.encode()).hexdigest(), framing, limit)
    )
    if not (folder / "index.json").exists():
        with cache_errors(), locked(folder / "lock"):  # of several ranks one encodes, and the others wait
            if not (folder / "index.json").exists():
                characters = sum(int(column.lengths().sum(dtype=np.int64)) for column in columns)
                shards = _write_job(folder, tokenizer, columns, framing, limit, characters)
                cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
                count = min(cores, 1 + characters // WORKER_CHARACTERS) if workers is None else workers
                _run_workers(folder, min(count, shards))
                _write_index(folder, shards)
    return TokenShards(folder)


def _write_job(
    folder: Path, tokenizer: Tokenizer, columns: Sequence[TextValues], framing: str, limit: int | None, characters: int
) -> int:
    """Writes what the workers read, and returns the number of shards."""
    rows = len(columns[0])
    tokenizer.save(folder / "tokenizer.json")
    for number, column in enumerate(columns):
        if column.rows is not None:
            with atomic_file(folder / f"rows-{number}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, column.rows)
    per_shard = max(rows * SHARD_CHARACTERS // max(characters, 1), 1)
    texts = [[str(column.table.folder), column.column, column.rows is not None, column.extra] for column in columns]
    dtype = "<u1" if tokenizer.vocab_size <= 1 << 8 else "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    job = {"rows": rows, "per_shard": per_shard, "columns": texts, "framing": framing, "limit": limit, "dtype": dtype}
    write_json(folder / "job.json", job)
    return -(-rows // per_shard)


def _run_workers(folder: Path, workers: int) -> None:
    """Runs the job in this process, or in several. They are started by command: no `__main__` is imported again."""
    if workers <= 1:
        run_job(folder)
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAYON_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __name__, str(folder), str(workers)]
    processes = [subprocess.Popen([*command, str(worker)], env=environment) for worker in range(workers)]
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        cause = f"a worker process ended with code {max(codes, key=abs)}"
        raise SeriatimError("data.encode", cause, "run it again: finished shards are kept")


def run_job(folder: Path, workers: int = 1, worker: int = 0) -> None:
    """Writes the missing shards of a job, every `workers`-th of them."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    columns = []
    for number, (path, name, selected, extra) in enumerate(job["columns"]):
        table = Table.open(Path(path))
        if table is None:
            raise SeriatimError("data.cache", f"the table in {path} is missing", "run it again")
        rows = np.load(folder / f"rows-{number}.npy", mmap_mode="r") if selected else None
        columns.append(TextValues(table, name, rows, tuple(extra)))
    parent = os.getppid()
    for shard in range(worker, -(-job["rows"] // job["per_shard"]), workers):
        if os.getppid() != parent:
            return  # the process that started this worker was killed
        if not (folder / f"{shard:05}.json").exists():
            _write_shard(folder, shard, job, tokenizer, columns)


def _write_shard(folder: Path, shard: int, job: Json, tokenizer: Tokenizer, columns: list[TextValues]) -> None:
    start = shard * job["per_shard"]
    stop = min(start + job["per_shard"], job["rows"])
    step = max(job["per_shard"] * BATCH_CHARACTERS // SHARD_CHARACTERS, 1)
    frame, lengths = FRAMINGS[job["framing"]], []
    with atomic_file(folder / f"{shard:05}.tokens") as temporary, temporary.open("wb") as file:
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if job["framing"] == "stream":
                texts = [shift_whitespace(columns[0], first, last)]
            else:
                texts = [column.strings(first, last).to_pylist() for column in columns]
            items = frame(tokenizer, texts, job["limit"])
            lengths += [len(item) for item in items]
            file.write(np.concatenate(items).astype(job["dtype"]).tobytes())
    with atomic_file(folder / f"{shard:05}.ends") as temporary:
        temporary.write_bytes(np.cumsum(lengths, dtype="<i8").tobytes())
    write_json(folder / f"{shard:05}.json", {"items": len(lengths), "tokens": sum(lengths)})


def _write_index(folder: Path, shards: int) -> None:
    facts = [json.loads((folder / f"{shard:05}.json").read_text(encoding="utf-8")) for shard in range(shards)]
    counts = {name: [shard[name] for shard in facts] for name in ("items", "tokens")}
    dtype = json.loads((folder / "job.json").read_text(encoding="utf-8"))["dtype"]
    write_json(folder / "index.json", {**counts, "dtype": dtype})
    for name in [*(f"{shard:05}.json" for shard in range(shards)), *(path.name for path in folder.glob("rows-*.npy"))]:
        (folder / name).unlink()


if __name__ == "__main__":
    run_job(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
