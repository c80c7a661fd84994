"""The data check, for any schema: statistics and problems of a data set, and which tasks a file fits.

`check` runs in every training; `check_data` is the command `seriatim data check`, which looks more closely and reports
everything at once.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np

from ..core.diagnostics import Diagnostics
from ..core.errors import SeriatimError
from .catalogue import find_entry
from .dataset import Column, Dataset
from .documents import BLOCK_COLUMN
from .formats import ReadOptions, normalize_name
from .kinds import LABEL, LABELS, NUMBER, TEXT, TOKENS
from .reader import read_dataset, read_header
from .schema import Header, Schema
from .source import Source, open_source
from .split import NAMES, Contiguous, Fractions, SplitPolicy, Stratified, split
from .stream import check_encoding
from .text_statistics import TextStatistics

MAX_LISTED = 8  # labels in a line of the report
MAX_EXAMPLES = 5  # of a problem
MAX_BLANKS = 1000  # empty cells of a column that are reported one by one
LENGTH_RATIO = 3.0  # times the usual ratio of lengths: one side is likely not the translation of the other
MIN_WORDS = 3  # of shorter texts the ratio says nothing
LONG_LINE = 100_000  # characters
SHORT_TEXT = 1000  # characters: a model will memorize it
FEW_EXAMPLES = 10  # of a label
FRACTIONS: Fractions = (0.8, 0.1, 0.1)


@dataclass(frozen=True)
class Report:
    """The result of the check in training."""

    statistics: list[str]
    problems: list[SeriatimError]

    def __str__(self) -> str:
        return "\n".join([*self.statistics, *(f"! {problem.cause}" for problem in self.problems)])


def check(dataset: Dataset, schema: Schema, diagnostics: Diagnostics | None = None) -> Report:
    """Counts sizes, labels and duplicates, reports empty cells, and runs the constraints of the schema.

    Args:
        dataset: The rows to check.
        schema: The fields of the task, with its constraints.
        diagnostics: Receives the problems; training raises them after this stage.
    """
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    statistics = [f"{dataset.name}: {len(dataset):,} rows"]
    for field_ in schema.fields:
        columns = dataset.columns.get(field_.role, ())
        for column in columns:
            sizes = describe_sizes(column.sizes)
            statistics.append(f'{field_.role}: column "{column.name}", {column.kind.name}{sizes}')
            if field_.target and column.kind in (LABEL, LABELS, TOKENS):
                statistics += describe_labels(column)
        if columns and field_.required and not field_.allow_missing:
            _report_blanks(dataset, field_.role, columns, diagnostics)
    statistics += describe_duplicates(dataset, schema)
    for constraint in schema.constraints:
        constraint(dataset, diagnostics)
    return Report(statistics, diagnostics.problems)


def _report_blanks(dataset: Dataset, role: str, columns: Sequence[Column], diagnostics: Diagnostics) -> None:
    """Reports the rows of a required role that have nothing: every missing number, or texts that are all empty."""
    if columns[0].kind is NUMBER:
        parts = [(f'column "{column.name}": the number', column.sizes == 0) for column in columns]
    else:
        parts = [(f"the {role}", np.max([column.sizes for column in columns], axis=0) == 0)]
    codes = {NUMBER: "data.number", LABEL: "data.label"}
    code = codes.get(columns[0].kind, "data.blank")
    for what, blank in parts:
        if not blank.any():
            continue
        rows = np.flatnonzero(blank)
        for row in rows[:MAX_BLANKS]:
            verb = "is missing" if code != "data.blank" else "is empty"
            diagnostics.report(code, f"{dataset.locations[int(row)]}: {what} {verb}", "fill it in, or remove the row")
        if len(rows) > MAX_BLANKS:
            diagnostics.report(code, f"{dataset.name}: {what} is missing in {len(rows) - MAX_BLANKS:,} more rows")


def describe_sizes(sizes: np.ndarray) -> str:
    if not len(sizes) or sizes.max() <= 1:
        return ""
    return f", sizes {sizes.min():,} to {sizes.max():,}, median {int(np.median(sizes)):,}"


def count_labels(column: Column) -> Counter[str]:
    """Returns how often each label of a column occurs, alone or in lists."""
    return column.counts() if column.kind is LABEL else Counter(label for labels in column.values for label in labels)


def describe_labels(column: Column) -> list[str]:
    """Returns a line with the most common labels, and one with those that occur once."""
    counts = count_labels(column)
    if not counts:
        return []
    shares = [(label, 100 * count / len(column.values)) for label, count in counts.most_common(MAX_LISTED)]
    listed = ", ".join(
        f"{label} ({share:.0f} %)" if share >= 1 else f"{label} ({share:.2g} %)" for label, share in shares
    )
    lines = [f"{len(counts):,} labels: {listed}" + (" …" if len(counts) > MAX_LISTED else "")]
    if rare := [label for label, count in counts.items() if count == 1]:
        more = " …" if len(rare) > MAX_LISTED else ""
        lines.append(f"{len(rare):,} labels occur once: {', '.join(rare[:MAX_LISTED])}{more}")
    return lines


def count_duplicates(dataset: Dataset, schema: Schema) -> tuple[int, int]:
    """Returns how many rows repeat the input of an earlier row, and how many inputs have more than one target."""
    roles = [field_.role for field_ in schema.fields if field_.role in dataset]
    input_roles = [role for role in roles if not schema[role].target]
    target_roles = [role for role in roles if schema[role].target]

    def count() -> np.ndarray:
        inputs, targets = dataset.row_hashes(input_roles), dataset.row_hashes(target_roles)
        order = np.argsort(inputs, kind="stable")
        inputs, targets = inputs[order], targets[order]
        starts = np.flatnonzero(np.concatenate([[True], inputs[1:] != inputs[:-1]]))  # of rows with the same input
        ambiguous = np.minimum.reduceat(targets, starts) != np.maximum.reduceat(targets, starts)
        return np.array([len(starts), int(ambiguous.sum())])

    if not len(dataset):
        return 0, 0
    distinct, ambiguous = dataset.remember(f"duplicates {input_roles} {target_roles}", count).tolist()
    return len(dataset) - distinct, ambiguous


def describe_duplicates(dataset: Dataset, schema: Schema) -> list[str]:
    """Returns a line with the number of duplicate inputs, and of inputs with different targets."""
    repeated, ambiguous = count_duplicates(dataset, schema)
    if not repeated:
        return []
    suffix = f"; {ambiguous:,} inputs have more than one target" if ambiguous else ""
    return [f"{repeated:,} rows repeat the input of an earlier row{suffix}"]


# The command `seriatim data check`


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

    def to_json(self) -> dict[str, Any]:
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


def fits(
    spec: Any,
    schemas: Mapping[str, Schema],
    encoding: str = "utf-8",
    overrides: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Returns for each task whether the data fits it: "yes: …" with the columns, or "no: …" with the reason."""
    source = open_source(spec)
    return {
        task: _fit(source, schema, encoding, (overrides or {}).get(task, {}))[0] for task, schema in schemas.items()
    }


