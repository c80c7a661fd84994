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
OFTEN = 0.2  # seconds between two changes of a bar


def watched(items: Iterable[T], name: str, unit: str = "texts") -> Iterator[T]:
    """The items, one by one. Where they have a `size`, about how many they are, what is left can be told."""
    bar: Any = None
    began = shown = time.monotonic()
    terminal = sys.stderr.isatty()
    try:
        for count, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if now - shown < (OFTEN if terminal else PLAIN_EVERY) or now - began < SOON:
                continue
            shown = now
            size = getattr(items, "size", None)
            figures = f"{count:,} {unit}, {amount(count / (now - began))}/s"
            if terminal:
                if bar is None:
                    bar = make_bar()
                    bar.start()
                    job = bar.add_task(name, total=size, figures="")
                bar.update(job, completed=count, figures=figures)
            else:
                left = f", {duration((now - began) * (size / count - 1))} left" if size and size > count else ""
                note(f"{name}: {figures}{left}")
    finally:
        if bar is not None:
            bar.stop()
