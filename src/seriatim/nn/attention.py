"""Attention(q, D) = Σ_i α(q, k_i) v_i: fused, with its weights, or by scores of any kind.

`attention` is scaled dot-product attention that never forms the weights; `attention_with_weights` returns them too.
A query without any key gets zeros, and its gradients are finite. Masks are boolean, True where a query may attend to a
key, and broadcast to (…,T,S). `attention_pool` takes scores of any kind, how well a query matches a key:

    dot          q·k                                scaled_dot     q·k / √d              (Vaswani 2017)
    general      qᵀ M k        (Luong 2015)         distance       −½‖q−k‖²
    additive     wᵀ tanh(W_q q + W_k k)  (Bahdanau 2015)
    concat       wᵀ tanh(W [q; k])       (Luong 2015): the same as additive, with one matrix for both
    gaussian     log exp(−½‖q−k‖²/h²)               boxcar         log 1 if ‖q−k‖ ≤ h, else 0
    epanechnikov log max(0, 1 − ‖q−k‖/h)            with h the bandwidth

A kernel K is given as log K, so that the softmax over the keys is K_i / ΣK and `attention_pool` serves all scores.

    score = make_score("additive", query=64, key=128, hidden=64)
    prepared = score.prepare(key)          (B,S,key) → (B,S,·)      once per source
    score(query, prepared)                 (B,T,query) → (B,T,S)
    step = score.bind(prepared)            step(query)              the same, for many steps of a decoder
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..core.errors import SeriatimError, did_you_mean
from ..kernels import Context
from ..kernels import attention as kernels
from .layers import equations_enabled
from .names import KernelName, ScoreName


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
    weights = pooling_weights(scores, mask)
    return weights @ value, weights


def pooling_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Returns the softmax of scores (…,T,S), some or all of them −∞: keys that a kernel does not reach."""
    finite = scores > -math.inf
    return masked_softmax(scores, finite if mask is None else finite & mask)


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


SCORES: tuple[str, ...] = get_args(ScoreName)
KERNELS: tuple[str, ...] = get_args(KernelName)
EQUAL_SIZE_SCORES = ("dot", "scaled_dot", "distance", *KERNELS)  # queries and keys must have one size

MAX_SAVED = 1 << 20  # numbers of tanh(q+k) saved for the backward pass; more are recomputed in blocks
BLOCK = 1 << 18  # numbers of a block, which fits in the processor's cache


# Scores


class Score(nn.Module):
    """Base of all scores. `prepare` computes what does not depend on the query; `forward` takes its result."""

    def prepare(self, key: Tensor) -> Tensor:
        """Returns keys (B,S,key) prepared for `forward`, (B,S,·)."""
        return key

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Returns the scores (B,T,S) of queries (B,T,query) and prepared keys."""
        raise TypeError(f"{type(self).__name__} has no forward")

    def bind(self, prepared: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns a function from queries to scores over the same keys, for the steps of a loop."""
        return lambda query: self(query, prepared)


class Dot(Score):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1) * self.scale


class General(Score):
    """qᵀ M k: M maps the keys to the size of the queries."""

    def __init__(self, query: int, key: int) -> None:
        super().__init__()
        self.key = nn.Linear(key, query, bias=False)

    def prepare(self, key: Tensor) -> Tensor:
        prepared: Tensor = self.key(key)
        return prepared

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1)


