"""The shares of data that become training, validation and test: one rule for every kind of data."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _shares(fractions: tuple[float, float, float]) -> tuple[float, float, float]:
    if min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError("three shares that add up to 1, the first above 0, such as 0.8, 0.1, 0.1")
    return fractions


Fractions = Annotated[tuple[float, float, float], AfterValidator(_shares)]
