"""The settings of language models, and their processor: a stream of text as one sequence of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from pydantic import Field as Setting

from ...core.config import Settings
from ...core.diagnostics import Diagnostics
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.documents import document_ends
from ...data.sequences import Sequences
from ...data.shards import END_MARK, encode_column, frame_stream, shift_whitespace
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...models.ngram import NGram
from ..base import Encoded, Processor, TaskConfig
from ..codecs import train_tokenizer

ENCODED_ROWS = 128  # at a time: half a megabyte of plain text


class LanguageSettings(Settings):
    """Settings of the task language."""

    name: str = Setting("language", description="the task: see `seriatim list tasks`")
    context_length: int = Setting(128, ge=1, le=1_000_000, description="tokens of a training sequence")
    line_start: bool = Setting(
        True, description="read a text as what follows a line end; false: as it is, as `transformers` does"
    )
    tokenizer: TokenizerSettings = Setting(TokenizerSettings(), description="how text is tokenized")


@dataclass(frozen=True)
class LanguageProcessor(Processor[Encoded]):
    """Encodes a stream of text as one sequence of tokens."""

    tokenizer: Tokenizer

    @classmethod
    def fit(
        cls, train: Dataset, config: TaskConfig, pretrained: Mapping[str, Tokenizer], diagnostics: Diagnostics
    ) -> Self:
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            tokenizer = train_tokenizer(config.task.tokenizer, [train["text"]])
            size = f"{tokenizer.kind} tokenizer with {tokenizer.vocab_size:,} tokens"
            diagnostics.note(f"{size}, trained on the training split")
        return cls(tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        tokenizers: Mapping[str, Tokenizer],
        max_length: int,
        labels: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
    ) -> Self:
        return cls(tokenizers["tokenizer"])

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Encoded:
        """Returns the tokens of all rows in order, `<eos>` after each document if there are several."""
        texts, ends = dataset["text"], np.flatnonzero(document_ends(dataset))
        if self.tokenizer.kind in ("word", "wordpiece"):  # whose line ends are <eos>: one is enough
            ends = ends[[not texts[row].rstrip(" \t").endswith("\n") for row in ends.tolist()]]
        if isinstance(texts, TextValues):
            marked = texts.insert(ends + 1, END_MARK) if len(ends) else texts
            return Encoded(cast(Sequences, encode_column(self.tokenizer, [marked], "stream")))
        rows = np.insert(texts, ends + 1, END_MARK)
        dtype = np.uint16 if self.tokenizer.vocab_size <= 1 << 16 else np.uint32
        parts = [np.zeros(0, dtype)]
        for start in range(0, len(rows), ENCODED_ROWS):
            block = shift_whitespace(rows, start, min(start + ENCODED_ROWS, len(rows)))
            parts.append(np.concatenate(frame_stream(self.tokenizer, [block], None)).astype(dtype))
        tokens = np.concatenate(parts)
        return Encoded(Sequences(tokens, np.array([len(tokens)])))


def read_arpa(path: str | Path) -> tuple[NGram, LanguageProcessor]:
    """Returns an n-gram model that another program estimated, and the processor with its vocabulary."""
    first, names = NGram.read_arpa(path)
    words = [name for name in names if name not in ("<unk>", "<s>", "</s>", "<eos>")]
    kind = "char" if all(len(word) == 1 for word in words) else "word"
    settings = TokenizerSettings(kind=kind, vocab_size=max(len(words) + 2, 3), split_punctuation=False)
    tokenizer = Tokenizer.train(settings, ["".join(words) if kind == "char" else "\n".join(words)])
    boundary = None if first.boundary is None else tokenizer.eos
    model, _ = NGram.read_arpa(path, tokenizer.names, boundary)
    return model, LanguageProcessor(tokenizer)
