"""The contract of what reads images: every architecture of images alone, and patches before some that read all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from helpers import image_models, label, registry_settings
from seriatim.core import registry
from seriatim.nn.network import Network, VectorHead, load_weights, weights

SHAPES = [(1, 1, 1), (1, 9, 9), (3, 12, 10)]
TINY: dict[str, dict[str, Any]] = {"vit": {"width": 8, "heads": 2, "layers": 2}, "gpt": {"width": 8, "heads": 2}}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("resnet", {"stem": "photographs", "layers": 10}),
    ("resnet", {"layers": 20, "skips": False}),
    ("vit", {"positions": "sinusoidal"}),
    ("gpt", {}),
    ("gru", {}),
]
CASES = [(name, {}) for name in image_models()] + VARIANTS
every = pytest.mark.parametrize("case", CASES, ids=label)


def network(case: Any, shape: tuple[int, int, int] = SHAPES[-1], seed: int = 0, **more: Any) -> Network:
    torch.manual_seed(seed)
    settings = registry_settings(case[0], {"width": 4} | TINY.get(case[0], {}) | case[1] | more)
    inputs = settings.image_input(shape)
    backbone = settings.build(inputs.width, inputs.grid[0] * inputs.grid[1])
    pooling = settings.task_defaults.get("pooling", "mean")
    result = Network(inputs, backbone, VectorHead(backbone.width, 3, pooling, pooler=settings.pooler))
    inputs.mean.fill_(0.45)
    inputs.std.fill_(0.28)
    return result.eval()


def images(count: int, shape: tuple[int, int, int] = SHAPES[-1]) -> Tensor:
    draw = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=draw)


@every
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(case: Any, shape: tuple[int, int, int]) -> None:
    net = network(case, shape)
    read = net.input(images(2, shape))
    assert read.shape == (2, net.input.grid[0] * net.input.grid[1], net.input.width)
    scores, _ = net(images(2, shape))
    assert scores.shape == (2, 3)
    assert scores.isfinite().all()


@every
def test_neighbours_and_order_never_change_an_answer(case: Any) -> None:
    net = network(case).double()
    x = images(4)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(net(x[order])[0], net(x)[0][order], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(net(x[1:2])[0], net(x)[0][1:2], rtol=1e-10, atol=1e-10)


@every
def test_every_parameter_gets_a_gradient(case: Any) -> None:
    net = network(case).train()
    (net(images(5))[0] * torch.randn(5, 3)).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@every
def test_same_seed_same_weights_and_a_round_trip(case: Any) -> None:
    first, second, third = network(case, seed=1), network(case, seed=1), network(case, seed=2)
    a, b, c = weights(first), weights(second), weights(third)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    load_weights(third, {name: tensor.clone() for name, tensor in a.items()})
    assert torch.equal(third(images(2))[0], first(images(2))[0])


@every
def test_overfits_one_batch(case: Any) -> None:
    """And answers the same once it no longer learns: what a norm remembers follows what it sees."""
    net = network(case, width=8).train()
    x, labels = images(6), torch.arange(6) % 3
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for _ in range(120):
        optimizer.zero_grad()
        F.cross_entropy(net(x)[0], labels).backward()
        optimizer.step()
    assert F.cross_entropy(net.eval()(x)[0], labels).item() < 0.1


@every
def test_dropout_only_while_training(case: Any) -> None:
    net = network(case, dropout=0.5)
    x = images(3)
    assert torch.equal(net(x)[0], net(x)[0])
    net.backbone.train()
    assert not torch.equal(net(x)[0], net(x)[0])


@every
def test_traces_change_nothing(case: Any) -> None:
    net = network(case)
    trace: dict[str, Tensor] = {}
    assert torch.equal(net(images(2), trace=trace)[0], net(images(2))[0])
    assert trace


def test_image_models_are_declared() -> None:
    assert {"resnet", "vit"} <= set(image_models())
    assert registry.models.load("gpt").Settings.modality is None
