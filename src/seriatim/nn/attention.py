"""Attention(q, D) = Σ_i α(q, k_i) v_i: the fast path, and the visible one that shows its weights.

Both give the same result; the fast one never forms the weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """(queries,keys), True where a query may look; the last query stands at the last key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the last dimension; what is not visible gets exactly 0, and a row with nothing visible all 0."""
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~visible, 0.0)  # a row of −∞ gave NaN: it becomes zeros


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None, causal: bool = False) -> Tensor:
    """Scaled dot-product attention. query (…,T,d), key (…,S,d), value (…,S,e) → (…,T,e).

    `visible` is boolean and broadcasts to (…,T,S). `causal` lets query t see keys 0…t.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, is_causal=causal)


def attend_visibly(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The same, with the weights (…,T,S)."""
    if causal:
        visible = causal_mask(query.shape[-2], key.shape[-2], query.device)
    weights = masked_softmax(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), visible)
    return weights @ value, weights
