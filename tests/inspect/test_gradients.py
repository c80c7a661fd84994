"""How far back gradients reach, clipping, and backpropagation through time term by term."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seriatim.core.errors import SeriatimError
from seriatim.core.registry import models
from seriatim.inspect import Inspector
from seriatim.inspect.subject import GradientHistory, Subject
from seriatim.inspect.views.backpropagation import unroll
from seriatim.inspect.views.gradients import Reach, clipping_table, gradient_norms, history_chart, mean_norms
from seriatim.nn.network import token_network
from seriatim.report.charts import Heatmap, HeatmapGrid, Lines, Table

# Reach


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru", "tcn", "gpt"])
def test_gradients_equal_central_differences(model: str) -> None:
    torch.manual_seed(0)
    network: Any = token_network(models.load(model).Settings(name=model, width=8), 7, 6).double().eval()
    tokens, target = torch.tensor([[1, 4, 2, 6, 0, 3]]), torch.tensor([5])
    x = network.input(tokens).detach()

    def loss(vectors: torch.Tensor) -> float:
        with torch.no_grad():
            scores = network.head(network.backbone(vectors)[0][:, -1:])[:, 0]
            return float(-scores.log_softmax(dim=-1)[0, target])

    size, expected = 1e-5, torch.zeros_like(x[0])
    for position in range(x.shape[1]):
        for unit in range(x.shape[2]):
            step = torch.zeros_like(x)
            step[0, position, unit] = size
            expected[position, unit] = (loss(x + step) - loss(x - step)) / (2 * size)
    norms = gradient_norms(network, tokens, target)[0]
    assert norms == pytest.approx(expected.norm(dim=1).flip(0).numpy(), rel=1e-4, abs=1e-9)


def curve(network: Any, length: int) -> np.ndarray:
    rows = torch.randint(0, 9, (4, length), generator=torch.Generator().manual_seed(1))
    return mean_norms(network, [(rows, rows[:, 0])])


def network_of(model: str, **more: Any) -> Any:
    torch.manual_seed(0)
    return token_network(models.load(model).Settings(name=model, width=16, **more), 9, 40).eval()


def reach_of(norms: np.ndarray) -> Reach:
    return Reach("model", False, norms, 4, True)


def test_it_vanishes_in_an_rnn_is_kept_in_an_lstm_and_is_one_step_away_in_attention() -> None:
    rnn, lstm, gpt, tcn = network_of("rnn"), network_of("lstm"), network_of("gpt", heads=2), network_of("tcn", levels=2)
    with torch.no_grad():
        rnn.backbone.cells[0].recurrent.mul_(0.5)
        rnn.backbone.cells[0].input.weight.copy_(torch.eye(16))
        rnn.input.weight.mul_(0.01)  # where tanh is linear a step multiplies by 0.5 · an orthogonal matrix
        cell = lstm.backbone.cells[0]
        cell.input.bias[16:32] = 20.0  # the forget gate is open: the cell keeps everything
        cell.recurrent.zero_()
    norms = curve(rnn, 20)
    assert norms[1:] / norms[:-1] == pytest.approx([0.5] * 19, rel=1e-2)
    assert reach_of(norms).factor == pytest.approx(0.5, rel=1e-2)
    assert reach_of(curve(lstm, 40)).factor == pytest.approx(1, abs=0.02)
    assert reach_of(curve(gpt, 40)).factor == pytest.approx(1, abs=0.03)
    assert reach_of(curve(tcn, 40)).distance == tcn.backbone.receptive_field - 1


def test_before_and_after_training_in_one_chart(make_subject: Any) -> None:
    names = ["lstm", "gpt", "rnn"]
    result = Inspector(*(make_subject(name) for name in names)).gradients()
    array = result.arrays["gradient"]
    labels = list(array.axes["network"])
    assert labels == [label for name in names for label in (name, f"{name}, before training")], "trained models first"
    chart = result.charts[0]
    assert isinstance(chart, Lines)
    assert [series.name for series in chart.series if series.dashed] == labels[1::2]
    assert (array.values[:, 0] == 1).all()
    lengths = dict(zip(labels, np.isfinite(array.values).sum(axis=1), strict=True))
    assert (lengths["gpt"], lengths["rnn"]) == (24, 128), "a GPT has no more context than it was trained with"
    json.dumps(result.to_json(), allow_nan=False)


def test_fresh_networks_and_those_without_gradients() -> None:
    result = Inspector("rnn", "gpt").gradients(context_length=8)
    assert list(result.arrays["gradient"].axes["network"]) == ["rnn", "gpt"]
    assert not any(series.dashed for series in result.charts[0].series)
    assert list(Inspector("ngram", "rnn").gradients(context_length=6).arrays["gradient"].axes["network"]) == ["rnn"]
    with pytest.raises(SeriatimError) as caught:
        Inspector("rnn").gradients(context_length=1)
    assert caught.value.code == "inspect.length"


def test_the_classical_comparison_at_one_spectral_radius() -> None:
    """The RNN decays by at most the radius; gates that keep do better, gates that are half open worse."""
    result = Inspector("rnn", "lstm", "gru", "gpt").gradients(context_length=48, scale=0.8)
    array = result.arrays["same radius"]
    names = ["rnn", "lstm, gates keep", "lstm, gates half open", "gru, gates keep", "gru, gates half open"]
    assert list(array.axes["network"]) == names
    factors = {name: reach_of(line).factor or 0.0 for name, line in zip(names, array.values, strict=True)}
    assert factors["rnn"] <= 0.8
    assert factors["gru, gates half open"] < factors["rnn"] < factors["gru, gates keep"]
    assert factors["lstm, gates half open"] < factors["rnn"] < factors["lstm, gates keep"]
    fresh = result.arrays["gradient"]
    assert list(fresh.axes["network"]) == ["rnn", "lstm", "gru", "gpt"]
    assert any("initialized as for training" in note for note in result.notes)
    assert [series.dashed for series in result.charts[1].series] == [False, False, True, False, True]
    assert "same radius" not in Inspector("gpt", "tcn").gradients(context_length=8).arrays


def test_a_text_of_the_user(make_subject: Any) -> None:
    inspector = Inspector(make_subject("rnn"))
    assert inspector.gradients("a fine fil").arrays["gradient"].values.shape == (2, 9), "the last token is predicted"
    with pytest.raises(SeriatimError, match="no next token"):
        inspector.gradients("t")
    classified = Inspector(make_subject("classify")).gradients("a fine film")
    assert classified.arrays["gradient"].values.shape == (2, 5)
    assert any("random direction" in note for note in classified.notes)


def test_the_factor_of_an_exponential_decay() -> None:
    reach = reach_of(np.array([1.0, *(3 * 0.8**n for n in range(1, 30)), 0.0]))
    assert reach.factor == pytest.approx(0.8)
    assert reach.distance == 29
    assert reach_of(np.array([1.0, 0.5])).factor is None


def test_clipped_steps_are_counted(make_subject: Any) -> None:
    history = GradientHistory(np.arange(1, 5.0), np.array([0.5, 1.5, 2.0, 0.9]), 1.0)
    assert clipping_table({"run": history}).rows == (("run", 1.0, 4, 2, "50.0 %", 1.2, 2.0),)
    assert [(mark.text, mark.y) for mark in history_chart({"run": history}).annotations] == [("clipped above 1", 1.0)]
    source = make_subject("rnn")
    subject = Subject("rnn", source.settings, lambda: source.predictor, lambda: source.task, lambda: history)
    result = Inspector(subject).gradients("a fine film")
    assert result.arrays["norm, rnn"].values.tolist() == [0.5, 1.5, 2.0, 0.9]
    assert len(result.charts) == 4


# Backpropagation through time


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
