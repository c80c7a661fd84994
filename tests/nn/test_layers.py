"""Linear layers with packed weights: the same results, never stale ones; and their kernels."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch.nn import functional as F

from seriatim import kernels
from seriatim.kernels import layers as native
from seriatim.nn import layers
from seriatim.nn.layers import ACTIVATIONS, Activation, Linear, readable_equations

with_kernels = pytest.mark.skipif(not kernels.load(), reason="no native kernels here")
NAMES: list[Activation] = ["relu", "gelu", "gelu-tanh", "silu"]
TOLERANCES = {torch.float32: 2e-6, torch.float64: 1e-13}


def infer(layer: Linear, x: torch.Tensor) -> torch.Tensor:
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
    expected = F.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(infer(layer, x), expected.detach(), rtol=1e-5, atol=1e-5)
    wide = torch.randn(*shape, 384)[..., ::2]  # not contiguous
    torch.testing.assert_close(infer(layer, wide), F.linear(wide, layer.weight, layer.bias).detach())


@with_kernels
def test_it_is_in_use_and_forgotten() -> None:
    layer = fresh()
    infer(layer, torch.randn(2, 192))
    assert layer in layers._packed
    layer.train()
    assert layer not in layers._packed
    infer(layer.eval(), torch.randn(2, 192))
    assert layer in layers._packed
    reference = weakref.ref(layer)
    del layer
    gc.collect()
    assert reference() is None, "packed weights do not keep their layer alive"


def test_never_old_weights() -> None:
    """After a copy into the weights, after a fused step of an optimizer, and in a deep copy."""
    layer, x = fresh(), torch.randn(4, 192)
    first = infer(layer, x)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.mul_(2.0)
    torch.testing.assert_close(infer(layer, x) - layer.bias.detach(), 2 * (first - layer.bias.detach()))
    torch.testing.assert_close(infer(twin, x), first)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    layer.train()(x).sum().backward()
    optimizer.step()
    layer.eval()
    torch.testing.assert_close(infer(layer, x), F.linear(x, layer.weight, layer.bias).detach())


def test_other_kinds_of_numbers_go_the_plain_way() -> None:
    layer, x = fresh().double(), torch.randn(4, 192, dtype=torch.float64)
    assert torch.equal(infer(layer, x), F.linear(x, layer.weight, layer.bias).detach())


# An activation behind it


@pytest.mark.parametrize("name", NAMES)
def test_an_activation_follows(name: Activation) -> None:
    """While it learns, while it answers, and by the equations: the same, with the same gradients."""
    layer = fresh()
    x = torch.randn(3, 7, 192, requires_grad=True)
    with readable_equations():
        expected = layer.activated(x, name)
    assert torch.equal(expected, ACTIVATIONS[name](F.linear(x, layer.weight, layer.bias)))
    result = layer.activated(x, name)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(layer.activated(x, name), expected.detach(), rtol=1e-5, atol=1e-5)
    above = torch.randn_like(expected)
    inputs = (x, layer.weight, layer.bias)
    for own, other in zip(*(torch.autograd.grad(y, inputs, above) for y in (result, expected)), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_without_a_bias_or_with_other_numbers() -> None:
    layer = fresh(bias=False)
    x = torch.randn(4, 192)
    torch.testing.assert_close(layer.activated(x, "gelu"), F.gelu(F.linear(x, layer.weight)))
    layer = fresh().bfloat16()
    assert torch.equal(layer.activated(x.bfloat16(), "relu"), F.relu(layer(x.bfloat16())))


@with_kernels
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", NAMES)
def test_activations_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    """From where they are flat to where they are straight, and beyond; single precision is held to double."""
    numbers = torch.cat([torch.linspace(-14, 14, 5_003, dtype=torch.float64), torch.tensor([-1e4, -60.0, 0.0, 1e4])])
    x, bias = numbers.to(dtype)[None].repeat(3, 1), torch.full((len(numbers),), 0.125, dtype=dtype)
    exact = (x.double() + bias.double()).requires_grad_()
    expected = ACTIVATIONS[name](exact)
    above = torch.randn_like(expected).to(dtype)
    (slope,) = torch.autograd.grad(expected, exact, above.double())
    tolerance = TOLERANCES[dtype]
    given, shift = x.requires_grad_(), bias.requires_grad_()
    result = native.bias_activation(given, shift, name)
    torch.testing.assert_close(result.double(), expected.detach(), rtol=tolerance, atol=tolerance)
    dx, db = torch.autograd.grad(result, (given, shift), above)
    torch.testing.assert_close(dx.double(), slope, rtol=5 * tolerance, atol=5 * tolerance)
    torch.testing.assert_close(db.double(), slope.sum(dim=0), rtol=5 * tolerance, atol=10 * tolerance)


@with_kernels
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_agree_with_differences(name: str) -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(3, 2, 11, dtype=torch.float64, requires_grad=True), torch.randn(11, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, b: native.bias_activation(x, b, name), (x, bias.requires_grad_()))


@with_kernels
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("rows", "depth", "outputs"), [(1, 1, 1), (5, 7, 3), (6, 33, 16), (13, 40, 17), (200, 700, 31), (400, 64, 129)]
)
def test_packed_products_of_every_size(rows: int, depth: int, outputs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((rows, depth), (outputs, depth), (outputs,)))
    tolerance = 2 * TOLERANCES[dtype] * depth**0.5
    for shift in (bias, None):
        result = native.packed_linear(x, native.pack(weight), outputs, shift)
        torch.testing.assert_close(result, F.linear(x, weight, shift), rtol=tolerance, atol=tolerance)
    result = native.packed_linear(x, native.pack(weight), outputs, bias, "silu")
    torch.testing.assert_close(result, F.silu(F.linear(x, weight, bias)), rtol=tolerance, atol=tolerance)


@with_kernels
def test_what_does_not_fit_is_refused() -> None:
    packed, x = native.pack(torch.ones(20, 8)), torch.ones(2, 8)
    with pytest.raises(ValueError, match="expected vectors of 8"):
        native.packed_linear(torch.ones(2, 9), packed, 20, None)
    with pytest.raises(ValueError, match="outputs do not fit"):
        native.packed_linear(x, packed, 200, None)
    with pytest.raises(TypeError, match="x is Double"):
        native.packed_linear(x.double(), packed, 20, None)
    with pytest.raises(ValueError, match="bias has shape"):
        native.bias_activation(x, torch.ones(9), "gelu")
    with pytest.raises(TypeError, match="bias is Double"):
        native.bias_activation(x, torch.ones(8).double(), "gelu")
    with pytest.raises(ValueError, match="must be a matrix"):
        native.pack(torch.ones(8))
