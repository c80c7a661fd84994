"""The texts of a source one after the other, row N for row N, so that it may be larger than the memory."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from . import tables
from .decoding import Facts, Raw, decode
from .sources import blocks, find


class TextRows:
    """The lines of text files and the rows of tables, empty ones too: each text has its place in what comes out.

    `column` names that of a table; without it `known`, the column of the training, is taken where the table has it,
    else the only one of text.
    """

    def __init__(
        self,
        source: str,
        column: str | None = None,
        known: str | None = None,
        encoding: str = "utf-8",
        data_dir: str | None = None,
    ) -> None:
        self.found = find(source, data_dir)
        self.column, self.known, self.encoding = column, known, encoding
        self.facts = Facts(notes=list(self.found.notes))
        self.sizes = [file.stat().st_size for file in self.found.files]
        self._before = 0  # bytes of the files that are read
        self._stream: io.BufferedReader | None = None  # the file that is being read, …
        self._inside = 0  # … and how far it was when it was last asked

    def __iter__(self) -> Iterator[str]:
        sizes = self.sizes if len(self.found.raws) == len(self.sizes) else [0] * len(self.found.raws)  # an archive
        for raw, size in zip(self.found.raws, sizes, strict=True):
            self._stream = None
            yield from self._rows(replace(raw, open=partial(self._watched, raw)))
            self._stream = None
            self._before += size

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes)

    @property
    def done(self) -> int:
        """Bytes that are read, as far as that can be said."""
        if self._stream is not None and not self._stream.closed:
            self._inside = self._stream.tell()
        return self._before + (self._inside if self._stream is not None else 0)

    def _rows(self, raw: Raw) -> Iterator[str]:
        if raw.kind == "text":
            for line in tables.lines(decode(raw, blocks(raw), self.encoding, self.facts)):
                yield line.removesuffix("\n")
            return
        chosen: list[str] = []

        def choose(heading: tables.Heading) -> list[str]:
            known = self.known if self.known in heading.columns else None
            chosen[:] = [self.column or known or tables.only_text(heading, self.facts)]
            return chosen

        for place, row in tables.rows(raw, self.encoding, self.facts, choose):
            yield tables.text_of(row[chosen[0]], place, chosen[0], self.facts) or ""

    def _watched(self, raw: Raw) -> BinaryIO:
        """The open stream, whose place can be asked for while it is read."""
        stream = raw.open()
        inner = stream.fileobj if isinstance(stream, gzip.GzipFile) else stream
        if isinstance(inner, io.BufferedReader) and raw.kind != "parquet":  # whose rows lie in no order of bytes
            self._stream = inner
        return stream
