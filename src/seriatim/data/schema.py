"""Schemas: the fields a task needs of a table, and how columns are assigned to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..core.diagnostics import Diagnostics
from ..core.errors import SeriatimError, did_you_mean
from .dataset import Dataset
from .formats import normalize_name
from .kinds import LABEL, MOST_SPECIFIC_FIRST, Kind


@dataclass(frozen=True)
class Header:
    """The columns of a table with the cells of its first rows."""

    name: str  # of the source
    samples: Mapping[str, Sequence[Any]]  # column → cells

    @property
    def columns(self) -> list[str]:
        return list(self.samples)

    @property
    def unnamed(self) -> bool:
        return all(name == f"column {n}" for n, name in enumerate(self.columns, 1))

    def guess_kind(self, column: str) -> Kind:
        """Returns the most specific kind that accepts all sampled cells."""
        return next((kind for kind in MOST_SPECIFIC_FIRST if kind.accepts(self.samples[column])), LABEL)


@dataclass(frozen=True)
class Field:
    """A role that one or more columns of a table play in a task.

    Args:
        role: The name of the field, such as "source".
        kinds: The kinds it takes, the preferred one first.
        aliases: Usual names of its column; compared without case and punctuation.
        alias_groups: Usual names of columns that belong together, such as ("premise", "hypothesis").
        max_columns: How many columns it may have; None for any number.
        take_all: Whether it takes every unassigned column of its kind when no column is named.
        required: Whether a table without it is an error.
        target: Whether it is what the task predicts: absent at prediction.
    """

    role: str
    kinds: tuple[Kind, ...]
    aliases: tuple[str, ...] = ()
    alias_groups: tuple[tuple[str, ...], ...] = ()
    max_columns: int | None = 1
    take_all: bool = False
    required: bool = True
    target: bool = False

    def match_kind(self, header: Header, columns: Sequence[str]) -> Kind | None:
        """Returns the first of its kinds that accepts the sampled cells of all columns, or None."""
        cells = [cell for column in columns for cell in header.samples[column]]
        return next((kind for kind in self.kinds if kind.accepts(cells)), None)


Roles = dict[str, tuple[str, ...]]  # role → columns
Constraint = Callable[[Dataset, Diagnostics], None]  # reports the rows that violate it


@dataclass(frozen=True)
class Schema:
    """The fields of a task.

    Args:
        fields: The fields.
        positions: The roles of the first columns of a table without a header.
        text_unit: What a row of plain text is, a line or a block (see `ReadOptions`).
        constraints: Checks of the values, run by `check` in training and by `data check` alike.
    """

    fields: tuple[Field, ...]
    positions: tuple[str, ...] = ()
    text_unit: Literal["line", "block"] = "line"
    constraints: tuple[Constraint, ...] = dataclasses.field(default=(), repr=False)

    def __getitem__(self, role: str) -> Field:
        return next(field for field in self.fields if field.role == role)

    @property
    def roles(self) -> list[str]:
        return [field.role for field in self.fields]

    def inputs(self) -> Schema:
        """Returns the schema of prediction: the same without targets."""
        fields = tuple(field for field in self.fields if not field.target)
        positions = tuple(field.role for field in fields if field.role in self.positions)
        required = tuple(field.role for field in fields if field.required)
        return replace(self, fields=fields, positions=positions or required)

    @property
    def header_names(self) -> frozenset[str]:
        """The normalized names by which a header is recognized."""
        names = (name for field in self.fields for name in (field.role, *field.aliases))
        grouped = (name for field in self.fields for group in field.alias_groups for name in group)
        return frozenset(map(normalize_name, (*names, *grouped)))

    def resolve(self, header: Header, overrides: Mapping[str, str], diagnostics: Diagnostics) -> Roles:
        """Assigns columns to roles: as overridden, by position, by usual names, or by elimination.

        Args:
            header: The columns with sampled cells.
            overrides: Role → column names, written "a", "a,b" or "a..z".
            diagnostics: Receives a note for each guess.

        Raises:
            SeriatimError: If a required role stays open; the error lists the candidates.
        """
        if unknown := overrides.keys() - set(self.roles):
            cause, suggestion = f'there is no role "{min(unknown)}"', did_you_mean(min(unknown), self.roles)
            raise SeriatimError("data.role", cause, suggestion)
        assigned: Roles = {role: self._parse_override(header, names) for role, names in overrides.items()}
        if header.unnamed and self.positions and len(header.columns) >= len(self.positions) and not assigned:
            return {role: (column,) for role, column in zip(self.positions, header.columns, strict=False)}
        for rule in (self._by_alias_group, self._by_alias, self._by_elimination):
            # Names tell targets more reliably than inputs; kinds tell inputs more reliably than targets.
            targets_first = rule != self._by_elimination
            for field in sorted(self.fields, key=lambda field: field.target != targets_first):
                if field.role not in assigned and (columns := rule(field, header, assigned)):
                    assigned[field.role] = columns
                    if len(header.columns) > 1:
                        names = " and ".join(f'"{column}"' for column in columns)
                        diagnostics.note(f"{header.name}: column {names} is the {field.role}")
        for field in self.fields:
            if field.required and field.role not in assigned:
                raise self._unresolved(field, header, assigned)
        return assigned

    @staticmethod
    def _parse_override(header: Header, names: str) -> tuple[str, ...]:
        """Returns the columns of "a", "a,b" or "a..z"; a column with exactly this name takes precedence."""
        columns: list[str] = []
        for part in [names] if names in header.columns else [part.strip() for part in names.split(",")]:
            ends = [part] if part in header.columns else part.split("..")
            for end in ends:
                if end not in header.columns:
                    cause = f'{header.name}: there is no column "{end}"'
                    raise SeriatimError("data.column", cause, did_you_mean(end, header.columns))
            first, last = header.columns.index(ends[0]), header.columns.index(ends[-1])
            columns += header.columns[first : last + 1]
        return tuple(columns)

    @staticmethod
    def _candidates(field: Field, header: Header, assigned: Roles) -> dict[str, str]:
        """Returns the unassigned columns whose kind the field takes: normalized name → name."""
        taken = {column for columns in assigned.values() for column in columns}
        free = [name for name in header.columns if name not in taken]
        return {normalize_name(name): name for name in free if field.match_kind(header, [name])}

    def _by_alias_group(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        candidates = self._candidates(field, header, assigned)
        groups = [group for group in field.alias_groups if all(normalize_name(name) in candidates for name in group)]
        return tuple(candidates[normalize_name(name)] for name in groups[0]) if len(groups) == 1 else ()

    def _by_alias(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        candidates = self._candidates(field, header, assigned)
        names = (normalize_name(name) for name in (field.role, *field.aliases))
        return tuple(candidates[name] for name in names if name in candidates)[:1]

    def _by_elimination(self, field: Field, header: Header, assigned: Roles) -> tuple[str, ...]:
        """Returns the only candidate whose guessed kind is one of the field's, or all of them for `take_all`."""
        if not field.required:
            return ()
        candidates = tuple(self._candidates(field, header, assigned).values())
        for kind in field.kinds:
            matching = tuple(name for name in candidates if header.guess_kind(name) is kind)
            if len(matching) == 1 or (matching and field.take_all):
                return matching
        return candidates if len(candidates) == 1 and len(header.columns) - len(assigned) == 1 else ()

    def _unresolved(self, field: Field, header: Header, assigned: Roles) -> SeriatimError:
        candidates = list(self._candidates(field, header, assigned).values())
        kinds = " or ".join(kind.name for kind in field.kinds)
        columns = ", ".join(f"{name} ({header.guess_kind(name).name})" for name in header.columns)
        reason = f"candidates: {', '.join(candidates)}" if candidates else f"no column holds {kinds}"
        cause = f"{header.name}: which column is the {field.role}? {reason}; columns: {columns}"
        example = candidates[0] if candidates else "NAME"
        return SeriatimError("data.column", cause, f"name it: data.columns.{field.role}={example}")
