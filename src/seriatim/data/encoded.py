"""From documents to numbers on disk: the tokens of all sentences in one array, once, and in bounded memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.files import as_json

from . import cache
from .corpus import Span, spans_of, whole_span
from .documents import UNKNOWN, Documents, DocumentSettings
from .notes import Notes
from .splits import too_short
from .tokenizers import Tokenizer, TokenizerSettings

VERSION = 1  # of the files
BATCH = 1 << 18  # characters that are tokenised at a time
SAMPLE = 1 << 26  # bytes that a tokenizer is learnt from: of more text every so many documents
USUAL = TokenizerSettings(kind="bert", lowercase=True)
ARRAYS = ("tokens", "sentences", "documents")
Notify = Callable[[str], None]


@dataclass(frozen=True)
class EncodedPart:
    """The documents of a part, mapped from disk."""

    tokens: np.ndarray  # of all sentences, one behind the other
    sentences: np.ndarray  # (S,) where each ends, in tokens
    documents: np.ndarray  # (N,) where each ends, in sentences

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True)
class Encoded:
    parts: dict[str, EncodedPart]
    tokenizer: Tokenizer
    fingerprint: str


def prepare(
    settings: DocumentSettings, data_dir: str | None, notes: Notes, tokenizer: Tokenizer | None = None
) -> Encoded:
    """The parts of the settings; with `tokenizer`, by that one instead of one learnt from the training part."""
    spans = spans_of(settings, data_dir, notes)
    documents = {split: Documents(span) for split, span in spans.items()}
    notes(documents["train"].form.told())
    if tokenizer is None:
        tokenizer = _learnt(settings.tokenizer or USUAL, documents["train"])
        notes(f"{tokenizer.kind} tokenizer with {tokenizer.size:,} tokens, learnt from the training part")
    found = _encoded(documents, tokenizer, notes)
    for split, part in found.parts.items():
        if len(part) < 2:
            raise too_short(f"{len(part)} sentences in the {split} part", settings.fractions)
    return found


def prepare_single(
    source: str, settings: DocumentSettings, data_dir: str | None, notes: Notes, tokenizer: Tokenizer
) -> Encoded:
    """A whole source as the test part, by a given tokenizer: what a trained model is evaluated on."""
    span, title = whole_span(source, settings.column, settings.encoding, data_dir, notes)
    found = _encoded({"test": Documents(span)}, tokenizer, notes)
    if len(found.parts["test"]) < 2:
        raise too_short(f"{title}: fewer than 2 sentences", (0.0, 0.0, 1.0))
    return found


def _learnt(settings: TokenizerSettings, documents: Documents) -> Tokenizer:
    import tokenizers

    name = cache.key(
        VERSION, "documents", tokenizers.__version__, settings.model_dump(mode="json"), documents.span.identity()
    )

    def make(aside: Path) -> None:
        Tokenizer.train(settings, _sample(documents)).save(aside / "tokenizer.json")

    return Tokenizer.load(cache.once(cache.folder("tokenizers") / name, make))


def _sample(documents: Documents) -> Iterator[str]:
    """Text to learn from: all of it, or documents spread evenly over it."""
    span: Span = documents.span
    every = -(-(span.stop - span.start) // SAMPLE)
    for number, sentences in enumerate(documents):
        if number % every == 0:
            yield " ".join(sentences).replace(UNKNOWN, " ") + "\n"


def _encoded(documents: dict[str, Documents], tokenizer: Tokenizer, notes: Notes) -> Encoded:
    mark = hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    name = cache.key(VERSION, "documents", {split: one.span.identity() for split, one in documents.items()}, mark)
    write = partial(_write_all, documents=documents, tokenizer=tokenizer)
    folder = cache.once(cache.folder("tokens") / name, write)
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    parts = {split: EncodedPart(*(_mapped(folder, split, name, meta) for name in ARRAYS)) for split in documents}
    for split, part in parts.items():
        unknown = meta[split]["unknown"]
        share = f", {100 * unknown / len(part.tokens):.2g} % of them unknown" if unknown else ""
        notes(
            f"{split}: {len(part.documents):,} documents, {len(part):,} sentences, {len(part.tokens):,} tokens{share}"
        )
    return Encoded(parts, tokenizer, name)


def _write_all(aside: Path, documents: dict[str, Documents], tokenizer: Tokenizer) -> None:
    kinds = {"tokens": "<u2" if tokenizer.size <= 1 << 16 else "<u4", "sentences": "<i8", "documents": "<i8"}
    meta: dict[str, Any] = {"kinds": kinds}
    for split, some in documents.items():
        meta[split] = _write(aside, split, some, tokenizer, kinds)
    aside.joinpath("meta.json").write_text(as_json(meta), encoding="utf-8")


def _write(
    aside: Path, split: str, documents: Documents, tokenizer: Tokenizer, kinds: dict[str, str]
) -> dict[str, int]:
    sizes = dict.fromkeys(ARRAYS, 0)
    unknown = 0
    name = UNKNOWN if tokenizer.unk is None else tokenizer.names[tokenizer.unk]
    with ExitStack() as files:
        tokens, ends, last = (files.enter_context(open(aside / f"{split}.{array}", "wb")) for array in ARRAYS)
        for group in _groups(documents):
            texts = [sentence.replace(UNKNOWN, name) for sentences in group for sentence in sentences]
            encoded = tokenizer.encode_many(texts, strict=False)
            lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
            full = lengths > 0  # a sentence may be nothing but what the tokenizer leaves out
            kept = np.add.reduceat(full, np.cumsum([0, *(len(sentences) for sentences in group[:-1])]), dtype=np.int64)
            joined = np.concatenate(encoded)
            unknown += int(np.count_nonzero(joined == tokenizer.unk)) if tokenizer.unk is not None else 0
            joined.astype(kinds["tokens"]).tofile(tokens)
            (sizes["tokens"] + np.cumsum(lengths[full])).astype(kinds["sentences"]).tofile(ends)
            (sizes["sentences"] + np.cumsum(kept)[kept > 0]).astype(kinds["documents"]).tofile(last)
            sizes = {
                "tokens": sizes["tokens"] + len(joined),
                "sentences": sizes["sentences"] + int(full.sum()),
                "documents": sizes["documents"] + int((kept > 0).sum()),
            }
    return sizes | {"unknown": unknown}


def _groups(documents: Documents) -> Iterator[Sequence[list[str]]]:
    """Whole documents of about BATCH characters together."""
    group: list[list[str]] = []
    size = 0
    for sentences in documents:
        group.append(sentences)
        size += sum(len(sentence) for sentence in sentences)
        if size >= BATCH:
            yield group
            group, size = [], 0
    if group:
        yield group


def _mapped(folder: Path, split: str, name: str, meta: dict[str, Any]) -> np.ndarray:
    if not meta[split][name]:  # an empty file cannot be mapped
        return np.zeros(0, dtype=meta["kinds"][name])
    return np.memmap(folder / f"{split}.{name}", dtype=meta["kinds"][name], mode="r")
