"""The native causal convolution against torch's: float64 to 1e-12, float32 to 1e-5 of the largest number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from seriatim import kernels
from seriatim.kernels import layers as native
from seriatim.models.tcn import TCN
from seriatim.nn.layers import readable_equations

pytestmark = pytest.mark.skipif(not kernels.load(), reason="no native kernels here")
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    return torch.conv1d(x.transpose(1, 2), weight, bias, dilation=dilation).transpose(1, 2)


def close(result: Tensor, expected: Tensor) -> None:
    limit = CLOSE[expected.dtype] * max(float(expected.detach().abs().max()), 1.0) if expected.numel() else 0.0
    torch.testing.assert_close(result, expected, rtol=0, atol=limit)


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def ready() -> None:
    assert native.convolution_is_faster(torch.zeros(2, 1, 1))  # and with it the operators are known to torch


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.integers(1, 5),
    steps=st.integers(1, 70),
    inputs=st.integers(1, 35),
    width=st.integers(1, 35),
    taps=st.integers(1, 8),
    dilation=st.integers(1, 9),
    single=st.booleans(),
    biased=st.booleans(),
)
def test_it_is_torchs(
    batch: int, steps: int, inputs: int, width: int, taps: int, dilation: int, single: bool, biased: bool
) -> None:
    ready()
    dtype = torch.float32 if single else torch.float64
    x = drawn(batch, steps + (taps - 1) * dilation, inputs, dtype=dtype)
    weight, bias = drawn(width, inputs, taps, dtype=dtype), drawn(width, dtype=dtype) if biased else None
    result, expected = native.convolution(x, weight, bias, dilation), plain(x, weight, bias, dilation)
    close(result, expected)
    d = torch.randn_like(expected)
    asked = [one for one in (x, weight, bias) if one is not None]
    for one, other in zip(torch.autograd.grad(result, asked, d), torch.autograd.grad(expected, asked, d), strict=True):
        close(one, other)


def test_gradients() -> None:
    ready()
    taken = (drawn(2, 9, 3), drawn(4, 3, 3), drawn(4))
    assert torch.autograd.gradcheck(lambda x, w, b: native.convolution(x, w, b, 2), taken)
    torch.library.opcheck(torch.ops.seriatim.convolution.default, (*taken, 2))


def test_without_a_gradient_of_x_and_not_contiguous() -> None:
    ready()
    x = torch.randn(4, 6, 40, dtype=torch.float64).transpose(1, 2)[:, ::2]  # (4,20,6)
    weight, bias = drawn(5, 6, 3), drawn(5)
    result, expected = native.convolution(x, weight, bias, 4), plain(x, weight, bias, 4)
    close(result, expected)
    d = torch.randn(4, 5, 12, dtype=torch.float64).transpose(1, 2)
    pairs = [torch.autograd.grad(y, (weight, bias), d) for y in (result, expected)]
    for one, other in zip(*pairs, strict=True):
        close(one, other)


def test_nothing_to_do() -> None:
    ready()
    assert native.convolution(torch.zeros(0, 9, 3), torch.zeros(4, 3, 2), None, 1).shape == (0, 8, 4)
    assert native.convolution(torch.zeros(2, 2, 3), torch.zeros(4, 3, 3), None, 1).shape == (2, 0, 4)


@pytest.mark.parametrize("state", [False, True])
def test_a_tcn_is_that_of_the_equations(state: bool) -> None:
    torch.manual_seed(0)
    network, x = TCN(6, 10, 3, 3).double(), torch.randn(3, 40, 6, dtype=torch.float64)
    _, before = network(x[:, :17]) if state else (None, None)
    with readable_equations():
        expected, _ = network(x[:, 17:] if state else x, None, before)
    close(network(x[:, 17:] if state else x, None, before)[0], expected)


def test_what_does_not_fit_is_refused() -> None:
    ready()
    x, weight, bias = torch.zeros(2, 9, 3), torch.zeros(4, 3, 2), torch.zeros(4)
    for wrong, error, words in [
        ((x.long(), weight, bias, 1), TypeError, "float32 or float64"),
        ((x, weight.double(), bias, 1), TypeError, "weight is"),
        ((x, weight, bias.double(), 1), TypeError, "bias is"),
        ((x[0], weight, bias, 1), ValueError, r"\(B, S, C\)"),
        ((x, weight[:, :2], bias, 1), ValueError, "vectors of 3"),
        ((x, weight, bias[:3], 1), ValueError, "bias has shape"),
        ((x, weight, bias, 0), ValueError, "dilation"),
        ((x, weight, bias, 10), ValueError, "too few"),
    ]:
        with pytest.raises(error, match=words):
            native.convolution(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dy has shape"):
        torch.ops.seriatim.convolution_backward(torch.zeros(2, 7, 4), x, weight, 1, True)
