"""Splitting one text into training, validation and test by contiguous blocks.

Contiguous, because a text's neighbouring lines are alike, and lines drawn at random would let a model
see the neighbours of what it is tested on.
"""

from __future__ import annotations

import mmap
from itertools import accumulate, pairwise

import numpy as np

from seriatim.core.errors import SeriatimError

from .decoded import Text

WINDOW = 1 << 20  # bytes looked at on each side of the wanted place


def cuts(text: Text, fractions: tuple[float, float, float]) -> list[int]:
    """Four byte offsets: where training begins, where each part ends."""
    smallest = min(share for share in fractions if share > 0) * text.size
    with open(text.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = [0]
        for share, reached in zip(fractions[1:], list(accumulate(fractions))[:2], strict=True):
            rest = sum(fractions[len(found) :])
            target = text.size if rest == 0 else round(text.size * reached)
            found.append(_nearest(data, text, target, smallest) if share or rest else target)
        found.append(text.size)
    sizes = [after - before for before, after in pairwise(found)]
    if any(size <= 0 < share for size, share in zip(sizes, fractions, strict=True)):
        raise too_short(f"{text.size:,} bytes of text", fractions)
    return found


def too_short(what: str, fractions: tuple[float, float, float]) -> SeriatimError:
    shares = " / ".join(f"{100 * share:g}" for share in fractions)
    return SeriatimError(
        "data.too-short",
        f"too short to split {shares} %: {what}",
        "give more text, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0",
    )


def _nearest(data: mmap.mmap, text: Text, target: int, smallest: float) -> int:
    """The nearest document start, else line start, that does not change the shares much; else a character's."""
    if target <= 0 or target >= text.size:
        return target
    document = _nearest_document(text.ends, target)
    if document is not None and abs(document - target) <= smallest / 5:
        return document
    line = _nearest_line(data, target)
    if line is not None and abs(line - target) <= smallest / 2:
        return line
    if document is not None and abs(document - target) <= smallest / 2:
        return document
    while data[target] & 0xC0 == 0x80:  # in the middle of a character
        target -= 1
    return target


def _nearest_document(ends: np.ndarray, target: int) -> int | None:
    at = int(np.searchsorted(ends, target))
    near = [int(end) for end in ends[max(0, at - 1) : at + 1]]
    return min(near, key=lambda end: abs(end - target), default=None)


def _nearest_line(data: mmap.mmap, target: int) -> int | None:
    before = data.rfind(b"\n", max(0, target - WINDOW), target)
    after = data.find(b"\n", target, target + WINDOW)
    near = [place + 1 for place in (before, after) if place >= 0]
    return min(near, key=lambda place: abs(place - target), default=None)
