"""Successive halving: who goes on, with how much time, and who wins."""

from __future__ import annotations

import math

import pytest

from seriatim.runs.halving import halved, successive_halving


def test_the_best_go_on_with_more_time() -> None:
    """Candidate 3 is best in the end, but only second after a short training."""
    scores = {0: 3.0, 1: 1.0, 2: 4.0, 3: 1.5, 4: 9.0}
    asked: list[tuple[int, int, float]] = []

    def train(round_number: int, candidate: int, minutes: float) -> float:
        asked.append((round_number, candidate, minutes))
        return scores[candidate] - (round_number if candidate == 3 else 0)

    trials = successive_halving(range(5), 10, train, sizes=(5, 2))
    assert asked == [*((0, n, 1.0) for n in range(5)), (1, 1, 2.5), (1, 3, 2.5)]
    assert [(trial.round, trial.candidate) for trial in trials] == [
        (1, 3), (1, 1), (0, 1), (0, 3), (0, 0), (0, 2), (0, 4)
    ]  # fmt: skip
    assert math.fsum(trial.minutes for trial in trials) == pytest.approx(10)


def test_a_trial_is_no_longer_than_the_longest() -> None:
    trials = successive_halving("ab", 100, lambda number, name, minutes: minutes, longest=3)
    assert [trial.minutes for trial in trials] == [3, 3]


@pytest.mark.parametrize("failed", [math.inf, math.nan])
def test_what_failed_does_not_go_on(failed: float) -> None:
    trials = successive_halving("abcd", 8, lambda number, name, minutes: 1.0 if name == "c" else failed)
    assert trials[0].candidate == "c"
    assert {trial.round for trial in trials} == {0}  # one is left: nothing to decide


def test_sizes_of_rounds() -> None:
    assert [halved(count) for count in (1, 2, 3, 5, 8, 13)] == [[1], [2], [3], [5, 2], [8, 4, 2], [13, 6, 3]]
