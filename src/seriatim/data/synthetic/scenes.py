"""Drawn scenes: one shape or two on light paper (or three), what can be said of them, and where each of them stands.

A caption follows from its scene: every object has a size, a colour and a shape, and where there are several, one is
told by where it stands beside the others. Objects that are together in a scene of one part are in none of the others,
so that no caption of several can be known by heart. The draws are the raw output of PCG64, and the drawing is done
in whole numbers: the pictures are the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import cache
from ._drawing import FULL, paper, stamp
from ._scene_draws import SIDE, scenes
from ._scene_words import Scene, captions
from .captioned import CaptionExamples, CaptionParts, Named
from .pictures import Pictures
from .sided import unsided

SEED = 1
VERSION = 1  # of the drawing: another drawing is other data
UP_TO = {2: "two", 3: "three"}  # objects of a scene
COUNTS = {"train": 12_000, "valid": 1_000, "test": 1_000}

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Drawn:
    scenes: list[Scene]
    pictures: np.ndarray  # (N,64,64,3)
    boxes: list[list[Box]]  # of the objects of each scene


def parts(most: int = 2) -> CaptionParts:
    """The three parts, with a row for each caption, of scenes of so many objects at most: two or three."""
    made: dict[str, Any] = {}
    for name, part in drawn(most).items():
        both = (zip(*some, strict=True) for some in zip(part.scenes, part.boxes, strict=True))
        things = [[Thing(one.words, (one.x, one.y), box) for one, box in pairs] for pairs in both]
        made[name] = examples(f"scenes, {name}", part.pictures, things)
    counted = " / ".join(f"{count:,}" for count in COUNTS.values())
    rows = " / ".join(f"{len(one):,}" for one in made.values())
    notes = [f"scenes: {counted} pictures of up to {UP_TO[most]} objects, drawn from a seed, with {rows} captions"]
    return CaptionParts(**made, notes=notes, fingerprint=cache.key("scenes", VERSION, SEED, most))


def drawn(most: int = 2) -> dict[str, Drawn]:
    """The scenes of the three parts, drawn."""
    made = {}
    for number, (name, some) in enumerate(_divided(most).items()):
        pictures = paper(np.random.PCG64([SEED, 1, number]), len(some), SIDE)
        boxes = [draw_on(picture, scene) for picture, scene in zip(pictures, some, strict=True)]
        made[name] = Drawn(some, pictures, boxes)
    return made


def draw_on(picture: np.ndarray, scene: Scene) -> list[Box]:
    """Draws the objects, each of which mixes with the paper at its rim; the box of one holds all of its pixels."""
    boxes = []
    for one in scene:
        cover, left, top = stamp(one.noun, one.radius, one.x, one.y)
        height, width = cover.shape
        under = picture[top : top + height, left : left + width]
        share = cover[:, :, None]
        under[:] = (under * (FULL - share) + np.array(one.shade) * share + FULL // 2) // FULL
        boxes.append((left, top, left + width, top + height))
    return boxes


def said(scene: Scene) -> list[tuple[str, list[int]]]:
    """The captions of a scene, and for each object the place of its noun among the words."""
    return captions([one.words for one in scene], [(one.x, one.y) for one in scene])


def _divided(most: int) -> dict[str, list[Scene]]:
    """Each scene in the part that it belongs to, until all are full."""
    found: dict[str, list[Scene]] = {name: [] for name in COUNTS}
    for scene in scenes(np.random.PCG64([SEED, 0]), most):
        name = _part(scene)
        if len(found[name]) < COUNTS[name]:
            found[name].append(scene)
        elif all(len(found[name]) == count for name, count in COUNTS.items()):
            break
    return found


def _part(scene: Scene) -> str:
    """By its objects, wherever they are; of a single one there are so few that its place has a say, too."""
    return part_of(repr(sorted(one.words for one in scene) if len(scene) > 1 else scene))


def part_of(key: str) -> str:
    bucket = hashlib.blake2b(key.encode(), digest_size=8).digest()[0] % 14
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


class Thing(NamedTuple):
    """What can be said of an object, the noun last; its middle, and its box."""

    words: list[str]
    place: tuple[int, int]
    box: Box


def examples(name: str, pictures: np.ndarray, things: list[list[Thing]]) -> CaptionExamples:
    """A row for each caption of each picture, whose things are told."""
    rows, targets, boxes = [], [], []
    for row, some in enumerate(things):
        for text, nouns in captions([one.words for one in some], [one.place for one in some]):
            rows.append(row)
            targets.append(text)
            boxes.append([Named(at, one.words[-1], one.box) for at, one in zip(nouns, some, strict=True)])
    places = [f"{name}, picture {row + 1}" for row in rows]
    shown = Pictures(pictures, np.array(rows, dtype=np.int64))
    return CaptionExamples(shown, targets, places, boxes, unsided(targets))
