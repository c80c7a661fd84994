"""Bulk reading: from large files to a table on disk, block by block.

A block is some megabytes of whole lines. Arrow parses it if it is well-formed, that is, if it has as many rows as
lines: then the line of each row is known without looking at it. Any other block is read by the `Format`, which knows
what to do with blank lines, line ends in cells, rows with too many cells, and reports problems by file and line. A bad
row thus costs the speed of its block, not of its file.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from ..core import limits
from ..core.errors import Diagnostics
from ..core.files import cache_folder, locked
from .cache import cache_errors
from .dataset import Column, Dataset
from .disk import Locations, Table, TableWriter, TextValues, cache_key, to_strings
from .formats import BLOCK_SIZE, Delimited, Format, JsonLines, ReadOptions, Record, Text, find_format
from .formats.tables import TableFormat
from .kinds import LABEL, TEXT, Kind
from .schema import Roles
from .source import Source, Stream
from .stream import find_byte_order_mark, reading

BLOCK_BYTES = 1 << 25  # bytes of a block, which becomes a shard
CHECKED_BYTES = 1 << 20  # that are decoded or counted at a time
Cells = dict[str, pa.Array]  # column → cells
ParseRecords = Callable[[Iterator[Record], Diagnostics], Dataset]


class Block(NamedTuple):
    data: bytes  # UTF-8, whole lines, each with its line end
    first_line: int
    raw: bytes  # as in the file
    end: int  # bytes of the file up to here


@dataclass(frozen=True)
class BlockParser:
    """How Arrow parses the blocks of a file.

    Args:
        names: The columns to read.
        options: Of the reader, with the text unit of the schema.
        delimiter: Of a table; "" if the file is none.
        all_names: All columns of a table, in order.
        header: The header line of a table, if it has one.
        label: Of each row, if the file is one of several of plain text.
    """

    names: tuple[str, ...]
    options: ReadOptions
    delimiter: str = ""
    all_names: tuple[str, ...] = ()
    header: bytes = b""
    label: str | None = None

    def delimited(self, data: bytes) -> Cells:
        quoting = self.delimiter != "\t"
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            pyarrow.csv.ReadOptions(column_names=list(self.all_names), block_size=1 << 22),
            pyarrow.csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char='"' if quoting else False,
                newlines_in_values=quoting and b'"' in data,
                ignore_empty_lines=False,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.large_string()),
                include_columns=list(self.names),
                strings_can_be_null=False,
            ),
        )
        return {name: table[name].combine_chunks() for name in self.names}

    def json_lines(self, data: bytes) -> Cells:
        schema = pa.schema([(name, pa.large_string()) for name in self.names])
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            pyarrow.json.ReadOptions(block_size=1 << 22),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        if any(table[name].null_count for name in self.names):
            raise pa.ArrowInvalid("a cell is null or missing")  # the format reports which
        return {name: table[name].combine_chunks() for name in self.names}

    def text_lines(self, data: bytes) -> Cells:
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A).astype(np.int64) + 1
        cells = {"text": pc.utf8_rtrim(strings_at(data, np.concatenate([[0], ends])), "\n")}
        if self.label is not None:
            cells["label"] = pa.repeat(to_strings([self.label])[0], len(ends))
        return {name: cells[name] for name in self.names}


def strings_at(data: bytes, offsets: np.ndarray) -> pa.LargeStringArray:
    """Returns the strings between these offsets, without a copy."""
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def block_bounds(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the byte and the line at which each block of plain text begins, and their ends; see `BLOCK_SIZE`."""
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content == 0x0A).astype(np.int64) + 1
    byte_at = np.concatenate([[0], ends])
    lines, total = [0], len(ends)
    at = byte_at.copy()  # characters before each line
    if not data.isascii():
        continuation = np.zeros(len(byte_at), dtype=np.int64)  # bytes of each line that begin no character
        for start in range(0, len(content), CHECKED_BYTES):
            positions = np.flatnonzero((content[start : start + CHECKED_BYTES] & 0xC0) == 0x80) + start
            of_line = np.searchsorted(byte_at, positions, side="right") - 1
            continuation += np.bincount(of_line, minlength=len(byte_at))
        at[1:] -= np.cumsum(continuation[:-1])
    while lines[-1] < total:
        start = lines[-1]
        end = int(np.searchsorted(at, at[start] + BLOCK_SIZE + 1, side="right")) - 1
        lines.append(max(end, start + 1))
    bounds = np.array(lines)
    return byte_at[bounds], bounds


# Blocks of a file


