"""How far back gradients reach, clipping, and backpropagation through time term by term."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.core.registry import models
from seriatim.inspect import Inspector
from seriatim.inspect.subject import GradientHistory, Subject
from seriatim.inspect.views.gradients import Reach, clipping_table, gradient_norms, history_chart, mean_norms
from seriatim.nn.network import token_network
from seriatim.report.charts import Lines

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
