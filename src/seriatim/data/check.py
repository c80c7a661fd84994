"""The data check, for any schema: statistics and problems of a data set, and which tasks a file fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.diagnostics import Diagnostics
from ..core.errors import SeriatimError
from .dataset import Column, Dataset
from .formats import ReadOptions
from .kinds import LABEL, LABELS, TOKENS
from .reader import read_header
from .schema import Schema
from .source import open_source

MAX_LISTED = 8  # labels in a line of the report


@dataclass(frozen=True)
class Report:
    """The result of a data check."""

    statistics: list[str]
    problems: list[SeriatimError]

    def __str__(self) -> str:
        return "\n".join([*self.statistics, *(f"! {problem.cause}" for problem in self.problems)])


def check(dataset: Dataset, schema: Schema, diagnostics: Diagnostics | None = None) -> Report:
    """Counts sizes, labels and duplicates, reports empty inputs, and runs the constraints of the schema.

    Args:
        dataset: The rows to check.
        schema: The fields of the task, with its constraints.
        diagnostics: Receives the problems; training raises them after this stage.
    """
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    statistics = [f"{dataset.name}: {len(dataset):,} rows"]
    for field in schema.fields:
        for column in dataset.columns.get(field.role, ()):
            sizes = describe_sizes(column.sizes)
            statistics.append(f'{field.role}: column "{column.name}", {column.kind.name}{sizes}')
            if field.required and not field.target:
                for row in np.flatnonzero(column.sizes == 0):
                    diagnostics.report("data.blank", f"{dataset.locations[row]}: the {field.role} is empty")
            if field.target and column.kind in (LABEL, LABELS, TOKENS):
                statistics += describe_labels(column)
    statistics += describe_duplicates(dataset, schema)
    for constraint in schema.constraints:
        constraint(dataset, diagnostics)
    return Report(statistics, diagnostics.problems)


def describe_sizes(sizes: np.ndarray) -> str:
    if not len(sizes) or sizes.max() <= 1:
        return ""
    return f", sizes {sizes.min():,} to {sizes.max():,}, median {int(np.median(sizes)):,}"


def describe_labels(column: Column) -> list[str]:
    """Returns a line with the most common labels, and one with those that occur once."""
    single = column.kind is LABEL
    counts = column.counts() if single else Counter(label for labels in column.values for label in labels)
    shares = [(label, 100 * count / counts.total()) for label, count in counts.most_common(MAX_LISTED)]
    lines = [f"{len(counts):,} labels: " + ", ".join(f"{label} ({share:.0f} %)" for label, share in shares)]
    if rare := [label for label, count in counts.items() if count == 1]:
        lines.append(f"{len(rare):,} labels occur once: {', '.join(rare[:MAX_LISTED])}")
    return lines


def describe_duplicates(dataset: Dataset, schema: Schema) -> list[str]:
    """Returns a line with the number of duplicate inputs, and of inputs with different targets."""
    roles = [field.role for field in schema.fields if field.role in dataset]
    input_roles = [role for role in roles if not schema[role].target]
    target_roles = [role for role in roles if schema[role].target]

    def count() -> np.ndarray:
        inputs, targets = dataset.group_ids(input_roles), dataset.group_ids(target_roles)
        examples = np.unique(inputs * len(dataset) + targets)  # distinct pairs of input and target
        ambiguous = int((np.bincount(examples // len(dataset)) > 1).sum())
        return np.array([int(inputs.max(initial=-1)) + 1, ambiguous])

    distinct, ambiguous = dataset.remember(f"duplicates {input_roles} {target_roles}", count).tolist()
    if distinct == len(dataset):
        return []
    suffix = f"; {ambiguous:,} inputs have more than one target" if ambiguous else ""
    return [f"{len(dataset) - distinct:,} rows repeat the input of an earlier row{suffix}"]


def fits(spec: Any, schemas: Mapping[str, Schema], encoding: str = "utf-8") -> dict[str, str]:
    """Returns for each task whether the data fits it: "yes: …" with the columns, or "no: …" with the reason."""
    verdicts = {}
    for task, schema in schemas.items():
        diagnostics = Diagnostics()
        try:
            source = open_source(spec)
            first = next(iter(source.splits.values()), source)
            header, _ = read_header(first, schema, ReadOptions(encoding), diagnostics)
            roles = schema.resolve(header, {}, diagnostics)
        except SeriatimError as error:
            verdicts[task] = f"no: {error.cause}"
            continue
        columns = ", ".join(f"{role} = {','.join(names)}" for role, names in roles.items())
        verdicts[task] = f"yes: {columns}"
        for role, names in roles.items():
            if schema[role].match_kind(header, names) is None:
                verdicts[task] = f"no: column {names[0]} is not a {schema[role].kinds[0].name}"
    return verdicts
