"""Products of a loop whose gradient comes at its end, against the same loop left to autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seriatim.models.bahdanau import Bahdanau
from seriatim.nn.product import Product


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
    wanted = torch.autograd.grad(loop(lambda given: given @ matrix, x), (matrix, x))
    torch.testing.assert_close(torch.autograd.grad(loop(Product(matrix), x), (matrix, x)), wanted)


def test_backward_again_over_the_same_graph(matrix: Tensor, x: Tensor) -> None:
    """Also behind a pass that asked for another gradient alone, whose steps are not of this one."""
    (wanted,) = torch.autograd.grad(loop(lambda given: given @ matrix, x), matrix)
    loss = loop(Product(matrix), x)
    torch.autograd.grad(loss, x, retain_graph=True)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(loss, matrix, retain_graph=True)[0], wanted)


def test_what_is_kept_does_not_hold_the_graph(matrix: Tensor, x: Tensor) -> None:
    product = Product(matrix)
    torch.autograd.grad(loop(product, x), x)
    (steps,) = product.kept.values()
    assert len(steps) == 3
    assert all(given.grad_fn is None for given, _ in steps)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_autocast(matrix: Tensor, x: Tensor, kind: torch.dtype) -> None:
    """As autocast does it for products of torch: in bfloat16, doubles as they are; gradients in their own type."""
    matrix, x = matrix.detach().to(kind).requires_grad_(), x.detach().to(kind).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        losses = loop(Product(matrix), x), loop(lambda given: given @ matrix, x)
    found, wanted = (torch.autograd.grad(loss.float(), (matrix, x)) for loss in losses)
    assert [one.dtype for one in found] == [kind, kind]
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_a_decoder_under_autocast() -> None:
    torch.manual_seed(0)
    model = Bahdanau(8, 8)
    source, target = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, _ = model.decode(target, model.encode(source))
    hidden.float().sum().backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters())
