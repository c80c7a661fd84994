"""The ways through cuDNN and oneDNN, run on the CPU by the same functions of torch, against the equations, and when
they are taken."""

from __future__ import annotations

import pytest
import torch

from seriatim.kernels import recurrent
from seriatim.models.gru import GRUCell
from seriatim.models.lstm import LSTMCell
from seriatim.models.rnn import RNNCell
from seriatim.nn.recurrent import scan

MAKERS = {
    "tanh": lambda: RNNCell(3, 5),
    "relu": lambda: RNNCell(3, 5, "relu"),
    "lstm": lambda: LSTMCell(3, 5),
    "gru-after": lambda: GRUCell(3, 5, "after"),
}
RAGGED = torch.arange(6) < torch.tensor([4, 6, 1, 3])[:, None]


def made(kind):
    torch.manual_seed(0)
    cell = MAKERS[kind]().double()
    if kind == "gru-after":
        torch.nn.init.normal_(cell.bias)
    x = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(cell.state_tensors))
    return cell, x, state


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("mask", [None, RAGGED], ids=["whole", "ragged"])
@pytest.mark.parametrize("reverse", [False, True])
def test_equals_the_equations(kind, mask, reverse):
    cell, x, state = made(kind)
    leaves = [x, *state, *cell.parameters()]
    result = []
    for run in (
        lambda: cell.run_cudnn(x, state, mask, reverse),
        lambda: scan(cell, cell.input(x), state, mask, reverse),
    ):
        y, after = run()
        total = (y * torch.arange(6.0)[:, None]).sum() + sum((part * 3).sum() for part in after)
        result.append((y, *after, *torch.autograd.grad(total, leaves)))
    for one, other in zip(*result, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_only_on_a_gpu_and_for_what_cudnn_has():
    assert not recurrent.supports_cudnn(torch.zeros(2, 3, 4), "lstm", None)

    class OnGPU:
        device, shape = torch.device("cuda"), (2, 3, 4)

    right, left, empty = (torch.tensor(rows, dtype=torch.bool) for rows in ([[1, 1, 0]], [[0, 1, 1]], [[0, 0, 0]]))
    assert recurrent.supports_cudnn(OnGPU(), "lstm", None)
    assert recurrent.supports_cudnn(OnGPU(), "lstm", right)
    assert not recurrent.supports_cudnn(OnGPU(), "lstm", left)
    assert not recurrent.supports_cudnn(OnGPU(), "lstm", empty)
    assert not recurrent.supports_cudnn(OnGPU(), "gru", None)  # its reset stands before the product
    assert not recurrent.supports_cudnn(OnGPU(), None, None)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_cell_takes_it_where_it_serves(kind, monkeypatch):
    cell, x, state = made(kind)
    expected, after = cell(x, RAGGED, state)
    monkeypatch.setattr(recurrent, "supports_cudnn", lambda *given: True)
    monkeypatch.setattr(cell, "run_kernel", None)
    y, last = cell(x, RAGGED, state)
    torch.testing.assert_close((y, last), (expected, after), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_wide_lstms_are_those_of_the_library(reverse, monkeypatch):
    torch.manual_seed(0)
    cell = LSTMCell(4, recurrent.MIN_ONEDNN_WIDTH)
    x, state = torch.randn(3, 5, 4), tuple(torch.randn(3, recurrent.MIN_ONEDNN_WIDTH) for _ in range(2))
    assert recurrent.prefers_onednn(x, recurrent.MIN_ONEDNN_WIDTH, None)
    assert not recurrent.prefers_onednn(x, recurrent.MIN_ONEDNN_WIDTH - 1, None)
    assert not recurrent.prefers_onednn(x, recurrent.MIN_ONEDNN_WIDTH, RAGGED)
    assert not recurrent.prefers_onednn(x.double(), recurrent.MIN_ONEDNN_WIDTH, None)
    expected = scan(cell, cell.input(x), state, None, reverse)
    monkeypatch.setattr(recurrent, "_native", lambda x: True)
    monkeypatch.setattr(recurrent, "_use_native", None)
    torch.testing.assert_close(cell(x, None, state, reverse), expected, rtol=1e-4, atol=1e-5)
