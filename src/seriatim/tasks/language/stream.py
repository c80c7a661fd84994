"""Streams of text as tokens: how they are encoded, and which parts of a long one are evaluated during training.

A part is chosen by characters, not by tokens, so that models with different tokenizers are evaluated on the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from ...core.errors import Diagnostics
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.documents import document_ends
from ...data.kinds import TEXT
from ...data.sequences import Sequences
from ...data.shards import END_MARK, encode_column, frame_stream, shift_whitespace
from ...data.tokenizers import Tokenizer
from ..base import Encoded, Processor, TaskConfig
from ..codecs import train_tokenizer, training_texts
from ..processor import Tokenizers, Values
from ..values import Items, Split

ENCODED_ROWS = 128  # at a time: half a megabyte of plain text
SAMPLED_SPANS, MIN_SPAN = 16, 64  # parts of a stream that is evaluated in part, and the characters of the shortest
BREAKS = ("\n", " ")  # between lines and between words


class TokenItems(Items, Protocol):
    """Items whose tokens lie one behind the other, in memory or on disk."""

    @property
    def values(self) -> Any:
        """The tokens (T,), which can be sliced."""


@dataclass(frozen=True, eq=False)
class Stream(Encoded):
    """A running text as tokens.

    Args:
        inputs: The tokens.
        characters: The number of characters of the text.
        size: Its bytes in UTF-8.
        unknown: The number of `<unk>` among the tokens.
        spans: The first token and the end of each part of the text (n,2), if it is not one text.
    """

    inputs: TokenItems
    characters: int = 0
    size: int = 0
    unknown: int = 0
    spans: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def tokens(self) -> Any:
        """The tokens (T,), in memory or on disk."""
        return self.inputs.values

    def parts(self) -> Iterator[np.ndarray]:
        """Yields the tokens of each part in memory."""
        for first, last in [(0, len(self.tokens))] if self.spans is None else self.spans.tolist():
            yield np.asarray(self.tokens[first:last])

    @property
    def targets(self) -> int:
        """The number of tokens that an evaluation predicts: all but the first of each part."""
        return len(self.tokens) - (1 if self.spans is None else len(self.spans))

    def lines(self, eos: int) -> np.ndarray:
        """Returns the tokens of all whole lines: where a sampled part ends, the rest of its last line is missing."""
        if self.spans is None:
            return np.asarray(self.tokens)
        return np.concatenate([part[: np.flatnonzero(part == eos).max(initial=-1) + 1] for part in self.parts()])


@dataclass(frozen=True)
class LanguageProcessor(Processor[Stream]):
    """Encodes a stream of text as one sequence of tokens."""

    tokenizer: Tokenizer

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            tokenizer = train_tokenizer(config.task.tokenizer, training_texts(train["text"]), diagnostics)
        return cls(tokenizer)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        return cls(tokenizers["tokenizer"])

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Stream:
        """Returns the tokens of all rows in order, `<eos>` after each document if there are several."""
        inputs, unk, column = self._tokens(dataset), self.tokenizer.unk, dataset.columns["text"][0]
        unknown = 0 if unk is None else int(token_counts(inputs.values, unk + 1)[unk])
        return Stream(inputs, int(column.lengths.sum()), int(column.byte_sizes.sum()), unknown)

    def _tokens(self, dataset: Dataset) -> TokenItems:
        texts, ends = dataset["text"], np.flatnonzero(document_ends(dataset))
        if self.tokenizer.kind in ("word", "wordpiece"):  # whose line ends are <eos>: one is enough
            ends = ends[[not texts[row].rstrip(" \t").endswith("\n") for row in ends.tolist()]]
        if isinstance(texts, TextValues):
            marked = texts.insert(ends + 1, END_MARK) if len(ends) else texts
            return encode_column(self.tokenizer, [marked], "stream")
        rows = np.insert(texts, ends + 1, END_MARK).tolist()
        dtype = np.uint16 if self.tokenizer.vocab_size <= 1 << 16 else np.uint32
        parts = [np.zeros(0, dtype)]
        for start in range(0, len(rows), ENCODED_ROWS):
            block = shift_whitespace(rows, start, min(start + ENCODED_ROWS, len(rows)))
            parts.append(np.concatenate(frame_stream(self.tokenizer, [block], None)).astype(dtype))
        tokens = np.concatenate(parts)
        return Sequences(tokens, np.array([len(tokens)]))


def token_counts(tokens: np.ndarray, vocab_size: int, size: int = 1 << 22) -> np.ndarray:
    """Returns how often each token (V,) occurs in a stream in memory or on disk."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for start in range(0, len(tokens), size):
        counts += np.bincount(tokens[start : start + size], minlength=vocab_size)[:vocab_size]
    return counts


