"""Next words: the likeliest words after a prompt, by a language model whose tokens may be smaller than words.

A word is letters and digits, with apostrophes and hyphens inside it ("don't", "well-known"); any other sign is a unit
of its own, and so is a line end. The probability of a word is that of all token sequences that spell it and then
something that ends it:

    p(word | prompt) = Σ p(tokens | prompt)    over tokens whose text is the word and what cannot continue it

Hypotheses grow by one token at a time, all with one call of the model. What ends a word is summed over the vocabulary,
so that no hypothesis is needed for it. A hypothesis that is less probable than `top` words found already is dropped,
and only the `beams` most probable are kept. The probability of a word is that of the ways to write it that were found:
all of them sum to at most one, and the rest, `unaccounted`, is that of what was dropped. The exact probability of any
word is larger than the one found by at most that.

A prompt whose last word may go on is not tokenized to its end: the tokens of "students" need not begin with the tokens
of "stud". Token sequences must begin with its last part, the `prefix`, and probabilities are conditional on that.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from ..core.state import State, select
from .sampling import Step

JOINERS = "'’-"  # continue a word if a letter follows
END = "<eos>"  # the end of the text, as a word
SPACED_UNIT = re.compile(r"\n|[^ \n]+")
INCOMPLETE = "\ufffd"  # the bytes of half a character


@cache
def in_word(character: str) -> bool:
    """Returns whether a character is a letter, a digit, or a mark on one."""
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


@dataclass(frozen=True)
class Units:
    """The words, signs and line ends of a text."""

    words: tuple[str, ...]  # complete: later tokens cannot change them
    ends: tuple[int, ...]  # where each ends in the text
    rest: str  # a word that may go on

    @property
    def joined(self) -> bool:
        """Whether the rest ends with a sign that continues a word only if a letter follows."""
        return self.rest[-1:] in JOINERS if self.rest else False


def split_units(text: str) -> Units:
    """Returns the units of a text."""
    words, ends, start = list[str](), list[int](), 0
    while start < len(text):
        end = start
        while end < len(text) and (
            in_word(text[end])
            or (end > start and text[end] in JOINERS and (end + 1 == len(text) or in_word(text[end + 1])))
        ):
            end += 1
        if start < end == len(text):
            return Units(tuple(words), tuple(ends), text[start:])
        end = max(end, start + 1)
        if text[start] == "\n" or not text[start].isspace():
            words.append(text[start:end])
            ends.append(end)
        start = end
    return Units(tuple(words), tuple(ends), "")


class Pieces:
    """What each token of a vocabulary adds to a text.

    Args:
        pieces: The bytes of each token. With `spaced`, those that begin a word begin with a blank.
        spaced: Whether words are what lies between blanks: the tokenizer has its own words, and drops white space.
        end: The token that ends a text, if it has no bytes.
        unknown: Tokens that cannot be spelled.
    """

    def __init__(self, pieces: Sequence[bytes], spaced: bool, end: int | None, unknown: Sequence[int]) -> None:
        self.pieces, self.spaced, self.unknown, self.end = pieces, spaced, list(unknown), end
        self.all_begin = spaced and all(piece[:1] == b" " for piece in pieces)  # no token continues a word

    def units(self, text: str) -> Units:
        """Returns the units of a text."""
        if not self.spaced:
            return split_units(text)
        matches = list(SPACED_UNIT.finditer(text))
        may_go_on = bool(matches) and matches[-1].end() == len(text) and text[-1] != "\n" and not self.all_begin
        rest = matches.pop().group() if may_go_on else ""
        return Units(tuple(match.group() for match in matches), tuple(match.end() for match in matches), rest)

    @cached_property
    def _firsts(self) -> list[str]:
        return [piece[:4].decode("utf-8", "replace")[:1] or INCOMPLETE for piece in self.pieces]

    @cached_property
    def ends_word(self) -> np.ndarray:
        """Whether each token (V,) ends a word that it follows."""
        if self.spaced:
            return self._mask(index for index, piece in enumerate(self.pieces) if piece[:1] == b" ")
        continues = (INCOMPLETE, *JOINERS)
        return self._mask(i for i, first in enumerate(self._firsts) if first not in continues and not in_word(first))

    @cached_property
    def ends_joined(self) -> np.ndarray:
        """Whether each token (V,) ends a word that it follows after a sign that may continue one."""
        return self._mask(i for i, first in enumerate(self._firsts) if first != INCOMPLETE and not in_word(first))

    def _mask(self, tokens: Iterable[int]) -> np.ndarray:
        mask = np.zeros(len(self.pieces), bool)
        mask[list(tokens)] = True
        mask[self.unknown] = self.spaced  # an unknown word; an unknown character may be a letter
        if self.end is not None:
            mask[self.end] = True
        return mask

    @cached_property
    def _sorted(self) -> tuple[list[bytes], np.ndarray]:
        order = sorted(range(len(self.pieces)), key=self.pieces.__getitem__)
        return [self.pieces[index] for index in order], np.array(order)

    def matching(self, prefix: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens that start with a prefix, and the tokens that are shorter starts of it."""
        ordered, tokens = self._sorted
        first = bisect_left(ordered, prefix)
        last = bisect_left(ordered, True, lo=first, key=lambda piece: not piece.startswith(prefix))
        shorter = []
        for length in range(1, 1 if self.all_begin else len(prefix)):
            at = bisect_left(ordered, prefix[:length])
            while at < len(ordered) and ordered[at] == prefix[:length]:
                shorter.append(tokens[at])
                at += 1
        known = ~np.isin(tokens[first:last], self.unknown)
        return tokens[first:last][known], np.array(shorter, dtype=np.int64)