class Additive(Score):
    def __init__(self, query: int, key: int, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(query, hidden, bias=False)
        self.key = nn.Linear(key, hidden, bias=False)
        self.weight = nn.Parameter(torch.empty(hidden).uniform_(-1, 1) / math.sqrt(hidden))

    def prepare(self, key: Tensor) -> Tensor:
        prepared: Tensor = self.key(key)
        return prepared

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return additive_scores(self.query(query), prepared, self.weight)

    def bind(self, prepared: Tensor) -> Callable[[Tensor], Tensor]:
        scores = SharedKeyScores(prepared, self.weight)
        return lambda query: scores(self.query(query))


class Concat(Score):
    def __init__(self, query: int, key: int, hidden: int) -> None:
        super().__init__()
        self.both = nn.Linear(query + key, hidden, bias=False)
        self.split = query
        self.weight = nn.Parameter(torch.empty(hidden).uniform_(-1, 1) / math.sqrt(hidden))

    def prepare(self, key: Tensor) -> Tensor:
        return nn.functional.linear(key, self.both.weight[:, self.split :])

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        projected = nn.functional.linear(query, self.both.weight[:, : self.split])
        return additive_scores(projected, prepared, self.weight)


class Distance(Score):
    """−½‖q−k‖² = q·k − ½‖k‖² − ½‖q‖²: a matrix product, with one more column for the norms of the keys."""

    def prepare(self, key: Tensor) -> Tensor:
        return torch.cat([key, -0.5 * key.square().sum(dim=-1, keepdim=True)], dim=-1)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        key, norm = prepared[..., :-1], prepared[..., -1]
        return query @ key.transpose(-2, -1) + norm[..., None, :] - 0.5 * query.square().sum(dim=-1, keepdim=True)


class Kernel(Score):
    """log K(‖q−k‖/h); −∞ where K is 0."""

    def __init__(self, name: KernelName, bandwidth: float = 1.0) -> None:
        super().__init__()
        self.name = name
        self.bandwidth = bandwidth

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return log_kernel(self.name, torch.cdist(query, prepared, compute_mode=EXACT) / self.bandwidth)


EXACT = "donot_use_mm_for_euclid_dist"  # torch's mode for distances that are exact for close points


def log_kernel(name: KernelName, distance: Tensor) -> Tensor:
    """Returns log K of distances in units of the bandwidth."""
    if name == "gaussian":
        return -0.5 * distance.square()
    if name == "boxcar":
        return torch.zeros_like(distance).masked_fill(distance > 1, -math.inf)
    positive = distance < 1
    return torch.where(positive, torch.log1p(-torch.where(positive, distance, 0.0)), -math.inf)  # no gradient of log 0


def make_score(name: str, query: int, key: int, hidden: int, bandwidth: float = 1.0) -> Score:
    """Returns the score of that name for queries and keys of these sizes; `hidden` is the size inside tanh."""
    if name == "general":
        return General(query, key)
    if name == "additive":
        return Additive(query, key, hidden)
    if name == "concat":
        return Concat(query, key, hidden)
    if name not in SCORES:
        raise SeriatimError("score.unknown", f'there is no score "{name}"', did_you_mean(name, SCORES))
    if query != key:
        raise SeriatimError(
            "score.lengths",
            f"the score {name} needs queries and keys of equal size, not {query} and {key}",
            "choose general, additive or concat, or equal sizes",
        )
    if name == "distance":
        return Distance()
    if name in KERNELS:
        return Kernel(name, bandwidth)  # type: ignore[arg-type]
    return Dot(1 / math.sqrt(key) if name == "scaled_dot" else 1.0)


def additive_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Returns Σ_h w_h tanh(q_h + k_h) for every query (B,T,H) and key (B,S,H): (B,T,S).

    All (B,T,S,H) numbers at once would be the largest tensor of an encoder–decoder. The kernel never forms them;
    without it, many are computed in blocks, and again in the backward pass.
    """
    weight = weight.to(query.dtype)
    if equations_enabled():
        return torch.tanh(query[:, :, None] + key[:, None]) @ weight
    if kernels.has_additive_scores(query, key, weight):
        return kernels.additive_scores(query, key, weight)
    if query.shape[0] * query.shape[1] * key.shape[1] * key.shape[2] <= MAX_SAVED:
        return torch.tanh(query[:, :, None] + key[:, None]) @ weight
    return _BlockedScores.apply(query, key, weight)


class SharedKeyScores:
    """`additive_scores` over the same keys at every step of a loop.

    With the kernel all steps add to one gradient of the keys, instead of each forming one of that size (`LoopMatmul`
    does the same for a matrix).
    """

    def __init__(self, key: Tensor, weight: Tensor) -> None:
        shared = torch.is_grad_enabled() and key.requires_grad and not equations_enabled()
        self.shared = shared and kernels.has_additive_scores(key, key, weight)
        self.gradients: dict[int, Tensor] = {}  # of the keys, by backward pass
        self.key: Tensor = _SharedKey.apply(key, self.gradients) if self.shared else key
        self.weight = weight

    def __call__(self, query: Tensor) -> Tensor:
        if self.shared and kernels.has_additive_scores(query, self.key, self.weight):
            y: Tensor = _SharedKeyFunction.apply(query, self.key, self.weight, self.gradients)
            return y
        return additive_scores(query, self.key, self.weight)


class _SharedKeyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, query: Tensor, key: Tensor, weight: Tensor, gradients: dict[int, Tensor]) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        ctx.gradients = gradients
        return kernels.additive_scores(query, key, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        query, key, weight = ctx.saved_tensors
        task = torch._C._current_graph_task_id()
        if task not in ctx.gradients:
            ctx.gradients[task] = torch.zeros_like(key, memory_format=torch.contiguous_format)
        of_query, of_weight = kernels.add_additive_gradients(gradient, query, key, weight, ctx.gradients[task])
        return of_query, None, of_weight, None


class _SharedKey(torch.autograd.Function):
    """The identity of the keys; its backward pass runs after all steps and returns the accumulated gradient."""

    @staticmethod
    def forward(ctx: Context, key: Tensor, gradients: dict[int, Tensor]) -> Tensor:
        ctx.gradients = gradients
        ctx.set_materialize_grads(False)
        return key.view_as(key)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, other: Tensor | None) -> tuple[Tensor | None, None]:
        accumulated = ctx.gradients.pop(torch._C._current_graph_task_id(), None)
        ctx.gradients.clear()
        if accumulated is None or other is None:
            return other if accumulated is None else accumulated, None
        return accumulated + other, None


class _BlockedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        scores = query.new_empty(query.shape[0], query.shape[1], key.shape[1])
        for rows, steps in _blocks(query, key):
            scores[rows, steps] = (query[rows, steps, None] + key[rows, None]).tanh_() @ weight
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, weight = ctx.saved_tensors
        of_query, of_key = torch.empty_like(query), torch.zeros_like(key)
        of_weight = torch.zeros_like(weight)
        for rows, steps in _blocks(query, key):
            y = (query[rows, steps, None] + key[rows, None]).tanh_()  # (b,t,S,H)
            part = gradient[rows, steps].contiguous()  # (b,t,S)
            of_weight += part.flatten() @ y.flatten(0, 2)
            torch.ops.aten.tanh_backward.grad_input(part[..., None].expand_as(y), y, grad_input=y)  # in place
            of_query[rows, steps] = y.sum(dim=2)
            of_key[rows] += y.sum(dim=1)
        return of_query * weight, of_key * weight, of_weight


def _blocks(query: Tensor, key: Tensor) -> list[tuple[slice, slice]]:
    """Returns ranges of the batch and of the queries, in blocks of about BLOCK numbers."""
    batch, steps, _ = query.shape
    size = max(1, key.shape[1] * key.shape[2])
    rows = max(1, BLOCK // (size * max(1, steps)))
    count = steps if rows > 1 else max(1, BLOCK // size)
    return [
        (slice(row, row + rows), slice(step, step + count))
        for row in range(0, batch, rows)
        for step in range(0, steps, max(1, count))
    ]
