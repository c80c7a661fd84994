"""Data that needs no file: the prose of Python's own documentation, and small languages made from a seed.

The random numbers come from `random.Random.random`, whose sequence Python promises to keep, so these
texts are the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

BRACKETS = ("()", "[]", "{}", "<>")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pydoc() -> str:
    """The help topics of the Python that runs this, in the order of their names."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip("\n") for name in sorted(topics)) + "\n"


def brackets(lines: int = 20_000, longest: int = 60, seed: int = 1) -> str:
    """Nested brackets of four kinds, well closed, a word of the Dyck language a line.

    A model must remember what is open: an n-gram cannot, a recurrent network can to some depth.
    """
    draw = random.Random(seed).random
    return "".join(f"{''.join(_nested(draw, longest))}\n" for _ in range(lines))


def copying(lines: int = 20_000, longest: int = 12, seed: int = 1) -> str:
    """`abc=abc`: letters, and the same letters again. The second half can be told exactly, the first not at all."""
    draw = random.Random(seed).random
    rows = []
    for _ in range(lines):
        word = "".join(LETTERS[int(draw() * 26)] for _ in range(1 + int(draw() * longest)))
        rows.append(f"{word}={word}\n")
    return "".join(rows)


def _nested(draw: Callable[[], float], longest: int) -> Iterator[str]:
    open_ones: list[str] = []
    pairs = 1 + int(draw() * (longest // 2))
    while pairs or open_ones:
        if pairs and (not open_ones or draw() < 0.55):
            opening, closing = tuple(BRACKETS[int(draw() * 4)])
            pairs -= 1
            open_ones.append(closing)
            yield opening
        else:
            yield open_ones.pop()
