"""From a source to token ids on disk: decode, split, learn the tokenizer, encode; once, and in bounded memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.files import as_json

from . import cache
from .blanks import Parts, told_apart
from .decoded import Text, decoded
from .notes import Notes
from .pieces import Piece, batches, whole
from .sources import Found, find_path, locate
from .splits import cuts, too_short
from .text import TextSettings
from .tokenizers import Tokenizer, TokenizerSettings

VERSION = 1  # of the token shards
BATCH = 1 << 19  # characters encoded at a time
HELD = 1 << 25  # bytes whose words are told apart at once
SPLITS = ("train", "valid", "test")
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """Token ids of the three parts, mapped from disk. A part that was not asked for has no tokens."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    tokenizer: Tokenizer
    notes: list[str]
    fingerprint: str
    characters: dict[str, int]
    bytes: dict[str, int]
    unknown: dict[str, int]


@dataclass(frozen=True)
class Encoded:
    """Token ids of one source."""

    ids: np.ndarray
    notes: list[str]
    fingerprint: str
    characters: int
    bytes: int
    unknown: int


@dataclass(frozen=True)
class Span:
    """A part of a decoded text, between two byte offsets."""

    text: Text
    start: int
    stop: int

    def pieces(self) -> Iterator[Piece]:
        return whole(self.text.pieces(self.start, self.stop))

    @cached_property
    def parts(self) -> Parts | None:
        """What stands between the blanks, told apart once for all who ask; None for documents, and for what is too
        long to be held."""
        if len(self.text.ends) or self.stop - self.start > HELD:
            return None
        with open(self.text.path, "rb") as file:
            file.seek(self.start)
            data = file.read(self.stop - self.start)
        return told_apart(data, np.array([len(data)]))

    def identity(self) -> list[Any]:
        return [self.text.digest, self.start, self.stop]


def prepare(
    settings: TextSettings,
    data_dir: str | None = None,
    notify: Notify | None = None,
    tokenizer: Tokenizer | None = None,
) -> Corpus:
    """The corpus of the settings; with `tokenizer`, encoded by that one instead of one learnt from the text."""
    notes = Notes(notify)
    spans = spans_of(settings, data_dir, notes)
    if tokenizer is None:
        tokenizer = _learnt(settings.tokenizer, spans["train"])
        notes(f"{tokenizer.kind} tokenizer with {tokenizer.size:,} tokens, learnt from the training part")
    name, meta = _shards(spans, tokenizer)
    for split in spans:
        if meta[split]["tokens"] < 2:
            raise too_short(f"{meta[split]['tokens']} tokens in the {split} part", settings.fractions)
    notes("tokens: " + ", ".join(f"{meta[split]['tokens']:,} {split}" for split in spans))
    for split in spans:
        _tell_unknown(notes, split, meta[split], tokenizer)
    return Corpus(
        **{split: _ids(name, split, meta) for split in SPLITS},
        tokenizer=tokenizer,
        notes=list(notes),
        fingerprint=name,
        characters={split: meta[split]["characters"] if split in meta else 0 for split in SPLITS},
        bytes={split: meta[split]["bytes"] if split in meta else 0 for split in SPLITS},
        unknown={split: meta[split]["unknown"] if split in meta else 0 for split in SPLITS},
    )


def prepare_single(
    source: str | Path,
    tokenizer: Tokenizer,
    column: str | None = None,
    encoding: str = "utf-8",
    data_dir: str | None = None,
    notify: Notify | None = None,
) -> Encoded:
    """A whole source by a given tokenizer: what a trained model is evaluated on."""
    notes = Notes(notify)
    span, title = whole_span(str(source), column, encoding, data_dir, notes)
    name, meta = _shards({"all": span}, tokenizer)
    part = meta["all"]
    notes(f"tokens: {part['tokens']:,}")
    _tell_unknown(notes, title, part, tokenizer)
    return Encoded(
        _ids(name, "all", meta), list(notes), name, part["characters"], part["bytes"], unknown=part["unknown"]
    )


def spans_of(settings: TextSettings, data_dir: str | None, notes: Notes) -> dict[str, Span]:
    """What each part is made of: given files as they are, or blocks of the source."""
    found, given = with_parts(settings.source, data_dir, notes)
    if settings.valid is not None or settings.test is not None:
        named = {"valid": settings.valid, "test": settings.test}
        given = {split: with_parts(source, data_dir, notes)[0] for split, source in named.items() if source is not None}
    train = _whole_text(found, settings.column, settings.encoding, notes)
    if given:
        spans = {split: _whole_text(one, settings.column, settings.encoding, notes) for split, one in given.items()}
        for split in SPLITS[1:]:
            if split not in spans:
                notes(f"no {split} file is given, so the {split} part is empty")
        return {"train": train, **spans}
    places = cuts(train.text, settings.fractions)
    notes(f"split {' / '.join(f'{100 * share:g}' for share in settings.fractions)} % by contiguous blocks")
    spans = {split: Span(train.text, *places[i : i + 2]) for i, split in enumerate(SPLITS)}
    return {split: span for split, span in spans.items() if span.stop > span.start}


def whole_span(source: str, column: str | None, encoding: str, data_dir: str | None, notes: Notes) -> tuple[Span, str]:
    """All of one source, and its title."""
    found, _ = with_parts(source, data_dir, notes)
    return _whole_text(found, column, encoding, notes), found.title


