"""Which objects a scene has, and where: drawn so that whoever looks at it says the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ._scene_words import COLOURS, SHAPES, SIZES, Object, Scene
from .draws import below

SIDE = 64  # pixels
QUARTER = 4  # places and radii are whole numbers of quarters of a pixel
SHARES = (20, 45, 35)  # of a hundred scenes: with one object, with two, with three
RADII = ((20, 24), (38, 44))  # of each size, from and to, in quarters of a pixel
SHADE = 10  # by how much a colour may differ from its like
GAP = 3 * QUARTER  # at least, between objects
EDGE = 2 * QUARTER  # at least, from an object to the edge
AT_ONCE = 4_000  # scenes drawn at a time
TRIES = 60  # draws of places for the same objects before they are given up


def scenes(draw: np.random.PCG64) -> Iterator[Scene]:
    """Without an end."""
    while True:
        yield from _some(draw)


def _some(draw: np.random.PCG64) -> Iterator[Scene]:
    """Some scenes; objects that are alike or that found no clear arrangement are left out."""
    number = 1 + np.searchsorted(np.cumsum(SHARES), below(draw, 100, AT_ONCE), side="right")
    shape, colour, size = (below(draw, len(names), AT_ONCE, 3) for names in (SHAPES, COLOURS, SIZES))
    low, high = (np.array(ends)[size] for ends in zip(*RADII, strict=True))
    radius = low + below(draw, high - low + 1, AT_ONCE, 3)
    shade = np.array(list(COLOURS.values()))[colour] + below(draw, 2 * SHADE + 1, AT_ONCE, 3, 3) - SHADE
    shade = np.clip(shade, 0, 255)
    places = np.zeros((AT_ONCE, 3, 2), np.int64)
    good = _different((shape * len(COLOURS) + colour) * len(SIZES) + size, number)
    waiting = np.flatnonzero(good)
    for _ in range(TRIES):
        edge = (radius[waiting] + EDGE)[:, :, None]
        places[waiting] = edge + below(draw, SIDE * QUARTER - 2 * edge + 1, len(waiting), 3, 2)
        waiting = waiting[~_clear(places[waiting], radius[waiting], number[waiting])]
    good[waiting] = False
    columns = [column.tolist() for column in (shape, colour, size, radius, places[..., 0], places[..., 1], shade)]
    for row in np.flatnonzero(good).tolist():
        yield tuple(Object(*(column[row][one] for column in columns)) for one in range(int(number[row])))


def _different(code: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Whether no two objects have all three in common: shape, colour and size."""
    pairs = ((0, 1), (0, 2), (1, 2))
    return ~np.any([(code[:, a] == code[:, b]) & (number > b) for a, b in pairs], axis=0)


def _clear(places: np.ndarray, radius: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Whether any two objects are apart in one direction, and half as far again as they are in the other."""
    found = np.ones(len(places), dtype=bool)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        apart = np.sort(np.abs(places[:, one] - places[:, other]), axis=1)  # (n,2): less, more
        room = radius[:, one] + radius[:, other] + GAP
        found &= (number <= other) | ((apart[:, 1] >= room) & (2 * apart[:, 1] >= 3 * apart[:, 0]))
    return found
