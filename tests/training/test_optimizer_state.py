"""The state of optimizers: parameter groups, round trips, and the version of updated parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers import settings_of
from seriatim.nn.network import token_network
from seriatim.training.config import OptimizerSettings
from seriatim.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors, update


def test_only_matrices_decay_and_lower_layers_learn_slower() -> None:
    network = token_network(settings_of(("gpt", {})), 11, 12)
    optimizer = make_optimizer(network, OptimizerSettings(name="adamw", layer_decay=0.5, weight_decay=0.3), 1e-3)
    for group in optimizer.param_groups:
        assert all((parameter.dim() >= 2) == (group["weight_decay"] > 0) for parameter in group["params"])
    scales = {id(p): group["lr_ratio"] for group in optimizer.param_groups for p in group["params"]}
    named = dict(network.named_parameters())
    assert scales[id(named["backbone.norm.weight"])] == 0.5  # after the blocks
    assert scales[id(named["backbone.blocks.1.feedforward.hidden.weight"])] == 0.5
    assert scales[id(named["backbone.blocks.0.feedforward.hidden.weight"])] == 0.25
    assert scales[id(named["input.weight"])] == scales[id(named["backbone.positions.weight"])] == 0.125


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "muon"])
def test_optimizer_state_round_trip(name: Any) -> None:
    """Also of parameters that are not contiguous, as those of convolutions with channels last."""

    def step(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        sum(parameter.square().sum() for parameter in network.parameters()).backward()  # type: ignore[union-attr]
        update(optimizer, 1e-2)

    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    settings = OptimizerSettings(name=name)
    network, twin = make(), make()
    optimizer = make_optimizer(network, settings, 1e-2)
    step(network, optimizer)
    other = make_optimizer(twin, settings, 1e-2)
    twin.load_state_dict(network.state_dict())
    stored = {name: tensor.clone().contiguous() for name, tensor in optimizer_tensors(optimizer, network).items()}
    load_optimizer(other, twin, stored)
    step(network, optimizer)
    step(twin, other)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), twin.parameters(), strict=True))


def test_an_update_marks_parameters_as_changed() -> None:
    linear = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(linear, OptimizerSettings(name="adamw"), 1e-2)
    linear(torch.ones(1, 2)).sum().backward()
    before = linear.weight._version
    update(optimizer, 1e-2)
    assert linear.weight._version > before
