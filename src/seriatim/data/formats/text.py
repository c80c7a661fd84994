"""Plain text: by lines, by blocks of lines, or by files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from ...core.diagnostics import Diagnostics
from ..location import Location
from ..source import Source, Stream
from ..stream import COMPRESSED
from .base import BLOCK_SIZE, Format, ReadOptions, Record


class Text(Format):
    """Plain text. A line is in the column "text", a block of lines in "block", a whole file in "text".

    Of several files that are read by lines, each is a class: what differs in their names is in the column "label".
    """

    def sniff(self, source: Source) -> bool:
        single = len(source.streams) == 1
        return any(not is_binary_file(stream, single) for stream in source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        streams = self.text_streams(source, options, diagnostics)
        labels = self.labels(streams) if options.text_unit == "line" else {}
        for stream in streams:
            if options.text_unit == "document":
                text = stream.read_text(options.encoding, options.errors)
                yield Record({"text": text}, Location(stream.name, 1))
                continue
            lines = stream.lines(options.encoding, options.errors, diagnostics)
            if options.text_unit == "block":
                yield from self._blocks(stream.name, lines, options.first_line)
                continue
            label = {"label": labels[stream.name]} if stream.name in labels else {}
            for number, line in enumerate(lines, options.first_line):
                yield Record({"text": line.removesuffix("\n"), **label}, Location(stream.name, number))

    @staticmethod
    def text_streams(source: Source, options: ReadOptions, diagnostics: Diagnostics) -> list[Stream]:
        """Returns the files of text; others are left out with a note, and so is README if lines are read."""
        single = len(source.streams) == 1
        streams = source.data_streams if options.text_unit == "line" else source.streams
        binary = [stream for stream in streams if is_binary_file(stream, single)]
        if binary:
            names = ", ".join(stream.name for stream in binary[:3]) + (", …" if len(binary) > 3 else "")
            files = "1 binary file is" if len(binary) == 1 else f"{len(binary):,} binary files are"
            diagnostics.note(f"{source.name}: {files} skipped: {names}")
        return [stream for stream in streams if stream not in binary]

    @staticmethod
    def labels(streams: Sequence[Stream]) -> dict[str, str]:
        """Returns the label of each of several files: its folder if there are several, else its class name."""
        if len(streams) < 2:
            return {}
        paths = [PurePosixPath(stream.name) for stream in streams]
        if len({path.parent for path in paths}) > 1:
            return {stream.name: path.parent.name for stream, path in zip(streams, paths, strict=True)}
        names = class_names([path.name for path in paths])
        return {stream.name: name for stream, name in zip(streams, names, strict=True)}

    @staticmethod
    def _blocks(name: str, lines: Iterator[str], first_line: int) -> Iterator[Record]:
        block: list[str] = []
        size, start = 0, first_line
        for number, line in enumerate(lines, first_line):
            if block and size + len(line.removesuffix("\n")) > BLOCK_SIZE:
                yield Record({"block": "".join(block)}, Location(name, start))
                block, size, start = [], 0, number
            block.append(line)
            size += len(line)
        if block:
            yield Record({"block": "".join(block)}, Location(name, start))


def is_binary_file(stream: Stream, single: bool) -> bool:
    """Returns whether a file is skipped as binary. A single file is read unless its extension tells that it is:
    the line of a NUL byte in it is then reported."""
    return stream.is_binary() and (not single or stream.has_binary_extension())


def class_names(names: Sequence[str]) -> list[str]:
    """Returns what differs in file names: the extensions of film.neg and film.pos, the stems of neg.txt and pos.txt."""
    plain = [PurePosixPath(name).stem if PurePosixPath(name).suffix in COMPRESSED else name for name in names]
    if len({PurePosixPath(name).suffix for name in plain}) == 1:
        plain = [PurePosixPath(name).stem for name in plain]
    extensions = [PurePosixPath(name).suffix for name in plain]
    if len({PurePosixPath(name).stem for name in plain}) == 1 and len(set(extensions)) > 1 and all(extensions):
        return [extension[1:] for extension in extensions]
    return [PurePosixPath(name).stem or name for name in plain] if len(set(extensions)) > 1 else plain