def read_blocks(stream: Stream, encoding: str, position: Mapping[str, int], quoting: bool) -> Iterator[Block]:
    """Yields a file in blocks of whole lines, from a position (`end` and `line` of the block before) on.

    With `quoting`, quotes may hold line ends: a block then ends where the number of quotes is even. A line must end
    with the byte 0x0A.
    """
    end, line, rest = position.get("end", 0), position.get("line", 0), b""
    utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8", "ascii")
    with reading(stream.name), stream.open() as file:
        skip(file, end)
        while True:
            fresh = file.read(BLOCK_BYTES)
            raw, last = rest + fresh, not fresh
            cut = len(raw) if last else find_cut(raw, quoting)
            if cut == 0 and not last:
                limits.LINE_CHARACTERS.check(len(raw), f"{stream.name}, line {line + 1}")
                rest = raw
                continue
            part, rest = raw[:cut], raw[cut:]
            raw = fresh = b""  # free their memory
            if part:
                first, end, line = line + 1, end + len(part), line + part.count(b"\n") + (not part.endswith(b"\n"))
                try:
                    data = check_utf8(part, encoding) if utf8 else part.decode(encoding).encode()
                except UnicodeDecodeError as error:
                    raise stream.encoding_error(error, encoding, first, end - len(part)) from None
                if b"\0" in part:
                    raise stream.binary_error(first + part.count(b"\n", 0, part.index(b"\0")))
                data = (data.removeprefix(b"\xef\xbb\xbf") if first == 1 else data).replace(b"\r\n", b"\n")
                yield Block(data if data.endswith(b"\n") else data + b"\n", first, part, end)
            if last:
                return


def check_utf8(data: bytes, encoding: str) -> bytes:
    """Returns the data, or raises an error if it is not UTF-8 or ASCII: Arrow does not check text it does not parse.

    It is decoded in pieces, since a Python string takes up to four times the memory.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for start in range(0, len(data), CHECKED_BYTES):
            decoder.decode(data[start : start + CHECKED_BYTES], final=start + CHECKED_BYTES >= len(data))
    except UnicodeDecodeError:
        data.decode(encoding)  # raises the error with the position in the whole of it
        raise
    return data


def skip(file: io.BufferedIOBase, count: int) -> None:
    """Moves to a position from the start of a file; a compressed one is read up to there."""
    if count and file.seekable():
        file.seek(count)
    while count and not file.seekable():
        count -= len(file.read(min(count, BLOCK_BYTES)))


def find_cut(data: bytes, quoting: bool) -> int:
    """Returns the end of the last line, outside quotes; 0 if there is none."""
    if not quoting or b'"' not in data:
        return data.rfind(b"\n") + 1
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content == 0x0A)
    quotes = np.searchsorted(np.flatnonzero(content == 0x22), ends)  # before each line end
    even = ends[quotes % 2 == 0]
    return int(even[-1]) + 1 if len(even) else 0


# Tables


def can_read(source: Source, options: ReadOptions, kinds: Mapping[str, Kind], separator: str | None) -> bool:
    """Returns whether a source is so large that it is read to disk, and of a format and kinds that can be."""
    if sum(stream.size for stream in source.streams) <= options.memory_limit:
        return False
    if any(kind not in (TEXT, LABEL) for kind in kinds.values()) or separator is not None:
        return False
    known = all(stream.stamp is not None for stream in source.streams) and "\n".encode(options.encoding) == b"\n"
    plain = options.errors == "strict" and options.text_unit != "document"
    if not (known and plain and isinstance(find_format(source, options), (Delimited, JsonLines, Text))):
        return False
    return all(find_byte_order_mark(stream.first_bytes())[1] in ("", "utf-8") for stream in source.streams)


def read_table(
    source: Source,
    options: ReadOptions,
    roles: Roles,
    kinds: Mapping[str, Kind],
    parse_records: ParseRecords,
    diagnostics: Diagnostics,
) -> Dataset:
    """Returns the data set of a large source, from the cache if it was read before; one with problems is not kept.

    `parse_records` parses the records of a block that Arrow cannot parse.
    """
    format = find_format(source, options)
    streams = _data_streams(source, format, options, diagnostics)
    names = tuple(dict.fromkeys(name for columns in roles.values() for name in columns))
    labels = {name for role, columns in roles.items() if kinds[role] is LABEL for name in columns}
    parsers = [_block_parser(stream, streams, format, options, names) for stream in streams]
    layouts = [[parser.delimiter, parser.all_names, parser.header.decode(), parser.label] for parser in parsers]
    stamps = [[stream.name, stream.stamp] for stream in streams]
    how = [type(format).__name__, options.encoding, options.text_unit, options.positions, options.join_extra, layouts]
    with cache_errors():
        folder = cache_folder("tables", cache_key(stamps, how, names, sorted(labels)))
        table = Table.open(folder)
        if table is None:
            with locked(folder / "lock"):  # of several ranks one reads, and the others wait
                table = Table.open(folder)
                if table is None:
                    writer, problems = TableWriter(folder), Diagnostics()
                    for index, (stream, parser) in enumerate(zip(streams, parsers, strict=True)):
                        if index >= writer.position.get("file", 0):
                            _write_file(writer, index, stream, parser, format, labels, parse_records, problems)
                    diagnostics.problems += problems.problems
                    if problems.problems:
                        diagnostics.raise_problems()
                    table = writer.finish(source.name, [stream.name for stream in streams])
    columns = {
        role: tuple(Column(name, kinds[role], TextValues(table, name)) for name in columns)
        for role, columns in roles.items()
    }
    return Dataset(source.name, columns, Locations(table))


def _data_streams(source: Source, format: Format, options: ReadOptions, diagnostics: Diagnostics) -> list[Stream]:
    """Returns the files of a source that its format reads."""
    if isinstance(format, Text):
        return format.text_streams(source, options, diagnostics)
    return format.tables(source, diagnostics) if isinstance(format, TableFormat) else list(source.streams)


def _write_file(
    writer: TableWriter,
    index: int,
    stream: Stream,
    parser: BlockParser,
    format: Format,
    labels: set[str],
    parse_records: ParseRecords,
    diagnostics: Diagnostics,
) -> None:
    position = writer.position if writer.position.get("file") == index else {}
    names, options = parser.names, parser.options
    quoting = bool(parser.delimiter) and parser.delimiter != "\t"
    blocks = read_blocks(stream, options.encoding, position, quoting)
    if isinstance(format, Text) and options.text_unit == "block":
        for data, offsets, lines, end in join_blocks(blocks):
            writer.write({names[0]: strings_at(data, offsets)}, index, lines, {"file": index, **end})
        return
    for block in blocks:
        skipped = len(parser.header) if block.first_line == 1 else 0
        first_line = block.first_line + (skipped > 0)
        cells, lines = _parse_block(
            block.data[skipped:], first_line, parser, format, stream, parse_records, diagnostics
        )
        for name in labels:
            trimmed = pc.utf8_trim_whitespace(cells[name])
            missing = pc.equal(pc.utf8_lower(trimmed), to_strings(["nan"])[0])  # as `parse_label` reads it
            cells[name] = pc.if_else(missing, to_strings([""])[0], trimmed)
        end = {"file": index, "end": block.end, "line": block.first_line - 1 + block.data.count(b"\n")}
        if len(lines) and not diagnostics.problems:  # later shards are not written, so that a second reading finds them
            writer.write({name: cells[name] for name in names}, index, lines, end)


def join_blocks(blocks: Iterator[Block]) -> Iterator[tuple[bytes, np.ndarray, np.ndarray, dict[str, int]]]:
    """Yields the text, the offsets, the first lines and the position behind the blocks of plain text.

    The last one of a block of the file is not complete: it is joined with the next block.
    """
    rest, raw_rest, line, end = b"", b"", 0, 0
    for block in blocks:
        line = line or block.first_line
        data, raw, end = rest + block.data, raw_rest + block.raw, block.end
        offsets, lines = block_bounds(data)
        rest = data[offsets[-2] :]
        raw_rest = raw[len(raw) - len(rest) :] if len(raw) == len(data) else raw[line_start(raw, int(lines[-2])) :]
        if len(offsets) > 2:
            position = {"end": end - len(raw_rest), "line": line + int(lines[-2]) - 1}
            yield data, offsets[:-1], line + lines[:-2], position
        line += int(lines[-2])
    if rest:
        offsets, lines = block_bounds(rest)
        if not raw_rest.endswith(b"\n"):  # the last line has no end
            offsets = np.append(offsets[:-1], len(rest) - 1)
        yield rest, offsets, line + lines[:-1], {"end": end, "line": line + int(lines[-1]) - 1}


def line_start(data: bytes, line: int) -> int:
    """Returns the byte at which a line begins, counted from 0."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A)
    return int(ends[line - 1]) + 1 if line else 0


