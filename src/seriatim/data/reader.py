"""The reader: from a source to a data set, by the schema of a task."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from ..core.errors import Diagnostics, SeriatimError
from .bulk import can_read, read_table
from .dataset import Column, Dataset
from .formats import ReadOptions, Record, read_records
from .formats.tables import TABLE_EXTENSIONS
from .kinds import FLAG, LABEL, NUMBER, SPLIT, TEXT, Cell, CellError, Kind, is_blank, show_cell, split_cell
from .schema import Field, Header, Roles, Schema, normalize_name
from .source import Source
from .stream import Location, expand_user

SAMPLED_ROWS = 100  # read to guess the kinds of columns
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
COLUMN_NUMBER = re.compile(r"column \d+")  # the name of a column that has none
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
    return Header(source.name, samples, options.label_separator), itertools.chain(first, records)


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
        predicting=bool(schema.absent),
    )


def options_of_source(source: Source, options: ReadOptions, overrides: Mapping[str, str], trained: bool) -> ReadOptions:
    """Returns the options with the encoding of a source, and the columns that are named as names of its header.

    Args:
        source: The files; the catalogue may know their encoding.
        options: With the encoding that the user names.
        overrides: Role → column names, as the user writes them.
        trained: Whether the options come from a training on other data; this source may have another encoding.
    """
    if source.encoding is not None and options.encoding == "utf-8":
        options = replace(options, encoding=source.encoding)
    if trained and options.encoding != "utf-8" and all(stream.is_utf8() for stream in source.streams):
        options = replace(options, encoding="utf-8")
    names = (name.strip() for names in overrides.values() for name in names.replace("..", ",").split(","))
    return replace(options, header_names=frozenset(normalize_name(name) for name in names if not name.isdecimal()))


def read_dataset(
    source: Source,
    schema: Schema,
    overrides: Mapping[str, str] | None = None,
    options: ReadOptions | None = None,
    diagnostics: Diagnostics | None = None,
    trained_columns: Mapping[str, str] | None = None,
    trained_kinds: Mapping[str, Kind] | None = None,
    allow_empty: bool = False,
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
        allow_empty: Whether a source without rows gives an empty data set, as in prediction.
    """
    options = ReadOptions() if options is None else options
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    for note in source.notes:
        diagnostics.note(note)
    all_roles = {field.role for field in schema.all_fields}
    overrides = {role: names for role, names in source.roles.items() if role in all_roles} | dict(overrides or {})
    options = options_of_source(source, options, overrides, trained_columns is not None)
    header, records = read_header(source, schema, options, diagnostics)
    if not header.columns:
        diagnostics.raise_problems()
        roles_to_read = [field.role for field in schema.fields if field.required]
        predicts = allow_empty or bool(schema.absent)
        if trained_kinds is not None and predicts and set(roles_to_read) <= trained_kinds.keys():
            return _no_rows(source, roles_to_read, trained_kinds)  # no inputs, no predictions
        raise SeriatimError("data.empty", f"{source.name} has no rows", "pass a file with data")
    spelled = {normalize_name(name): name for name in reversed(header.columns)} | {
        name: name for name in header.columns
    }
    defaults: dict[str, str] = {}
    absent: dict[str, str] = {}  # role → the first of its columns in training that a table of further data lacks
    for role, names in (trained_columns or {}).items():
        if role not in schema.roles:
            continue
        parts = [names] if names in spelled else names.split(",")
        found = [spelled.get(name) or spelled.get(normalize_name(name)) for name in parts]
        if None not in found:
            defaults[role] = ",".join(name for name in found if name is not None)
        elif role not in overrides and _has_names(source, header) and not COLUMN_NUMBER.fullmatch(parts[0]):
            absent[role] = parts[found.index(None)]
    for role, name in absent.items():
        if schema[role].target and schema[role].required and not schema.has_usual_name(role, header):
            cause = f'{source.name}: has no column "{name}", the {role} of the training data'
            columns = f"the columns are: {', '.join(header.columns)}"
            raise SeriatimError("data.column", cause, f"name it: {schema.option_of(role)}NAME; {columns}")
    if allow_empty:  # the column of an empty input cannot be found by its kind
        blank = {name for name in header.columns if all(map(is_blank, header.samples[name]))}
        defaults |= {field.role: field.role for field in schema.fields if field.role in blank}
    resolution = Diagnostics()
    roles = schema.resolve(header, defaults | overrides, resolution)
    guessed = {role: names for role, names in roles.items() if role in absent and role not in (*defaults, *names)}
    guessed_names = [f'"{name}"' for names in guessed.values() for name in names]
    for note in resolution.notes:
        if not any(name in note for name in guessed_names):
            diagnostics.note(note)
    for role, guess in guessed.items():
        read = " and ".join(f'"{name}"' for name in guess)
        noun, verb = ("column", "is") if len(guess) == 1 else ("columns", "are")
        diagnostics.guess(f'{source.name}: {noun} {read} {verb} read as {role}, as there is no "{absent[role]}"')
    explicit = {role for role in roles if role in overrides or role in defaults}
    kinds = {
        role: _column_kind(schema[role], roles[role], header, (trained_kinds or {}).get(role), role in explicit)
        for role in roles
    }

    def parse(records: Iterable[Record], diagnostics: Diagnostics) -> Dataset:
        return _parse_records(source, records, schema, roles, kinds, options.label_separator, diagnostics)

    nested = any(name not in header.samples or "." in name for names in roles.values() for name in names)
    on_disk = {role: LABEL if kind in (SPLIT, FLAG) else kind for role, kind in kinds.items()}
    if (
        source.rows is None
        and not nested
        and can_read(source, format_options(schema, options), on_disk, options.label_separator)
    ):
        return read_table(source, format_options(schema, options), roles, on_disk, parse, diagnostics)
    return parse(records, diagnostics)


