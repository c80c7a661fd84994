"""The texts of a source one after the other, row N for row N, so that it may be larger than the memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from . import tables
from .decoding import BLOCK, Facts, Raw, decode
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

    def __iter__(self) -> Iterator[str]:
        for raw in self.found.raws:
            yield from self._rows(raw)

    @cached_property
    def size(self) -> int | None:
        """About how many there are; None for packed files, which would have to be unpacked for it."""
        if any(file.suffix.lower() in (".gz", ".zip") for file in self.found.files):
            return None
        return sum(_parquet_rows(raw) if raw.kind == "parquet" else _line_ends(raw) for raw in self.found.raws)

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


def _line_ends(raw: Raw) -> int:
    with raw.open() as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b""))


def _parquet_rows(raw: Raw) -> int:
    import pyarrow.parquet as pq

    with raw.open() as file:
        return int(pq.ParquetFile(file).metadata.num_rows)
