"""Ctrl-C and SIGTERM end a run in good order: the first asks, the loop saves and stops; a second one insists."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}


@contextlib.contextmanager
def halting() -> Iterator[Callable[[], str]]:
    """Gives a function that names the signal that came, if one did."""
    came: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: ""
        return

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came[0] if came else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
