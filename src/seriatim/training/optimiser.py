"""Optimisers, and their state as named tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .settings import OptimiserSettings

SEPARATOR = "//"  # between a parameter's name and the name of its average


def make_optimiser(network: nn.Module, settings: OptimiserSettings, rate: float) -> torch.optim.Optimizer:
    """Weight decay pulls on matrices only: biases, gains and norms have no scale to keep in check."""
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=settings.momentum)
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    return torch.optim.AdamW(groups, lr=rate, betas=settings.betas, fused=fused)


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
        # AdamW's count of steps stays where fused kernels want it: beside the parameter
        optimiser.state[parameter][key] = value.to(parameter.device)
