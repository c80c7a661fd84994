"""Texts as what stands between their blanks, each different part once.

Kinds of words forget blanks, so the tokens of a text are those of its parts, one after the other: what stands between
blanks, and each line end by itself. Few parts make most of a text, and pyarrow tells them apart without an object of
Python for each: several times as fast as the stretches of `pieces`, of which long ones are cut. Where that may happen,
nothing is given here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .pieces import CONTROL

LEAST = 1 << 12  # bytes; below this stretches are as fast
TOO_MANY = 1 << 31  # bytes, for pyarrow's numbers of 32 bits
MOST = 1 << 18  # different parts; where there are more, it is better to take a text in pieces
JOINS = re.compile(f"[{CONTROL}]")  # a stretch goes on behind these
BLANK, LINE_END = b" \n"


@dataclass(frozen=True)
class Parts:
    different: list[str]
    which: np.ndarray  # for each part of all texts its place in `different`
    sizes: np.ndarray  # how many parts each text has
    longest: int  # no stretch of the texts has more characters
    characters: int  # of all texts

    def counts(self) -> dict[str, int]:
        """How often each part comes."""
        return dict(zip(self.different, np.bincount(self.which, minlength=len(self.different)).tolist(), strict=True))


def parts(texts: Sequence[str], limit: int) -> Parts | None:
    """The parts of texts; None where a stretch may be longer than `limit`, and where it is not worth it."""
    encoded = [text.encode() for text in texts]
    found = told_apart(b"".join(encoded), np.cumsum([len(one) for one in encoded], dtype=np.int64))
    return found if found is not None and found.longest <= limit else None


def told_apart(data: bytes, ends: np.ndarray) -> Parts | None:
    """The parts of texts in UTF-8 that lie one behind the other, up to `ends` each; None where it is not worth it."""
    if not LEAST <= len(data) < TOO_MANY:
        return None
    import pyarrow as pa
    from pyarrow import compute

    values = np.frombuffer(data, np.uint8)
    lines = values == LINE_END
    cut = np.zeros(len(data) + 1, bool)  # before which bytes; at first the blank behind a part goes along with it
    cut[1:] = (values == BLANK) | lines
    cut[:-1] |= lines
    cut[0] = cut[ends] = True
    edges = np.flatnonzero(cut).astype(np.int32)
    coded = pa.StringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), pa.py_buffer(data)).dictionary_encode()
    bare = compute.utf8_rtrim(coded.dictionary, " ").dictionary_encode()
    different = bare.dictionary.to_pylist() if len(bare.dictionary) <= MOST else None
    if different is None or JOINS.search("".join(different)):
        return None
    which = bare.indices.to_numpy()[coded.indices.to_numpy()]
    # A stretch is at most the part that ends it, the one before that is more than white space, and what lies between.
    white = compute.or_(compute.utf8_is_space(bare.dictionary), compute.equal(bare.dictionary, ""))
    more = np.append(0, edges[1:][~white.to_numpy(zero_copy_only=False)[which]])
    longest = 2 * int(max(np.diff(more).max(initial=0), len(data) - more[-1]))  # in bytes: no fewer than characters
    sizes = np.diff(np.searchsorted(edges[1:], ends, side="right"), prepend=0)
    return Parts(different, which, sizes, longest, int(np.count_nonzero(values & 0xC0 != 0x80)))
