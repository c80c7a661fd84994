"""CoNLL: one token per line with its columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ...core.diagnostics import Diagnostics
from ..location import Location
from ..source import Source, Stream
from .base import Format, ReadOptions, Record, iterate_lines


class Conll(Format):
    """One token per line with its columns, an empty line between sentences: CoNLL 2003 and CoNLL-U."""

    EXTENSIONS = ("conll", "conllu", "iob", "bio")
    UNIVERSAL = ("id", "tokens", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

    def sniff(self, source: Source) -> bool:
        return bool(source.streams) and all(self._is_conll(stream) for stream in source.streams)

    def _is_conll(self, stream: Stream) -> bool:
        if stream.extension in self.EXTENSIONS:
            return True
        lines = stream.read_head().split("\n")[:-1]  # the last line may be cut
        widths = {len(line.split()) for line in lines if line.strip() and not line.startswith("# ")}
        return stream.extension not in ("csv", "tsv") and len(widths) == 1 and widths.pop() > 1 and "" in lines

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        sentence: list[list[str]] = []
        start = Location(source.name, 1)
        end = (Location(source.name, 0), "")
        for location, line in itertools.chain(iterate_lines(source, options), [end]):
            if line.startswith("# ") and "\t" not in line and not sentence:  # a comment; a hashtag would have a tag
                continue
            if line.strip():
                cells = line.split("\t") if "\t" in line else line.split()
                start = start if sentence else location
                if sentence and len(cells) != len(sentence[0]):
                    cause = f"{location}: {len(cells)} columns, but the sentence has {len(sentence[0])}"
                    diagnostics.report("data.conll", cause, "separate sentences by an empty line")
                elif not re.fullmatch(r"\d+[-.]\d+", cells[0]):  # CoNLL-U: contractions and empty words
                    sentence.append(cells)
            elif sentence:
                columns = [list(cells) for cells in zip(*sentence, strict=True)]
                yield Record(dict(zip(self._column_names(len(columns)), columns, strict=True)), start)
                sentence = []

    def _column_names(self, count: int) -> tuple[str, ...]:
        if count == len(self.UNIVERSAL):
            return self.UNIVERSAL
        last = "tags" if count == 2 else f"column {count}"
        return ("tokens", *(f"column {n}" for n in range(2, count)), last)[:count]
