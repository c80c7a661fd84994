"""What an n-gram model computes: log-probabilities of texts and of next tokens, from its sorted tables, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...core.errors import SeriatimError
from ...core.files import Json
from . import counting

QUERY = 1 << 18  # positions scored at a time
DIRECT = ("none", "add-k")  # smoothings that back off to 1/V, not to a shorter context
END = np.iinfo(np.int64).max  # after the last key, so that a search always returns a valid index

Array = np.ndarray


class Scorer(Protocol):
    """The log-probabilities of one n-gram model, or of several that are mixed."""

    @property
    def order(self) -> int:
        """The largest number of tokens of an n-gram."""

    @property
    def smoothing(self) -> str:
        """How unseen continuations get a probability."""

    @property
    def direct(self) -> bool:
        """Whether it backs off to 1/V, not to a shorter context."""

    @property
    def entries(self) -> int:
        """The number of stored numbers."""

    @property
    def tables(self) -> Sequence[Table]:
        """The tables of the model, or of the models that it mixes."""

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays to store, by name."""

    def describe(self) -> Json:
        """Returns the n-grams by order, the numbers and bytes stored, and the discounts if they are known."""

    def log_probs(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the natural log p of each token after all earlier ones; `context` precedes the first."""

    def order_used(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the order of the longest stored n-gram that ends with each token: below `order` if it backs off."""

    def shares(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the share of each order in the probability of each token (T,order), for interpolated smoothing."""

    def next_log_probs(self, contexts: Array) -> Array:
        """Returns the log p of every next token (N,V) after contexts (N,order−1), padded with −1 on the left."""

    def has_distribution(self, contexts: Array) -> Array:
        """Returns which of the contexts (N,order−1) have a distribution; with smoothing all have."""


@dataclass(frozen=True, eq=False)
class Level:
    """The n-grams of one order. Arrays have an empty last element, at index −1: that of n-grams that are not stored."""

    keys: Array  # int64, ascending
    log_probs: Array  # float32
    back_off: Array  # float32: log γ of the n-gram as a context; 0 if it is none
    context: Array  # bool: whether a longer n-gram begins with it

    @classmethod
    def of(cls, keys: Array, log_probs: Array, back_off: Array, children: Array, vocab_size: int) -> Level:
        """Returns the level of stored arrays; `children` are the keys of the next order."""
        context = np.zeros(len(keys) + 1, bool)
        context[children // vocab_size] = True
        log_probs, back_off = (np.append(values, np.float32(0)) for values in (log_probs, back_off))
        return cls(np.append(keys, END), log_probs, back_off, context)


@dataclass(frozen=True, eq=False)
class Table:
    """The tables of one n-gram model.

    Args:
        levels: The n-grams of each order, from single tokens up.
        vocab_size: The number of tokens V.
        boundary: The token between documents or lines, if there is one.
        smoothing: How unseen continuations get a probability.
        pruned: Whether n-grams of the text were dropped.
        discounts: Of each order, for counts of 1, of 2, and of 3 and more (order,3); None if unknown.
    """

    levels: Sequence[Level]
    vocab_size: int
    boundary: int | None
    smoothing: str
    pruned: bool = False
    discounts: Array | None = None

    @classmethod
    def of(
        cls,
        levels: Sequence[tuple[Array, Array, Array]],
        vocab_size: int,
        boundary: int | None,
        smoothing: str,
        pruned: bool = False,
        discounts: Array | None = None,
    ) -> Table:
        """Returns the table of (keys, log p, log γ) of each order."""
        longer = [keys for keys, _, _ in levels[1:]] + [np.zeros(0, np.int64)]
        stored = [Level.of(*level, children, vocab_size) for level, children in zip(levels, longer, strict=True)]
        return cls(stored, vocab_size, boundary, smoothing, pruned, discounts)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], order: int, smoothing: str, vocab_size: int) -> Table:
        """Returns the table of stored arrays: the inverse of `arrays`."""
        named = {"keys.1": np.arange(vocab_size), **arrays}
        levels = [(named[f"keys.{m}"], named[f"log_probs.{m}"], named[f"back_off.{m}"]) for m in range(1, order + 1)]
        if any(len({*map(len, level)}) > 1 for level in levels):
            raise KeyError("tensors of equal length for each order")
        boundary, pruned = int(named["boundary"][0]), bool(named["pruned"][0])
        discounts = named.get("discounts")
        copied = None if discounts is None else np.array(discounts)
        return cls.of(levels, vocab_size, None if boundary < 0 else boundary, smoothing, pruned, copied)

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def direct(self) -> bool:
        return self.smoothing in DIRECT

    @property
    def tables(self) -> Sequence[Table]:
        return (self,)

    @property
    def entries(self) -> int:
        """The number of stored numbers: log p of each n-gram, log γ of each context."""
        return sum(len(level.keys) - 1 + int(np.count_nonzero(level.context)) for level in self.levels)

    def describe(self) -> Json:
        return {
            "ngrams": [len(level.keys) - 1 for level in self.levels],
            "entries": self.entries,
            "bytes": sum(array.nbytes for array in self.arrays().values()),
            "discounts": None if self.discounts is None else self.discounts.tolist(),
            "pruned": self.pruned,
        }

    def arrays(self) -> dict[str, Array]:
        boundary = -1 if self.boundary is None else self.boundary
        arrays = {"pruned": np.array([self.pruned], np.uint8), "boundary": np.array([boundary])}
        if self.discounts is not None:
            arrays["discounts"] = self.discounts
        for m, level in enumerate(self.levels, start=1):
            arrays |= {f"log_probs.{m}": level.log_probs[:-1], f"back_off.{m}": level.back_off[:-1]}
            arrays |= {f"keys.{m}": level.keys[:-1]} if m > 1 else {}  # unigrams: every id
        return arrays

    # Scoring

    def log_probs(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the natural log p of each token after all earlier ones; `context` precedes the first."""
        return self._score(tokens, context)[0]

    def order_used(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the order of the longest stored n-gram that ends with each token: below `order` if it backs off."""
        return self._score(tokens, context)[1]

    def shares(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the share of each order in the probability of each token (T,order), for interpolated smoothing.

        p(w | h) is the discounted count of the whole context, plus γ(h) times the p of a shorter one.
        """
        before = self._relevant_context(context)
        line = self._check_ids(np.concatenate([before, tokens]))
        parts = np.zeros((self.order, len(line)))
        self._score_line(line, parts)
        return (parts / parts.sum(axis=0)).T[len(before) :]

    def next_log_probs(self, contexts: Array) -> Array:
        """Returns the log p of every next token (N,V).

        With smoothing `none` the row of an unseen context is −inf (see `has_distribution`).

        Args:
            contexts: The last order−1 tokens (N,order−1), padded with −1 on the left.
        """
        contexts = np.asarray(contexts)
        score = np.repeat(self.levels[0].log_probs[None, :-1], len(contexts), axis=0)  # (N,V)
        for m, (indices, whole) in enumerate(self._find_contexts(contexts)):
            score = self._back_off(self.levels[m], indices[:, None], whole[:, None], score)
            keys = self.levels[m + 1].keys
            begin, end = (np.searchsorted(keys, (indices + offset) * self.vocab_size) for offset in (0, 1))
            rows = np.repeat(np.arange(len(indices)), end - begin)
            stored = np.arange(len(rows)) + np.repeat(begin - np.cumsum(end - begin) + (end - begin), end - begin)
            score[rows, keys[stored] % self.vocab_size] = self.levels[m + 1].log_probs[stored]
        return score

    def has_distribution(self, contexts: Array) -> Array:
        """Returns which of the contexts (N,order−1) have a distribution; with smoothing all have."""
        known = np.ones(len(contexts), bool)
        if self.smoothing == "none" and not self.pruned:
            for level, (indices, whole) in zip(self.levels, self._find_contexts(np.asarray(contexts)), strict=False):
                known &= ~whole | level.context[indices]
        return known

    def _score(self, tokens: Array, context: Array | None) -> tuple[Array, Array]:
        n, before = self.order - 1, self._relevant_context(context)
        scores, orders = np.empty(len(tokens)), np.empty(len(tokens), np.int8)
        for start in range(0, len(tokens), QUERY):
            new = np.asarray(tokens[start : start + QUERY])
            line = self._check_ids(np.concatenate([before, new]))
            window = slice(start, start + len(new))
            scores[window], orders[window] = (values[len(before) :] for values in self._score_line(line))
            before = line[max(0, len(line) - n) :]
        return scores, orders

    def _relevant_context(self, context: Array | None) -> Array:
        """Returns the last order−1 tokens of a context, after a boundary if there are fewer."""
        n = self.order - 1
        before = np.zeros(0, np.int64) if context is None else np.asarray(context)[max(0, len(context) - n) :]
        return np.concatenate([[self.boundary], before]) if self.boundary is not None and len(before) < n else before

    def _score_line(self, line: Array, parts: Array | None = None) -> tuple[Array, Array]:
        """Returns log p and order of each token of an array; `parts` (order,T) receives each order's share of p."""
        score, order = self.levels[0].log_probs[line].astype(np.float64), np.ones(len(line), np.int8)
        indices = line  # of the n-gram that starts here, −1 if it is not stored
        whole = np.ones(len(line), bool)  # whether it crosses no boundary
        if parts is not None:
            parts[0] = np.exp(score)
        for m, level in enumerate(self.levels[1:], start=1):
            contexts, whole = indices[:-1], whole[:-1]
            if m > 1 and self.boundary is not None:
                whole = whole & (line[m - 1 : -1] != self.boundary)
            indices = self._find(level, contexts, line[m:])
            stored = indices >= 0
            rest = self._back_off(self.levels[m - 1], contexts, whole, score[m:])
            score[m:] = np.where(stored, level.log_probs[indices], rest)
            order[m:][stored] = m + 1
            if parts is not None:
                parts[:m, m:] *= np.exp(self.levels[m - 1].back_off[contexts])
                parts[m, m:] = np.where(stored, np.maximum(np.exp(score[m:]) - np.exp(rest), 0.0), 0.0)
        return score, order

    def _find(self, level: Level, contexts: Array, tokens: Array) -> Array:
        """Returns the indices of n-grams in a level, −1 if not stored, as after a context of −1."""
        indices = np.full(len(contexts), -1)
        rows = np.flatnonzero(contexts >= 0)  # most longer contexts of a new text are not stored
        keys = contexts[rows] * self.vocab_size + tokens[rows]
        candidates = counting.search(level.keys, keys)
        stored = level.keys[candidates] == keys
        indices[rows[stored]] = candidates[stored]
        return indices

    def _find_contexts(self, contexts: Array) -> list[tuple[Array, Array]]:
        """Returns, for the last 1, 2, … tokens, their indices and whether they exist and cross no boundary."""
        contexts = self._check_ids(contexts, lowest=-1)
        if contexts.shape[1:] != (self.order - 1,) or ((contexts[:, 1:] < 0) & (contexts[:, :-1] >= 0)).any():
            raise SeriatimError(
                "ngram.context",
                f"contexts of shape {contexts.shape}, or with −1 after a token; expected (N, {self.order - 1})",
                "pad on the left with −1",
            )
        if self.boundary is not None:
            contexts = np.where(contexts < 0, self.boundary, contexts)  # a boundary precedes the text
        results = []
        for first in range(contexts.shape[1] - 1, -1, -1):
            indices = contexts[:, first]
            for m, column in enumerate(range(first + 1, contexts.shape[1]), start=1):
                indices = self._find(self.levels[m], indices, contexts[:, column])
            inner = contexts[:, first + 1 :]
            crosses = (inner == self.boundary).any(1) if self.boundary is not None else contexts[:, first] < 0
            results.append((indices, ~crosses))
        return results

    def _back_off(self, level: Level, contexts: Array, whole: Array, shorter: Array) -> Array:
        """Returns the log p of tokens not stored after these contexts, from their log p after shorter ones."""
        weights: Array = level.back_off[contexts]
        interpolated: Array = weights + shorter
        if not self.direct:
            return interpolated
        uniform = np.float32(-np.log(self.vocab_size))
        unseen = np.float32(-np.inf) if self.smoothing == "none" else uniform
        without_context = shorter if self.pruned else np.where(whole, unseen, shorter)
        return np.where(level.context[contexts], weights + uniform, without_context)

    def _check_ids(self, ids: Array, lowest: int = 0) -> Array:
        if ids.size and not lowest <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise counting.token_error(ids, lowest, self.vocab_size)
        return ids.astype(np.int64, copy=False)
