"""Many numbers to two, and names beside points that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .text import letters

LETTER = 6.0  # pixels of a letter
LINE = 15  # pixels of a line
DOT = 5  # pixels around a point that stay free
ROOM = 14  # pixels between a point and the edge of the picture
NEAR = 10  # pixels from a point within which a name needs no line to it

# Beside a point first, then around it, then further away.
WAYS = ((1, 0), (-1, 0), (1, 0.7), (1, -0.7), (-1, 0.7), (-1, -0.7), (0, 1), (0, -1))
STEPS = (8, 16, 26, 40, 58, 80, 106, 136, 170)

Box = tuple[float, float, float, float]  # left, top, right, bottom


def principal(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Vectors (n,D) along the two directions in which they differ most (n,2), and the share of the variance that each
    direction has. A direction points to where the vector stands that is furthest out."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, ways = np.linalg.svd(centred, full_matrices=False)
    ways = np.concatenate([ways[:2], np.zeros((2 - len(ways[:2]), vectors.shape[1]))])
    points = centred @ ways.T
    outermost = points[np.abs(points).argmax(axis=0), [0, 1]]
    total = float((sizes**2).sum())
    some = total > 1e-12 * max(float((vectors.astype(np.float64) ** 2).sum()), 1e-300)
    shares = [float(size**2) / total if some else 0.0 for size in [*sizes[:2].tolist(), 0.0, 0.0][:2]]
    return points * np.where(outermost < 0, -1.0, 1.0) * some, (shares[0], shares[1])


@dataclass(frozen=True)
class Frame:
    """From the units of points to pixels, the same in both directions, so that distances are what they look like."""

    width: int
    height: int
    middle: tuple[float, float]
    unit: float  # of a pixel

    @classmethod
    def around(cls, points: np.ndarray, width: int, height: int, unit: float | None = None) -> Frame:
        low, high = points.min(axis=0), points.max(axis=0)
        spans = (high - low) / (width - 2 * ROOM, height - 2 * ROOM)
        middle = (low + high) / 2
        return cls(width, height, (float(middle[0]), float(middle[1])), unit or float(spans.max()) or 1.0)

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """(n,2), counted from the left and from the top."""
        x = self.width / 2 + (points[:, 0] - self.middle[0]) / self.unit
        y = self.height / 2 - (points[:, 1] - self.middle[1]) / self.unit
        return np.stack([x, y], axis=1)


@dataclass(frozen=True)
class Name:
    """Where the name of a point stands: its end beside the point, and how it is set from there."""

    index: int
    x: float
    y: float
    align: str
    line: bool  # it is so far off that a line leads to it


def names(pixels: np.ndarray, texts: Sequence[str], frame: Frame, far: bool = True) -> list[Name]:
    """A place for each name that finds one, the first of them first; `far`: where there is none beside its point,
    further away."""
    taken = np.concatenate([pixels - DOT, pixels + DOT], axis=1)  # boxes (n,4) that must stay free
    found = []
    for index, ((x, y), text) in enumerate(zip(pixels.tolist(), texts, strict=True)):
        for place, box in _candidates(index, x, y, wide(text), STEPS if far else STEPS[:2]):
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= frame.width and box[3] <= frame.height
            if inside and not _overlaps(box, taken):
                taken = np.concatenate([taken, [box]])
                found.append(place)
                break
    return found


def _candidates(index: int, x: float, y: float, width: float, steps: Sequence[int]) -> Iterator[tuple[Name, Box]]:
    for step in steps:
        for right, up in WAYS:
            at = x + step * right, y - step * up
            left = at[0] if right > 0 else at[0] - width if right < 0 else at[0] - width / 2
            align = "left" if right > 0 else "right" if right < 0 else "center"
            box = left, at[1] - LINE / 2, left + width, at[1] + LINE / 2
            yield Name(index, *at, align, math.dist((x, y), at) > NEAR + LINE / 2), box


def _overlaps(box: Box, others: np.ndarray) -> bool:
    beside = (others[:, 0] >= box[2]) | (others[:, 2] <= box[0])
    above = (others[:, 1] >= box[3]) | (others[:, 3] <= box[1])
    return not bool((beside | above).all())


def wide(text: str) -> float:
    """Pixels of a text."""
    return LETTER * letters(text)
