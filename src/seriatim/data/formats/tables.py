"""Tables, read and written: columns in memory, CSV and TSV, JSON Lines, arrays of JSON objects, Parquet and Excel."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shutil
import tempfile
import warnings
import zipfile
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar, NamedTuple, cast

import numpy as np

from ...core import limits
from ...core.errors import Diagnostics, SeriatimError
from ...core.files import atomic_file
from ...core.text import listed, plural
from ..kinds import Cell
from ..schema import normalize_name
from ..source import Source, Stream
from ..stream import Location, check_decompressed, parse_json, reading, shorten_error
from .base import Format, ReadOptions, Record

TABLE_EXTENSIONS = ("csv", "tsv", "jsonl", "ndjson", "parquet", "pq", "xlsx", "xlsm")
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
WRITTEN_EXTENSIONS = (".tsv", ".csv", ".jsonl", ".parquet", ".conll", ".conllu", ".txt")
WRITTEN_ROWS = 10_000  # of a Parquet file that are converted at once
MAX_LISTED = 10  # names of columns that occur twice
HEADER_CELL = re.compile(r"[\w .-]+")  # a sentence has other punctuation


Row = Sequence[Cell]


class Memory(Format):
    """Columns in memory."""

    def sniff(self, source: Source) -> bool:
        return source.columns is not None

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        columns = source.columns or {}
        for row, cells in enumerate(zip(*columns.values(), strict=True)):
            yield Record(dict(zip(columns, cells, strict=True)), Location(source.name, row, "row"))


class TableFormat(Format):
    """A format whose files are tables, each by itself. Files of other formats beside them are left out."""

    EXTENSIONS: ClassVar[tuple[str, ...]]

    def sniff(self, source: Source) -> bool:
        tables = [stream for stream in source.streams if stream.extension in TABLE_EXTENSIONS]
        return bool(tables) and tables[0].extension in self.EXTENSIONS and not source.aligned

    def tables(self, source: Source, diagnostics: Diagnostics) -> list[Stream]:
        """Returns the tables of a source: one, or several that are parts of one, as train-0.csv and train-1.csv."""
        tables = [stream for stream in source.streams if stream.extension in TABLE_EXTENSIONS]
        if not tables:
            return list(source.data_streams)
        if len(tables) < len(source.streams):
            others = len(source.streams) - len(tables)
            diagnostics.note(f"{source.name}: {others:,} files that are not tables are left out")
        if len({re.sub(r"\d+", "0", PurePosixPath(table.name).name) for table in tables}) > 1:
            names = listed([table.name for table in tables])
            cause = f"{source.name}: holds {len(tables)} tables: {names}"
            raise SeriatimError("data.several", cause, f"name one of them: --data …/{tables[0].name}")
        return tables

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        for stream in self.tables(source, diagnostics):
            yield from self.table_records(stream, options, diagnostics)

    @abstractmethod
    def table_records(self, stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        """Yields the records of one table."""


class JsonLines(TableFormat):
    """One JSON object per line, in a file with an extension of JSON Lines, or in any that begins with an object."""

    EXTENSIONS = ("jsonl", "ndjson")

    def sniff(self, source: Source) -> bool:
        if any(stream.extension in TABLE_EXTENSIONS for stream in source.streams):
            return super().sniff(source)
        streams = source.data_streams
        return bool(streams) and not source.aligned and all(map(self._has_objects, streams))

    @staticmethod
    def _has_objects(stream: Stream) -> bool:
        """Returns whether the first line of a file is a JSON object, judged by its first bytes."""
        if stream.is_binary():
            return False
        line, end, _ = stream.read_head().lstrip().partition("\n")
        if not line.startswith('{"'):
            return False
        try:
            return isinstance(parse_json(line), dict)
        except ValueError:
            return not end and stream.extension != "json"  # an object longer than the first bytes

    def table_records(self, stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        lines = stream.lines(options.encoding, options.errors, diagnostics)
        for number, line in enumerate(lines, options.first_line):
            if line.isspace():
                continue
            location = Location(stream.name, number)
            try:
                values = parse_json(line)
            except ValueError as error:
                diagnostics.report("data.jsonl", f"{location}: invalid JSON ({error})", "correct or remove the line")
                continue
            if isinstance(values, dict):
                yield Record(values, location)
            else:
                cause = f"{location}: {type(values).__name__}, not an object"
                diagnostics.report("data.jsonl", cause, 'write {"column": value, …}')


class Json(Format):
    """A file with an array of JSON objects, or an object whose member "data" is one."""

    def sniff(self, source: Source) -> bool:
        streams = source.data_streams
        return bool(streams) and all(
            stream.extension == "json" and stream.read_head().lstrip()[:1] in ("[", "{") for stream in streams
        )

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        for stream in source.data_streams:
            try:
                rows = parse_json(stream.read_text(options.encoding, options.errors))
            except ValueError as error:
                raise SeriatimError("data.json", f"{stream.name}: invalid JSON ({error})", "correct the file") from None
            rows = rows.get("data") if isinstance(rows, dict) else rows
            if not isinstance(rows, list):
                raise SeriatimError(
                    "data.json", f"{stream.name}: not an array of objects", 'write [{"column": value}, …]'
                )
            for number, values in enumerate(rows, 1):
                location = Location(stream.name, number, "record")
                if isinstance(values, dict):
                    yield Record(values, location)
                else:
                    cause = f"{location}: {type(values).__name__}, not an object"
                    diagnostics.report("data.json", cause, 'write {"column": value, …}')


class Layout(NamedTuple):
    """The layout of a delimited table, from its first line."""

    delimiter: str
    names: tuple[str, ...]  # of the columns
    has_header: bool


class Delimited(TableFormat):
    """CSV with quoting, or TSV without. A table without a header gets the columns "column 1", "column 2", …"""

    EXTENSIONS = ("csv", "tsv")

    def sniff(self, source: Source) -> bool:
        if any(stream.extension in TABLE_EXTENSIONS for stream in source.streams):
            return super().sniff(source)
        streams = source.data_streams
        return bool(streams) and not source.aligned and all("\t" in stream.read_head() for stream in streams)

    def matches(self, source: Source, options: ReadOptions) -> bool:
        if not self.sniff(source):
            return False
        if any(stream.extension in TABLE_EXTENSIONS for stream in source.streams) or options.tabs == "any":
            return True
        heads = [stream.read_head().split("\n") for stream in source.data_streams]
        complete = [lines[:-1] or lines for lines in heads]  # the last line may be cut
        return options.tabs == "all" and all("\t" in line for lines in complete for line in lines if line.strip())

    def table_records(self, stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        lines = stream.lines(options.encoding, options.errors, diagnostics)
        first_line = next(lines, "")
        layout = self.layout(stream, first_line, options, diagnostics)
        rows = self.rows(stream, itertools.chain([first_line], lines), layout.delimiter, options, diagnostics)
        names, width = layout.names, len(layout.names)
        if layout.has_header:
            next(rows, None)
            for number, row in rows:
                if len(row) == width:
                    yield Record(dict(zip(names, row, strict=True)), Location(stream.name, number))
                elif options.join_extra and len(row) > width > 0:
                    row[width - 1 :] = [layout.delimiter.join(row[width - 1 :])]
                    yield Record(dict(zip(names, row, strict=True)), Location(stream.name, number))
                elif any(row):
                    cause = f"{Location(stream.name, number)}: {len(row)} cells, but the header has {width}"
                    remedy = "correct the line, or quote cells that contain the delimiter"
                    diagnostics.report("data.csv", cause, remedy)
            return
        least = len(options.positions)
        for number, row in rows:
            if len(row) > len(names):
                names = tuple(f"column {n}" for n in range(1, len(row) + 1))
            if len(row) >= least or not any(row):
                row = row or [""]
                cells = row if len(row) >= least else [*row, *([""] * (least - len(row)))]
                yield Record(dict(zip(names, cells, strict=False)), Location(stream.name, number))
            else:
                role, delimiter = options.positions[len(row)], "tab" if layout.delimiter == "\t" else layout.delimiter
                have = plural(len(row), "column")
                cause = (
                    f"{Location(stream.name, number)}: no {role}: it has {have}, the {role} is in column {len(row) + 1}"
                )
                diagnostics.report(
                    "data.csv", cause, f"write {' and '.join(options.positions)} with a {delimiter} between them"
                )

    def layout(self, stream: Stream, first_line: str, options: ReadOptions, diagnostics: Diagnostics) -> Layout:
        """Returns the delimiter and the columns of a table."""
        delimiter = "\t"
        if stream.extension != "tsv" and not (stream.extension != "csv" and "\t" in first_line):
            best = max(DELIMITERS, key=first_line.count)
            delimiter = "," if best == "," or best not in first_line or "," in first_line else best
            if delimiter != ",":
                diagnostics.note(f"{stream.name}: its columns are separated by {DELIMITERS[delimiter]}")
        quiet = Diagnostics()
        _, first = next(self.rows(stream, iter([first_line]), delimiter, options, quiet), (1, []))
        first = [cell.strip() for cell in first]
        if options.headerless and not self.is_header(first, options):
            if delimiter != "\t":
                diagnostics.note(f"{stream.name}: has no header that is known, so the first line is taken for a row")
            return Layout(delimiter, tuple(f"column {n}" for n in range(1, len(first) + 1)), False)
        names = [name or f"column {n}" for n, name in enumerate(first, 1)]
        repeated = {name: count for name, count in sorted(Counter(names).items()) if count > 1}
        for name in itertools.islice(repeated, MAX_LISTED):
            several = [f"{name} (column {n})" for n, other in enumerate(names, 1) if other == name]
            cause = f'{len(several)} of its columns are named "{name}"'
            diagnostics.note(f"{stream.name}: {cause}; they are read as {', '.join(several)}")
        unique = (f"{name} (column {n})" if name in repeated else name for n, name in enumerate(names, 1))
        return Layout(delimiter, tuple(unique), True)

    @staticmethod
    def is_header(cells: list[str], options: ReadOptions) -> bool:
        """Returns whether the first row of a table that may lack a header is one."""
        known = options.is_header(cells)
        if known is not None:
            return known
        return any(HEADER_CELL.fullmatch(cell) and normalize_name(cell) in options.header_names for cell in cells)

    @staticmethod
    def rows(
        stream: Stream, lines: Iterator[str], delimiter: str, options: ReadOptions, diagnostics: Diagnostics
    ) -> Iterator[tuple[int, list[str]]]:
        """Yields the cells of each row with the line it begins on; broken quoting is reported."""
        lines = check_width(stream.name, lines, delimiter, options.first_line)
        if delimiter == "\t":
            for number, line in enumerate(lines, options.first_line):
                yield number, line.removesuffix("\n").split("\t")
            return
        csv.field_size_limit(min(limits.LINE_CHARACTERS.value, 2**31 - 1))
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        number = options.first_line
        while True:
            try:
                for row in reader:
                    yield number, row
                    number = reader.line_num + options.first_line
                return
            except csv.Error as error:
                cause = f"{Location(stream.name, number)}: {error}"
                if "field limit" in str(error):
                    raise limits.LINE_CHARACTERS.error(csv.field_size_limit() + 1, f"{cause}, by its quoting") from None
                diagnostics.report("data.csv", cause, "correct the quoting there")
                number = reader.line_num + options.first_line


def check_width(name: str, lines: Iterable[str], delimiter: str, first_line: int) -> Iterator[str]:
    """Yields lines; raises an error for one with too many cells before it is divided into them."""
    limit = limits.COLUMNS.value
    for number, line in enumerate(lines, first_line):
        if len(line) > limit and (cells := line.count(delimiter) + 1) > limit and '"' not in line:
            raise limits.COLUMNS.error(cells, f"{name}, line {number}")
        yield line


class Parquet(TableFormat):
    """Parquet, read in batches."""

    EXTENSIONS = ("parquet", "pq")
    BATCH_ROWS = 512

    def table_records(self, stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        with reading(stream.name), stream.open() as file, tempfile.TemporaryFile() as spooled:
            seekable: Any = file
            if stream.path is None or stream.path.suffix.lower() not in (".parquet", ".pq"):
                shutil.copyfileobj(cast(BinaryIO, file), spooled)  # the table of contents is at the end
                spooled.seek(0)
                seekable = spooled
            row = 0
            for columns in self._batches(stream.name, seekable):
                for cells in zip(*columns.values(), strict=True):
                    row += 1
                    yield Record(dict(zip(columns, cells, strict=True)), Location(stream.name, row, "row"))

    def _batches(self, name: str, file: BinaryIO) -> Iterator[dict[str, list[Cell]]]:
        """Yields the columns of some rows at a time.

        A few bytes may stand for many rows, and one text in the dictionary of a column for the cells of all of them:
        texts are read as dictionaries, and the size of all cells is checked before they are expanded.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet

        try:
            size = file.seek(0, io.SEEK_END)
            schema = pyarrow.parquet.read_schema(file)
            texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
            table = pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
            metadata = table.metadata
            limits.COLUMNS.check(metadata.num_columns, name)
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            values = sum(group.column(n).num_values for group in groups for n in range(metadata.num_columns))
            limits.CELLS.check(max(values, metadata.num_rows * metadata.num_columns), name)
            read = 0
            for batch in table.iter_batches(self.BATCH_ROWS):
                columns: dict[str, list[Cell]] = {}
                for column_name, column in zip(batch.schema.names, batch.columns, strict=True):
                    if pa.types.is_dictionary(column.type):
                        column = column.dictionary_encode()
                        used, counts = np.unique(column.indices.drop_null().to_numpy(), return_counts=True)
                        distinct = column.dictionary.take(pa.array(used))
                        read += int(counts @ pc.binary_length(distinct).to_numpy(zero_copy_only=False).astype(np.int64))
                        check_decompressed(name, read, size)
                        cells = dict(zip(used.tolist(), distinct.to_pylist(), strict=True)) | {None: None}
                        columns[column_name] = [cells[index] for index in column.indices.to_pylist()]
                    else:
                        read += column.nbytes
                        check_decompressed(name, read, size)
                        columns[column_name] = column.to_pylist()
                yield columns
        except SeriatimError:
            raise
        except Exception as error:  # decoding damaged bytes raises many types
            cause = f"{name}: not a readable Parquet file ({shorten_error(error)})"
            raise SeriatimError("data.parquet", cause, "check the file") from None


