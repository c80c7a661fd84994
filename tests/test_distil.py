"""Distillation: the losses by hand, the same mathematics however a batch is cut, and teachers that do not fit."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seriatim.nn.soft import TokenScores, likeness_loss, soft_choices_loss, soft_loss, soft_token_loss

# The losses


def scores(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_soft_losses_by_hand() -> None:
    s, t, T = scores(5, 3), scores(5, 3, seed=1), 2.5
    p, q = (t / T).exp() / (t / T).exp().sum(1, keepdim=True), (s / T).exp() / (s / T).exp().sum(1, keepdim=True)
    assert soft_loss(s, t, T).item() == pytest.approx(T**2 * float((p * (p / q).log()).sum()))
    p, q = 1 / (1 + (-t / T).exp()), 1 / (1 + (-s / T).exp())
    by_hand = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    assert soft_choices_loss(s, t, T).item() == pytest.approx(T**2 * float(by_hand.sum() / 3))
    for loss in (soft_loss, soft_choices_loss):
        assert loss(t, t, T).item() == pytest.approx(0, abs=1e-12)


def test_the_gradient_of_a_high_temperature_is_that_of_squared_scores() -> None:
    """Hinton et al., equation 4: for T → ∞ and scores of mean 0, T² times the gradient is (s − t)/C."""
    s, t = (one - one.mean(dim=1, keepdim=True) for one in (scores(4, 6), scores(4, 6, seed=1)))
    s.requires_grad_()
    soft_loss(s, t, 1e4).backward()
    assert torch.allclose(s.grad, (s.detach() - t) / 6, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("bias", [True, False])
def test_chunks_of_a_vocabulary_change_nothing(chunk: int, bias: bool) -> None:
    def made(width: int, seed: int) -> TokenScores:
        return TokenScores(scores(7, width, seed=seed), scores(11, width, seed=seed + 1), scores(11) if bias else None)

    student, teacher = made(4, 1), made(6, 3)
    learning = [one.requires_grad_() for one in student if one is not None]
    wanted = soft_loss(F.linear(*student), F.linear(*teacher), 2.0)
    gradients = torch.autograd.grad(3 * wanted, learning)
    found = soft_token_loss(student, teacher, 2.0, chunk)
    assert found.item() == pytest.approx(wanted.item())
    for one, other in zip(torch.autograd.grad(3 * found, learning), gradients, strict=True):
        assert torch.allclose(one, other)


def test_likeness_asks_for_angles_alone() -> None:
    ours, turn = scores(6, 4), torch.linalg.qr(scores(4, 4, seed=1))[0]
    assert likeness_loss(ours, 7 * ours @ turn).item() == pytest.approx(0, abs=1e-12), "turned and stretched"
    wider = torch.cat([ours, torch.zeros(6, 5)], dim=1)
    assert likeness_loss(ours, wider).item() == pytest.approx(0, abs=1e-12)
    a, b = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert likeness_loss(a, b).item() == pytest.approx(2 * 0.5 / 4), "cos 45° for two of four pairs"
    many = scores(1000, 3)
    assert likeness_loss(many, -many).item() == pytest.approx(0, abs=1e-12)
    assert likeness_loss(many[:0], many[:0]).item() == 0
