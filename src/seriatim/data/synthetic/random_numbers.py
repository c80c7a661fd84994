"""Random numbers from the raw output of PCG64, which NumPy guarantees: the same on every machine and version."""

from __future__ import annotations

import numpy as np


def uniform(generator: np.random.PCG64, *shape: int) -> np.ndarray:
    """Returns numbers in [0, 1), also as float32: the upper 24 bits of each raw output."""
    raw: np.ndarray = generator.random_raw(int(np.prod(shape))) >> np.uint64(40)
    return (raw * 2.0**-24).reshape(shape)


def integers(generator: np.random.PCG64, end: int | np.ndarray, *shape: int) -> np.ndarray:
    """Returns integers in [0, end), `end` for all or for each."""
    return np.asarray(uniform(generator, *shape) * end).astype(np.int64)


def octets(generator: np.random.PCG64, *shape: int) -> np.ndarray:
    """Returns integers in [0, 256) as uint8, eight from each raw output."""
    count = int(np.prod(shape))
    raw = generator.random_raw(-(-count // 8)).astype("<u8")
    return raw.view(np.uint8)[:count].reshape(shape)
