"""Which columns of a table hold pictures, captions and parts: as named, else as usual, and told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seriatim.core.errors import SeriatimError

from .columns import SPLITS
from .tables import no_column

PICTURES = (
    "image", "image_path", "imagepath", "file_name", "filename", "image_name", "image_file", "img", "img_path", "file",
    "filepath", "path", "picture", "photo", "name",
)  # fmt: skip
CAPTIONS = (
    "caption", "captions", "text", "texts", "sentence", "sentences", "description", "comment", "raw", "title",
    "alt_text",
)  # fmt: skip
BOXES = "boxes"  # a list of what the caption names and where it is, as `seriatim data write` writes it
NUMBERED = re.compile(r"(caption|text|sentence|description|comment)s?[ _-]?\d+")


@dataclass(frozen=True)
class Chosen:
    picture: str
    captions: list[str]
    split: str | None = None
    boxes: str | None = None

    @property
    def all(self) -> list[str]:
        return [self.picture, *self.captions, *(name for name in (self.split, self.boxes) if name)]


@dataclass(frozen=True)
class Wanted:
    """How to read: by which columns, in which encoding; `captions` False: only pictures are wanted."""

    column: str | None = None
    target: str | None = None
    split: str | None = None
    encoding: str = "utf-8"
    captions: bool = True


def choose(where: str, looks: Mapping[str, str], wanted: Wanted) -> Chosen:
    """`looks` says of each column what it seems to hold: picture, text, list, number or other."""
    names = list(looks)
    plain = {name: name.strip().lower() for name in names}
    picture = _picture(where, looks, plain, wanted)
    split = _split(where, names, plain, wanted, picture)
    if not wanted.captions:
        return Chosen(picture, [], None)
    boxes = next((name for name in names if plain[name] == BOXES and looks[name] == "list"), None)
    rest = [name for name in names if name not in (picture, split, boxes)]
    if wanted.target is not None:
        captions = [_named(where, one, names) for one in wanted.target.split(",")]
    else:
        captions = _captions(rest, looks, plain)
    if not captions or picture in captions:
        raise SeriatimError(
            "data.column",
            f"{where}: which column holds the captions? Its columns are: {', '.join(names)}",
            "name it with --target, or several as a,b",
        )
    return Chosen(picture, captions, split, boxes)


def _named(where: str, given: str, names: Sequence[str]) -> str:
    """A column by its name, or by its number."""
    given = given.strip()
    found = next((name for name in names if name.strip() == given), None)
    if found is None and given.isdecimal() and 1 <= int(given) <= len(names):
        found = names[int(given) - 1]
    if found is None:
        raise no_column(where, given, names)
    return found


def _picture(where: str, looks: Mapping[str, str], plain: Mapping[str, str], wanted: Wanted) -> str:
    if wanted.column is not None:
        return _named(where, wanted.column, list(looks))
    seen = [name for name in looks if looks[name] == "picture"]
    usual = [name for word in PICTURES for name in looks if plain[name] == word and looks[name] in ("picture", "text")]
    if len(seen) == 1 or (seen and usual):
        return next((name for name in usual if name in seen), seen[0])
    if usual:
        return usual[0]
    raise SeriatimError(
        "data.column",
        f"{where}: which column holds the paths of pictures? Its columns are: {', '.join(looks)}",
        "name it with --column",
    )


def _captions(rest: Sequence[str], looks: Mapping[str, str], plain: Mapping[str, str]) -> list[str]:
    numbered = [name for name in rest if NUMBERED.fullmatch(plain[name])]
    usual = [name for word in CAPTIONS for name in rest if plain[name] == word]
    texts = [name for name in rest if looks[name] in ("text", "list")]
    return usual[:1] or numbered or (texts if len(texts) == 1 else [])


def _split(where: str, names: Sequence[str], plain: Mapping[str, str], wanted: Wanted, picture: str) -> str | None:
    if wanted.split is not None:
        return _named(where, wanted.split, names)
    return next((name for name in names if plain[name] in SPLITS and name != picture), None)
