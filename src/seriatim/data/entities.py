"""Entities in tags: schemes that write spans of words as one tag per word, their repair, and their scores.

    BIO (IOB2)   B-x begins an entity, I-x continues it, O is outside          Mary/B-per Smith/I-per sleeps/O
    IOB1         I-x begins one too; B-x only directly after another entity of the same type
    IOBES        the last word is E-x, an entity of one word S-x; BILOU calls them L-x and U-x

Ill-formed tags are read as conlleval (the program of the CoNLL tasks) and the default mode of seqeval read them: an I-x
or E-x that continues nothing begins an entity, and so does one of another type. The strict mode of seqeval drops such
entities; on repaired tags both give the same scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Scheme = Literal["none", "bio", "iob1", "iobes", "bilou"]
Span = tuple[str, int, int]  # type, first word, end (exclusive)
PREFIXES: dict[str, str] = {"bio": "BI", "iob1": "BI", "iobes": "BIES", "bilou": "BILU"}
OUTSIDE = "O"
UNNAMED = "_"  # the type of a bare B or I
IOBES_PREFIX = {"L": "E", "U": "S"}  # BILOU prefix → IOBES prefix


def parse_tag(tag: str) -> tuple[str, str] | None:
    """Returns prefix and type, ("B", "person") for B-person and ("O", "") for O; None if it is no tag of entities."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, hyphen, kind = tag.partition("-")
    if prefix not in ("B", "I", "E", "S", "L", "U") or (hyphen and not kind):
        return None
    return prefix, kind if hyphen else UNNAMED


def is_valid(tag: str, scheme: str) -> bool:
    """Returns whether a tag may occur in a scheme."""
    parsed = parse_tag(tag)
    return parsed is not None and parsed[0] in PREFIXES[scheme] + OUTSIDE


def may_follow(previous: str | None, tag: str | None, scheme: str) -> bool:
    """Returns whether a tag may follow another in well-formed tags; None is the start or the end of a sentence."""
    if scheme == "none":
        return True
    before, kind_before = (parse_tag(previous) if previous is not None else None) or (OUTSIDE, "")
    after, kind = (parse_tag(tag) if tag is not None else None) or (OUTSIDE, "")
    is_open, continues = before in "BI", after in "IEL"
    if continues:
        return is_open and kind_before == kind
    return not is_open or scheme in ("bio", "iob1")


def allowed_transitions(tags: Sequence[str], scheme: str) -> list[list[bool]]:
    """Returns which tag (columns) may follow which (rows); the last row is the start, the last column the end.

    If no tag may stand alone and repeat, some lengths would have no sequence: then any may be the first and the last.
    """
    ends = [*tags, None]
    table = [[may_follow(previous, tag, scheme) for tag in ends] for previous in ends]
    if not any(table[-1][k] and table[k][k] and table[k][-1] for k in range(len(tags))):
        table = [[*row[:-1], True] for row in table[:-1]] + [[True] * len(ends)]
    return table


