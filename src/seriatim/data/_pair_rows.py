"""Reading pairs of texts: tables with and without a heading, two aligned files, gettext catalogues.

Nothing is left out here: row N of what was read is row N of what comes back, also where a side is empty.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seriatim.core.errors import SeriatimError

from . import gettext, tables
from ._pair_columns import NESTED, Sides, of_heading, of_row
from .decoding import Facts, Raw, decode
from .sequences import Examples
from .sources import Found, blocks, find_path

HEADLESS = "its first line is taken for a pair; name the columns with --column and --target if it is a heading"


@dataclass
class Rows:
    """Texts side by side; a target that was not asked for or is not there is empty."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def add(self, source: str, target: str, place: str) -> None:
        self.sources.append(source)
        self.targets.append(target)
        self.places.append(place)

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, chosen: list[int]) -> Rows:
        return Rows(*([column[row] for row in chosen] for column in (self.sources, self.targets, self.places)))

    def examples(self) -> Examples:
        return Examples(self.sources, self.targets, self.places)


@dataclass(frozen=True)
class Wanted:
    """How to read: by which columns, in which encoding, and whether targets are wanted or only `side` of each pair."""

    column: str | None
    target: str | None
    encoding: str
    side: int | None = None  # 0: only sources, 1: only targets; None: both


def streams(path: Path) -> Found:
    """The files of a path. A folder that holds gettext catalogues is read for these alone."""
    if not path.is_dir():
        return find_path(path)
    files = [file for file in sorted(path.rglob("*")) if gettext.kind(file.name) and file.is_file()]
    if not files:
        return find_path(path)
    texts = {file.with_suffix("") for file in files if gettext.kind(file.name) == "po"}
    used = [file for file in files if gettext.kind(file.name) == "po" or file.with_suffix("") not in texts]
    notes = [f"{len(files) - len(used):,} .mo files have their .po beside them and are not read again"]
    raws = [raw for file in used for raw in find_path(file).raws]
    title = f"{len(used):,} gettext files of {path.name}/"
    return Found(title, raws, used, folder=True, notes=notes if len(used) < len(files) else [])


def gather(found: Found, wanted: Wanted, facts: Facts) -> Rows:
    """The pairs of all files of a source."""
    rows = Rows()
    catalogues = [raw for raw in found.raws if gettext.kind(raw.name)]
    for raw in found.raws:
        if gettext.kind(raw.name):
            continue
        if raw.kind in ("jsonl", "parquet"):
            _named(raw, wanted, facts, rows)
        elif wanted.side is not None and raw.kind == "text" and not _tabbed(raw, wanted, facts):
            for number, line in enumerate(_lines(raw, wanted.encoding, facts), 1):
                rows.add(line, "", f"{raw.name}, line {number}")
        else:
            _delimited(raw, wanted, facts, rows)
    if catalogues:
        for pair in gettext.pairs(catalogues, wanted.encoding, facts, every=wanted.side is not None):
            rows.add(*pair)
    if wanted.side == 1:
        rows.sources = rows.targets if any(rows.targets) else rows.sources
    return rows


def aligned(source: Found, target: Found, encoding: str, facts: Facts) -> Rows:
    """Two files, line N of one with line N of the other."""
    sides = [list(_all_lines(one, encoding, facts)) for one in (source, target)]
    counts = [len(side) for side in sides]
    if counts[0] != counts[1]:
        raise SeriatimError(
            "data.pair",
            f"{source.title} has {counts[0]:,} lines and {target.title} has {counts[1]:,}: line N of one is to be the "
            "translation of line N of the other",
            "give two files of equally many lines; where a line has no translation leave it empty",
        )
    places = [f"{source.title}, line {number}" for number in range(1, counts[0] + 1)]
    return Rows(sides[0], sides[1], places)


def _all_lines(found: Found, encoding: str, facts: Facts) -> Iterator[str]:
    for raw in found.raws:
        yield from _lines(raw, encoding, facts)


def _lines(raw: Raw, encoding: str, facts: Facts) -> Iterator[str]:
    for line in tables.lines(decode(raw, blocks(raw), encoding, facts)):
        yield line.removesuffix("\n")


def _tabbed(raw: Raw, wanted: Wanted, facts: Facts) -> bool:
    """Whether a text file of inputs is a table after all: each of its lines that is not empty has a tab."""
    found = False
    for line in _lines(raw, wanted.encoding, Facts(trouble=facts.trouble)):
        if line.strip() and "\t" not in line:
            return False
        found = found or "\t" in line
    return found


