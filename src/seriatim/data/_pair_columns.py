"""Which columns of a table are the two sides of a pair: as named, as well known, or the only two there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seriatim.core.errors import SeriatimError

from .tables import Heading, no_column

NESTED = "translation"  # the column of the hub's tables: {"en": "…", "fr": "…"}
SIDES = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("input", "output"),
    ("question", "answer"),
    ("original", "translation"),
    ("sentence", "translation"),
    ("text", "translation"),
)
_CODES = (
    "af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn "
    "ko ky la lb lo lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl ps pt ro ru si sk sl so sq sr sv sw ta te tg th tk "
    "tl tr uk ur uz vi yi zh zu"
)
_LANGUAGES = (
    "arabic bulgarian catalan chinese croatian czech danish dutch english esperanto estonian finnish french german "
    "greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian "
    "norwegian persian polish portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish "
    "ukrainian vietnamese welsh"
)
CODES = frozenset(_CODES.split())
LANGUAGES = frozenset(_LANGUAGES.split())


@dataclass(frozen=True)
class Sides:
    """The columns of a table with a heading; `nested`: the keys inside of the column "translation"."""

    source: str
    target: str
    nested: bool = False

    @property
    def columns(self) -> list[str]:
        return [NESTED] if self.nested else [self.source, self.target]

    def of(self, row: Mapping[str, Any], place: str) -> tuple[Any, Any]:
        if not self.nested:
            return row[self.source], row[self.target]
        inner = row[NESTED]
        inner = inner if isinstance(inner, Mapping) else {}
        for name in (self.source, self.target):
            if name not in inner:
                raise no_column(place, f"{NESTED}.{name}", [f"{NESTED}.{one}" for one in inner])
        return inner[self.source], inner[self.target]


def of_heading(heading: Heading, column: str | None, target: str | None, first: Mapping[str, Any] | None) -> Sides:
    """The sides of a table whose columns have names; `first` is what the column "translation" holds first."""
    names = heading.columns
    inner = [name for name in first or {} if not {column, target} - {None, *(first or {})}]
    if len(inner) > 1 and (column is None or column not in names):
        source, other = _two(f"{heading.name}, column {NESTED}", inner, inner, column, target)
        return Sides(source, other, nested=True)
    for name in (column, target):
        if name is not None and name not in names:
            raise no_column(heading.name, name, names)
    source, other = _two(heading.name, names, heading.of("text"), column, target)
    return Sides(source, other)


def _two(
    where: str, names: Sequence[str], texts: Sequence[str], column: str | None, target: str | None
) -> tuple[str, str]:
    if column is not None and target is not None:
        return column, target
    known = well_known(names)
    if known is not None and column is None and target is None:
        return names[known[0]], names[known[1]]
    others = [name for name in texts if name not in (column, target)]
    if column is None and target is None and len(others) == 2:
        return others[0], others[1]
    if (column is None) != (target is None) and len(others) == 1:
        return (column, others[0]) if column is not None else (others[0], str(target))
    raise SeriatimError(
        "data.column",
        f"{where}: which columns are the source and the target? It has: {', '.join(names) or 'none'}",
        "name them with --column and --target",
    )


def well_known(cells: Sequence[str]) -> tuple[int, int] | None:
    """Where source and target stand in a first line that is a heading; None where it is a line like others."""
    lowered = [cell.strip().lower() for cell in cells]
    for source, target in SIDES:
        if source in lowered and target in lowered:
            return lowered.index(source), lowered.index(target)
    if len(cells) > 1 and lowered[0] != lowered[1] and all(_is_language(cell.strip()) for cell in cells[:2]):
        return 0, 1
    return None


def _is_language(name: str) -> bool:
    """`en`, `pt_BR` or `English`, but not `No`, which is more often a sentence than Norwegian."""
    match = re.fullmatch(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?", name)
    return (match is not None and match[1] in CODES) or name.lower() in LANGUAGES


def of_row(where: str, cells: Sequence[str], column: str | None, target: str | None) -> tuple[int, int, bool]:
    """The places of both sides in a file of lines by its first one, and whether that is a heading."""
    by_number = all(name is None or name.isdecimal() for name in (column, target))
    names = [cell.strip() for cell in cells]
    if not by_number:
        for name in (column, target):
            if name is not None and name not in names:
                raise no_column(where, name, names)
        source, other = _two(where, names, names, column, target)
        return names.index(source), names.index(other), True
    known = well_known(cells)
    if column is None and target is None:
        return (*known, True) if known is not None else (0, 1, False)
    first = int(column) - 1 if column is not None else 1 if target == "1" else 0
    second = int(target) - 1 if target is not None else 0 if column == "2" else 1
    if min(first, second) < 0 or first == second:
        cause = f"{where}: columns {first + 1} and {second + 1} are not two columns"
        raise SeriatimError("data.column", cause, "count columns from 1, and name two of them")
    return first, second, known is not None
