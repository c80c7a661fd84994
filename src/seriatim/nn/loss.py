"""The cross-entropy of a large vocabulary without all logits, and the losses of distillation.

    z = h Wᵀ + b      loss = Σ −log softmax(z)[target]      ∂loss/∂z = softmax(z) − onehot(target)

All logits of a batch would be N·V numbers, and their gradient as many again. Here rows are processed in chunks, and
only the logits of one chunk exist: they become probabilities in place, then their own gradient, and are multiplied into
the gradients of h, W and b before the next chunk overwrites them. So the forward pass computes the gradients; the
backward pass only scales them.

Label smoothing by ε mixes the target with the mean over all tokens, ε/V each. The mean logit is linear in h, so it
needs no logits: h·mean(W) + mean(b).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..kernels import Context
from .layers import equations_enabled
from .network import as_float32

SMALL_VOCAB = 256  # tokens; up to here all logits at once are faster
CHUNK_LOGITS = 1 << 23  # logits of a chunk
CHUNK_ROWS = (256, 1024)  # fewest and most rows of a chunk: fewer make slow products, more gain nothing


def token_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """Returns the sum over rows of the cross-entropies of `linear(hidden, weight, bias)`.

    Gives first derivatives only, and does not support `torch.compile`.

    Args:
        hidden: (N,D).
        weight: (V,D).
        bias: (V), or None.
        targets: (N).
        smoothing: The label smoothing ε.
        chunk: Rows per chunk; by default it follows from V, and a small vocabulary is computed at once.
    """
    if equations_enabled() or (chunk is None and len(weight) <= SMALL_VOCAB):
        logits = as_float32(F.linear(hidden, weight, bias))
        return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    trains = any(tensor is not None and tensor.requires_grad for tensor in (hidden, weight, bias))
    rows = chunk_rows(len(weight)) if chunk is None else chunk
    if trains and torch.is_grad_enabled():
        loss: Tensor = _ChunkedLoss.apply(hidden, weight, bias, targets, smoothing, rows)
        return loss
    losses = [
        F.cross_entropy(logits, chunk_targets, reduction="sum", label_smoothing=smoothing)
        for logits, chunk_targets in _chunks(hidden, weight, bias, targets, rows)
    ]
    return torch.stack(losses).sum()


def token_log_probs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int | None = None
) -> Tensor:
    """Returns log p(target) of every row, (N); without gradients."""
    rows = chunk_rows(len(weight)) if chunk is None else chunk
    with torch.no_grad():
        chunks = _chunks(hidden, weight, bias, targets, rows)
        return torch.cat(
            [-F.cross_entropy(logits, chunk_targets, reduction="none") for logits, chunk_targets in chunks]
        )


def token_predictions(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns log p(target) and the most likely token of every row, both (N); without gradients."""
    rows = chunk_rows(len(weight)) if chunk is None else chunk
    log_probs, best = [], []
    with torch.no_grad():
        for logits, chunk_targets in _chunks(hidden, weight, bias, targets, rows):
            log_probs.append(-F.cross_entropy(logits, chunk_targets, reduction="none"))
            best.append(logits.argmax(dim=1))
    return torch.cat(log_probs), torch.cat(best)


