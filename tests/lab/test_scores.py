"""The weights of every attention score, beside the models that are nothing but a kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from seriatim.inspect import Inspector
from seriatim.lab.views.scores import FORMULAS
from seriatim.models.nadaraya_watson import NadarayaWatson, Settings
from seriatim.nn.attention import KERNELS, SCORES


def test_weights_of_every_score(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    result = Inspector("rnn").scores()
    assert torch.equal(torch.get_rng_state(), before)
    array = result.arrays["weights"]
    values = dict(zip(array.axes["score"], array.values, strict=True))
    assert set(values) == set(SCORES) == set(FORMULAS)
    line = np.linspace(-3, 3, 49)
    for weights in values.values():
        assert weights.sum(axis=1) == pytest.approx(np.ones(49))
        assert (weights >= 0).all()
    for name in KERNELS:  # as the model that is nothing but a kernel
        settings = Settings(name="nadaraya_watson", kernel=name)
        peer = NadarayaWatson.of(settings, line[:, None], line[:, None], np.ones(1), 1.0)
        assert values[name] == pytest.approx(peer.weights(line[:, None]), abs=1e-12)
    product = np.exp(np.outer(line, line))
    assert values["dot"] == pytest.approx(product / product.sum(axis=1, keepdims=True))
    softer = np.exp(np.outer(line, line) / 4)  # d = 16
    assert values["scaled_dot"] == pytest.approx(softer / softer.sum(axis=1, keepdims=True))
    assert values["distance"] == pytest.approx(values["gaussian"])
    assert values["concat"] == pytest.approx(values["additive"])
    result.save(tmp_path / "x.svg")
    assert "Weights of every attention score" in (tmp_path / "x.svg").read_text("utf-8")
