"""Constraints on the next token: forbidden tokens, a minimum length, no repetition, and a forced prefix.

Each function takes log-probabilities (N,V) and returns them with −∞ for tokens that are not allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .settings import GenerationSettings

NO_TOKEN = -1
Prefix = Sequence[Sequence[int]]


def forbid(log_probs: Tensor, tokens: Sequence[int]) -> Tensor:
    if not tokens:
        return log_probs
    return log_probs.index_fill(1, torch.tensor(tokens, device=log_probs.device), -torch.inf)


def penalize_repetition(log_probs: Tensor, past: Tensor, penalty: float) -> Tensor:
    """Multiplies the log-probability of tokens in `past` (N,L; −1: none) by the penalty (Keskar et al. 2019)."""
    if penalty == 1.0 or past.shape[1] == 0:
        return log_probs
    occurred = torch.zeros(len(log_probs), log_probs.shape[1] + 1, dtype=torch.bool, device=log_probs.device)
    occurred.scatter_(1, past % occurred.shape[1], True)  # −1 becomes the extra column
    return torch.where(occurred[:, :-1], log_probs * penalty, log_probs)


def ban_repeated_ngrams(log_probs: Tensor, past: Tensor, size: int) -> Tensor:
    """Forbids tokens that would repeat an n-gram of that size in `past` (N,L; −1: none)."""
    if size == 0 or past.shape[1] < size:
        return log_probs
    ngrams = past.unfold(1, size, 1)  # (N,L−size+1,size)
    last = past[:, past.shape[1] - size + 1 :]  # (N,size−1): what the next token would complete
    same = (ngrams[:, :, :-1] == last[:, None]).all(dim=-1) & (ngrams != NO_TOKEN).all(dim=-1)
    rows, positions = same.nonzero(as_tuple=True)
    log_probs = log_probs.clone()
    log_probs[rows, ngrams[rows, positions, -1]] = -torch.inf
    return log_probs


def force_tokens(log_probs: Tensor, allowed: Tensor, tokens: Tensor) -> Tensor:
    """Allows only the given token of each row (N,; −1: as `allowed`), even if it is not in `allowed`."""
    forced = tokens != NO_TOKEN
    if not bool(forced.any()):
        return allowed
    index = tokens.clamp(min=0)[:, None]
    only = torch.full_like(allowed, -torch.inf).scatter(1, index, log_probs.gather(1, index))
    return torch.where(forced[:, None], only, allowed)


class Constraints:
    """All constraints for the rows of a batch.

    Args:
        rows: The number of rows.
        options: The settings of decoding.
        eos: The token that ends a sequence.
        forbidden: Tokens that are never chosen.
        prefix: The tokens that each row begins with.
    """

    def __init__(
        self, rows: int, options: GenerationSettings, eos: int | None, forbidden: Sequence[int], prefix: Prefix | None
    ) -> None:
        self.options, self.eos, self.forbidden = options, eos, list(forbidden)
        self.prefix = pad_rows(prefix or [[]] * rows)

    def __call__(self, log_probs: Tensor, past: Tensor, position: int, rows: Tensor) -> Tensor:
        """Returns the constrained log-probabilities of the token at a position.

        Args:
            log_probs: (N,V).
            past: The tokens before it (N,L), prompt included.
            position: The position after the prompt.
            rows: The row of the batch of each entry (N,).
        """
        too_early = [self.eos] if self.eos is not None and position < self.options.min_tokens else []
        allowed = forbid(log_probs, self.forbidden + too_early)
        allowed = ban_repeated_ngrams(allowed, past.to(log_probs.device), self.options.no_repeat_ngram)
        if position < self.prefix.shape[1]:
            allowed = force_tokens(log_probs, allowed, self.prefix[rows, position].to(log_probs.device))
        return allowed


def pad_rows(rows: Prefix, left: bool = False) -> Tensor:
    """Returns rows of different lengths as one tensor (N,L), padded with −1 on the right, or on the left."""
    longest = max((len(row) for row in rows), default=0)
    gaps = [[NO_TOKEN] * (longest - len(row)) for row in rows]
    filled = [[*gap, *row] if left else [*row, *gap] for gap, row in zip(gaps, rows, strict=True)]
    return torch.tensor(filled, dtype=torch.long).reshape(len(rows), longest)
