"""How far a long file is: a bar on a terminal, plain lines elsewhere, nothing for what is done at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ._output import amount, duration, note
from ._progress import PLAIN_EVERY, make_bar

T = TypeVar("T")
SOON = 1.0  # seconds within which nothing is shown
OFTEN = 0.2  # seconds between two looks at the clock that change a bar


def watched(items: Iterable[T], name: str, unit: str = "texts") -> Iterator[T]:
    """The items, one by one. Where `items` says its `size` and what is `done` (bytes), it can be told what is left."""
    size = getattr(items, "size", None)
    bar: Any = None
    began = shown = time.monotonic()
    every = OFTEN if sys.stderr.isatty() else PLAIN_EVERY
    try:
        for count, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if now - shown < every or now - began < SOON:
                continue
            shown = now
            done = getattr(items, "done", 0)
            figures = f"{count:,} {unit}, {amount(count / (now - began))}/s"
            if not sys.stderr.isatty():
                left = f", {duration((now - began) * (size - done) / done)} left" if size and done else ""
                note(f"{name}: {figures}{left}")
                continue
            if bar is None:
                bar = make_bar()
                bar.start()
                job = bar.add_task(name, total=size or None, figures="")
            bar.update(job, completed=done, figures=figures)
    finally:
        if bar is not None:
            bar.stop()
