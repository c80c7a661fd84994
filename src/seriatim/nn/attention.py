"""Attention(q, D) = Σ_i α(q, k_i) v_i, fused or with its weights.

`attention` is scaled dot-product attention that never forms the weights; `attention_with_weights` returns them too.
`attention_pool` takes scores of any kind (see `attention_scores`). A query without any key gets zeros, and its
gradients are finite. Masks are boolean, True where a query may attend to a key, and broadcast to (…,T,S).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Returns a mask (queries,keys) without later keys; the last query is at the position of the last key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the softmax over the last dimension: exactly 0 where masked, and all 0 in a fully masked row."""
    if mask is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)  # a row of −∞ gives NaN, which becomes zeros


def attention_pool(scores: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns outputs (…,T,e) and weights (…,T,S) of scores (…,T,S) and values (…,S,e); a score of −∞ is masked."""
    finite = scores > -math.inf
    weights = masked_softmax(scores, finite if mask is None else finite & mask)
    return weights @ value, weights


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Returns scaled dot-product attention (…,T,e).

    Args:
        query: (…,T,d).
        key: (…,S,d).
        value: (…,S,e).
        mask: True where a query may attend to a key.
        causal: Also masks later keys; the last query is at the position of the last key.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    if causal and (mask is not None or queries != keys):  # not supported by the kernel's own flag
        mask, causal = _with_causal(mask, queries, keys, query.device), False
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the result of `attention` and its weights (…,T,S)."""
    weights = attention_weights(query, key, mask, causal)
    return weights @ value, weights


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Returns the weights (…,T,S) of `attention`."""
    if causal:
        mask = _with_causal(mask, query.shape[-2], key.shape[-2], query.device)
    return masked_softmax(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), mask)


def _with_causal(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> Tensor:
    earlier = causal_mask(queries, keys, device)
    return earlier if mask is None else earlier & mask
