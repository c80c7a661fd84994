"""Pictures of one size, row by row, as sequences are: what a task takes batches from.

Stored with their colours last, as files and convolutions want them, and with a margin around what is shown: in training
a picture may be shown a little aside, or mirrored; whoever only looks sees the middle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

MEASURED = 2_000  # pictures whose colours are measured


class Stored(Protocol):
    """What is asked of an array (N,H,W,C) of 8 bits, be it one in memory or pieces on a disk."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Pictures:
    """Several rows may show one picture: an image has several captions."""

    values: Stored  # in memory or mapped from files
    rows: np.ndarray  # (n,) which picture each row shows
    margin: int = 0  # pixels on every side that are there for moving

    @classmethod
    def of(cls, values: np.ndarray, margin: int = 0) -> Pictures:
        """A row for each picture; those without colours (N,H,W) have one channel."""
        values = values[..., None] if values.ndim == 3 else values
        return cls(values, np.arange(len(values)), margin)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> np.ndarray:
        """What a row shows, (H,W,C)."""
        return self._cut([index])[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what is shown."""
        _, height, width, channels = self.values.shape
        return channels, height - 2 * self.margin, width - 2 * self.margin

    @property
    def lengths(self) -> np.ndarray:
        """Pixels, for those who count how much goes through at once."""
        return np.full(len(self), self.shape[1] * self.shape[2], dtype=np.int64)

    def take(self, rows: Sequence[int] | np.ndarray) -> Pictures:
        return replace(self, rows=self.rows[np.asarray(rows, dtype=np.int64)])

    def padded(self, rows: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Some rows (n,C,H,W), and that all of them is real: pictures of one size need no padding."""
        return _channels_first(self._cut(rows)), np.ones((len(rows), 1), dtype=bool)

    def drawn(
        self,
        rows: Sequence[int] | np.ndarray,
        draw: np.random.Generator,
        mirrored: np.ndarray | bool = False,
        part: slice = slice(None),
    ) -> np.ndarray:
        """Some rows (n,C,H,W), each moved within its margin as drawn, and every other one of those that may be
        `mirrored` so. Of a `part` of the rows, each is as it is among all of them."""
        moves = draw.integers(0, 2 * self.margin + 1, (len(rows), 2))
        turned = (draw.random(len(rows)) < 0.5) & mirrored
        return _channels_first(self._cut(rows[part], moves[part], turned[part]))

    def spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of each channel (C,), from 0 to 1, of some thousand pictures at most."""
        counts = np.zeros((self.shape[0], 256), dtype=np.int64)  # how often each value occurs: exact, and small
        for row in np.unique(np.linspace(0, len(self) - 1, min(len(self), MEASURED)).astype(np.int64)).tolist():
            for channel, pixels in enumerate(np.moveaxis(self[row], 2, 0)):
                counts[channel] += np.bincount(pixels.ravel(), minlength=256)
        values = np.arange(256) / 255
        total = np.maximum(counts.sum(axis=1), 1)
        mean = counts @ values / total
        deviation = np.sqrt((counts * np.square(values - mean[:, None])).sum(axis=1) / total)
        return mean.astype(np.float32), np.where(deviation > 1e-4, deviation, 1.0).astype(np.float32)

    def mark(self, index: int) -> bytes:
        """Of what a row shows: alike where the pixels are, whatever the file is called."""
        row = int(self.rows[index])
        known: Sequence[bytes] | None = getattr(self.values, "marks", None)
        return marked(self.values[row]) if known is None else known[row]

    def _cut(
        self, rows: Sequence[int] | np.ndarray, moves: np.ndarray | None = None, turned: np.ndarray | None = None
    ) -> np.ndarray:
        """What some rows show (n,H,W,C): from a place within the margin, the middle by default, and mirrored or not."""
        channels, height, width = self.shape
        found = np.empty((len(rows), height, width, channels), np.uint8)
        for place, row in enumerate(self.rows[np.asarray(rows, dtype=np.int64)].tolist()):
            down, right = (self.margin, self.margin) if moves is None else moves[place]
            shown = self.values[row][down : down + height, right : right + width]
            found[place] = shown[:, ::-1] if turned is not None and turned[place] else shown
        return found


def marked(picture: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(picture).data, digest_size=16).digest()


def _channels_first(block: np.ndarray) -> np.ndarray:
    """A view: in memory the colours stay last, which is what convolutions on a CPU want."""
    return block.transpose(0, 3, 1, 2)