def _fit(source: Source, schema: Schema, encoding: str, overrides: Mapping[str, str]) -> tuple[str, int]:
    """Returns whether data fits a schema, and how well: columns with usual names are a better sign than others."""
    first = source.splits.get("train", source)
    options = ReadOptions(first.encoding or encoding, errors="replace")
    overrides = {role: names for role, names in first.roles.items() if role in schema.roles} | dict(overrides)
    try:
        header, _ = read_header(first, schema, options, Diagnostics())
        if not header.columns:
            return "no: it has no rows", 0
        roles = schema.resolve(header, overrides, Diagnostics())
    except SeriatimError as error:
        return f"no: {error.cause}", 0
    for role, names in roles.items():
        if schema[role].match_kind(header, names, role in overrides) is None:
            return f"no: column {names[0]} is not a {schema[role].kinds[0].name}", 0
    columns = ", ".join(f"{role} = {','.join(names)}" for role, names in roles.items())
    return f"yes: {columns}", sum(_fit_of_role(schema, role, names, header) for role, names in roles.items())


def _fit_of_role(schema: Schema, role: str, names: Sequence[str], header: Header) -> int:
    field_ = schema[role]
    usual = {normalize_name(name) for name in (role, *field_.aliases, *(n for g in field_.alias_groups for n in g))}
    by_position = header.unnamed and role in schema.positions
    named = by_position or any(normalize_name(name) in usual for name in names) or BLOCK_COLUMN in names
    return 2 * len(names) if named else 1


