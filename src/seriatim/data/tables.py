"""Texts in one column of a table: JSONL, CSV, TSV and Parquet, one row after the other.

CSV follows the usual quoting rules; TSV has none, so a quotation mark in it is a character like others.
"""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from seriatim.core.errors import SeriatimError, did_you_mean

from .decoding import Facts, Raw
from .sources import reading

LOOK_AHEAD = 100  # rows looked at to tell a column of text from one of numbers
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def lines(texts: Iterable[str]) -> Iterator[str]:
    """Lines with their "\\n", and split nowhere else."""
    parts: list[str] = []  # of a line that goes over several pieces; joined once, however long it is
    for text in texts:
        first, *others = text.split("\n")
        parts.append(first)
        for other in others:
            yield "".join(parts) + "\n"
            parts = [other]
    if any(parts):
        yield "".join(parts)


def jsonl(raw: Raw, texts: Iterable[str], column: str | None, facts: Facts) -> Iterator[str]:
    for number, line in enumerate(lines(texts), 1):
        if not line.strip():
            continue
        where = f"{raw.name}, line {number}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            facts.trouble(SeriatimError("data.jsonl", f"{where}: not JSON ({error})", "mend or remove the line"))
            continue
        if not isinstance(row, dict):
            kind = type(row).__name__
            facts.trouble(SeriatimError("data.jsonl", f"{where}: a {kind}, not an object", 'write {"text": "…"}'))
            continue
        if column is None:
            column = _only(raw, list(row), [name for name, value in row.items() if isinstance(value, str)], facts)
        if column not in row:
            facts.trouble(_no_column(where, column, row))
            continue
        yield from _value(row[column], where, column, facts)


def delimited(raw: Raw, texts: Iterable[str], column: str | None, facts: Facts) -> Iterator[str]:
    source = lines(texts)
    head = next(source, "")
    delimiter = _delimiter(raw, head, facts)
    # A field may be as long as it likes; the module's own limit is 128 KB.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    rest = itertools.chain([head], source)
    if raw.kind == "tsv":
        reader = csv.reader(rest, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(rest, delimiter=delimiter, strict=True)
    rows = _checked(raw, reader, facts)
    _, names = next(rows, (1, []))
    names = [name.strip() for name in names]
    early = list(itertools.islice(rows, LOOK_AHEAD))
    if not early:
        return  # the caller finds that there was no text
    if column is None:
        textual = [name for index, name in enumerate(names) if any(not _number(row[index]) for _, row in early)]
        column = _only(raw, names, textual, facts)
    elif column not in names:
        raise _no_column(raw.name, column, names)
    index = names.index(column)
    for line, row in itertools.chain(early, rows):
        yield from _value(row[index], f"{raw.name}, line {line}", column, facts)


def parquet(raw: Raw, column: str | None, facts: Facts) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(raw.name), raw.open() as stream, tempfile.TemporaryFile() as spooled:
        # The table of contents is at the file's end; a compressed stream cannot be read from there.
        source: Any = stream
        if not hasattr(stream, "fileno") or raw.name.endswith(".gz"):
            shutil.copyfileobj(stream, spooled)
            spooled.seek(0)
            source = spooled
        try:
            file = pq.ParquetFile(source)
        except (pa.ArrowInvalid, OSError) as error:
            raise _not_parquet(raw, error) from None
        schema = file.schema_arrow
        if column is None:
            column = _only(raw, schema.names, [field.name for field in schema if _is_text(field.type)], facts)
        elif column not in schema.names:
            raise _no_column(raw.name, column, schema.names)
        row = 0
        try:
            for batch in file.iter_batches(batch_size=512, columns=[column]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield from _value(value, f"{raw.name}, row {row}", column, facts)
        except (pa.ArrowInvalid, OSError) as error:
            raise _not_parquet(raw, error) from None


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _not_parquet(raw: Raw, error: Exception) -> SeriatimError:
    return SeriatimError("data.parquet", f"{raw.name}: not a readable Parquet file ({error})", "check the file")


def _checked(raw: Raw, reader: Any, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each begins on; a row of another width than the first is trouble."""
    width = 0
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            facts.trouble(SeriatimError("data.csv", f"{raw.name}, line {line}: {error}", "mend the quoting there"))
            continue
        if row is None:
            return
        if not row:  # an empty line
            continue
        width = width or len(row)
        if len(row) != width:
            cause = f"{raw.name}, line {line}: {len(row)} columns where the first line has {width}"
            facts.trouble(SeriatimError("data.csv", cause, "mend the line, or quote fields that hold the delimiter"))
            continue
        yield line, row


def _delimiter(raw: Raw, head: str, facts: Facts) -> str:
    if raw.kind == "tsv":
        return "\t"
    best = max(DELIMITERS, key=head.count)
    if best == "," or head.count(best) == 0 or "," in head:
        return ","
    facts.notes.append(f"{raw.name}: its columns are separated by {DELIMITERS[best]}")
    return best


def _only(raw: Raw, names: list[str], textual: list[str], facts: Facts) -> str:
    """The single column of text, told to the user; a choice that is not ours to make is an error."""
    if len(textual) == 1:
        if len(names) > 1:
            facts.notes.append(f'{raw.name}: took the text from its only text column "{textual[0]}"')
        return textual[0]
    which = f"{len(textual)} columns of text" if textual else "no column of text"
    raise SeriatimError(
        "data.column",
        f"{raw.name}: has {which}; its columns are: {', '.join(names)}",
        f"name the column with --column, for example --column {textual[0]}" if textual else "give a file with text",
    )


def _no_column(where: str, column: str, names: Iterable[str]) -> SeriatimError:
    return SeriatimError("data.column", f'{where}: has no column "{column}"', did_you_mean(column, names))


def _value(value: object, where: str, column: str, facts: Facts) -> Iterator[str]:
    if value is None or value == "":
        facts.empty += 1
        return
    if not isinstance(value, str):
        cause = f'{where}: column "{column}" holds {type(value).__name__}, not text'
        facts.trouble(SeriatimError("data.column", cause, "name a column of text with --column"))
        return
    problem = _unwritable(value)
    if problem:
        facts.trouble(SeriatimError("data.binary", f'{where}: column "{column}" holds {problem}', "mend the row"))
        value = value.encode("utf-8", "replace").decode("utf-8")
    yield value


def _unwritable(value: str) -> str:
    if "\0" in value:
        return "a NUL character"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "half a surrogate pair, which is no character"
    return ""


def _number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return value == ""
    return True


Reader = Callable[[Raw, Iterable[str], str | None, Facts], Iterator[str]]
READERS: dict[str, Reader] = {"jsonl": jsonl, "csv": delimited, "tsv": delimited}