@dataclass(frozen=True)
class NextWords:
    """A result of `search_words`."""

    words: tuple[str, ...]
    completion: str  # what follows the prompt
    probability: float


@dataclass(frozen=True)
class Hypothesis:
    """Tokens after the prompt, by what they spell."""

    mass: float  # their probability
    text: bytes  # of the unfinished word at the end of the prompt and of the tokens, once the prefix is spelled
    prefix: bytes  # that is still to be spelled
    units: Units

    @property
    def incomplete(self) -> bool:
        return self.text[-1:] > b"\x7f" and self.text[-4:].decode("utf-8", "replace")[-1] == INCOMPLETE


@dataclass
class Found:
    """The words found so far: their probabilities, and the likeliest way to write them."""

    mass: dict[tuple[str, ...], float] = field(default_factory=dict)
    best: dict[tuple[str, ...], tuple[float, str]] = field(default_factory=dict)

    def add(self, words: tuple[str, ...], completion: str, mass: float) -> None:
        if mass <= 0:
            return
        self.mass[words] = self.mass.get(words, 0.0) + mass
        if words not in self.best or mass > self.best[words][0]:
            self.best[words] = mass, completion

    def threshold(self, top: int) -> float:
        """Returns the probability of the `top`-th word, 0 if there are fewer."""
        return 0.0 if len(self.mass) < top else float(np.partition(list(self.mass.values()), -top)[-top])


