"""Pairs of texts: the columns of source and target, normalization, splits by the source, and a translation memory."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from ...core.errors import Diagnostics
from ...core.text import UNSPACED, plural
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.split import Grouped
from ..codecs import normalize_text, text_key
from .spec import SIDES

WORDS = re.compile(r"\w+|[^\w\s]")
COMMON = 0.1  # a word in more than this fraction of the sources is skipped, unless there is no other

# Texts


def normalize_columns(rows: Dataset, diagnostics: Diagnostics) -> Dataset:
    """Returns the data set with normalized texts, and notes what was changed. Columns on disk stay as they are."""
    forms = spaces = 0
    for role in SIDES:
        if role not in rows or isinstance(rows[role], TextValues):
            continue
        values = rows[role].copy()
        for row, text in enumerate(values):
            changed = normalize_text(text)
            if changed != text:
                composed = unicodedata.normalize("NFC", text)
                forms, spaces = forms + (composed != text), spaces + (composed != changed)
                values[row] = changed
        column = replace(rows.columns[role][0], values=values)
        rows = replace(rows, columns={**rows.columns, role: (column,)})
    if forms:
        diagnostics.note(f"{plural(forms, 'text')} normalized to Unicode NFC (task.normalize=false keeps them)")
    if spaces:
        diagnostics.note(
            f"{plural(spaces, 'text')}: spaces at the ends, tabs, line ends and runs of spaces became one space"
        )
    return rows


def drop_empty(rows: Dataset, diagnostics: Diagnostics) -> Dataset:
    """Returns the pairs with text on both sides, and notes how many others there were."""
    empty = np.zeros(len(rows), dtype=bool)
    for role in SIDES:
        empty |= rows.columns[role][0].sizes == 0
    if not empty.any():
        return rows
    first = rows.locations[int(empty.argmax())]
    diagnostics.note(f"left out {plural(int(empty.sum()), 'pair')} with an empty side (the first: {first})")
    return rows.take(np.flatnonzero(~empty))


# Splits


def group_sources(dataset: Dataset) -> np.ndarray:
    """Returns a group number per row (rows,): pairs with the same source are in one split."""
    return dataset.group_ids(["source"], text_key)


def hashed_sources(dataset: Dataset, rows: np.ndarray) -> Iterator[tuple[bytes, str]]:
    """Returns what the sources of some rows are hashed by."""
    return ((text_key(source).encode("utf-8", "replace"), "") for source in dataset["source"][rows])


BY_SOURCE = Grouped(
    group_sources,
    "distinct values of source",
    "of the distinct values of source, chosen by a hash",
    hashed_sources,
    at_most=2_000,
)


# The baseline


class TranslationMemory:
    """The baseline of translation: the target of the most similar training source.

    Texts are similar by the words they share, weighted by idf = log(sources / sources with the word): the cosine.
    """

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
