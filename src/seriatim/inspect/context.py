"""A word in several sentences: its vector in each of them, beside the one it has by itself.

By itself "bank" is one point, wherever it stands; in its sentence it moves towards what is meant there.
"""

from __future__ import annotations

from ..core.errors import SeriatimError
from ..tasks._neighbours import unit
from ..tasks._vectors import words
from .seen import Array, Seen
from .subject import Subject
from .tokens import lacking


def suits(subject: Subject) -> str:
    return lacking(subject)


def look(subject: Subject, *texts: str, word: str = "") -> Seen:
    """`word` where it stands in the texts, all of which have it."""
    if not word:
        raise SeriatimError("inspect.word", "this view is about a word, and none is named", "name one: --word bank")
    found = words(subject.reader, word, texts)
    names = found.fragments()
    inside, alone = (unit(vectors) @ unit(vectors).T for vectors in (found.contextual, found.plain))
    title = f"“{word}” in its sentences: {subject.label}"
    axes = (("place", names), ("other place", names))
    arrays = {
        "contextual": Array(found.contextual, (("place", names), _numbers(found.contextual.shape[1]))),
        "by itself": Array(found.plain, (("place", names), _numbers(found.plain.shape[1]))),
        "contextual cosines": Array(inside, axes),
        "cosines by itself": Array(alone, axes),
    }
    picture = {
        "kind": "word", "title": title, "word": word, "fragments": names,
        "contextual": found.contextual.tolist(), "plain": found.plain.tolist(),
    }  # fmt: skip
    notes = [f"{found.lost} places stand behind what the model can take in"] if found.lost else []
    lines = [
        f"{inside[i, j]:6.3f} in their sentences, {alone[i, j]:6.3f} by itself: {names[i]} – {names[j]}"
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]
    return Seen(title, arrays, [picture], sorted(lines, reverse=True) or names, notes)


def _numbers(width: int) -> tuple[str, list[str]]:
    return "number", [str(index) for index in range(width)]
