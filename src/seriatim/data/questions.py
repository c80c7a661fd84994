"""Questions about passages in three parts: what answer learns from, chooses by and is measured on.

A source is a SQuAD file (JSON of version 1.1 or 2.0), a JSONL file with a question a line, a folder of them, or a name
of the catalogue. Parts are drawn by article, or by passage where there are few articles: no passage is in two of them,
since who has learnt the answers about a passage knows it too well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from seriatim.core.config import Settings

from . import partition
from ._pair_texts import keys_of
from ._question_files import Question, Questions, gather, unreadable
from .corpus import with_parts
from .fractions import Fractions
from .notes import Notes
from .sources import Found
from .splits import too_short
from .tokenizers import TokenizerSettings, with_kind

__all__ = ["Asked", "Question", "QuestionSettings", "Questions", "read", "read_single", "unreadable"]

FEW = 10  # articles below which parts are drawn by passage
Notify = Callable[[str], None]


class QuestionSettings(Settings):
    source: str = Field(
        description="a SQuAD file (JSON, version 1.1 or 2.0), a JSONL file with question, context and answers in each "
        "line, .gz, a folder of them, or a name of the catalogue"
    )
    valid: str | None = Field(None, description="the file to validate on; without one the source is split")
    test: str | None = Field(None, description="the file to test on; without one the source is split")
    encoding: str = Field("utf-8", description="the encoding of the files, such as utf-8, utf-16 or cp1252")
    fractions: Fractions = Field(
        (0.8, 0.1, 0.1), description="the shares of training, validation and test where no files are given, by article"
    )
    tokenizer: TokenizerSettings | None = Field(
        None, description="how text becomes tokens; by default words in small letters, or characters without words"
    )

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        return with_kind(given, kind="word", lowercase=True)


@dataclass(frozen=True)
class Asked:
    """Questions to learn from, to choose by and to measure on."""

    parts: dict[str, Questions]
    fingerprint: str


def read(settings: QuestionSettings, data_dir: str | None = None, notify: Notify | None = None) -> Asked:
    """The three parts of the settings."""
    notes = Notes(notify)
    found, given = with_parts(settings.source, data_dir, notes)
    if settings.valid is not None or settings.test is not None:
        named = {"valid": settings.valid, "test": settings.test}
        given = {split: with_parts(source, data_dir, notes)[0] for split, source in named.items() if source is not None}
    whole = _gather(found, settings.encoding, notes)
    if given:
        parts = {"train": whole} | {split: _gather(one, settings.encoding, notes) for split, one in given.items()}
        for split in partition.NAMES[1:]:
            if split not in parts:
                notes(f"no {split} file is given, so the {split} part is empty")
        notes.extend(_seen(parts))
    else:
        parts = _divided(whole, settings.fractions, notes)
    notes("questions: " + ", ".join(f"{len(parts[split]):,} {split}" for split in partition.NAMES if split in parts))
    nothing = Questions("")
    parts = {split: parts.get(split, nothing) for split in partition.NAMES}
    return Asked(parts, _fingerprint(parts))


def read_single(
    source: str, encoding: str, data_dir: str | None = None, notify: Notify | None = None, answers: bool = True
) -> tuple[Questions, str]:
    """All questions of a source and their fingerprint: what a trained model is evaluated on; without `answers`, what it
    is to answer."""
    notes = Notes(notify)
    found, _ = with_parts(source, data_dir, notes)
    questions = _gather(found, encoding, notes, answers)
    return questions, _fingerprint({"test": questions})


def _gather(found: Found, encoding: str, notes: Notes, answers: bool = True) -> Questions:
    questions = gather(found, encoding, answers)
    notes.extend(questions.notes)
    return questions


def _divided(whole: Questions, fractions: tuple[float, float, float], notes: Notes) -> dict[str, Questions]:
    group, what = _groups(whole, notes)
    count = int(group.max()) + 1
    part = partition.draw(None, count, fractions)
    parts = {
        split: replace(whole, asked=[whole.asked[row] for row in np.flatnonzero(part[group] == index).tolist()])
        for index, split in enumerate(partition.NAMES)
        if fractions[index] > 0
    }
    if not all(len(one) for one in parts.values()):
        raise too_short(f"{count:,} {what}", fractions)
    shares = " / ".join(f"{np.count_nonzero(part == index):,}" for index in range(3) if fractions[index] > 0)
    notes(f"parts drawn by {what[:-1]}, none in two of them: {shares} {what}")
    return parts


def _groups(whole: Questions, notes: Notes) -> tuple[np.ndarray, str]:
    """The group of each question, all of which goes into one part, and what the groups are."""
    keys = keys_of(whole.passages)
    articles = {one.article for one in whole.asked}
    if len(articles) < FEW or not all(articles):
        if len(articles) > 1 and all(articles):
            notes(f"{len(articles)} articles are too few to draw parts by article")
        return _joined([[keys[one.passage]] for one in whole.asked]), "passages"
    return _joined([[f"article {one.article}", f"passage {keys[one.passage]}"] for one in whole.asked]), "articles"


def _joined(marks: list[list[str]]) -> np.ndarray:
    """Numbers of groups, in order of appearance: those that share a mark, directly or through others, are one."""
    above: dict[str, str] = {}

    def top(mark: str) -> str:
        while above.setdefault(mark, mark) != mark:
            above[mark] = mark = above[above[mark]]
        return mark

    for first, *others in marks:
        for other in others:
            above[top(other)] = top(first)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(top(first), len(numbers)) for first, *_ in marks], dtype=np.int64)


def _seen(parts: dict[str, Questions]) -> Iterator[str]:
    known = set(keys_of(parts["train"].used))
    for split in partition.NAMES[1:]:
        if split in parts and (again := sum(key in known for key in keys_of(parts[split].used))):
            yield f"{again:,} of {len(parts[split].used):,} {split} passages are in the training part too"


def _fingerprint(parts: dict[str, Questions]) -> str:
    digest = hashlib.sha256()
    for split, part in parts.items():
        digest.update(json.dumps([split, part.used]).encode())
        for one in part.asked:
            digest.update(json.dumps([one.text, one.answers]).encode())
    return digest.hexdigest()
