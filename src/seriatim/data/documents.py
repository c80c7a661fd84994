"""Documents: where they end in a text data set, and their sentences, on which encoders are pretrained.

The rows of a text data set are blocks of plain text, in order, or the rows of a table. Each row of a table is a
document, and so is each file of plain text if there are several; a single file is one stream.

For pretraining, a stream is divided further: the titles of WikiText (" = Title = ") begin documents, or else blank
lines separate them. Lines are paragraphs, unless most lines end within a sentence: then blank lines separate these.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .dataset import Dataset
from .disk import Locations
from .tokenizers import BERT_SPECIAL_TOKENS

BLOCK_COLUMN = "block"  # the column of plain text that is read by blocks
SAMPLED_CHARACTERS = 1 << 20  # read from the beginning of a data set to detect its layout
MIN_LINES = 20  # lines followed by another, for a decision on how lines end
MAX_SENTENCES = 1_000  # of a document; a longer one counts as several, so that memory is bounded
UNKNOWN = BERT_SPECIAL_TOKENS["unk"]

HEADING = re.compile(r"= .+ =")
TITLE = re.compile(r"= (?!= ).+(?<! =) =")
WIKITEXT_JOINT = re.compile(r" @([-.,])@ ")
SENTENCE_END_OF_LINE = re.compile(r"[.!?…:;。！？؟।][\"'”’»)\]」』）]*\Z")


def document_ends(dataset: Dataset, role: str = "text") -> np.ndarray:
    """Returns for each row whether a document ends with it (rows,)."""
    count = len(dataset)
    if dataset.columns[role][0].name != BLOCK_COLUMN:
        return np.arange(count) < count - dataset.continued
    locations = dataset.locations
    if isinstance(locations, Locations):
        if len(locations.table.files) == 1:
            return np.zeros(count, dtype=bool)
        files = np.concatenate([shard.to_numpy() for shard in locations.table.shards("file")])
        files = files if locations.rows is None else files[locations.rows]
    else:
        numbers: dict[str, int] = {}
        files = np.array([numbers.setdefault(location.file, len(numbers)) for location in locations], dtype=np.int64)
    if not count or len(set(files.tolist())) == 1:
        return np.zeros(count, dtype=bool)
    return np.append(files[1:] != files[:-1], not dataset.continued)


# Sentences of documents


@dataclass(frozen=True)
class TextLayout:
    """How documents and paragraphs are separated in a text."""

    separate: bool  # rows or files are documents
    titled: bool  # WikiText
    wrapped: bool  # lines are broken where they were full, so that paragraphs have several

    @classmethod
    def detect(cls, dataset: Dataset, role: str = "text") -> TextLayout:
        """Returns the layout of a data set, judged by its beginning."""
        ends = document_ends(dataset, role)
        sampled: list[str] = []
        size = 0
        for text, ends_document in zip(dataset[role], ends.tolist(), strict=True):
            sampled.append(text[: SAMPLED_CHARACTERS - size] + "\n" * ends_document)
            size += len(sampled[-1])
            if size >= SAMPLED_CHARACTERS:
                break
        lines = [line.strip() for line in "".join(sampled).split("\n")]
        neighbors = zip(["", *lines], lines, [*lines[1:], ""], strict=False)
        titled = any(not before and not after and TITLE.fullmatch(line) for before, line, after in neighbors)
        continued = [line for line, after in itertools.pairwise(lines) if line and after]
        ended = sum(SENTENCE_END_OF_LINE.search(line) is not None for line in continued)
        wrapped = len(continued) >= MIN_LINES and not titled and 2 * ended < len(continued)
        return cls(bool(ends.any()), titled, wrapped)

    def describe(self) -> str:
        """Returns a note on how documents and lines are separated."""
        if self.separate:
            documents = "each text is a document"
        elif self.titled:
            documents = "titles as in WikiText begin documents; its @-@ are joined, its <unk> are unknown tokens"
        else:
            documents = "blank lines separate documents"
        return documents + ("; lines are joined, since most end within a sentence" if self.wrapped else "")

    def documents(self, texts: Iterable[str], ends: Iterable[bool]) -> Iterator[list[str]]:
        """Yields the sentences of each document that has any.

        Args:
            texts: The rows of a data set, in order.
            ends: Whether a document ends with each row; see `document_ends`.
        """
        sentences: list[str] = []
        paragraph: list[str] = []
        for before, line, after in with_neighbors(split_lines(texts, ends)):
            heading = self.titled and HEADING.fullmatch(line or "") is not None
            if line and not heading:
                plain = WIKITEXT_JOINT.sub(r"\1", line).replace("<unk>", UNKNOWN) if self.titled else line
                paragraph.append(plain)
            if paragraph and not (line and self.wrapped and not heading):
                sentences += split_sentences(" ".join(paragraph))
                paragraph = []
            title = heading and not before and not after and TITLE.fullmatch(line or "") is not None
            blank = not self.separate and not self.titled and line == ""
            if sentences and (line is None or title or blank or len(sentences) >= MAX_SENTENCES):
                yield sentences
                sentences = []


def split_lines(texts: Iterable[str], ends: Iterable[bool]) -> Iterator[str | None]:
    """Yields the lines of a stream without white space at their ends, and None after each document and at the end."""
    pending: list[str] = []
    for text, ends_document in zip(texts, ends, strict=True):
        first, *others = text.split("\n")
        pending.append(first)
        for line in others:
            yield "".join(pending).strip()
            pending = [line]
        if ends_document:
            yield "".join(pending).strip()
            yield None
            pending = []
    yield "".join(pending).strip()
    yield None


def with_neighbors(lines: Iterator[str | None]) -> Iterator[tuple[str | None, str | None, str | None]]:
    """Yields each line between the one before and the one after it."""
    before: str | None = None
    line = next(lines, None)
    for after in lines:
        yield before, line, after
        before, line = line, after
    yield before, line, None


# Where a sentence ends: after . ! ? … and their like in other scripts, with closing quotes and brackets, if white
# space and then no lower-case letter follow; and after 。！？ anywhere. A full stop after an initial ("H. gammarus",
# "U.S.") or a common abbreviation ends none. Good enough for English and its neighbors, Chinese and Japanese.

CLOSING = "\"'”’»)\\]}"
WIDE_CLOSING = "」』”’）】》"
SENTENCE_END = re.compile(rf"[.!?…؟۔।]+[{CLOSING}]*(?=\s)|[。！？．｡]+[{WIDE_CLOSING}]*")
WORD_BEFORE = re.compile(r"[^\s(\[{\"'“‘«—–-]*\Z")
OPENING = "\"'“‘«([{¿¡"
INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
# fmt: off
ABBREVIATIONS = frozenset({
    "adm", "al", "approx", "assoc", "ave", "brig", "bros", "ca", "capt", "cf", "cmdr", "co", "col", "corp", "cpl",
    "dept", "dr", "ed", "eds", "esp", "est", "etc", "ff", "fr", "ft", "gen", "gov", "hon", "ibid", "inc", "jr", "lt",
    "ltd", "maj", "messrs", "mr", "mrs", "ms", "mt", "mts", "pres", "prof", "pt", "pvt", "rev", "sen", "sgt", "sr",
    "st", "ste", "univ", "viz", "vs",
})
# These only before a number: "No. 5", but not "She said no. He left."
ABBREVIATIONS_BEFORE_NUMBERS = frozenset({
    "art", "ch", "eq", "fig", "figs", "no", "nos", "op", "p", "pp", "vol", "vols", "jan", "feb", "mar", "apr", "jun",
    "jul", "aug", "sep", "sept", "oct", "nov", "dec",
})
# fmt: on


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a text, without the white space between them."""
    sentences: list[str] = []
    start = last_start = 0
    ends = [match.end() for match in SENTENCE_END.finditer(text) if ends_sentence(text, match)]
    for end in [*ends, len(text)]:
        sentence = text[start:end].strip()
        if sentences and sentence and not any(character.isalnum() for character in sentence):
            sentences[-1] = text[last_start:end].strip()  # a quote or bracket that closes apart from the full stop
        elif sentence:
            sentences.append(sentence)
            last_start = start
        start = end
    return sentences


def ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Returns whether punctuation that `SENTENCE_END` matches in a text ends a sentence."""
    position = match.end()
    if position >= len(text) or not text[position].isspace():
        return True  # of full width, or the last
    while position < len(text) and (text[position].isspace() or text[position] in OPENING):
        position += 1
    following = text[position : position + 1]
    if following.islower():
        return False
    if match[0][0] != "." or match[0][1:2] == ".":
        return True
    before = WORD_BEFORE.search(text, max(match.start() - 20, 0), match.start())
    word = before[0].lower() if before else ""
    abbreviated = word in ABBREVIATIONS or INITIALS.fullmatch(word) is not None
    return not (abbreviated or (word in ABBREVIATIONS_BEFORE_NUMBERS and following.isdigit()))