def _has_names(source: Source, header: Header) -> bool:
    """Returns whether a source names its columns; plain text and lists do not."""
    is_table = any(stream.extension in (*TABLE_EXTENSIONS, "json") for stream in source.streams)
    return (source.columns is not None or is_table) and not all(map(COLUMN_NUMBER.fullmatch, header.columns))


def _no_rows(source: Source, roles: Sequence[str], kinds: Mapping[str, Kind]) -> Dataset:
    columns = {role: (Column(role, kinds[role], kinds[role].store([])),) for role in roles}
    return Dataset(source.name, columns, np.empty(0, dtype=object))


def _column_kind(
    field: Field,
    names: Sequence[str],
    header: Header,
    trained: Kind | None,
    explicit: bool,
) -> Kind:
    """Returns the kind of the columns of a role, or raises an error if the field takes no such cells."""
    if field.max_columns is not None and len(names) > field.max_columns:
        cause = f"{field.role} has {len(names)} columns, but takes at most {field.max_columns}"
        raise SeriatimError("data.column", cause, "name fewer columns")
    cells = field.sampled_cells(header, names)
    if trained is not None and (all(map(is_blank, cells)) or trained.accepts(cells)):
        return trained
    if len(field.kinds) == 1 and not field.target and all(map(is_blank, cells)):
        return field.kinds[0]  # an empty prompt is a text
    texts = [str(cell).strip() for cell in cells if not is_blank(cell)]
    plain_numbers = NUMBER in field.kinds and header.label_separator is None and (field.target or len(names) > 1)
    if trained is None and plain_numbers and all(map(DECIMAL_COMMA.fullmatch, texts)) and any("," in t for t in texts):
        example = next(text for text in texts if "," in text)
        raise SeriatimError(
            "data.number",
            f"{header.name}: columns {', '.join(names)}: {example} is a number with a decimal comma, or two numbers",
            "write decimals as 3.14; if these are lists of numbers, set data.label_separator",
        )
    several = len(names) > 1 and {NUMBER, TEXT} <= {*field.kinds}
    kind = _kind_of_several(field, names, header) if several else field.match_kind(header, names, explicit)
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


def _kind_of_several(field: Field, names: Sequence[str], header: Header) -> Kind | None:
    """Returns whether several columns are numbers or texts, by what most of their cells hold.

    So a text that is a number stays a text among texts, and a number that is mistyped is reported with its line.
    """
    first_text: dict[str, Cell] = {}
    for name in names:
        filled = [cell for cell in header.samples[name] if not is_blank(cell)]
        texts = [cell for cell in filled if not NUMBER.accepts([cell])]
        if 2 * len(texts) > len(filled):
            first_text[name] = texts[0]
    if first_text and len(first_text) < len(names):
        text, other = next(iter(first_text)), next(name for name in names if name not in first_text)
        cause = f'column "{text}" holds {show_cell(first_text[text])} and the like, column "{other}" numbers'
        raise SeriatimError(
            "data.column",
            f"{header.name}: {cause}; an {field.role} is either texts or a sequence of numbers",
            f"name columns of one kind: data.columns.{field.role}={text}",
        )
    return field.match_kind(header, names) if first_text else NUMBER


def _parse_records(
    source: Source,
    records: Iterable[Record],
    schema: Schema,
    roles: Roles,
    kinds: Mapping[str, Kind],
    label_separator: str | None,
    diagnostics: Diagnostics,
) -> Dataset:
    """Parses the cells of all records; a row with a cell that cannot be parsed is reported and left out."""
    columns = [(role, column) for role, names in roles.items() for column in names]
    cells: list[list[Cell]] = [[] for _ in columns]
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
        field, kind = schema[role], kinds[role]
        separator = label_separator if field.takes_lists else None
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
                cell = split_cell(cell, separator)
            elif kind.is_path and isinstance(cell, (str, Path)) and str(cell).strip():
                cell = source.folder / expand_user(str(cell).strip())
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
