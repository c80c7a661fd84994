"""Answers as a table: a row for each row that came in, written in the form that the file's ending names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seriatim.core.errors import SeriatimError
from seriatim.core.files import atomic_file, write_text

ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet", ".conll", ".conllu", ".txt")


def check_ending(path: Path) -> None:
    """Whether a table can be written there: what takes long asks first."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        cause = f"{path}: cannot write a {ending or 'nameless'} file"
        raise SeriatimError("output.kind", cause, f"end it in {', '.join(ENDINGS)}")


@dataclass(frozen=True)
class Table:
    """Columns and rows. A row of another width is a line between the rows of a CoNLL file, blank or a comment: only
    the forms that have such lines write it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    usual: str = ".tsv"  # the form in which it is shown where no file is named

    @property
    def full(self) -> list[Sequence[Any]]:
        """The rows that have all columns."""
        return [row for row in self.rows if len(row) == len(self.columns)]

    def text(self, ending: str) -> str:
        if ending == ".jsonl":
            records = [dict(zip(self.columns, row, strict=True)) for row in self.full]
            return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        if ending in (".conll", ".conllu", ".txt"):
            return "".join("\t".join(str(_cell(cell)) for cell in row) + "\n" for row in self.rows)
        if ending == ".tsv":
            lines = [self.columns, *self.full]
            return "".join("\t".join(_plain(cell) for cell in line) + "\n" for line in lines)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(cell) for cell in row] for row in self.full)
        return out.getvalue()

    def write(self, path: str | Path) -> None:
        path = Path(path)
        check_ending(path)
        ending = path.suffix.lower()
        if ending == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            columns = zip(*self.full, strict=True)
            values = [list(column) for column in columns] or [[] for _ in self.columns]
            try:
                table = pa.table(values, names=list(self.columns))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                cause = f"{path}: a column holds values of several kinds: {error}"
                raise SeriatimError("output.kind", cause, "write a .jsonl file") from None
            with atomic_file(path) as aside:
                pq.write_table(table, aside)
            return
        write_text(path, self.text(ending))


def _cell(value: Any) -> Any:
    """Lists as JSON, nothing as nothing; numbers as short as they can be said."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value


def _plain(value: Any) -> str:
    """A cell of a file without quoting: white space that would end it is written as an escape."""
    return str(_cell(value)).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