def _block_parser(
    stream: Stream, streams: list[Stream], format: Format, options: ReadOptions, names: tuple[str, ...]
) -> BlockParser:
    if isinstance(format, Delimited):
        first_line = next(stream.lines(options.encoding), "")
        layout = format.layout(stream, first_line, options, Diagnostics())
        header = first_line.encode() if layout.has_header else b""
        return BlockParser(names, options, layout.delimiter, layout.names, header)
    labels = format.labels(streams) if isinstance(format, Text) else {}
    return BlockParser(names, options, label=labels.get(stream.name))


def _parse_block(
    data: bytes,
    first_line: int,
    parser: BlockParser,
    format: Format,
    stream: Stream,
    parse_records: ParseRecords,
    diagnostics: Diagnostics,
) -> tuple[Cells, np.ndarray]:
    """Returns the cells of a block with the line of each row: parsed by Arrow, else by the format."""
    rows = data.count(b"\n")
    if isinstance(format, Text):
        return parser.text_lines(data), first_line + np.arange(rows)
    try:
        cells = parser.delimited(data) if isinstance(format, Delimited) else parser.json_lines(data)
        well_formed = all(len(column) == rows for column in cells.values())
    except (pa.ArrowInvalid, KeyError):
        well_formed = False
    if well_formed:
        return cells, first_line + np.arange(rows)
    has_header = bool(parser.header)
    options = replace(
        parser.options,
        encoding="utf-8",
        is_header=lambda cells: has_header,
        first_line=first_line - (1 if has_header else 0),
    )
    part = Stream(stream.name, stream.extension, lambda: io.BytesIO(parser.header + data))
    dataset = parse_records(format.records(Source(stream.name, (part,)), options, diagnostics), diagnostics)
    columns = {column.name: column.values for columns in dataset.columns.values() for column in columns}
    cells = {name: to_strings(columns[name].tolist()) for name in parser.names}
    return cells, np.array([location.number for location in dataset.locations], dtype=np.int64)
