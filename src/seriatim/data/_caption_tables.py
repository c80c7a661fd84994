"""Captions in tables: CSV and TSV with and without a heading, JSONL and Parquet.

A caption a row with several rows for a picture, several columns of captions, or lists of them. The text files of
Flickr8k are such tables: "name.jpg#0", a tab, and the caption.
"""

from __future__ import annotations

import csv
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

from seriatim.core.errors import SeriatimError

from . import tables
from ._caption_columns import Chosen, Wanted, choose
from ._caption_rows import Rows, boxes_of, part_of
from .columns import PARTS
from .decoding import Facts, Raw, decode
from .picture_files import is_picture
from .sources import blocks

NUMBER = re.compile(r"#\d+$")  # of a caption among those of its picture, as Flickr8k writes it


def read_table(raw: Raw, wanted: Wanted, facts: Facts, rows: Rows) -> None:
    (_named if raw.kind in ("jsonl", "parquet") else _delimited)(raw, wanted, facts, rows)


# ── tables with names: JSONL and Parquet ──────────────────────────────────────────────────────────────────────────


def _named(raw: Raw, wanted: Wanted, facts: Facts, rows: Rows) -> None:
    chosen: list[Chosen] = []

    def look(heading: tables.Heading) -> list[str]:
        chosen.append(choose(heading.name, {name: heading.kinds[name] for name in heading.columns}, wanted))
        facts.notes.append(_told(raw.name, chosen[0]))
        return chosen[0].all

    for place, row in tables.rows(raw, wanted.encoding, facts, look):
        add_record(rows, row, chosen[0], place, facts)


def add_record(rows: Rows, row: dict[str, Any], chosen: Chosen, place: str, facts: Facts) -> None:
    """The captions of one object of JSON or row of Parquet."""
    picture = tables.text_of(_path(row[chosen.picture]), place, chosen.picture, facts)
    if picture is None:
        return
    part = part_of(row[chosen.split], place, facts) if chosen.split else ""
    boxes = boxes_of(row[chosen.boxes], place, facts) if chosen.boxes else []
    values = [one for name in chosen.captions for one in _each(row[name])]
    for value in values or [""]:
        text = tables.text_of(value, place, chosen.captions[0] if chosen.captions else "", facts)
        if text is not None:
            rows.add(picture, text, place, part, boxes)


def _path(value: Any) -> Any:
    """Some collections have an object with the path and, where it was packed, the bytes."""
    if not isinstance(value, dict):
        return value
    return value.get("path") if value.get("bytes") is None else value


def _each(value: Any) -> list[Any]:
    found = value if isinstance(value, list) else [value]
    return [one.get("raw", one) if isinstance(one, dict) else one for one in found]


# ── tables of cells: CSV, TSV and text ────────────────────────────────────────────────────────────────────────────


def _delimited(raw: Raw, wanted: Wanted, facts: Facts, rows: Rows) -> None:
    cells = (pair for pair in _cells(raw, wanted, facts) if any(cell.strip() for cell in pair[1]))
    first = next(cells, None)
    if first is None:
        return
    second = next(cells, None)
    later = cells if second is None else itertools.chain([second], cells)
    if _headless(first[1]):
        chosen = _without_names(first[1], wanted, raw, first[0])
        names = [str(number) for number in range(1, len(first[1]) + 1)]
        later = itertools.chain([first], later)
    else:
        names = [cell.strip() for cell in first[1]]
        example = second[1] if second is not None else []
        looks = {name: _look(cell) for name, cell in itertools.zip_longest(names, example[: len(names)], fillvalue="")}
        chosen = choose(f"{raw.name}, line {first[0]}", looks, wanted)
        facts.notes.append(_told(raw.name, chosen))
    picture, *captions = (names.index(name) for name in [chosen.picture, *chosen.captions])
    split = names.index(chosen.split) if chosen.split else None
    least = max([picture, *captions, -1 if split is None else split]) + 1
    open_end = captions == [len(names) - 1] and raw.kind != "tsv"  # a comma in the last column was not quoted
    for line, row in later:
        place = f"{raw.name}, line {line}"
        if len(row) < least:
            facts.trouble(_short(place, len(row), least))
            continue
        part = part_of(row[split], place, facts) if split is not None else ""
        name = NUMBER.sub("", row[picture].strip())
        if open_end and len(row) > len(names):
            rows.add(name, ",".join(row[captions[0] :]), place, part)
            continue
        filled = [row[index] for index in captions if row[index].strip()]
        for text in filled or [""]:
            rows.add(name, text, place, part)


def _cells(raw: Raw, wanted: Wanted, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    source = tables.lines(decode(raw, blocks(raw), wanted.encoding, facts))
    head = next(source, "")
    if raw.kind == "tsv" or (raw.kind == "text" and "\t" in head):
        for number, line in enumerate(itertools.chain([head], source), 1):
            yield number, line.removesuffix("\n").split("\t")
        return
    if raw.kind == "text" and not wanted.captions and not any(sign in head for sign in tables.DELIMITERS):
        for number, line in enumerate(itertools.chain([head], source), 1):
            yield number, [line.removesuffix("\n")]
        return
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.reader(itertools.chain([head], source), delimiter=tables.delimiter_of(raw, head, facts), strict=True)
    yield from tables.csv_rows(raw, reader, facts)


def _headless(cells: list[str]) -> bool:
    return any(_look(cell) == "picture" for cell in cells)


def _without_names(cells: list[str], wanted: Wanted, raw: Raw, line: int) -> Chosen:
    """Columns by their numbers: what looks like a picture, and what has words."""
    names = {str(number): _look(cell) for number, cell in enumerate(cells, 1)}
    split = next((name for name, cell in zip(names, cells, strict=True) if cell.strip().lower() in PARTS), None)
    picture = next(name for name in names if names[name] == "picture")
    asked = Wanted(wanted.column or picture, wanted.target, wanted.split, captions=wanted.captions)
    if asked.target is None and wanted.captions:
        texts = [name for name in names if names[name] == "text" and name not in (split, asked.column)]
        asked = Wanted(asked.column, ",".join(texts) or None, asked.split or split)
    return choose(f"{raw.name}, line {line}", names, asked)


def _look(cell: str) -> str:
    name = NUMBER.sub("", cell.strip())
    if is_picture(name) and "\n" not in name:
        return "picture"
    return "number" if name and tables.is_number(name) else "text"


def _told(name: str, chosen: Chosen) -> str:
    several = " and ".join(f'"{one}"' for one in chosen.captions)
    return f'{name}: pictures in column "{chosen.picture}"' + (f", captions in {several}" if several else "")


def _short(place: str, have: int, least: int) -> SeriatimError:
    columns = "1 column" if have == 1 else f"{have} columns"
    return SeriatimError(
        "data.caption",
        f"{place}: has {columns}, where {least} are wanted",
        "write the picture's name and its caption on each line",
    )
