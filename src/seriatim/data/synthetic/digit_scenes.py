"""Scenes of handwritten digits: images of one or two colored digits of MNIST on light paper, captioned as `scenes`.

The splits of MNIST are preserved: validation and test images are written by hands that training has not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...core.errors import SeriatimError
from .random_numbers import integers
from .scenes import (
    BATCH_SIZE,
    COLORS,
    QUARTERS,
    SPLIT_SIZES,
    Thing,
    are_different,
    arrange,
    blend,
    caption_columns,
    color_shades,
    object_counts,
    paper,
    split_of,
)
from .sequences import SEED, Columns, Splits

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MIN_INK = 32  # of 255: fainter pixels are not part of a digit
COLOR_NAMES = tuple(COLORS)


class Glyphs(NamedTuple):
    """Handwritten digits, cropped to their ink."""

    ink: list[np.ndarray]  # (h, w) uint8
    labels: np.ndarray  # (n,)
    sizes: np.ndarray  # (n, 2) width and height


class Digit(NamedTuple):
    """A digit of a scene."""

    glyph: int
    label: int
    color: int
    x: int  # of the center, in quarters of a pixel
    y: int
    shade: list[int]

    @property
    def words(self) -> list[str]:
        return [COLOR_NAMES[self.color], DIGITS[self.label]]


def digit_scenes(mnist: Splits) -> Splits:
    """Returns scenes with the columns of `scenes.caption_columns`.

    Args:
        mnist: Split → "image" (n, 28, 28) uint8 and "label".
    """
    splits: dict[str, Columns] = {}
    for number, (split, size) in enumerate(SPLIT_SIZES.items()):
        glyphs = _crop_glyphs(split, mnist[split])
        scenes: list[list[Digit]] = []
        generator = np.random.PCG64([SEED, 2, number])
        while len(scenes) < size:
            scenes.extend(scene for scene in _draw_scenes(generator, glyphs) if _split_of(scene) == split)
        images = paper(np.random.PCG64([SEED, 3, number]), size)
        pairs = zip(images, scenes[:size], strict=True)
        things = [[_draw_digit(image, digit, glyphs) for digit in scene] for image, scene in pairs]
        splits[split] = caption_columns(images, things)
    return splits


def _crop_glyphs(split: str, columns: Columns) -> Glyphs:
    ink = []
    for row, image in enumerate(columns["image"]):
        pixels = np.asarray(image)
        down, across = (np.flatnonzero((pixels >= MIN_INK).any(axis=axis)) for axis in (1, 0))
        if not len(down):
            cause = f"mnist, {split}, image {row + 1}: holds no digit"
            raise SeriatimError("data.digits", cause, "restore the files of MNIST")
        ink.append(pixels[down[0] : down[-1] + 1, across[0] : across[-1] + 1])
    labels = np.array([int(str(label)) for label in columns["label"]])
    return Glyphs(ink, labels, np.array([glyph.shape[::-1] for glyph in ink]))


def _split_of(scene: list[Digit]) -> str:
    # A single digit is hashed under the names that the fields had when the data set was frozen.
    text = repr(scene).replace("Digit(glyph=", "Written(which=").replace("color=", "colour=")
    return split_of([digit.words for digit in scene], text)


def _draw_scenes(generator: np.random.PCG64, glyphs: Glyphs) -> Iterator[list[Digit]]:
    counts = object_counts(generator, 2)
    glyph = integers(generator, len(glyphs.ink), BATCH_SIZE, 3)
    color = integers(generator, len(COLOR_NAMES), BATCH_SIZE, 3)
    shade = color_shades(generator, color)
    label = glyphs.labels[glyph]
    valid = are_different(label * len(COLOR_NAMES) + color, counts)
    centers, valid = arrange(generator, glyphs.sizes[glyph] * (QUARTERS // 2), counts, valid)
    columns = [column.tolist() for column in (glyph, label, color, centers[..., 0], centers[..., 1], shade)]
    for row in np.flatnonzero(valid).tolist():
        yield [Digit(*(column[row][index] for column in columns)) for index in range(int(counts[row]))]


def _draw_digit(image: np.ndarray, digit: Digit, glyphs: Glyphs) -> Thing:
    ink = glyphs.ink[digit.glyph]
    height, width = ink.shape
    left, top = digit.x // QUARTERS - width // 2, digit.y // QUARTERS - height // 2
    box = left, top, left + width, top + height
    blend(image, box, ink, digit.shade, 255)
    return Thing(digit.words, (digit.x, digit.y), box)
