"""Splits: predefined by files or a column, else drawn by the policy of the task as a pure function of the data."""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..core.errors import Diagnostics, SeriatimError
from .dataset import Dataset, Values
from .disk import TextValues, mix
from .documents import document_ends
from .kinds import LABEL, SPLIT_ALIASES, YES
from .schema import Schema

NAMES = ("train", "validation", "test")
Fractions = tuple[float, float, float]
DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class SplitPolicy(ABC):
    """Divides a data set that has no predefined splits."""

    reports_overlap: ClassVar[bool] = True  # whether inputs that occur in two splits deserve a note
    unit: ClassVar[str] = "rows"  # what the rows of a data set are, for a note

    @abstractmethod
    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        """Returns the training, validation and test split; a fraction of 0 gives an empty one."""

    def divide_validation(self, train: Dataset, fractions: Fractions) -> tuple[Dataset, Dataset, str]:
        """Returns the training and the validation split of training rows, if only validation is missing, and a note.

        By default validation has the share that it has of both in `fractions`.
        """
        fraction = fractions[1] / (fractions[0] + fractions[1])
        rows, validation, _ = self.divide(train, (1 - fraction, fraction, 0.0))
        return rows, validation, f"no validation split: {100 * fraction:.3g} % of the training rows are used"

    def separate(self, splits: dict[str, Dataset], diagnostics: Diagnostics) -> dict[str, Dataset]:
        """Returns predefined splits without rows that must not be in two of them; by default as they are."""
        return splits

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
            columns = dataset.columns.get(self.role, ()) if self.role is not None else ()
            labeled = len(columns) == 1 and columns[0].kind is LABEL  # several labels may be all different
            groups = dataset.group_ids([str(self.role)]) if labeled else None
            return assign_rows(groups, len(dataset), fractions)

        return take_splits(dataset, dataset.remember(f"split {self} {fractions}", assign))


@dataclass(frozen=True)
class Grouped(SplitPolicy):
    """Whole groups of rows, drawn at random: rows of one group are in one split.

    Groups are drawn by their numbers, which follow from the order of the rows, or, if `hashed` is given, by a hash of
    their texts: then the order of the rows makes no difference.

    Args:
        key: Returns the group of each row (rows,), numbered in the order of their first rows.
        noun: What groups are, in an error, such as "images".
        description: How groups are drawn, for a note.
        hashed: Returns for the first row of each group (groups,) the bytes that are hashed, and a text that orders
            groups of the same hash.
        at_most: The largest number of groups in the validation and in the test split at `DEFAULT_FRACTIONS`.
        validation_first: Whether the smallest hashes are validation and sizes are rounded to the nearest number, as
            captions are drawn since version 0.1; else the smallest are test, and sizes are rounded down.
    """

    key: Callable[[Dataset], np.ndarray]
    noun: str
    description: str
    hashed: Callable[[Dataset, np.ndarray], Iterable[tuple[bytes, str]]] | None = None
    at_most: int | None = None
    validation_first: bool = False

    def describe(self) -> str:
        most = "" if self.at_most is None else f", by default at most {self.at_most:,} each"
        return f"{self.description}{most}"

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        def assign() -> np.ndarray:
            groups = self.key(dataset)
            count = int(groups.max(initial=-1)) + 1
            if self.hashed is None:
                return assign_rows(None, count, fractions)[groups]
            first_rows = np.unique(groups, return_index=True)[1]
            sizes = self._sizes(count, fractions)
            assignment = np.zeros(count, dtype=np.int8)
            order, first, end = order_by_hash(self.hashed(dataset, first_rows), count), 0, 0
            for split in (1, 2) if self.validation_first else (2, 1):
                first, end = end, end + sizes[split - 1]
                assignment[order[first:end]] = split
            return assignment[groups]

        name = f"split grouped {self.description} {self.at_most} {fractions}"
        return take_splits(dataset, dataset.remember(name, assign))

    def _sizes(self, count: int, fractions: Fractions) -> list[int]:
        """Returns the number of groups in the validation and in the test split."""
        _, validation, test = fractions
        is_default = fractions == DEFAULT_FRACTIONS
        if not test and math.isclose(validation, 1 / 9) and self.at_most is not None:
            is_default, validation = True, DEFAULT_FRACTIONS[1]  # drawn from the rows of a training file alone
        shares = [count * part for part in (validation, test)]
        rounded = [round(share) if self.validation_first else int(share + 1e-9) for share in shares]
        sizes = [max(size, 1) if share else 0 for size, share in zip(rounded, shares, strict=True)]
        if self.at_most is not None and is_default:
            sizes = [min(size, self.at_most) for size in sizes]
        if sum(sizes) >= count:
            percentages = " / ".join(f"{100 * fraction:g}" for fraction in fractions)
            remedy = "add rows, name --validation and --test, or change data.fractions, such as 0.8,0.2,0"
            raise SeriatimError("data.too-short", f"too few to split {percentages} %: {count:,} {self.noun}", remedy)
        return sizes


