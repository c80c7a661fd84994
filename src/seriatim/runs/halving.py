"""Successive halving (Jamieson and Talwalkar, 2016): many candidates with little time each, the best ones with more.

Every round has the same share of the time, which its candidates divide equally; the best of a round go on to the next.
What a candidate is, and how it is trained for a time, is up to the caller: learning rates of one model, or models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True)
class Trial(Generic[C]):
    """A candidate of a round, trained for some minutes; `score` is lower for better ones, infinite if it failed."""

    round: int
    candidate: C
    minutes: float
    score: float


def successive_halving(
    candidates: Sequence[C],
    minutes: float,
    train: Callable[[int, C, float], float],
    sizes: Sequence[int] = (),
    longest: float = math.inf,
) -> list[Trial[C]]:
    """Returns all trials, best first within a round, the last round first: the first trial is the winner.

    Args:
        candidates: In the order that decides between equal scores.
        minutes: The time of all trials together.
        train: Trains a candidate of a round, counted from 0, for some minutes, and returns its score, lower is better.
        sizes: How many candidates each round has. By default all, then half of them each time, down to two.
        longest: The longest time of one trial.
    """
    rounds: list[list[Trial[C]]] = []
    remaining = list(candidates)
    sizes = list(sizes) or halved(len(remaining))
    for number, size in enumerate(sizes):
        remaining = remaining[:size]
        share = min(minutes / len(sizes) / len(remaining), longest)
        trials = [Trial(number, candidate, share, train(number, candidate, share)) for candidate in remaining]
        trials.sort(key=lambda trial: math.inf if math.isnan(trial.score) else trial.score)  # stable
        rounds.insert(0, trials)
        remaining = [trial.candidate for trial in trials if math.isfinite(trial.score)]
        if len(remaining) < 2:
            break
    return [trial for trials in rounds for trial in trials]


def halved(count: int) -> list[int]:
    """Returns the sizes of the rounds: 8, 4, 2."""
    sizes = [count]
    while sizes[-1] > 3:
        sizes.append(sizes[-1] // 2)
    return sizes
