"""Data that needs no file: the prose of Python's own documentation, small languages, and problems in numbers.

The random numbers of the texts come from `random.Random.random`, whose sequence Python promises to keep, those of
the numbers from the raw output of PCG64, which NumPy promises to keep: they are the same on every machine.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError

from . import cache
from .draws import below, uniform
from .sequences import Examples, Numbered, Parts, Sequences

SEED = 1
AT_ONCE = 1000  # sequences drawn at a time: the random numbers are wider than what is kept of them
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


def adding(length: int | None = None) -> Parts:
    """The adding problem (Hochreiter and Schmidhuber 1997), with the sizes of Bai et al. 2018.

    A step is a number of 0…1 and a mark. Two steps are marked, one in each half; their numbers are to be added.
    Always to answer 1 has a mean squared error of 1/6.
    """
    length = _length("adding", length, 600, least=2)
    sizes = {"train": 50_000, "valid": 1_000, "test": 1_000}
    return _parts("adding", length, sizes, _adding, features=("value", "marker"))


def copy(length: int | None = None) -> Parts:
    """Copy memory (Arjovsky et al. 2016), with the sizes of Bai et al. 2018: remember ten symbols over `length` steps.

    In: ten symbols of 1…8, blanks (0), eleven times the sign to speak (9). Out: blanks, and at the end the ten
    symbols. A model that remembers nothing does best with blanks and a guess: a loss of 10 ln 8 / (length + 20).
    """
    length = _length("copy", length, 1000, least=1)
    sizes = {"train": 10_000, "valid": 500, "test": 1_000}
    return _parts("copy", length, sizes, _copy, symbols=tuple("0123456789"))


def curve(points: int | None = None) -> Parts:
    """A number for a number: y = 2 sin x + x^0.8 and noise of deviation ½, x anywhere in 0…5."""
    points = _length("curve", points, 400, least=2)
    sizes = {"train": points, "valid": 100, "test": 200}
    columns = {"column": "x", "target": "y"}
    return replace(_parts("curve", points, sizes, _curve, features=("x",)), columns=columns)


def sine(count: int = 10_000, steps: int = 51, seed: int = SEED) -> np.ndarray:
    """Series (count,steps) of two sine waves of random frequency and phase, and noise of variance 0.1²/12."""
    draw = np.random.PCG64([seed, 0])
    f1, f2, o1, o2 = (uniform(draw, count)[:, None] for _ in range(4))
    noise = uniform(draw, count, steps)
    t = np.linspace(0, 1, steps)
    waves = 0.5 * np.sin((t - o1) * (f1 * 10 + 10)) + 0.2 * np.sin((t - o2) * (f2 * 20 + 20))
    series: np.ndarray = (waves + 0.1 * (noise - 0.5)).astype(np.float32)
    return series


SETS: dict[str, Callable[[int | None], Parts]] = {"adding": adding, "copy": copy, "curve": curve}
ANSWERS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy-pairs": list,
    "reverse-pairs": lambda letters: letters[::-1],
    "sort-pairs": sorted,
}


def symbol_pairs(name: str, longest: int | None = None) -> Parts:
    """Letters with blanks between them, and the same letters copied, reversed or sorted; 1 to `longest` of them.

    A word belongs to one part by its hash, so that none is in two; a length of which a part has no word is drawn again.
    """
    longest = _length(name, longest, 20, least=2, most=1000)
    sizes = {"train": 20_000, "valid": 500, "test": 1_000}
    made: dict[str, Any] = {}
    for number, (part, count) in enumerate(sizes.items()):
        draw = random.Random(SEED + number).random
        words = [_word(draw, longest, part) for _ in range(count)]
        targets = [" ".join(ANSWERS[name](word)) for word in words]
        places = Numbered(f"{name}:{longest}, {part}, pair", range(1, count + 1))
        made[part] = Examples([" ".join(word) for word in words], targets, places)
    counted = " / ".join(f"{count:,}" for count in sizes.values())
    notes = [f"{name}:{longest}: {counted} pairs of 1 to {longest} letters made from a seed"]
    return Parts(**made, notes=notes, fingerprint=cache.key(name, longest, SEED))


def _word(draw: Callable[[], float], longest: int, part: str) -> list[str]:
    while True:
        length = 1 + int(draw() * longest)
        for _ in range(50):
            word = [LETTERS[int(draw() * 26)] for _ in range(length)]
            bucket = hashlib.blake2b("".join(word).encode(), digest_size=1).digest()[0] % 16
            if ("test" if bucket == 0 else "valid" if bucket == 1 else "train") == part:
                return word


PAIRS: dict[str, Callable[[int | None], Parts]] = {name: partial(symbol_pairs, name) for name in ANSWERS}


def parts(name: str) -> Parts | None:
    """The examples of "adding", or of "adding:200" with another length; None for a name that is not of these."""
    return _named(name, SETS)


def pairs(name: str) -> Parts | None:
    """The same for "copy-pairs" and the other sets of pairs of texts."""
    return _named(name, PAIRS)


def _named(name: str, sets: dict[str, Callable[[int | None], Parts]]) -> Parts | None:
    base, colon, length = name.partition(":")
    if base not in sets:
        return None
    if colon and not (length.isascii() and length.isdecimal() and len(length) < 10):
        raise SeriatimError("data.length", f'"{name}": "{length}" is not a length', f"write for example {base}:200")
    return sets[base](int(length) if colon else None)


def _length(name: str, length: int | None, default: int, least: int, most: int = 10_000) -> int:
    length = default if length is None else length
    if not least <= length <= most:
        cause = f"{name}: a length of {length:,} is not between {least} and {most:,}"
        raise SeriatimError("data.length", cause, f"write for example {name}:{default}")
    return length


Draw = Callable[[np.random.PCG64, int, int], Examples]


def _parts(
    name: str,
    length: int,
    sizes: dict[str, int],
    make: Draw,
    symbols: tuple[str, ...] = (),
    features: tuple[str, ...] = (),
) -> Parts:
    """Each part from a stream of its own, so that the length of one does not change the others."""
    made: dict[str, Any] = {}
    for number, (part, count) in enumerate(sizes.items()):
        examples = make(np.random.PCG64([SEED, number]), count, length)
        places = Numbered(f"{name}:{length}, {part}, example", range(1, count + 1))
        made[part] = replace(examples, places=places)
    counted = " / ".join(f"{count:,}" for count in sizes.values())
    notes = [f"{name}:{length}: {counted} examples made from a seed"]
    return Parts(**made, notes=notes, fingerprint=cache.key(name, length, SEED), symbols=symbols, features=features)


def _adding(draw: np.random.PCG64, count: int, length: int) -> Examples:
    block = np.zeros((count, length, 2), np.float32)
    sums = np.zeros(count)
    half = length // 2
    for start in range(0, count, AT_ONCE):
        some = block[start : start + AT_ONCE]
        rows = np.arange(len(some))
        some[..., 0] = uniform(draw, len(some), length)
        for low, high in ((0, half), (half, length)):
            places = low + below(draw, high - low, len(some))
            some[rows, places, 1] = 1
            sums[start : start + AT_ONCE] += some[rows, places, 0]
    return Examples(Sequences.equal(block), sums.tolist())


def _copy(draw: np.random.PCG64, count: int, length: int) -> Examples:
    said = 1 + below(draw, 8, count, 10)
    inputs = np.zeros((count, length + 20), np.int64)
    inputs[:, :10] = said
    inputs[:, -11:] = 9
    targets = np.zeros_like(inputs)
    targets[:, -10:] = said
    return Examples(Sequences.equal(inputs), Sequences.equal(targets))


def _curve(draw: np.random.PCG64, count: int, points: int) -> Examples:
    x = 5 * uniform(draw, count)
    noise = uniform(draw, count, 12).sum(axis=1) - 6  # nearly normal, of deviation 1
    y = 2 * np.sin(x) + x**0.8 + 0.5 * noise
    inputs = x.astype(np.float32)[:, None, None]
    return Examples(Sequences.equal(inputs), y.astype(np.float32).tolist())