class WordSearch:
    """The hypotheses of `search_words`, all of one length, and what they have led to."""

    def __init__(self, pieces: Pieces, partial: str, prefix: bytes, words: int, top: int, beams: int) -> None:
        self.pieces, self.partial, self.words, self.top, self.beams = pieces, partial, words, top, beams
        self.hypotheses = [Hypothesis(1.0, partial.encode(), prefix, pieces.units(partial))]
        self.found = Found()
        # The probability of sequences that spell the prefix, and of sequences that spell a start of it.
        self.spelled, self.spelling = (0.0, 1.0) if prefix else (1.0, 0.0)

    def advance(self, log_probs: Tensor) -> tuple[list[int], list[int]]:
        """Replaces each hypothesis by those with one more token; returns their rows before, and the tokens.

        Args:
            log_probs: Of the next token of each hypothesis (N,V).
        """
        mass = np.array([hypothesis.mass for hypothesis in self.hypotheses])
        joint = log_probs.cpu().double().exp().numpy() * mass[:, None]  # (N,V)
        for hypothesis, row in zip(self.hypotheses, joint, strict=True):
            if hypothesis.prefix:
                self._match_prefix(hypothesis, row)
            elif hypothesis.units.rest and len(hypothesis.units.words) == self.words - 1:
                self._end_word(hypothesis, row)
        joint[:, self.pieces.unknown] = 0.0
        candidates, most = joint.reshape(-1), self.beams + self.top  # if `top` of them are words, no other is needed
        likely = np.flatnonzero(candidates > self.found.threshold(self.top))
        if len(likely) > most:
            likely = likely[np.argpartition(candidates[likely], -most)[-most:]]
        likely = likely[np.argsort(-candidates[likely], kind="stable")]
        grown = list[tuple[Hypothesis, int, int]]()
        for index in likely.tolist():
            row, token = divmod(index, joint.shape[1])
            longer = self._extend(self.hypotheses[row], token, float(candidates[index]))
            if longer is not None and len(grown) < self.beams:
                grown.append((longer, row, token))
        least = self.found.threshold(self.top)
        grown = [entry for entry in grown if entry[0].mass > least]
        self.hypotheses = [hypothesis for hypothesis, _, _ in grown]
        return [row for _, row, _ in grown], [token for _, _, token in grown]

    def _match_prefix(self, hypothesis: Hypothesis, row: np.ndarray) -> None:
        """Clears the tokens (V,) that do not go on with the prefix."""
        covering, shorter = self.pieces.matching(hypothesis.prefix)
        if self.pieces.spaced and hypothesis.prefix == b" ":
            self.spelled += float(row[self.pieces.unknown].sum())  # a word, but not one that can be listed
        matching = np.concatenate([covering, shorter])
        kept = row[matching]
        self.spelled += float(kept[: len(covering)].sum())
        self.spelling += float(kept[len(covering) :].sum()) - hypothesis.mass
        row[:] = 0.0
        row[matching] = kept

    def _end_word(self, hypothesis: Hypothesis, row: np.ndarray) -> None:
        """Adds the last word with the tokens (V,) that end it, and clears them."""
        if hypothesis.incomplete:
            return
        joined = hypothesis.units.joined and not self.pieces.spaced
        ending = self.pieces.ends_joined if joined else self.pieces.ends_word
        cut = -1 if joined else None
        completion = hypothesis.text.decode("utf-8", "replace")[len(self.partial) : cut]
        words = (*hypothesis.units.words, hypothesis.units.rest[:cut])
        self.found.add(words, completion, float(row[ending].sum()))
        row[ending] = 0.0

    def _extend(self, hypothesis: Hypothesis, token: int, mass: float) -> Hypothesis | None:
        """Returns a hypothesis with one more token; None if it is complete: then its words are recorded."""
        if token == self.pieces.end:
            written = hypothesis.text.decode("utf-8", "replace")
            words = (*self.pieces.units(f"{written} ").words, END)[: self.words]
            self.found.add(words, written[len(self.partial) :], mass)
            return None
        piece = self.pieces.pieces[token]
        common = min(len(hypothesis.prefix), len(piece))
        text, prefix = hypothesis.text + piece[common:], hypothesis.prefix[common:]
        written = text.decode("utf-8", "replace")
        units = self.pieces.units(written.rstrip(INCOMPLETE) if text[-1:] > b"\x7f" else written)
        if prefix or len(units.words) < self.words:
            return Hypothesis(mass, text, prefix, units)
        completion = written[len(self.partial) : units.ends[self.words - 1]]
        self.found.add(units.words[: self.words], completion, mass)
        return None

    def results(self) -> tuple[list[NextWords], float]:
        """Returns the words found, best first, and the probability of what was not found."""
        total, mass = self.spelled + max(self.spelling, 0.0), self.found.mass
        if total <= 0:
            return [], 1.0
        ranked = sorted(mass, key=lambda words: -mass[words])[: self.top]
        results = [NextWords(words, self.found.best[words][1], mass[words] / total) for words in ranked]
        return results, max(1.0 - sum(mass.values()) / total, 0.0)


@torch.inference_mode()
def search_words(
    step: Step,
    log_probs: Tensor,
    state: State,
    pieces: Pieces,
    partial: str = "",
    prefix: bytes = b"",
    words: int = 1,
    top: int = 10,
    beams: int = 32,
    max_tokens: int = 32,
) -> tuple[list[NextWords], float]:
    """Returns the likeliest next words, best first, and the probability of what was not found.

    Args:
        step: A step of the model.
        log_probs: The log-probabilities (1,V) after the prompt without `prefix`.
        state: The state there.
        pieces: The vocabulary.
        partial: The unfinished word at the end of the prompt, as it is shown.
        prefix: The end of the prompt that the model has not read.
        words: How many words a result has.
        top: How many results.
        beams: Largest number of hypotheses that grow together.
        max_tokens: Largest number of tokens of a hypothesis.
    """
    search = WordSearch(pieces, partial, prefix, words, top, beams)
    for length in range(1, max_tokens + 1):
        rows, tokens = search.advance(log_probs)
        if not rows or length == max_tokens:
            break
        device = log_probs.device
        state = select(state, torch.tensor(rows, device=device))
        log_probs, state = step(torch.tensor(tokens, device=device), state)
    return search.results()