def recognize_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Returns the scheme of the tags of sentences; "none" if they mark no entities."""
    prefixes: set[str] = set()
    begins_with_i = begins_with_b = False
    parsed_tags: dict[str, tuple[str, str] | None] = {}
    for tags in sentences:
        previous = (OUTSIDE, "")
        for tag in tags:
            if tag not in parsed_tags:
                parsed_tags[tag] = parse_tag(tag)
            parsed = parsed_tags[tag]
            if parsed is None:
                return "none"
            prefix, kind = parsed
            prefixes.add(prefix)
            continues = previous[0] != OUTSIDE and previous[1] == kind
            begins_with_i |= prefix == "I" and not continues
            begins_with_b |= prefix == "B" and not continues
            previous = parsed
    prefixes.discard(OUTSIDE)
    if not prefixes:
        return "none"
    if prefixes <= set("BI"):
        return "iob1" if begins_with_i and not begins_with_b else "bio"
    if prefixes <= set(PREFIXES["iobes"]):
        return "iobes"
    return "bilou" if prefixes <= set(PREFIXES["bilou"]) else "none"


def find_spans(tags: Sequence[str]) -> list[Span]:
    """Returns the entities of a sentence, in order. Tags that mark no entity are outside."""
    spans: list[Span] = []
    kind, first = "", -1  # of the open entity
    for position, tag in enumerate(tags):
        prefix, tag_kind = parse_tag(tag) or (OUTSIDE, "")
        prefix = IOBES_PREFIX.get(prefix, prefix)
        if first >= 0 and (prefix in "BSO" or tag_kind != kind):
            spans.append((kind, first, position))
            first = -1
        if prefix != OUTSIDE and first < 0:
            kind, first = tag_kind, position
        if prefix in "ES":
            spans.append((kind, first, position + 1))
            first = -1
    if first >= 0:
        spans.append((kind, first, len(tags)))
    return spans


class TagSpans:
    """Finds the entities of many sentences at once, as `find_spans` does; tags are indices of the given ones."""

    def __init__(self, tags: Sequence[str]) -> None:
        parsed = [parse_tag(tag) or (OUTSIDE, "") for tag in tags]
        kinds = sorted({kind for _, kind in parsed})
        prefixes = [IOBES_PREFIX.get(prefix, prefix) for prefix, _ in parsed]
        self.kinds = np.array([kinds.index(kind) for _, kind in parsed])
        self.is_outside = np.array([prefix == OUTSIDE for prefix in prefixes])
        self.begins = np.array([prefix in "BS" for prefix in prefixes])
        self.closes = np.array([prefix in "ES" for prefix in prefixes])

    def find(self, tags: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Returns a number for each entity (m,), the same for the same words and type.

        Args:
            tags: Of the words of all sentences (n,).
            starts: Whether a word is the first of its sentence (n,).
        """
        kinds, outside = self.kinds[tags], self.is_outside[tags]
        ends_before = (outside | self.closes[tags])[:-1]  # no entity goes on after such a word
        is_open = np.concatenate([[False], ~ends_before]) & ~starts
        changed = np.concatenate([[True], kinds[1:] != kinds[:-1]])
        first = ~outside & (~is_open | self.begins[tags] | changed)
        goes_on = np.concatenate([(is_open & ~outside & ~first)[1:], [False]])
        begin, last = np.flatnonzero(first), np.flatnonzero(~outside & ~goes_on)
        return (begin * len(tags) + last) * (self.kinds.max() + 1) + kinds[begin]


def write_tags(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Returns the tags of a sentence of `length` words with these entities; IOB1 is written as BIO."""
    last, single = {"iobes": ("E", "S"), "bilou": ("L", "U")}.get(scheme, ("I", "B"))
    tags = [OUTSIDE] * length
    for kind, first, end in spans:
        suffix = "" if kind == UNNAMED else f"-{kind}"
        for position in range(first, end):
            prefix = "B" if position == first else last if position == end - 1 else "I"
            tags[position] = (single if end - first == 1 else prefix) + suffix
    return tags


def repair_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns well-formed tags of the same entities; well-formed tags (except IOB1) are not changed."""
    return write_tags(find_spans(tags), len(tags), scheme)


@dataclass(frozen=True)
class EntityScore:
    """Counts of entities; one is correct if type, first and last word are."""

    correct: int
    predicted: int
    reference: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.reference if self.reference else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / (self.predicted + self.reference) if self.predicted + self.reference else 0.0


def score_entities(
    references: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]
) -> tuple[EntityScore, dict[str, EntityScore]]:
    """Returns the score over the entities of all sentences together (micro average), and that of each type."""
    correct, predicted, expected = Counter[str](), Counter[str](), Counter[str]()
    for reference, prediction in zip(references, predictions, strict=True):
        reference_spans, predicted_spans = set(find_spans(reference)), set(find_spans(prediction))
        expected.update(kind for kind, _, _ in reference_spans)
        predicted.update(kind for kind, _, _ in predicted_spans)
        correct.update(kind for kind, _, _ in reference_spans & predicted_spans)
    types = {kind: EntityScore(correct[kind], predicted[kind], expected[kind]) for kind in sorted(expected | predicted)}
    return EntityScore(correct.total(), predicted.total(), expected.total()), types
