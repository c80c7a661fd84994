"""The reader: from a source to a data set, by the schema of a task."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..core.diagnostics import Diagnostics
from ..core.errors import SeriatimError
from .bulk import can_read, read_table
from .dataset import Column, Dataset
from .formats import ReadOptions, Record, normalize_name, read_records
from .kinds import FLAG, LABEL, LABELS, NUMBERS, SPLIT, CellError, Kind, is_blank
from .location import Location
from .schema import Field, Header, Roles, Schema
from .source import Source

SAMPLED_ROWS = 100  # by which the kinds of columns are guessed
MAX_SHOWN = 40  # characters of a cell in a message
MISSING = object()  # the cell of a record that lacks the column


def read_header(
    source: Source, schema: Schema, options: ReadOptions, diagnostics: Diagnostics
) -> tuple[Header, Iterator[Record]]:
    """Returns the header, with the cells of the first rows, and an iterator over all records.

    An object in a cell, such as {"en": "…", "fr": "…"} in the column "translation", adds the columns "translation.en"
    and "translation.fr".
    """
    records = read_records(source, format_options(schema, options), diagnostics)
    if source.rows is not None:
        records = itertools.islice(records, *source.rows)
    first = list(itertools.islice(records, SAMPLED_ROWS))
    names = dict.fromkeys(name for record in first for name in record.values)
    samples = {name: [record.values.get(name) for record in first] for name in names}
    for name, cells in list(samples.items()):
        filled = [cell for cell in cells if cell is not None]
        if filled and all(isinstance(cell, dict) and all(isinstance(v, str) for v in cell.values()) for cell in filled):
            for member in dict.fromkeys(member for cell in filled for member in cell):
                samples[f"{name}.{member}"] = [None if cell is None else cell.get(member) for cell in cells]
    return Header(source.name, samples), itertools.chain(first, records)


def format_options(schema: Schema, options: ReadOptions) -> ReadOptions:
    """Returns the options of a format that follow from a schema.

    Plain text with tabs is a table if the task needs several columns; at prediction, if every line has a tab.
    """
    several = sum(field.required for field in schema.fields) > 1
    headerless = schema.headerless or len(schema.positions) > 1
    tabs: Literal["any", "all", "never"] = "any" if several else "all" if headerless else "never"
    return replace(
        options,
        text_unit=schema.text_unit,
        headerless=headerless,
        header_names=options.header_names | schema.header_names,
        tabs=tabs if schema.text_unit == "line" else "never",
        positions=schema.positions,
        is_header=schema.is_header,
        join_extra=schema.join_extra,
    )


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
        overrides: Role → column names, as the user writes them; see `Schema.resolve`.
        options: Encoding and label separator.
        diagnostics: Receives the guesses as notes, and each cell that cannot be parsed as a problem.
        trained_columns: Role → column names of the training data, used if this source has them.
        trained_kinds: Role → kind of the training data, used if it accepts the cells of this source.
    """
    options = ReadOptions() if options is None else options
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    for note in source.notes:
        diagnostics.note(note)
    if source.encoding is not None and options.encoding == "utf-8":
        options = replace(options, encoding=source.encoding)
    all_roles = {field.role for field in schema.all_fields}
    overrides = {role: names for role, names in source.roles.items() if role in all_roles} | dict(overrides or {})
    names = (name.strip() for names in overrides.values() for name in names.replace("..", ",").split(","))
    options = replace(options, header_names=frozenset(normalize_name(name) for name in names if not name.isdecimal()))
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
    separators = {
        role: options.label_separator
        for role in roles
        if schema[role].target and {LABELS, NUMBERS} & {*schema[role].kinds}
    }
    named = {role for role in roles if role in overrides or role in defaults}
    kinds = {
        role: _column_kind(
            schema[role], roles[role], header, (trained_kinds or {}).get(role), role in named, separators
        )
        for role in roles
    }

    def parse(records: Iterable[Record], diagnostics: Diagnostics) -> Dataset:
        return _parse_records(source, records, schema, roles, kinds, separators, diagnostics)

    nested = any(name not in header.samples or "." in name for names in roles.values() for name in names)
    on_disk = {role: LABEL if kind in (SPLIT, FLAG) else kind for role, kind in kinds.items()}
    if (
        source.rows is None
        and not nested
        and can_read(source, format_options(schema, options), on_disk, options.label_separator)
    ):
        return read_table(source, format_options(schema, options), roles, on_disk, parse, diagnostics)
    return parse(records, diagnostics)


