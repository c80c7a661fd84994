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
from ...data.shards import END_MARK, encode_column
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...data.tokenizers.segments import TextBlock, align_blocks, batch_blocks
from ...models.ngram import NGram
from ..base import Encoded, Processor, TaskConfig
from ..codecs import train_tokenizer

ENCODED_CHARACTERS = 1 << 19  # at a time


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
        cls, tokenizers: Mapping[str, Tokenizer], max_length: int, labels: tuple[str, ...] = ()
    ) -> Self:
        return cls(tokenizers["tokenizer"])

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Encoded:
        """Returns the tokens of all rows in order, `<eos>` behind each document if there are several."""
        texts, ends = dataset["text"], document_ends(dataset)
        if isinstance(texts, TextValues):
            return Encoded(cast(Sequences, self._encode_column(texts, ends)))
        tokenizer = self.tokenizer
        end = np.array([] if tokenizer.eos is None else [tokenizer.eos], dtype=np.int64)
        line_ends = tokenizer.kind in ("word", "wordpiece")  # whose line ends are <eos>: one is enough
        blocks = align_blocks(map(TextBlock, texts, ends.tolist()))
        parts: list[np.ndarray] = [np.zeros(0, np.int64)]
        last = -1
        for group in batch_blocks(blocks, ENCODED_CHARACTERS):
            encoded = tokenizer.encode_many([block.text for block in group], strict=False)
            for block, ids in zip(group, encoded, strict=True):
                parts.append(ids)
                last = int(ids[-1]) if len(ids) else last
                if block.ends_document and not (line_ends and last == tokenizer.eos):
                    parts.append(end)
                    last = -1 if tokenizer.eos is None else tokenizer.eos
        return Encoded(Sequences.of([np.concatenate(parts)]))

    def _encode_column(self, texts: TextValues, ends: np.ndarray) -> Any:
        """Encodes a column on disk; a row with `END_MARK` is inserted behind each document of several rows."""
        if ends.all():
            return encode_column(self.tokenizer, [texts], "documents")
        rows = np.flatnonzero(ends)
        if self.tokenizer.kind in ("word", "wordpiece"):  # whose line ends are <eos>: one is enough
            rows = np.array([row for row in rows if not texts[row].rstrip(" \t").endswith("\n")], dtype=np.int64)
        if len(rows):
            chosen = np.arange(len(texts)) if texts.rows is None else texts.rows
            mark = len(texts.table) + len(texts.extra)
            chosen = np.insert(chosen, rows + 1, mark)
            texts = TextValues(texts.table, texts.column, chosen, (*texts.extra, END_MARK))
        return encode_column(self.tokenizer, [texts], "stream")


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
