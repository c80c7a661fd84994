"""What may follow: forbidden tokens, no end too soon, no repetition, a beginning that is given.

Each function takes log-probabilities (N,V) and gives them back with −∞ for what may not be.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .options import DecodeSettings

NOTHING = -1  # stands where there is no token
Prefix = Sequence[Sequence[int]]


def forbid(log_probs: Tensor, tokens: Sequence[int]) -> Tensor:
    """The same without some tokens."""
    if not tokens:
        return log_probs
    return log_probs.index_fill(1, torch.tensor(tokens, device=log_probs.device), -torch.inf)


def repel(log_probs: Tensor, past: Tensor, penalty: float) -> Tensor:
    """Keskar et al. 2019: what occurred in `past` (N,L; −1 is nothing) has its log-probability multiplied."""
    if penalty == 1.0 or past.shape[1] == 0:
        return log_probs
    seen = torch.zeros(len(log_probs), log_probs.shape[1] + 1, dtype=torch.bool, device=log_probs.device)
    seen.scatter_(1, past % seen.shape[1], True)  # −1 falls on the extra column
    return torch.where(seen[:, :-1], log_probs * penalty, log_probs)


def no_repeat(log_probs: Tensor, past: Tensor, size: int) -> Tensor:
    """Without the tokens that would make the last `size` tokens a run that `past` (N,L; −1 is nothing) has already."""
    if size == 0 or past.shape[1] < size:
        return log_probs
    runs = past.unfold(1, size, 1)  # (N,L−size+1,size): each run of the past
    last = past[:, past.shape[1] - size + 1 :]  # (N,size−1): what the next token would complete
    same = (runs[:, :, :-1] == last[:, None]).all(dim=-1) & (runs != NOTHING).all(dim=-1)
    rows, places = same.nonzero(as_tuple=True)
    log_probs = log_probs.clone()
    log_probs[rows, runs[rows, places, -1]] = -torch.inf
    return log_probs


def force(log_probs: Tensor, allowed: Tensor, wanted: Tensor) -> Tensor:
    """Nothing but the `wanted` token (N,; −1: whatever is allowed), which needs nobody's leave."""
    forced = wanted != NOTHING
    if not bool(forced.any()):
        return allowed
    tokens = wanted.clamp(min=0)[:, None]
    only = torch.full_like(allowed, -torch.inf).scatter(1, tokens, log_probs.gather(1, tokens))
    return torch.where(forced[:, None], only, allowed)


class Constraints:
    """All of them, for the rows of a batch; `prefix` is the given beginning of each, as long as it may be."""

    def __init__(
        self, rows: int, options: DecodeSettings, eos: int | None, forbidden: Sequence[int], prefix: Prefix | None
    ) -> None:
        self.options, self.eos, self.forbidden = options, eos, list(forbidden)
        self.prefix = padded(prefix or [[]] * rows)

    def __call__(self, log_probs: Tensor, past: Tensor, place: int, rows: Tensor) -> Tensor:
        """For the token at some place of each of `rows` (N,), behind its `past` (N,L), prompt included."""
        too_soon = [self.eos] if self.eos is not None and place < self.options.min_tokens else []
        allowed = forbid(log_probs, self.forbidden + too_soon)
        allowed = no_repeat(allowed, past.to(log_probs.device), self.options.no_repeat_ngram)
        if place < self.prefix.shape[1]:
            allowed = force(log_probs, allowed, self.prefix[rows, place].to(log_probs.device))
        return allowed


def padded(rows: Prefix, left: bool = False) -> Tensor:
    """Rows of different lengths as one tensor (N,L), with −1 behind the short ones, or before them."""
    longest = max((len(row) for row in rows), default=0)
    gaps = [[NOTHING] * (longest - len(row)) for row in rows]
    filled = [[*gap, *row] if left else [*row, *gap] for gap, row in zip(gaps, rows, strict=True)]
    return torch.tensor(filled, dtype=torch.long).reshape(len(rows), longest)
