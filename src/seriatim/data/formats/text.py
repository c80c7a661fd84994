"""Files that are no tables: plain text, two aligned texts, and folders of classes with a text or image in each file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path, PurePath, PurePosixPath

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed, plural
from ..images import is_image_name
from ..kinds import SPLIT_ALIASES
from ..source import Source, Stream
from ..stream import COMPRESSED, Location
from .base import BLOCK_SIZE, Format, ReadOptions, Record
from .tables import TABLE_EXTENSIONS

NOT_TEXT = ("npy", "npz", "csv", "mat", "parquet")  # two files of these are two arrays, no pair of texts
UNLABELED = frozenset(("unsup", "unlabelled", "unlabeled"))


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
        rows = 0
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
                rows += 1
        if "label" in options.header_names and not options.predicting and 1 < rows == len(set(labels.values())):
            cause = f"{source.name}: has no folders of classes, and each of its {rows:,} files has a single line"
            remedy = "name the folder above, if that has a folder for each class, or pass a file of rows for each class"
            raise SeriatimError("data.column", cause, remedy)

    @staticmethod
    def text_streams(source: Source, options: ReadOptions, diagnostics: Diagnostics) -> list[Stream]:
        """Returns the files of text; others are left out with a note, and so is README if lines are read."""
        single = len(source.streams) == 1
        streams = source.data_streams if options.text_unit == "line" else source.streams
        binary = [stream for stream in streams if is_binary_file(stream, single)]
        if binary:
            names = listed([stream.name for stream in binary], 3)
            files = plural(len(binary), "binary file is", "binary files are")
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
    """Returns whether a file is skipped as binary. A single file is read unless it has a binary extension:
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


class Aligned(Format):
    """Two aligned files, such as train.en and train.fr: line N of one belongs to line N of the other.

    The columns are the extensions if these differ (en, fr), else `source` and `target`.
    """

    def sniff(self, source: Source) -> bool:
        return source.aligned and not any(stream.extension in NOT_TEXT for stream in source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        first, second = source.streams
        names = [PurePath(stream.name.removesuffix(".gz")).suffix.removeprefix(".") for stream in (first, second)]
        names = names if all(names) and names[0] != names[1] else ["source", "target"]
        sides = [stream.lines(options.encoding) for stream in (first, second)]
        counts = [0, 0]
        for number, lines in enumerate(zip_longest(*sides), options.first_line):
            counts = [count + (line is not None) for count, line in zip(counts, lines, strict=True)]
            if None not in lines:
                cells = [str(line).removesuffix("\n") for line in lines]
                yield Record(dict(zip(names, cells, strict=True)), Location(first.name, number))
        if counts[0] != counts[1]:
            cause = (
                f"{first.name} has {counts[0]:,} lines and {second.name} has {counts[1]:,}: line N of one must be the "
                "translation of line N of the other"
            )
            remedy = "pass two files with the same number of lines; a line without a translation is empty"
            diagnostics.report("data.pair", cause, remedy)


class ClassFolders(Format):
    """A folder for each class, a file for each row. The contents are in the column "text" or "image", the class is in
    "label". Image files that are in no folders of classes have no label."""

    def usable(self, options: ReadOptions) -> bool:
        return options.text_unit == "line"  # else the files are one text

    def matches(self, source: Source, options: ReadOptions) -> bool:
        """Images are read by any task, texts only by one that needs labels."""
        return super().matches(source, options) and (holds_images(source) or "label" in options.header_names)

    def sniff(self, source: Source) -> bool:
        tables = any(stream.extension in TABLE_EXTENSIONS for stream in source.streams)
        if source.aligned or tables or not source.streams:
            return False
        streams = source.data_streams
        return holds_images(source) or (len(streams) > 1 and any(len(path) > 1 for path in class_paths(streams)))

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        images = holds_images(source)
        streams = [stream for stream in source.data_streams if is_image_name(stream.name) == images]
        if not images:
            streams = [stream for stream in streams if not stream.has_binary_extension()]
        paths = class_paths(streams)
        if "label" in options.header_names and not options.predicting:
            labeled = [row for row, path in enumerate(paths) if len(path) > 1 and path[0].lower() not in UNLABELED]
            if not labeled:
                cause = f"{source.name}: its images have no labels"
                remedy = "put them into a folder for each class, or pass a table with their paths and labels"
                raise SeriatimError("data.column", cause, remedy)
            diagnostics.note(f"{source.name}: a folder for each class, a file for each row")
            left_out = sorted(set(range(len(streams))) - set(labeled))
            if left_out:
                names = listed([streams[row].name for row in left_out[:3]], 3, total=len(left_out))
                files = plural(len(left_out), "file without a class is", "files without a class are")
                diagnostics.note(f"{files} left out: {names}")
        else:
            labeled = list(range(len(streams)))
        for row in labeled:
            stream, label = streams[row], {"label": paths[row][0]} if len(paths[row]) > 1 else {}
            location = Location(stream.name, 1, "")
            if images:
                yield Record({"image": image_cell(stream), **label}, location)
            else:
                text = stream.read_text(options.encoding, options.errors).removesuffix("\n")
                yield Record({"text": text, **label}, location)


def holds_images(source: Source) -> bool:
    """Returns whether most files are images."""
    images = sum(is_image_name(stream.name) for stream in source.streams)
    return 2 * images > len(source.streams)


def class_paths(streams: Sequence[Stream]) -> list[tuple[str, ...]]:
    """Returns the path of each file below the folder that holds the folders of classes."""
    paths = [stream.parts[1:] for stream in streams]
    while paths and all(paths) and len({path[0] for path in paths}) == 1:
        shortest = 1 if paths[0][0].lower() in SPLIT_ALIASES else 2  # files beside the classes of a split are possible
        if not all(len(path) > shortest for path in paths):
            break
        paths = [path[1:] for path in paths]  # a folder around all others is no label
    return paths


def image_cell(stream: Stream) -> Path | bytes:
    """Returns the path of an image file, or the bytes of one in an archive."""
    path = stream.path
    return path if path is not None and is_image_name(path) else stream.read_bytes()
