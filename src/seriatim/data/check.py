"""The data check, for any schema: problems of a data set, and which tasks a file fits.

`check` runs in every training; `check_data` is the command `seriatim data check`, which looks more closely and reports
everything at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import Diagnostics, SeriatimError
from .dataset import Column, Dataset
from .documents import BLOCK_COLUMN
from .formats import ReadOptions
from .kinds import LABEL, NUMBER, NUMBERS, TEXT, TIME, is_blank
from .reader import read_dataset, read_header
from .schema import Header, Schema, normalize_name
from .source import DataInput, Source, open_source
from .split import NAMES, Contiguous, Fractions, SplitPolicy, Stratified

if TYPE_CHECKING:
    from .examine import DataReport
from .stream import check_encoding

MAX_BLANKS = 1000  # empty cells of a column that are reported one by one
FRACTIONS: Fractions = (0.8, 0.1, 0.1)


def check(dataset: Dataset, schema: Schema, diagnostics: Diagnostics) -> None:
    """Reports empty cells of required fields, and what violates the constraints of the schema."""
    for field in schema.fields:
        columns = dataset.columns.get(field.role, ())
        if columns and field.required and not field.allow_missing:
            _report_blanks(dataset, field.role, columns, diagnostics)
    for constraint in schema.constraints:
        constraint(dataset, diagnostics)


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


# The command `seriatim data check`


@dataclass(frozen=True)
class Fit:
    """Whether data fits a task ("yes: …" or "no: …"), how well, and the columns that the task would predict."""

    verdict: str
    score: int = 0
    targets: tuple[str, ...] = ()


NO_ROWS = Fit("no: it has no rows")


def _fit(
    source: Source, schema: Schema, encoding: str, overrides: Mapping[str, str], header_names: frozenset[str]
) -> Fit:
    """Returns whether data fits a schema, and how well: columns with usual names are a better sign than others.

    A single row that holds nothing but `header_names`, the usual names of columns of any task, is no row.
    """
    first = source.splits.get("train", source)
    options = ReadOptions(first.encoding or encoding, errors="replace")
    overrides = {role: names for role, names in first.roles.items() if role in schema.roles} | dict(overrides)
    try:
        header, _ = read_header(first, schema, options, Diagnostics())
        first_row = {normalize_name(str(cells[0])) for cells in header.samples.values() if len(cells) == 1}
        if not header.columns or (header.unnamed and first_row and first_row <= header_names):
            return NO_ROWS
        roles = schema.resolve(header, overrides, Diagnostics())
    except SeriatimError as error:
        return Fit(f"no: {error.cause}")
    for role, names in roles.items():
        if schema[role].match_kind(header, names, role in overrides) is None:
            return Fit(f"no: column {names[0]} is not a {schema[role].kinds[0].name}")
        if header.unnamed and role in schema.positions and TEXT in schema[role].kinds and role not in overrides:
            cells = [cell for cell in header.samples[names[0]][1:] if not is_blank(cell)]  # the first may be a name
            if cells and (NUMBER.accepts(cells) or NUMBERS.accepts(cells) or TIME.accepts(cells)):
                return Fit(f"no: {names[0]} holds numbers or times, not text")
    columns = ", ".join(f"{role} = {','.join(names)}" for role, names in roles.items())
    score = sum(_fit_of_role(schema, role, names, header) for role, names in roles.items())
    return Fit(f"yes: {columns}", score, roles.get(schema.target_role or "", ()))


def _fit_of_role(schema: Schema, role: str, names: Sequence[str], header: Header) -> int:
    field = schema[role]
    usual = {normalize_name(name) for name in (role, *field.aliases, *(n for g in field.alias_groups for n in g))}
    by_position = header.unnamed and role in schema.positions
    is_usual = by_position or any(normalize_name(name) in usual for name in names) or BLOCK_COLUMN in names
    return 2 * len(names) if is_usual else 1


def check_data(
    spec: DataInput,
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
        policies: Task → split policy, to find what only held-out rows contain.
        fractions: Task → its fractions, if they are not 0.8, 0.1, 0.1.
    """
    from .catalogue import find_entry
    from .examine import MAX_EXAMPLES, DataReport, Problem, examine

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
    header_names = frozenset().union(*(schema.header_names for schema in schemas.values()))
    results = {
        name: _fit(source, schema, report.encoding, overrides[name], header_names) for name, schema in schemas.items()
    }
    report.fits = {name: fit.verdict for name, fit in results.items()}
    entry = find_entry(spec) if isinstance(spec, str) else None
    if task is None:
        ordered = sorted((name for name in results if results[name].score), key=lambda name: -results[name].score)
        candidates = [entry.task] if entry is not None and entry.task in ordered else ordered
    else:
        candidates = [task]
    problems: dict[str, Problem] = {}
    if not candidates:
        cause, remedy = f"{source.name}: fits none of the tasks", "name a task, and columns with --column and --target"
        reason = SeriatimError("data.column", cause, remedy)
        if NO_ROWS in results.values():
            reason = SeriatimError("data.empty", f"{source.name} has no rows", "pass a file with data")
        try:
            read_header(source, next(iter(schemas.values())), ReadOptions(report.encoding), Diagnostics())
        except SeriatimError as error:  # it is no text, or of another encoding
            reason = error
        report.problems = [Problem(reason.code, reason.remedy, 1, [reason.cause])]
        return report
    task = candidates[0]
    options = ReadOptions(report.encoding)
    datasets, diagnostics = _read_and_check(source, schemas[task], overrides[task], options)
    # Another task that would predict the same columns may have no problem with them; one that would not read them
    # hides their problems.
    others = [name for name in candidates[1:] if results[name].targets == results[task].targets != ()]
    for other in others if diagnostics.problems else ():
        other_datasets, other_diagnostics = _read_and_check(source, schemas[other], overrides[other], options)
        if not other_diagnostics.problems:
            count, first = len(diagnostics.problems), diagnostics.problems[0].cause
            report.warnings.append(f"not usable for {task}, checked for {other}: {count:,} problems, as {first}")
            task, datasets, diagnostics = other, other_datasets, other_diagnostics
            break
    report.task, schema = task, schemas[task]
    if len(datasets.get("train", ())):
        by_default = Contiguous(schema.input_role) if schema.text_unit != "line" else Stratified(schema.target_role)
        policy = (policies or {}).get(task) or by_default
        examine(report, datasets, schema, policy, (fractions or {}).get(task, FRACTIONS), diagnostics)
    for issue in diagnostics.problems:
        problem = problems.setdefault(issue.code, Problem(issue.code, issue.remedy))
        problem.count += 1
        problem.examples += [issue.cause] if len(problem.examples) < MAX_EXAMPLES else []
    if "data.encoding" in problems and report.encoding:
        problems["data.encoding"].count = max(sum(s.count_undecodable(report.encoding) for s in source.streams), 1)
    report.problems, report.notes = list(problems.values()), diagnostics.notes
    report.statistics = {"size": f"{report.bytes:,} bytes", "encoding": report.encoding, **report.statistics}
    return report


def _read_and_check(
    source: Source, schema: Schema, overrides: Mapping[str, str], options: ReadOptions
) -> tuple[dict[str, Dataset], Diagnostics]:
    """Returns the readable rows by split, and the problems of the others."""
    diagnostics = Diagnostics()
    datasets = _read_all(source, schema, overrides, options, diagnostics)
    for dataset in datasets.values():
        try:
            check(dataset, schema, diagnostics)
        except SeriatimError as error:
            diagnostics.problems.append(error)
    return datasets, diagnostics


def _read_all(
    source: Source, schema: Schema, overrides: Mapping[str, str], options: ReadOptions, diagnostics: Diagnostics
) -> dict[str, Dataset]:
    """Returns the readable rows by split; bytes that cannot be decoded are replaced.

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
