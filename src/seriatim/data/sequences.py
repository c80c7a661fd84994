"""Sequences of unequal length, stored in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sequences:
    """Token ids (total,) of int64 or vectors (total,F) of float32, the sequences one after another."""

    values: np.ndarray
    ends: np.ndarray  # (n,) the end of each sequence in `values`

    @classmethod
    def of(cls, arrays: Iterable[Any], width: int | None = None) -> Sequences:
        """Returns sequences from arrays (T,) of integers or (T,F) of floats; without arrays, `width` gives F."""
        parts = [np.asarray(array) for array in arrays]
        integers = width is None and all(np.issubdtype(part.dtype, np.integer) for part in parts)
        dtype = np.int64 if integers else np.float32
        empty = np.zeros(0 if width is None else (0, width), dtype)
        values = np.concatenate(parts).astype(dtype, copy=False) if parts else empty
        return cls(values, np.cumsum([len(part) for part in parts], dtype=np.int64))

    @classmethod
    def equal(cls, block: np.ndarray) -> Sequences:
        """Returns the rows of a block (n,T) or (n,T,F), sequences of equal length, without a copy."""
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
        """Whether elements are vectors of numbers, not token ids."""
        return self.values.ndim == 2

    def take(self, rows: Sequence[int] | np.ndarray) -> Sequences:
        """Returns the sequences of these rows."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        positions = np.arange(int(lengths.sum())) + np.repeat(self.starts[rows] - (ends - lengths), lengths)
        return Sequences(self.values[positions], ends)

    def padded(self, rows: Sequence[int] | np.ndarray, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows padded to the longest (n,longest[,F]), and a mask (n,longest), True for elements."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        steps = np.arange(int(lengths.max(initial=1)) or 1)
        mask = steps < lengths[:, None]
        if not len(self.values):
            return np.full((len(rows), len(steps), *self.values.shape[1:]), fill, self.values.dtype), mask
        positions = np.where(mask, self.starts[rows][:, None] + steps, 0)
        block = self.values[positions]
        if not mask.all():
            block[~mask] = fill
        return block, mask
