"""Pictures and captions in three parts: what caption learns from, chooses by and is measured on.

A source is a table of paths and captions, a folder of pictures with such a table in it, annotations as of COCO or
Flickr8k, or a name of the catalogue. Parts are drawn by picture: all that is said of one stays together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from seriatim.core.config import Settings

from . import scenes
from .captioned import CaptionExamples, Named
from .fractions import Fractions
from .notes import Notes
from .picture_settings import PictureSettings
from .sequences import Parts
from .sided import sided
from .tagged import Column
from .tokenizers import TokenizerSettings, with_kind

__all__ = ["CaptionExamples", "CaptionSettings", "Named", "read", "read_inputs", "read_single", "sided"]

Notify = Callable[[str], None]


class CaptionSettings(Settings):
    source: str = Field(
        description="a table (CSV, TSV, JSONL, Parquet) of paths and captions, a folder of pictures with such a table, "
        "annotations as of COCO or Flickr8k, or a name of the catalogue"
    )
    valid: str | None = Field(None, description="what to validate on, in any of these forms; else a part of the source")
    test: str | None = Field(None, description="what to test on, in any of these forms; else a part of the source")
    column: Column = Field(None, description="the column of the paths of pictures (default: by its name)")
    target: str | None = Field(None, description="the column of the captions, or several as a,b (default: by its name)")
    split: str | None = Field(None, description="the column that says train, valid or test")
    folder: str | None = Field(
        None, description="the folder of the pictures, where it is not that of the file that names them"
    )
    encoding: str = Field("utf-8", description="the encoding of the files, such as utf-8, utf-16 or cp1252")
    fractions: Fractions = Field(
        (0.8, 0.1, 0.1), description="the shares of training, validation and test where the data does not say"
    )
    lowercase: bool = Field(True, description="captions in small letters, without the full stop at their end")
    longest: int | None = Field(
        None, ge=1, description="longer captions, in tokens, are not trained on (default: by the task)"
    )
    pictures: PictureSettings = Field(default_factory=PictureSettings, description="how pictures are read")
    tokenizer: TokenizerSettings | None = Field(None, description="how captions become tokens (default: words)")

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        return with_kind(given, kind="word")


def read(settings: CaptionSettings, data_dir: str | None = None, notify: Notify | None = None) -> Parts:
    """The parts of the source, checked."""
    notes = Notes(notify)
    made = _made(settings.source, data_dir)
    if made is not None:
        notes.extend(made.notes)
        return made
    raise NotImplementedError


def read_single(
    source: str, settings: CaptionSettings, data_dir: str | None = None, notify: Notify | None = None
) -> CaptionExamples:
    """All captions of another source, read by the same settings: what a trained model is evaluated on."""
    made = _made(source, data_dir)
    if made is not None:
        Notes(notify).extend(made.notes)
        assert isinstance(made.test, CaptionExamples)  # as all that is made here
        return made.test
    raise NotImplementedError


def read_inputs(source: str, settings: CaptionSettings, data_dir: str | None = None) -> CaptionExamples:
    """Only the pictures, one row for each."""
    raise NotImplementedError


def _made(source: str, data_dir: str | None) -> Parts | None:
    """The parts of a set that is made here."""
    if Path(source).expanduser().exists() or source != "scenes":
        return None
    return scenes.parts()
