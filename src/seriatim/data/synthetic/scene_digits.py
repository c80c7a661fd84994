"""Scenes of handwritten digits: one or two coloured digits of MNIST on light paper, told as drawn scenes are.

The hands of each part are others: those of the validation and the test part of MNIST have written what is validated and
tested on here. Which digits are together is divided as for the drawn scenes, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seriatim.core.errors import SeriatimError

from . import arrays, cache
from ._drawing import paper
from ._scene_draws import AT_ONCE, QUARTER, SIDE, arranged, different, numbers, shades
from ._scene_words import COLOURS
from .captioned import CaptionParts
from .draws import below
from .picture_settings import PictureSettings
from .scenes import COUNTS, SEED, Thing, examples, part_of
from .sequences import Examples

VERSION = 1  # of the drawing: another drawing is other data
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
INK = 32  # of 255: fainter pixels are no part of a digit
NAMES = tuple(COLOURS)


class Hands(NamedTuple):
    """Written digits, each cut to its ink."""

    ink: list[np.ndarray]  # (h,w) of 8 bits
    labels: np.ndarray  # (n,)
    sizes: np.ndarray  # (n,2) width and height


class Written(NamedTuple):
    which: int  # among the hands of its part
    label: int
    colour: int
    x: int  # the middle, in quarters of a pixel
    y: int
    shade: list[int]

    @property
    def words(self) -> list[str]:
        return [NAMES[self.colour], WORDS[self.label]]


def parts(data_dir: str | None = None) -> CaptionParts:
    """The three parts, with a row for each caption; MNIST's files must be at hand, or are fetched."""
    source = arrays.parts("mnist", data_dir, PictureSettings(crops=0))
    assert source is not None  # a name of the catalogue
    made: dict[str, Any] = {}
    for number, (name, count) in enumerate(COUNTS.items()):
        hands = _hands(source.part(name))
        scenes = _scenes(np.random.PCG64([SEED, 2, number]), hands, name, count)
        pictures = paper(np.random.PCG64([SEED, 3, number]), count, SIDE)
        things = [[_write(picture, one, hands) for one in some] for picture, some in zip(pictures, scenes, strict=True)]
        made[name] = examples(f"digits, {name}", pictures, things)
    counted = " / ".join(f"{count:,}" for count in COUNTS.values())
    rows = " / ".join(f"{len(one):,}" for one in made.values())
    notes = [f"digits: {counted} pictures of one or two digits of MNIST, from a seed, with {rows} captions"]
    mark = cache.key("digits", VERSION, SEED, source.fingerprint)
    return CaptionParts(**made, notes=notes, fingerprint=mark)


def _hands(examples: Examples) -> Hands:
    found: Any = examples.targets
    labels = np.array([int(label) for label in found])
    cut = []
    for row in range(len(examples)):
        ink = examples.inputs[row][..., 0]
        down, across = (np.flatnonzero((ink >= INK).any(axis=axis)) for axis in (1, 0))
        if not len(down):
            cause = f"{examples.place(row)}: holds no digit"
            raise SeriatimError("data.digits", cause, "restore the files of MNIST")
        cut.append(ink[down[0] : down[-1] + 1, across[0] : across[-1] + 1])
    return Hands(cut, labels, np.array([ink.shape[::-1] for ink in cut]))


def _scenes(draw: np.random.PCG64, hands: Hands, part: str, count: int) -> list[list[Written]]:
    found: list[list[Written]] = []
    while len(found) < count:
        found.extend(scene for scene in _some(draw, hands) if _part(scene) == part)
    return found[:count]


def _part(scene: list[Written]) -> str:
    return part_of(repr(sorted(one.words for one in scene) if len(scene) > 1 else scene))


def _some(draw: np.random.PCG64, hands: Hands) -> Iterator[list[Written]]:
    number = numbers(draw, 2)
    which, colour = below(draw, len(hands.ink), AT_ONCE, 3), below(draw, len(NAMES), AT_ONCE, 3)
    shade = shades(draw, colour)
    label = hands.labels[which]
    reach = hands.sizes[which] * (QUARTER // 2)
    good = different(label * len(NAMES) + colour, number)
    places, good = arranged(draw, reach, number, good)
    columns = [column.tolist() for column in (which, label, colour, places[..., 0], places[..., 1], shade)]
    for row in np.flatnonzero(good).tolist():
        yield [Written(*(column[row][one] for column in columns)) for one in range(int(number[row]))]


def _write(picture: np.ndarray, one: Written, hands: Hands) -> Thing:
    """The paper takes the digit's colour by as much as there is ink."""
    ink = hands.ink[one.which][:, :, None].astype(np.int64)
    height, width = ink.shape[:2]
    left, top = one.x // QUARTER - width // 2, one.y // QUARTER - height // 2
    under = picture[top : top + height, left : left + width]
    under[:] = (under * (255 - ink) + np.array(one.shade) * ink + 127) // 255
    return Thing(one.words, (one.x, one.y), (left, top, left + width, top + height))
