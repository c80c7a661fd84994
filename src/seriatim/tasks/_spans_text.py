"""Passages as tokens, each of which knows the characters it stands for, to the letter."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..data.sequences import Sequences
from ..data.tokenizers import Tokenizer


@dataclass(frozen=True)
class Passages:
    """Texts as tokens. Token i stands for the characters starts[i] … ends[i]−1 of its text, without white space around
    them; one of nothing else has ends[i] = starts[i]."""

    texts: list[str]
    tokens: Sequences
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Passages:
        found = [placed(tokenizer, text) for text in texts]
        starts, ends = (np.concatenate([one[i] for one in found] or [np.zeros(0, np.int64)]) for i in (1, 2))
        return cls(list(texts), Sequences.of([ids for ids, _, _ in found]), starts, ends)

    @cached_property
    def sayable(self) -> np.ndarray:
        """The tokens that an answer may begin and end with."""
        return self.starts < self.ends

    def span(self, passage: int, start: int, end: int) -> tuple[int, int]:
        """The first and the last token of some characters; the last before the first where no token stands for them."""
        first, stop = self.tokens.starts[passage], self.tokens.ends[passage]
        begins, ends = self.starts[first:stop], self.ends[first:stop]
        return int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(begins, end, side="left")) - 1


def placed(tokenizer: Tokenizer, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens of a text, and where each begins and ends in it.

    Accents that a tokenizer leaves out belong to the letter before them.
    """
    ids, spans = tokenizer.encode_spans(text)
    begins, ends = spans.T
    blank = np.append(np.fromiter(map(str.isspace, text), bool, len(text)), False)
    starts = np.where(blank[begins], ends, begins)  # white space stands at the edge of a token where it is all there is
    if not text.isascii():
        places = np.arange(len(text) + 1)
        accents = np.append([unicodedata.category(character)[0] == "M" for character in text], False)
        behind = np.minimum.accumulate(np.where(accents, len(text), places)[::-1])[::-1]  # the next that is no accent
        reached = np.minimum(behind[ends], np.append(begins[1:], len(text)))
        ends = np.where(starts < ends, np.maximum(reached, ends), ends)
    return ids, starts, ends