def stack_spans(tokens: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Returns the tokens from each start on (n,length) as int64, from memory or disk; zeros after the end."""
    spans = np.zeros((len(starts), length), dtype=np.int64)
    for span, start in zip(spans, starts.tolist(), strict=True):
        part = tokens[start : start + length]
        span[: len(part)] = part
    return spans


# Samples


def sample_stream(split: Split[Stream], processor: LanguageProcessor, limit: int) -> Split[Stream]:
    """Returns evenly spaced parts of a text, of `limit` characters altogether; the split itself if it has no more.

    Each part is encoded by itself: whatever the tokenizer, the text is the same.
    """
    count = min(max(limit // MIN_SPAN, 1), SAMPLED_SPANS)
    size = max(limit // count, MIN_SPAN)
    if split.items.characters <= max(limit, size):
        return split
    encoded = [processor.encode(rows, Diagnostics()) for rows in spaced_texts(split.rows, count, size)]
    parts = [part for part in encoded if len(part.tokens) > 1]
    if not parts:
        return split
    ends = np.cumsum([len(part.tokens) for part in parts])
    items = Stream(
        Sequences(np.concatenate([part.tokens for part in parts]), ends),
        sum(part.characters for part in parts),
        sum(part.size for part in parts),
        sum(part.unknown for part in parts),
        spans=np.stack([np.append(0, ends[:-1]), ends], axis=1),
    )
    return replace(split, items=items)


def spaced_texts(rows: Dataset, count: int, size: int) -> Iterator[Dataset]:
    """Yields `count` parts of a running text at even distances, of at most `size` characters, as rows of their own.

    A part begins with a line or a word, and ends with one.
    """
    lengths = rows.columns["text"][0].lengths
    ends = np.cumsum(lengths)
    for start in np.linspace(0, int(ends[-1]) - size, count).astype(np.int64).tolist():
        first, last = (int(row) for row in np.searchsorted(ends, [start, start + size - 1], side="right"))
        texts = [str(text) for text in rows["text"][np.arange(first, last + 1)]]
        end = _last_break(texts[-1], start + size - int(ends[last] - lengths[last]), size // 2)
        continued = end < len(texts[-1])
        texts[-1] = texts[-1][:end]
        texts[0] = texts[0][_first_break(texts[0], start - int(ends[first] - lengths[first]), size // 2) :]
        part = rows.take(np.arange(first, last + 1))
        column = replace(part.columns["text"][0], values=TEXT.store(texts))
        yield replace(part, columns={**part.columns, "text": (column,)}, continued=continued)


def _first_break(text: str, offset: int, reach: int) -> int:
    """Returns where the first line, or else the first word, begins within reach of an offset; else the offset."""
    found = [text.find(mark, max(offset - 1, 0), offset + reach) for mark in BREAKS]
    return next((position + 1 for position in found if position >= 0), offset) if offset else 0


def _last_break(text: str, end: int, reach: int) -> int:
    """Returns where the last line, or else the last word, ends within reach before a position; else the position."""
    found = [text.rfind(mark, max(end - reach, 0), end) for mark in BREAKS]
    return next((position + 1 for position in found if position >= 0), end) if end < len(text) else len(text)
