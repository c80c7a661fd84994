"""Codecs: from input columns to what a network reads: text by a tokenizer, numbers, images. Processors contain them."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

import numpy as np
import torch
from pydantic import Field as Setting
from torch import nn

from ..core.config import Settings
from ..core.errors import Diagnostics, SeriatimError
from ..core.text import plural  # noqa: F401
from ..data.dataset import Dataset
from ..data.disk import TextValues
from ..data.images import IMAGE, ImageLayout
from ..data.images.batches import Images
from ..data.kinds import NUMBER, NUMBERS, TEXT, Kind
from ..data.sequences import Sequences
from ..data.settings import Fit, ImageSettings
from ..data.shards import encode_column, frame_texts
from ..data.tokenizers import Tokenizer, TokenizerSettings, default_kind
from ..nn.backbone import BackboneSettings, ModelSettings
from ..nn.layers import NumberInput
from .metrics import mean_and_std
from .processor import Stored, TaskConfig, Tokenizers, check_numbers

if TYPE_CHECKING:
    from ..nn.images import ImageInput

SAMPLED_TEXTS = 1000  # by which the tokenizer is chosen
TRAINING_CHARACTERS = 1 << 26  # of a column on disk that a tokenizer is trained on
WORDS = TokenizerSettings(kind="word", vocab_size=20_000, lowercase=True)
CHARACTERS = TokenizerSettings(kind="char")
DECLARED_TOKENS = (8_000, 30_000)  # of a tokenizer that a model declares: from a small text to BERT's
MAX_PROBLEMS = 100  # of one kind that an encoding reports
CHARACTERS_PER_TOKEN = 500  # of the training text, between these two

# Spaces, tabs and line ends become one space. No-break, thin and other typographic spaces are part of the text.
LINE_ENDS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
SPACES = re.compile(f"[ {LINE_ENDS}]+")
UNUSUAL_SPACES = re.compile(f"[{LINE_ENDS}]|  |^ | $")


class SequenceSettings(Settings):
    """Settings of tasks that read one input per example."""

    context_length: int | None = Setting(
        None, ge=1, le=1_000_000, description="longest sequence; longer ones are truncated"
    )
    input_kind: Literal["auto", "text", "numbers", "image"] = Setting("auto", description="what the input column holds")
    scaling: Literal["standard", "none"] = Setting(
        "standard", description="numbers and pixels: standardized by the training split, or as they are"
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(kind="word", lowercase=True)] = Setting(
        None, description="how text is tokenized (default: lowercase words, or characters of texts without words)"
    )
    images: ImageSettings = Setting(default_factory=ImageSettings, description="how images are read and augmented")


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


class InputCodec(Stored, ABC):
    """Encodes the columns of a role as sequences or images, and knows the network's input module for them."""

    longest: int  # elements of the longest training sequence, after truncation

    @classmethod
    @abstractmethod
    def fit(
        cls, train: Dataset, role: str, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> Self:
        """Returns a codec fitted to the columns of `role` in the training split.

        Args:
            train: The training split.
            role: The role to encode.
            config: The settings of the task (`SequenceSettings`) and the model, whose limit on the length applies.
            pretrained: Tokenizers to use instead of training one, by the name of their field.
            diagnostics: Receives notes, such as how many sequences are truncated.
        """

    @abstractmethod
    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> Sequences | Images:
        """Returns one item per row: `Sequences` of token ids (T,) or numbers (T,F), or `Images`.

        Args:
            dataset: The rows.
            role: The role to encode.
            diagnostics: Receives the rows that cannot be encoded; by default they are raised.
        """

    @abstractmethod
    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        """Returns the first module of a network, (B,T) or (B,T,F) → (B,T,D), and the size D of its vectors."""

    def sequence_length(self, module: nn.Module) -> int:
        """Returns the length of the sequences that a backbone is built for; `module` is that of `input_module`."""
        return self.longest

    @abstractmethod
    def element_names(self, item: np.ndarray) -> list[str]:
        """Returns the text of each element of an encoded item, for inspection."""


def limit_length(lengths: np.ndarray, config: TaskConfig, diagnostics: Diagnostics) -> tuple[int, int | None]:
    """Returns the longest length after truncation and the limit, by the settings and the model; notes truncation."""
    longest = int(lengths.max(initial=1))
    limit = config.model.traits.max_length(config.task.context_length, longest)
    if limit is None or longest <= limit:
        return longest, limit
    truncated = int((lengths > limit).sum())
    diagnostics.note(f"{truncated:,} of {len(lengths):,} training sequences are truncated to {limit:,} elements")
    return limit, limit


@dataclass(frozen=True)
class TextCodec(InputCodec):
    """One text, or two with a separator between them."""

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


@dataclass(frozen=True)
class NumberCodec(InputCodec):
    """A list of numbers per cell, or one number in each of several columns; standardized by the training split."""

    features: tuple[str, ...]  # the names of the numbers of a step
    mean: tuple[float, ...]
    std: tuple[float, ...]
    longest: int
    max_length: int | None = None

    def __post_init__(self) -> None:
        check_numbers("mean and std", (self.mean, self.std), 2, len(self.features))

    @classmethod
    def fit(
        cls, train: Dataset, role: str, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> Self:
        columns = train.columns[role]
        name, width = columns[0].name, 1
        if columns[0].kind is NUMBERS:
            width = next((values.shape[1] for values in columns[0].values if len(values)), 1)
        elif len(columns) > 1:
            name = "value"
            diagnostics.note(f"{len(columns)} columns are a sequence of {len(columns)} numbers")
        features = (name,) if width == 1 else tuple(f"{name}.{number}" for number in range(1, width + 1))
        codec = cls(features, (0.0,) * width, (1.0,) * width, 1)
        longest, limit = limit_length(codec.encode(train, role).lengths, config, diagnostics)
        codec = replace(codec, longest=longest, max_length=limit)
        if config.task.scaling == "standard":
            mean, std = mean_and_std(codec.encode(train, role).values)
            codec = replace(codec, mean=tuple(map(float, mean)), std=tuple(map(float, std)))
        return codec

    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> Sequences:
        problems = Diagnostics() if diagnostics is None else diagnostics
        if dataset.kind(role) is NUMBER:
            matrix = dataset.matrix(role)
            for row, column in np.argwhere(np.isnan(matrix))[:MAX_PROBLEMS].tolist():
                name = dataset.columns[role][column].name
                cause = f'{dataset.locations[row]}: column "{name}": the number is missing'
                problems.report("data.number", cause, "fill it in, or remove the row")
            sequences = Sequences.equal(matrix.astype(np.float32)[..., None])
        else:
            sequences = self._join_lists(dataset, role, problems)
        if diagnostics is None:
            problems.raise_problems()
        if self.max_length is None or sequences.lengths.max(initial=0) <= self.max_length:
            return sequences
        return Sequences.of((sequences[row][: self.max_length] for row in range(len(sequences))), width=self.width)

    def _join_lists(self, dataset: Dataset, role: str, diagnostics: Diagnostics) -> Sequences:
        """Returns the lists of all columns, one behind the other; steps of another width are problems."""
        columns = [column.values for column in dataset.columns[role]]
        arrays = columns[0] if len(columns) == 1 else [np.concatenate(row) for row in zip(*columns, strict=True)]
        joined = []
        for row, array in enumerate(arrays):
            if len(array) and array.shape[1] != self.width:
                cause = f"{dataset.locations[row]}: a step has {array.shape[1]} numbers, the model has {self.width}"
                diagnostics.report("data.features", cause, f"pass {', '.join(self.features)}")
            joined.append(array if len(array) and array.shape[1] == self.width else np.zeros((0, self.width)))
        return Sequences.of(joined, width=self.width)

    @property
    def width(self) -> int:
        return len(self.features)

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        module = NumberInput(self.width, model.embedding)
        module.mean.copy_(torch.tensor(self.mean))
        module.std.copy_(torch.tensor(self.std))
        return module, module.width

    def element_names(self, item: np.ndarray) -> list[str]:
        return [" ".join(f"{value:.3g}" for value in step) for step in item]


@dataclass(frozen=True)
class ImageCodec(InputCodec):
    """Images of one size; standardized by the training split, and augmented in training."""

    height: int
    width: int
    channels: int
    fit_mode: Fit
    margin: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = False  # whether training mirrors every other image
    skip_broken: bool = False  # whether rows with targets whose image cannot be read are left out
    max_megapixels: float = 64.0
    longest: int = 1

    @classmethod
    def fit(
        cls, train: Dataset, role: str, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> Self:
        from ..data.images.store import choose_layout, read_headers  # imports Pillow

        settings: SequenceSettings = config.task
        if settings.context_length is not None:
            cause = f"images have one size, not a length of at most {settings.context_length}"
            raise SeriatimError("task.images", cause, "omit --context-length, or set task.images.size")
        images = settings.images
        headers = read_headers(train[role], images, diagnostics.on_note)
        layout, notes = choose_layout([header for header in headers if not isinstance(header, SeriatimError)], images)
        for note in notes:
            diagnostics.note(note)
        flip = layout.channels == 3 if images.flip is None else images.flip
        if flip:
            diagnostics.note("training mirrors every other image (task.images.flip)")
        size = (layout.height, layout.width, layout.channels, layout.fit, layout.margin)
        skip = images.broken == "skip"
        codec = cls(*size, (), (), flip, skip, images.max_megapixels)
        mean, std = np.zeros(layout.channels), np.ones(layout.channels)
        if settings.scaling == "standard":
            mean, std = codec.encode(train, role, diagnostics).mean_and_std()
        return replace(codec, mean=tuple(map(float, mean)), std=tuple(map(float, std)))

    @property
    def layout(self) -> ImageLayout:
        return ImageLayout(self.height, self.width, self.channels, self.fit_mode, self.margin)

    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> Images:
        """Returns the images; rows that cannot be read are reported, or left out and noted (`Images.source_rows`)."""
        from ..data.images.store import load_images  # imports Pillow

        problems = Diagnostics() if diagnostics is None else diagnostics
        settings = ImageSettings(max_megapixels=self.max_megapixels)
        images, broken = load_images(dataset[role], self.layout, settings, problems.on_note)
        with_targets = len(dataset.columns) > 1  # else there is one prediction for each row
        if broken and self.skip_broken and with_targets and len(broken) < len(dataset):
            first = next(iter(broken.values())).cause
            problems.note(f"{len(broken):,} of {len(dataset):,} images are left out, the first: {first}")
            readable = np.setdiff1d(np.arange(len(dataset)), list(broken))
            return replace(images.take(readable), source_rows=readable)
        for row, error in broken.items():
            skip = "; to leave it out: task.images.broken=skip" if with_targets else ""
            problems.report(error.code, f"{dataset.locations[row]}: {error.cause}", error.remedy + skip)
        if diagnostics is None:
            problems.raise_problems()
        return images

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        module = model.image_input(self.layout.shape)
        module.mean.copy_(torch.tensor(self.mean))
        module.std.copy_(torch.tensor(self.std))
        return module, module.width

    def sequence_length(self, module: nn.Module) -> int:
        rows, columns = cast("ImageInput", module).grid
        return rows * columns

    def element_names(self, item: np.ndarray) -> list[str]:
        return [f"{item.shape[1]} × {item.shape[0]} pixels"]


CODECS: Mapping[Kind, type[InputCodec]] = {
    TEXT: TextCodec,
    NUMBER: NumberCodec,
    NUMBERS: NumberCodec,
    IMAGE: ImageCodec,
}
