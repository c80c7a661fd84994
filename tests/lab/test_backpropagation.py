"""Backpropagation through time, term by term: the terms sum to autograd's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.lab.views.backpropagation import unroll
from seriatim.report.charts import Heatmap, HeatmapGrid, Lines, Table


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 6),
    steps=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    scale=st.floats(0, 2, allow_subnormal=False),
    activation=st.sampled_from(["tanh", "relu"]),
    outputs=st.sampled_from(["all", "last", "1"]),
)
def test_the_terms_sum_to_autograds_gradient(
    width: int, steps: int, seed: int, scale: float, activation: str, outputs: str
) -> None:
    unrolled = unroll(width, steps, seed, scale, activation=activation, outputs=outputs)
    assert set(unrolled.gradients) == {"recurrent", "input", "bias", "output"}
    for name, value in unrolled.gradients.items():
        torch.testing.assert_close(value, unrolled.autograd[name], rtol=1e-12, atol=1e-12)
    assert unrolled.terms["recurrent"].shape == (steps, steps, width, width)


@pytest.mark.parametrize(
    ("outputs", "in_loss"), [("last", [6]), ("last3", [4, 5, 6]), ("all", [1, 2, 3, 4, 5, 6]), ("2,5", [2, 5])]
)
def test_the_terms_sum_to_the_gradient_of_torchs_rnn(outputs: str, in_loss: list[int]) -> None:
    """`torch.nn.RNN` and a linear layer with cross-entropy over the same outputs; each ∂J_t/∂h_k by autograd, too."""
    unrolled = unroll(3, 6, seed=5, scale=1.1, outputs=outputs)
    peer, head = nn.RNN(3, 3, batch_first=True).double(), nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        head.weight.copy_(unrolled.output)
        peer.weight_ih_l0.copy_(unrolled.cell.input.weight)
        peer.weight_hh_l0.copy_(unrolled.cell.recurrent)
        peer.bias_ih_l0.copy_(unrolled.cell.input.bias)
        peer.bias_hh_l0.zero_()
    losses = nn.functional.cross_entropy(head(peer(unrolled.x[None])[0][0]), unrolled.targets, reduction="none")
    losses[[t - 1 for t in in_loss]].sum().backward()
    for t in range(1, 7):
        expected = float(losses[t - 1].detach()) if t in in_loss else 0.0
        assert float(unrolled.losses[t - 1]) == pytest.approx(expected, abs=1e-14)
    peers = {"recurrent": peer.weight_hh_l0, "input": peer.weight_ih_l0, "bias": peer.bias_ih_l0, "output": head.weight}
    for name, parameter in peers.items():
        assert parameter.grad is not None
        torch.testing.assert_close(unrolled.gradients[name], parameter.grad, rtol=1e-12, atol=1e-13)


def test_every_term_is_a_jacobian_of_its_loss() -> None:
    unrolled = unroll(3, 5, seed=2)

    def state_at(state: torch.Tensor, k: int, t: int) -> torch.Tensor:
        for x in unrolled.x[k:t]:
            state = torch.tanh(unrolled.cell.input(x) + unrolled.cell.recurrent @ state)
        return state

    def loss(state: torch.Tensor, k: int, t: int) -> torch.Tensor:
        return -(unrolled.output @ state_at(state, k, t)).log_softmax(dim=0)[unrolled.targets[t - 1]]

    for t in range(1, 6):
        for k in range(1, t + 1):
            jacobian = torch.func.jacrev(state_at)(unrolled.states[k], k, t).detach()
            torch.testing.assert_close(unrolled.products[t - 1, k - 1], jacobian, rtol=1e-12, atol=1e-13)
            gradient = torch.func.grad(loss)(unrolled.states[k], k, t).detach()
            torch.testing.assert_close(unrolled.arriving[t - 1, k - 1], gradient, rtol=1e-12, atol=1e-13)
        assert not unrolled.arriving[t - 1, t:].any(), "later states are no cause"


@pytest.mark.parametrize("span", [0, 1, 3])
def test_truncation_drops_what_detached_states_drop(span: int) -> None:
    """The gradient of each loss through the last τ + 1 steps only, with the state before them detached."""
    steps, unrolled = 6, unroll(4, 6, seed=3, scale=1.2)
    recurrent = unrolled.cell.recurrent.detach().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for t in range(1, steps + 1):
        first = max(t - span, 1)
        state = unrolled.states[first - 1]
        for x in unrolled.x[first - 1 : t]:
            state = torch.tanh(unrolled.cell.input(x).detach() + recurrent @ state)
        total = total + nn.functional.cross_entropy(unrolled.output @ state, unrolled.targets[t - 1])
    (truncated,) = torch.autograd.grad(total, recurrent)
    whole = unrolled.autograd["recurrent"]
    expected = float((whole - truncated).norm() / whole.norm())
    assert unrolled.truncated("recurrent")[span] == pytest.approx(expected, abs=1e-12)
    assert unrolled.truncated("recurrent")[-1] == 0


def test_every_term_is_shown_and_whether_it_vanishes() -> None:
    show = Inspector("rnn").backpropagation
    result = show(width=2, steps=4)
    terms = result.arrays["terms_recurrent"].values
    assert terms.sum(axis=(0, 1)) == pytest.approx(result.arrays["autograd"].values, abs=1e-12)
    lines = result.text.splitlines()
    assert sum(line.startswith("term ") for line in lines) == 4
    assert sum(line.startswith("∂J_") for line in lines) == 10, "t ≥ k"
    assert sum(line.startswith("∂J_") for line in show(width=2, steps=4, outputs="last").text.splitlines()) == 4
    assert "vanishes" in result.text
    assert "grows" in show(scale=2.0).text
    weights = [[0.0, 0.5], [0.25, 0.0]]
    own = show(width=2, steps=3, weights=weights, scale=1.0)
    slopes = 1 - own.arrays["states"].values[1][:, None] ** 2
    assert own.arrays["factors"].values[0] == pytest.approx(slopes * np.array(weights))
    pairs = result.charts[0]
    assert isinstance(pairs, Heatmap)
    assert pairs.values[0][1:] == (None, None, None)
    assert pairs.values[3][0] == pytest.approx(np.linalg.norm(result.arrays["arriving"].values[3, 0]), rel=1e-3)
    assert {type(chart) for chart in result.charts} == {Heatmap, HeatmapGrid, Lines, Table}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"width": 0}, "inspect.width"),
        ({"steps": 100}, "inspect.steps"),
        ({"weights": [[1.0]]}, "inspect.weights"),
        ({"outputs": "first"}, "inspect.outputs"),
        ({"outputs": "last9"}, "inspect.outputs"),
        ({"outputs": [0]}, "inspect.outputs"),
        ({"outputs": ""}, "inspect.outputs"),
    ],
)
def test_networks_that_cannot_be_shown(options: dict[str, Any], code: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector("rnn").backpropagation(**options)
    assert caught.value.code == code
    with pytest.raises(SeriatimError, match="not a plain RNN"):
        Inspector("lstm").backpropagation()
