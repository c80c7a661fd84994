"""How well a query fits a key: every score of attention, and the kernels of Nadaraya and Watson.

    dot          q·k                                scaled_dot     q·k / √d              (Vaswani 2017)
    general      qᵀ M k        (Luong 2015)         distance       −½‖q−k‖²
    additive     wᵀ tanh(W_q q + W_k k)  (Bahdanau 2015)
    concat       wᵀ tanh(W [q; k])       (Luong 2015): the same as additive, with one matrix for both
    gaussian     log exp(−½‖q−k‖²/h²)               boxcar         log 1 if ‖q−k‖ ≤ h, else 0
    epanechnikov log max(0, 1 − ‖q−k‖/h)            with h the bandwidth

A kernel K enters as log K, so that the softmax over the keys is K_i / ΣK: one family, one `nn.attention.pool`.

    score = make_score("additive", query=64, key=128, hidden=64)
    prepared = score.prepare(key)          (B,S,key) → (B,S,·)      once for a source
    score(query, prepared)                 (B,T,query) → (B,T,S)
    step = score.over(prepared)            step(query)              the same, for a decoder that asks many times
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core.errors import SeriatimError, did_you_mean
from ..kernels import additive as kernels
from .backbone import wants_equations

ScoreName = Literal["dot", "scaled_dot", "general", "additive", "concat", "distance"]
KernelName = Literal["gaussian", "boxcar", "epanechnikov"]
SCORES: tuple[str, ...] = get_args(ScoreName)
KERNELS: tuple[str, ...] = get_args(KernelName)
ONE_LENGTH = ("dot", "scaled_dot", "distance", *KERNELS)  # without weights that would bring one to the other's

KEPT = 1 << 20  # numbers of tanh(q+k) that are kept for the backward pass; more are computed again, part by part
PART = 1 << 18  # numbers of such a part: it stays in the processor's cache


class Score(nn.Module):
    """`prepare` does the part that does not depend on the query; `forward` takes what it gave."""

    def prepare(self, key: Tensor) -> Tensor:
        """(B,S,key) → (B,S,·)."""
        return key

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """(B,T,query) and what `prepare` gave → (B,T,S)."""
        raise TypeError(f"{type(self).__name__} has no forward")

    def over(self, prepared: Tensor) -> Callable[[Tensor], Tensor]:
        """For many queries, one after the other, over the same keys."""
        return lambda query: self(query, prepared)


class Dot(Score):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.transpose(-2, -1) * self.scale


class General(Score):
    """The matrix M brings the keys into the queries' space, whose length may be another."""

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
        return tanh_sum(self.query(query), prepared, self.weight)

    def over(self, prepared: Tensor) -> Callable[[Tensor], Tensor]:
        scores = TanhSum(prepared, self.weight)
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
        return tanh_sum(projected, prepared, self.weight)


class Distance(Score):
    """−½‖q−k‖² = q·k − ½‖k‖² − ½‖q‖²: a product, with one more column for the keys' norms."""

    def prepare(self, key: Tensor) -> Tensor:
        return torch.cat([key, -0.5 * key.square().sum(dim=-1, keepdim=True)], dim=-1)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        key, norm = prepared[..., :-1], prepared[..., -1]
        return query @ key.transpose(-2, -1) + norm[..., None, :] - 0.5 * query.square().sum(dim=-1, keepdim=True)


class Kernel(Score):
    """log K(‖q−k‖/h); −∞ where the key is out of reach."""

    def __init__(self, name: KernelName, bandwidth: float = 1.0) -> None:
        super().__init__()
        self.name = name
        self.bandwidth = bandwidth

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return log_kernel(self.name, torch.cdist(query, prepared, compute_mode=EXACT) / self.bandwidth)


EXACT = "donot_use_mm_for_euclid_dist"  # torch's name for distances that do not lose digits where points are close


def log_kernel(name: KernelName, distance: Tensor) -> Tensor:
    """log K of distances in units of the bandwidth."""
    if name == "gaussian":
        return -0.5 * distance.square()
    if name == "boxcar":
        return torch.zeros_like(distance).masked_fill(distance > 1, -math.inf)
    inside = distance < 1
    return torch.where(inside, torch.log1p(-torch.where(inside, distance, 0.0)), -math.inf)  # no gradient of log 0


