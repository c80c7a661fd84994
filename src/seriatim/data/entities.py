"""Entities in tags: how spans are written into one tag a word, how tags are checked and put right.

    BIO (IOB2)   B-x begins an entity, I-x goes on with it, O is outside          Mary/B-per Smith/I-per sleeps/O
    IOB1         I-x begins one too; B-x only where one of the same type ends just before
    IOBES        the last word is E-x, an entity of one word S-x; BILOU calls them L-x and U-x

Ill-formed tags are read as conlleval reads them, the program of the CoNLL tasks, and seqeval in its default mode: an
I-x or E-x that goes on with nothing begins an entity, and so does one of another type. seqeval's strict mode leaves
such entities out; on tags that were put right both count the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[str, int, int]  # type, first word, word behind the last
SCHEMES = {"bio": "BI", "iob1": "BI", "iobes": "BIES", "bilou": "BILU"}
OUTSIDE = "O"
UNNAMED = "_"  # the type of a bare B or I
_SAME = {"L": "E", "U": "S"}  # BILOU's letters in IOBES


def parse(tag: str) -> tuple[str, str] | None:
    """("B", "person") of B-person, ("O", "") of O; None for what is not the tag of an entity."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    letter, hyphen, kind = tag.partition("-")
    if letter not in ("B", "I", "E", "S", "L", "U") or (hyphen and not kind):
        return None
    return letter, kind if hyphen else UNNAMED


def recognise(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme that tags are written in; "none" where they mark no entities."""
    letters: set[str] = set()
    begins_with_i, begins_with_b = False, False
    known: dict[str, tuple[str, str] | None] = {}
    for tags in sentences:
        before = (OUTSIDE, "")
        for tag in tags:
            if tag not in known:
                known[tag] = parse(tag)
            parsed = known[tag]
            if parsed is None:
                return "none"
            letter, kind = parsed
            letters.add(letter)
            follows = before[0] != OUTSIDE and before[1] == kind
            begins_with_i |= letter == "I" and not follows
            begins_with_b |= letter == "B" and not follows
            before = parsed
    letters.discard(OUTSIDE)
    if not letters:
        return "none"
    if letters <= set("BI"):
        return "iob1" if begins_with_i and not begins_with_b else "bio"
    return next((name for name in ("iobes", "bilou") if letters <= set(SCHEMES[name])), "none")


def fits(tag: str, scheme: str) -> bool:
    """Whether a tag can stand in a scheme at all."""
    parsed = parse(tag)
    return parsed is not None and parsed[0] in SCHEMES[scheme] + OUTSIDE


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of one sentence. A tag that is none of an entity is outside."""
    found: list[Span] = []
    kind, first = "", -1  # of the entity that goes on
    for place, tag in enumerate(tags):
        letter, now = parse(tag) or (OUTSIDE, "")
        letter = _SAME.get(letter, letter)
        if first >= 0 and (letter in "BSO" or now != kind):
            found.append((kind, first, place))
            first = -1
        if letter != OUTSIDE and first < 0:
            kind, first = now, place
        if letter in "ES":
            found.append((kind, first, place + 1))
            first = -1
    if first >= 0:
        found.append((kind, first, len(tags)))
    return found


def write(entities: Iterable[Span], length: int, scheme: str) -> list[str]:
    """The tags of a sentence with these entities. IOB1 is written as BIO, which says the same more plainly."""
    last, single = {"iobes": ("E", "S"), "bilou": ("L", "U")}.get(scheme, ("I", "B"))
    tags = [OUTSIDE] * length
    for kind, first, end in entities:
        name = "" if kind == UNNAMED else f"-{kind}"
        for place in range(first, end):
            letter = "B" if place == first else last if place == end - 1 else "I"
            tags[place] = (single if end - first == 1 else letter) + name
    return tags


def repair(tags: Sequence[str], scheme: str) -> list[str]:
    """The same entities in well-formed tags; well-formed tags (but those of IOB1) come back as they are."""
    return write(spans(tags), len(tags), scheme)


@dataclass(frozen=True)
class Score:
    """Entities found against those that are there: right is who has the same type, first and last word."""

    right: int
    found: int
    there: int

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.there if self.there else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.found + self.there) if self.found + self.there else 0.0


def score(true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> tuple[Score, dict[str, Score]]:
    """Over all entities of all sentences together (micro), and for each type."""
    right, found, there = Counter[str](), Counter[str](), Counter[str]()
    for one, other in zip(true, predicted, strict=True):
        wanted, given = set(spans(one)), set(spans(other))
        there.update(kind for kind, _, _ in wanted)
        found.update(kind for kind, _, _ in given)
        right.update(kind for kind, _, _ in wanted & given)
    types = {kind: Score(right[kind], found[kind], there[kind]) for kind in sorted(there | found)}
    return Score(right.total(), found.total(), there.total()), types
