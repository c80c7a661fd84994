"""Drawn scenes: images of one to three shapes on light paper, with all their captions and the box of each shape.

A caption follows from its scene: every shape has a size, a color and a form, and of several, one is related to the
others by its position. Combinations of shapes occur in one split only, so that no caption of several can be memorized.
Random numbers are the raw output of PCG64, and drawing uses integers only: images have the same bytes on every machine.

Positions and radii are in quarters of a pixel. A pixel is sampled at sixteen points, a quarter of a pixel apart.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...core.errors import SeriatimError
from ...data.catalogue.generated import Columns, Splits
from .sequences import SEED, integers, octets

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
SIZES = ("small", "large")
COLORS = {
    "red": (212, 32, 36),
    "green": (34, 146, 56),
    "blue": (28, 84, 208),
    "yellow": (244, 208, 16),
    "orange": (246, 128, 16),
    "purple": (124, 44, 168),
    "pink": (248, 138, 190),
    "black": (26, 26, 30),
}
COLOR_NAMES = tuple(COLORS)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MIN_INK = 32  # of 255: fainter pixels are not part of a digit
RELATIONS = ("to the left of", "to the right of", "above", "below")
SPLIT_SIZES = {"train": 12_000, "validation": 1_000, "test": 1_000}  # images

SIDE = 64  # pixels
QUARTERS = 4
SAMPLES = 16  # of a pixel
PERCENTAGES = {2: (25, 75), 3: (20, 45, 35)}  # of scenes with one, two and three objects, by the largest number
RADII = ((20, 24), (38, 44))  # of each size, from and to
SHADE_RANGE = 10  # largest difference from the mean of a color
MIN_GAP = 3 * QUARTERS  # between objects
MIN_MARGIN = 2 * QUARTERS  # between an object and the edge
BATCH_SIZE = 4_000  # scenes drawn at a time
TRIES = 60  # arrangements drawn for the same objects
OBJECT_PAIRS = ((0, 1), (0, 2), (1, 2))
STAR_TIPS = ((0, -1024), (974, -316), (602, 828), (-602, 828), (-974, -316))  # directions in 1/1024, the first upwards
STAR_INNER = 316  # distance of a star's lines from its center, in 1/1024 of the radius

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom are exclusive


class Region(NamedTuple):
    """A noun of a caption, and the box of what it names."""

    position: int  # of the noun among the words of the caption, from 0
    noun: str
    box: Box


class Thing(NamedTuple):
    """An object of a scene, as captions need it."""

    words: list[str]  # the noun last
    center: tuple[int, int]  # to the right and down
    box: Box


class Shape(NamedTuple):
    """A shape of a scene."""

    form: int
    color: int
    size: int
    radius: int
    x: int
    y: int
    shade: list[int]  # red, green and blue, near its color

    @property
    def words(self) -> list[str]:
        return [SIZES[self.size], COLOR_NAMES[self.color], SHAPES[self.form]]


def shape_scenes(most: int) -> Splits:
    """Returns scenes of at most two or three shapes, with the columns of `caption_columns`."""
    splits: dict[str, Columns] = {}
    for number, (split, scenes) in enumerate(split_scenes(most).items()):
        images = paper(np.random.PCG64([SEED, 1, number]), len(scenes))
        things = [draw_scene(image, scene) for image, scene in zip(images, scenes, strict=True)]
        splits[split] = caption_columns(images, things)
    return splits


def caption_columns(images: np.ndarray, things: Sequence[Sequence[Thing]]) -> Columns:
    """Returns one row per caption: "image" (64, 64, 3) uint8, "caption", "image_id" from 1 on, and "regions"."""
    rows: list[int] = []
    texts: list[str] = []
    regions: list[list[Region]] = []
    for row, objects in enumerate(things):
        for text, positions in captions([thing.words for thing in objects], [thing.center for thing in objects]):
            rows.append(row)
            texts.append(text)
            pairs = zip(positions, objects, strict=True)
            regions.append([Region(position, thing.words[-1], thing.box) for position, thing in pairs])
    return {
        "image": [images[row] for row in rows],
        "caption": texts,
        "image_id": [row + 1 for row in rows],
        "regions": regions,
    }


def captions(names: Sequence[list[str]], centers: Sequence[tuple[int, int]]) -> list[tuple[str, list[int]]]:
    """Returns all captions of objects, and in each the position of every object's noun among the words.

    Each object may come first, related to each of the others in any order.
    """
    return [_caption(names, centers, order) for order in itertools.permutations(range(len(names)))]


def _caption(
    names: Sequence[list[str]], centers: Sequence[tuple[int, int]], order: tuple[int, ...]
) -> tuple[str, list[int]]:
    words: list[str] = []
    nouns: dict[int, int] = {}  # object → position of its noun
    previous = ""
    for index in order:
        if nouns:
            relation = _relation(centers[order[0]], centers[index])
            words.extend(["and"] if len(nouns) > 1 else [])
            words.extend(relation.split() if relation != previous else [])  # not repeated
            previous = relation
        words.extend(["an" if names[index][0][0] in "aeiou" else "a", *names[index]])
        nouns[index] = len(words) - 1
    return " ".join(words), [nouns[index] for index in range(len(names))]


def _relation(center: tuple[int, int], other: tuple[int, int]) -> str:
    """Returns where a center lies as seen from another, by the direction in which they are further apart."""
    across, down = center[0] - other[0], center[1] - other[1]
    if abs(across) > abs(down):
        return RELATIONS[0 if across < 0 else 1]
    return RELATIONS[2 if down < 0 else 3]


def split_scenes(most: int) -> dict[str, list[tuple[Shape, ...]]]:
    """Returns the scenes of each split, drawn until all are full."""
    splits: dict[str, list[tuple[Shape, ...]]] = {split: [] for split in SPLIT_SIZES}
    generator = np.random.PCG64([SEED, 0])
    while True:
        for scene in _draw_scenes(generator, most):
            # A single shape is hashed under the names that the fields had when the data set was frozen.
            text = repr(scene).replace("Shape(form=", "Object(shape=").replace("color=", "colour=")
            split = split_of([shape.words for shape in scene], text)
            if len(splits[split]) < SPLIT_SIZES[split]:
                splits[split].append(scene)
            elif all(len(splits[split]) == size for split, size in SPLIT_SIZES.items()):
                return splits


def split_of(objects: list[list[str]], scene: str) -> str:
    """Returns the split of a scene by its objects wherever they are; of single ones, by all of the scene."""
    key = repr(sorted(objects)) if len(objects) > 1 else scene
    bucket = hashlib.blake2b(key.encode(), digest_size=8).digest()[0] % 14
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def _draw_scenes(generator: np.random.PCG64, most: int) -> Iterator[tuple[Shape, ...]]:
    """Yields scenes; those with equal objects or without a clear arrangement are left out."""
    counts = object_counts(generator, most)
    form, color, size = (integers(generator, len(names), BATCH_SIZE, 3) for names in (SHAPES, COLORS, SIZES))
    low, high = (np.array(ends)[size] for ends in zip(*RADII, strict=True))
    radius = low + integers(generator, high - low + 1, BATCH_SIZE, 3)
    shade = color_shades(generator, color)
    valid = are_different((form * len(COLORS) + color) * len(SIZES) + size, counts)
    centers, valid = arrange(generator, np.repeat(radius[:, :, None], 2, axis=2), counts, valid)
    columns = [column.tolist() for column in (form, color, size, radius, centers[..., 0], centers[..., 1], shade)]
    for row in np.flatnonzero(valid).tolist():
        yield tuple(Shape(*(column[row][index] for column in columns)) for index in range(int(counts[row])))


def object_counts(generator: np.random.PCG64, most: int) -> np.ndarray:
    """Returns the number of objects of each scene of a batch (n,)."""
    return 1 + np.searchsorted(np.cumsum(PERCENTAGES[most]), integers(generator, 100, BATCH_SIZE), side="right")


def color_shades(generator: np.random.PCG64, color: np.ndarray) -> np.ndarray:
    """Returns a shade (n,3,3) of each color (n,3)."""
    mean = np.array(list(COLORS.values()))[color]
    return np.clip(mean + integers(generator, 2 * SHADE_RANGE + 1, *mean.shape) - SHADE_RANGE, 0, 255)


def are_different(codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns whether no two of the first `counts` objects of each scene have the same code (n,3)."""
    return ~np.any([(codes[:, a] == codes[:, b]) & (counts > b) for a, b in OBJECT_PAIRS], axis=0)