def chunk_rows(vocab_size: int) -> int:
    """Returns the number of rows of a chunk."""
    return min(max(CHUNK_LOGITS // max(vocab_size, 1), CHUNK_ROWS[0]), CHUNK_ROWS[1])


def _chunks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, rows: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields logits and targets of each chunk; of one empty chunk if there are no rows."""
    for part, chunk_targets in zip(hidden.split(rows), targets.split(rows), strict=True):
        yield as_float32(F.linear(part, weight, bias)), chunk_targets


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, rows: int
    ) -> Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        needs = ctx.needs_input_grad[0], ctx.needs_input_grad[1], bias is not None and ctx.needs_input_grad[2]
        with torch.autocast(device, enabled=False):
            loss, gradients = _loss_and_gradients(hidden, weight, bias, targets, smoothing, rows, dtype, needs)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, scale: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.saved_tensors)
        return *scaled, None, None, None


def _loss_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    rows: int,
    dtype: torch.dtype,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns loss and gradients: matrix products in the type `dtype`, sums and softmax in at least float32."""
    exact = torch.promote_types(dtype, torch.float32)
    h, w = hidden.to(dtype), weight.to(dtype).contiguous()
    b = None if bias is None else bias.to(dtype)
    (count, width), vocab_size = h.shape, len(w)
    d_h = h.new_zeros((count, width), dtype=exact) if needs[0] else None
    d_w = w.new_zeros((vocab_size, width), dtype=exact) if needs[1] else None
    d_b = w.new_zeros(vocab_size, dtype=exact) if needs[2] else None
    buffer = h.new_empty((min(rows, count), vocab_size), dtype=exact)
    target_probs = h.new_empty((count, 1), dtype=exact)  # p(target)
    scores = h.new_empty((count, 1), dtype=exact) if smoothing else None  # z[target]
    ones = h.new_ones(min(rows, count), dtype=exact)
    for first in range(0, count, rows):
        part = slice(first, min(first + rows, count))
        z, h_part, chunk_targets = buffer[: part.stop - first], h[part], targets[part, None]
        if dtype != exact:
            z.copy_(F.linear(h_part, w, b))
        elif b is None:
            torch.mm(h_part, w.t(), out=z)
        else:
            torch.addmm(b, h_part, w.t(), out=z)
        if scores is not None:
            torch.gather(z, 1, chunk_targets, out=scores[part])
        z = torch.softmax(z, 1, out=z if z.device.type == "cpu" else None)  # in place only where that is known to work
        torch.gather(z, 1, chunk_targets, out=target_probs[part])
        z.scatter_(1, chunk_targets, target_probs[part] - (1 - smoothing))
        if d_b is not None:
            d_b.addmv_(z.t(), ones[: len(z)])
        if dtype != exact:
            z = z.to(dtype)
        if d_h is not None:
            _multiply(z, w, d_h[part])
        if d_w is not None:
            _multiply(z.t(), h_part, d_w)
    loss = _sum_of_losses(target_probs, h, w, b, targets)
    if scores is not None:
        mean = w.mean(dim=0, dtype=exact)
        mean_bias = 0.0 if b is None else b.mean(dtype=exact)
        total = h.sum(dim=0, dtype=exact)
        loss = loss + smoothing * (scores.sum() - total @ mean - count * mean_bias)
        if d_h is not None:
            d_h -= smoothing * mean
        if d_w is not None:
            d_w -= smoothing / vocab_size * total
        if d_b is not None:
            d_b -= smoothing / vocab_size * count
    pairs = ((d_h, hidden), (d_w, weight), (d_b, bias))
    return loss, [d if d is None or like is None else d.to(like.dtype) for d, like in pairs]


def _multiply(a: Tensor, b: Tensor, into: Tensor) -> None:
    """into += a b."""
    if into.dtype == a.dtype:
        into.addmm_(a, b)
    else:
        into += a @ b


def _sum_of_losses(target_probs: Tensor, h: Tensor, w: Tensor, b: Tensor | None, targets: Tensor) -> Tensor:
    """Returns Σ −log p; rows whose p underflows are computed from their logits again."""
    underflow = target_probs[:, 0] < torch.finfo(target_probs.dtype).tiny
    if not bool(underflow.any()):
        return -target_probs.log().sum()
    recomputed = sum(
        F.cross_entropy(logits, chunk_targets, reduction="sum")
        for logits, chunk_targets in _chunks(h[underflow], w, b, targets[underflow], CHUNK_ROWS[0])
    )
    return recomputed - target_probs[~underflow].log().sum()


# Distillation: the distance between the outputs of a student and a teacher
#
# Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network" (2015). The teacher's scores of wrong answers
# carry information beyond the right one; a temperature T above 1 emphasizes them:
#
#     p = softmax(t/T)    q = softmax(s/T)    loss = T² Σ p log(p/q)        s, t: scores of student and teacher
#
# T² makes the size of the gradients independent of T. Of several labels per example each is a binary choice. Hidden
# vectors are compared by their similarities within a batch, so that teacher and student may differ in width and tokens
# (Tung and Mori, "Similarity-preserving knowledge distillation", 2019):
#
#     loss = mean over pairs (i,j) of (cos(h_i, h_j) − cos(g_i, g_j))²

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
    """Returns `distillation_loss` of a large vocabulary, in chunks of rows.

    The scores of a chunk are replaced by their gradient, T (q − p), which is multiplied into the gradients of hidden,
    weight and bias.
    """
    if equations_enabled() or (chunk is None and len(student.weight) <= SMALL_VOCAB):
        return distillation_loss(F.linear(*student), F.linear(*teacher), temperature)
    rows = chunk_rows(len(student.weight)) if chunk is None else chunk
    loss: Tensor = _ChunkedDistillationLoss.apply(*student, *teacher, temperature, rows)
    return loss


class _ChunkedDistillationLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, *arguments: Any) -> Tensor:
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
    def backward(ctx: Context, scale: Tensor) -> tuple[Tensor | None, ...]:
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
