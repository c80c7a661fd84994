"""Learning-rate schedules: pure functions of the step. Each gives a share of the peak rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from .settings import ScheduleSettings

WARMUP = 100  # steps of one that is a share, until the number of all steps is known

Shape = Callable[[int, int, ScheduleSettings], float]  # (steps since the warm-up, steps after it, settings) → share


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
    """Smith 2018: up for the first 30 % from 1/25 of the peak, then down to nearly nothing, along cosines."""
    share = min(step / max(total, 1), 1.0)
    low, high, where = (1 / 25, 1.0, share / 0.3) if share < 0.3 else (1e-4, 1.0, 1 - (share - 0.3) / 0.7)
    return low + (high - low) * 0.5 * (1.0 - math.cos(math.pi * where))


def drops(step: int, total: int, settings: ScheduleSettings) -> float:
    return settings.factor ** (step // settings.every)


SHAPES: dict[str, Shape] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-sqrt": inverse_sqrt,
    "one-cycle": one_cycle,
    "step": drops,
}


def share_of_peak(step: int, total: int | None, settings: ScheduleSettings) -> float:
    """The share for update number `step`, counted from 0. Without a known total the rate stays at its peak.

    A short run warms up for a fifth of it at most, unless the warm-up is itself a share.
    """
    if 0 < settings.warmup < 1:
        warmup = WARMUP if total is None else math.ceil(settings.warmup * total)
        settings = settings.model_copy(update={"warmup": warmup})
    else:
        warmup = int(settings.warmup if total is None else min(settings.warmup, total // 5))
    if settings.name == "one-cycle":
        warmup = 0  # it rises by itself
    if step < warmup:
        return (step + 1) / warmup
    if total is None and settings.name in ("linear", "cosine", "one-cycle"):
        return 1.0
    return SHAPES[settings.name](step - warmup, 0 if total is None else total - warmup, settings)