def order_by_hash(pairs: Iterable[tuple[bytes, str]], count: int) -> np.ndarray:
    """Returns the numbers of pairs (count,) in the order of the hashes of their bytes, then of their texts."""
    digests = np.empty(count, dtype="S16")  # not Python objects: there may be millions
    texts = {}
    for number, (hashed, text) in enumerate(pairs):
        digests[number] = hashlib.blake2b(hashed, digest_size=16).digest()
        if text:
            texts[number] = text
    high, low = digests.view(">u8").reshape(-1, 2).T
    if texts:
        return np.array(sorted(range(count), key=lambda number: (high[number], low[number], texts.get(number, ""))))
    return np.lexsort((low, high))


@dataclass(frozen=True)
class Contiguous(SplitPolicy):
    """A text stream in order, cut where the fractions say: neighboring lines are alike, so none are drawn at random.

    A cut moves to the nearest end of a document or line, if that hardly changes the fractions. A row that is cut
    becomes two. Positions are bytes of UTF-8. Without a role, whole rows are divided.
    """

    role: str | None = None

    SEARCHED = 1 << 20  # bytes searched for a line end, on each side
    CLOSE, FAR = 0.2, 0.5  # how far a cut may move to a document or line, in parts of the smallest split

    @property
    def unit(self) -> str:  # type: ignore[override]
        """What the rows are, for a note: the text of a stream is read in blocks."""
        return "rows" if self.role is None else "blocks of the stream"

    @property
    def reports_overlap(self) -> bool:  # type: ignore[override]
        """Whether equal inputs deserve a note: whole rows do, blocks of a stream are never equal."""
        return self.role is None

    def describe(self) -> str:
        return "consecutive blocks" if self.role is None else "contiguous"

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        if self.role is None:
            row_bounds = [0, *(round(len(dataset) * share) for share in itertools.accumulate(fractions))]
            return [dataset.take(np.arange(start, end)) for start, end in itertools.pairwise(row_bounds)]
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
        splits = take_splits(divided, np.searchsorted(cuts, bounds[:-1], side="right"))
        within_document = [*(cut not in documents for cut in cuts), False]
        return [replace(split, continued=within) for split, within in zip(splits, within_document, strict=True)]

    def _nearest(self, blocks: Values, ends: np.ndarray, documents: np.ndarray, target: int, tolerance: float) -> int:
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

    def _nearest_line(self, blocks: Values, ends: np.ndarray, target: int) -> int | None:
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
    selected = values[rows]
    for position, string in strings.items():
        selected[position] = string
    return selected


