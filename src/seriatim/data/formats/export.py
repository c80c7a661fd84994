"""Tables of predictions as files: TSV, CSV, JSON Lines, Parquet, or lines as of CoNLL, by the extension of the path."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...core.errors import SeriatimError
from ...core.files import atomic_file
from ..kinds import Cell

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".parquet", ".conll", ".conllu", ".txt")
BATCH_ROWS = 10_000  # of a Parquet file that are converted at once

Row = Sequence[Cell]


def check_extension(path: str | Path) -> str:
    """Returns the extension of a table's path, or raises an error: to be called before a long computation."""
    extension = Path(path).suffix.lower()
    if extension not in EXTENSIONS:
        cause = f"{path}: cannot write a {extension or 'nameless'} file"
        raise SeriatimError("output.kind", cause, f"let the name end with {', '.join(EXTENSIONS)}")
    return extension


def format_table(columns: Sequence[str], rows: Iterable[Row], extension: str = ".tsv") -> Iterator[str]:
    """Yields the lines of a table, with their ends.

    Args:
        columns: The names.
        rows: The cells of each row. A row of another width is a line between rows of a CoNLL file, empty or a
            comment; other formats leave it out.
        extension: One of `EXTENSIONS`, except Parquet.
    """
    if extension in (".conll", ".conllu", ".txt"):
        for row in rows:
            yield "\t".join(str(_plain_cell(cell)) for cell in row) + "\n"
        return
    complete = (row for row in rows if len(row) == len(columns))
    if extension == ".jsonl":
        for row in complete:
            yield json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=_to_plain) + "\n"
    elif extension == ".tsv":
        for row in itertools.chain([columns], complete):
            yield "\t".join(_escape(cell) for cell in row) + "\n"
    else:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        for row in itertools.chain([columns], complete):
            writer.writerow([_plain_cell(cell) for cell in row])
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()


def write_table(path: str | Path, columns: Sequence[str], rows: Iterable[Row]) -> int:
    """Writes a table row by row to a file that appears complete or not at all, and returns the number of rows.

    Args:
        path: Its extension tells the format.
        columns: The names.
        rows: The cells of each row; see `format_table`.
    """
    extension, count = check_extension(path), 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += len(row) == len(columns)
            yield row

    with atomic_file(path) as temporary:
        if extension == ".parquet":
            _write_parquet(path, temporary, columns, counted())
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.writelines(format_table(columns, counted(), extension))
    return count


def write_records(path: str | Path, records: Iterable[Mapping[str, Cell]]) -> int:
    """Writes records, such as `Predictions`, as a table; the columns are those of the first one."""
    iterator = iter(records)
    first = next(iterator, {})
    columns = list(first)
    rows = ([record.get(name) for name in columns] for record in itertools.chain([first] if first else [], iterator))
    return write_table(path, columns, rows)


def _write_parquet(path: str | Path, temporary: Path, columns: Sequence[str], rows: Iterator[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    complete = (row for row in rows if len(row) == len(columns))
    try:
        batches = [pa.table([[] for _ in columns], names=list(columns))]
        while batch := list(itertools.islice(complete, BATCH_ROWS)):
            cells = [list(column) for column in zip(*batch, strict=True)]
            batches.append(pa.table(cells, names=list(columns)))
        pyarrow.parquet.write_table(pa.concat_tables(batches, promote_options="permissive"), temporary)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        cause = f"{path}: a column holds values of several kinds: {error}"
        raise SeriatimError("output.kind", cause, "write a .jsonl file") from None


def _plain_cell(value: Cell) -> Cell:
    """Returns lists and objects as JSON, and None as nothing."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=_to_plain) if isinstance(value, (list, tuple, dict)) else value


def _to_plain(value: Cell) -> Cell:
    """Returns an array or a scalar of NumPy as a Python value, and anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _escape(value: Cell) -> str:
    """Returns a cell of a file without quoting: white space that would end it is written as an escape."""
    text = str(_plain_cell(value))
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
