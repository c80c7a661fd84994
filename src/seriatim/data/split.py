"""Splits: predefined by files or a column, else drawn by the policy of the task as a pure function of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.diagnostics import Diagnostics
from ..core.errors import SeriatimError
from .dataset import Dataset
from .disk import TextValues, mix
from .documents import document_ends
from .kinds import NUMBER
from .source import SPLIT_ALIASES

NAMES = ("train", "validation", "test")
Fractions = tuple[float, float, float]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class SplitPolicy(ABC):
    """Divides a data set that has no predefined splits."""

    @abstractmethod
    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        """Returns the training, validation and test split; a fraction of 0 gives an empty one."""

    def describe(self) -> str:
        """Returns how rows are divided, for a note."""
        return type(self).__name__.lower()


def take_splits(dataset: Dataset, assignment: np.ndarray) -> list[Dataset]:
    """Returns the rows assigned to split 0, 1 and 2."""
    return [dataset.take(np.flatnonzero(assignment == split)) for split in range(len(NAMES))]


@dataclass(frozen=True)
class Stratified(SplitPolicy):
    """Random rows, with the same fractions of each label if a role is named."""

    role: str | None = None

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        def assign() -> np.ndarray:
            labeled = self.role is not None and self.role in dataset
            groups = dataset.group_ids([str(self.role)]) if labeled else None
            return assign_rows(groups, len(dataset), fractions)

        return take_splits(dataset, dataset.remember(f"split {self} {fractions}", assign))


@dataclass(frozen=True)
class Grouped(SplitPolicy):
    """Random groups of rows with the same key, so that no source of the test split occurs in training."""

    role: str
    key: Callable[[str], Hashable] = str.casefold

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        def assign() -> np.ndarray:
            groups = dataset.group_ids([self.role], self.key)
            return assign_rows(None, int(groups.max(initial=-1)) + 1, fractions)[groups]

        name = f"split grouped {self.role} {self.key.__qualname__} {fractions}"
        return take_splits(dataset, dataset.remember(name, assign))


@dataclass(frozen=True)
class Contiguous(SplitPolicy):
    """A text stream in order, cut where the fractions say: neighboring lines are alike, so none are drawn at random.

    A cut moves to the nearest end of a document or line, if that hardly changes the fractions. A row that is cut
    becomes two. Positions are bytes of UTF-8.
    """

    role: str

    SEARCHED = 1 << 20  # bytes in which a line end is looked for, on each side
    CLOSE, FAR = 0.2, 0.5  # how far a cut may move to a document or line, in parts of the smallest split

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        blocks = dataset[self.role]
        sizes = blocks.byte_sizes() if isinstance(blocks, TextValues) else [len(block.encode()) for block in blocks]
        ends = np.cumsum(sizes, dtype=np.int64)
        total = int(ends[-1])
        documents = ends[document_ends(dataset, self.role)]
        tolerance = min(fraction for fraction in fractions if fraction > 0) * total
        shares = np.cumsum(fractions)
        cuts = [
            total
            if sum(fractions[split + 1 :]) == 0
            else self._nearest(blocks, ends, documents, round(total * float(shares[split])), tolerance)
            for split in (0, 1)
        ]
        split_sizes = np.diff([0, *cuts, total])
        if any(size <= 0 < fraction for size, fraction in zip(split_sizes, fractions, strict=True)):
            percentages = " / ".join(f"{100 * fraction:g}" for fraction in fractions)
            cause = f"{dataset.name}: {total:,} bytes of text are too short to split {percentages} %"
            remedy = "add text, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0"
            raise SeriatimError("data.too-short", cause, remedy)
        bounds = np.unique(np.concatenate([[0], ends, cuts])).astype(np.int64)
        rows = np.searchsorted(ends, bounds[:-1], side="right")  # the block of each new row
        starts = np.concatenate([[0], ends[:-1]])[rows]
        changed = np.flatnonzero((bounds[:-1] != starts) | (bounds[1:] != ends[rows]))  # rows that were cut
        pieces = {
            int(row): blocks[int(rows[row])].encode()[slice(*(bounds[row : row + 2] - starts[row]))].decode()
            for row in changed
        }
        values = blocks.replace(rows, pieces) if isinstance(blocks, TextValues) else replace_rows(blocks, rows, pieces)
        column = dataset.columns[self.role][0]
        divided = dataset.take(rows)
        divided = replace(divided, columns={**divided.columns, self.role: (replace(column, values=values),)})
        return take_splits(divided, np.searchsorted(cuts, bounds[:-1], side="right"))

    def _nearest(self, blocks: Any, ends: np.ndarray, documents: np.ndarray, target: int, tolerance: float) -> int:
        """Returns the nearest end of a document or line, or else the nearest character, to a position."""
        at = int(np.searchsorted(documents, target))
        document = min(documents[max(at - 1, 0) : at + 1].tolist(), key=lambda end: abs(end - target), default=None)
        if document is not None and abs(document - target) <= self.CLOSE * tolerance:
            return document
        line = self._nearest_line(blocks, ends, target)
        if line is not None and abs(line - target) <= self.FAR * tolerance:
            return line
        if document is not None and abs(document - target) <= self.FAR * tolerance:
            return document
        row = min(int(np.searchsorted(ends, target, side="right")), len(ends) - 1)
        start = int(ends[row - 1]) if row else 0
        return start + len(blocks[row].encode()[: target - start].decode(errors="ignore").encode())

    def _nearest_line(self, blocks: Any, ends: np.ndarray, target: int) -> int | None:
        """Returns the line start nearest to a position; reads only the blocks around it."""
        middle = min(int(np.searchsorted(ends, target, side="right")), len(ends) - 1)
        candidates = []
        for row in range(middle, -1, -1):  # the last line end before the position
            start = int(ends[row - 1]) if row else 0
            if (line_end := blocks[row].encode().rfind(b"\n", 0, max(target - start, 0))) >= 0:
                candidates.append(start + line_end + 1)
            if candidates or start < target - self.SEARCHED:
                break
        for row in range(middle, len(ends)):  # the first line end behind it
            start = int(ends[row - 1]) if row else 0
            if (line_end := blocks[row].encode().find(b"\n", max(target - start, 0))) >= 0:
                candidates.append(start + line_end + 1)
            if line_end >= 0 or start > target + self.SEARCHED:
                break
        return min(candidates, key=lambda line: abs(line - target), default=None)


def replace_rows(values: np.ndarray, rows: np.ndarray, strings: Mapping[int, str]) -> np.ndarray:
    """Returns the values of these rows, with other strings at some positions."""
    chosen = values[rows]
    for position, string in strings.items():
        chosen[position] = string
    return chosen


def assign_rows(groups: np.ndarray | None, count: int, fractions: Fractions) -> np.ndarray:
    """Returns the split (0, 1, 2) of each of `count` rows, with the same fractions of each group.

    The assignment follows from the row numbers alone: whoever splits the same table gets the same splits. What rounding
    withholds from a split in one group is added in the next, so that many small groups have the fractions, too.
    """
    marks = mix(np.arange(count, dtype=np.uint64) * GOLDEN)  # looks random
    assignment = np.zeros(count, dtype=np.int8)
    order = np.argsort(marks, kind="stable")
    members = [order]
    if groups is not None:
        by_group = order[np.argsort(groups[order], kind="stable")]
        members = np.split(by_group, np.cumsum(np.bincount(groups))[:-1])
    owed = [0.0, 0.0]
    for rows in members:
        train = round_share(len(rows) * fractions[0], 1, len(rows), owed, 0)
        rest = len(rows) - train
        validation = round_share(len(rows) * fractions[1], 0, rest, owed, 1) if fractions[2] > 0 else rest
        assignment[rows[train : train + validation]] = 1
        assignment[rows[train + validation :]] = 2
    return assignment


def round_share(share: float, least: int, most: int, owed: list[float], split: int) -> int:
    """Returns a share of rows as a whole number; the remainder is added to `owed` for the next group."""
    size = min(max(round(share + owed[split]), least), most)
    owed[split] = min(max(owed[split] + share - size, -0.5), 0.5)
    return size


@dataclass(frozen=True)
class Temporal(SplitPolicy):
    """Each series in time order. The validation and test splits start with all earlier rows, which a column `history`
    marks: forecasts may read them, metrics skip them."""

    time: str = "time"
    series: str = "series"

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        assignment = np.zeros(len(dataset), dtype=np.int64)
        groups = dataset.groups(self.series) if self.series in dataset else {"": np.arange(len(dataset))}
        for rows in groups.values():
            ordered = rows[np.argsort(dataset[self.time][rows], kind="stable")]
            positions = (np.arange(len(rows)) + 0.5) / len(rows)
            assignment[ordered] = np.searchsorted(np.cumsum(fractions[:2]), positions)
        splits = [dataset.take(np.flatnonzero(assignment == 0))]
        for split in (1, 2):
            rows = np.flatnonzero(assignment <= split) if (assignment == split).any() else np.zeros(0, np.int64)
            history = (assignment[rows] < split).astype(np.float64)
            splits.append(dataset.take(rows).with_column("history", NUMBER, history))
        return splits


def split(
    dataset: Dataset,
    policy: SplitPolicy,
    fractions: Fractions,
    diagnostics: Diagnostics,
    predefined: Mapping[str, Dataset] | None = None,
) -> dict[str, Dataset]:
    """Returns the training, validation and test split by name.

    Args:
        dataset: The training split if others are predefined, else all rows.
        policy: How rows are divided; it also draws a validation split if only that is missing.
        fractions: Of the training, validation and test split.
        diagnostics: Receives a note on how the rows were divided.
        predefined: Splits read from files of their own; they take precedence over a column `split`.
    """
    predefined = dict(predefined or {})
    if not predefined and "split" in dataset:
        predefined = _split_by_column(dataset, diagnostics)
    if predefined:
        splits = {"train": dataset, **predefined}
        if not len(splits.get("validation", ())):
            fraction = fractions[1] / (fractions[0] + fractions[1])
            splits["train"], splits["validation"], _ = policy.divide(splits["train"], (1 - fraction, fraction, 0.0))
            diagnostics.note(f"no validation split: {100 * fraction:.3g} % of the training rows are used")
    else:
        divided = zip(NAMES, fractions, policy.divide(dataset, fractions), strict=True)
        splits = {name: rows for name, fraction, rows in divided if fraction > 0}
        percentages = " / ".join(f"{100 * fraction:g}" for fraction in fractions)
        diagnostics.note(f"split {percentages} % ({policy.describe()})")
        if empty := [name for name, rows in splits.items() if not len(rows)]:
            cause = f"{len(dataset):,} rows are too few: the {empty[0]} split is empty"
            raise SeriatimError("data.too-short", cause, "add rows, or change data.fractions")
    diagnostics.note("rows: " + ", ".join(f"{len(rows):,} {name}" for name, rows in splits.items()))
    return splits


def _split_by_column(dataset: Dataset, diagnostics: Diagnostics) -> dict[str, Dataset]:
    """Returns the splits that the column `split` names; unknown names are problems."""
    names = np.array([SPLIT_ALIASES.get(name.lower(), "") for name in dataset["split"]])
    for row in np.flatnonzero(names == ""):
        cause = f'{dataset.locations[row]}: "{dataset["split"][row]}" is not train, validation or test'
        diagnostics.report("data.split", cause, "correct the column, or name another: data.columns.split=NAME")
    diagnostics.raise_problems()
    return {name: dataset.take(np.flatnonzero(names == name)) for name in NAMES}
