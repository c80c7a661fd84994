"""Statistics of texts in bounded memory: lengths, words, characters, duplicates, and what only held-out texts have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_WORDS = 1 << 19  # distinct words that are counted
MAX_HASHES = 1 << 19  # lines that are compared; of more, a sample
MAX_LISTED = 10
EXAMPLE_LENGTH = 60  # characters of a text in an example

# C0 and C1 controls except tab, line feed and carriage return; U+0085 and the separators 0x1C to 0x1F are among them.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass
class TextStatistics:
    """Counts texts one by one; lengths are in characters for lines of a stream, in words for the cells of a column."""

    by_words: bool
    texts: int = 0
    empty: int = 0
    length: int = 0  # of all texts
    longest: tuple[int, int] = (0, 0)  # its length, and its number from 0
    words: int = 0
    complete: bool = True  # whether all distinct words are counted
    lone_returns: int = 0
    controls: int = 0
    first_controls: list[int] = field(default_factory=list)  # the numbers of the first texts with them
    replacements: int = 0
    duplicates: int = 0
    sampled: int = 1  # one text in so many is compared
    characters: Counter[str] = field(default_factory=Counter)
    word_counts: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    length_counts: Counter[int] = field(default_factory=Counter)  # by the number of bits
    trained_words: set[str] = field(default_factory=set)
    trained_characters: set[str] = field(default_factory=set)
    hashes: set[int] = field(default_factory=set)

    def count(self, texts: Iterable[str], held_out: Iterable[bool]) -> TextStatistics:
        """Counts texts, each with whether it is in the validation or test split, and returns the statistics."""
        for text, is_held_out in zip(texts, held_out, strict=False):
            self.add(text, is_held_out)
        return self

    def add(self, text: str, is_held_out: bool) -> None:
        words = text.split()
        characters = Counter(text)
        self.characters.update(characters)
        self.words += len(words)
        if not self.complete:
            self.word_counts.update(word for word in words if word in self.word_counts)
        else:
            self.word_counts.update(words)
            self.complete = len(self.word_counts) < MAX_WORDS
        if not is_held_out:
            self.trained_words.update(words if self.complete else ())
            self.trained_characters.update(characters)
        size = len(words) if self.by_words else len(text)
        if size > self.longest[0]:
            self.longest = (size, self.texts)
        self.length += size
        self.length_counts[size.bit_length()] += 1
        self.lone_returns += characters.get("\r", 0)
        self.replacements += characters.get("\ufffd", 0)
        if not text.isprintable() and (controls := CONTROL.findall(text)):
            self.controls += len(controls)
            if len(self.first_controls) < MAX_LISTED // 2:
                self.first_controls.append(self.texts)
        if words:
            self._compare(text)
        else:
            self.empty += 1
        self.texts += 1

    def _compare(self, text: str) -> None:
        mark = hash(text)
        if mark % self.sampled:
            return
        if mark in self.hashes:
            self.duplicates += 1
            shown = text if len(text) <= EXAMPLE_LENGTH else text[:EXAMPLE_LENGTH] + "…"
            if shown in self.repeated or len(self.repeated) < 1000:
                self.repeated[shown] += 1
            return
        self.hashes.add(mark)
        if len(self.hashes) > MAX_HASHES:
            self.sampled *= 2
            self.hashes = {mark for mark in self.hashes if mark % self.sampled == 0}
            self.duplicates //= 2

    @property
    def duplicate_count(self) -> int:
        """How many texts repeat an earlier one; an estimate if `sampled` is above 1."""
        return self.duplicates * self.sampled

    @property
    def mean_length(self) -> float:
        return self.length / max(self.texts, 1)

    @property
    def once(self) -> float:
        """The share of distinct words that occur a single time."""
        return sum(count == 1 for count in self.word_counts.values()) / max(len(self.word_counts), 1)

    @property
    def rarest_characters(self) -> list[tuple[str, int]]:
        return sorted(self.characters.items(), key=lambda item: (item[1], item[0]))[:MAX_LISTED]

    @property
    def unseen_words(self) -> int:
        """Distinct words that only held-out texts have."""
        return len(self.word_counts.keys() - self.trained_words)

    @property
    def unseen_characters(self) -> list[tuple[str, int]]:
        """Characters that only held-out texts have, the most frequent first."""
        unseen = [
            (character, self.characters[character]) for character in self.characters.keys() - self.trained_characters
        ]
        return sorted(unseen, key=lambda item: (-item[1], item[0]))

    @property
    def histogram(self) -> list[tuple[int, int, int]]:
        """The number of texts by length: from, to, texts."""
        top = max(self.length_counts, default=-1)
        edges = [(0, 0), *((1 << n, (2 << n) - 1) for n in range(top))]
        return [(low, high, self.length_counts[n]) for n, (low, high) in enumerate(edges) if top >= 0]
