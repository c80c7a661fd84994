"""Captions as files have them: each with the picture that it belongs to, by the name that is written there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from seriatim.core.errors import SeriatimError

from .columns import PARTS
from .decoding import Facts

REST = {"restval": "train"}  # of the usual split of COCO: what is left of its validation part is learnt from


@dataclass
class Rows:
    """Row by row; a picture of which nothing is said has a row with an empty caption."""

    home: Path  # the folder of the file
    hints: tuple[str, ...] = ()  # folders in which such a file's pictures usually are
    pictures: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)  # "" where nothing is said

    def add(self, picture: str, caption: str, place: str, part: str = "") -> None:
        self.pictures.append(picture)
        self.captions.append(caption)
        self.places.append(place)
        self.parts.append(part)

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, chosen: list[int]) -> Rows:
        columns = (self.pictures, self.captions, self.places, self.parts)
        return Rows(self.home, self.hints, *([column[row] for row in chosen] for column in columns))

    def extend(self, other: Rows) -> None:
        self.pictures += other.pictures
        self.captions += other.captions
        self.places += other.places
        self.parts += other.parts

    @property
    def divided(self) -> bool:
        return any(self.parts)


def part_of(value: object, place: str, facts: Facts) -> str:
    """The part that a cell names."""
    word = str(value).strip().lower()
    found = PARTS.get(word) or REST.get(word, "")
    if not found:
        cause = f'{place}: "{value}" is no part'
        facts.trouble(SeriatimError("data.split", cause, "write train, valid or test, or name no column of parts"))
    return found