def check_data(
    spec: Any,
    schemas: Mapping[str, Schema],
    task: str | None = None,
    *,
    column: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    data_dir: str | None = None,
    policies: Mapping[str, SplitPolicy] | None = None,
    fractions: Mapping[str, Fractions] | None = None,
) -> DataReport:
    """Examines data before training. Only what keeps it from being opened at all is raised.

    Args:
        spec: Whatever `open_source` takes.
        schemas: Task → its schema.
        task: The task to check for; by default the one the data fits best.
        column: The columns of the input; see `Schema.resolve`.
        target: The columns of the target.
        encoding: Of the files.
        data_dir: The folder of catalogue data sets.
        policies: Task → how it divides rows, to tell what only held-out rows have.
        fractions: Task → its fractions, if they are not 0.8, 0.1, 0.1.
    """
    source = open_source(spec, data_dir)
    paths = {stream.stamp[0]: stream.stamp[1] for stream in source.streams if stream.stamp is not None}
    report = DataReport(source.name, sum(paths.values()), check_encoding(source.encoding or encoding))
    overrides = {
        name: {
            role: names
            for role, names in ((schema.input_role, column), (schema.target_role, target))
            if names is not None and role is not None
        }
        for name, schema in schemas.items()
    }
    results = {name: _fit(source, schema, report.encoding, overrides[name]) for name, schema in schemas.items()}
    report.fits = {name: verdict for name, (verdict, _) in results.items()}
    entry = find_entry(spec) if isinstance(spec, str) else None
    if task is None:
        best = max(results, key=lambda name: results[name][1])
        expected = entry is not None and entry.task in results and results[entry.task][1] > 0
        task = entry.task if expected and entry is not None else best if results[best][1] > 0 else None
    problems: dict[str, Problem] = {}
    if task is None:
        cause = f"{source.name}: fits none of the tasks"
        examples = [f"{name}: {verdict.removeprefix('no: ')}" for name, verdict in report.fits.items()]
        report.problems = [
            Problem("data.column", "name a task, and columns with --column and --target", 1, [cause, *examples])
        ]
        return report
    report.task, schema = task, schemas[task]
    diagnostics = Diagnostics()
    datasets = _read_all(source, schema, overrides[task], ReadOptions(report.encoding), diagnostics)
    for dataset in datasets.values():
        try:
            check(dataset, schema, diagnostics)
        except SeriatimError as error:
            diagnostics.problems.append(error)
    if len(datasets.get("train", ())):
        policy = (policies or {}).get(task) or _default_policy(schema)
        _examine(report, datasets, schema, policy, (fractions or {}).get(task, FRACTIONS), diagnostics)
    for issue in diagnostics.problems:
        problem = problems.setdefault(issue.code, Problem(issue.code, issue.remedy))
        problem.count += 1
        problem.examples += [issue.cause] if len(problem.examples) < MAX_EXAMPLES else []
    if "data.encoding" in problems and report.encoding:
        problems["data.encoding"].count = max(sum(s.count_undecodable(report.encoding) for s in source.streams), 1)
    report.problems, report.notes = list(problems.values()), diagnostics.notes
    report.statistics = {"size": f"{report.bytes:,} bytes", "encoding": report.encoding, **report.statistics}
    return report