def _column_kind(
    field: Field,
    names: Sequence[str],
    header: Header,
    trained: Kind | None,
    named: bool,
    separators: Mapping[str, str | None],
) -> Kind:
    """Returns the kind of the columns of a role, or raises an error if the field takes no such cells."""
    if field.max_columns is not None and len(names) > field.max_columns:
        cause = f"{field.role} has {len(names)} columns, but takes at most {field.max_columns}"
        raise SeriatimError("data.column", cause, "name fewer columns")
    if (separator := separators.get(field.role)) is not None:
        header = Header(
            header.name, {name: [_split_cell(c, separator) for c in header.samples[name]] for name in names}
        )
    cells = [cell for name in names for cell in header.samples[name]]
    if trained is not None and (all(map(is_blank, cells)) or trained.accepts(cells)):
        return trained
    if len(field.kinds) == 1 and not field.target and all(map(is_blank, cells)):
        return field.kinds[0]  # an empty prompt is a text
    kind = field.match_kind(header, names, named)
    if trained is not None and (kind is None or kind.numeric != trained.numeric):
        return trained  # each cell that is not of it is reported
    if kind is None:
        filled = next((cell for cell in cells if not is_blank(cell)), "")
        expected = " or ".join(kind.name for kind in field.kinds)
        cause = f'{header.name}: column "{names[0]}" holds {show_cell(filled)}, not {expected}'
        if most := field.common_kind(cells):
            return most  # the cells that are not are reported by line
        raise SeriatimError("data.column", cause, f"name another: data.columns.{field.role}=NAME")
    return kind


def _split_cell(cell: Any, separator: str) -> Any:
    """Returns the parts of a text without those that are empty; other cells stay as they are."""
    if not isinstance(cell, str):
        return cell
    return [part for part in (cell.split(separator) if separator.strip() else cell.split()) if part.strip()]


def _parse_records(
    source: Source,
    records: Iterable[Record],
    schema: Schema,
    roles: Roles,
    kinds: Mapping[str, Kind],
    separators: Mapping[str, str | None],
    diagnostics: Diagnostics,
) -> Dataset:
    """Parses the cells of all records; a row with a cell that cannot be parsed is reported and left out."""
    columns = [(role, column) for role, names in roles.items() for column in names]
    cells: list[list[Any]] = [[] for _ in columns]
    locations: list[Location] = []
    targets = [(cells[n].append, column, *column.rpartition(".")[::2]) for n, (_, column) in enumerate(columns)]
    for values, location in records:
        locations.append(location)
        for append, column, outer, member in targets:
            cell = values.get(column, MISSING)
            if cell is MISSING and isinstance(values.get(outer), dict):
                cell = values[outer].get(member, MISSING)
            append(cell)
    valid = np.ones(len(locations), dtype=bool)
    for column_cells, (role, column) in zip(cells, columns, strict=True):
        field, kind, separator = schema[role], kinds[role], separators.get(role)
        if kind.parse_all is not None and separator is None:
            try:
                column_cells[:] = kind.parse_all(column_cells)
                continue
            except (ValueError, TypeError, OverflowError):
                pass  # a cell needs a closer look
        for row, cell in enumerate(column_cells):
            if cell is MISSING and field.required:
                remedy = "add it, or remove the row"
                diagnostics.report("data.column", f'{locations[row]}: has no column "{column}"', remedy)
                valid[row] = False
                continue
            if cell is MISSING or cell is None:
                cell = ""
            elif separator is not None:
                cell = _split_cell(cell, separator)
            elif kind.is_path and isinstance(cell, (str, Path)) and str(cell).strip():
                cell = source.folder / Path(str(cell).strip()).expanduser()
            try:
                column_cells[row] = kind.parse(cell)
            except CellError as error:
                diagnostics.report(error.code, f'{locations[row]}: column "{column}" {error}', error.remedy)
                valid[row] = False
            except (ValueError, TypeError, OverflowError):
                cause = f'{locations[row]}: column "{column}" holds {show_cell(cell)}, not a {kind.name}'
                diagnostics.report("data.cell", cause, "correct or remove the row")
                valid[row] = False
    parsed: dict[str, tuple[Column, ...]] = {}
    for column_cells, (role, column) in zip(cells, columns, strict=True):
        rows = column_cells if valid.all() else list(itertools.compress(column_cells, valid))
        parsed[role] = (*parsed.get(role, ()), Column(column, kinds[role], kinds[role].store(rows)))
    return Dataset(source.name, parsed, np.fromiter(locations, dtype=object, count=len(locations))[valid])


def show_cell(cell: Any) -> str:
    """Returns a cell as messages show it."""
    text = json.dumps(cell, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
