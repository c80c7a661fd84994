"""Two aligned text files, such as train.en and train.fr: line N of one belongs to line N of the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import PurePath

from ...core.diagnostics import Diagnostics
from ..location import Location
from ..source import Source
from .base import Format, ReadOptions, Record

NOT_TEXT = ("npy", "npz", "csv", "mat", "parquet")  # of which a pair is two arrays


class Aligned(Format):
    """Two aligned files; the columns are the extensions if these differ (en, fr), else `source` and `target`."""

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
