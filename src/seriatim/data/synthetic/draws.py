"""Random numbers from the raw output of PCG64, which NumPy promises to keep: the same on every machine."""

from __future__ import annotations

import numpy as np


def uniform(draw: np.random.PCG64, *shape: int) -> np.ndarray:
    """Numbers of 0…1, 1 not among them even as float32: the upper 24 bits of each draw."""
    raw: np.ndarray = draw.random_raw(int(np.prod(shape))) >> np.uint64(40)
    return (raw * 2.0**-24).reshape(shape)


def below(draw: np.random.PCG64, end: int | np.ndarray, *shape: int) -> np.ndarray:
    """Whole numbers from 0, all of them below `end`, or each below its own."""
    return np.asarray(uniform(draw, *shape) * end).astype(np.int64)


def octets(draw: np.random.PCG64, *shape: int) -> np.ndarray:
    """Numbers of 0…255, eight from each draw."""
    count = int(np.prod(shape))
    raw = draw.random_raw(-(-count // 8)).astype("<u8")
    return raw.view(np.uint8)[:count].reshape(shape)
