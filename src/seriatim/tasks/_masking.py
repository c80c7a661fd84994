"""Which tokens are hidden, and what stands in their place.

    15 of 100 tokens are chosen, at least one in every row; of these
    80 of 100 become [MASK], 10 another token drawn at random, 10 stay as they are

Devlin et al. 2019. What stays or is another token is asked for as well, so that a model may not trust what it sees.
Whole words: the pieces of a word are hidden together, so that none gives the others away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.tokenizers import Tokenizer

HIDDEN, CHANGED = 0.8, 0.1  # shares of the chosen tokens


@dataclass(frozen=True)
class Masking:
    mask: int  # the token [MASK]
    ordinary: np.ndarray  # (V,) bool: not a special token
    share: float = 0.15
    continues: np.ndarray | None = None  # (V,) bool: goes on with a word; None: each piece is chosen for itself

    @classmethod
    def of(cls, tokenizer: Tokenizer, share: float, whole_word: bool) -> Masking:
        ordinary = np.ones(tokenizer.size, dtype=bool)
        specials = (tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk)
        ordinary[[index for index in specials if index is not None]] = False
        mask = -1 if tokenizer.mask is None else tokenizer.mask
        return cls(mask, ordinary, share, tokenizer.continues if whole_word else None)

    def choose(self, tokens: np.ndarray, text: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Of tokens (B,T) those that are to be guessed, (B,T); `text` is where tokens of a text stand."""
        free = text & self.ordinary[tokens]
        free |= text & ~free.any(axis=1, keepdims=True)  # a row of nothing but unknown tokens has a target, too
        wanted = np.maximum(np.rint(self.share * free.sum(axis=1)), 1).astype(np.int64)  # (B,)
        keys = draw.random(tokens.shape, dtype=np.float32)
        if self.continues is None:
            order = np.where(free, keys, np.inf).argsort(axis=1)
            kept = np.arange(tokens.shape[1]) < wanted[:, None]
        else:
            words = np.cumsum(~self.continues[tokens], axis=1)  # the same number for all pieces of a word
            words = np.where(free, words, -1)
            keys = np.where(free, np.take_along_axis(keys, np.minimum(words, keys.shape[1] - 1), axis=1), np.inf)
            order = keys.argsort(axis=1, kind="stable")
            kept = _whole(np.take_along_axis(words, order, axis=1), wanted)
        chosen = np.zeros(tokens.shape, dtype=bool)
        np.put_along_axis(chosen, order, kept, axis=1)
        return chosen & free

    def cover(self, tokens: np.ndarray, chosen: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """What the model is shown."""
        fate = draw.random(tokens.shape, dtype=np.float32)
        others = np.flatnonzero(self.ordinary)
        shown = tokens.copy()
        shown[chosen & (fate < HIDDEN)] = self.mask
        changed = chosen & (fate >= HIDDEN) & (fate < HIDDEN + CHANGED)
        shown[changed] = others[draw.integers(0, len(others), int(changed.sum()))]
        return shown


def _whole(words: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Of pieces in the order in which they are wanted, word by word, those of the words that fit; one word at least."""
    rows, steps = np.arange(len(words)), words.shape[1]
    last = words[rows, np.minimum(wanted, steps) - 1]
    broken = (wanted < steps) & (words[rows, np.minimum(wanted, steps - 1)] == last)  # its pieces do not all fit
    kept = (np.arange(steps) < wanted[:, None]) & ~(broken[:, None] & (words == last[:, None]))
    return kept | (words == words[:, :1])
