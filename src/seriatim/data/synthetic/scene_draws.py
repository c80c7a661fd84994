"""Which objects a scene has, and where: drawn so that whoever looks at it says the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ._scene_words import COLOURS, SHAPES, SIZES, Object, Scene
from .draws import below

SIDE = 64  # pixels
QUARTER = 4  # places and radii are whole numbers of quarters of a pixel
SHARES = {2: (25, 75), 3: (20, 45, 35)}  # of a hundred scenes: with one object, with two and, at most, three
RADII = ((20, 24), (38, 44))  # of each size, from and to, in quarters of a pixel
SHADE = 10  # by how much a colour may differ from its like
GAP = 3 * QUARTER  # at least, between objects
EDGE = 2 * QUARTER  # at least, from an object to the edge
AT_ONCE = 4_000  # scenes drawn at a time
TRIES = 60  # draws of places for the same objects before they are given up


def scenes(draw: np.random.PCG64, most: int) -> Iterator[Scene]:
    """Of so many objects at most, without an end."""
    while True:
        yield from _some(draw, most)


def _some(draw: np.random.PCG64, most: int) -> Iterator[Scene]:
    """Some scenes; objects that are alike or that found no clear arrangement are left out."""
    number = numbers(draw, most)
    shape, colour, size = (below(draw, len(names), AT_ONCE, 3) for names in (SHAPES, COLOURS, SIZES))
    low, high = (np.array(ends)[size] for ends in zip(*RADII, strict=True))
    radius = low + below(draw, high - low + 1, AT_ONCE, 3)
    shade = shades(draw, colour)
    reach = np.repeat(radius[:, :, None], 2, axis=2)
    good = different((shape * len(COLOURS) + colour) * len(SIZES) + size, number)
    places, good = arranged(draw, reach, number, good)
    columns = [column.tolist() for column in (shape, colour, size, radius, places[..., 0], places[..., 1], shade)]
    for row in np.flatnonzero(good).tolist():
        yield tuple(Object(*(column[row][one] for column in columns)) for one in range(int(number[row])))


def numbers(draw: np.random.PCG64, most: int) -> np.ndarray:
    """How many objects some scenes have."""
    return 1 + np.searchsorted(np.cumsum(SHARES[most]), below(draw, 100, AT_ONCE), side="right")


def shades(draw: np.random.PCG64, colour: np.ndarray) -> np.ndarray:
    """The shade (n,3,3) of each colour (n,3) by its number."""
    own = np.array(list(COLOURS.values()))[colour]
    return np.clip(own + below(draw, 2 * SHADE + 1, *own.shape) - SHADE, 0, 255)


def arranged(
    draw: np.random.PCG64, reach: np.ndarray, number: np.ndarray, good: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Places (n,3,2) for the rows that are good, and those for which some were found where all is clear."""
    places = np.zeros_like(reach)
    waiting = np.flatnonzero(good)
    for _ in range(TRIES):
        edge = reach[waiting] + EDGE
        places[waiting] = edge + below(draw, SIDE * QUARTER - 2 * edge + 1, len(waiting), 3, 2)
        waiting = waiting[~_clear(places[waiting], reach[waiting], number[waiting])]
    found = good.copy()
    found[waiting] = False
    return places, found


def different(code: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Whether no two objects have all three in common: shape, colour and size."""
    pairs = ((0, 1), (0, 2), (1, 2))
    return ~np.any([(code[:, a] == code[:, b]) & (number > b) for a, b in pairs], axis=0)


def _clear(places: np.ndarray, reach: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Whether any two of the first `number` objects are apart in one direction, and twice as far as they are in the
    other. Their middles and how far they reach are (n,3,2): to the right, and down."""
    found = np.ones(len(places), dtype=bool)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        apart = np.abs(places[:, one] - places[:, other])  # (n,2)
        main = np.argmax(apart, axis=1)[:, None]
        most, least = (np.take_along_axis(apart, axis, axis=1)[:, 0] for axis in (main, 1 - main))
        room = np.take_along_axis(reach[:, one] + reach[:, other], main, axis=1)[:, 0] + GAP
        found &= (number <= other) | ((most >= room) & (most >= 2 * least))
    return found
