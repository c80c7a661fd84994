"""What the loop tells its listeners. Bars, logs, files and reports are made from these and from nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    step: int
    seconds: float  # of training so far, evaluation and saving not counted

    def record(self) -> dict[str, Any]:
        """A line of metrics.jsonl."""
        return {"event": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True)
class Started(Event):
    """Training begins, or goes on from a step above 0."""

    steps: int | None
    parameters: int
    flops: float | None  # of one update, None where nothing is multiplied
    ranks: int
    unit: str = "tokens"  # what is counted under `tokens`, in the plural


@dataclass(frozen=True)
class Planned(Event):
    """With a budget of minutes: how many steps fit into it, as measured."""

    steps: int


@dataclass(frozen=True)
class Stepped(Event):
    loss: float
    rate: float
    norm: float  # of the gradient, before clipping
    tokens: int  # real ones, so far


@dataclass(frozen=True)
class Evaluated(Event):
    measures: dict[str, float]
    best: bool
    tokens: int
    sample: str = ""


@dataclass(frozen=True)
class Saved(Event):
    path: str


@dataclass(frozen=True)
class Stopped(Event):
    reason: str  # finished, minutes, patience, or the signal's name
    best_step: int
    tokens: int
    measures: dict[str, float] = field(default_factory=dict)
