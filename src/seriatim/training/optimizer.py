"""Optimizers, their state as named tensors, and learning-rate schedules as pure functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .layer_groups import layer_depths
from .settings import OptimizerSettings, ScheduleSettings

SEPARATOR = "//"  # between a parameter's name and the name of its optimizer state
DEFAULT_WARMUP = 100  # steps of a warm-up that is a share, until the number of all steps is known


def make_optimizer(network: nn.Module, settings: OptimizerSettings, lr: float) -> torch.optim.Optimizer:
    """Returns the optimizer of the trained parameters, in groups with a factor `lr_scale` of the learning rate.

    Weight decay applies to matrices only: biases, gains and norms have no scale to control. With `layer_decay` the
    factor falls with depth. Frozen parameters are left out.
    """
    depths = layer_depths(network) if settings.layer_decay < 1 else {}
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        depth, matrix = depths[name].from_output if depths else 0, parameter.dim() >= 2
        decay = settings.weight_decay if matrix else 0.0
        group = {"params": [], "weight_decay": decay, "lr_scale": settings.layer_decay**depth}
        if parameter.requires_grad:
            groups.setdefault((depth, not matrix), group)["params"].append(parameter)
    ordered = [group for _, group in sorted(groups.items())]
    if settings.name == "sgd":
        return torch.optim.SGD(ordered, lr=lr, momentum=settings.momentum)
    fused = all(p.device.type in ("cpu", "cuda") for p in network.parameters())
    return torch.optim.AdamW(ordered, lr=lr, betas=settings.betas, fused=fused)


def update(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Makes one update with a learning rate, and marks the parameters as changed.

    Fused optimizers do not raise the version counter of parameters, by which caches of packed weights notice changes.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]
    optimizer.step()
    torch.autograd.graph.increment_version([p for group in optimizer.param_groups for p in group["params"]])


def optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    return {
        f"{name}{SEPARATOR}{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer(optimizer: torch.optim.Optimizer, network: nn.Module, stored: dict[str, Tensor]) -> None:
    parameters = dict(network.named_parameters())
    for full_name, value in stored.items():
        name, _, key = full_name.partition(SEPARATOR)
        parameter = parameters[name]
        # Fused kernels expect AdamW's step count on the parameter's device, and averages in the parameter's memory
        # layout.
        like = torch.empty_like(parameter, dtype=value.dtype) if value.shape == parameter.shape else value
        optimizer.state[parameter][key] = value.to(parameter.device) if like is value else like.copy_(value)


# Schedules: each gives the learning rate as a share of its peak

Schedule = Callable[[int, int, ScheduleSettings], float]  # (steps since the warm-up, steps after it, settings)


def constant(step: int, total: int, settings: ScheduleSettings) -> float:
    return 1.0


def linear(step: int, total: int, settings: ScheduleSettings) -> float:
    return 1.0 - (1.0 - settings.floor) * min(step / max(total, 1), 1.0)


def cosine(step: int, total: int, settings: ScheduleSettings) -> float:
    """Loshchilov and Hutter 2017."""
    half = 0.5 * (1.0 + math.cos(math.pi * min(step / max(total, 1), 1.0)))
    return settings.floor + (1.0 - settings.floor) * half


def inverse_sqrt(step: int, total: int, settings: ScheduleSettings) -> float:
    """Vaswani et al. 2017: after the warm-up w, √(w / step), steps counted from 1."""
    warmup = max(settings.warmup, 1)
    return math.sqrt(warmup / (warmup + step + 1))


def one_cycle(step: int, total: int, settings: ScheduleSettings) -> float:
    """Smith 2018: up in the first 30 % from 1/25 of the peak, then down to nearly zero, along cosines."""
    share = min(step / max(total, 1), 1.0)
    low, high, position = (1 / 25, 1.0, share / 0.3) if share < 0.3 else (1e-4, 1.0, 1 - (share - 0.3) / 0.7)
    return low + (high - low) * 0.5 * (1.0 - math.cos(math.pi * position))


def step_decay(step: int, total: int, settings: ScheduleSettings) -> float:
    return settings.gamma ** (step // settings.step_size)


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-sqrt": inverse_sqrt,
    "one-cycle": one_cycle,
    "step": step_decay,
}


def lr_factor(step: int, total: int | None, settings: ScheduleSettings) -> float:
    """Returns the learning rate of update number `step`, counted from 0, as a share of its peak.

    Without a known total the rate stays at its peak. A short run warms up for at most a fifth of it, unless the warm-up
    is a share.
    """
    if 0 < settings.warmup < 1:
        warmup = DEFAULT_WARMUP if total is None else math.ceil(settings.warmup * total)
        settings = settings.model_copy(update={"warmup": warmup})
    else:
        warmup = int(settings.warmup if total is None else min(settings.warmup, total // 5))
    if settings.name == "one-cycle":
        warmup = 0  # it has its own
    if step < warmup:
        return (step + 1) / warmup
    if total is None and settings.name in ("linear", "cosine", "one-cycle"):
        return 1.0
    return SCHEDULES[settings.name](step - warmup, 0 if total is None else total - warmup, settings)
