"""The base of codecs, and their registry. A task asks the codec of its input; nobody asks what kind of codec it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from torch import nn

from ...core.errors import Diagnostics, SeriatimError
from ...data.dataset import Dataset
from ...data.kinds import Kind
from ...data.schema import Schema
from ...data.sequences import Sequences
from ...data.source import Source
from ...data.tokenizers import Tokenizer
from ...nn.backbone import BackboneSettings
from ...nn.settings import ModelSettings
from ..inputs import Modality, SequenceSettings, add_modality, plural_of
from ..processor import Stored, Tokenizers, Values
from ..reading import Layout
from ..spec import TaskConfig

if TYPE_CHECKING:
    from ...report.charts import Image
    from ..capability import Record

MAX_PROBLEMS = 100  # of one kind that an encoding reports
CODECS: dict[Kind, type[InputCodec[Any]]] = {}  # by the kind of a column
I = TypeVar("I")  # noqa: E741  (items)


class TextInput(NamedTuple):
    """How a codec reads texts."""

    tokenizer: Tokenizer
    max_length: int | None


class NumberLayout(NamedTuple):
    """The numbers of each element of a sequence."""

    features: tuple[str, ...]  # their names
    std: tuple[float, ...]  # their standard deviations in the training split


class InputCodec(Stored, ABC, Generic[I]):
    """Encodes the columns of a role, and knows what is particular to inputs of its modality.

    It is generic in its items. A subclass that declares a `modality` registers itself for the kinds of cells of that;
    most methods have a default for sequences.
    """

    modality: ClassVar[Modality]
    slow: ClassVar[bool] = False  # whether batches take so long that they are made in a background thread
    sequential: ClassVar[bool] = True  # whether elements follow each other, so that training may not reach far back

    longest: int  # elements of the longest training sequence, after truncation

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "modality" in vars(cls):
            add_modality(cls.modality)
            CODECS.update(dict.fromkeys((*cls.modality.kinds, *cls.modality.kinds_if_named), cls))

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

    @classmethod
    def from_pretrained(cls, tokenizers: Tokenizers, max_length: int, config: Values) -> Self | None:
        """Returns the codec of a model that was trained elsewhere; None if its inputs are not of this modality.

        Args:
            tokenizers: As `pretrained` of `fit`.
            max_length: The longest sequence the model reads.
            config: Its config.json; see `Processor.from_pretrained`.
        """
        return None

    @abstractmethod
    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> I:
        """Returns one item per row: `Sequences` of token ids (T,) or numbers (T,F), or `Images`.

        Args:
            dataset: The rows.
            role: The role to encode.
            diagnostics: Receives the rows that cannot be encoded; by default they are raised.
        """

    # Network

    @classmethod
    def check_model(cls, model: ModelSettings, name: str) -> None:
        """Raises SeriatimError if a model cannot read this modality; `name` is that of the data."""
        if model.modality is not None and model.modality != cls.modality.name:
            noun = plural_of(model.modality)
            cause = f"{model.name} reads {noun}, and {name} has none"
            raise SeriatimError(f"task.{noun}", cause, f"choose another --model, or pass {noun}")

    @abstractmethod
    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        """Returns the first module of a network, (B,T) or (B,T,F) → (B,T,D), and the size D of its vectors."""

    def sequence_length(self, module: nn.Module) -> int:
        """Returns the length of the sequences that a backbone is built for; `module` is that of `input_module`."""
        return self.longest

    @property
    def text_input(self) -> TextInput | None:
        """How texts are read; None if inputs are not text."""
        return None

    @property
    def number_layout(self) -> NumberLayout | None:
        """The numbers of each element, between which there are distances; None if elements are not numbers."""
        return None

    @property
    def hub_layout(self) -> Values:
        """What models elsewhere state of their inputs beside a tokenizer, as `from_pretrained` reads it."""
        return {}

    def row_sizes(self, rows: Dataset, sizes: np.ndarray) -> np.ndarray:
        """Returns what each row counts for in a sample (rows,), by default the `sizes` of their cells."""
        return sizes

    def candidates(self, models: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the models worth trying on inputs of this modality, of those that a task names or others."""
        return models

    # Reading

    @classmethod
    def clean(cls, rows: Dataset, settings: SequenceSettings, diagnostics: Diagnostics) -> Dataset:
        """Returns the rows that are trained and evaluated on, with notes on the others; see `drops_empty`."""
        return rows

    @classmethod
    def drops_empty(cls, rows: Dataset) -> bool:
        """Returns whether rows whose inputs are all empty are left out, with a note."""
        return True

    def adapt(
        self, source: Source, schema: Schema, columns: Mapping[str, str], layout: Layout
    ) -> tuple[Source, Mapping[str, str], Layout]:
        """Returns a source of further data in the layout of the training data, where it may be written otherwise.

        Args:
            source: The files or columns.
            schema: The fields that are read.
            columns: Role → column names, as the user writes them.
            layout: That of the training data.
        """
        return source, columns, layout

    def adapt_rows(self, rows: Dataset) -> Dataset:
        """Returns rows of further data as the codec encodes them."""
        return rows

    def kept_rows(self, inputs: I) -> np.ndarray | None:
        """Returns the row of each item if `encode` leaves rows out, such as files that cannot be read; None: all."""
        return None

    def note_truncated(self, name: str, rows: Dataset, inputs: I, diagnostics: Diagnostics) -> None:
        """Notes how many inputs of a split are longer than the model reads; `fit` notes those of the training."""

    # Training

    @abstractmethod
    def augment(
        self, inputs: I, items: np.ndarray, share: slice, seed: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the share of a training batch (n,T,…) and its mask (n,T), by default as in evaluation.

        Args:
            inputs: The training items.
            items: Those of the global batch: random numbers are drawn for all of them, whatever the share.
            share: The part of them to return.
            seed: That of the run.
            step: That of the training; random numbers depend on both.
        """

    def join(self, inputs: I, others: I) -> I:
        """Returns items with others behind them, for unlabeled data."""
        noun = self.modality.plural
        raise SeriatimError("distill.unlabeled", f"unlabeled {noun} are not supported", "omit --unlabeled-data")

    # Words

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        """The numbers of texts that an input may have."""
        return (1,)

    @abstractmethod
    def element_names(self, item: np.ndarray) -> list[str]:
        """Returns the text of each element of an encoded item, for inspection."""

    def grid_names(self, item: np.ndarray, network: nn.Module) -> list[str]:
        """Returns the text of each element that the backbone of a network reads."""
        return self.element_names(item)

    @abstractmethod
    def describe(self, rows: Dataset, row: int) -> str:
        """Returns the input of a row as a short text."""

    def cell(self, rows: Dataset, row: int, inputs: I, item: int) -> str | Image:
        """Returns an input for a table of the report.

        Args:
            rows: The rows.
            row: The row of the input.
            inputs: The encoded items.
            item: Its number among them.
        """
        return self.describe(rows, row)

    def add_names(self, rows: Dataset, records: list[Record]) -> list[Record]:
        """Returns predictions with the names of their inputs, if these have any."""
        return records

    @abstractmethod
    def example(self) -> tuple[str, str]:
        """Returns an example of an input in the shell, and of a list of one in Python, for the model card."""


class SequenceCodec(InputCodec[Sequences]):
    """The base of codecs whose items are sequences in memory, which a model may truncate."""

    max_length: int | None

    def note_truncated(self, name: str, rows: Dataset, inputs: Sequences, diagnostics: Diagnostics) -> None:
        if self.max_length is None:
            return
        longest = np.flatnonzero(inputs.lengths == self.max_length)
        whole = replace(self, max_length=None).encode(rows.take(longest), "input")
        if truncated := int((whole.lengths > self.max_length).sum()):
            count = f"{truncated:,} of {len(rows):,} {name} sequences"
            diagnostics.note(f"{count} are truncated to {self.max_length:,} elements (task.context_length)")

    def augment(
        self, inputs: Sequences, items: np.ndarray, share: slice, seed: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return inputs.padded(items[share])

    def join(self, inputs: Sequences, others: Sequences) -> Sequences:
        values = np.concatenate([inputs.values, others.values])
        return Sequences(values, np.concatenate([inputs.ends, inputs.ends[-1] + others.ends]))


def pretrained_codec(tokenizers: Tokenizers, max_length: int, config: Values) -> InputCodec[Any]:
    """Returns the codec of a model that was trained elsewhere; see `InputCodec.from_pretrained`."""
    for codec in dict.fromkeys(CODECS.values()):
        if (fitted := codec.from_pretrained(tokenizers, max_length, config)) is not None:
            return fitted
    raise SeriatimError("import.task", "the model has neither a tokenizer nor a layout of images", "choose another")


def limit_length(lengths: np.ndarray, config: TaskConfig, diagnostics: Diagnostics) -> tuple[int, int | None]:
    """Returns the longest length after truncation and the limit, by the settings and the model; notes truncation."""
    longest = int(lengths.max(initial=1))
    limit = config.model.traits.max_length(config.task.context_length, longest)
    if limit is None or longest <= limit:
        return longest, limit
    truncated = int((lengths > limit).sum())
    diagnostics.note(f"{truncated:,} of {len(lengths):,} training sequences are truncated to {limit:,} elements")
    return limit, limit
