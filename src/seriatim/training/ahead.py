"""The batches of the next step, made in the background while the present one is learnt from.

A batch is a pure function of its step, so that who makes it, and when, changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Ahead:
    """One thread, one step ahead; where that is not `wanted`, batches are made when they are asked for."""

    def __init__(self, make: Callable[[int], Any], wanted: bool) -> None:
        self.make = make
        self.wanted = wanted
        self.waited = 0.0  # seconds that steps spent without their batch
        self._pool: ThreadPoolExecutor | None = None
        self._coming: tuple[int, Future[Any]] | None = None

    def take(self, step: int, last: int | None = None) -> Any:
        """The batches of a step; what went wrong while they were made is raised here. `last`: none comes behind it."""
        began = time.perf_counter()
        coming, self._coming = self._coming, None
        found = coming[1].result() if coming is not None and coming[0] == step else self.make(step)
        self.waited += time.perf_counter() - began
        if self.wanted and step != last:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "batches")
            self._coming = step + 1, self._pool.submit(self.make, step + 1)
        return found

    def close(self) -> None:
        """Leaves no thread behind; a batch that is just being made is made to its end."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool, self._coming = None, None
