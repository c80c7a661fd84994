"""Prefetching: the batches of the next step are made in a background thread while the present one is trained on.

A batch is a pure function of its step, so the result does not depend on the thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Makes the batches of a step, one step ahead in a thread if `enabled`.

    Args:
        make: Returns the batches of a step.
        enabled: Whether to use a thread; otherwise batches are made when they are taken.
    """

    def __init__(self, make: Callable[[int], T], enabled: bool) -> None:
        self.make = make
        self.enabled = enabled
        self.waited = 0.0  # seconds that steps waited for their batches
        self._pool: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[T]] | None = None

    def take(self, step: int, last: int | None = None) -> T:
        """Returns the batches of a step, and starts those of the next one unless this is the `last`.

        Errors of the thread are raised here.
        """
        began = time.perf_counter()
        prefetched, self._next = self._next, None
        batches = prefetched[1].result() if prefetched is not None and prefetched[0] == step else self.make(step)
        self.waited += time.perf_counter() - began
        if self.enabled and step != last:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "batches")
            self._next = step + 1, self._pool.submit(self.make, step + 1)
        return batches

    def close(self) -> None:
        """Ends the thread, after the batch that it is making."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool, self._next = None, None
