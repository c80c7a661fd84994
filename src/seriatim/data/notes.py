"""What was found out about the data: kept, and told as it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Notes(list[str]):
    def __init__(self, notify: Callable[[str], None] | None) -> None:
        super().__init__()
        self.notify = notify

    def __call__(self, note: str) -> None:
        self.append(note)
        if self.notify is not None:
            self.notify(note)

    def extend(self, notes: Iterable[Any]) -> None:
        for note in notes:
            self(note)
