"""Distillation losses by hand, and in chunks of a large vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seriatim.nn.loss import (
    TokenScores,
    distillation_loss,
    multi_label_distillation_loss,
    similarity_loss,
    token_distillation_loss,
)


def scores(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_losses_by_hand() -> None:
    s, t, T = scores(5, 3), scores(5, 3, seed=1), 2.5
    p, q = (t / T).exp() / (t / T).exp().sum(1, keepdim=True), (s / T).exp() / (s / T).exp().sum(1, keepdim=True)
    assert distillation_loss(s, t, T).item() == pytest.approx(T**2 * float((p * (p / q).log()).sum()))
    p, q = 1 / (1 + (-t / T).exp()), 1 / (1 + (-s / T).exp())
    by_hand = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    assert multi_label_distillation_loss(s, t, T).item() == pytest.approx(T**2 * float(by_hand.sum() / 3))
    for loss in (distillation_loss, multi_label_distillation_loss):
        assert loss(t, t, T).item() == pytest.approx(0, abs=1e-12)


def test_the_gradient_of_a_high_temperature_is_that_of_squared_scores() -> None:
    """Hinton et al., equation 4: for T → ∞ and scores of mean 0, T² times the gradient is (s − t)/C."""
    s, t = (one - one.mean(dim=1, keepdim=True) for one in (scores(4, 6), scores(4, 6, seed=1)))
    s.requires_grad_()
    distillation_loss(s, t, 1e4).backward()
    assert torch.allclose(s.grad, (s.detach() - t) / 6, atol=1e-4)


@pytest.mark.parametrize(("chunk", "bias"), [(1, True), (3, False), (7, True), (100, False)])
def test_chunks_of_a_vocabulary_change_nothing(chunk: int, bias: bool) -> None:
    def make(width: int, seed: int) -> TokenScores:
        return TokenScores(scores(7, width, seed=seed), scores(11, width, seed=seed + 1), scores(11) if bias else None)

    student, teacher = make(4, 1), make(6, 3)
    trained = [tensor.requires_grad_() for tensor in student if tensor is not None]
    expected = distillation_loss(F.linear(*student), F.linear(*teacher), 2.0)
    gradients = torch.autograd.grad(3 * expected, trained)
    result = token_distillation_loss(student, teacher, 2.0, chunk)
    assert result.item() == pytest.approx(expected.item())
    for one, other in zip(torch.autograd.grad(3 * result, trained), gradients, strict=True):
        assert torch.allclose(one, other)


def test_similarities_depend_on_angles_only() -> None:
    ours, turn = scores(6, 4), torch.linalg.qr(scores(4, 4, seed=1))[0]
    assert similarity_loss(ours, 7 * ours @ turn).item() == pytest.approx(0, abs=1e-12), "turned and stretched"
    wider = torch.cat([ours, torch.zeros(6, 5)], dim=1)
    assert similarity_loss(ours, wider).item() == pytest.approx(0, abs=1e-12)
    a, b = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert similarity_loss(a, b).item() == pytest.approx(2 * 0.5 / 4), "cos 45° for two of four pairs"
    many = scores(1000, 3)
    assert similarity_loss(many, -many).item() == pytest.approx(0, abs=1e-12)
    assert similarity_loss(many[:0], many[:0]).item() == 0