# ── tables without names: TSV, and text with tabs, and CSV ────────────────────────────────────────────────────────


def _delimited(raw: Raw, wanted: Wanted, facts: Facts, rows: Rows) -> None:
    cells = _csv(raw, wanted.encoding, facts) if raw.kind == "csv" else _tsv(raw, wanted.encoding, facts)
    head = next(((number, row) for number, row in cells if any(row)), None)
    if head is None:
        return
    first, second, heading = of_row(f"{raw.name}, line {head[0]}", head[1], wanted.column, wanted.target)
    if heading:
        facts.notes.append(f"{raw.name}: {head[1][first].strip()} → {head[1][second].strip()}, by its heading")
    elif raw.kind == "csv":
        facts.notes.append(f"{raw.name}: {HEADLESS}")
    least = max(first, second) + 1
    wide = 0
    for number, row in cells if heading else itertools.chain([head], cells):
        place = f"{raw.name}, line {number}"
        if len(row) >= least:
            rows.add(row[first], row[second], place)
            wide += len(row) > 2
        elif not any(cell.strip() for cell in row):
            rows.add("", "", place)
        elif wanted.side is not None:
            side = (first, second)[wanted.side]
            text = row[side] if side < len(row) else row[0]
            rows.add(text, text, place)
        else:
            facts.trouble(_missing(raw, number, row, first, second))
    if wide and least == 2 and not heading:
        facts.notes.append(f"{raw.name}: {wide:,} lines have more than two columns; only the first two are read")


def _tsv(raw: Raw, encoding: str, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_lines(raw, encoding, facts), 1):
        yield number, line.split("\t")


def _csv(raw: Raw, encoding: str, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    source = tables.lines(decode(raw, blocks(raw), encoding, facts))
    head = next(source, "")
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.reader(itertools.chain([head], source), delimiter=tables.delimiter_of(raw, head, facts), strict=True)
    yield from tables.csv_rows(raw, reader, facts)


def _missing(raw: Raw, number: int, row: list[str], first: int, second: int) -> SeriatimError:
    absent = next(index for index in sorted((first, second)) if index >= len(row))
    side = "source" if absent == first else "target"
    sign = "comma" if raw.kind == "csv" else "tab"
    have = "1 column" if len(row) == 1 else f"{len(row)} columns"
    return SeriatimError(
        "data.pair",
        f"{raw.name}, line {number}: no {side}: it has {have}, the {side} is in column {absent + 1}",
        f"write a source and its target on each line with a {sign} between them, or two aligned files as a.en,a.fr",
    )


# ── tables with names: JSONL and Parquet ──────────────────────────────────────────────────────────────────────────


def _named(raw: Raw, wanted: Wanted, facts: Facts, rows: Rows) -> None:
    sides: list[Sides] = []
    only: list[str] = []
    inner = _inner(raw, wanted.encoding)

    def choose(heading: tables.Heading) -> list[str]:
        texts = heading.of("text")
        if wanted.side is not None and inner is None and (len(texts) == 1 or _asked(wanted) in heading.columns):
            only.append(_asked(wanted) if _asked(wanted) in heading.columns else texts[0])
            return only
        sides.append(of_heading(heading, wanted.column, wanted.target, inner))
        return sides[0].columns

    for place, row in tables.rows(raw, wanted.encoding, facts, choose):
        source, target = (row[only[0]],) * 2 if only else sides[0].of(row, place)
        names = only * 2 if only else [sides[0].source, sides[0].target]
        texts = [tables.text_of(*cell, facts) for cell in ((source, place, names[0]), (target, place, names[1]))]
        if texts[0] is not None and texts[1] is not None:
            rows.add(texts[0], texts[1], place)


def _asked(wanted: Wanted) -> str:
    return (wanted.column if wanted.side == 0 else wanted.target) or ""


def _inner(raw: Raw, encoding: str) -> dict[str, Any] | None:
    """What the column "translation" of the first row holds, where that is a pair of its own."""

    def choose(heading: tables.Heading) -> list[str]:
        return [NESTED] if NESTED in heading.columns and heading.kinds[NESTED] == "other" else []

    first = next(tables.rows(raw, encoding, Facts(trouble=lambda _: None), choose), None)
    found = first[1].get(NESTED) if first is not None else None
    return found if isinstance(found, dict) else None
