"""Models that count instead of learning: one pass over the data, told in the same events as the loop's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from .events import Evaluated, Event, Started, Stopped


def count(
    fit: Callable[[], Any], evaluate: Callable[[Any], tuple[dict[str, float], str]], tokens: int, unit: str = "tokens"
) -> Iterator[Event]:
    """`fit` makes the model, `evaluate` stores it and gives its measures and a sample; `unit` is what is counted under
    `tokens`."""
    yield Started(0, 0.0, 1, 0, None, 1, unit)
    began = time.perf_counter()
    model = fit()
    seconds = time.perf_counter() - began
    measures, sample = evaluate(model)
    yield Evaluated(1, seconds, measures, True, tokens, sample)
    yield Stopped(1, seconds, "finished", 1, tokens)
