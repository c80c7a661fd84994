"""Inputs, declared without torch: the modalities, and the column and the settings of tasks that read one input.

    modality     cells of its columns                       codec
    text         texts, alone or in pairs                   codecs/text.py
    numbers      lists of numbers, or a number in each      codecs/numbers.py
    image        files or pixels                            codecs/images.py

A codec that names another modality adds it: `--plugin` with the file, or a file in `codecs/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from pydantic import Field as Setting

from ..core.config import Settings, add_section
from ..data.images import IMAGE
from ..data.kinds import KINDS, MOST_SPECIFIC_FIRST, NUMBER, NUMBERS, TEXT, Kind
from ..data.schema import Field
from ..data.settings import ImageSettings, TokenizerSettings, default_kind
from ..nn.names import Pooling
from .spec import CONTEXT_LENGTH, POOLING


@dataclass(frozen=True)
class Modality:
    """What an input may be.

    Args:
        name: As models and tasks declare it, and as `task.input_kind` selects it.
        plural: Inputs of it, for messages.
        kinds: The kinds of its cells.
        named: The kinds if the user names the modality; by default the same.
        settings: The section `task.NAME` of tasks that read one input, if the modality has settings of its own.
    """

    name: str
    plural: str
    kinds: tuple[Kind, ...]
    named: tuple[Kind, ...] = ()
    settings: type[Settings] | None = None

    @property
    def kinds_if_named(self) -> tuple[Kind, ...]:
        """The kinds that a column may have if the user names the modality."""
        return self.named or self.kinds


ANY_NUMBERS = replace(NUMBERS, guessed=None)  # also texts such as "0.1 0.2", which nobody would guess to be numbers
TEXTS = Modality("text", "texts", (TEXT,))
NUMERIC = Modality("numbers", "numbers", (NUMBERS, NUMBER), (ANY_NUMBERS, NUMBER))
IMAGES = Modality("image", "images", (IMAGE,))
MODALITIES = {modality.name: modality for modality in (TEXTS, NUMERIC, IMAGES)}
INPUT_KINDS = [NUMBERS, IMAGE, TEXT, NUMBER]  # of an input column, in the order in which they are guessed


def add_modality(modality: Modality) -> None:
    """Registers a modality: from then on, columns of its kinds are inputs. They are guessed before text."""
    MODALITIES[modality.name] = modality
    for kind in modality.kinds:
        KINDS.setdefault(kind.name, kind)
        for order in (INPUT_KINDS, MOST_SPECIFIC_FIRST):
            if kind not in order:
                order.insert(order.index(TEXT), kind)
    if modality.settings is not None:
        add_section(SequenceSettings, modality.name, modality.settings)


def plural_of(modality: str) -> str:
    """Returns the inputs of a modality as messages name them."""
    return MODALITIES[modality].plural if modality in MODALITIES else modality


# The column

TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("query", "passage"),
)
INPUT = Field(
    "input",
    INPUT_KINDS,
    ("text", "sentence", "review", "sequence", "primary", "image", "inputs"),  # "primary": proteins in TAPE
    TEXT_PAIRS,
    max_columns=None,
)
TARGET_NAMES = ("label", "labels", "class", "sentiment", "targets", "y")


# Settings


def _check_kind(name: str) -> str:
    names = ("auto", *MODALITIES)
    if name not in names:
        quoted = [f"'{known}'" for known in names]
        raise ValueError(f"{', '.join(quoted[:-1])} or {quoted[-1]}")
    return name


def _list_kinds(schema: dict[str, Any]) -> None:
    schema["enum"] = ["auto", *MODALITIES]


class SequenceSettings(Settings):
    """Settings of tasks that read one input per example."""

    context_length: Annotated[int | None, CONTEXT_LENGTH] = Setting(
        None, ge=1, le=1_000_000, description="longest sequence; longer ones are truncated"
    )
    input_kind: Annotated[str, AfterValidator(_check_kind)] = Setting(
        "auto", description="what the input column holds", json_schema_extra=_list_kinds
    )
    scaling: Literal["standard", "none"] = Setting(
        "standard", description="numbers and pixels: standardized by the training split, or as they are"
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(kind="word", lowercase=True)] = Setting(
        None, description="how text is tokenized (default: lowercase words, or characters of texts without words)"
    )
    images: ImageSettings = Setting(default_factory=ImageSettings, description="how images are read and augmented")


class PooledSettings(SequenceSettings):
    """Settings of tasks that pool the outputs of all elements."""

    pooling: Annotated[Pooling, POOLING] = Setting(
        "mean", description="how the outputs of all elements become one vector"
    )