def make_score(name: str, query: int, key: int, hidden: int, bandwidth: float = 1.0) -> Score:
    """The score of that name, for queries and keys of these lengths; `hidden` is the size within tanh."""
    if name == "general":
        return General(query, key)
    if name == "additive":
        return Additive(query, key, hidden)
    if name == "concat":
        return Concat(query, key, hidden)
    if name not in SCORES + KERNELS:
        raise SeriatimError("score.unknown", f'there is no score "{name}"', did_you_mean(name, SCORES + KERNELS))
    if query != key:
        raise SeriatimError(
            "score.lengths",
            f"the score {name} needs queries and keys of one length, not {query} and {key}",
            "choose general, additive or concat, or sizes that agree",
        )
    if name == "distance":
        return Distance()
    if name in KERNELS:
        return Kernel(name, bandwidth)  # type: ignore[arg-type]
    return Dot(1 / math.sqrt(key) if name == "scaled_dot" else 1.0)


def tanh_sum(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Σ_h w_h tanh(q_h + k_h) for every query (B,T,H) and key (B,S,H): (B,T,S).

    All (B,T,S,H) numbers at once are more memory than anything else in a translator, and slow: the kernel never has
    them; without it, where there are many, they are computed part by part, and again in the backward pass.
    """
    weight = weight.to(query.dtype)
    if wants_equations():
        return torch.tanh(query[:, :, None] + key[:, None]) @ weight
    if kernels.available(query, key, weight):
        return kernels.scores(query, key, weight)
    if query.shape[0] * query.shape[1] * key.shape[1] * key.shape[2] <= KEPT:
        return torch.tanh(query[:, :, None] + key[:, None]) @ weight
    return _TanhSum.apply(query, key, weight)


class TanhSum:
    """`tanh_sum` over the same keys at every step of a loop: with the kernel, all steps add to one gradient of the keys
    (as `Product` gathers that of its matrix), instead of each making one of that size."""

    def __init__(self, key: Tensor, weight: Tensor) -> None:
        shares = torch.is_grad_enabled() and key.requires_grad and not wants_equations()
        self.shares = shares and kernels.available(key, key, weight)
        self.kept: dict[int, Tensor] = {}  # the gradient so far, by the pass backwards that asked for it
        self.key: Tensor = _Shared.apply(key, self.kept) if self.shares else key
        self.weight = weight

    def __call__(self, query: Tensor) -> Tensor:
        if self.shares and kernels.available(query, self.key, self.weight):
            y: Tensor = _SharedSum.apply(query, self.key, self.weight, self.kept)
            return y
        return tanh_sum(query, self.key, self.weight)


class _SharedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, weight: Tensor, kept: dict[int, Tensor]) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        ctx.kept = kept
        return kernels.scores(query, key, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        query, key, weight = ctx.saved_tensors
        task = torch._C._current_graph_task_id()
        if task not in ctx.kept:
            ctx.kept[task] = torch.zeros_like(key, memory_format=torch.contiguous_format)
        of_query, of_weight = kernels.add_gradients(gradient, query, key, weight, ctx.kept[task])
        return of_query, None, of_weight, None


class _Shared(torch.autograd.Function):
    """The keys as they are; backwards, they come after all steps, and a step without the kernel may have added."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, kept: dict[int, Tensor]) -> Tensor:
        ctx.kept = kept
        ctx.set_materialize_grads(False)
        return key.view_as(key)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, more: Tensor | None) -> tuple[Tensor | None, None]:
        gathered = ctx.kept.pop(torch._C._current_graph_task_id(), None)
        ctx.kept.clear()
        if gathered is None or more is None:
            return more if gathered is None else gathered, None
        return gathered + more, None


class _TanhSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        scores = query.new_empty(query.shape[0], query.shape[1], key.shape[1])
        for rows, steps in _parts(query, key):
            scores[rows, steps] = (query[rows, steps, None] + key[rows, None]).tanh_() @ weight
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, weight = ctx.saved_tensors
        of_query, of_key = torch.empty_like(query), torch.zeros_like(key)
        of_weight = torch.zeros_like(weight)
        for rows, steps in _parts(query, key):
            y = (query[rows, steps, None] + key[rows, None]).tanh_()  # (b,t,S,H)
            given = gradient[rows, steps].contiguous()  # (b,t,S)
            of_weight += given.flatten() @ y.flatten(0, 2)
            torch.ops.aten.tanh_backward.grad_input(given[..., None].expand_as(y), y, grad_input=y)  # in place
            of_query[rows, steps] = y.sum(dim=2)
            of_key[rows] += y.sum(dim=1)
        return of_query * weight, of_key * weight, of_weight


def _parts(query: Tensor, key: Tensor) -> list[tuple[slice, slice]]:
    """Ranges of the batch and of the queries, in parts that hold about PART numbers each."""
    batch, steps, _ = query.shape
    size = max(1, key.shape[1] * key.shape[2])
    many = max(1, PART // (size * max(1, steps)))
    long = steps if many > 1 else max(1, PART // size)
    return [
        (slice(row, row + many), slice(step, step + long))
        for row in range(0, batch, many)
        for step in range(0, steps, max(1, long))
    ]
