"""Pooling by hand, padding that has no part in it, and the short cut to the last output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import RECURRENT_BOTH, backbones, build, label, mask_of, sequence
from seriatim.models.tcn import TCN
from seriatim.nn.layers import NumberInput
from seriatim.nn.network import Network, Pool, ScaledHead, StepHead, VectorHead

KINDS = ("last", "mean", "max", "attention")


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_row_is_pooled_as_if_alone(kind: Any) -> None:
    torch.manual_seed(0)
    pool = Pool(kind, 5).double()
    hidden, lengths = sequence(3, 7), [7, 4, 1]
    mask = mask_of(lengths, 7)
    wild = torch.where(mask[:, :, None], hidden, 1e6)  # whatever stands in the padding
    pooled = pool(wild, mask)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(pooled[row], pool(hidden[row : row + 1, :length])[0], rtol=1e-12, atol=1e-12)


def test_pooling_by_hand() -> None:
    hidden = torch.tensor([[[1.0, -5.0], [3.0, -2.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    assert Pool("last", 2)(hidden, mask).tolist() == [[3.0, -2.0]]
    assert Pool("mean", 2)(hidden, mask).tolist() == [[2.0, -3.5]]
    assert Pool("max", 2)(hidden, mask).tolist() == [[3.0, -2.0]]
    attention = Pool("attention", 2)
    weights = attention.weights(hidden, mask)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(1))
    assert weights[0, 2] == 0
    torch.testing.assert_close(attention(hidden, mask)[0], weights[0] @ hidden[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_elements_gives_zeros(kind: Any) -> None:
    pooled = Pool(kind, 5).double()(sequence(2, 4), mask_of([4, 0], 4))
    assert pooled[1].tolist() == [0.0] * 5
    assert pooled.isfinite().all()


@pytest.mark.parametrize("case", RECURRENT_BOTH, ids=label)
def test_the_last_of_two_directions_is_where_each_has_read_everything(case: Any) -> None:
    backbone = build(case)
    lengths = [6, 3]
    mask = mask_of(lengths, 6)
    hidden, state = backbone(sequence(2, 6), mask)
    pooled = Pool("last", backbone.width, directions=2)(hidden, mask)
    forward, backward = state[-2][0], state[-1][0]  # the last_output states of the upper layer
    torch.testing.assert_close(pooled, torch.cat([forward, backward], dim=-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", backbones(), ids=label)
def test_the_last_output_alone_is_the_last_of_all(case: Any) -> None:
    backbone = build(case)
    for steps in (1, 2, 7, 12):
        x = sequence(3, steps)
        torch.testing.assert_close(backbone.last_output(x), backbone(x)[0][:, -1], rtol=1e-10, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(1, 5), st.integers(2, 5), st.integers(1, 3))
def test_the_short_cut_of_the_tcn_with_its_gradients(steps: int, levels: int, kernel: int, inputs: int) -> None:
    torch.manual_seed(steps)
    tcn = TCN(inputs, 3, levels, kernel).double()
    x = torch.randn(2, steps, inputs, dtype=torch.double, requires_grad=True)
    short, whole = tcn.last_output(x), tcn(x)[0][:, -1]
    torch.testing.assert_close(short, whole, rtol=1e-10, atol=1e-10)
    parameters = [x, *tcn.parameters()]
    expected = torch.autograd.grad(whole.sin().sum(), parameters, allow_unused=True)
    result = torch.autograd.grad(short.sin().sum(), parameters, allow_unused=True)
    for one, other in zip(result, expected, strict=True):
        if one is None or other is None:  # the upper levels of a short sequence may see one element only
            assert one is None or not one.any()
            assert other is None or not other.any()
        else:
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_a_network_takes_the_short_cut_only_where_it_is_the_same() -> None:
    torch.manual_seed(0)
    tcn = TCN(2, 4, 3, 3).double()
    network = Network(NumberInput(2), tcn, ScaledHead(VectorHead(4, 1, "last"), 1)).double()
    x, mask = torch.randn(3, 9, 2, dtype=torch.double), mask_of([9, 5, 2], 9)
    whole, _ = network(x, mask)
    for row, length in enumerate([9, 5, 2]):
        torch.testing.assert_close(network(x[row : row + 1, :length])[0][0], whole[row], rtol=1e-10, atol=1e-10)


def test_numbers_are_brought_to_one_size_and_back() -> None:
    numbers = NumberInput(2)
    numbers.mean.copy_(torch.tensor([10.0, -1.0]))
    numbers.std.copy_(torch.tensor([2.0, 0.5]))
    x = torch.tensor([[[12.0, -1.0], [8.0, 0.0]]])
    assert numbers(x).tolist() == [[[1.0, 0.0], [-1.0, 2.0]]]
    head = ScaledHead(StepHead(2, 2), 2)
    head.scale.copy_(numbers.std)
    head.shift.copy_(numbers.mean)
    with torch.no_grad():
        head.head.weight.copy_(torch.eye(2))
        head.head.bias.zero_()
    torch.testing.assert_close(head(numbers(x)), x)
