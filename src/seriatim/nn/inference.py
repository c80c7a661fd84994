"""A trained network over many items: batches of similar length, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

R = TypeVar("R")
MAX_ELEMENTS = 32_768  # of a batch without gradients


def device_of(network: nn.Module) -> torch.device:
    """Returns the device that a network computes on; the CPU if it has no weights."""
    tensor = next(chain(network.parameters(), network.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def run_batches(
    lengths: np.ndarray,
    run: Callable[[np.ndarray], Sequence[R]],
    max_elements: int = MAX_ELEMENTS,
    progress: Callable[[int, int], None] | None = None,
) -> list[R]:
    """Runs a function on batches of all items, without gradients, and returns its results in the order of the items.

    Args:
        lengths: The length of each item (items,).
        run: Called with the items of a batch (B,), the longest first; returns one result per item.
        max_elements: The largest number of elements in a batch, padding included.
        progress: Called after each batch with the number of items that are done, and that of all.
    """
    results: list[Any] = [None] * len(lengths)
    remaining = np.argsort(-lengths, kind="stable")
    with torch.inference_mode():
        while len(remaining):
            count = max(max_elements // max(int(lengths[remaining[0]]), 1), 1)
            items, remaining = remaining[:count], remaining[count:]
            for item, result in zip(items.tolist(), run(items), strict=True):
                results[item] = result
            if progress is not None:
                progress(len(lengths) - len(remaining), len(lengths))
    return results
