"""The loss in chunks is `cross_entropy` of all logits: its value, its gradients, its special cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seriatim.nn import loss as losses
from seriatim.nn.layers import readable_equations
from seriatim.nn.loss import token_log_probs, token_loss, token_predictions


def example(
    rows: int = 23, width: int = 16, tokens: int = 301, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(rows + width + tokens)
    hidden = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = (torch.randn(tokens, width, dtype=dtype) / 2).requires_grad_()
    bias = torch.randn(tokens, dtype=dtype, requires_grad=True)
    return hidden, weight, bias, torch.randint(0, tokens, (rows,))


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, targets,
                           reduction="sum", label_smoothing=smoothing)  # fmt: skip


def assert_alike(ours: Tensor, theirs: Tensor, inputs: list[Tensor], relative: float = 1e-5) -> None:
    """Values and gradients, compared by the largest entry of each."""
    torch.testing.assert_close(ours, theirs, rtol=relative, atol=0)
    result = torch.autograd.grad(0.37 * ours, inputs)
    expected = torch.autograd.grad(0.37 * theirs, inputs)
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=relative, atol=relative * float(other.abs().max()))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("rows", "chunk"), [(23, 5), (20, 5), (23, 64), (1, 1), (1, 7), (23, 1), (300, None)])
def test_equals_cross_entropy(rows: int, chunk: int | None, biased: bool, smoothing: float) -> None:
    hidden, weight, bias, targets = example(rows)
    offset = bias if biased else None
    inputs = [hidden, weight, bias] if biased else [hidden, weight]
    ours = token_loss(hidden, weight, offset, targets, smoothing, chunk)
    assert_alike(ours, plain(hidden, weight, offset, targets, smoothing), inputs)


@pytest.mark.parametrize("tokens", [65, losses.SMALL_VOCAB, losses.SMALL_VOCAB + 1, 5_000])
def test_every_size_of_vocabulary(tokens: int) -> None:
    hidden, weight, bias, targets = example(200, 8, tokens)
    ours = token_loss(hidden, weight, bias, targets, 0.1)
    assert_alike(ours, plain(hidden, weight, bias, targets, 0.1), [hidden, weight, bias])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradients_are_those_of_the_value(smoothing: float) -> None:
    hidden, weight, bias, targets = example(7, 3, 11, torch.float64)
    assert torch.autograd.gradcheck(
        lambda h, w, b: token_loss(h, w, b, targets, smoothing, chunk=3), (hidden, weight, bias)
    )


def test_double_precision_stays() -> None:
    hidden, weight, bias, targets = example(dtype=torch.float64)
    ours = token_loss(hidden, weight, bias, targets, 0.1, 5)
    assert ours.dtype == torch.float64
    assert_alike(ours, plain(hidden, weight, bias, targets, 0.1), [hidden, weight, bias], relative=1e-12)


def test_no_rows() -> None:
    hidden, weight, bias, targets = example(0)
    ours = token_loss(hidden, weight, bias, targets, 0.1, 4)
    ours.backward()
    assert ours.item() == 0.0
    assert [float(tensor.grad.abs().sum()) for tensor in (hidden, weight, bias) if tensor.grad is not None] == [0, 0, 0]
    with torch.no_grad():
        assert float(token_loss(hidden, weight, bias, targets, 0.1, 4)) == 0.0
    log_probs, best = token_predictions(hidden, weight, bias, targets)
    assert log_probs.shape == best.shape == token_log_probs(hidden, weight, bias, targets).shape == (0,)


def test_tied_weights_add_up() -> None:
    _, weight, bias, targets = example()
    tokens = torch.arange(23) % 301

    def run(loss: Any) -> tuple[Tensor, list[Tensor]]:
        return loss(torch.tanh(weight[tokens]), weight, bias, targets), [weight, bias]

    ours, inputs = run(lambda *given: token_loss(*given, chunk=4))
    assert_alike(ours, run(plain)[0], inputs)


def test_any_layout() -> None:
    hidden, weight, bias, _ = example(23, 16, 301)
    targets = torch.randint(0, 301, (23, 2))[:, 0]
    wide = torch.randn(16, 23, requires_grad=True)
    views: list[tuple[Tensor, Tensor, Tensor]] = [
        (wide.t(), weight, bias),
        (hidden, torch.randn(16, 301).t(), bias),
        (hidden, torch.randn(301, 32)[:, ::2], bias),
        (torch.randn(16).expand(23, 16), weight, torch.randn(301, 2)[:, 1]),
    ]
    for given in views:
        inputs = [tensor for tensor in given if tensor.requires_grad]
        assert_alike(token_loss(*given, targets, 0.1, 5), plain(*given, targets, 0.1), inputs)


@pytest.mark.parametrize("learning", [(0,), (1,), (2,), (0, 2)])
def test_only_what_learns_gets_a_gradient(learning: tuple[int, ...]) -> None:
    hidden, weight, bias, targets = example()
    given = [tensor.detach().requires_grad_(i in learning) for i, tensor in enumerate((hidden, weight, bias))]
    ours = token_loss(given[0], given[1], given[2], targets, 0.1, 5)
    assert_alike(ours, plain(given[0], given[1], given[2], targets, 0.1), [given[i] for i in learning])


def test_targets_without_hope() -> None:
    """Logits a hundred and more below the highest: the probability is 0 as a number, its logarithm is not."""
    hidden, weight, bias, targets = example()
    with torch.no_grad():
        hidden[::3] *= 100
    hopeless = F.linear(hidden, weight, bias).softmax(dim=1)[torch.arange(23), targets] == 0
    assert 3 < int(hopeless.sum()) < 20
    ours = token_loss(hidden, weight, bias, targets, 0.1, 5)
    assert_alike(ours, plain(hidden, weight, bias, targets, 0.1), [hidden, weight, bias])


def test_what_is_not_a_number_stays_so() -> None:
    hidden, weight, bias, targets = example()
    with torch.no_grad():
        hidden[3, 2] = torch.nan
    assert token_loss(hidden, weight, bias, targets, 0.0, 5).isnan()


def test_half_precision() -> None:
    """Products in bfloat16, softmax and sums in float32: as near the truth as all logits at once under autocast."""
    hidden, weight, bias, targets = example(200, 32)
    inputs = [hidden, weight, bias]
    truth = plain(hidden, weight, bias, targets, 0.1)
    expected = torch.autograd.grad(truth, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        ours = token_loss(hidden, weight, bias, targets, 0.1, 64)
        theirs = plain(hidden, weight, bias, targets, 0.1)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, truth, rtol=2e-3, atol=0)
    result, others = torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs)
    for one, other, true in zip(result, others, expected, strict=True):
        assert one.dtype == torch.float32
        assert float((one - true).norm()) < 1.2 * float((other - true).norm()) < 0.02 * float(true.norm())


def test_a_network_in_half_precision() -> None:
    given = [tensor.detach().bfloat16().requires_grad_() for tensor in example(200, 32)[:3]]
    targets = example(200, 32)[3]
    ours = token_loss(given[0], given[1], given[2], targets, 0.1, 64)
    assert ours.dtype == torch.float32
    assert_alike(ours, plain(given[0], given[1], given[2], targets, 0.1), given, relative=0.02)


def test_backward_may_be_called_again() -> None:
    hidden, weight, bias, targets = example()
    ours = token_loss(hidden, weight, bias, targets, 0.0, 5)
    once = torch.autograd.grad(ours, [hidden, weight, bias], retain_graph=True)
    again = torch.autograd.grad(2 * ours, [hidden, weight, bias])
    assert all(torch.equal(2 * one, two) for one, two in zip(once, again, strict=True))


def test_inputs_are_left_alone() -> None:
    hidden, weight, bias, targets = example()
    before = [tensor.detach().clone() for tensor in (hidden, weight, bias)]
    token_loss(hidden, weight, bias, targets, 0.1, 5).backward()
    assert all(torch.equal(one, two) for one, two in zip((hidden, weight, bias), before, strict=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_without_gradients(smoothing: float) -> None:
    hidden, weight, bias, targets = example()
    with torch.no_grad():
        ours = token_loss(hidden, weight, bias, targets, smoothing, 5)
    assert not ours.requires_grad
    torch.testing.assert_close(ours, plain(hidden, weight, bias, targets, smoothing).detach(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("chunk", [5, 100, None])
def test_scores(chunk: int | None) -> None:
    hidden, weight, bias, targets = example()
    logits = F.linear(hidden, weight, bias).detach()
    log_probs, best = token_predictions(hidden, weight, bias, targets, chunk)
    assert best.tolist() == logits.argmax(dim=1).tolist()
    expected = logits.log_softmax(dim=1)[torch.arange(23), targets]
    torch.testing.assert_close(log_probs, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(token_log_probs(hidden, weight, bias, targets, chunk), expected, rtol=1e-5, atol=1e-6)


def test_the_logits_of_a_chunk_are_the_largest_tensor() -> None:
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            sizes.extend(tensor.numel() for tensor in [result] if isinstance(tensor, Tensor))
            return result

    hidden, weight, bias, targets = example(400, 4, 1_000)
    with Watch():
        token_loss(hidden, weight, bias, targets, 0.1, 50).backward()
    assert max(sizes) == 50 * 1_000


def test_operations_are_counted() -> None:
    hidden, weight, bias, targets = example(64, 16, 1_000)
    with readable_equations(), FlopCounterMode(display=False) as counter:
        token_loss(hidden, weight, bias, targets).backward()
    assert counter.get_total_flops() == 3 * 2 * 64 * 16 * 1_000
