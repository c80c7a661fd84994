"""Masked tokens: which ones a model has to predict, and what it reads in their place.

    15 % of the tokens are selected, at least one in every sequence; of these
    80 % become [MASK], 10 % a random token, 10 % stay as they are                         Devlin et al. 2019

Tokens that stay or are replaced must be predicted, too, so that the model cannot trust what it reads. With whole-word
masking all tokens of a word are selected together, so that none gives the others away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...core.random import numpy_stream
from ...data.tokenizers import Tokenizer
from ..batching import Batch
from .passages import Passages

MASKED, REPLACED = 0.8, 0.1  # shares of the selected tokens


@dataclass(frozen=True)
class Masking:
    """Selects and replaces tokens.

    Args:
        mask: The id of [MASK].
        ordinary: Whether each id (V,) is not a special token.
        rate: The share of tokens that are selected.
        continues_word: Whether each id (V,) continues a word; None if tokens are selected independently.
    """

    mask: int
    ordinary: np.ndarray
    rate: float = 0.15
    continues_word: np.ndarray | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float, whole_word: bool) -> Masking:
        """Returns the masking for the tokens of a tokenizer."""
        ordinary = np.ones(tokenizer.vocab_size, dtype=bool)
        specials = (tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk)
        ordinary[[token for token in specials if token is not None]] = False
        mask = -1 if tokenizer.mask is None else tokenizer.mask
        return cls(mask, ordinary, rate, tokenizer.continues_word if whole_word else None)

    def select(self, tokens: np.ndarray, text: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Returns which tokens are to be predicted (B,T).

        Args:
            tokens: The token ids (B,T).
            text: Which of them belong to a text (B,T), not to its frame or padding.
            random: Draws.
        """
        free = text & self.ordinary[tokens]
        free |= text & ~free.any(axis=1, keepdims=True)  # a sequence of unknown tokens has a target, too
        counts = np.maximum(np.rint(self.rate * free.sum(axis=1)), 1).astype(np.int64)  # (B,)
        keys = random.random(tokens.shape, dtype=np.float32)
        if self.continues_word is None:
            order = np.where(free, keys, np.inf).argsort(axis=1)
            first = np.arange(tokens.shape[1]) < counts[:, None]
        else:
            words = np.cumsum(~self.continues_word[tokens], axis=1)  # the same number for all tokens of a word
            words = np.where(free, words, -1)
            keys = np.where(free, np.take_along_axis(keys, np.minimum(words, keys.shape[1] - 1), axis=1), np.inf)
            order = keys.argsort(axis=1, kind="stable")
            first = first_whole_words(np.take_along_axis(words, order, axis=1), counts)
        selected = np.zeros(tokens.shape, dtype=bool)
        np.put_along_axis(selected, order, first, axis=1)
        return selected & free

    def replace(self, tokens: np.ndarray, selected: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Returns what the model reads (B,T)."""
        numbers = random.random(tokens.shape, dtype=np.float32)
        ordinary = np.flatnonzero(self.ordinary)
        inputs = tokens.copy()
        inputs[selected & (numbers < MASKED)] = self.mask
        replaced = selected & (numbers >= MASKED) & (numbers < MASKED + REPLACED)
        inputs[replaced] = ordinary[random.integers(0, len(ordinary), int(replaced.sum()))]
        return inputs


def first_whole_words(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns which tokens belong to the first words that fit into `counts` (B,) tokens, at least to one word.

    Args:
        words: The word of each token (B,T), the tokens of a word side by side.
        counts: The largest number of tokens of each row (B,).
    """
    rows, length = np.arange(len(words)), words.shape[1]
    last = words[rows, np.minimum(counts, length) - 1]
    broken = (counts < length) & (words[rows, np.minimum(counts, length - 1)] == last)  # it does not fit as a whole
    first = (np.arange(length) < counts[:, None]) & ~(broken[:, None] & (words == last[:, None]))
    return first | (words == words[:, :1])


# Batches and predictions


@dataclass(frozen=True)
class MaskedBatch:
    """Drawn passages with masks."""

    tokens: np.ndarray  # (B,T) the true tokens
    inputs: np.ndarray  # (B,T) what the model reads
    selected: np.ndarray  # (B,T) which tokens it must predict
    lengths: np.ndarray  # (B,)
    unrelated: np.ndarray  # (B,)

    @classmethod
    def draw(
        cls, passages: Passages, spans: np.ndarray, masking: Masking | None, seed: int, name: str, number: int
    ) -> MaskedBatch:
        """Draws passages of spans, and masks, from the random streams of a name and a number."""
        pairs = passages.draw(spans, numpy_stream(seed, f"{name} pairs", number))
        if masking is None:
            nothing = np.zeros(pairs.tokens.shape, dtype=bool)
            return cls(pairs.tokens, pairs.tokens, nothing, pairs.lengths, pairs.unrelated)
        random = numpy_stream(seed, f"{name} masks", number)
        selected = masking.select(pairs.tokens, pairs.text, random)
        inputs = masking.replace(pairs.tokens, selected, random)
        return cls(pairs.tokens, inputs, selected, pairs.lengths, pairs.unrelated)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def pair_weight(self) -> float:
        """Masked tokens per pair."""
        return float(self.selected.sum() / len(self)) if self.selected.any() else 1.0

    def take(self, rows: slice | np.ndarray) -> MaskedBatch:
        """Returns some rows, padded to the longest of them."""
        longest = int(self.lengths[rows].max())
        tokens, inputs, selected = (block[rows, :longest] for block in (self.tokens, self.inputs, self.selected))
        return MaskedBatch(tokens, inputs, selected, self.lengths[rows], self.unrelated[rows])

    def to_batch(self, pair_weight: float) -> Batch:
        """Returns the tensors; `pair_weight` is that of the whole step."""
        steps = self.inputs.shape[1]
        mask = None if int(self.lengths.min()) == steps else torch.from_numpy(np.arange(steps) < self.lengths[:, None])
        positions = np.flatnonzero(self.selected)
        targets = {
            "positions": torch.from_numpy(positions),  # (M,) among all B·T
            "tokens": torch.from_numpy(self.tokens.reshape(-1)[positions]),  # (M,)
            "unrelated": torch.from_numpy(self.unrelated),  # (B,)
            "pair_weight": torch.tensor(pair_weight),
        }
        return Batch(torch.from_numpy(self.inputs), targets, len(positions) or len(self), mask)


@dataclass(frozen=True)
class PretrainPredictions:
    """Predictions of masked tokens (M,) and pairs (R,)."""

    row: np.ndarray  # of each token
    position: np.ndarray  # in its row
    token: np.ndarray  # the true one
    shown: np.ndarray  # what the model read instead
    best: np.ndarray  # the most likely one
    log_prob: np.ndarray  # of the true token
    unrelated: np.ndarray  # whether a pair is from two documents
    predicted: np.ndarray  # whether it was taken for one
    pair_log_prob: np.ndarray  # of the truth
