"""Texts as what stands between their blanks, each different part once.

Kinds of words forget blanks, so the tokens of a text are those of its parts between blanks, one after the other. Few
parts make most of a text, and pyarrow tells them apart without an object of Python for each: several times as fast as
the stretches of `pieces`, of which long ones are cut. Where that may happen, nothing is given here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .pieces import CONTROL

LEAST = 1 << 12  # characters; below this stretches are as fast
JOINS = re.compile(f"[{CONTROL}]")  # a stretch goes on behind these


@dataclass(frozen=True)
class Parts:
    different: list[str]
    which: np.ndarray  # for each part of all texts its place in `different`
    sizes: np.ndarray  # how many parts each text has

    def counts(self) -> dict[str, int]:
        """How often each part comes."""
        return dict(zip(self.different, np.bincount(self.which, minlength=len(self.different)).tolist(), strict=True))


def parts(texts: Sequence[str], limit: int) -> Parts | None:
    """The parts of texts; None where a stretch may be longer than `limit`, and where it is not worth it."""
    if sum(map(len, texts)) < LEAST:
        return None
    import pyarrow as pa
    from pyarrow import compute

    split = compute.split_pattern(pa.array(texts, pa.large_string()), " ")
    coded = split.values.dictionary_encode()
    different, which = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    white = compute.or_(compute.utf8_is_space(coded.dictionary), compute.equal(coded.dictionary, ""))
    if JOINS.search("".join(different)):
        return None
    # A stretch is at most the part that ends it, the one before that is more than white space, and what lies between.
    ends = np.cumsum(compute.binary_length(split.values).to_numpy() + 1)  # in bytes, which are no fewer than characters
    more = ~white.to_numpy(zero_copy_only=False)[which]
    if 2 * int(np.diff(ends[more], prepend=0, append=ends[-1]).max()) > limit:
        return None
    return Parts(different, which, np.diff(split.offsets.to_numpy()))
