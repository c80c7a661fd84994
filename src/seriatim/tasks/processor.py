"""Processors: from a data set to the arrays that batches are made of. A run stores its processor with the weights.

A processor is a frozen dataclass, fitted on the training split by the settings of the task and the model. It is stored
as versioned JSON, with tokenizers as files beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache, singledispatch
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from ..core.errors import Diagnostics, SeriatimError
from ..core.text import listed, plural
from ..data.dataset import Dataset
from ..data.tokenizers import Tokenizer
from .spec import TaskConfig

E = TypeVar("E")  # the items of a split
Tokenizers = Mapping[str, Tokenizer]  # by the name of their field: "tokenizer", of the source "source_tokenizer"
Values = Mapping[str, Any]  # a configuration, or a section of it, as nested plain values
Json = Any  # a JSON value
TokenizerFiles = dict[str, Tokenizer]  # file name → tokenizer
MAX_LISTED = 8  # names in a sentence


# Storage


class Stored:
    """The base of dataclasses that a run stores. A change of the fields raises `version`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    version: ClassVar[int] = 1
    from_weights: ClassVar[tuple[str, ...]] = ()  # fields that follow from the trained weights
    classes: ClassVar[dict[str, type[Stored]]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        Stored.classes[cls.__name__] = cls

    @classmethod
    def migrate(cls, values: dict[str, Json], version: int) -> dict[str, Json]:
        """Returns the fields of the current version from those of an older one."""
        return values

    def to_dict(self) -> tuple[dict[str, Json], TokenizerFiles]:
        """Returns the fields as JSON values, and the tokenizers by the file name that stands for each."""
        tokenizers: TokenizerFiles = {}
        return pack(self, tokenizers), tokenizers

    def equals(self, other: Stored) -> bool:
        """Returns whether another object would be stored alike."""
        (own, files), (values, other_files) = self.to_dict(), other.to_dict()
        return own == values and all(files[name].to_json() == other_files[name].to_json() for name in files)


@singledispatch
def pack(value: object, tokenizers: TokenizerFiles) -> Json:
    """Returns a JSON value; adds each tokenizer it meets to `tokenizers`."""
    return value


@pack.register
def _(value: Stored, tokenizers: TokenizerFiles) -> Json:
    packed = {field.name: pack(getattr(value, field.name), tokenizers) for field in fields(value)}
    return {"type": type(value).__name__, "version": value.version, **packed}


@pack.register(tuple)
@pack.register(list)
def _(value: Sequence[object], tokenizers: TokenizerFiles) -> Json:
    return [pack(item, tokenizers) for item in value]


@pack.register
def _(value: Tokenizer, tokenizers: TokenizerFiles) -> Json:
    for name, tokenizer in tokenizers.items():
        if tokenizer is value:  # shared by two fields: stored once
            return {"tokenizer_file": name}
    name = f"tokenizer-{len(tokenizers) + 1}.json" if tokenizers else "tokenizer.json"
    tokenizers[name] = value
    return {"tokenizer_file": name}


def unpack(value: Json, load_tokenizer: Callable[[str], Tokenizer]) -> Any:
    """Returns the value that `pack` was called with; lists become tuples."""
    if isinstance(value, list):
        return tuple(unpack(item, load_tokenizer) for item in value)
    if not isinstance(value, dict):
        return value
    if "tokenizer_file" in value:
        return load_tokenizer(value["tokenizer_file"])
    packed = dict(value)
    name, version = packed.pop("type"), packed.pop("version")
    stored_class = Stored.classes.get(name)
    if stored_class is None:
        cause = f"{name} is defined neither by seriatim nor by a plug-in that is loaded"
        raise SeriatimError("run.version", cause, "name the file that defines the task (--plugin), or update seriatim")
    if version > stored_class.version:
        cause = f"{name} (version {version}) was written by a newer seriatim"
        raise SeriatimError("run.version", cause, "update seriatim")
    if version < stored_class.version:
        packed = stored_class.migrate(packed, version)
    unpacked = {key: unpack(item, load_tokenizer) for key, item in packed.items()}
    for field in fields(stored_class):
        if field.name in unpacked and not any(
            _has_type(unpacked[field.name], hint) for hint in str(field.type).split(" | ")
        ):
            raise ValueError(f"{name}.{field.name} is {str(unpacked[field.name])[:40]}, not {field.type}")
    return stored_class(**unpacked)


def _has_type(value: object, hint: str) -> bool:
    """Returns whether a value is what the annotation of a stored field says; whole numbers are counts."""
    if hint == "int":
        return type(value) is int and 0 <= value < 2**31
    if hint.startswith("tuple"):
        return isinstance(value, tuple) and (hint != "tuple[str, ...]" or all(isinstance(item, str) for item in value))
    types = {"None": type(None), "str": str, "bool": bool, "Tokenizer": Tokenizer, **Stored.classes}
    return isinstance(value, types.get(hint.partition("[")[0], object))


def check_numbers(name: str, rows: Sequence[Sequence[float | None]], count: int, width: int) -> None:
    """Raises ValueError unless there are `count` rows of `width` numbers, None for those that are missing."""
    numbers = [number for row in rows for number in row]
    if len(rows) != count or any(len(row) != width for row in rows):
        raise ValueError(f"{name} is not of {count} × {width} numbers")
    if not all(number is None or isinstance(number, int | float) for number in numbers):
        raise ValueError(f"{name} has values that are no numbers")


def from_dict(values: dict[str, Json], folder: Path) -> Any:
    """Returns the object that `to_dict` was called on, with tokenizers loaded from `folder`, each file once."""
    return unpack(values, cache(lambda name: Tokenizer.load(folder / name)))


# Encoding


class Processor(Stored, ABC, Generic[E]):
    """Encodes data sets as arrays; fitted on the training split and stored with the run.

    It owns tokenizers, label vocabularies, scaling and length limits.
    """

    @classmethod
    @abstractmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        """Returns a processor fitted on the training split.

        Args:
            train: The training split.
            config: The settings of the task and the model.
            pretrained: Tokenizers to use instead of training one, by the name of their field.
            diagnostics: Receives notes, such as the size of a vocabulary.
        """

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        """Returns the processor of a model that was trained elsewhere.

        Args:
            tokenizers: As `pretrained` of `fit`.
            max_length: The longest sequence the model reads.
            labels: The names of its outputs.
            config: Its config.json (see `Task.hub_config`); `image` holds height, width, channels, fit, mean and std.
        """
        raise SeriatimError("import.task", f"{cls.__name__} has no processor without data", "choose another model")

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers by their names in `fit`; of two, the field of the source comes first."""
        stored = list(self.to_dict()[1].values())
        names = ("tokenizer",) if len(stored) < 2 else ("source_tokenizer", "tokenizer")
        return dict(zip(names, stored, strict=False))

    @property
    def hub_layout(self) -> Values:
        """What models elsewhere state of their inputs beside a tokenizer, as `from_pretrained` reads it.

        Of images it is `image`, with height, width, channels and fit ("stretch" or "crop").
        """
        return {}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the network's outputs in their order, such as labels; empty if they have none."""
        return ()

    @abstractmethod
    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> E:
        """Returns the items of a data set, with targets if it has them."""


# Why another run cannot be the teacher of a distillation: its outputs do not correspond to those of the student


def name_mismatches(names: Sequence[str], teacher_names: Sequence[str], noun: str) -> list[str]:
    """Returns sentences about the names that only one of two models has; their order does not matter.

    Args:
        names: The student's, such as labels or tokens.
        teacher_names: The teacher's.
        noun: What they name, in the singular.
    """
    sentences = []
    for owner, own, others in (("this model", names, set(teacher_names)), ("the teacher", teacher_names, set(names))):
        if only := [name for name in own if name not in others]:
            shown = listed([f'"{name}"' for name in only], MAX_LISTED)
            count = f"the {noun}" if len(only) == 1 else plural(len(only), noun)
            sentences.append(f"only {owner} has {count}: {shown}")
    return sentences


def length_mismatches(noun: str, length: int, limit: int | None) -> list[str]:
    """Returns a sentence if sequences may be longer than the limit of the teacher.

    Args:
        noun: The sequences, in the plural.
        length: The longest that the student reads.
        limit: The longest that the teacher reads; None for any.
    """
    if limit is None or length <= limit:
        return []
    return [f"{noun} have up to {length} elements, the teacher reads {limit} (--context-length)"]


def tokenizer_mismatches(tokenizer: Tokenizer, teacher: Tokenizer, side: str = "") -> list[str]:
    """Returns sentences about two tokenizers, which must give every text the same ids.

    Args:
        tokenizer: The student's.
        teacher: The teacher's.
        side: "source" or "target" of an encoder–decoder, before each sentence.
    """
    if tokenizer.to_json() == teacher.to_json():
        return []
    sentences = name_mismatches(tokenizer.names, teacher.names, "token")
    if tokenizer.kind != teacher.kind:
        sentences.insert(0, f"its tokenizer is of kind {tokenizer.kind}, the teacher's of kind {teacher.kind}")
    prefix = f"{side}: " if side else ""
    return [prefix + text for text in sentences or ["the tokens are equal, but texts are tokenized differently"]]
