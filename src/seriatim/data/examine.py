"""Statistics and warnings about data, by kind: what `seriatim data check` reports beside problems."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import cast

import numpy as np

from ..core.errors import Diagnostics, SeriatimError
from ..core.text import listed
from .dataset import Column, Dataset
from .documents import BLOCK_COLUMN
from .kinds import LABEL, LABELS, NUMBER, TEXT, TOKENS
from .schema import Schema
from .split import NAMES, Fractions, SplitPolicy, split

MAX_LISTED = 8  # labels or characters in a line
MAX_EXAMPLES = 5  # of a problem
LENGTH_RATIO = 3.0  # times the usual ratio of lengths: one side is likely not the translation of the other
MIN_WORDS = 3  # of shorter texts the ratio says nothing
LONG_LINE = 100_000  # characters
SHORT_TEXT = 1000  # characters: a model will memorize it
FEW_EXAMPLES = 10  # of a label
MAX_WORDS = 1 << 19  # distinct words that are counted
MAX_HASHES = 1 << 19  # lines that are compared; of more, a sample
RAREST_CHARACTERS = 10  # in the report
EXAMPLE_LENGTH = 60  # characters of a text in an example

# C0 and C1 controls except tab, line feed and carriage return; U+0085 and the separators 0x1C to 0x1F are among them.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


# The report


@dataclass
class Problem:
    """A kind of problem: how often it occurs, and the first places."""

    code: str
    remedy: str = ""
    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class ColumnReport:
    """What a column holds, by its kind."""

    role: str
    column: str
    kind: str
    statistics: dict[str, str]
    histogram: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, texts
    unit: str = ""  # of the histogram


@dataclass
class DataReport:
    """The result of `check_data`."""

    source: str
    bytes: int
    encoding: str
    task: str = ""
    fits: dict[str, str] = field(default_factory=dict)  # task → "yes: …" or "no: …"
    rows: int = 0
    statistics: dict[str, str] = field(default_factory=dict)
    columns: list[ColumnReport] = field(default_factory=list)
    split: dict[str, int] = field(default_factory=dict)  # rows, or characters of a stream, about
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        return not self.problems

    @property
    def verdict(self) -> str:
        if self.problems:
            total = sum(problem.count for problem in self.problems)
            return f"not usable as it is: {total:,} problem{'s' if total > 1 else ''}"
        return "usable, with warnings" if self.warnings else "ready"

    @property
    def histograms(self) -> dict[str, list[tuple[str, int]]]:
        """Title → label and count of each bar."""
        return {
            f"lengths of {column.column} ({column.unit})": [
                (f"{low:,}" if low == high else f"{low:,}–{high:,}", count) for low, high, count in column.histogram
            ]
            for column in self.columns
            if column.histogram
        }

    def to_json(self) -> dict[str, object]:
        return {"verdict": self.verdict, "usable": self.usable, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.verdict}"]
        for problem in self.problems:
            lines.append(f"\n[{problem.code}] {'once' if problem.count == 1 else f'{problem.count:,} times'}")
            lines += [f"    {example}" for example in problem.examples]
            lines += [f"  remedy: {problem.remedy}"] if problem.remedy else []
        sections = {"warnings": self.warnings, "notes": self.notes}
        sections |= (
            {"tasks": [f"{task}: {verdict}" for task, verdict in self.fits.items()]} if len(self.fits) > 1 else {}
        )
        for title, entries in sections.items():
            if entries:
                lines += [f"\n{title}", *(f"  {entry}" for entry in entries)]
        facts = dict(self.statistics)
        for column in self.columns:
            facts |= {f"{column.role}: {name}": value for name, value in column.statistics.items()}
        if self.split:
            facts["split"] = ", ".join(f"{count:,} {name}" for name, count in self.split.items())
        width = max(map(len, facts), default=0)
        return "\n".join([*lines, "", *(f"  {name:<{width}}  {value}" for name, value in facts.items())])


# Counts


def describe_sizes(sizes: np.ndarray) -> str:
    if not len(sizes) or sizes.max() <= 1:
        return ""
    return f", sizes {sizes.min():,} to {sizes.max():,}, median {int(np.median(sizes)):,}"


def count_labels(column: Column) -> Counter[str]:
    """Returns how often each label of a column occurs, alone or in lists."""
    return column.counts() if column.kind is LABEL else Counter(label for labels in column.values for label in labels)


def count_duplicates(dataset: Dataset, schema: Schema) -> tuple[int, int]:
    """Returns how many rows repeat the input of an earlier row, and how many inputs have more than one target."""
    roles = [role_field.role for role_field in schema.fields if role_field.role in dataset]
    input_roles = [role for role in roles if not schema[role].target]
    target_roles = [role for role in roles if schema[role].target]

    def count() -> np.ndarray:
        inputs, targets = dataset.row_hashes(input_roles), dataset.row_hashes(target_roles)
        order = np.argsort(inputs, kind="stable")
        inputs, targets = inputs[order], targets[order]
        starts = np.flatnonzero(np.concatenate([[True], inputs[1:] != inputs[:-1]]))  # of rows with the same input
        ambiguous = np.minimum.reduceat(targets, starts) != np.maximum.reduceat(targets, starts)
        return np.array([len(starts), int(ambiguous.sum())])

    if not len(dataset) or not input_roles:
        return 0, 0
    distinct, ambiguous = dataset.remember(f"duplicates {input_roles} {target_roles}", count).tolist()
    return len(dataset) - distinct, ambiguous


# Statistics of texts in bounded memory: lengths, words, characters, duplicates, and what only held-out texts have


@dataclass
class TextStatistics:
    """Counts texts one by one; lengths are in characters for lines of a stream, in words for the cells of a column."""

    by_words: bool
    texts: int = 0
    empty: int = 0
    length: int = 0  # of all texts
    longest: tuple[int, int] = (0, 0)  # its length, and its number from 0
    words: int = 0
    complete: bool = True  # whether all distinct words are counted
    lone_returns: int = 0
    controls: int = 0
    first_controls: list[int] = field(default_factory=list)  # the numbers of the first texts with them
    replacements: int = 0
    duplicates: int = 0
    sampled: int = 1  # every n-th text is compared
    characters: Counter[str] = field(default_factory=Counter)
    word_counts: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    length_counts: Counter[int] = field(default_factory=Counter)  # by the number of bits
    trained_words: set[str] = field(default_factory=set)
    trained_characters: set[str] = field(default_factory=set)
    hashes: set[int] = field(default_factory=set)

    def count(self, texts: Iterable[str], held_out: Iterable[bool]) -> TextStatistics:
        """Counts texts, each with whether it is in the validation or test split, and returns the statistics."""
        for text, is_held_out in zip(texts, held_out, strict=False):
            self.add(text, is_held_out)
        return self

    def add(self, text: str, is_held_out: bool) -> None:
        words = text.split()
        characters = Counter(text)
        self.characters.update(characters)
        self.words += len(words)
        if not self.complete:
            self.word_counts.update(word for word in words if word in self.word_counts)
        else:
            self.word_counts.update(words)
            self.complete = len(self.word_counts) < MAX_WORDS
        if not is_held_out:
            self.trained_words.update(words if self.complete else ())
            self.trained_characters.update(characters)
        size = len(words) if self.by_words else len(text)
        if size > self.longest[0]:
            self.longest = (size, self.texts)
        self.length += size
        self.length_counts[size.bit_length()] += 1
        self.lone_returns += characters.get("\r", 0)
        self.replacements += characters.get("\ufffd", 0)
        if not text.isprintable() and (controls := CONTROL.findall(text)):
            self.controls += len(controls)
            if len(self.first_controls) < MAX_EXAMPLES:
                self.first_controls.append(self.texts)
        if words:
            self._compare(text)
        else:
            self.empty += 1
        self.texts += 1

    def _compare(self, text: str) -> None:
        mark = hash(text)
        if mark % self.sampled:
            return
        if mark in self.hashes:
            self.duplicates += 1
            shown = text if len(text) <= EXAMPLE_LENGTH else text[:EXAMPLE_LENGTH] + "…"
            if shown in self.repeated or len(self.repeated) < 1000:
                self.repeated[shown] += 1
            return
        self.hashes.add(mark)
        if len(self.hashes) > MAX_HASHES:
            self.sampled *= 2
            self.hashes = {mark for mark in self.hashes if mark % self.sampled == 0}
            self.duplicates //= 2

    @property
    def duplicate_count(self) -> int:
        """How many texts repeat an earlier one; an estimate if `sampled` is above 1."""
        return self.duplicates * self.sampled

    @property
    def unseen_characters(self) -> list[tuple[str, int]]:
        """Characters that only held-out texts have, the most frequent first."""
        unseen = [
            (character, self.characters[character]) for character in self.characters.keys() - self.trained_characters
        ]
        return sorted(unseen, key=lambda item: (-item[1], item[0]))

    @property
    def histogram(self) -> list[tuple[int, int, int]]:
        """The number of texts by length: from, to, texts."""
        top = max(self.length_counts, default=-1)
        edges = [(0, 0), *((1 << n, (2 << n) - 1) for n in range(top))]
        return [(low, high, self.length_counts[n]) for n, (low, high) in enumerate(edges) if top >= 0]


# Statistics by kind


def examine(
    report: DataReport,
    datasets: Mapping[str, Dataset],
    schema: Schema,
    policy: SplitPolicy,
    fractions: Fractions,
    diagnostics: Diagnostics,
) -> None:
    """Fills a report with the statistics of the training rows, or of all if there are no others, and with warnings."""
    dataset, *others = datasets.values()
    report.rows = len(dataset)
    if others:
        report.split = {name: len(rows) for name, rows in datasets.items()}
        held_out = np.zeros(len(dataset), dtype=bool)
    else:
        held_out = _held_out(report, dataset, policy, fractions)
    stream = dataset.columns.get(schema.input_role, ())
    is_stream = bool(stream) and stream[0].name == BLOCK_COLUMN
    report.statistics["blocks" if is_stream else "rows"] = f"{len(dataset):,}"
    if is_stream:
        shares = (1.0, 0.0, 0.0) if others else fractions
        report.columns.append(_examine_stream(report, schema.input_role, stream[0], shares))
        return
    repeated, ambiguous = count_duplicates(dataset, schema)
    report.statistics["rows that repeat an earlier input"] = f"{repeated:,}"
    targets = dataset.columns.get(schema.target_role or "", ())
    if ambiguous and targets and targets[0].kind is TEXT:
        report.statistics["inputs with more than one target"] = f"{ambiguous:,}"  # translations, captions
    elif ambiguous:
        report.warnings.append(f"{ambiguous:,} inputs have more than one target")
    for role_field in schema.fields:
        for number, column in enumerate(dataset.columns.get(role_field.role, ())):
            further = [rows.columns[role_field.role][number] for rows in others if role_field.role in rows]
            report.columns.append(
                _examine_column(report, dataset, role_field.role, column, held_out, further, diagnostics)
            )
            if role_field.target and column.kind in (LABEL, LABELS):
                _warn_about_labels(report, column)
    _compare_texts(report, dataset, schema)


def _held_out(report: DataReport, dataset: Dataset, policy: SplitPolicy, fractions: Fractions) -> np.ndarray:
    """Returns whether each row would be in the validation or test split (rows,), and fills in the sizes of splits."""
    numbers = dataset.with_column("row", NUMBER, np.arange(len(dataset), dtype=np.float64))
    try:
        splits = split(numbers, policy, fractions, Diagnostics())
    except SeriatimError as error:
        report.warnings.append(error.cause)
        return np.zeros(len(dataset), dtype=bool)
    report.split = {name: len(rows) for name, rows in splits.items()}
    held_out = np.ones(len(dataset), dtype=bool)
    held_out[splits["train"]["row"].astype(np.int64)] = False
    return held_out


def _examine_column(
    report: DataReport,
    dataset: Dataset,
    role: str,
    column: Column,
    held_out: np.ndarray,
    further: Sequence[Column],
    diagnostics: Diagnostics,
) -> ColumnReport:
    """Returns a summary of a column. `held_out`: this column in the other splits; `further`: the other columns."""
    facts: dict[str, str] = {"column": f"{column.name}, {column.kind.name}"}
    if empty := int((column.sizes == 0).sum()):
        facts["empty"] = f"{empty:,}"
    texts = _as_texts(column)
    if texts is not None:
        statistics = TextStatistics(by_words=True).count(texts, held_out)
        for other in further:
            further_texts = _as_texts(other)
            statistics.count(() if further_texts is None else further_texts, itertools.repeat(True))
        facts |= _describe_text(statistics)
        longest, row = statistics.longest
        average = f"{statistics.length / max(statistics.texts, 1):.1f} on average"
        where = f" ({dataset.locations[row]})" if row < len(dataset) else ""
        facts["words per text"] = f"{average}, at most {longest:,}{where}" if longest else average
        report.warnings += _odd_characters(statistics, column.name)
        return ColumnReport(role, column.name, column.kind.name, facts, statistics.histogram, "words")
    if column.kind.examine is not None:
        lines, errors = column.kind.examine(column.values)
        facts[column.kind.name] = "; ".join(lines)
        for row, error in errors.items():
            diagnostics.report(error.code, f"{dataset.locations[row]}: {error.cause}", error.remedy)
    elif column.kind in (LABEL, LABELS, TOKENS):
        counts = count_labels(column)
        most = ", ".join(
            f"{json.dumps(label, ensure_ascii=False)} {n:,}" for label, n in counts.most_common(MAX_LISTED)
        )
        facts["distinct"] = f"{len(counts):,}; the most frequent: {most}"
    elif column.kind is NUMBER:
        numbers = np.asarray(column.values, dtype=np.float64)
        if not np.isnan(numbers).all():
            low, high, mean = np.nanmin(numbers), np.nanmax(numbers), np.nanmean(numbers)
            facts["values"] = f"{low:.6g} to {high:.6g}, mean {mean:.6g}"
    if sizes := describe_sizes(column.sizes):
        facts["sizes"] = sizes.removeprefix(", sizes ")
    return ColumnReport(role, column.name, column.kind.name, facts)


def _as_texts(column: Column) -> Iterable[str] | None:
    """Returns the texts of a column, lists of tokens with blanks between them; None for columns of other kinds."""
    if column.kind is TEXT:
        return cast(Iterable[str], column.values)
    if column.kind in (LABEL, LABELS):
        return None
    first = next((value for value in column.values if not isinstance(value, tuple) or value), None)
    if isinstance(first, tuple) and all(isinstance(token, str) for token in first):
        return (value if isinstance(value, str) else " ".join(value) for value in column.values)
    return None


def _examine_stream(report: DataReport, role: str, column: Column, fractions: Fractions) -> ColumnReport:
    """Counts the lines of a stream of text; those behind the first fraction of the characters are held out."""
    total = int(column.lengths.sum(dtype=np.int64))
    ends = np.cumsum(fractions) * total
    if fractions[0] < 1:
        report.split = {name: round(size) for name, size in zip(NAMES, np.diff(ends, prepend=0), strict=True)}
    statistics = TextStatistics(by_words=False)
    position = 0
    for line in _lines(column.values):
        statistics.add(line.removesuffix("\n"), position >= ends[0])
        position += len(line)
    if statistics.texts > 1:  # the lines are counted without their ends
        statistics.characters["\n"] += statistics.texts - 1
        statistics.trained_characters.add("\n")
    facts = {"characters": f"{total:,}", "lines": f"{statistics.texts:,}, of which {statistics.empty:,} are empty"}
    longest, number = statistics.longest
    facts["longest line"] = f"{longest:,} characters (line {number + 1:,})"
    about = "about " if statistics.sampled > 1 else ""
    facts["lines that repeat an earlier one"] = f"{about}{statistics.duplicate_count:,}"
    repeated = [
        f"{count + 1:,} × {json.dumps(text, ensure_ascii=False)}" for text, count in statistics.repeated.most_common(3)
    ]
    facts |= {"repeated most often": "; ".join(repeated)} if repeated else {}
    facts |= _describe_text(statistics)
    unseen = statistics.unseen_characters
    if statistics.duplicate_count * 20 > statistics.texts:
        report.warnings.append(
            f"{100 * statistics.duplicate_count / statistics.texts:.0f} % of the lines repeat an earlier line"
        )
    if longest > LONG_LINE:
        report.warnings.append(f"line {number + 1:,} has {longest:,} characters")
    if unseen:
        facts["characters unseen in training"] = show_characters(unseen[:MAX_LISTED])
        report.warnings.append(
            f"{len(unseen)} characters occur only behind the training split; task.tokenizer.fallback=true keeps them"
        )
    if 0 < total < SHORT_TEXT:
        report.warnings.append("very short: a model will memorize it")
    report.warnings += _odd_characters(statistics, "")
    return ColumnReport(role, column.name, column.kind.name, facts, statistics.histogram, "characters per line")


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    for block in blocks:
        yield from (line + "\n" for line in block.removesuffix("\n").split("\n"))


def show_characters(counts: Iterable[tuple[str, int]]) -> str:
    """Returns characters with their counts."""
    return ", ".join(f"{json.dumps(char, ensure_ascii=not char.isprintable())} {count:,}" for char, count in counts)


def _describe_text(statistics: TextStatistics) -> dict[str, str]:
    least = "" if statistics.complete else "at least "
    rarest = sorted(statistics.characters.items(), key=lambda item: (item[1], item[0]))[:RAREST_CHARACTERS]
    counts = statistics.word_counts
    once = sum(count == 1 for count in counts.values()) / max(len(counts), 1)
    distinct = f"{least}{len(counts):,} distinct, {once:.0%} of them once"
    return {
        "words": f"{statistics.words:,}, {distinct}",
        "distinct characters": f"{len(statistics.characters):,}; the rarest: {show_characters(rarest)}",
        "words unseen in training": f"{len(counts.keys() - statistics.trained_words):,}",
    }


def _odd_characters(statistics: TextStatistics, column: str) -> Iterator[str]:
    where = f'column "{column}": ' if column else ""
    if statistics.lone_returns:
        yield f"{where}{statistics.lone_returns:,} carriage returns without a line feed stay as they are"
    if statistics.controls:
        numbers = ", ".join(str(number + 1) for number in statistics.first_controls)
        yield f"{where}{statistics.controls:,} control characters (first in {'rows' if column else 'lines'} {numbers})"
    if statistics.replacements:
        yield f"{where}{statistics.replacements:,} replacement characters (U+FFFD): text was lost before"


def _warn_about_labels(report: DataReport, column: Column) -> None:
    counts = count_labels(column)
    if len(counts) == 1:
        report.warnings.append(f'all rows have the label "{next(iter(counts))}": there is nothing to learn')
    if rare := [label for label, count in counts.most_common() if count < FEW_EXAMPLES]:
        shown = listed(rare, MAX_EXAMPLES)
        report.warnings.append(f"labels with fewer than {FEW_EXAMPLES} rows: {shown}")


def _compare_texts(report: DataReport, dataset: Dataset, schema: Schema) -> None:
    """Warns about rows with two equal texts, with an empty text, or with one text much longer than the other."""
    inputs = [c for c in dataset.columns.get(schema.input_role, ()) if c.kind is TEXT]
    targets = [c for c in dataset.columns.get(schema.target_role or "", ()) if c.kind is TEXT]
    if len(inputs) == 2:
        first, second = inputs
    elif len(inputs) == 1 and len(targets) == 1:
        first, second = inputs[0], targets[0]
    else:
        return
    equal, half, ratios = [], [], []
    characters = int(first.lengths.sum(dtype=np.int64)), int(second.lengths.sum(dtype=np.int64))
    usual = characters[1] / max(characters[0], 1)
    for row, (a, b) in enumerate(zip(first.values, second.values, strict=True)):
        if bool(a.strip()) != bool(b.strip()):
            half.append(row)
        elif a == b:
            equal.append(row)
        elif targets and a and usual and max(len(a.split()), len(b.split())) > MIN_WORDS:
            ratios += [] if 1 / LENGTH_RATIO <= len(b) / (len(a) * usual) <= LENGTH_RATIO else [row]
    for rows, what in (
        (half, "rows with one empty text"),
        (equal, "rows with the same text on both sides"),
        (ratios, "rows with one text much longer than the other"),
    ):
        if rows:
            places = listed([str(dataset.locations[row]) for row in rows[:MAX_EXAMPLES]], MAX_EXAMPLES, "; ", len(rows))
            report.warnings.append(f"{what}: {len(rows):,} ({places})")
