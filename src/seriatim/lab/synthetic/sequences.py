"""Sequence problems and small languages: texts, the adding problem, copy memory, curves, sine waves, pairs of letters.

Texts are drawn by `random.Random.random`, whose sequence Python guarantees, arrays from the raw output of PCG64: all
sets are the same on every machine.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ...data.catalogue.generated import Columns, Splits

SEED = 1
CHUNK_SIZE = 1000  # sequences generated at a time
BRACKETS = ("()", "[]", "{}", "<>")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = np.array(list("0123456789"), dtype=object)


# Random numbers from the raw output of PCG64, which NumPy guarantees: the same on every machine and version


def uniform(generator: np.random.PCG64, *shape: int) -> np.ndarray:
    """Returns numbers in [0, 1), also as float32: the upper 24 bits of each raw output."""
    raw: np.ndarray = generator.random_raw(int(np.prod(shape))) >> np.uint64(40)
    return (raw * 2.0**-24).reshape(shape)


def integers(generator: np.random.PCG64, end: int | np.ndarray, *shape: int) -> np.ndarray:
    """Returns integers in [0, end), `end` for all or for each."""
    return np.asarray(uniform(generator, *shape) * end).astype(np.int64)


def octets(generator: np.random.PCG64, *shape: int) -> np.ndarray:
    """Returns integers in [0, 256) as uint8, eight from each raw output."""
    count = int(np.prod(shape))
    raw = generator.random_raw(-(-count // 8)).astype("<u8")
    return raw.view(np.uint8)[:count].reshape(shape)


# Sets


def pydoc() -> str:
    """Returns the help topics of the running Python, sorted by name."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip("\n") for name in sorted(topics)) + "\n"


def brackets(lines: int = 20_000, longest: int = 60, seed: int = SEED) -> str:
    """Returns nested brackets of four kinds, well closed, a word of the Dyck language per line.

    A model must remember what is open: an n-gram cannot, a recurrent network can to some depth.
    """
    draw = random.Random(seed).random
    return "".join(f"{''.join(_nested_brackets(draw, longest))}\n" for _ in range(lines))


