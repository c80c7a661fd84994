"""Drawing in whole numbers: shapes as shares of each pixel that they cover, and paper to draw on.

Lengths are in quarters of a pixel. A pixel is looked at in sixteen places, an eighth of a pixel from its rim and a
quarter from each other; the unit in which they are told is the eighth.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .draws import below, octets

FULL = 16  # places of a pixel
# Directions of the tips of a star, in 1/1024: the first is upwards.
TIPS = ((0, -1024), (974, -316), (602, 828), (-602, 828), (-974, -316))
INNER = 316  # of a star: how far its lines are from its middle, in 1/1024 of the radius


def inside(shape: str, radius: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether places (x to the right, y down from the middle) are inside, all in one unit."""
    if shape == "circle":
        return np.asarray(x * x + y * y <= radius * radius)
    if shape == "ring":
        return np.asarray((x * x + y * y <= radius * radius) & (100 * (x * x + y * y) >= 27 * radius * radius))
    if shape == "square":
        return np.asarray(8 * np.maximum(abs(x), abs(y)) <= 7 * radius)
    if shape == "cross":
        return np.asarray((8 * np.minimum(abs(x), abs(y)) <= 3 * radius) & (np.maximum(abs(x), abs(y)) <= radius))
    if shape == "triangle":
        return np.asarray((7 * abs(x) <= 4 * (y + radius)) & (4 * y <= 3 * radius))
    if shape == "star":
        # Within four of its five lines: a tip is beyond one of them. It is drawn larger, since it covers so little.
        return np.asarray(sum(8 * (x * a + y * b) <= 9 * INNER * radius for a, b in TIPS) >= len(TIPS) - 1)
    raise KeyError(shape)


def stamp(shape: str, radius: int, x: int, y: int) -> tuple[np.ndarray, int, int]:
    """The sixteenths of each pixel that a shape covers, cut to what it covers, and where its left and top are."""
    cover, left, top = _stamp(shape, radius, x % 4, y % 4)
    return cover, x // 4 + left, y // 4 + top


@lru_cache(maxsize=4096)
def _stamp(shape: str, radius: int, x: int, y: int) -> tuple[np.ndarray, int, int]:
    reach = -(-radius * 9 // 32) + 1  # pixels to each side, and a little more
    places = np.arange(-8 * reach, 8 * reach + 8, 2) + 1  # eighths of a pixel, four in each pixel
    hit = inside(shape, 2 * radius, (places - 2 * x)[None, :], (places - 2 * y)[:, None])
    pixels = len(places) // 4
    cover = hit.reshape(pixels, 4, pixels, 4).sum(axis=(1, 3), dtype=np.int64)
    rows, columns = np.flatnonzero(cover.any(axis=1)), np.flatnonzero(cover.any(axis=0))
    cut = cover[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return cut, int(columns[0]) - reach, int(rows[0]) - reach


def paper(draw: np.random.PCG64, count: int, side: int) -> np.ndarray:
    """Sheets (count,side,side,3) of a light tint that grows lighter to one side, with a little grain."""
    tint = 208 + below(draw, 26, count, 3)  # 208…233
    slopes = below(draw, 25, count, 2) - 12  # over the whole side
    grid = np.arange(side) - side // 2
    sheets = np.empty((count, side, side, 3), np.uint8)
    for row in range(count):
        light = (slopes[row, 0] * grid[:, None] + slopes[row, 1] * grid[None, :]) // side
        sheets[row] = tint[row] + light[:, :, None]
    sheets += octets(draw, count, side, side, 3) & np.uint8(7)
    return sheets
