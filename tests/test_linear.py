"""The layer that keeps its weights in order while it answers: the same numbers, and never old ones."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch.nn import functional as F

from seriatim.nn import linear
from seriatim.nn.linear import Linear


def answered(layer: Linear, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return layer(x).clone()


def fresh(inputs: int = 192, outputs: int = 160, bias: bool = True) -> Linear:
    torch.manual_seed(0)
    return Linear(inputs, outputs, bias=bias).eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5,), (2, 3, 4)])
def test_the_same_as_the_plain_product(shape: tuple[int, ...], bias: bool) -> None:
    layer = fresh(bias=bias)
    x = torch.randn(*shape, 192)
    wanted = F.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(answered(layer, x), wanted.detach(), rtol=1e-5, atol=1e-5)
    wide = torch.randn(*shape, 384)[..., ::2]  # not contiguous
    torch.testing.assert_close(answered(layer, wide), F.linear(wide, layer.weight, layer.bias).detach())


@pytest.mark.skipif(not linear._available(), reason="this build of torch has no oneDNN")
def test_it_is_in_use_and_forgotten() -> None:
    layer = fresh()
    answered(layer, torch.randn(2, 192))
    assert layer in linear._ordered
    layer.train()
    assert layer not in linear._ordered
    before = len(linear._ordered)
    answered(layer.eval(), torch.randn(2, 192))
    del layer
    gc.collect()
    assert len(linear._ordered) == before


def test_never_old_weights() -> None:
    """After a copy into the weights, after a fused step of an optimiser, and in a deep copy."""
    layer, x = fresh(), torch.randn(4, 192)
    first = answered(layer, x)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.mul_(2.0)
    torch.testing.assert_close(answered(layer, x) - layer.bias.detach(), 2 * (first - layer.bias.detach()))
    torch.testing.assert_close(answered(twin, x), first)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    layer.train()(x).sum().backward()
    optimiser.step()
    layer.eval()
    torch.testing.assert_close(answered(layer, x), F.linear(x, layer.weight, layer.bias).detach())


def test_other_kinds_of_numbers_go_the_plain_way() -> None:
    layer, x = fresh().double(), torch.randn(4, 192, dtype=torch.float64)
    assert torch.equal(answered(layer, x), F.linear(x, layer.weight, layer.bias).detach())
