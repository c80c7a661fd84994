"""Distillation losses: the distance between the outputs of a student and a teacher.

Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network" (2015). The teacher's scores of wrong answers
carry information beyond the right one; a temperature T above 1 emphasizes them:

    p = softmax(t/T)    q = softmax(s/T)    loss = T² Σ p log(p/q)        s, t: scores of student and teacher

T² makes the size of the gradients independent of T. Of several labels per example each is a binary choice. Hidden
vectors are compared by their similarities within a batch, so that teacher and student may differ in width and tokens
(Tung and Mori, "Similarity-preserving knowledge distillation", 2019):

    loss = mean over pairs (i,j) of (cos(h_i, h_j) − cos(g_i, g_j))²
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .layers import equations_enabled
from .loss import SMALL_VOCAB, chunk_rows
from .network import as_float32

MAX_COMPARED = 256  # vectors of a batch


class TokenScores(NamedTuple):
    """Scores of a large vocabulary, `linear(hidden, weight, bias)`, which are never computed all at once."""

    hidden: Tensor  # (N,D)
    weight: Tensor  # (V,D)
    bias: Tensor | None  # (V)

    def to(self, dtype: torch.dtype) -> TokenScores:
        return TokenScores(*(None if tensor is None else tensor.to(dtype) for tensor in self))  # type: ignore[arg-type]


def distillation_loss(scores: Tensor | TokenScores, teacher_scores: Tensor | TokenScores, temperature: float) -> Tensor:
    """Returns the sum over rows for exclusive classes. Both scores are (N,C), or both `TokenScores`."""
    if isinstance(scores, TokenScores) and isinstance(teacher_scores, TokenScores):
        return token_distillation_loss(scores, teacher_scores, temperature)
    if isinstance(scores, TokenScores) or isinstance(teacher_scores, TokenScores):
        raise TypeError("TokenScores can be compared with TokenScores only")
    teacher = (as_float32(teacher_scores) / temperature).log_softmax(dim=-1)
    student = (as_float32(scores) / temperature).log_softmax(dim=-1)
    probs = teacher.exp()
    terms = (probs * (teacher - student)).masked_fill(probs == 0, 0.0)  # also if both scores are −∞
    return temperature**2 * terms.sum()


def multi_label_distillation_loss(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """Returns the sum over rows of the means over labels that do not exclude each other; both scores are (N,C)."""
    student, teacher = as_float32(scores) / temperature, as_float32(teacher_scores) / temperature
    targets = teacher.sigmoid()
    losses = F.binary_cross_entropy_with_logits(student, targets, reduction="none")
    minimum = F.binary_cross_entropy_with_logits(teacher, targets, reduction="none")  # the loss of a perfect student
    return temperature**2 * (losses - minimum).mean(dim=-1).sum()


def similarity_loss(features: Tensor, teacher_features: Tensor) -> Tensor:
    """Returns the mean over pairs of rows (N,D) and (N,E), at most MAX_COMPARED of them, evenly spaced."""
    if len(features) > MAX_COMPARED:
        rows = torch.linspace(0, len(features) - 1, MAX_COMPARED, device=features.device).long()
        features, teacher_features = features[rows], teacher_features[rows]
    if not len(features):
        return features.sum()
    student, teacher = (F.normalize(as_float32(vectors), dim=-1) for vectors in (features, teacher_features))
    return (student @ student.T - teacher @ teacher.T).square().mean()


def token_distillation_loss(
    student: TokenScores, teacher: TokenScores, temperature: float, chunk: int | None = None
) -> Tensor:
    """Returns `distillation_loss` of a large vocabulary, in chunks of rows as in nn/loss.py.

    The scores of a chunk become their own gradient, T (q − p), which is multiplied into those of hidden, weight and
    bias.
    """
    if equations_enabled() or (chunk is None and len(student.weight) <= SMALL_VOCAB):
        return distillation_loss(F.linear(*student), F.linear(*teacher), temperature)
    rows = chunk_rows(len(student.weight)) if chunk is None else chunk
    loss: Tensor = _ChunkedDistillationLoss.apply(*student, *teacher, temperature, rows)
    return loss


class _ChunkedDistillationLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        student, teacher, (temperature, rows) = TokenScores(*arguments[:3]), TokenScores(*arguments[3:6]), arguments[6:]
        device = student.hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else student.hidden.dtype
        with torch.autocast(device, enabled=False):
            cast = student.to(dtype), teacher.to(dtype)
            loss, gradients = _distillation_gradients(*cast, temperature, rows, ctx.needs_input_grad[:3])
        pairs = zip(gradients, student, strict=True)
        ctx.save_for_backward(*(None if d is None or like is None else d.to(like.dtype) for d, like in pairs))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.saved_tensors)
        return *scaled, *[None] * 5


def _distillation_gradients(
    student: TokenScores, teacher: TokenScores, temperature: float, rows: int, needs: tuple[bool, ...]
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns loss and gradients: products in the student's type, softmax and sums in at least float32."""
    dtype = student.hidden.dtype
    exact = torch.promote_types(dtype, torch.float32)
    gradients = [
        torch.zeros_like(tensor, dtype=exact) if tensor is not None and need else None
        for tensor, need in zip(student, needs, strict=True)
    ]
    d_hidden, d_weight, d_bias = gradients
    total = student.hidden.new_zeros((), dtype=exact)
    for first in range(0, len(student.hidden), rows):
        part = slice(first, first + rows)
        student_logs, teacher_logs = (
            (F.linear(scores.hidden[part], scores.weight, scores.bias).to(exact) / temperature).log_softmax(dim=1)
            for scores in (student, teacher)
        )
        total += F.kl_div(student_logs, teacher_logs, reduction="sum", log_target=True)
        d = student_logs.exp_().sub_(teacher_logs.exp_()).mul_(temperature)
        if d_bias is not None:
            d_bias += d.sum(dim=0)
        d = d.to(dtype)
        if d_hidden is not None:
            d_hidden[part] = d @ student.weight
        if d_weight is not None:
            d_weight += d.T @ student.hidden[part]
    return temperature**2 * total, gradients
