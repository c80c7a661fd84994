"""The data of tagging: sentences with a tag per word, and the tag schemes they are written in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ...core.diagnostics import Diagnostics
from ...data.dataset import Dataset
from ...data.entities import is_valid, parse_tag, recognize_scheme, repair_tags
from ...data.kinds import KINDS, TEXT, TOKENS, Kind, check_characters
from ...data.schema import Field, Schema
from ...data.split import Fractions, SplitPolicy

SCHEME_TITLES = {"bio": "BIO", "iob1": "IOB1", "iobes": "IOBES", "bilou": "BILOU"}
NO_TAG = "_"  # CoNLL-U's mark of an empty cell


def parse_words(cell: Any) -> tuple[str, ...]:
    """Returns a list of words or numbers as strings."""
    if isinstance(cell, (str, dict)) or not all(type(word) in (str, int) for word in cell):
        raise ValueError("not a list of words")
    words = tuple(map(str, cell))
    check_characters("".join(words))
    return words


def parse_sentence(cell: Any) -> str | tuple[str, ...]:
    """Returns a text, or a list of words."""
    if not isinstance(cell, str):
        return parse_words(cell)
    check_characters(cell)
    return cell


SENTENCE = Kind("sentence", parse_sentence, size=lambda cell: len(cell.strip() if isinstance(cell, str) else cell))
TAGS = Kind("list of tags", parse_words, size=len)
KINDS |= {kind.name: kind for kind in (SENTENCE, TAGS)}


def check_sentences(dataset: Dataset, diagnostics: Diagnostics) -> None:
    """Reports sentences with another number of tags than of words, and empty words or tags."""
    if "tags" not in dataset:
        return
    for sentence, tags, location in zip(dataset["tokens"], dataset["tags"], dataset.locations, strict=True):
        words = sentence.split() if isinstance(sentence, str) else sentence
        if len(words) != len(tags):
            diagnostics.report("data.tags", f"{location}: {len(words)} words and {len(tags)} tags", "tag every word")
            continue
        for index, (word, tag) in enumerate(zip(words, tags, strict=True)):
            if not word or not tag:
                cause = f"{location.element(index)}: the {'tag' if word else 'word'} is empty"
                diagnostics.report("data.columns", cause, "correct the line")
    if len(dataset) and all(tag == NO_TAG for tags in dataset["tags"] for tag in tags):
        column = dataset.columns["tags"][0].name
        cause = f'{dataset.name}: column "{column}" holds no tags, only {NO_TAG}'
        diagnostics.report("data.no-tags", cause, "name another: data.columns.tags=NAME")


SCHEMA = Schema(
    (
        Field("tokens", (SENTENCE, TOKENS, TEXT), ("words", "form", "sentence", "text")),
        Field("tags", (TOKENS, TAGS), ("labels", "upos", "ner_tags", "pos_tags"), target=True),
    ),
    constraints=(check_sentences,),
)


@dataclass(frozen=True)
class Consecutive(SplitPolicy):
    """Consecutive blocks of rows, so that sentences of one text are mostly in one split."""

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        ends = [0, *(round(len(dataset) * fraction) for fraction in accumulate(fractions))]
        return [dataset.take(np.arange(start, end)) for start, end in pairwise(ends)]

    def describe(self) -> str:
        return "consecutive blocks"


def choose_scheme(setting: str, train: Dataset, diagnostics: Diagnostics) -> str:
    """Returns how the tags of the training split mark entities, as the setting says or as recognized."""
    if setting != "auto":
        return setting
    scheme = recognize_scheme(train["tags"])
    if scheme != "none":
        diagnostics.note(f"the tags mark entities, as {SCHEME_TITLES[scheme]}")
    elif any(tag.startswith(("B-", "I-")) for tags in train["tags"] for tag in tags):
        row, word = next(
            (row, word)
            for row, tags in enumerate(train["tags"])
            for word, tag in enumerate(tags)
            if parse_tag(tag) is None
        )
        diagnostics.note(
            f'{train.locations[row].element(word)}: "{train["tags"][row][word]}" marks no entity, though there are B- '
            "and I- tags: they are read as tags of single words (task.scheme)"
        )
    return scheme


def repair_dataset(dataset: Dataset, scheme: str, diagnostics: Diagnostics) -> list[list[str]]:
    """Returns the tags of each sentence in well-formed BIO, IOBES or BILOU; each kind of change is noted once.

    Args:
        dataset: The sentences.
        scheme: Of the model; "none" changes nothing.
        diagnostics: Receives the notes, and each tag that cannot occur in the scheme as a problem.
    """
    if scheme == "none":
        return [list(tags) for tags in dataset["tags"]]
    title = SCHEME_TITLES[scheme]
    repaired: list[list[str]] = []
    changes: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row, tags in enumerate(dataset["tags"]):
        for word, tag in enumerate(tags):
            if not is_valid(tag, scheme):
                cause = f'{dataset.locations[row].element(word)}: "{tag}" is not a tag of {title}'
                diagnostics.report("data.scheme", cause, "correct it, or set task.scheme=none: tags of single words")
        repaired.append(repair_tags(tags, scheme))
        for word, (old, new) in enumerate(zip(tags, repaired[-1], strict=True)):
            if old != new:
                changes.setdefault((old, new), []).append((row, word))
    if changes and recognize_scheme(dataset["tags"]) == "iob1":
        count = sum(map(len, changes.values()))
        diagnostics.note(f"{dataset.name}: {count:,} tags of IOB1 are written as BIO: I- that begins an entity as B-")
        return repaired
    for (old, new), positions in sorted(changes.items(), key=lambda change: -len(change[1])):
        reason = "without a B- before" if old[:1] == "I" and new[:1] == "B" else f"against the rules of {title}"
        subject = f"tag {old}" if len(positions) == 1 else f"{len(positions):,} tags {old}"
        row, word = positions[0]
        location = f"{dataset.locations[row].element(word)}{' and others' * (len(positions) > 1)}"
        diagnostics.note(f"{subject} {reason}: read as {new} ({location})")
    return repaired
