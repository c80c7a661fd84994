"""Events of the training loop. Progress bars, logs, files and reports are made from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    step: int
    seconds: float  # of training so far, without evaluation and saving

    def record(self) -> dict[str, Any]:
        """Returns a line of metrics.jsonl."""
        return {"event": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True)
class Started(Event):
    """Training starts, or continues from a step above 0."""

    steps: int | None
    parameters: int
    flops: float | None  # of one update, None if there is no matrix product
    ranks: int
    unit: str = "tokens"  # what `tokens` counts, in the plural


@dataclass(frozen=True)
class Planned(Event):
    """With a time budget: the number of steps that fit into it, as measured."""

    steps: int


@dataclass(frozen=True)
class Stepped(Event):
    loss: float
    lr: float
    grad_norm: float  # before clipping
    tokens: int  # so far, without padding


@dataclass(frozen=True)
class Evaluated(Event):
    metrics: dict[str, float]
    best: bool
    tokens: int
    sample: str = ""

    def record(self) -> dict[str, Any]:
        """Returns a line of metrics.jsonl, with a key `val_<metric>` for each metric."""
        values = super().record()
        metrics = values.pop("metrics")
        return values | {f"val_{name}": value for name, value in metrics.items()}


@dataclass(frozen=True)
class Saved(Event):
    path: str


@dataclass(frozen=True)
class Stopped(Event):
    reason: str  # finished, minutes, patience, or the name of a signal
    best_step: int
    tokens: int
    metrics: dict[str, float] = field(default_factory=dict)
