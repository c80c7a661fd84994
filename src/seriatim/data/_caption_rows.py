"""Captions as files have them: each with the picture that it belongs to, by the name that is written there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seriatim.core.errors import SeriatimError

from .captioned import Named
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
    boxes: list[list[Named]] = field(default_factory=list)  # in pixels of the file; empty where nothing is said

    def add(self, picture: str, caption: str, place: str, part: str = "", boxes: Sequence[Named] = ()) -> None:
        self.pictures.append(picture)
        self.captions.append(caption)
        self.places.append(place)
        self.parts.append(part)
        self.boxes.append(list(boxes))

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, chosen: list[int]) -> Rows:
        return Rows(
            self.home,
            self.hints,
            [self.pictures[row] for row in chosen],
            [self.captions[row] for row in chosen],
            [self.places[row] for row in chosen],
            [self.parts[row] for row in chosen],
            [self.boxes[row] for row in chosen],
        )

    def extend(self, other: Rows) -> None:
        self.pictures += other.pictures
        self.captions += other.captions
        self.places += other.places
        self.parts += other.parts
        self.boxes += other.boxes

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


def boxes_of(value: object, place: str, facts: Facts) -> list[Named]:
    """The boxes that a cell holds, as [{"noun": "dog", "place": 1, "box": [4, 8, 30, 20]}]: the place of the noun among
    the words from 0, and left, top, right and bottom in pixels."""
    found: list[Named] = []
    try:
        for one in value or ():  # type: ignore[attr-defined]
            left, top, right, bottom = (int(edge) for edge in one["box"])
            found.append(Named(int(one["place"]), str(one["noun"]), (left, top, right, bottom)))
    except (TypeError, KeyError, ValueError):
        cause = f"{place}: boxes that cannot be read"
        remedy = 'write [{"noun": "dog", "place": 1, "box": [left, top, right, bottom]}]'
        facts.trouble(SeriatimError("data.boxes", cause, remedy))
    return found
