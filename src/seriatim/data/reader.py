"""The reader: from a source to a data set, by the schema of a task."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.diagnostics import Diagnostics
from ..core.errors import SeriatimError
from .bulk import can_read, read_table
from .dataset import Column, Dataset
from .formats import ReadOptions, Record, normalize_name, read_records
from .kinds import Kind, is_blank
from .location import Location
from .schema import Header, Roles, Schema
from .source import Source

SAMPLED_ROWS = 100  # by which the kinds of columns are guessed


def read_header(
    source: Source, schema: Schema, options: ReadOptions, diagnostics: Diagnostics
) -> tuple[Header, Iterator[Record]]:
    """Returns the header, with the cells of the first rows, and an iterator over all records."""
    records = read_records(source, format_options(schema, options), diagnostics)
    first = list(itertools.islice(records, SAMPLED_ROWS))
    names = dict.fromkeys(name for record in first for name in record.values)
    samples = {name: [record.values.get(name) for record in first] for name in names}
    return Header(source.name, samples), itertools.chain(first, records)


def format_options(schema: Schema, options: ReadOptions) -> ReadOptions:
    """Returns the options of a format that follow from a schema."""
    header_names = options.header_names | schema.header_names
    headerless = len(schema.positions) > 1
    return replace(options, text_unit=schema.text_unit, headerless=headerless, header_names=header_names)


def read_dataset(
    source: Source,
    schema: Schema,
    overrides: Mapping[str, str] | None = None,
    options: ReadOptions | None = None,
    diagnostics: Diagnostics | None = None,
    trained_columns: Mapping[str, str] | None = None,
    trained_kinds: Mapping[str, Kind] | None = None,
) -> Dataset:
    """Reads a source, assigns its columns to roles and parses the cells.

    Args:
        source: The files or columns.
        schema: The fields of the task.
        overrides: Role → column names, as the user writes them.
        options: Encoding and label separator.
        diagnostics: Receives the guesses as notes, and each cell that cannot be parsed as a problem.
        trained_columns: Role → column names of the training data, used if this source has them.
        trained_kinds: Role → kind of the training data, used if it accepts the cells of this source.
    """
    options = ReadOptions() if options is None else options
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    overrides = dict(overrides or {})
    override_names = frozenset(normalize_name(name) for names in overrides.values() for name in names.split(","))
    options = replace(options, header_names=override_names)
    header, records = read_header(source, schema, options, diagnostics)
    if not header.columns:
        diagnostics.raise_problems()
        raise SeriatimError("data.empty", f"{source.name} has no rows", "pass a file with data")
    defaults = {
        role: names
        for role, names in (trained_columns or {}).items()
        if role in schema.roles and set(names.split(",")) <= set(header.columns)
    }
    roles = schema.resolve(header, defaults | overrides, diagnostics)
    kinds = {role: _column_kind(schema, role, roles, header, (trained_kinds or {}).get(role)) for role in roles}
    separator = options.label_separator

    def parse(records: Iterable[Record], diagnostics: Diagnostics) -> Dataset:
        return _parse_records(source.name, records, schema, roles, kinds, separator, diagnostics)

    if can_read(source, options, kinds, separator):
        return read_table(source, format_options(schema, options), roles, kinds, parse, diagnostics)
    return parse(records, diagnostics)


def _column_kind(schema: Schema, role: str, roles: Roles, header: Header, trained: Kind | None) -> Kind:
    """Returns the kind of the columns of a role, or raises an error if the field takes no such cells."""
    field, names = schema[role], roles[role]
    if field.max_columns is not None and len(names) > field.max_columns:
        cause = f"{role} has {len(names)} columns, but takes at most {field.max_columns}"
        raise SeriatimError("data.column", cause, "name fewer columns")
    cells = [cell for name in names for cell in header.samples[name]]
    if trained is not None and (all(map(is_blank, cells)) or trained.accepts(cells)):
        return trained
    kind = field.match_kind(header, names)
    if kind is None:
        expected = " or ".join(kind.name for kind in field.kinds)
        cause = f'{header.name}: column "{names[0]}" holds {cells[0]!r}, not {expected}'
        raise SeriatimError("data.column", cause, f"name another: data.columns.{role}=NAME")
    return kind


def _parse_records(
    name: str,
    records: Iterable[Record],
    schema: Schema,
    roles: Roles,
    kinds: Mapping[str, Kind],
    label_separator: str | None,
    diagnostics: Diagnostics,
) -> Dataset:
    """Parses the cells of all records; a row with a cell that cannot be parsed is reported and left out."""
    columns = [(role, column) for role, names in roles.items() for column in names]
    cells: list[list[Any]] = [[] for _ in columns]
    locations: list[Location] = []
    for record in records:
        locations.append(record.location)
        for column_cells, (_, column) in zip(cells, columns, strict=True):
            column_cells.append(record.values.get(column))
    valid = np.ones(len(locations), dtype=bool)
    for column_cells, (role, column) in zip(cells, columns, strict=True):
        separator = label_separator if schema[role].target else None
        for row, cell in enumerate(column_cells):
            if separator is not None and isinstance(cell, str):
                cell = cell.split(separator)
            try:
                column_cells[row] = kinds[role].parse("" if cell is None else cell)
            except (ValueError, TypeError):
                shown = json.dumps(cell, ensure_ascii=False, default=str)[:60]
                cause = f'{locations[row]}: column "{column}" holds {shown}, not a {kinds[role].name}'
                diagnostics.report("data.cell", cause, "correct or remove the row")
                valid[row] = False
    parsed: dict[str, tuple[Column, ...]] = {}
    for column_cells, (role, column) in zip(cells, columns, strict=True):
        values = kinds[role].store(list(itertools.compress(column_cells, valid)))
        parsed[role] = (*parsed.get(role, ()), Column(column, kinds[role], values))
    return Dataset(name, parsed, np.fromiter(locations, dtype=object, count=len(locations))[valid])
