"""Folders of classes, a file for each row: texts or images, and images without classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from ...core.diagnostics import Diagnostics
from ...core.errors import SeriatimError
from ..images.kind import is_image_name
from ..kinds import SPLIT_ALIASES
from ..location import Location
from ..source import Source
from ..stream import Stream
from .base import Format, ReadOptions, Record
from .tables import TABLE_EXTENSIONS

UNLABELED = frozenset(("unsup", "unlabelled", "unlabeled"))


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
            streams = [stream for stream in streams if not stream.is_binary()]
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
                names = ", ".join(streams[row].name for row in left_out[:3])
                diagnostics.note(f"{len(left_out):,} files without a class are left out: {names}")
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
    paths = [PurePosixPath(stream.name).parts[1:] for stream in streams]
    while paths and all(paths) and len({path[0] for path in paths}) == 1:
        shortest = 1 if paths[0][0].lower() in SPLIT_ALIASES else 2  # files beside the classes of a split are possible
        if not all(len(path) > shortest for path in paths):
            break
        paths = [path[1:] for path in paths]  # a folder around all others tells nothing
    return paths


def image_cell(stream: Stream) -> Any:
    """Returns the path of an image file, or the bytes of one in an archive."""
    path = stream.path
    return path if path is not None and is_image_name(path) else stream.read_bytes()
