"""Data on disk gives what data in memory gives: rows, locations, errors, splits, fingerprints and tokens."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_schemas import LABELED, PAIRS, STREAM, read, write
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data import bulk, shards
from seriatim.data.dataset import Dataset
from seriatim.data.disk import Locations
from seriatim.data.examine import count_duplicates
from seriatim.data.formats import ReadOptions
from seriatim.data.schema import Schema
from seriatim.data.split import Contiguous, SplitPolicy, Stratified, split
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.tasks.translate.pairs import BY_SOURCE

IN_MEMORY, ON_DISK = ReadOptions(memory_limit=1 << 40), ReadOptions(memory_limit=0)
WORDS = ["the", "a", "cat", "dog", "sees", "hears", "Straße", "élan", "日本", ",", ".", "\U0001f600"]
POLICIES: dict[str, tuple[Schema, SplitPolicy]] = {
    "pairs": (PAIRS, BY_SOURCE),
    "reviews": (LABELED, Stratified("target")),
    "text": (STREAM, Contiguous("text")),
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 1 << 12)  # many blocks and shards of a small file
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 1 << 12)
    return


def sentences(count: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 12))) for _ in range(count)]


def make_file(name: str, folder: Path) -> Path:
    """Returns a file with 600 rows."""
    sources, targets = sentences(600), sentences(600, 1)
    rows = list(zip(sources, targets, strict=True))
    labels = [
        f" {'even' if len(text) % 2 == 0 else 'NaN' if n % 100 == 7 else 'odd'} " for n, text in enumerate(sources)
    ]
    quoted = [f'"{text}, ""so""\n{text}"' if n % 50 == 0 else f'"{text}"' for n, text in enumerate(sources)]
    splits = ["train", "dev", "test"] * 200
    table = "".join(f"{text},{label},{part}\n" for text, label, part in zip(quoted, labels, splits, strict=True))
    records = [{"text": a, "label": b} for a, b in zip(sources, labels, strict=True)]
    contents = {
        "pairs.tsv": "".join(f"{a}\t{b}\n" for a, b in rows),
        "pairs.tsv.gz": "".join(f"{a}\t{b}\r\n" for a, b in rows),
        "pairs.wide.txt": "".join(f"{a}\t{b}\tthird\n" if n % 9 else f"{a}\t{b}\n" for n, (a, b) in enumerate(rows)),
        "reviews.csv": "\ufefftext,label,split\n" + table,
        "reviews.jsonl": "\n\n".join(map(json.dumps, [*records, {"text": "null", "label": None}])),
        "text.txt": "\n".join(sources * 3),
        "text.windows.txt": "".join(f"{text}\r\n" for text in sources * 3),
    }
    data = contents[name].encode()
    return write(folder / name, gzip.compress(data) if name.endswith("gz") else data)


FILES = ["pairs.tsv", "pairs.tsv.gz", "pairs.wide.txt", "reviews.csv", "reviews.jsonl", "text.txt", "text.windows.txt"]


@pytest.fixture(params=FILES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Dataset, Dataset, Schema, SplitPolicy]:
    """The same data in memory and on disk, its schema and how it is split."""
    path = make_file(request.param, tmp_path)
    schema, policy = POLICIES[request.param.split(".")[0]]
    memory, disk = (read(path, schema, options=options) for options in (IN_MEMORY, ON_DISK))
    assert isinstance(disk.locations, Locations)
    assert len(disk.locations.table.shard_rows) > 3
    return memory, disk, schema, policy


def test_rows_and_locations(both: tuple[Dataset, Dataset, Schema, SplitPolicy]) -> None:
    memory, disk, _, _ = both
    assert list(disk.locations) == list(memory.locations)
    rows = np.random.default_rng(0).permutation(len(memory))[:99]
    for role in set(memory.columns) - {"split"}:  # on disk it is a label, in memory a split name
        assert list(disk[role]) == list(memory[role])
        assert disk[role][7] == memory[role][7]
        assert list(disk.take(rows).take(np.arange(2, 9))[role]) == list(memory[role][rows][2:9])
        assert list(disk.columns[role][0].sizes) == list(memory.columns[role][0].sizes)
        assert [(key, list(group)) for key, group in disk.groups(role).items()] == [
            (key, list(group)) for key, group in memory.groups(role).items()
        ]
    assert disk.take(rows).locations[3] == memory.locations[rows[3]]
    without = [dataset.take(rows).without("split") for dataset in (memory, disk)]
    assert without[0].fingerprint() == without[1].fingerprint()


def test_check_and_split(both: tuple[Dataset, Dataset, Schema, SplitPolicy]) -> None:
    memory, disk, schema, policy = both
    for _ in range(2):  # computed, then remembered
        assert count_duplicates(disk, schema) == count_duplicates(memory, schema)
        for role in schema.roles:
            assert [c.counts() for c in disk.columns[role]] == [c.counts() for c in memory.columns[role]]
        parts = [split(rows, policy, (0.8, 0.1, 0.1), Diagnostics(), schema=schema) for rows in (memory, disk)]
        for name, rows in parts[0].items():
            assert parts[1][name].fingerprint() == rows.fingerprint()
            assert list(parts[1][name].locations) == list(rows.locations)
            for role in rows.columns:
                assert list(parts[1][name][role]) == list(rows[role])


def test_bad_rows_have_a_line(tmp_path: Path) -> None:
    lines = [f"{text}\tb" for text in sentences(500)]
    lines[123], lines[456] = "alone", "another"
    path = write(tmp_path / "pairs.tsv", "\n".join(lines))
    for options in (IN_MEMORY, ON_DISK, ON_DISK):  # read to disk again, it has the same problems
        with pytest.raises(SeriatimError, match=r"(?s)line 124: no target.*line 457: no target"):
            read(path, PAIRS, options=options)
    write(path, "\n".join(sentences(300)).encode() + b"\n\xff\n")
    for options in (IN_MEMORY, ON_DISK):
        with pytest.raises(SeriatimError, match=r"pairs.tsv, line 301, byte offset \d+: 0xff is not utf-8"):
            read(path, PAIRS, options=options)
    write(path, "\n".join(f"{text}\tb" for text in sentences(300)) + "\na\tb\0\n")
    for options in (IN_MEMORY, ON_DISK):
        with pytest.raises(SeriatimError, match=r"pairs.tsv, line 301: a NUL byte"):
            read(path, PAIRS, options=options)
    path = write(tmp_path / "a.jsonl", '{"text": "x", "label": "a"}\n' * 200 + '{"text": "x"}\n')
    for options in (IN_MEMORY, ON_DISK):
        with pytest.raises(SeriatimError, match=r'a.jsonl, line 201: has no column "label"'):
            read(path, LABELED, options=options)


def test_reading_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pairs.tsv", "text.txt", "text.windows.txt"):
        path = make_file(name, tmp_path)
        schema, written, write_shard = POLICIES[name.split(".")[0]][0], [], bulk.TableWriter.write

        def killed(self: Any, *arguments: Any, written: Any = written, write_shard: Any = write_shard) -> None:
            written.append(1)
            if len(written) == 4:
                raise KeyboardInterrupt
            write_shard(self, *arguments)

        monkeypatch.setattr(bulk.TableWriter, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            read(path, schema, options=ON_DISK)
        resumed = read(path, schema, options=ON_DISK)
        assert len(written) == len(resumed.locations.table.shard_rows) + 1
        monkeypatch.setattr(bulk.TableWriter, "write", write_shard)
        memory = read(path, schema, options=IN_MEMORY)
        assert resumed.fingerprint() == memory.fingerprint()
        assert list(resumed.locations) == list(memory.locations)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "one\n")
    first = read(path, STREAM, options=ON_DISK)
    write(path, "one two\n")
    assert read(path, STREAM, options=ON_DISK).fingerprint() != first.fingerprint()


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
@pytest.mark.parametrize("workers", [1, 2])
def test_tokens(kind: str, workers: int, tmp_path: Path) -> None:
    path = make_file("pairs.tsv", tmp_path)
    memory, disk = (read(path, PAIRS, options=options) for options in (IN_MEMORY, ON_DISK))
    tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=60), list(memory["source"]))
    rows = np.random.default_rng(0).permutation(len(memory))[:500]
    expected = shards.frame_eos(tokenizer, [list(memory["source"][rows])], None)
    encoded = shards.encode_column(tokenizer, [disk["source"][rows]], "eos", workers=workers)
    assert encoded.values.dtype == np.uint8
    assert len(encoded.shard_ends) >= 3
    assert [item.tolist() for item in map(encoded.__getitem__, range(len(encoded)))] == [e.tolist() for e in expected]
    assert encoded.lengths.tolist() == [len(item) for item in expected]
    stream = np.concatenate(expected)
    assert encoded.values[100:3000].tolist() == stream[100:3000].tolist()
    block, mask = encoded.padded([3, 480, 7], fill=-1)
    rows_read = [row[real].tolist() for row, real in zip(block, mask, strict=True)]
    assert rows_read == [expected[item].tolist() for item in (3, 480, 7)]
    assert (block[~mask] == -1).all()


def test_encoding_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = read(make_file("text.txt", tmp_path), STREAM, options=ON_DISK)
    tokenizer = Tokenizer.train(TokenizerSettings(kind="char"), disk["text"])
    write_shard, written = shards._write_shard, []

    def killed(folder: Path, shard: int, *arguments: Any) -> None:
        written.append(shard)
        if len(written) == 3:
            raise KeyboardInterrupt
        write_shard(folder, shard, *arguments)

    monkeypatch.setattr(shards, "_write_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        shards.encode_column(tokenizer, [disk["text"]], "plain")
    encoded = shards.encode_column(tokenizer, [disk["text"]], "plain")
    assert written == [0, 1, 2, *range(2, len(encoded.shard_ends))]
    assert tokenizer.decode(encoded.values[:]) == "".join(disk["text"])
    file = encoded.folder / "00001.tokens"
    file.write_bytes(b"\1")
    with pytest.raises(SeriatimError, match="incomplete"):
        shards.encode_column(tokenizer, [disk["text"]], "plain")
