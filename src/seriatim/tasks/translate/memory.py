"""A translation memory, the baseline of translation: the target of the most similar training source.

Texts are similar by the words they share, weighted by idf = log(sources / sources with the word): the cosine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from ..alignment import UNSPACED

WORDS = re.compile(r"\w+|[^\w\s]")
COMMON = 0.1  # a word in more than this fraction of the sources is skipped, unless there is no other


class TranslationMemory:
    """Distinct sources with the first target of each."""

    def __init__(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        first: dict[str, str] = {}
        for source, target in zip(sources, targets, strict=True):
            first.setdefault(source, target)
        self.targets = list(first.values())
        self._numbers: dict[str, int] = {}
        rows, words = [], []
        for row, source in enumerate(first):
            for word in dict.fromkeys(split_words(source)):
                rows.append(row)
                words.append(self._numbers.setdefault(word, len(self._numbers)))
        order = np.argsort(words, kind="stable")
        counts = np.bincount(words, minlength=len(self._numbers))
        self._rows, self._ends = np.asarray(rows, dtype=np.int64)[order], np.cumsum(counts)
        self._idf = np.log((1 + len(first)) / counts) if len(counts) else np.zeros(0)
        squares = (
            np.bincount(rows, weights=self._idf[words] ** 2, minlength=len(first)) if rows else np.ones(len(first))
        )
        self._norms = np.sqrt(np.maximum(squares, 1e-12))

    def nearest_target(self, text: str) -> str:
        """Returns the target of the most similar source; the text itself if no source shares a word with it."""
        known = [self._numbers[word] for word in dict.fromkeys(split_words(text)) if word in self._numbers]
        rows = {number: self._rows[self._ends[number - 1] if number else 0 : self._ends[number]] for number in known}
        rare = [number for number in known if len(rows[number]) <= COMMON * len(self.targets)] or known
        if not rare:
            return text
        scores = np.zeros(len(self.targets))
        for number in rare:
            scores[rows[number]] += self._idf[number] ** 2
        candidates = np.flatnonzero(scores)
        return self.targets[int(candidates[np.argmax(scores[candidates] / self._norms[candidates])])]


def split_words(text: str) -> list[str]:
    """Returns words and punctuation in lower case; in scripts without spaces, each character by itself."""
    words: list[str] = []
    for word in WORDS.findall(text.lower()):
        words += list(word) if UNSPACED.search(word) else [word]
    return words
