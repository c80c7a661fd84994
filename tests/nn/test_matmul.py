"""`LoopMatmul` against the same loop by autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seriatim.models.bahdanau import Bahdanau
from seriatim.nn.recurrent import LoopMatmul


def loop(times: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    outputs = []
    for _ in range(3):
        x = torch.tanh(times(x))
        outputs.append(x)
    return torch.stack(outputs).sum()


@pytest.fixture
def matrix() -> Tensor:
    return torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_as_autograd(matrix: Tensor, x: Tensor) -> None:
    expected = torch.autograd.grad(loop(lambda inputs: inputs @ matrix, x), (matrix, x))
    torch.testing.assert_close(torch.autograd.grad(loop(LoopMatmul(matrix), x), (matrix, x)), expected)


def test_repeated_backward_passes(matrix: Tensor, x: Tensor) -> None:
    """Also after a pass for another gradient, whose steps do not belong to this one."""
    (expected,) = torch.autograd.grad(loop(lambda inputs: inputs @ matrix, x), matrix)
    loss = loop(LoopMatmul(matrix), x)
    torch.autograd.grad(loss, x, retain_graph=True)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(loss, matrix, retain_graph=True)[0], expected)


def test_saved_steps_do_not_hold_the_graph(matrix: Tensor, x: Tensor) -> None:
    multiply = LoopMatmul(matrix)
    torch.autograd.grad(loop(multiply, x), x)
    (steps,) = multiply.steps.values()
    assert len(steps) == 3
    assert all(inputs.grad_fn is None for inputs, _ in steps)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_autocast(matrix: Tensor, x: Tensor, kind: torch.dtype) -> None:
    """As autocast does for torch's products: bfloat16, float64 unchanged; gradients in their own type."""
    matrix, x = matrix.detach().to(kind).requires_grad_(), x.detach().to(kind).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        losses = loop(LoopMatmul(matrix), x), loop(lambda inputs: inputs @ matrix, x)
    result, expected = (torch.autograd.grad(loss.float(), (matrix, x)) for loss in losses)
    assert [gradient.dtype for gradient in result] == [kind, kind]
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)


def test_a_decoder_under_autocast() -> None:
    torch.manual_seed(0)
    model = Bahdanau(8, 8)
    source, target = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, _ = model.decode(target, model.encode(source))
    hidden.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