def with_parts(source: str, data_dir: str | None, notes: Notes) -> tuple[Found, dict[str, Found]]:
    """The source, and the validation and test files that the catalogue gives with it."""
    located = locate(source, data_dir, fetching(source, notes.notify))
    if located is None:
        return find_path(Path(source).expanduser()), {}
    notes(f"{source}: {located.source}")
    given = {"valid": located.valid, "test": located.test}
    return find_path(located.train), {split: find_path(path) for split, path in given.items() if path is not None}


def fetching(source: str, notify: Notify | None) -> Callable[[int, int | None], None]:
    told: list[bool] = []

    def progress(_: int, total: int | None) -> None:
        if notify and not told:
            notify(f"fetching {source}" + (f" ({total / 1e6:.1f} MB)" if total else ""))
        told.append(True)

    return progress


def _whole_text(found: Found, column: str | None, encoding: str, notes: Notes) -> Span:
    text = decoded(found, column, encoding)
    for note in text.notes:
        notes(note)
    return Span(text, 0, text.size)


def _learnt(settings: TokenizerSettings, span: Span) -> Tokenizer:
    """Learnt once and kept: not every method gives the same numbers twice, and the shards are made with these."""
    import tokenizers

    name = cache.key(VERSION, tokenizers.__version__, settings.model_dump(mode="json"), span.identity())
    made: list[Tokenizer] = []

    def make(aside: Path) -> None:
        parts = span.parts if settings.kind == "word" else None
        made.append(Tokenizer.train(settings, (piece.text for piece in span.pieces()), parts))
        made[0].save(aside / "tokenizer.json")

    folder = cache.once(cache.folder("tokenizers") / name, make)
    return made[0] if made else Tokenizer.load(folder)


def _shards(spans: dict[str, Span], tokenizer: Tokenizer) -> tuple[str, dict[str, Any]]:
    """The fingerprint of parts and tokenizer, and what is known of the shards, which are made if need be."""
    mark = hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    name = cache.key(VERSION, {split: span.identity() for split, span in spans.items()}, mark)
    folder = cache.once(cache.folder("tokens") / name, partial(_write_all, spans=spans, tokenizer=tokenizer))
    return name, json.loads((folder / "meta.json").read_text(encoding="utf-8"))


def _write_all(aside: Path, spans: dict[str, Span], tokenizer: Tokenizer) -> None:
    dtype = "<u2" if tokenizer.size <= 65535 else "<u4"
    meta: dict[str, Any] = {"dtype": dtype}
    for split, span in spans.items():
        meta[split] = _write(aside / f"{split}.bin", span, tokenizer, dtype)
    aside.joinpath("meta.json").write_text(as_json(meta), encoding="utf-8")


def _write(path: Path, span: Span, tokenizer: Tokenizer, dtype: str) -> dict[str, int]:
    """Writes the ids of a part and says how much it holds: at once where its words are told apart, else in pieces."""
    parts = span.parts if tokenizer.by_words else None
    found = None if parts is None else tokenizer.encode_parts(parts)
    if parts is None or found is None:
        tokens, characters, unknown = _write_pieces(path, span, tokenizer, dtype)
    else:
        (ids,) = found
        ids.astype(dtype).tofile(path)
        tokens, characters, unknown = len(ids), parts.characters, _unknown(ids, tokenizer)
    return {"tokens": tokens, "characters": characters, "bytes": span.stop - span.start, "unknown": unknown}


def _write_pieces(path: Path, span: Span, tokenizer: Tokenizer, dtype: str) -> tuple[int, int, int]:
    tokens = characters = unknown = 0
    last = -1
    end = np.array([] if tokenizer.eos is None else [tokenizer.eos], dtype=np.int64)
    # Where a line end is an <eos>, a document that ends with a line has its <eos> already.
    lines_end = tokenizer.kind in ("word", "wordpiece")
    with open(path, "wb") as file:
        for group in batches(span.pieces(), BATCH):
            parts = []
            for piece, ids in zip(group, tokenizer.encode_many([one.text for one in group], strict=False), strict=True):
                parts.append(ids)
                last = int(ids[-1]) if len(ids) else last
                if piece.last and not (lines_end and last == tokenizer.eos):
                    parts.append(end)
                    last = -1 if tokenizer.eos is None else tokenizer.eos
            joined = np.concatenate(parts)
            joined.astype(dtype).tofile(file)
            tokens += len(joined)
            characters += sum(len(piece.text) for piece in group)
            unknown += _unknown(joined, tokenizer)
    return tokens, characters, unknown


def _unknown(ids: np.ndarray, tokenizer: Tokenizer) -> int:
    return 0 if tokenizer.unk is None else int(np.count_nonzero(ids == tokenizer.unk))


def _tell_unknown(notes: Notes, split: str, part: dict[str, int], tokenizer: Tokenizer) -> None:
    if part["unknown"]:
        share = 100 * part["unknown"] / part["tokens"]
        notes(f"{split}: {part['unknown']:,} of {part['tokens']:,} tokens ({share:.2g} %) are <unk>")


def _ids(name: str, split: str, meta: dict[str, Any]) -> np.ndarray:
    path = cache.folder("tokens") / name / f"{split}.bin"
    if split not in meta or meta[split]["tokens"] == 0:
        return np.zeros(0, dtype=meta["dtype"])  # an empty file cannot be mapped
    return np.memmap(path, dtype=meta["dtype"], mode="r")
