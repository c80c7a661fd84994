"""Documents as rows of sentences: what an encoder is pre-trained on.

A file of a folder and a row of a table is a document each. In a single text the titles of WikiText (" = Title = ")
begin one, and where there are none, blank lines stand between them. Lines are paragraphs, unless they are broken
wherever they were full, which is found out from the beginning of a text; then blank lines stand between paragraphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from pydantic import Field, field_validator

from .corpus import Span
from .decoded import Text
from .pieces import Piece
from .sentences import sentences
from .text import TextSettings
from .tokenizers import TokenizerSettings, with_kind
from .wordpiece import SPECIALS

LOOKED_AT = 1 << 20  # bytes at the beginning of a text
LINES = 20  # that go on, from which one can say how they end
MOST = 1_000  # sentences of a document about: what is longer counts as several, so that memory is bounded
UNKNOWN = SPECIALS["unk"]

HEADING = re.compile(r"= .+ =")
TITLE = re.compile(r"= (?!= ).+(?<! =) =")
JOINED = re.compile(r" @([-.,])@ ")
ENDED = re.compile(r"[.!?…:;。！？؟।][\"'”’»)\]」』）]*\Z")


class DocumentSettings(TextSettings):
    tokenizer: TokenizerSettings | None = Field(  # type: ignore[assignment]
        None, description="how the text becomes tokens; by default BERT's pieces of words, in small letters"
    )

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _pieces(cls, given: Any) -> Any:
        return with_kind(given, kind="bert", lowercase=True)


@dataclass(frozen=True)
class Form:
    """How a text is laid out."""

    each: bool  # its documents are apart already
    titled: bool  # WikiText
    wrapped: bool  # its lines are broken wherever they were full

    @classmethod
    def of(cls, text: Text) -> Form:
        pieces = text.pieces(0, min(text.size, LOOKED_AT))
        lines = [line.strip() for line in _lines(pieces) if line is not None]
        around = zip(["", *lines], lines, [*lines[1:], ""], strict=False)
        titled = any(not before and not behind and TITLE.fullmatch(line) for before, line, behind in around)
        going_on = [line for line, behind in pairwise(lines) if line and behind]
        ended = sum(ENDED.search(line) is not None for line in going_on)
        return cls(len(text.ends) > 0, titled, len(going_on) >= LINES and not titled and 2 * ended < len(going_on))

    def told(self) -> str:
        if self.each:
            apart = "each text is a document"
        elif self.titled:
            apart = "titles as WikiText has them begin documents; its @-@ are joined, its <unk> are unknown tokens"
        else:
            apart = "blank lines stand between documents"
        return apart + ("; lines are joined, as most end within a sentence" if self.wrapped else "")


@dataclass(frozen=True)
class Documents:
    """The documents of a part of a text."""

    span: Span

    @cached_property
    def form(self) -> Form:
        return Form.of(self.span.text)

    def __iter__(self) -> Iterator[list[str]]:
        """The sentences of each document that has any."""
        form = self.form
        found: list[str] = []
        paragraph: list[str] = []
        for before, line, behind in _around(_lines(self.span.pieces())):
            heading = form.titled and HEADING.fullmatch(line or "") is not None
            if line and not heading:
                paragraph.append(_plain(line) if form.titled else line)
            if paragraph and not (line and form.wrapped and not heading):
                found += sentences(" ".join(paragraph))
                paragraph = []
            title = heading and not before and not behind and TITLE.fullmatch(line or "") is not None
            apart = not form.each and not form.titled and line == ""
            if found and (line is None or title or apart or len(found) >= MOST):
                yield found
                found = []


def _plain(line: str) -> str:
    """A line of WikiText without its marks."""
    return JOINED.sub(r"\1", line).replace("<unk>", UNKNOWN)


def _around(lines: Iterator[str | None]) -> Iterator[tuple[str | None, str | None, str | None]]:
    """Each line between its neighbours, without the white space at its ends."""
    before: str | None = None
    line = next(lines, None)
    line = None if line is None else line.strip()
    for behind in lines:
        behind = None if behind is None else behind.strip()
        yield before, line, behind
        before, line = line, behind
    yield before, line, None


def _lines(pieces: Iterator[Piece]) -> Iterator[str | None]:
    """Line by line, with None behind each document and at the end."""
    held: list[str] = []
    for text, last in pieces:
        first, *others = text.split("\n")
        held.append(first)
        for line in others:
            yield "".join(held)
            held = [line]
        if last:
            yield "".join(held)
            yield None
            held = []
    yield "".join(held)
    yield None
