"""The codec of texts, and how tokenizers are chosen and trained."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import ClassVar, Self, cast

import numpy as np
from torch import nn

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed
from ...data.dataset import Column, Dataset
from ...data.disk import TextValues
from ...data.kinds import TEXT
from ...data.schema import Schema
from ...data.sequences import Sequences
from ...data.shards import encode_column, frame_texts
from ...data.source import Source
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...nn.backbone import BackboneSettings
from ...nn.settings import ModelSettings
from ..inputs import TEXTS, Modality, SequenceSettings
from ..processor import Tokenizers, Values
from ..reading import Layout
from ..spec import TaskConfig
from .base import SequenceCodec, TextInput, limit_length

SAMPLED_TEXTS = 1000  # by which the tokenizer is chosen
TRAINING_CHARACTERS = 1 << 26  # of a column on disk that a tokenizer is trained on
WORDS = TokenizerSettings(kind="word", vocab_size=20_000, lowercase=True)
CHARACTERS = TokenizerSettings(kind="char")
DECLARED_TOKENS = (8_000, 30_000)  # of a tokenizer that a model declares: from a small text to BERT's
CHARACTERS_PER_TOKEN = 500  # of the training text, between these two
MAX_CHARACTERS = 200  # of an input in a table
MAX_LISTED = 5  # rows in an error

# Spaces, tabs and line ends become one space. No-break, thin and other typographic spaces are part of the text.
LINE_ENDS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
SPACES = re.compile(f"[ {LINE_ENDS}]+")
UNUSUAL_SPACES = re.compile(f"[{LINE_ENDS}]|  |^ | $")


def normalize_text(text: str) -> str:
    """Returns a text in Unicode NFC, with one space for each run of spaces, tabs and line ends, none at its ends."""
    if text.isascii() and not UNUSUAL_SPACES.search(text):
        return text
    return SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip(" ")


def text_key(text: str) -> str:
    """Returns what texts have in common that must not be in two splits: case and spaces make no difference."""
    return " ".join(unicodedata.normalize("NFC", text.casefold()).split())


def model_tokenizer(model: ModelSettings, texts: Sequence[str]) -> TokenizerSettings | None:
    """Returns the tokenizer settings a model declares, with more tokens for more text; None if it declares none."""
    if not model.tokenizer_defaults:
        return None
    fewest, most = DECLARED_TOKENS
    size = min(max(sum(map(len, texts)) // CHARACTERS_PER_TOKEN, fewest), most)
    return TokenizerSettings(**{"vocab_size": size, **model.tokenizer_defaults})


def fit_tokenizer(texts: Sequence[str], settings: TokenizerSettings | None, diagnostics: Diagnostics) -> Tokenizer:
    """Returns a tokenizer trained on texts; without settings it takes words if texts have several, else characters."""
    if settings is None:
        spaces = sum(text.strip().count(" ") for text in texts[:SAMPLED_TEXTS])
        words = WORDS.model_copy(update={"min_count": 2 if len(texts) >= SAMPLED_TEXTS else 1})
        settings = words if spaces >= min(len(texts), SAMPLED_TEXTS) else CHARACTERS
    end = "" if settings.kind == "char" else "\n"
    return train_tokenizer(settings, (text + end for text in texts), diagnostics)


def train_tokenizer(settings: TokenizerSettings, texts: Iterable[str], diagnostics: Diagnostics) -> Tokenizer:
    """Returns a tokenizer trained on texts, and notes its size."""
    tokenizer = Tokenizer.train(settings, texts)
    diagnostics.note(f"{tokenizer.kind} tokenizer with {tokenizer.vocab_size:,} tokens, trained on the training split")
    return tokenizer


def training_texts(texts: np.ndarray | TextValues) -> np.ndarray | TextValues:
    """Returns the texts a tokenizer is trained on: all, or of a column with more than `TRAINING_CHARACTERS` on disk
    evenly spaced ones."""
    if not isinstance(texts, TextValues):
        return texts
    every = -(-int(texts.lengths().sum(dtype=np.int64)) // TRAINING_CHARACTERS)
    return texts if every <= 1 else texts[np.arange(0, len(texts), every)]


@dataclass(frozen=True)
class TextCodec(SequenceCodec):
    """One text, or two with a separator between them."""

    modality: ClassVar[Modality] = TEXTS

    tokenizer: Tokenizer
    longest: int
    max_length: int | None = None
    texts: int | None = None  # of an input, 1 or 2; None: either

    @classmethod
    def fit(
        cls, train: Dataset, role: str, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> Self:
        columns = [training_texts(column.values) for column in train.columns[role]]
        if len(columns) > 2:
            names = ", ".join(column.name for column in train.columns[role])
            cause = f"{train.name}: {len(columns)} columns of text are the {role} ({names}), at most two can be"
            raise SeriatimError("data.column", cause, f"name one or two: data.columns.{role}={names.split(',')[0]}")
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            rows = zip_longest(*columns, fillvalue="")  # of large columns on disk, unequal numbers of rows are read
            texts = [text for row in rows for text in row]
            tokenizer = fit_tokenizer(texts, config.task.tokenizer or model_tokenizer(config.model, texts), diagnostics)
        codec = cls(tokenizer, 1, texts=len(columns))
        longest, limit = limit_length(codec.encode(train, role).lengths, config, diagnostics)
        tokenizer.frame([], [] if len(columns) == 2 else None, limit)  # raises if special tokens alone exceed it
        return replace(codec, longest=longest, max_length=limit)

    @classmethod
    def from_pretrained(cls, tokenizers: Tokenizers, max_length: int, config: Values) -> Self | None:
        tokenizer = tokenizers.get("tokenizer")
        return None if tokenizer is None else cls(tokenizer, max_length, max_length)

    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> Sequences:
        columns = [column.values for column in dataset.columns[role]]
        if self.texts is not None and len(columns) != self.texts:
            expected = ("one text", "two texts")[self.texts - 1]
            cause = f"{dataset.name}: the {role} has {len(columns)} columns, but the model was trained on {expected}"
            columns_named = "first,second" if self.texts == 2 else dataset.columns[role][0].name
            raise SeriatimError("data.pair", cause, f"name the columns: data.columns.{role}={columns_named}")
        if all(isinstance(values, TextValues) for values in columns):
            return cast(Sequences, encode_column(self.tokenizer, columns, "texts", self.max_length))
        return Sequences.of(frame_texts(self.tokenizer, [list(values) for values in columns], self.max_length))

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        embedding = model.token_input(self.tokenizer.vocab_size, self.tokenizer.sep)
        return embedding, embedding.embedding_dim

    def element_names(self, item: np.ndarray) -> list[str]:
        return [self.tokenizer.token(int(token)) for token in item]

    @property
    def text_input(self) -> TextInput:
        return TextInput(self.tokenizer, self.max_length)

    @classmethod
    def clean(cls, rows: Dataset, settings: SequenceSettings, diagnostics: Diagnostics) -> Dataset:
        sizes = np.stack([column.sizes for column in rows.columns["input"]])  # (columns, rows)
        if (partly := (sizes == 0).any(axis=0) & (sizes > 0).any(axis=0)).any():
            first = rows.locations[int(partly.argmax())]
            diagnostics.note(f"{rows.name}: {partly.sum():,} rows have one of two texts, the first at {first}")
        return rows

    def adapt(
        self, source: Source, schema: Schema, columns: Mapping[str, str], layout: Layout
    ) -> tuple[Source, Mapping[str, str], Layout]:
        if self.texts == 1 or "target" in schema.roles:
            return source, columns, layout
        source = unpack_pairs(source)
        if not columns and list(source.columns or ()) == ["column 1", "column 2"]:
            columns = {"input": "column 1,column 2"}
        return source, columns, layout

    def adapt_rows(self, rows: Dataset) -> Dataset:
        if self.texts == 1 or len(rows.columns["input"]) > 1:
            return rows
        if self.texts is None and not (len(rows) and all(text.count("\t") == 1 for text in rows["input"])):
            return rows  # a model trained elsewhere reads both, and these are single texts
        return split_pairs(rows)

    def note_truncated(self, name: str, rows: Dataset, inputs: Sequences, diagnostics: Diagnostics) -> None:
        if not any(isinstance(column.values, TextValues) for column in rows.columns["input"]):  # else: too many
            super().note_truncated(name, rows, inputs, diagnostics)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return (1, 2) if self.texts is None else (self.texts,)

    def describe(self, rows: Dataset, row: int) -> str:
        values = [column.values[row] for column in rows.columns["input"]]
        limit = MAX_CHARACTERS // len(values)
        return " ⇥ ".join(text if len(text) <= limit else text[:limit] + " …" for text in values)

    def example(self) -> tuple[str, str]:
        if self.texts == 2:
            return "$'a text\\tanother text'", '[("a text", "another text")]'
        return '"a text"', '["a text"]'


def unpack_pairs(source: Source) -> Source:
    """Returns a source of pairs, such as lists from JSON, as two columns; any other source as it is."""
    if source.columns is None or len(source.columns) != 1:
        return source
    (cells,) = source.columns.values()
    if not len(cells) or not all(isinstance(cell, (list, tuple)) and len(cell) == 2 for cell in cells):
        return source
    return replace(source, columns={f"column {side + 1}": [cell[side] for cell in cells] for side in (0, 1)})


def split_pairs(rows: Dataset) -> Dataset:
    """Returns rows of one text each as rows of two, written with a tab between them."""
    texts = rows["input"]
    wrong = [row for row, text in enumerate(texts) if text.count("\t") != 1]
    if wrong:
        first = [f"{rows.locations[row]}: {texts[row][:40]!r}" for row in wrong[:MAX_LISTED]]
        shown = listed(first, MAX_LISTED, "; ", total=len(wrong))
        raise SeriatimError(
            "data.pair",
            f"the model was trained on two texts, and not every row has two: {shown}",
            "separate both texts by one tab (in bash $'a text\\tanother'), or pass a table with both columns",
        )
    sides = zip(*(text.split("\t") for text in texts), strict=True) if len(texts) else ((), ())
    columns = tuple(Column(f"text {number}", TEXT, TEXT.store(side)) for number, side in enumerate(sides, 1))
    return replace(rows, columns={**rows.columns, "input": columns})