def arrange(
    generator: np.random.PCG64, extent: np.ndarray, counts: np.ndarray, valid: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns centers (n,3,2) of objects with an extent (n,3,2) from their centers, and the scenes that have one."""
    centers = np.zeros_like(extent)
    waiting = np.flatnonzero(valid)
    for _ in range(TRIES):
        margin = extent[waiting] + MIN_MARGIN
        centers[waiting] = margin + integers(generator, SIDE * QUARTERS - 2 * margin + 1, len(waiting), 3, 2)
        waiting = waiting[~_is_clear(centers[waiting], extent[waiting], counts[waiting])]
    arranged = valid.copy()
    arranged[waiting] = False
    return centers, arranged


def _is_clear(centers: np.ndarray, extent: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns whether any two objects are apart in one direction, and twice as far as in the other."""
    clear = np.ones(len(centers), dtype=bool)
    for first, second in OBJECT_PAIRS:
        distance = np.abs(centers[:, first] - centers[:, second])  # (n,2)
        axis = np.argmax(distance, axis=1)[:, None]
        major, minor = (np.take_along_axis(distance, index, axis=1)[:, 0] for index in (axis, 1 - axis))
        needed = np.take_along_axis(extent[:, first] + extent[:, second], axis, axis=1)[:, 0] + MIN_GAP
        clear &= (counts <= second) | ((major >= needed) & (major >= 2 * minor))
    return clear


def paper(generator: np.random.PCG64, count: int) -> np.ndarray:
    """Returns sheets (count, 64, 64, 3) of a light tint that gets lighter to one side, with a little grain."""
    tint = 208 + integers(generator, 26, count, 3)
    slopes = integers(generator, 25, count, 2) - 12  # over the whole side
    grid = np.arange(SIDE) - SIDE // 2
    sheets = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for row in range(count):
        light = (slopes[row, 0] * grid[:, None] + slopes[row, 1] * grid[None, :]) // SIDE
        sheets[row] = tint[row] + light[:, :, None]
    sheets += octets(generator, count, SIDE, SIDE, 3) & np.uint8(7)
    return sheets


def draw_scene(image: np.ndarray, scene: Sequence[Shape]) -> list[Thing]:
    """Draws shapes on an image (64, 64, 3), blended with the paper at their rims; a box holds all pixels of a shape."""
    things = []
    for shape in scene:
        coverage, left, top = _coverage(SHAPES[shape.form], shape.radius, shape.x % QUARTERS, shape.y % QUARTERS)
        left, top = left + shape.x // QUARTERS, top + shape.y // QUARTERS
        box = left, top, left + coverage.shape[1], top + coverage.shape[0]
        blend(image, box, coverage, shape.shade, SAMPLES)
        things.append(Thing(shape.words, (shape.x, shape.y), box))
    return things


def blend(image: np.ndarray, box: Box, coverage: np.ndarray, shade: Sequence[int], full: int) -> None:
    """Blends a shade into the box of an image, by the coverage (h, w) of each pixel in units of 1/full."""
    left, top, right, bottom = box
    pixels = image[top:bottom, left:right]
    share = coverage[:, :, None].astype(np.int64)
    pixels[:] = (pixels * (full - share) + np.array(shade) * share + full // 2) // full


@lru_cache(maxsize=4096)
def _coverage(name: str, radius: int, x: int, y: int) -> tuple[np.ndarray, int, int]:
    """Returns the samples of each pixel inside a shape, cropped to it, and its left and top from the center's pixel."""
    reach = -(-radius * 9 // 32) + 1  # pixels to each side, and a little more
    points = np.arange(-8 * reach, 8 * reach + 8, 2) + 1  # eighths of a pixel, four in each pixel
    inside = _is_inside(name, 2 * radius, (points - 2 * x)[None, :], (points - 2 * y)[:, None])
    pixels = len(points) // 4
    coverage = inside.reshape(pixels, 4, pixels, 4).sum(axis=(1, 3), dtype=np.int64)
    rows, columns = np.flatnonzero(coverage.any(axis=1)), np.flatnonzero(coverage.any(axis=0))
    cropped = coverage[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return cropped, int(columns[0]) - reach, int(rows[0]) - reach


def _is_inside(name: str, radius: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns whether points (x to the right, y down from the center) are inside a shape, all in one unit."""
    square, nearer, farther = x * x + y * y, np.minimum(abs(x), abs(y)), np.maximum(abs(x), abs(y))
    if name == "circle":
        return np.asarray(square <= radius * radius)
    if name == "ring":
        return np.asarray((square <= radius * radius) & (100 * square >= 27 * radius * radius))
    if name == "square":
        return np.asarray(8 * farther <= 7 * radius)
    if name == "cross":
        return np.asarray((8 * nearer <= 3 * radius) & (farther <= radius))
    if name == "triangle":
        return np.asarray((7 * abs(x) <= 4 * (y + radius)) & (4 * y <= 3 * radius))
    # A star: within four of its five lines, since a tip is beyond one; enlarged, because it covers so little.
    within = sum(8 * (x * a + y * b) <= 9 * STAR_INNER * radius for a, b in STAR_TIPS)
    return np.asarray(within >= len(STAR_TIPS) - 1)


# Handwritten digits: one or two of MNIST, colored, captioned in the same way. The splits of MNIST are preserved:
# validation and test images are written by hands that training has not seen.


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
    """Returns scenes with the columns of `caption_columns`, of "image" (n, 28, 28) uint8 and "label" by split."""
    splits: dict[str, Columns] = {}
    for number, (split, size) in enumerate(SPLIT_SIZES.items()):
        glyphs = _crop_glyphs(split, mnist[split])
        scenes: list[list[Digit]] = []
        generator = np.random.PCG64([SEED, 2, number])
        while len(scenes) < size:
            scenes.extend(scene for scene in _draw_digit_scenes(generator, glyphs) if _digits_split(scene) == split)
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


def _digits_split(scene: list[Digit]) -> str:
    # A single digit is hashed under the names that the fields had when the data set was frozen.
    text = repr(scene).replace("Digit(glyph=", "Written(which=").replace("color=", "colour=")
    return split_of([digit.words for digit in scene], text)


def _draw_digit_scenes(generator: np.random.PCG64, glyphs: Glyphs) -> Iterator[list[Digit]]:
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
