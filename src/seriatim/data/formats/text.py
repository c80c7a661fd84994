"""Plain text, by lines or by blocks of lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...core.diagnostics import Diagnostics
from ..location import Location
from ..source import Source
from .base import BLOCK_SIZE, Format, ReadOptions, Record, iterate_lines


class Text(Format):
    """Plain text by lines or blocks. With several files, the extension or folder of each is its label."""

    def sniff(self, source: Source) -> bool:
        return bool(source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        if options.text_unit == "block":
            yield from self._blocks(source, options)
            return
        labels = self.labels(source)
        for location, line in iterate_lines(source, options):
            label = {"label": labels[location.file]} if len(labels) > 1 else {}
            yield Record({"text": line.strip(), **label}, location)

    @staticmethod
    def labels(source: Source) -> dict[str, str]:
        """Returns the label of each file: its folder if there are several, else what differs in the file names."""
        paths = {stream.name: Path(stream.name) for stream in source.streams}
        if len({path.parent for path in paths.values()}) > 1:
            return {name: path.parent.name for name, path in paths.items()}
        prefix = os.path.commonprefix([path.name for path in paths.values()])  # noqa: RUF071 (of characters, as meant)
        return {name: path.name.removeprefix(prefix) for name, path in paths.items()}

    @staticmethod
    def _blocks(source: Source, options: ReadOptions) -> Iterator[Record]:
        block: list[str] = []
        size, start = 0, Location("", 0)
        for location, line in iterate_lines(source, options):
            if block and (size + len(line) > BLOCK_SIZE or location.file != start.file):
                yield Record({"block": "".join(block)}, start)
                block, size = [], 0
            start = start if block else location
            block.append(line + "\n")
            size += len(line) + 1
        if block:
            yield Record({"block": "".join(block)}, start)
