"""Attention step by step: the classic example by hand, heads against the module, Bahdanau against its equations."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.views.attention_steps import classic_example
from seriatim.report.charts import Heatmap, HeatmapGrid


def test_the_classic_example() -> None:
    """112 and 96 over √64 are 14 and 12, with weights of 0.88 and 0.12; z = 0.88 v_1 + 0.12 v_2."""
    result = Inspector("gpt").attention_steps()
    arrays = {name: array.values for name, array in result.arrays.items()}
    assert arrays["products"][0, 0].tolist() == [112, 96]
    assert arrays["scores"][0, 0].tolist() == [14, 12]
    assert arrays["weights"][0, 0].round(2).tolist() == pytest.approx([0.88, 0.12])
    share = 1 / (1 + math.exp(-2))
    expected = share * arrays["values"][0, 0] + (1 - share) * arrays["values"][0, 1]
    np.testing.assert_allclose(arrays["z"][0, 0], expected, rtol=1e-6)
    assert arrays["x"].shape == (2, 4)
    steps = classic_example()
    peer = F.scaled_dot_product_attention(steps.query[None], steps.key[None], steps.value[None])[0]
    torch.testing.assert_close(steps.pooled, peer)
    assert [chart.title[:2] for chart in result.charts] == [f"{n}." for n in range(1, 9)]
    assert "112" in result.text
    assert any("0.88" in texts for chart in result.charts if isinstance(chart, Heatmap) for texts in chart.texts)
    with pytest.raises(SeriatimError, match="knows no tokens"):
        Inspector("gpt").attention_steps("a text")


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("gpt", "a fine film", {}),
        ("gpt", "a fine film", {"layer": 1, "head": 1}),
        ("classify", "a fine film", {"layer": 1}),
        ("transformer", "a fine film", {"part": "encoder"}),
        ("transformer", "a fine film", {"part": "decoder", "target": "mlif"}),
        ("transformer", "a fine film", {"part": "cross", "target": "mlif"}),
    ],
)
def test_weights_are_those_of_the_model_and_z_gives_its_output(
    make_subject: Any, name: str, text: str, options: dict[str, Any]
) -> None:
    inspector = Inspector(make_subject(name))
    result = inspector.attention_steps(text, **options)
    weights = result.arrays["weights"].values
    traced = inspector.attention(text, **({"layer": 0} | options)).arrays["attention"].values[0]
    np.testing.assert_allclose(weights, traced, atol=1e-6)
    q, k, v = (result.arrays[part].values for part in ("queries", "keys", "values"))
    np.testing.assert_allclose(result.arrays["products"].values, q @ k.swapaxes(1, 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.arrays["z"].values, weights @ v, rtol=1e-5, atol=1e-6)
    error = float(result.notes[-1].rpartition("to ")[2].rstrip(")"))
    assert error < 1e-5, "by the layer's own output projection"
    count = 1 if "head" in options else 2
    assert len(result.details) == len(weights) == count
    assert isinstance(result.charts[1], Heatmap if count == 1 else HeatmapGrid)
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("position", [0, 2])
def test_a_step_of_bahdanau(make_subject: Any, position: int) -> None:
    """The decoder's state by its own steps, then the equations of the score with its weights."""
    subject = make_subject("bahdanau")
    result = Inspector(subject).attention_steps("a fine film", target="a enif mlif", position=position)
    reading, network = subject.read("a fine film", target="a enif mlif"), subject.network
    backbone = network.backbone
    with torch.no_grad():
        memory, trace = network.encode(reading.inputs[0], reading.batch.mask), {}
        network.decode(reading.inputs[1], memory, None, trace)
        h, _ = backbone.encoder(network.source(reading.inputs[0]) * network.scale, reading.batch.mask)
        y, states = network.target(reading.inputs[1]) * network.scale, [memory[-1]]
        state = None
        for t in range(position):
            state = backbone.decode(y[:, t : t + 1], memory, state)[1]
            states.append(state[0])
        score = backbone.score
        inside = torch.tanh(score.query.weight @ states[-1][0][0] + h[0] @ score.key.weight.T)
        scores = inside @ score.weight
    arrays = {name: torch.from_numpy(array.values) for name, array in result.arrays.items()}
    torch.testing.assert_close(arrays["tanh(W_q s + W_k h)"], inside, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(arrays["scores"], scores, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(arrays["weights"], scores.softmax(dim=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(arrays["weights"], trace["alignment"][0, position], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(arrays["context"], scores.softmax(dim=0) @ h[0], rtol=1e-4, atol=1e-5)
    assert f"({position})" in result.title


def test_fresh_recurrent_decoders() -> None:
    result = Inspector("bahdanau").attention_steps()
    assert result.arrays["weights"].values.sum() == pytest.approx(1, abs=1e-5)
    assert len(result.charts) == 5
    assert len(Inspector("show_attend_tell").attention_steps(position=3).charts) == 5
    for model in ("lstm", "t5"):
        with pytest.raises(SeriatimError, match="neither scaled dot-product"):
            Inspector(model).attention_steps()


def test_long_texts_and_positions_out_of_range(make_subject: Any) -> None:
    inspector = Inspector(make_subject("gpt"))
    with pytest.raises(SeriatimError):
        inspector.attention_steps("a fine film", position=99)
    with pytest.raises(SeriatimError):
        inspector.attention_steps("a fine film", layer=2)
    with pytest.raises(SeriatimError):
        inspector.attention_steps("a fine film", head=2)
