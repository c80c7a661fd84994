"""Images of one size by rows, with the methods of `Sequences`, and their augmentation.

They are stored with the channels last, as files and convolutions on a CPU need them, and with a margin around the
visible part: training shifts an image within its margin and may mirror it; evaluation shows the center.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

STATISTICS_SAMPLE = 2_000  # images whose pixels are counted
PIXELS_PER_ELEMENT = 16  # pixels that cost about as much memory as an element of a sequence


class StoredImages(Protocol):
    """An array (N,H,W,C) of uint8, in memory or mapped from files."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Images:
    """Rows of images; several rows may show the same one, such as an image with several captions.

    Args:
        values: The images, margin included.
        rows: The image of each row (n,).
        margin: Pixels on each side for random shifts.
        source_rows: The rows of the data set that these are (n,); None if they are all, in order.
    """

    values: StoredImages
    rows: np.ndarray
    margin: int = 0
    source_rows: np.ndarray | None = None

    @classmethod
    def of(cls, values: np.ndarray, margin: int = 0) -> Images:
        """Returns one row for each image of an array (N,H,W) or (N,H,W,C)."""
        values = values[..., None] if values.ndim == 3 else values
        return cls(values, np.arange(len(values)), margin)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> np.ndarray:
        """Returns the visible part of a row, (H,W,C)."""
        return self._crop([row])[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the visible part."""
        _, height, width, channels = self.values.shape
        return channels, height - 2 * self.margin, width - 2 * self.margin

    @property
    def lengths(self) -> np.ndarray:
        """The cost of each row (n,) in elements of sequences; prediction batches are limited by it."""
        _, height, width = self.shape
        return np.full(len(self), max(height * width // PIXELS_PER_ELEMENT, 1), dtype=np.int64)

    def take(self, rows: Sequence[int] | np.ndarray) -> Images:
        return replace(self, rows=self.rows[np.asarray(rows, dtype=np.int64)], source_rows=None)

    def padded(self, rows: Sequence[int] | np.ndarray, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows (n,C,H,W), and a mask (n,1) of True: images of one size need no padding."""
        return _channels_first(self._crop(rows)), np.ones((len(rows), 1), dtype=bool)

    def augmented(
        self,
        rows: Sequence[int] | np.ndarray,
        generator: np.random.Generator,
        flip: np.ndarray | bool = False,
        share: slice = slice(None),
    ) -> np.ndarray:
        """Returns rows (n,C,H,W), each shifted at random within its margin and mirrored with probability ½.

        Args:
            rows: The rows of the global batch.
            generator: The random numbers of the step.
            flip: Whether images may be mirrored, for all or for each row.
            share: The part of the rows to return; each is augmented as in the whole batch.
        """
        shifts = generator.integers(0, 2 * self.margin + 1, (len(rows), 2))
        flipped = (generator.random(len(rows)) < 0.5) & flip
        return _channels_first(self._crop(rows[share], shifts[share], flipped[share]))

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns mean and standard deviation of each channel (C,), of values from 0 to 1, by at most 2,000 images."""
        counts = np.zeros((self.shape[0], 256), dtype=np.int64)  # of each value: exact, and small
        sample = np.unique(np.linspace(0, len(self) - 1, min(len(self), STATISTICS_SAMPLE)).astype(np.int64))
        for row in sample.tolist():
            for channel, pixels in enumerate(np.moveaxis(self[row], 2, 0)):
                counts[channel] += np.bincount(pixels.ravel(), minlength=256)
        values = np.arange(256) / 255
        total = np.maximum(counts.sum(axis=1), 1)
        mean = counts @ values / total
        std = np.sqrt((counts * np.square(values - mean[:, None])).sum(axis=1) / total)
        return mean.astype(np.float32), np.where(std > 1e-4, std, 1.0).astype(np.float32)

    def _crop(
        self, rows: Sequence[int] | np.ndarray, shifts: np.ndarray | None = None, flipped: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns rows (n,H,W,C) from a position within the margin, by default the center, mirrored or not."""
        channels, height, width = self.shape
        block = np.empty((len(rows), height, width, channels), np.uint8)
        for position, row in enumerate(self.rows[np.asarray(rows, dtype=np.int64)].tolist()):
            top, left = (self.margin, self.margin) if shifts is None else shifts[position]
            visible = self.values[row][top : top + height, left : left + width]
            block[position] = visible[:, ::-1] if flipped is not None and flipped[position] else visible
        return block


def _channels_first(block: np.ndarray) -> np.ndarray:
    """Returns a view (n,C,H,W): in memory the channels stay last, as convolutions on a CPU prefer them."""
    return block.transpose(0, 3, 1, 2)