def _read_all(
    source: Source, schema: Schema, overrides: Mapping[str, str], options: ReadOptions, diagnostics: Diagnostics
) -> dict[str, Dataset]:
    """Returns the rows by split, as far as they can be read; bytes that cannot be decoded are replaced.

    A source without predefined splits is one, "train".
    """
    parts = {name: source.splits[name] for name in NAMES if name in source.splits} or {"train": source}
    datasets: dict[str, Dataset] = {}
    for name, part in parts.items():
        for errors in ("strict", "replace"):
            try:
                datasets[name] = read_dataset(part, schema, overrides, replace(options, errors=errors), diagnostics)
                break
            except SeriatimError as error:
                if not any(problem.cause == error.cause for problem in diagnostics.problems):
                    diagnostics.problems.append(error)
                if error.code not in ("data.encoding", "data.binary"):
                    break
    return datasets


def _default_policy(schema: Schema) -> SplitPolicy:
    return Contiguous(schema.input_role) if schema.text_unit != "line" else Stratified(schema.target_role)


# What is counted


def _examine(
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
    for field_ in schema.fields:
        for number, column in enumerate(dataset.columns.get(field_.role, ())):
            further = [rows.columns[field_.role][number] for rows in others if field_.role in rows]
            report.columns.append(_examine_column(report, dataset, field_.role, column, held_out, further, diagnostics))
            if field_.target and column.kind in (LABEL, LABELS):
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
    """Returns what a column holds. `held_out` tells its rows of other splits, `further` are the columns of others."""
    facts: dict[str, str] = {"column": f"{column.name}, {column.kind.name}"}
    if empty := int((column.sizes == 0).sum()):
        facts["empty"] = f"{empty:,}"
    texts = _as_texts(column)
    if texts is not None:
        statistics = TextStatistics(by_words=True).count(texts, held_out)
        for other in further:
            statistics.count(_as_texts(other) or (), itertools.repeat(True))
        facts |= _describe_text(statistics)
        longest, row = statistics.longest
        average = f"{statistics.mean_length:.1f} on average"
        where = f" ({dataset.locations[row]})" if row < len(dataset) else ""
        facts["words per text"] = f"{average}, at most {longest:,}{where}" if longest else average
        report.warnings += _odd_characters(statistics, column.name)
        return ColumnReport(role, column.name, column.kind.name, facts, statistics.histogram, "words")
    if column.kind.examine is not None:

        def report_row(row: int, code: str, cause: str, remedy: str) -> None:
            diagnostics.report(code, f"{dataset.locations[row]}: {cause}", remedy)

        facts |= {
            f"{column.kind.name}": line for line in column.kind.examine(column.values, dataset.locations, report_row)
        }
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
    first = column.values[0] if column.kind not in (LABEL, LABELS) else None
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
        shown = ", ".join(f"{json.dumps(c, ensure_ascii=not c.isprintable())} {n:,}" for c, n in unseen[:MAX_LISTED])
        facts["characters unseen in training"] = shown
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


def _describe_text(statistics: TextStatistics) -> dict[str, str]:
    least = "" if statistics.complete else "at least "
    rare = ", ".join(
        f"{json.dumps(c, ensure_ascii=not c.isprintable())} {n:,}" for c, n in statistics.rarest_characters
    )
    distinct = f"{least}{len(statistics.word_counts):,} distinct, {statistics.once:.0%} of them once"
    return {
        "words": f"{statistics.words:,}, {distinct}",
        "distinct characters": f"{len(statistics.characters):,}; the rarest: {rare}",
        "words unseen in training": f"{statistics.unseen_words:,}",
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
        shown = ", ".join(rare[:MAX_EXAMPLES]) + (" …" if len(rare) > MAX_EXAMPLES else "")
        report.warnings.append(f"labels with fewer than {FEW_EXAMPLES} rows: {shown}")


def _compare_texts(report: DataReport, dataset: Dataset, schema: Schema) -> None:
    """Warns about rows whose two texts are equal, of which one is empty, or of which one is much longer."""
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
            places = "; ".join(str(dataset.locations[row]) for row in rows[:MAX_EXAMPLES])
            report.warnings.append(f"{what}: {len(rows):,} ({places})")