def assign_rows(groups: np.ndarray | None, count: int, fractions: Fractions) -> np.ndarray:
    """Returns the split (0, 1, 2) of each of `count` rows, with the same fractions of each group.

    The assignment is a function of the row numbers alone: the same table always gets the same splits. What rounding
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


def split(
    dataset: Dataset,
    policy: SplitPolicy,
    fractions: Fractions,
    diagnostics: Diagnostics,
    predefined: Mapping[str, Dataset] | None = None,
    schema: Schema | None = None,
) -> dict[str, Dataset]:
    """Returns the training, validation and test split by name.

    Args:
        dataset: The training split if others are predefined, else all rows.
        policy: How rows are divided; it also draws a validation split if only that is missing.
        fractions: Of the training, validation and test split.
        diagnostics: Receives notes on how the rows were divided, and on inputs that occur in two splits.
        predefined: Splits read from files of their own; they take precedence over a column `split`.
        schema: The fields of the task, which separate inputs from targets.
    """
    check_fractions(fractions)
    predefined = dict(predefined or {})
    if "split" in dataset:
        if predefined:
            column = dataset.columns["split"][0].name
            diagnostics.note(f'the splits are files of their own; the column "{column}" is ignored')
        else:
            predefined = _split_by_column(dataset, diagnostics)
        dataset = dataset.without("split", "validation")
        predefined = {name: rows.without("split", "validation") for name, rows in predefined.items()}
    if predefined:
        splits = policy.separate({"train": dataset, **predefined}, diagnostics)
        if not len(splits["train"]):
            raise SeriatimError(
                "data.empty", f"{dataset.name}: there are no training rows", "name the split train for some"
            )
        if not len(splits.get("validation", ())) and fractions[1] > 0 and len(splits["train"]) > 1:
            splits["train"], splits["validation"], note = policy.divide_validation(splits["train"], fractions)
            diagnostics.note(note)
        if not len(splits.get("test", ())):
            splits.pop("test", None)
            diagnostics.note("there is no test split")
    else:
        divided = zip(NAMES, fractions, policy.divide(dataset, fractions), strict=True)
        splits = {name: rows for name, fraction, rows in divided if fraction > 0}
        percentages = " / ".join(f"{100 * fraction:g}" for fraction in fractions)
        diagnostics.note(f"split {percentages} % ({policy.describe()}), in the same way each time")
        if empty := [name for name, rows in splits.items() if not len(rows)]:
            cause = f"{len(dataset):,} rows are too few to split {percentages} %: the {empty[0]} split is empty"
            remedy = "add rows, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0"
            raise SeriatimError("data.too-short", cause, remedy)
    splits = {name: splits[name] for name in NAMES if name in splits}
    diagnostics.note(f"{policy.unit}: " + ", ".join(f"{len(rows):,} {name}" for name, rows in splits.items()))
    if schema is not None and policy.reports_overlap:
        _note_overlap(splits, [field.role for field in schema.fields if not field.target], diagnostics)
    return splits


def check_fractions(fractions: Fractions) -> Fractions:
    """Returns the fractions; raises an error unless they add up to 1 and the first is above 0."""
    if len(fractions) != 3 or min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-6:
        cause = f"data.fractions: {', '.join(f'{fraction:g}' for fraction in fractions)}"
        remedy = "write three fractions that add up to 1, the first above 0, such as 0.8, 0.1, 0.1"
        raise SeriatimError("data.fractions", cause, remedy)
    return fractions


def _split_by_column(dataset: Dataset, diagnostics: Diagnostics) -> dict[str, Dataset]:
    """Returns the splits that the column `split` names; unknown names are problems.

    If it names no validation rows, a column `validation` marks training rows for validation.
    """
    column = dataset.columns["split"][0]
    names = np.array([SPLIT_ALIASES.get(name.strip().lower(), "") for name in column.values], dtype="U10")
    for row in np.flatnonzero(names == ""):
        where = f'{dataset.locations[row]}: column "{column.name}"'
        cause = f'{where} holds "{column.values[row]}", which is none of the splits'
        remedy = f"write one of: {', '.join(SPLIT_ALIASES)}; or ignore the column: data.columns.split=''"
        diagnostics.report("data.split", cause, remedy)
    diagnostics.raise_problems()
    note = f'splits by the column "{column.name}"'
    if "validation" in dataset and "validation" not in names:
        marked = np.array([flag.strip().lower() in YES for flag in dataset["validation"]])
        names[marked & (names == "train")] = "validation"
        note += f', and training rows where "{dataset.columns["validation"][0].name}" is true for validation'
    diagnostics.note(note)
    return {name: dataset.take(np.flatnonzero(names == name)) for name in NAMES}


def _note_overlap(splits: Mapping[str, Dataset], roles: Sequence[str], diagnostics: Diagnostics) -> None:
    """Notes how many inputs of the validation and the test split occur in the training split, too."""
    roles = [role for role in roles if role in splits["train"]]
    known = splits["train"].row_hashes(roles)
    for name in NAMES[1:]:
        if name in splits and set(roles) <= set(splits[name].columns):
            repeated = int(np.isin(splits[name].row_hashes(roles), known).sum())
            if repeated:
                count = len(splits[name])
                diagnostics.note(
                    f"{repeated:,} of {count:,} {name} rows have an input that is in the training split, too"
                )
