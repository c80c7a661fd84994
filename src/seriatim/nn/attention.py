"""Attention(q, D) = Σ_i α(q, k_i) v_i: the fast path, and the visible one that shows its weights.

`attend` is scaled dot-product attention that never forms the weights, `attend_visibly` the same with them. `pool`
takes the scores of any kind (see `nn.scores`). A query that may see no key gets zeros, and gradients stay finite.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .scores import KERNELS, ONE_LENGTH, SCORES, KernelName, Score, ScoreName, make_score

__all__ = [
    "KERNELS",
    "ONE_LENGTH",
    "SCORES",
    "KernelName",
    "Score",
    "ScoreName",
    "attend",
    "attend_visibly",
    "attention_weights",
    "causal_mask",
    "make_score",
    "masked_softmax",
    "pool",
]


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """(queries,keys), True where a query may look; the last query stands at the last key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the last dimension; what is not visible gets exactly 0, and a row with nothing visible all 0."""
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~visible, 0.0)  # a row of −∞ gave NaN: it becomes zeros


def pool(scores: Tensor, value: Tensor, visible: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scores (…,T,S) and values (…,S,e) → the outputs (…,T,e) and the weights (…,T,S).

    `visible` is boolean and broadcasts to (…,T,S). A score of −∞ is a key out of reach.
    """
    reached = scores > -math.inf
    weights = masked_softmax(scores, reached if visible is None else reached & visible)
    return weights @ value, weights


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None, causal: bool = False) -> Tensor:
    """Scaled dot-product attention. query (…,T,d), key (…,S,d), value (…,S,e) → (…,T,e).

    `visible` is boolean and broadcasts to (…,T,S). `causal` lets no query see a later key; the last query stands at
    the last key.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    if causal and (visible is not None or queries != keys):  # what the kernel's own flag does not know
        visible, causal = _causally(visible, queries, keys, query.device), False
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, is_causal=causal)


def attend_visibly(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The same, with the weights (…,T,S)."""
    weights = attention_weights(query, key, visible, causal)
    return weights @ value, weights


def attention_weights(query: Tensor, key: Tensor, visible: Tensor | None = None, causal: bool = False) -> Tensor:
    """The weights alone."""
    if causal:
        visible = _causally(visible, query.shape[-2], key.shape[-2], query.device)
    return masked_softmax(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), visible)


def _causally(visible: Tensor | None, queries: int, keys: int, device: torch.device) -> Tensor:
    before = causal_mask(queries, keys, device)
    return before if visible is None else before & visible
