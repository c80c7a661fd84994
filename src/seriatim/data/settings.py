"""Settings of how data is read, and of tokenizers and images. Importing them is light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from ..core.config import Count, Settings, Short

if TYPE_CHECKING:
    from .formats import ReadOptions

Fit = Literal["crop", "pad", "stretch"]
Scaling = Literal["standard", "minmax", "none"]  # of the variables of a series
MAX_MEGAPIXELS = 178  # beyond, Pillow takes an image for an attack


class TokenizerSettings(Settings):
    """What a tokenizer is trained with."""

    kind: Annotated[
        Literal["char", "word", "bpe", "byte-bpe", "wordpiece", "unigram", "bert"],
        Short(
            "char, word, bpe, byte-bpe, wordpiece, unigram or bert. (default: depends on the task)", name="tokenizer"
        ),
    ] = Field("char", description="what a token is: a character, a word, or a subword by one of five methods")
    vocab_size: Annotated[Count, Short("Largest number of tokens, except for char.")] = Field(
        8192, ge=3, le=10_000_000, description="the largest vocabulary, for every kind but char"
    )
    lowercase: bool = Field(False, description="convert to lower case first (bert: remove accents, too)")
    byte_fallback: bool = Field(
        False, description="write unknown characters as bytes, so that no text is lost; 256 more tokens (char, bpe)"
    )
    min_count: int = Field(1, ge=1, le=10**9, description="omit tokens that occur less often in the training text")
    split_punctuation: bool = Field(
        True, description="separate punctuation from words (word, wordpiece); false for tokenized text such as WikiText"
    )

    @model_validator(mode="after")
    def _check_combination(self) -> TokenizerSettings:
        if self.byte_fallback and self.kind not in ("char", "bpe"):
            raise ValueError(f"byte_fallback is for char and bpe, not for {self.kind}")
        needs_bytes = self.kind == "byte-bpe" or (self.byte_fallback and self.kind == "bpe")
        if needs_bytes and self.vocab_size < 260:
            raise ValueError(
                f"{self.kind} with all 256 bytes needs a vocab_size of at least 260, not {self.vocab_size}"
            )
        if self.kind == "bert" and self.vocab_size < 7:
            raise ValueError(f"bert with 5 special tokens needs a vocab_size of at least 7, not {self.vocab_size}")
        return self


def default_kind(**defaults: object) -> BeforeValidator:
    """Returns the validator of a task's tokenizer settings, which completes them by `defaults` if they name no kind.

    So `--vocab-size 8000` alone keeps the task's default kind of tokenizer.
    """

    def complete(values: object) -> object:
        return {**defaults, **values} if isinstance(values, Mapping) and "kind" not in values else values

    return BeforeValidator(complete)


class ImageSettings(Settings):
    """How images are read, resized and augmented."""

    size: int | None = Field(
        None,
        ge=1,
        le=2_048,
        description="pixels of a side (default: that of the images if all are alike and at most 64, else 32, 64 or "
        "224, by their shorter sides)",
    )
    fit: Fit = Field("crop", description="how images become square: crop the center, pad the edges, or stretch")
    color: Literal["auto", "gray", "rgb"] = Field("auto", description="color mode (default: gray if all files are)")
    broken: Literal["error", "skip"] = Field(
        "error", description="what to do with files that cannot be read: report them, or train without them"
    )
    max_shift: int | None = Field(
        None,
        ge=0,
        le=512,
        description="largest random shift of training images in pixels (default: a fourteenth of the side, an eighth "
        "of small images)",
    )
    flip: bool | None = Field(
        None, description="whether training mirrors every other image (default: color images only)"
    )
    max_megapixels: float = Field(64.0, gt=0, le=MAX_MEGAPIXELS, description="larger images are not read")


ColumnName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]  # 2 in YAML
Fraction = Annotated[float, Field(ge=0, le=1)]


class DataSettings(Settings):
    """Where the data is and how it is read: the same for every task."""

    source: str = Field(description="a path, a folder, an archive, or the name of a catalogue data set")
    validation: Annotated[str | None, Short("A validation file. (default: a fraction of the data)")] = Field(
        None, description="file of the validation split"
    )
    test: Annotated[str | None, Short("A test file. (default: a fraction of the data)")] = Field(
        None, description="file of the test split"
    )
    columns: dict[str, ColumnName] = Field(default_factory=dict, description="role → column or columns: a,b or a..z")
    encoding: Annotated[str, Short("Encoding of text files. (default: utf-8)")] = Field(
        "utf-8", description="of text files"
    )
    label_separator: str | None = Field(None, description="separates several labels in one cell")
    fractions: tuple[Fraction, Fraction, Fraction] | None = Field(
        None, description="of train, validation and test (default: the task's)"
    )

    def read_options(self) -> ReadOptions:
        from .formats import ReadOptions

        return ReadOptions(self.encoding, self.label_separator)
