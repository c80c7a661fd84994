"""Codecs: from input columns to sequences, text by a tokenizer and numbers as they are. Processors contain them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from pydantic import Field as Setting
from torch import nn

from ..core.config import Settings
from ..core.diagnostics import Diagnostics
from ..data.dataset import Dataset
from ..data.disk import TextValues
from ..data.kinds import NUMBER, NUMBERS, TEXT, Kind
from ..data.sequences import Sequences
from ..data.shards import encode_column, frame_texts
from ..data.tokenizers import Tokenizer, TokenizerSettings
from ..nn.backbone import BackboneSettings
from ..nn.inputs import NumberInput
from .stored import Stored

SAMPLED_TEXTS = 1000  # by which the tokenizer is chosen
TRAINING_CHARACTERS = 1 << 26  # of a column on disk that a tokenizer is trained on
WORDS = TokenizerSettings(kind="word", size=20_000, lowercase=True)
CHARACTERS = TokenizerSettings(kind="char")


class SequenceSettings(Settings):
    """Settings of tasks that read one input per example."""

    context_length: int | None = Setting(None, ge=1, description="longest sequence; longer ones are truncated")
    tokenizer: TokenizerSettings | None = Setting(None, description="how text is tokenized (default: by the data)")


def fit_tokenizer(texts: Sequence[str], settings: TokenizerSettings | None, diagnostics: Diagnostics) -> Tokenizer:
    """Returns a tokenizer trained on texts; without settings it takes words if texts have several, else characters."""
    if settings is None:
        spaces = sum(text.strip().count(" ") for text in texts[:SAMPLED_TEXTS])
        words = WORDS.model_copy(update={"min_count": 2 if len(texts) >= SAMPLED_TEXTS else 1})
        settings = words if spaces >= min(len(texts), SAMPLED_TEXTS) else CHARACTERS
    tokenizer = Tokenizer.train(settings, (text if settings.kind == "char" else f"{text}\n" for text in texts))
    diagnostics.note(f"{tokenizer.kind} tokenizer with {tokenizer.size:,} tokens, trained on the training split")
    return tokenizer


def train_tokenizer(settings: TokenizerSettings, columns: Sequence[Any], end: str = "") -> Tokenizer:
    """Returns a tokenizer trained on columns of text, `end` appended to each; of more text than `TRAINING_CHARACTERS`
    on disk, on evenly spaced rows."""
    return Tokenizer.train(settings, (f"{text}{end}" for column in columns for text in training_texts(column)))


def training_texts(texts: Any) -> Any:
    """Returns the texts a tokenizer is trained on: all, or of a large column on disk evenly spaced ones."""
    if not isinstance(texts, TextValues):
        return texts
    every = -(-int(texts.lengths().sum(dtype=np.int64)) // TRAINING_CHARACTERS)
    return texts if every <= 1 else texts[np.arange(0, len(texts), every)]


class InputCodec(Stored, ABC):
    """Encodes the columns of a role as sequences, and knows the network's input module for them."""

    longest: int  # elements of the longest training sequence, after truncation

    @classmethod
    @abstractmethod
    def fit(
        cls, train: Dataset, role: str, settings: SequenceSettings, model: BackboneSettings, diagnostics: Diagnostics
    ) -> Self:
        """Returns a codec fitted to the columns of `role` in the training split."""

    @abstractmethod
    def encode(self, dataset: Dataset, role: str) -> Sequences:
        """Returns one sequence per row, of token ids (T,) or of numbers (T,F)."""

    @abstractmethod
    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        """Returns the first module of a network, (B,T) or (B,T,F) → (B,T,D), and the size D of its vectors."""

    @abstractmethod
    def element_names(self, sequence: np.ndarray) -> list[str]:
        """Returns the text of each element of an encoded sequence, for inspection."""


@dataclass(frozen=True)
class TextCodec(InputCodec):
    """One text, or two with a separator between them."""

    tokenizer: Tokenizer
    longest: int
    max_length: int | None = None

    @classmethod
    def fit(
        cls, train: Dataset, role: str, settings: SequenceSettings, model: BackboneSettings, diagnostics: Diagnostics
    ) -> Self:
        texts = [text for column in train.columns[role] for text in training_texts(column.values)]
        codec = cls(fit_tokenizer(texts, settings.tokenizer, diagnostics), 1)
        lengths = codec.encode(train, role).lengths
        longest = int(lengths.max())
        max_length = model.traits.max_length(settings.context_length, longest)
        if max_length is None:
            return replace(codec, longest=longest)
        if truncated := int((lengths > max_length).sum()):
            diagnostics.note(f"{truncated:,} of {len(lengths):,} sequences are truncated to {max_length} tokens")
        return replace(codec, longest=min(longest, max_length), max_length=max_length)

    def encode(self, dataset: Dataset, role: str) -> Sequences:
        columns = [column.values for column in dataset.columns[role]]
        if all(isinstance(values, TextValues) for values in columns):
            return cast(Sequences, encode_column(self.tokenizer, columns, "texts", self.max_length))
        return Sequences.of(frame_texts(self.tokenizer, [list(values) for values in columns], self.max_length))

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        embedding = model.token_input(self.tokenizer.size, self.tokenizer.sep)
        return embedding, embedding.embedding_dim

    def element_names(self, sequence: np.ndarray) -> list[str]:
        return [self.tokenizer.token(int(token)) for token in sequence]


@dataclass(frozen=True)
class NumberCodec(InputCodec):
    """A list of numbers per cell, or one number in each of several columns; standardized by the training split."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    longest: int

    @classmethod
    def fit(
        cls, train: Dataset, role: str, settings: SequenceSettings, model: BackboneSettings, diagnostics: Diagnostics
    ) -> Self:
        sequences = cls((), (), 1).encode(train, role)
        mean, std = sequences.values.mean(axis=0), sequences.values.std(axis=0)
        std = np.where(std > 0, std, 1.0)
        return cls(tuple(map(float, mean)), tuple(map(float, std)), int(sequences.lengths.max()))

    def encode(self, dataset: Dataset, role: str) -> Sequences:
        if dataset.kind(role) is NUMBER:
            return Sequences.equal(dataset.matrix(role).astype(np.float32)[..., None])
        return Sequences.of(dataset[role])

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        module = NumberInput(len(self.mean), model.embedding)
        module.mean[:] = module.mean.new_tensor(self.mean)
        module.std[:] = module.mean.new_tensor(self.std)
        return module, module.width

    def element_names(self, sequence: np.ndarray) -> list[str]:
        return [" ".join(f"{value:.3g}" for value in step) for step in sequence]


CODECS: Mapping[Kind, type[InputCodec]] = {TEXT: TextCodec, NUMBER: NumberCodec, NUMBERS: NumberCodec}
