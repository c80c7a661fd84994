"""Rows of tables: JSONL, CSV, TSV and Parquet, one after the other; and the texts of one column of them.

CSV follows the usual quoting rules; TSV has none, so a quotation mark in it is a character like others.
"""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seriatim.core.errors import SeriatimError, did_you_mean

from .decoding import Facts, Raw, decode
from .picture_files import is_picture
from .sources import blocks, reading

LOOK_AHEAD = 100  # rows looked at to tell a column of text from one of numbers
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class Heading:
    """The columns of a table and what they hold, as far as the first rows tell (JSONL: the first row)."""

    name: str  # of the file
    columns: list[str]
    kinds: dict[str, str]  # column → text, number, list or other
    pictures: tuple[str, ...] = ()  # columns of text that name files of pictures

    def of(self, kind: str) -> list[str]:
        return [column for column in self.columns if self.kinds[column] == kind]


Row = tuple[str, dict[str, Any]]  # its place, as "a.csv, line 7", and the value of each column
Choose = Callable[[Heading], Sequence[str]]


def rows(raw: Raw, encoding: str, facts: Facts, choose: Choose | None = None) -> Iterator[Row]:
    """The rows of a table. `choose` is shown the heading once and names the columns wanted; else it is all of them."""
    if raw.kind == "parquet":
        return _parquet(raw, facts, choose)
    pieces = decode(raw, blocks(raw), encoding, facts)
    return (_jsonl if raw.kind == "jsonl" else _delimited)(raw, pieces, facts, choose)


def texts(raw: Raw, column: str | None, encoding: str, facts: Facts) -> Iterator[str]:
    """The texts of one column; without a name, of the only column of text. Rows without text are left out."""
    chosen = [] if column is None else [column]

    def choose(heading: Heading) -> list[str]:
        chosen[:] = chosen or [only_text(heading, facts)]
        return chosen

    for place, row in rows(raw, encoding, facts, choose):
        text = text_of(row[chosen[0]], place, chosen[0], facts)
        if text:
            yield text
        elif text is not None:
            facts.empty += 1


def lines(pieces: Iterable[str]) -> Iterator[str]:
    """Lines with their "\\n", and split nowhere else."""
    parts: list[str] = []  # of a line that goes over several pieces; joined once, however long it is
    for piece in pieces:
        first, *others = piece.split("\n")
        parts.append(first)
        for other in others:
            yield "".join(parts) + "\n"
            parts = [other]
    if any(parts):
        yield "".join(parts)


def text_of(value: object, place: str, column: str, facts: Facts) -> str | None:
    """A cell as text, nothing as an empty one; None for what is no text, where `facts.trouble` lets it pass."""
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        cause = f'{place}: column "{column}" holds {type(value).__name__}, not text'
        facts.trouble(SeriatimError("data.column", cause, "name a column of text with --column"))
        return None
    problem = _unwritable(value)
    if problem:
        facts.trouble(SeriatimError("data.binary", f'{place}: column "{column}" holds {problem}', "mend the row"))
        value = value.encode("utf-8", "replace").decode("utf-8")
    return value


def is_number(value: str) -> bool:
    """Whether a cell holds a number; an empty one says nothing against it."""
    try:
        float(value)
    except ValueError:
        return value == ""
    return True


class NoColumnError(SeriatimError):
    """A column that was named is not there; `names` are those that are."""

    names: tuple[str, ...] = ()


def no_column(where: str, column: str, names: Iterable[str]) -> SeriatimError:
    names = list(names)
    remedy = did_you_mean(column, names) or "it is empty: mend or remove the row"
    error = NoColumnError("data.column", f'{where}: has no column "{column}"', remedy)
    error.names = tuple(names)
    return error


# ── the forms of tables ───────────────────────────────────────────────────────────────────────────────────────────


def _jsonl(raw: Raw, pieces: Iterable[str], facts: Facts, choose: Choose | None) -> Iterator[Row]:
    wanted: list[str] | None = None
    for number, line in enumerate(lines(pieces), 1):
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
        if wanted is None:
            kinds = {name: _kind_of(value) for name, value in row.items()}
            pictures = tuple(name for name, value in row.items() if isinstance(value, str) and is_picture(value))
            wanted = _wanted(Heading(raw.name, list(row), kinds, pictures), choose)
        missing = next((name for name in wanted if name not in row), None)
        if missing is not None:
            facts.trouble(no_column(where, missing, row))
            continue
        yield where, row


