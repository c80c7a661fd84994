"""Optimisers, and their state as named tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .depth import places
from .settings import OptimiserSettings

SEPARATOR = "//"  # between a parameter's name and the name of its average


def make_optimiser(network: nn.Module, settings: OptimiserSettings, rate: float) -> torch.optim.Optimizer:
    """Weight decay pulls on matrices only: biases, gains and norms have no scale to keep in check. Each group has its
    `share` of the rate, which falls with depth where that is asked for; what is frozen has no part in it."""
    where = places(network) if settings.layer_decay < 1 else {}
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        depth, matrix = where[name].above if where else 0, parameter.dim() >= 2
        decay = settings.weight_decay if matrix else 0.0
        group = {"params": [], "weight_decay": decay, "share": settings.layer_decay**depth}
        if parameter.requires_grad:
            groups.setdefault((depth, not matrix), group)["params"].append(parameter)
    ordered = [group for _, group in sorted(groups.items())]
    if settings.name == "sgd":
        return torch.optim.SGD(ordered, lr=rate, momentum=settings.momentum)
    fused = all(p.device.type in ("cpu", "cuda") for p in network.parameters())
    return torch.optim.AdamW(ordered, lr=rate, betas=settings.betas, fused=fused)


def optimiser_tensors(optimiser: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    return {
        f"{name}{SEPARATOR}{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimiser(optimiser: torch.optim.Optimizer, network: nn.Module, stored: dict[str, Tensor]) -> None:
    parameters = dict(network.named_parameters())
    for full, value in stored.items():
        name, _, key = full.partition(SEPARATOR)
        parameter = parameters[name]
        # AdamW's count of steps stays where fused kernels want it: beside the parameter. They take numbers in the order
        # in which these lie in memory, so an average must lie as its parameter does.
        held = torch.empty_like(parameter, dtype=value.dtype) if value.shape == parameter.shape else value
        optimiser.state[parameter][key] = value.to(parameter.device) if held is value else held.copy_(value)
