"""The loss of a large vocabulary without its logits: rows are taken in chunks, and a chunk is done with at once.

    z = h Wᵀ + b      loss = Σ −log softmax(z)[target]      ∂loss/∂z = softmax(z) − onehot(target)

All logits of a batch would be N·V numbers, and their gradient as many again. Here only those of one chunk exist: they
become probabilities where they stand, then their own gradient, and are multiplied into the gradients of h, W and b
before the next chunk overwrites them. So the gradients are ready when the loss is; backward only scales them.

Smoothing by ε mixes the target with the mean over all tokens, ε/V each. As the mean logit is linear in h, it needs no
logits: h·mean(W) + mean(b).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .backbone import wants_equations
from .network import full

SMALL = 256  # tokens; up to here all logits at once are quicker
ROOM = 1 << 23  # logits of a chunk
ROWS = (256, 1024)  # fewest and most rows of a chunk: few make poor products, many gain nothing


def token_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """The sum over rows of the cross-entropies of `linear(hidden, weight, bias)`, as `cross_entropy` defines them.

    hidden (N,D), weight (V,D), bias (V), targets (N). `chunk` is the number of rows taken at a time; by default it
    follows from V, and a small vocabulary is done at once. First derivatives only, and not for `torch.compile`.
    """
    if wants_equations() or (chunk is None and len(weight) <= SMALL):
        logits = full(F.linear(hidden, weight, bias))
        return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    learns = any(tensor is not None and tensor.requires_grad for tensor in (hidden, weight, bias))
    rows = chunk_rows(len(weight)) if chunk is None else chunk
    if learns and torch.is_grad_enabled():
        loss: Tensor = _ChunkedLoss.apply(hidden, weight, bias, targets, smoothing, rows)
        return loss
    losses = [
        F.cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)
        for logits, wanted in _pieces(hidden, weight, bias, targets, rows)
    ]
    return torch.stack(losses).sum()


def token_log_probs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int | None = None
) -> Tensor:
    """log p(target) of every row, (N); without gradients."""
    rows = chunk_rows(len(weight)) if chunk is None else chunk
    with torch.no_grad():
        pieces = _pieces(hidden, weight, bias, targets, rows)
        return torch.cat([-F.cross_entropy(logits, wanted, reduction="none") for logits, wanted in pieces])


def token_scores(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """log p(target) of every row and the token that is most likely there, both (N); without gradients."""
    rows = chunk_rows(len(weight)) if chunk is None else chunk
    found, best = [], []
    with torch.no_grad():
        for logits, wanted in _pieces(hidden, weight, bias, targets, rows):
            found.append(-F.cross_entropy(logits, wanted, reduction="none"))
            best.append(logits.argmax(dim=1))
    return torch.cat(found), torch.cat(best)


def chunk_rows(vocabulary: int) -> int:
    """Rows taken at a time."""
    return min(max(ROOM // max(vocabulary, 1), ROWS[0]), ROWS[1])


def _pieces(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, rows: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and targets of one chunk after the other; of one chunk without rows, where there are none."""
    for part, wanted in zip(hidden.split(rows), targets.split(rows), strict=True):
        yield full(F.linear(part, weight, bias)), wanted


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, rows: int
    ) -> Tensor:
        device = hidden.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        needs = ctx.needs_input_grad[0], ctx.needs_input_grad[1], bias is not None and ctx.needs_input_grad[2]
        with torch.autocast(device, enabled=False):
            loss, gradients = _loss_and_gradients(hidden, weight, bias, targets, smoothing, rows, kind, needs)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.saved_tensors)
        return *scaled, None, None, None


def _loss_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    rows: int,
    kind: torch.dtype,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, list[Tensor | None]]:
    """Products in the type `kind`; sums, softmax and the gradients' accumulation in at least single precision."""
    exact = torch.promote_types(kind, torch.float32)
    h, w = hidden.to(kind), weight.to(kind).contiguous()
    b = None if bias is None else bias.to(kind)
    (count, width), vocabulary = h.shape, len(w)
    d_h = h.new_zeros((count, width), dtype=exact) if needs[0] else None
    d_w = w.new_zeros((vocabulary, width), dtype=exact) if needs[1] else None
    d_b = w.new_zeros(vocabulary, dtype=exact) if needs[2] else None
    room = h.new_empty((min(rows, count), vocabulary), dtype=exact)
    likely = h.new_empty((count, 1), dtype=exact)  # p(target)
    scores = h.new_empty((count, 1), dtype=exact) if smoothing else None  # z[target]
    ones = h.new_ones(min(rows, count), dtype=exact)
    for first in range(0, count, rows):
        part = slice(first, min(first + rows, count))
        z, h_part, wanted = room[: part.stop - first], h[part], targets[part, None]
        if kind != exact:
            z.copy_(F.linear(h_part, w, b))
        elif b is None:
            torch.mm(h_part, w.t(), out=z)
        else:
            torch.addmm(b, h_part, w.t(), out=z)
        if scores is not None:
            torch.gather(z, 1, wanted, out=scores[part])
        z = torch.softmax(z, 1, out=z if z.device.type == "cpu" else None)  # where it is known to work in place
        torch.gather(z, 1, wanted, out=likely[part])
        z.scatter_(1, wanted, likely[part] - (1 - smoothing))
        if d_b is not None:
            d_b.addmv_(z.t(), ones[: len(z)])
        if kind != exact:
            z = z.to(kind)
        if d_h is not None:
            _multiply(z, w, d_h[part])
        if d_w is not None:
            _multiply(z.t(), h_part, d_w)
    loss = _sum_of_losses(likely, h, w, b, targets)
    if scores is not None:
        mean = w.mean(dim=0, dtype=exact)
        above = 0.0 if b is None else b.mean(dtype=exact)
        total = h.sum(dim=0, dtype=exact)
        loss = loss + smoothing * (scores.sum() - total @ mean - count * above)
        if d_h is not None:
            d_h -= smoothing * mean
        if d_w is not None:
            d_w -= smoothing / vocabulary * total
        if d_b is not None:
            d_b -= smoothing / vocabulary * count
    pairs = ((d_h, hidden), (d_w, weight), (d_b, bias))
    return loss, [d if d is None or like is None else d.to(like.dtype) for d, like in pairs]


def _multiply(a: Tensor, b: Tensor, into: Tensor) -> None:
    """into += a b."""
    if into.dtype == a.dtype:
        into.addmm_(a, b)
    else:
        into += a @ b


def _sum_of_losses(likely: Tensor, h: Tensor, w: Tensor, b: Tensor | None, targets: Tensor) -> Tensor:
    """Σ −log p. Where p is too small a number to have a logarithm, the row's logits are made anew."""
    lost = likely[:, 0] < torch.finfo(likely.dtype).tiny
    if not bool(lost.any()):
        return -likely.log().sum()
    again = sum(
        F.cross_entropy(logits, wanted, reduction="sum")
        for logits, wanted in _pieces(h[lost], w, b, targets[lost], ROWS[0])
    )
    return again - likely[~lost].log().sum()
