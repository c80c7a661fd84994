"""Losses against a teacher: how far the answers of a student are from those of a larger model.

Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network" (2015). What a teacher thinks of the wrong
answers says more than the right one alone; a temperature T above 1 brings it out:

    p = softmax(t/T)    q = softmax(s/T)    loss = T² Σ p log(p/q)        s, t: scores of student and teacher

T² keeps gradients as large as those of the true targets, whatever T is. Of labels that do not exclude each other each
is a choice of two. Vectors are compared by how alike those of a batch are among themselves, as teacher and student need
then be neither equally wide nor read the same tokens (Tung and Mori, "Similarity-preserving knowledge distillation",
2019):

    loss = mean over pairs (i,j) of (cos(h_i, h_j) − cos(g_i, g_j))²
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .backbone import wants_equations
from .loss import SMALL, chunk_rows
from .network import full

COMPARED = 256  # vectors of a batch at most


class TokenScores(NamedTuple):
    """Scores of a large vocabulary, `linear(vectors, weight, bias)`, that are never there all at once."""

    vectors: Tensor  # (N,D)
    weight: Tensor  # (V,D)
    bias: Tensor | None  # (V)

    def to(self, kind: torch.dtype) -> TokenScores:
        return TokenScores(*(None if one is None else one.to(kind) for one in self))  # type: ignore[arg-type]


def soft_loss(scores: Tensor | TokenScores, taught: Tensor | TokenScores, temperature: float) -> Tensor:
    """The sum over rows, where one of the answers is right. Both scores (N,C), or both of a vocabulary."""
    if isinstance(scores, TokenScores) and isinstance(taught, TokenScores):
        return soft_token_loss(scores, taught, temperature)
    if isinstance(scores, TokenScores) or isinstance(taught, TokenScores):
        raise TypeError("scores of a vocabulary are compared with such scores only")
    theirs = (full(taught) / temperature).log_softmax(dim=-1)
    ours = (full(scores) / temperature).log_softmax(dim=-1)
    chances = theirs.exp()
    each = (chances * (theirs - ours)).masked_fill(chances == 0, 0.0)  # also where neither can give the answer
    return temperature**2 * each.sum()


def soft_choices_loss(scores: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """The sum over rows of the means over answers that do not exclude each other: (N,C) both."""
    ours, theirs = full(scores) / temperature, full(taught) / temperature
    wanted = theirs.sigmoid()
    each = F.binary_cross_entropy_with_logits(ours, wanted, reduction="none")
    least = F.binary_cross_entropy_with_logits(theirs, wanted, reduction="none")  # what a perfect student has
    return temperature**2 * (each - least).mean(dim=-1).sum()


def likeness_loss(vectors: Tensor, taught: Tensor) -> Tensor:
    """The mean over pairs of rows; of many rows, over some that are spread evenly. (N,D) and (N,E)."""
    if len(vectors) > COMPARED:
        some = torch.linspace(0, len(vectors) - 1, COMPARED, device=vectors.device).long()
        vectors, taught = vectors[some], taught[some]
    if not len(vectors):
        return vectors.sum()
    ours, theirs = (F.normalize(full(one), dim=-1) for one in (vectors, taught))
    return (ours @ ours.T - theirs @ theirs.T).square().mean()


def soft_token_loss(student: TokenScores, teacher: TokenScores, temperature: float, chunk: int | None = None) -> Tensor:
    """`soft_loss` of a vocabulary. As in nn/loss.py rows are taken in chunks, and a chunk is done with at once: its
    scores become their own gradient, T (q − p), which is multiplied into those of vectors, weight and bias."""
    if wants_equations() or (chunk is None and len(student.weight) <= SMALL):
        return soft_loss(F.linear(*student), F.linear(*teacher), temperature)
    rows = chunk_rows(len(student.weight)) if chunk is None else chunk
    loss: Tensor = _ChunkedSoftLoss.apply(*student, *teacher, temperature, rows)
    return loss


class _ChunkedSoftLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        student, teacher, (temperature, rows) = TokenScores(*given[:3]), TokenScores(*given[3:6]), given[6:]
        device = student.vectors.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else student.vectors.dtype
        with torch.autocast(device, enabled=False):
            cast = student.to(kind), teacher.to(kind)
            loss, gradients = _loss_and_gradients(*cast, temperature, rows, ctx.needs_input_grad[:3])
        pairs = zip(gradients, student, strict=True)
        ctx.save_for_backward(*(None if d is None or like is None else d.to(like.dtype) for d, like in pairs))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.saved_tensors)
        return *scaled, *[None] * 5


def _loss_and_gradients(
    student: TokenScores, teacher: TokenScores, temperature: float, rows: int, needs: tuple[bool, ...]
) -> tuple[Tensor, list[Tensor | None]]:
    """Products in the type of the student; softmax, sums and gradients in at least single precision."""
    kind = student.vectors.dtype
    exact = torch.promote_types(kind, torch.float32)
    gradients = [
        torch.zeros_like(one, dtype=exact) if one is not None and need else None
        for one, need in zip(student, needs, strict=True)
    ]
    d_vectors, d_weight, d_bias = gradients
    total = student.vectors.new_zeros((), dtype=exact)
    for first in range(0, len(student.vectors), rows):
        part = slice(first, first + rows)
        ours, theirs = (
            (F.linear(one.vectors[part], one.weight, one.bias).to(exact) / temperature).log_softmax(dim=1)
            for one in (student, teacher)
        )
        total += F.kl_div(ours, theirs, reduction="sum", log_target=True)
        d = ours.exp_().sub_(theirs.exp_()).mul_(temperature)
        if d_bias is not None:
            d_bias += d.sum(dim=0)
        d = d.to(kind)
        if d_vectors is not None:
            d_vectors[part] = d @ student.weight
        if d_weight is not None:
            d_weight += d.T @ student.vectors[part]
    return temperature**2 * total, gradients