class Excel(TableFormat):
    """The first sheet of an Excel workbook; its first row is the header."""

    EXTENSIONS = ("xlsx", "xlsm")
    BATCH_ROWS = 512
    MAX_ROWS = 1 << 20  # of a sheet of Excel

    def table_records(self, stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        try:
            import openpyxl
        except ImportError:
            remedy = "pip install 'seriatim[excel]'"
            raise SeriatimError("dependency.missing", "reading .xlsx files needs openpyxl", remedy) from None
        data = stream.read_bytes()
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                check_decompressed(stream.name, sum(info.file_size for info in archive.infolist()), len(data))
            with warnings.catch_warnings(action="ignore"):  # of what openpyxl leaves out
                book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
                sheet = book.worksheets[0]
                if len(book.worksheets) > 1:
                    diagnostics.note(f'{stream.name}: only the first sheet "{sheet.title}" is read')
                sheet.reset_dimensions()  # what the file says of its size need not be true
                rows = sheet.iter_rows(max_row=self.MAX_ROWS, values_only=True)
                header = [str(cell).strip() if cell is not None else "" for cell in next(rows, ())]
            names = [name or f"column {n}" for n, name in enumerate(header, 1)]
            number = 1
            while True:
                with warnings.catch_warnings(
                    action="ignore"
                ):  # only the warnings of openpyxl, not of the consumer of the records
                    block = list(itertools.islice(rows, self.BATCH_ROWS))
                if not block:
                    return
                for cells in block:
                    number += 1
                    if any(cell is not None for cell in cells):
                        yield Record(dict(zip(names, cells, strict=False)), Location(stream.name, number, "row"))
        except SeriatimError:
            raise
        except Exception as error:  # damaged archives and XML raise many types
            cause = f"{stream.name}: not a readable workbook ({shorten_error(error)})"
            raise SeriatimError("data.excel", cause, "save it again") from None


# Tables of predictions as files: TSV, CSV, JSON Lines, Parquet, or lines as of CoNLL, by the extension of the path


def check_extension(path: str | Path, others: Sequence[str] = ()) -> str:
    """Returns the extension of a table's path, or raises an error: to be called before a long computation.

    Args:
        path: Of the file to write.
        others: Further extensions that can be written.
    """
    extension = Path(path).suffix.lower()
    known = list(dict.fromkeys((*WRITTEN_EXTENSIONS, *others)))
    if extension not in known:
        cause = f"{path}: cannot write a {extension or 'nameless'} file"
        raise SeriatimError("output.kind", cause, f"let the name end with {', '.join(known)}")
    return extension


def format_table(columns: Sequence[str], rows: Iterable[Row], extension: str = ".tsv") -> Iterator[str]:
    """Yields the lines of a table, with their ends.

    Args:
        columns: The names.
        rows: The cells of each row. A row of another width is a line between rows of a CoNLL file, empty or a
            comment; other formats leave it out.
        extension: One of `WRITTEN_EXTENSIONS`, except Parquet.
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
    """Writes a table by the extension of its path, row by row, and returns the number of rows; see `format_table`.

    The file appears complete or not at all.
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
    """Writes records, such as `Predictions`, as a table; the first record gives the columns."""
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
        while batch := list(itertools.islice(complete, WRITTEN_ROWS)):
            cells = [list(column) for column in zip(*batch, strict=True)]
            batches.append(pa.table(cells, names=list(columns)))
        pyarrow.parquet.write_table(pa.concat_tables(batches, promote_options="permissive"), temporary)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        cause = f"{path}: a column holds values of several kinds: {error}"
        raise SeriatimError("output.kind", cause, "write a .jsonl file") from None


def _plain_cell(value: Cell) -> Cell:
    """Returns lists, arrays and objects as JSON, and None as nothing."""
    if value is None:
        return ""
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(plain, ensure_ascii=False, default=_to_plain) if isinstance(plain, (list, tuple, dict)) else plain


def _to_plain(value: Cell) -> Cell:
    """Returns an array or a scalar of NumPy as a Python value, and anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _escape(value: Cell) -> str:
    """Returns a cell of a file without quoting: white space that would end it is written as an escape."""
    text = str(_plain_cell(value))
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
