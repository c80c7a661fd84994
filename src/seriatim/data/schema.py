"""Schemas: the fields a task needs of a table, and how columns are assigned to them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from ..core.errors import Diagnostics, SeriatimError, did_you_mean
from .kinds import (
    FLAG,
    LABEL,
    LABELS,
    MOST_SPECIFIC_FIRST,
    NUMBER,
    NUMBERS,
    SPLIT,
    Cell,
    Kind,
    is_blank,
    is_list,
    split_cell,
)

if TYPE_CHECKING:
    from .dataset import Dataset

SPLIT_NAMES = ("set", "part", "partition", "subset")  # usual names of the split column


def normalize_name(name: str) -> str:
    """Returns a column name without case and punctuation, as aliases are compared."""
    return re.sub(r"[\W_]+", "", name).lower()


@dataclass(frozen=True)
class Header:
    """The columns of a table with the cells of its first rows."""

    name: str  # of the source
    samples: Mapping[str, Sequence[Cell]]  # column → cells
    label_separator: str | None = None  # separates several labels or numbers in a cell of a target

    @property
    def columns(self) -> list[str]:
        return list(self.samples)

    @property
    def unnamed(self) -> bool:
        return all(name == f"column {n}" for n, name in enumerate(self.columns, 1))

    def guess_kind(self, column: str) -> Kind:
        """Returns the most specific kind that the sampled cells are guessed to be of."""
        return next((kind for kind in MOST_SPECIFIC_FIRST if kind.guess(self.samples[column])), LABEL)


@dataclass(frozen=True)
class Field:
    """A role that one or more columns of a table play in a task.

    Args:
        role: The name of the field, such as "source".
        kinds: The kinds it takes, the preferred one first.
        aliases: Usual names of its column, the most usual first; compared without case and punctuation.
        alias_groups: Usual names of columns that belong together, such as ("premise", "hypothesis").
        max_columns: How many columns it may have; None for any number.
        take_all: Whether it takes every unassigned column of its kind when no column is named.
        required: Whether a table without it is an error.
        target: Whether it is what the task predicts: absent at prediction.
        alias_pattern: A regular expression for columns that belong together, such as "caption_1", "caption_2".
        one_alias: Whether a table with several of the usual names is an error, instead of the first one being taken.
        allow_missing: Whether its cells may be empty though it is required.
        lists_only: Whether a column without a usual name is taken only if its cells are lists, not single values.
    """

    role: str
    kinds: Sequence[Kind]
    aliases: tuple[str, ...] = ()
    alias_groups: tuple[tuple[str, ...], ...] = ()
    max_columns: int | None = 1
    take_all: bool = False
    required: bool = True
    target: bool = False
    alias_pattern: str | None = None
    one_alias: bool = False
    allow_missing: bool = False
    lists_only: bool = False

    def match_kind(self, header: Header, columns: Sequence[str], explicit: bool = False) -> Kind | None:
        """Returns the first of its kinds that accepts the sampled cells of all columns, or None.

        If the user named them (`explicit`), a column of "0.1 0.2" may be numbers; such a column is never guessed.
        """
        cells = self.sampled_cells(header, columns)
        if not explicit:
            return next((kind for kind in self.kinds if kind.guess(cells)), None)
        ordered = sorted(self.kinds, key=lambda kind: kind is not NUMBER)  # "5" is a number rather than a list of one
        return next((kind for kind in ordered if kind.accepts(cells)), None)

    def sampled_cells(self, header: Header, columns: Sequence[str]) -> list[Cell]:
        """Returns the sampled cells of columns, divided into lists if the field takes lists that are separated."""
        cells = [cell for column in columns for cell in header.samples[column]]
        separator = header.label_separator if self.takes_lists else None
        return cells if separator is None else [split_cell(cell, separator) for cell in cells]

    @property
    def takes_lists(self) -> bool:
        """Whether a cell of text may be several labels or numbers with a separator between them."""
        return self.target and (LABELS in self.kinds or NUMBERS in self.kinds)

    def common_kind(self, cells: Sequence[Cell]) -> Kind | None:
        """Returns the kind of the field that more than half of the filled cells have, or None."""
        filled = [cell for cell in cells if not is_blank(cell)]
        counts = {kind: sum(kind.guess([cell]) for cell in filled) for kind in self.kinds}
        best = max(self.kinds, key=lambda kind: counts[kind])
        return best if 2 * counts[best] > len(filled) else None


# Every schema has these, unless it declares the roles itself: which split a row belongs to, and whether it is a
# training row for validation, as in the benchmark FLIP.
SPLIT_FIELD = Field("split", (SPLIT,), SPLIT_NAMES, required=False, target=True)
VALIDATION_FIELD = Field("validation", (FLAG,), required=False, target=True)

Roles = dict[str, tuple[str, ...]]  # role → columns
Constraint = Callable[["Dataset", Diagnostics], None]  # reports the rows that violate it


@dataclass(frozen=True)
class Schema:
    """The fields of a task.

    Args:
        fields: The fields.
        positions: The roles of the first columns of a table without a header.
        text_unit: What a row of plain text is, a line, a block or a file (see `ReadOptions`).
        constraints: Checks of the values, run by `check` in training and by `data check` alike.
        join_extra: Whether a row of CSV with too many cells has unquoted delimiters in its last one.
        absent: Target fields that prediction does not read; their columns are no inputs.
        headerless: Whether tables may lack a header, also at prediction; follows from `positions`.
    """

    fields: tuple[Field, ...]
    positions: tuple[str, ...] = ()
    text_unit: Literal["line", "block", "document"] = "line"
    constraints: tuple[Constraint, ...] = dataclasses.field(default=(), repr=False)
    join_extra: bool = False
    absent: tuple[Field, ...] = ()
    headerless: bool = False
    gathered: ClassVar[bool] = False  # whether rows become others of other kinds, such as series; see `SeriesSchema`

    def __getitem__(self, role: str) -> Field:
        return next(field for field in self.all_fields if field.role == role)

    @property
    def roles(self) -> list[str]:
        return [field.role for field in self.fields]

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """The fields, and the split columns, which prediction does not read."""
        extra = () if self.absent or not any(field.target for field in self.fields) else (SPLIT_FIELD, VALIDATION_FIELD)
        return (*self.fields, *(field for field in extra if field.role not in self.roles))

    @property
    def input_role(self) -> str:
        """The role that `--column` names: the first required input."""
        return self._first_role(target=False)

    @property
    def target_role(self) -> str | None:
        """The role that `--target` names: the first required target; None if there is none."""
        return self._first_role(target=True) if any(field.target for field in self.fields) else None

    def _first_role(self, target: bool) -> str:
        fields = [field for field in self.fields if field.target == target]
        return next((field.role for field in fields if field.required), fields[0].role)

    def inputs(self) -> Schema:
        """Returns the schema of prediction: the same without targets."""
        fields = tuple(field for field in self.fields if not field.target)
        absent = tuple(field for field in self.fields if field.target)
        positions = tuple(field.role for field in fields if field.role in self.positions)
        required = tuple(field.role for field in fields if field.required)
        headerless = self.headerless or len(self.positions) > 1
        return replace(self, fields=fields, positions=positions or required, absent=absent, headerless=headerless)

    def is_header(self, cells: Sequence[str]) -> bool | None:
        """Returns whether the first row of a table that may lack a header is one; None if known names decide."""
        return None

    @property
    def header_names(self) -> frozenset[str]:
        """The normalized names that identify a header."""
        fields = (*self.all_fields, *self.absent)
        names = (name for field in fields for name in (field.role, *field.aliases))
        grouped = (name for field in fields for group in field.alias_groups for name in group)
        return frozenset(map(normalize_name, (*names, *grouped)))

    def option_of(self, role: str) -> str:
        """Returns the command-line option or setting that names the columns of a role."""
        options = {self.target_role: "--target ", self.input_role: "--column "}
        return options.get(role, f"data.columns.{role}=")

    def has_usual_name(self, role: str, header: Header) -> bool:
        """Returns whether a column is named as that of a role usually is, so that its kind alone does not decide."""
        field, columns = self[role], {normalize_name(name) for name in header.columns}
        usual = {normalize_name(name) for name in (role, "y", *field.aliases)}
        pattern = field.alias_pattern
        return bool(columns & usual) or any(
            pattern is not None and re.fullmatch(pattern, name.strip().lower()) for name in header.columns
        )

    # Resolution

    def resolve(self, header: Header, overrides: Mapping[str, str], diagnostics: Diagnostics) -> Roles:
        """Assigns columns to roles: as overridden, by position, by usual names, or by elimination.

        Args:
            header: The columns with sampled cells.
            overrides: Role → column names, written "a", "a,b" or "a..z"; or numbers from 1. "" leaves a role out.
            diagnostics: Receives a note for each guess.

        Raises:
            SeriatimError: If a required role stays open; the error lists the candidates.
        """
        fields = {field.role: field for field in self.all_fields}
        if unknown := overrides.keys() - fields.keys():
            cause, suggestion = f'there is no role "{min(unknown)}"', did_you_mean(min(unknown), fields)
            raise SeriatimError("data.role", cause, suggestion)
        assigned: Roles = {role: self._parse_override(header, names) for role, names in overrides.items() if names}
        self._check_distinct(header, assigned)
        skipped = {role for role, names in overrides.items() if not names}
        if header.unnamed and len(header.columns) >= len(self.positions) > 0:
            return self._by_position(header, assigned, diagnostics)
        required = tuple(field.role for field in self.fields if field.required)
        if header.unnamed and not self.positions and len(header.columns) == len(required) > 1:
            return replace(self, positions=required)._by_position(header, assigned, diagnostics)
        rules = (self._by_alias_group, self._by_alias, self._by_elimination, self._by_order)
        for rule in rules:
            # Targets are found more reliably by name, inputs by kind.
            targets_first = rule in (self._by_alias_group, self._by_alias)
            for field in sorted(fields.values(), key=lambda field: field.target != targets_first):
                if field.role in assigned or field.role in skipped:
                    continue
                if field is VALIDATION_FIELD and "split" not in assigned:
                    continue
                if columns := rule(field, header, assigned):
                    assigned[field.role] = columns
                    if len(header.columns) > 1 and [normalize_name(name) for name in columns] != [
                        normalize_name(field.role)
                    ]:
                        names = " and ".join(f'"{column}"' for column in columns)
                        noun = "column" if len(columns) == 1 else "columns"
                        verb = "is" if len(columns) == 1 else "are"
                        diagnostics.note(f"{header.name}: {noun} {names} {verb} the {field.role}")
        for field in self.fields:
            if field.required and field.role not in assigned:
                raise self._unresolved(field, header, assigned)
        return assigned

    @staticmethod
    def _parse_override(header: Header, names: str) -> tuple[str, ...]:
        """Returns the columns of "a", "a,b" or "a..z"; a column with exactly this name takes precedence."""

        def find(name: str) -> int:
            if name in header.columns:
                return header.columns.index(name)
            if name.isdecimal() and 1 <= int(name) <= len(header.columns):
                return int(name) - 1
            if list(header.columns) == ["block"]:  # `documents.BLOCK_COLUMN`
                raise SeriatimError("data.column", f"{header.name} is plain text and has no columns", "omit --column")
            cause = f'{header.name}: there is no column "{name}"'
            raise SeriatimError("data.column", cause, did_you_mean(name, header.columns))

        columns: list[str] = []
        for part in [names] if names in header.columns else [part.strip() for part in names.split(",")]:
            ends = [part] if part in header.columns else [end.strip() for end in part.split("..")]
            first, last = find(ends[0]), find(ends[-1])
            if last < first:
                cause = f'{header.name}: "{part}" names no columns: the second is before the first'
                raise SeriatimError("data.column", cause, f"the columns are, in order: {', '.join(header.columns)}")
            columns += header.columns[first : last + 1]
        return tuple(columns)

    def _check_distinct(self, header: Header, assigned: Roles) -> None:
        """Raises an error if a column is named for an input and for a target."""
        inputs = {name for role, names in assigned.items() if not self[role].target for name in names}
        for role, names in assigned.items():
            both = inputs & set(names) if self[role].target else set()
            if both:
                cause = f'{header.name}: column "{min(both)}" cannot be input and {role}'
                raise SeriatimError("data.column", cause, "name others with --column and --target")

    def _by_position(self, header: Header, assigned: Roles, diagnostics: Diagnostics) -> Roles:
        """Returns the roles of the columns of a table without a header; named columns keep their role."""
        taken = {column for columns in assigned.values() for column in columns}
        free = iter([column for column in header.columns if column not in taken])
        if len(self.positions) == 1 and not assigned and self[self.positions[0]].max_columns is None:
            return {self.positions[0]: tuple(header.columns)}
        for role in self.positions:
            if role not in assigned and (column := next(free, None)) is not None:
                assigned[role] = (column,)
        if (unused := len(header.columns) - len(self.positions) - len(self.absent)) > 0 and len(self.positions) > 1:
            read = ", ".join(assigned[role][0] for role in self.positions)
            diagnostics.note(f"{header.name}: of {len(header.columns)} columns {unused} are not read; {read} are")
        return assigned

    def _candidates(self, field: Field, header: Header, assigned: Roles) -> dict[str, str]:
        """Returns the unassigned columns whose kind the field takes: normalized name → name."""
        taken = {column for columns in assigned.values() for column in columns}
        free = [name for name in header.columns if name not in taken and field.match_kind(header, [name])]
        absent = {normalize_name(name) for other in self.absent for name in (other.role, *other.aliases)}
        inputs = [name for name in free if normalize_name(name) not in absent]
        return {normalize_name(name): name for name in inputs or free}

    def _by_alias_group(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        if not field.alias_groups:
            return ()
        candidates = self._candidates(field, header, assigned)
        groups = [group for group in field.alias_groups if all(normalize_name(name) in candidates for name in group)]
        if len(groups) != 1:
            return ()
        columns = tuple(candidates[normalize_name(name)] for name in groups[0])
        texts = not any(header.guess_kind(name).numeric for name in columns)  # "text1" and "text2" may be numbers
        return columns if texts and field.match_kind(header, columns) else ()

    def _by_alias(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        candidates = self._candidates(field, header, assigned)
        names = dict.fromkeys(normalize_name(name) for name in (field.role, *field.aliases))
        columns = tuple(candidates[name] for name in names if name in candidates)
        if not columns:  # a column with the name of the field whose wrong cells are to be reported by line
            taken = {column for columns in assigned.values() for column in columns}
            free = {normalize_name(name): name for name in header.columns if name not in taken}
            usual = (free[name] for name in names if name in free)
            columns = tuple(name for name in usual if field.common_kind(header.samples[name]))
        if len(columns) > 1 and field.one_alias:
            cause = f"{header.name}: several columns may be the {field.role}: {', '.join(columns)}"
            raise SeriatimError("data.column", cause, f"name it: {self.option_of(field.role)}{columns[0]}")
        if not columns and field.alias_pattern is not None:
            return tuple(
                name for name in candidates.values() if re.fullmatch(field.alias_pattern, name.strip().lower())
            )
        return columns[:1]

    def _by_elimination(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        """Returns the only candidate whose guessed kind is one of the field's, or all of them for `take_all`."""
        if not field.required:
            return ()
        candidates = tuple(
            name
            for name in self._candidates(field, header, assigned).values()
            if not field.lists_only or all(map(is_list, header.samples[name]))
        )
        for kind in field.kinds:
            matching = tuple(name for name in candidates if header.guess_kind(name) is kind)
            if len(matching) == 1 or (matching and field.take_all):
                return matching
        return candidates if len(candidates) == 1 and len(header.columns) - len(assigned) == 1 else ()

    def _by_order(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        """Returns the column of a field if as many columns are left as roles of `positions`, all of one kind."""
        open_roles = [role for role in self.positions if role not in assigned]
        if field.role not in open_roles or any(self[role].kinds != field.kinds for role in open_roles):
            return ()
        candidates = tuple(self._candidates(field, header, assigned).values())
        matching = [name for name in candidates if header.guess_kind(name) in field.kinds]
        return (matching[open_roles.index(field.role)],) if len(matching) == len(open_roles) else ()

    def _unresolved(self, field: Field, header: Header, assigned: Roles) -> SeriatimError:
        if all(is_blank(cell) for name in header.columns for cell in header.samples[name]):
            return SeriatimError("data.empty", f"{header.name} holds only white space", "pass a file with data")
        candidates = list(self._candidates(field, header, assigned).values())
        kinds = " or ".join(kind.name for kind in field.kinds)
        columns = ", ".join(f"{name} ({header.guess_kind(name).name})" for name in header.columns)
        reason = f"candidates: {', '.join(candidates)}" if candidates else f"no column holds {kinds}"
        if not candidates and (empty := [name for name in header.columns if all(map(is_blank, header.samples[name]))]):
            reason += f", and empty are: {', '.join(empty)}"
        cause = f"{header.name}: which column is the {field.role}? {reason}; columns: {columns}"
        if not candidates and not field.target and not header.unnamed:
            return SeriatimError("data.column", cause, "pass a file that has one")
        example = candidates[0] if candidates else "NAME"
        remedy = f"name it: {self.option_of(field.role)}{example}, or data.columns.{field.role}={example}"
        if len(candidates) > 1 and field.max_columns != 1:
            remedy += f"; several at once: {candidates[0]},{candidates[1]}, or {candidates[0]}..{candidates[-1]}"
        return SeriatimError("data.column", cause, remedy)
