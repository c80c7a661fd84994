"""What a drawn scene is made of, and what can be said of it."""

from __future__ import annotations

import itertools
from typing import NamedTuple

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
SIZES = ("small", "large")
COLOURS = {
    "red": (212, 32, 36),
    "green": (34, 146, 56),
    "blue": (28, 84, 208),
    "yellow": (244, 208, 16),
    "orange": (246, 128, 16),
    "purple": (124, 44, 168),
    "pink": (248, 138, 190),
    "black": (26, 26, 30),
}
RELATIONS = ("to the left of", "to the right of", "above", "below")


class Object(NamedTuple):
    shape: int
    colour: int
    size: int
    radius: int  # in quarters of a pixel, as the place of its middle
    x: int
    y: int
    shade: list[int]  # red, green and blue, near to those of its colour

    @property
    def noun(self) -> str:
        return SHAPES[self.shape]

    @property
    def words(self) -> list[str]:
        return [SIZES[self.size], tuple(COLOURS)[self.colour], self.noun]


Scene = tuple[Object, ...]


def relation(one: tuple[int, int], other: tuple[int, int]) -> str:
    """Where one place (to the right, down) is, seen from another: by the direction in which they are further apart."""
    across, down = one[0] - other[0], one[1] - other[1]
    if abs(across) > abs(down):
        return RELATIONS[0 if across < 0 else 1]
    return RELATIONS[2 if down < 0 else 3]


def captions(names: list[list[str]], places: list[tuple[int, int]]) -> list[tuple[str, list[int]]]:
    """All that can be said of objects: each may come first, told by where it is seen from each of the others.

    With each caption the places of the nouns among its words, in the order of the objects.
    """
    return [_caption(names, places, order) for order in itertools.permutations(range(len(names)))]


def _caption(names: list[list[str]], places: list[tuple[int, int]], order: tuple[int, ...]) -> tuple[str, list[int]]:
    words: list[str] = []
    nouns: dict[int, int] = {}  # the place of each object's noun
    before = ""
    for index in order:
        if nouns:
            how = relation(places[order[0]], places[index])
            words.extend(["and"] if len(nouns) > 1 else [])
            words.extend(how.split() if how != before else [])  # the same is not said twice
            before = how
        words.extend(["an" if names[index][0][0] in "aeiou" else "a", *names[index]])
        nouns[index] = len(words) - 1
    return " ".join(words), [nouns[index] for index in range(len(names))]
