"""The values that tasks take and return: items, splits, outputs of a network, evaluations. All are frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.metrics import ExampleScores
from ..core.state import State
from ..core.text import evenly_spaced
from ..data.dataset import Dataset

Metrics = dict[str, float]
X = TypeVar("X")
R = TypeVar("R")


# The items of a split


class Items(Protocol):
    """What batches are taken from: `Sequences`, `TokenShards` on disk, `Images`, windows of series, or a `Subset`."""

    @property
    def lengths(self) -> np.ndarray:
        """The length of each item (items,), by which batches are made."""

    def __len__(self) -> int: ...

    def __getitem__(self, item: int, /) -> np.ndarray: ...

    def padded(self, items: Sequence[int] | np.ndarray, /, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns items padded to the longest (n,longest,…), and a mask (n,longest), True for elements."""


@dataclass(frozen=True)
class Subset:
    """Some items of others, without a copy."""

    items: Items
    chosen: np.ndarray  # (n,)

    @property
    def lengths(self) -> np.ndarray:
        lengths: np.ndarray = self.items.lengths[self.chosen]
        return lengths

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, item: int, /) -> np.ndarray:
        return self.items[int(self.chosen[item])]

    def padded(self, items: Sequence[int] | np.ndarray, /, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        return self.items.padded(self.chosen[np.asarray(items, np.int64)], fill=fill)


@dataclass(frozen=True, eq=False)
class Encoded:
    """The items of a split. An item is what a batch is made of: a row, or a window of a row. Subclasses add targets."""

    inputs: Items
    rows: np.ndarray | None = field(default=None, kw_only=True)  # (items,) the row of each item; None: items are rows

    @property
    def lengths(self) -> np.ndarray:
        """The length of each item (items,)."""
        return self.inputs.lengths

    def __len__(self) -> int:
        return len(self.inputs)

    def row_numbers(self, items: np.ndarray) -> np.ndarray:
        """Returns the row of each of these items."""
        return items if self.rows is None else self.rows[items]

    def target_numbers(self, items: np.ndarray) -> np.ndarray:
        """Returns the number of each target of these items, by which teachers are asked: by default their rows."""
        return self.row_numbers(items)

    def take(self, items: np.ndarray) -> Self:
        """Returns some of the items."""
        return replace(self, inputs=Subset(self.inputs, items), rows=None if self.rows is None else self.rows[items])


@dataclass(frozen=True, eq=False)
class Labeled(Encoded):
    """Items with a target each: a class, several of them, numbers."""

    targets: np.ndarray | None = None  # (items,…); None in prediction

    def take(self, items: np.ndarray) -> Self:
        targets = None if self.targets is None else self.targets[items]
        return replace(super().take(items), targets=targets)

    @property
    def labels(self) -> np.ndarray:
        """The targets, which must be there."""
        if self.targets is None:
            raise SeriatimError("data.target", "there are no targets to compare with", "pass data with targets")
        return self.targets


E = TypeVar("E", bound=Any)


# Splits


@dataclass(frozen=True, eq=False)
class Split(Generic[E]):
    """Rows, and the items that they are encoded as."""

    name: str
    rows: Dataset
    items: E

    def take(self, rows: np.ndarray) -> Split[E]:
        """Returns the split of these rows, in ascending order, with all items of each."""
        own = self.items.rows
        if own is None:
            return replace(self, rows=self.rows.take(rows), items=self.items.take(rows))
        items = np.flatnonzero(np.isin(own, rows))
        numbered = replace(self.items.take(items), rows=np.searchsorted(rows, own[items]))
        return replace(self, rows=self.rows.take(rows), items=numbered)

    def spaced(self, sizes: np.ndarray, limit: int) -> Split[E]:
        """Returns evenly spaced rows of a total size of about `limit`; the split itself if it is no larger.

        Which rows these are depends on the split alone, so that all models are evaluated on the same.

        Args:
            sizes: The size of each row (rows,).
            limit: The size of the sample.
        """
        rows = spaced_rows(sizes, limit)
        return self if len(rows) == len(sizes) else self.take(rows)

    def location(self, item: int) -> str:
        """Returns the location of an item, as the report shows it."""
        return str(self.rows.locations[int(self.items.row_numbers(np.array([item]))[0])])


def spaced_rows(sizes: np.ndarray, limit: int) -> np.ndarray:
    """Returns the numbers of evenly spaced rows of a total size of about `limit`; all if they are no larger."""
    total, count = int(sizes.sum()), len(sizes)
    if total <= limit:
        return np.arange(count)
    return np.unique(evenly_spaced(count, max(count * limit // total, 1)))


@dataclass(frozen=True, eq=False)
class Splits(Generic[E]):
    """The data of a run by the name of its split: train, validation, test."""

    parts: Mapping[str, Split[E]]

    def __getitem__(self, name: str) -> Split[E]:
        if name not in self.parts:
            cause = f"there is no {name} split"
            raise SeriatimError("data.no-split", cause, f"the splits are: {', '.join(self.parts) or 'none'}")
        return self.parts[name]

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    @property
    def train(self) -> Split[E]:
        return self["train"]

    @property
    def evaluated(self) -> list[str]:
        """The names of the splits that a finished run is evaluated on."""
        return [name for name in ("validation", "test") if name in self.parts]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the training rows: a run that is resumed must have the same."""
        return self.train.rows.fingerprint()


# Networks and evaluations


@dataclass(frozen=True)
class Output(Generic[X]):
    """The result of a forward pass over a batch with N targets."""

    scores: X  # a tensor (N,…), or `TokenScores` of a large vocabulary
    features: Tensor | None = None  # (N,D) the input of the last layer, for distillation
    state: State = None  # carried into the next batch if that continues this one; None: nothing is carried


@dataclass(frozen=True, eq=False)
class Evaluation(Generic[E, R]):
    """What a model produced on a split. Metrics, views, samples, significance tests and findings are made from it.

    Args:
        split: The rows and items that were evaluated: a whole split, or a sample of one.
        metrics: By name, the loss among them.
        outputs: What the model produced, as the task defines it: scores of each item, translations, …
        examples: What each example contributes to a metric.
        signatures: How metrics that depend on it were computed, such as BLEU.
    """

    split: Split[E]
    metrics: Mapping[str, float]
    outputs: R
    examples: Mapping[str, ExampleScores] = field(default_factory=dict)
    signatures: Mapping[str, str] = field(default_factory=dict)


AnyEvaluation = Evaluation[Any, Any]