def _nested_brackets(draw: Callable[[], float], longest: int) -> Iterator[str]:
    to_close: list[str] = []
    pairs = 1 + int(draw() * (longest // 2))
    while pairs or to_close:
        if pairs and (not to_close or draw() < 0.55):
            kind = BRACKETS[int(draw() * 4)]
            pairs -= 1
            to_close.append(kind[1])
            yield kind[0]
        else:
            yield to_close.pop()


def copying(lines: int = 20_000, longest: int = 12, seed: int = SEED) -> str:
    """Returns lines such as `abc=abc`. The second half of a line can be predicted exactly, the first not at all."""
    draw = random.Random(seed).random
    words = ("".join(LETTERS[int(draw() * 26)] for _ in range(1 + int(draw() * longest))) for _ in range(lines))
    return "".join(f"{word}={word}\n" for word in words)


def adding(length: int) -> Splits:
    """Returns the adding problem (Hochreiter and Schmidhuber 1997), with the sizes of Bai et al. 2018.

    A step of `sequence` (length, 2) is a number in [0, 1) and a marker. Two steps are marked, one in each half; the
    target is the sum of their numbers. The constant prediction 1 has a mean squared error of 1/6.
    """

    def make(generator: np.random.PCG64, count: int) -> Columns:
        block = np.zeros((count, length, 2), np.float32)
        sums = np.zeros(count)
        for start in range(0, count, CHUNK_SIZE):
            chunk = block[start : start + CHUNK_SIZE]
            rows = np.arange(len(chunk))
            chunk[..., 0] = uniform(generator, len(chunk), length)
            for low, high in ((0, length // 2), (length // 2, length)):
                steps = low + integers(generator, high - low, len(chunk))
                chunk[rows, steps, 1] = 1
                sums[start : start + CHUNK_SIZE] += chunk[rows, steps, 0]
        return {"sequence": block, "target": sums}

    return _make_splits(make, {"train": 50_000, "validation": 1_000, "test": 1_000})


def copy_memory(length: int) -> Splits:
    """Returns copy memory (Arjovsky et al. 2016), with the sizes of Bai et al. 2018: ten symbols over `length` steps.

    `tokens`: ten symbols of 1…8, blanks (0), eleven times the signal to answer (9). `tags`: blanks, and at the end the
    ten symbols. Without memory, the best loss is that of blanks and a guess: 10 ln 8 / (length + 20).
    """

    def make(generator: np.random.PCG64, count: int) -> Columns:
        symbols = 1 + integers(generator, 8, count, 10)
        tokens = np.zeros((count, length + 20), np.int64)
        tokens[:, :10] = symbols
        tokens[:, -11:] = 9
        tags = np.zeros_like(tokens)
        tags[:, -10:] = symbols
        return {"tokens": SYMBOLS[tokens].tolist(), "tags": SYMBOLS[tags].tolist()}

    return _make_splits(make, {"train": 10_000, "validation": 500, "test": 1_000})


def curve(points: int) -> Splits:
    """Returns points of y = 2 sin x + x^0.8 with noise of standard deviation ½, x uniform in [0, 5)."""

    def make(generator: np.random.PCG64, count: int) -> Columns:
        x = 5 * uniform(generator, count)
        noise = uniform(generator, count, 12).sum(axis=1) - 6  # nearly normal, with standard deviation 1
        y = 2 * np.sin(x) + x**0.8 + 0.5 * noise
        return {"x": x.astype(np.float32), "y": y.astype(np.float32)}

    return _make_splits(make, {"train": points, "validation": 100, "test": 200})


def _make_splits(make: Callable[[np.random.PCG64, int], Columns], sizes: Mapping[str, int]) -> Splits:
    """Returns each split from a random stream of its own, so that the size of one does not change the others."""
    return {split: make(np.random.PCG64([SEED, n]), count) for n, (split, count) in enumerate(sizes.items())}


def sine(count: int = 10_000, steps: int = 51, seed: int = SEED) -> Splits:
    """Returns series (count, steps) of two sine waves of random frequency and phase, with noise of variance 0.1²/12."""
    generator = np.random.PCG64([seed, 0])
    frequency, frequency_2, phase, phase_2 = (uniform(generator, count)[:, None] for _ in range(4))
    noise = uniform(generator, count, steps)
    t = np.linspace(0, 1, steps)
    waves = 0.5 * np.sin((t - phase) * (frequency * 10 + 10)) + 0.2 * np.sin((t - phase_2) * (frequency_2 * 20 + 20))
    return {"train": {"value": (waves + 0.1 * (noise - 0.5)).astype(np.float32)}}


def copy_pairs(longest: int) -> Splits:
    return letter_pairs(list, longest)


def reverse_pairs(longest: int) -> Splits:
    return letter_pairs(lambda letters: letters[::-1], longest)


def sort_pairs(longest: int) -> Splits:
    return letter_pairs(sorted, longest)


def letter_pairs(answer: Callable[[list[str]], list[str]], longest: int) -> Splits:
    """Returns 1 to `longest` letters with blanks between them, and what `answer` makes of them.

    A word belongs to one split by its hash, so none is in two; a length without a word for the split is drawn again.
    """
    splits: dict[str, Columns] = {}
    for number, (split, count) in enumerate((("train", 20_000), ("validation", 500), ("test", 1_000))):
        draw = random.Random(SEED + number).random
        words = [_word_of_split(draw, longest, split) for _ in range(count)]
        splits[split] = {
            "source": [" ".join(word) for word in words],
            "target": [" ".join(answer(word)) for word in words],
        }
    return splits


def _word_of_split(draw: Callable[[], float], longest: int, split: str) -> list[str]:
    while True:
        length = 1 + int(draw() * longest)
        for _ in range(50):
            word = [LETTERS[int(draw() * 26)] for _ in range(length)]
            bucket = hashlib.blake2b("".join(word).encode(), digest_size=1).digest()[0] % 16
            if ("test" if bucket == 0 else "validation" if bucket == 1 else "train") == split:
                return word
