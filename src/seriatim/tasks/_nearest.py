"""A translation memory: the answer to a text is the target of the most similar source that was read.

Texts are alike by the words they share, rare ones above all: the cosine of their words weighted by
idf = log(number of sources / number of sources with the word).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ._alignment import UNSPACED

WORDS = re.compile(r"\w+|[^\w\s]")
COMMON = 0.1  # a word of more than this share of all sources says little, unless there is no other


class Memory:
    """Distinct sources with the first target of each."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        first: dict[str, str] = {}
        for source, target in zip(sources, targets, strict=True):
            first.setdefault(source, target)
        self.targets = list(first.values())
        self._number: dict[str, int] = {}
        rows, words = [], []
        for row, source in enumerate(first):
            for word in dict.fromkeys(words_of(source)):
                rows.append(row)
                words.append(self._number.setdefault(word, len(self._number)))
        order = np.argsort(words, kind="stable")
        counts = np.bincount(words, minlength=len(self._number))
        self._rows, self._ends = np.asarray(rows, dtype=np.int64)[order], np.cumsum(counts)
        self._rare = np.log((1 + len(first)) / counts) if len(counts) else np.zeros(0)
        norms = np.bincount(rows, weights=self._rare[words] ** 2, minlength=len(first)) if rows else np.ones(len(first))
        self._norms = np.sqrt(np.maximum(norms, 1e-12))

    def answer(self, text: str) -> str:
        """Of equally similar sources the first; of a text that shares nothing with any, it is the text itself."""
        known = [self._number[word] for word in dict.fromkeys(words_of(text)) if word in self._number]
        places = {number: self._places(number) for number in known}
        telling = [number for number in known if len(places[number]) <= COMMON * len(self.targets)] or known
        if not telling:
            return text
        scores = np.zeros(len(self.targets))
        for number in telling:
            scores[places[number]] += self._rare[number] ** 2
        near = np.flatnonzero(scores)
        return self.targets[int(near[np.argmax(scores[near] / self._norms[near])])]

    def _places(self, number: int) -> np.ndarray:
        return self._rows[self._ends[number - 1] if number else 0 : self._ends[number]]


def words_of(text: str) -> list[str]:
    """Words and marks in lower case; letters of writing without blanks each by itself."""
    found: list[str] = []
    for word in WORDS.findall(text.lower()):
        found += list(word) if UNSPACED.search(word) else [word]
    return found
