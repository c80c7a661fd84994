"""Sigmoids in depth and norms: against the chain rule by hand and torch's own modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seriatim.core.device import derive
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.lab.views import norms
from seriatim.lab.views.norms import batch_norm, layer_norm, stack_gradients


@pytest.mark.parametrize("name", norms.STACKS)
def test_gradients_of_stacks_equal_the_chain_rule_and_torchs_batch_norm(name: str) -> None:
    """Without a norm by δ = Wᵀ(φ'(z) ⊙ δ) in numpy, with one by `nn.BatchNorm1d`."""
    kind, normed, variance = norms.STACKS[name]
    generator = torch.Generator().manual_seed(derive(1, "saturation"))
    x = torch.randn(norms.EXAMPLES, norms.WIDTH, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, norms.CLASSES, (norms.EXAMPLES,), generator=generator)
    scale = (variance / norms.WIDTH) ** 0.5
    weights = [
        torch.randn(norms.WIDTH, norms.WIDTH, generator=generator, dtype=torch.float64) * scale for _ in range(4)
    ]
    output = torch.randn(norms.CLASSES, norms.WIDTH, generator=generator, dtype=torch.float64) * norms.WIDTH**-0.5
    result = stack_gradients(name, 4, 1)
    if normed:
        layers = [nn.Linear(norms.WIDTH, norms.WIDTH, bias=False).double() for _ in weights]
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight.data.copy_(weight)
            x = torch.sigmoid(nn.BatchNorm1d(norms.WIDTH).double()(layer(x)))
        F.cross_entropy(x @ output.T, targets).backward()
        expected = [float(layer.weight.grad.norm()) for layer in layers if layer.weight.grad is not None]
    else:
        values = [x.numpy()]
        slopes = []
        for weight in weights:
            z = values[-1] @ weight.numpy().T
            a = {"sigmoid": 1 / (1 + np.exp(-z)), "tanh": np.tanh(z), "relu": np.maximum(z, 0)}[kind]
            slopes.append({"sigmoid": a * (1 - a), "tanh": 1 - a**2, "relu": (z > 0) * 1.0}[kind])
            values.append(a)
        scores = values[-1] @ output.numpy().T
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        delta = (shares - np.eye(norms.CLASSES)[targets]) / norms.EXAMPLES @ output.numpy()
        expected = []
        for n in reversed(range(4)):
            local = delta * slopes[n]
            expected.insert(0, float(np.linalg.norm(local.T @ values[n])))
            delta = local @ weights[n].numpy()
        np.testing.assert_allclose(result.slopes, [slope.mean() for slope in slopes], rtol=1e-10)
    np.testing.assert_allclose(result.sizes, expected, rtol=1e-8)


def test_sigmoids_vanish_and_batch_norm_cures_it() -> None:
    result = Inspector("mlp").saturation(layers="20")
    sizes = result.arrays["size"].values
    assert list(result.arrays["size"].axes["network"]) == list(norms.STACKS)
    assert sizes[0, 0] < 1e-9 * sizes[0, -1]
    assert 0.1 < sizes[1, 0] / sizes[1, -1] < 10
    ratios = sizes[0, :-2] / sizes[0, 1:-1]
    assert (ratios < 0.5).all(), "at each layer"
    assert result.arrays["slope"].values[:2].max() <= 0.25
    for layers in ("1", "a", "20,56", 1000):
        with pytest.raises(SeriatimError) as caught:
            Inspector("mlp").saturation(layers=layers)
        assert caught.value.code == "inspect.layers"
    with pytest.raises(SeriatimError, match="no plain stack"):
        Inspector("gpt").saturation()


def test_norms_equal_torchs() -> None:
    x = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(batch_norm(x), nn.BatchNorm1d(5).double()(x).detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer_norm(x), nn.LayerNorm(5).double()(x).detach(), rtol=1e-12, atol=1e-12)


def test_batch_norm_depends_on_the_batch_and_layer_norm_does_not() -> None:
    result = Inspector("gpt").normalization(lengths="4,2,1", seed=2)
    x, batch, layer = (result.arrays[name].values for name in ("input", "batch norm", "layer norm"))
    assert x.shape == (7, norms.FEATURES)
    np.testing.assert_allclose(batch.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(batch.std(axis=0), 1, rtol=1e-3)
    np.testing.assert_allclose(layer.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(layer.std(axis=1), 1, rtol=1e-3)
    changes = result.arrays["change"].values
    assert (changes[0] > 0.05).all()
    assert (changes[1] == 0).all()
    alone = batch_norm(torch.from_numpy(x[:4])).numpy() - batch[:4]
    assert changes[0, 0] == pytest.approx(np.sqrt((alone**2).mean()))
    padded = np.concatenate([x[:4], x[4:6], np.zeros((2, 6)), x[6:], np.zeros((3, 6))])
    with_padding = F.batch_norm(torch.from_numpy(padded), None, None, training=True).numpy()[:4] - batch[:4]
    assert changes[0, 2] == pytest.approx(np.sqrt((with_padding**2).mean()), rel=1e-6)
    noise = result.arrays["by batch size"].values
    assert (np.diff(noise[0]) < 0).all(), "the larger the batch, the better its statistics"
    assert (noise[1] == 0).all()
    with pytest.raises(SeriatimError, match="nothing to normalize"):
        Inspector("gpt").normalization(lengths="3,0")