def _delimited(raw: Raw, pieces: Iterable[str], facts: Facts, choose: Choose | None) -> Iterator[Row]:
    source = lines(pieces)
    head = next(source, "")
    delimiter = delimiter_of(raw, head, facts)
    # A field may be as long as it likes; the module's own limit is 128 KB.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    rest = itertools.chain([head], source)
    if raw.kind == "tsv":
        reader = csv.reader(rest, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(rest, delimiter=delimiter, strict=True)
    checked = _checked(raw, reader, facts)
    _, names = next(checked, (1, []))
    names = [name.strip() for name in names]
    early = list(itertools.islice(checked, LOOK_AHEAD))
    if not early:
        return  # the caller finds that there was nothing
    kinds = {
        name: "number" if all(is_number(row[index]) for _, row in early) else "text" for index, name in enumerate(names)
    }
    pictures = tuple(name for index, name in enumerate(names) if all(is_picture(row[index]) for _, row in early))
    wanted = _wanted(Heading(raw.name, names, kinds, pictures), choose)
    for column in wanted:
        if column not in names:
            raise no_column(raw.name, column, names)
    places = [(column, names.index(column)) for column in wanted]
    for line, row in itertools.chain(early, checked):
        yield f"{raw.name}, line {line}", {column: row[index] for column, index in places}


def _parquet(raw: Raw, facts: Facts, choose: Choose | None) -> Iterator[Row]:
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
        kinds = {field.name: _kind_of_type(field.type) for field in schema}
        wanted = _wanted(Heading(raw.name, schema.names, kinds), choose)
        for column in wanted:
            if column not in schema.names:
                raise no_column(raw.name, column, schema.names)
        row = 0
        try:
            for batch in file.iter_batches(batch_size=512, columns=wanted):
                for values in zip(*(batch.column(name).to_pylist() for name in wanted), strict=True):
                    row += 1
                    yield f"{raw.name}, row {row}", dict(zip(wanted, values, strict=True))
        except (pa.ArrowInvalid, OSError) as error:
            raise _not_parquet(raw, error) from None


def _wanted(heading: Heading, choose: Choose | None) -> list[str]:
    """The columns to read, each there once: of two with one name nobody can say which is meant."""
    wanted = list(dict.fromkeys(choose(heading) if choose else heading.columns))
    for column in wanted:
        if heading.columns.count(column) > 1:
            cause = f'{heading.name}: {heading.columns.count(column)} of its columns are named "{column}"'
            raise SeriatimError("data.column", cause, "give each column a name of its own")
    return wanted


def _kind_of(value: object) -> str:
    if isinstance(value, str | list):
        return "text" if isinstance(value, str) else "list"
    return "number" if isinstance(value, int | float) else "other"


def _kind_of_type(kind: Any) -> str:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "number"
    return "list" if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) else "other"


def _not_parquet(raw: Raw, error: Exception) -> SeriatimError:
    return SeriatimError("data.parquet", f"{raw.name}: not a readable Parquet file ({error})", "check the file")


def csv_rows(raw: Raw, reader: Any, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    """What a reader of `csv` gives, with the line each row begins on; broken quoting is trouble."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            facts.trouble(SeriatimError("data.csv", f"{raw.name}, line {line}: {error}", "mend the quoting there"))
            continue
        if row is None:
            return
        yield line, row


def _checked(raw: Raw, reader: Any, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each begins on; a row of another width than the first is trouble."""
    width = 0
    for line, row in csv_rows(raw, reader, facts):
        if not row:  # an empty line
            continue
        width = width or len(row)
        if len(row) != width:
            cause = f"{raw.name}, line {line}: {len(row)} columns where the first line has {width}"
            facts.trouble(SeriatimError("data.csv", cause, "mend the line, or quote fields that hold the delimiter"))
            continue
        yield line, row


def delimiter_of(raw: Raw, head: str, facts: Facts) -> str:
    if raw.kind == "tsv":
        return "\t"
    best = max(DELIMITERS, key=head.count)
    if best == "," or head.count(best) == 0 or "," in head:
        return ","
    facts.notes.append(f"{raw.name}: its columns are separated by {DELIMITERS[best]}")
    return best


def only_text(heading: Heading, facts: Facts) -> str:
    """The single column of text, told to the user; a choice that is not ours to make is an error."""
    textual = heading.of("text")
    if len(textual) == 1:
        if len(heading.columns) > 1:
            facts.notes.append(f'{heading.name}: took the text from its only text column "{textual[0]}"')
        return textual[0]
    which = f"{len(textual)} columns of text" if textual else "no column of text"
    raise SeriatimError(
        "data.column",
        f"{heading.name}: has {which}; its columns are: {', '.join(heading.columns)}",
        f"name the column with --column, for example --column {textual[0]}" if textual else "give a file with text",
    )


def _unwritable(value: str) -> str:
    if "\0" in value:
        return "a NUL character"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "half a surrogate pair, which is no character"
    return ""
