"""Sequences of unequal length in one array, and examples made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .pictures import Pictures


@dataclass(frozen=True)
class Sequences:
    """Symbols (total,) of int64 or vectors of numbers (total,F) of float32, one sequence behind the other."""

    values: np.ndarray
    ends: np.ndarray  # (n,) where each stops

    @classmethod
    def of(cls, arrays: Iterable[Any], width: int | None = None) -> Sequences:
        """From arrays (T,) of whole numbers or (T,F) of others; `width` is F where there may be no array at all."""
        parts = [np.asarray(one) for one in arrays]
        whole = width is None and all(np.issubdtype(part.dtype, np.integer) for part in parts)
        kind = np.int64 if whole else np.float32
        empty = np.zeros(0 if width is None else (0, width), kind)
        values = np.concatenate(parts).astype(kind, copy=False) if parts else empty
        return cls(values, np.cumsum([len(part) for part in parts], dtype=np.int64))

    @classmethod
    def equal(cls, block: np.ndarray) -> Sequences:
        """From a block (n,T) or (n,T,F) of sequences of one length, without a copy."""
        count, length = block.shape[:2]
        return cls(block.reshape(count * length, *block.shape[2:]), np.arange(1, count + 1, dtype=np.int64) * length)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> np.ndarray:
        index = range(len(self.ends))[index]
        return self.values[int(self.ends[index - 1]) if index else 0 : int(self.ends[index])]

    @property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.ends, prepend=0)

    @property
    def numeric(self) -> bool:
        """Vectors of numbers, not symbols."""
        return self.values.ndim == 2

    def take(self, rows: Sequence[int] | np.ndarray) -> Sequences:
        """The sequences of some rows."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        places = np.arange(int(lengths.sum())) + np.repeat(self.starts[rows] - (ends - lengths), lengths)
        return Sequences(self.values[places], ends)

    def padded(self, rows: Sequence[int] | np.ndarray, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Some rows side by side (n,longest[,F]), and where real elements stand (n,longest)."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        steps = np.arange(int(lengths.max(initial=1)) or 1)
        real = steps < lengths[:, None]
        if not len(self.values):
            return np.full((len(rows), len(steps), *self.values.shape[1:]), fill, self.values.dtype), real
        places = np.where(real, self.starts[rows][:, None] + steps, 0)
        block = self.values[places]
        if not real.all():
            block[~real] = fill
        return block, real


class Numbered(Sequence[str]):
    """The places "image 1", "image 2", …, each made when it is asked for."""

    def __init__(self, title: str, numbers: range) -> None:
        self.title = title
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Numbered(self.title, self.numbers[index])
        return f"{self.title} {self.numbers[index]}"


@dataclass(frozen=True)
class Examples:
    """What goes in and what is to come out, example by example."""

    inputs: list[Any] | Sequences | Pictures  # texts, or tuples of two texts, or symbols, or numbers, or pictures
    targets: list[Any] | Sequences | None  # one for each example, or one for each step; None: not known
    places: Sequence[str] = ()  # where each stands, as "reviews.csv, line 7"

    def __len__(self) -> int:
        return len(self.inputs)

    def place(self, index: int) -> str:
        return self.places[index] if index < len(self.places) else f"example {index + 1}"


NOTHING = Examples([], [], [])


@dataclass(frozen=True)
class Parts:
    """Examples to learn from, to choose by and to measure on."""

    train: Examples
    valid: Examples = NOTHING
    test: Examples = NOTHING
    notes: list[str] = field(default_factory=list)
    fingerprint: str = ""
    symbols: tuple[str, ...] = ()  # the names of symbols
    features: tuple[str, ...] = ()  # the names of the numbers of a step
    columns: dict[str, str] = field(default_factory=dict)  # "column" and "target" as they were found in a table

    def part(self, name: str) -> Examples:
        found: Examples = getattr(self, name)
        return found
