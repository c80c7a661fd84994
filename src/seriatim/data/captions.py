"""Pictures and captions in three parts: what caption learns from, chooses by and is measured on.

A source is a table of paths and captions, a folder of pictures with such a table in it, annotations as of COCO or
Flickr8k, or a name of the catalogue. Parts are drawn by picture: all that is said of one stays together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from seriatim.core.config import Settings
from seriatim.core.errors import SeriatimError

from . import _caption_parts as divide
from . import partition, scene_digits, scenes
from ._caption_rows import Rows
from ._caption_sources import Shown, listed, readable, told
from .captioned import CaptionExamples, CaptionParts, Named
from .decoding import Facts
from .fractions import Fractions
from .notes import Notes
from .picture_files import Form
from .picture_settings import PictureSettings
from .picture_store import store
from .sided import sided
from .tagged import Column
from .tokenizers import TokenizerSettings, with_kind

__all__ = [
    "CaptionExamples", "CaptionParts", "CaptionSettings", "Named", "flips", "read", "read_inputs", "read_single",
    "sided",
]  # fmt: skip

Notify = Callable[[str], None]
MADE = ("scenes", "scenes:3", "digits")  # names of the catalogue; of three objects at most
Shape = tuple[int, int, int]
SMALL = 64  # pixels of a side: drawings and icons, rather than photographs


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
    normalise: bool = Field(
        True, description="Unicode NFC, and one blank for any run of blanks, tabs and ends of lines; false: as it is"
    )
    longest: int | None = Field(
        None, ge=1, description="longer captions, in tokens, are not trained on (default: by the task)"
    )
    pictures: PictureSettings = Field(default_factory=PictureSettings, description="how pictures are read")
    tokenizer: TokenizerSettings | None = Field(None, description="how captions become tokens (default: words)")

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        return with_kind(given, kind="word")


def read(settings: CaptionSettings, data_dir: str | None = None, notify: Notify | None = None) -> CaptionParts:
    """The parts of the source, checked."""
    notes = Notes(notify)
    made = _made(settings.source, settings, data_dir)
    if made is not None:
        notes.extend(made.notes)
        return made
    whole = told(settings.source, settings, notes, Facts())
    given = {name: path for name, path in (("valid", settings.valid), ("test", settings.test)) if path is not None}
    others = {name: told(path, settings, notes, Facts()) for name, path in given.items()}
    paths = dict.fromkeys(path for rows in (whole, *others.values()) for path in rows.pictures)
    shown = Shown.of(list(paths), settings.pictures, notes)
    same, again = shown.united()
    notes.extend(again)
    others = {name: readable(rows, same) for name, rows in others.items()}
    parts, said = divide.divided(readable(whole, same), others, settings.fractions)
    notes.extend([*said, *divide.told(parts)])
    found = {name: shown.examples(parts.get(name, Rows(Path()))) for name in partition.NAMES}
    mark = partition.fingerprint(dict(found))
    return CaptionParts(found["train"], found["valid"], found["test"], list(notes), mark)


def read_single(
    source: str,
    settings: CaptionSettings,
    data_dir: str | None = None,
    notify: Notify | None = None,
    shape: Shape | None = None,
) -> CaptionExamples:
    """All captions of another source, read by the same settings: what a trained model is evaluated on.

    `shape` is that of the pictures it takes: channels, height and width.
    """
    notes = Notes(notify)
    made = _made(source, settings, data_dir)
    if made is not None:
        notes.extend(made.notes)
        return made.test
    rows = told(source, settings, notes, Facts(), again=True)
    shown = Shown.of(list(dict.fromkeys(rows.pictures)), settings.pictures, notes, _form(settings, shape))
    rows = readable(rows, {path: path for path in shown.rows})
    notes.extend([f"captions: {len(rows):,}, of {len(shown.rows):,} pictures"])
    return shown.examples(rows)


def read_inputs(
    source: str, settings: CaptionSettings, data_dir: str | None = None, shape: Shape | None = None
) -> CaptionExamples:
    """Only the pictures, a row for each: of a file of captions or of paths, of a folder, or a single one."""
    made = _made(source, settings, data_dir)
    if made is not None:
        _, first = np.unique(made.test.pictures.rows, return_index=True)
        return replace(made.test.take(first), targets=None, boxes=None, mirrored=None)
    found = listed(source, settings)
    pictures, kept, _ = store([Path(path) for path, _ in found], settings.pictures, None, _form(settings, shape))
    return CaptionExamples(pictures, None, [found[place][1] for place in kept])


def flips(settings: CaptionSettings, shape: Shape) -> bool:
    """Whether pictures whose captions allow it are shown mirrored, too: as it is said, else photographs in colour."""
    asked = settings.pictures.flips
    return asked if asked is not None else shape[0] == 3 and min(shape[1:]) > SMALL


def _form(settings: CaptionSettings, shape: Shape | None) -> Form | None:
    return None if shape is None else Form(shape[1], shape[2], shape[0], settings.pictures.fit)


def _made(source: str, settings: CaptionSettings, data_dir: str | None) -> CaptionParts | None:
    """The parts of a set that is made here, as it is made: pictures of another size are refused."""
    if Path(source).expanduser().exists() or source not in MADE:
        return None
    asked = settings.pictures
    if asked.side not in (None, scenes.SIDE) or asked.colours == "grey" or asked.crops:
        cause = (
            f"the pictures of {source} are {scenes.SIDE} × {scenes.SIDE} pixels in colour, without an edge for crops"
        )
        raise SeriatimError("data.pictures", cause, "leave data.pictures.side, .colours and .crops away")
    if source == "digits":
        return scene_digits.parts(data_dir)
    return scenes.parts(3 if source == "scenes:3" else 2)
