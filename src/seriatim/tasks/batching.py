"""Batching: samplers choose the items of a training step. Those of a prediction batch: see `nn.inference`.

The samplers of large data keep no order of all items: `permute` computes the item at each position of an epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..core.device import derive, numpy_stream
from ..core.state import map_state
from ..data.disk import mix

POOL_BATCHES = 64  # training batches whose items are sorted by length together
FEISTEL_ROUNDS = 6
LARGE_COUNT = 1_000_000  # items from which on samplers keep no order of all of them


@dataclass(frozen=True)
class Batch:
    """The examples of a training or evaluation step.

    Args:
        inputs: Tensors of the network's inputs, (B,T), (B,T,F) or a tuple of them.
        targets: Tensors of the targets, or None.
        count: The number of targets: losses are sums, divided once by the count of the whole global batch.
        mask: (B,T), True for elements and False for padding; None if nothing is padded.
        fresh: Whether carried states start from zero, because the rows do not continue those of the previous step.
    """

    inputs: Any
    targets: Any
    count: int
    mask: Tensor | None = None
    fresh: bool = True

    def to(self, device: torch.device) -> Self:
        """Returns the batch with all tensors on a device."""
        inputs, targets, mask = (
            map_state(lambda tensor: tensor.to(device, non_blocking=True), value)
            for value in (self.inputs, self.targets, self.mask)
        )
        return replace(self, inputs=inputs, targets=targets, mask=mask)


def padding_mask(mask: np.ndarray) -> Tensor | None:
    """Returns a boolean mask (B,T), True for elements and False for padding, or None if nothing is padded."""
    return None if mask.all() else torch.from_numpy(mask)


class Sampler(ABC):
    """Chooses the items of each training step, as a pure function of the seed and the step."""

    @abstractmethod
    def items(self, step: int, batch_size: int) -> np.ndarray:
        """Returns the items of a step, for a global batch of about `batch_size` items."""

    @abstractmethod
    def steps_per_epoch(self, batch_size: int) -> int:
        """Returns the number of steps in which every item occurs once."""

    def continues(self, step: int) -> bool:
        """Returns whether the items of a step continue those of the step before, so that states are carried."""
        return False


class LengthSampler(Sampler):
    """Batches of `batch_size` items of similar length, in an order that is drawn for each epoch.

    Args:
        items: The items to draw from.
        lengths: The lengths of all items of the data set.
        seed: The seed of the run.
    """

    def __init__(self, items: np.ndarray, lengths: np.ndarray, seed: int) -> None:
        self.all_items, self.lengths, self.seed = items, lengths, seed
        self._order: tuple[tuple[int, int], np.ndarray] = ((-1, 0), items)  # of the last epoch and batch size

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(len(self.all_items) // batch_size, 1)

    def items(self, step: int, batch_size: int) -> np.ndarray:
        epoch, position = divmod(step, self.steps_per_epoch(batch_size))
        if self._order[0] != (epoch, batch_size):
            self._order = (epoch, batch_size), self._shuffle(epoch, batch_size)
        return np.resize(self._order[1][position * batch_size : (position + 1) * batch_size], batch_size)

    def _shuffle(self, epoch: int, batch_size: int) -> np.ndarray:
        generator = numpy_stream(self.seed, "shuffle", epoch)
        order = generator.permutation(self.all_items)
        if len(order) < 2 * batch_size or self.lengths.min() == self.lengths.max():
            return order
        batches = len(order) // batch_size
        order = order[: batches * batch_size]
        pool_size = POOL_BATCHES * batch_size
        pools = [order[start : start + pool_size] for start in range(0, len(order), pool_size)]
        by_length = np.concatenate([pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools])
        return by_length.reshape(-1, batch_size)[generator.permutation(batches)].reshape(-1)


class TokenSampler(Sampler):
    """Batches of pairs of similar length with about as many tokens as `batch_size` pairs of mean length.

    Args:
        items: The pairs to draw from.
        source_lengths: The source lengths of all pairs of the data set.
        target_lengths: The target lengths of all pairs.
        seed: The seed of the run.
    """

    JITTER = 2.0  # tokens added at random to source lengths before sorting, so that batches differ between epochs

    def __init__(self, items: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray, seed: int) -> None:
        self.all_items, self.seed = items, seed
        self.source_lengths, self.target_lengths = source_lengths[items], target_lengths[items]
        self._bounds: dict[int, np.ndarray] = {}
        self._order: tuple[int, np.ndarray] = (-1, items)  # of the last epoch

    def bounds(self, batch_size: int) -> np.ndarray:
        """Returns the positions in the sorted order where batches begin, and the end of the last one."""
        if batch_size not in self._bounds:
            order = np.lexsort((self.source_lengths, self.target_lengths))
            lengths = np.maximum(self.source_lengths[order], self.target_lengths[order]).tolist()
            budget = batch_size * max(float(self.target_lengths.mean()), float(self.source_lengths.mean()))
            starts, longest = [0], 0
            for position, length in enumerate(lengths):
                longest = max(longest, length)
                if position > starts[-1] and (position - starts[-1] + 1) * longest > budget:
                    starts.append(position)
                    longest = length
            self._bounds[batch_size] = np.array([*starts, len(lengths)])
        return self._bounds[batch_size]

    def steps_per_epoch(self, batch_size: int) -> int:
        return len(self.bounds(batch_size)) - 1

    def items(self, step: int, batch_size: int) -> np.ndarray:
        bounds = self.bounds(batch_size)
        epoch, position = divmod(step, len(bounds) - 1)
        if self._order[0] != epoch:
            jitter = self.JITTER * numpy_stream(self.seed, "shuffle", epoch).random(len(self.source_lengths))
            self._order = epoch, np.lexsort((self.source_lengths + jitter, self.target_lengths))
        batch = numpy_stream(self.seed, "batches", epoch).permutation(len(bounds) - 1)[position]
        return self.all_items[self._order[1][bounds[batch] : bounds[batch + 1]]]


def permute(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Returns the items (n,) at these positions of a random order of `count` items, without making the order.

    A Feistel network is a bijection of the numbers below a power of 4; a result that is not below `count` is permuted
    again until it is (at most 4 times on average), which keeps it a bijection of the items.

    Args:
        positions: Numbers below `count`.
        count: The number of items.
        key: Chooses one of 2⁶³ orders.
    """
    half = np.uint64(max((int(count - 1).bit_length() + 1) // 2, 1))
    mask = (np.uint64(1) << half) - np.uint64(1)
    round_keys = [np.uint64(derive(key, "round", number)) for number in range(FEISTEL_ROUNDS)]
    items = positions.astype(np.uint64)
    waiting = np.arange(len(items))
    while len(waiting):
        left, right = items[waiting] >> half, items[waiting] & mask
        for round_key in round_keys:
            left, right = right, left ^ (mix(right ^ round_key) & mask)
        items[waiting] = (left << half) | right
        waiting = waiting[items[waiting] >= count]
    return items.astype(np.int64)


class PoolSampler(Sampler):
    """Batches of items of similar length out of millions, in time and memory that do not depend on their number.

    The order of an epoch is `permute`d; `POOL_BATCHES * batch_size` consecutive items are a pool. A pool is sorted by
    length and cut into `POOL_BATCHES` batches, of as many items or of as many tokens each.

    Args:
        items: The items to draw from, or their number.
        lengths: The lengths of all items of the data set.
        seed: The seed of the run.
        by_tokens: Whether batches have about the same number of tokens, not of items.
    """

    def __init__(self, items: np.ndarray | int, lengths: np.ndarray, seed: int, by_tokens: bool = False) -> None:
        self.all_items = items
        self.count = items if isinstance(items, int) else len(items)
        self.lengths, self.seed, self.by_tokens = lengths, seed, by_tokens
        self._pool: tuple[tuple[int, int, int], list[np.ndarray]] = ((-1, 0, 0), [])  # the last one

    def steps_per_epoch(self, batch_size: int) -> int:
        return self._pools(batch_size) * POOL_BATCHES

    def _pools(self, batch_size: int) -> int:
        return max(self.count // (POOL_BATCHES * batch_size), 1)

    def items(self, step: int, batch_size: int) -> np.ndarray:
        epoch, position = divmod(step, self.steps_per_epoch(batch_size))
        pool, batch = divmod(position, POOL_BATCHES)
        if self._pool[0] != (epoch, pool, batch_size):
            self._pool = (epoch, pool, batch_size), self._make_pool(epoch, pool, batch_size)
        return self._pool[1][batch]

    def _make_pool(self, epoch: int, pool: int, batch_size: int) -> list[np.ndarray]:
        pools = self._pools(batch_size)
        positions = np.arange(pool * self.count // pools, (pool + 1) * self.count // pools)
        items = permute(positions, self.count, derive(self.seed, "shuffle", epoch))
        items = items if isinstance(self.all_items, int) else self.all_items[items]
        lengths = np.asarray(self.lengths[items])
        order = np.argsort(lengths, kind="stable")
        weights = np.cumsum(lengths[order]) if self.by_tokens else np.arange(1, len(items) + 1)
        bounds = np.searchsorted(weights, np.arange(1, POOL_BATCHES) * weights[-1] / POOL_BATCHES)
        batches = np.split(items[order], bounds)
        chosen = numpy_stream(self.seed, "batches", epoch, pool).permutation(POOL_BATCHES)
        return [batches[number] if len(batches[number]) else items[:1] for number in chosen]
