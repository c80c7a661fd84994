"""A source decoded once: its text as UTF-8 in the cache, with the places where its documents end.

The folder is named by the content of the source. Reading gigabytes only to learn that nothing changed would be
slow, so a record of each file's path, size and time of change leads to that name at once.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seriatim.core.files import as_json, sha256, write_json

from . import cache
from .decoding import Facts, check_encoding
from .pieces import Piece
from .sources import Found, reading
from .text import read_found

VERSION = 1  # of what the folder holds
BLOCK = 1 << 18


@dataclass(frozen=True)
class Text:
    path: Path
    ends: np.ndarray  # byte offsets, each the end of a document; none in a single stream
    size: int  # bytes
    digest: str
    notes: list[str]

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The text between two byte offsets, cut where documents end."""
        ends = self.ends[np.searchsorted(self.ends, start, "right") : np.searchsorted(self.ends, stop, "right")]
        decoder = codecs.getincrementaldecoder("utf-8")()
        with open(self.path, "rb") as file:
            file.seek(start)
            while start < stop:
                block = file.read(min(BLOCK, stop - start))
                inside = int(np.searchsorted(ends, start + len(block), "right"))
                begin = 0
                for end in (ends[:inside].astype(np.int64) - start).tolist():
                    yield Piece(decoder.decode(block[begin:end], True), True)
                    begin = end
                if begin < len(block):
                    yield Piece(decoder.decode(block[begin:]), False)
                ends = ends[inside:]
                start += len(block)


def decoded(found: Found, column: str | None, encoding: str) -> Text:
    """The text of a source, from the cache if it is there."""
    how = [VERSION, column, check_encoding(encoding), found.documents]
    named = [[raw.name, raw.kind] for raw in found.raws]  # two members of one archive are two sources
    stamp = _stamp(found)
    record = cache.folder("text", "seen") / f"{cache.key(how, named, stamp)}.json"
    name = _remembered(record)
    if name is None or not cache.folder("text").joinpath(name).is_dir():
        name = cache.key(how, named, [_digest(path) for path in found.files])
        cache.once(cache.folder("text") / name, lambda aside: _write(aside, found, column, encoding))
        if _stamp(found) == stamp:  # else the files changed while they were read
            with cache.explained():
                write_json(record, {"text": name})
    return _open(cache.folder("text") / name, found.notes)


def _stamp(found: Found) -> list[list[object]]:
    stats = [(path.resolve(), path.stat()) for path in found.files]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def _digest(path: Path) -> str:
    with reading(str(path)):
        return sha256(path)


def _remembered(record: Path) -> str | None:
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["text"])
    except (OSError, ValueError, KeyError):
        return None  # made again


def _write(aside: Path, found: Found, column: str | None, encoding: str) -> None:
    facts = Facts()
    digest = hashlib.sha256()
    size = 0
    with open(aside / "text.txt", "wb") as text, open(aside / "ends.u64", "wb") as ends:
        for piece in read_found(found, column, encoding, facts):
            data = piece.text.encode("utf-8")
            text.write(data)
            digest.update(data)
            size += len(data)
            if piece.last and found.documents:
                ends.write(size.to_bytes(8, "little"))
                digest.update(b"\xff")  # a byte that UTF-8 never has
    meta = {"bytes": size, "sha256": digest.hexdigest(), "notes": facts.notes}
    aside.joinpath("meta.json").write_text(as_json(meta), encoding="utf-8")


def _open(folder: Path, notes: list[str]) -> Text:
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    ends_path = folder / "ends.u64"
    empty = ends_path.stat().st_size == 0  # an empty file cannot be mapped
    ends = np.zeros(0, np.uint64) if empty else np.memmap(ends_path, dtype="<u8", mode="r")
    return Text(folder / "text.txt", ends, meta["bytes"], meta["sha256"], notes + meta["notes"])
