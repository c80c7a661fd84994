"""Optimizers, their state as named tensors, learning-rate schedules as pure functions of progress, and frozen layers.

Learning rates may fall with the depth of a parameter, and the lowest layers may be frozen. The depth is

    from the input    embeddings 0, lowest block 1, …, top block n, parameters after the blocks n + 1, head n + 2
    from the output   head 0, top block and parameters after it 1, …, lowest block n, embeddings n + 1

Blocks are the numbered parts of a backbone: `blocks.3`, `cells.0`, `layers.1`. Two stacks (an encoder and a decoder)
are counted separately. Parameters before the blocks, such as positions, belong to the embeddings. A matrix that serves
as input and output is an embedding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from .config import MUON_LR, Freeze, OptimizerSettings, ScheduleSettings
from .muon import Muon, hidden_matrices

SEPARATOR = "//"  # between a parameter's name and the name of its optimizer state
WARMUP_LIMIT = 0.2  # share of a training, within which a warm-up of a number of steps ends
WARMUP_START = 0.01  # share of the peak learning rate at the start of a warm-up measured in time


def make_optimizer(
    network: nn.Module, settings: OptimizerSettings, lr: float, muon_lr: float = MUON_LR
) -> torch.optim.Optimizer:
    """Returns the optimizer of the trained parameters, in groups with a factor `lr_ratio` of the learning rate.

    Weight decay applies to matrices only: biases, gains and norms have no scale to control. With `layer_decay` the
    factor falls with depth. Frozen parameters are left out.
    """
    depths = layer_depths(network) if settings.layer_decay < 1 else {}
    hidden = hidden_matrices(network) if settings.name == "muon" else {}
    muon_scale = muon_lr / lr
    momentum = 0.9 if settings.momentum is None else settings.momentum
    groups: dict[tuple[int, int, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        depth, matrix = depths[name].from_output if depths else 0, parameter.dim() >= 2
        decay = settings.weight_decay if matrix else 0.0
        group = {"params": [], "weight_decay": decay, "lr_ratio": settings.layer_decay**depth}
        if name in hidden:  # weights decay at the pace of AdamW
            group |= {"stacked": hidden[name], "momentum": momentum}
            group |= {"weight_decay": decay / muon_scale, "lr_ratio": muon_scale * settings.layer_decay**depth}
        if parameter.requires_grad:
            groups.setdefault((depth, hidden.get(name, 0), not matrix), group)["params"].append(parameter)
    ordered = [group for _, group in sorted(groups.items())]
    if settings.name == "sgd":
        return torch.optim.SGD(ordered, lr=lr, momentum=momentum)
    fused = all(p.device.type in ("cpu", "cuda") for p in network.parameters())
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "muon": Muon}
    return kinds.get(settings.name, torch.optim.AdamW)(ordered, lr=lr, betas=settings.betas, fused=fused)


def update(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Makes one update with a learning rate, and marks the parameters as changed.

    Fused optimizers do not raise the version counter of parameters; caches of packed weights need it to notice changes.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_ratio"]
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

Schedule = Callable[[float, float, ScheduleSettings], float]
# (share that has passed of the training after the warm-up, steps since the warm-up, settings)


def constant(share: float, step: float, settings: ScheduleSettings) -> float:
    return 1.0


def linear(share: float, step: float, settings: ScheduleSettings) -> float:
    return 1.0 - (1.0 - settings.floor) * share


def cosine(share: float, step: float, settings: ScheduleSettings) -> float:
    """Loshchilov and Hutter 2017."""
    half = 0.5 * (1.0 + math.cos(math.pi * share))
    return settings.floor + (1.0 - settings.floor) * half


def wsd(share: float, step: float, settings: ScheduleSettings) -> float:
    """Hu et al. 2024 (MiniCPM): stable after the warm-up, then down in a line."""
    return linear(max(1.0 - (1.0 - share) / settings.decay, 0.0), step, settings)


def inverse_sqrt(share: float, step: float, settings: ScheduleSettings) -> float:
    """Vaswani et al. 2017: after the warm-up w, √(w / step), steps counted from 1."""
    warmup = max(settings.warmup, 1)
    return math.sqrt(warmup / (warmup + step + 1))


def one_cycle(share: float, step: float, settings: ScheduleSettings) -> float:
    """Smith 2018: up in the first 30 % from 1/25 of the peak, then down to nearly zero, along cosines."""
    low, high, position = (1 / 25, 1.0, share / 0.3) if share < 0.3 else (1e-4, 1.0, 1 - (share - 0.3) / 0.7)
    return low + (high - low) * 0.5 * (1.0 - math.cos(math.pi * position))


def step_decay(share: float, step: float, settings: ScheduleSettings) -> float:
    return float(settings.gamma ** (step // settings.step_size))


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "wsd": wsd,
    "inverse-sqrt": inverse_sqrt,
    "one-cycle": one_cycle,
    "step": step_decay,
}


def lr_factor(step: int, total: int, settings: ScheduleSettings) -> float:
    """Returns the learning rate of update number `step` of `total`, counted from 0, as a share of its peak.

    A short run warms up for at most a fifth of it, unless the warm-up is a share.
    """
    if 0 < settings.warmup < 1:
        warmup = math.ceil(settings.warmup * total)
        settings = settings.model_copy(update={"warmup": warmup})
    else:
        warmup = int(min(settings.warmup, total // 5))
    if settings.name == "one-cycle":
        warmup = 0  # it has its own
    if step < warmup:
        return (step + 1) / warmup
    share = min((step - warmup) / max(total - warmup, 1), 1.0)
    return SCHEDULES[settings.name](share, step - warmup, settings)


def timed_lr_factor(step: int, progress: float, settings: ScheduleSettings) -> float:
    """Returns the learning rate of update number `step`, counted from 0, as a share of its peak, under a time budget.

    A warm-up of a number of steps ends after them, or after a fifth of the time. Which share of the time it took is
    inferred from the pace so far, so that nothing has to be remembered: however the pace changes, the learning rate
    is at its peak after the warm-up, falls from there, and ends where the schedule ends.

    Args:
        step: The number of updates made before.
        progress: The share of the time that has passed, below 1.
        settings: The schedule. A warm-up below 1 is a share of the time.
    """
    warmup = 0 if settings.name == "one-cycle" else settings.warmup
    is_share = 0 < warmup < 1
    limit = warmup if is_share else WARMUP_LIMIT
    if progress < limit and (is_share or step < warmup):
        return max(progress / limit, WARMUP_START if is_share else (step + 1) / warmup)
    took = step * limit / progress if progress else math.inf  # steps of the warm-up
    if is_share:
        settings = settings.model_copy(update={"warmup": took})
    else:
        took = min(took, warmup)
    end = progress * (took / step) if step else 0.0
    return SCHEDULES[settings.name](max(progress - end, 0.0) / (1 - end), max(step - took, 0.0), settings)


# Depths of layers, and freezing

NUMBERED = re.compile(r"(backbone\..*?)\.(\d+)\.")


class LayerDepth(NamedTuple):
    from_input: int
    from_output: int


def layer_depths(network: nn.Module) -> dict[str, LayerDepth]:
    """Returns the depth of each parameter by its name."""
    numbers, stacks, height = _blocks(network)
    depths: dict[str, LayerDepth] = {}
    in_blocks = not stacks  # a backbone without numbers is one block
    for name, _ in network.named_parameters():
        in_blocks = in_blocks or name in numbers
        if name in numbers:
            stack, number = numbers[name]
            index = stacks[stack].index(number)
            depths[name] = LayerDepth(1 + index, len(stacks[stack]) - index)
        elif name.startswith("head."):
            depths[name] = LayerDepth(height + 2, 0)
        elif name.startswith("backbone.") and in_blocks:
            depths[name] = LayerDepth(height + 1 if stacks else 1, 1)
        else:
            depths[name] = LayerDepth(0, height + 1)
    return depths


def _blocks(network: nn.Module) -> tuple[dict[str, tuple[str, int]], dict[str, list[int]], int]:
    """Returns stack and number of every parameter of a numbered part, the numbers of each stack, and the height."""
    numbers: dict[str, tuple[str, int]] = {}
    stacks: dict[str, list[int]] = {}
    for name, _ in network.named_parameters():
        if match := NUMBERED.match(name):
            stack = match[1]
            directions: int = getattr(network.get_submodule(stack.rpartition(".")[0]), "directions", 1)
            number = int(match[2]) // directions  # both directions of a layer are one block
            numbers[name] = stack, number
            stacks[stack] = sorted({*stacks.get(stack, []), number})
    return numbers, stacks, max((len(stack) for stack in stacks.values()), default=1)


def freeze(network: nn.Module, setting: Freeze) -> str:
    """Freezes parameters by `requires_grad`; returns a note that names them, "" if there are none."""
    if setting == "none":
        return ""
    depths, blocks = layer_depths(network), _blocks(network)[2]
    if isinstance(setting, int) and setting > blocks:
        cause = f"{setting} blocks are to be frozen, the model has {blocks}"
        raise SeriatimError("train.freeze", cause, f"freeze at most {blocks}")
    highest = {"embeddings": 0, "backbone": blocks + 1}[setting] if isinstance(setting, str) else setting
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(depths[name].from_input > highest)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in network.parameters()]
    total, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
    if not trained:
        cause = f"all {total:,} parameters would be frozen"
        raise SeriatimError("train.freeze", cause, "freeze less")
    names = {"embeddings": "the embeddings", "backbone": "all but the head"}
    lowest = f"the embeddings and the lowest {'block' if setting == 1 else f'{setting} blocks'}"
    description = names[setting] if isinstance(setting, str) else lowest
    return f"frozen: {description}, {total - trained:,} of {total:,} parameters; {trained:,} are trained"
