"""Words in context (WiC, Pilehvar and Camacho-Collados 2019): does a word mean the same in two sentences?

    train.data.txt      word ⇥ part of speech ⇥ 2-5 ⇥ sentence ⇥ sentence        the numbers of the word in each
    train.gold.txt      T or F in the same line
    train.jsonl         {"word": …, "sentence1": …, "start1": 8, "end1": 12, "sentence2": …, …, "label": true}

The word is marked in both sentences, so that the pair identifies it: "She sat on the *bank*."
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from ...core.errors import Diagnostics
from ..source import Source, open_source
from ..stream import Location, Stream
from .base import Format, ReadOptions, Record
from .tables import JsonLines, Parquet

DATA, GOLD = ".data.txt", ".gold.txt"
COLUMNS = {"word", "sentence1", "sentence2", "start1", "end1", "start2", "end2"}
LABELS = {"T": True, "F": False}
FORM = "a line is: word, part of speech, 2-5, sentence, sentence, with tabs between them"
MARK = "*"


def mark_span(text: str, start: int, end: int) -> str:
    """Returns a text with the characters from `start` to before `end` marked."""
    if not 0 <= start < end <= len(text):
        raise ValueError("no such characters")
    return f"{text[:start]}{MARK}{text[start:end]}{MARK}{text[end:]}"


def mark_word(text: str, number: int) -> str:
    """Returns a text with one of its words marked, counted from 0 between blanks."""
    words = text.split(" ")
    words[number] = f"{MARK}{words[number]}{MARK}"
    return " ".join(words)


class WordInContext(Format):
    """The text files of WiC, or tables with the columns of SuperGLUE; both sentences with the word marked."""

    def sniff(self, source: Source) -> bool:
        if any(stream.name.lower().endswith(DATA) for stream in source.streams):
            return all(stream.name.lower().endswith((DATA, GOLD)) for stream in source.data_streams)
        table = next((table for table in (JsonLines(), Parquet()) if table.sniff(source)), None)
        if table is None:
            return False
        first = next(table.records(source, ReadOptions(errors="replace"), Diagnostics()), None)
        return first is not None and first.values.keys() >= COLUMNS

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        if not any(stream.name.lower().endswith(DATA) for stream in source.streams):
            table = JsonLines() if JsonLines().sniff(source) else Parquet()
            for record in table.records(source, options, diagnostics):
                yield from self._marked_record(record, diagnostics)
            return
        gold = {stream.name.lower(): stream for stream in source.streams}
        for stream in source.streams:
            if stream.name.lower().endswith(DATA):
                labels = gold.get(stream.name.lower().removesuffix(DATA) + GOLD) or self._beside(stream)
                yield from self._text_records(stream, labels, options, diagnostics)

    @staticmethod
    def _beside(stream: Stream) -> Stream | None:
        """Returns the file of labels in the same folder, if there is one."""
        path = stream.path
        if path is None or not path.name.lower().endswith(DATA):
            return None
        labels = Path(str(path)[: -len(DATA)] + GOLD)
        return open_source(labels).streams[0] if labels.is_file() else None

    @staticmethod
    def _marked_record(record: Record, diagnostics: Diagnostics) -> Iterator[Record]:
        values = dict(record.values)
        try:
            for side in ("1", "2"):
                span = int(values.pop(f"start{side}")), int(values.pop(f"end{side}"))
                values[f"sentence{side}"] = mark_span(values[f"sentence{side}"], *span)
        except (KeyError, TypeError, ValueError):
            cause = f"{record.location}: start and end are no characters of the sentence"
            diagnostics.report("data.span", cause, "correct or remove the row")
            return
        yield record._replace(values=values)

    @staticmethod
    def _text_records(
        stream: Stream, gold: Stream | None, options: ReadOptions, diagnostics: Diagnostics
    ) -> Iterator[Record]:
        """Yields a record per line; a line without its label, or a label without its line, is reported."""
        lines = stream.lines(options.encoding, options.errors, diagnostics)
        labels = () if gold is None else gold.lines(options.encoding, options.errors, diagnostics)
        for number, (line, label) in enumerate(zip_longest(lines, labels), options.first_line):
            location = Location(stream.name, number)
            if line is None or (gold is not None and (label is None or label.strip() not in LABELS)):
                cause = f"{location}: there is no such line" if line is None else f"{location}: its label is not T or F"
                name = stream.name if gold is None else gold.name
                diagnostics.report("data.label", cause, f"correct {name}, which has T or F for each line")
                continue
            cells = line.removesuffix("\n").split("\t")
            try:
                word, part, numbers, *sentences = cells
                marked = [mark_word(*pair) for pair in zip(sentences, map(int, numbers.split("-")), strict=True)]
                if len(marked) != 2:
                    raise ValueError("not two sentences")
            except (ValueError, IndexError):
                diagnostics.report("data.wic", f"{location}: not a word in two sentences", FORM)
                continue
            values = {"word": word, "pos": part, "sentence1": marked[0], "sentence2": marked[1]}
            yield Record(values if label is None else values | {"label": LABELS[label.strip()]}, location)
