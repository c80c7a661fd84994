"""A word in several sentences: its vector in each of them, beside the one it has by itself.

By itself "bank" is one point, wherever it stands; in its sentence it moves towards what is meant there.
"""

from __future__ import annotations

import numpy as np

from ..core.errors import SeriatimError
from ..tasks._neighbours import unit
from ..tasks._vectors import words
from .seen import Array, Seen
from .subject import Subject
from .tokens import lacking

FIELDS = 30  # places whose cosines are drawn
NEAR = 8  # characters beside the word in their names
TOLD = 40  # pairs


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
    views = [picture]
    if 1 < len(names) <= FIELDS:
        short = [f"{number} {name}" for number, name in enumerate(found.fragments(NEAR), 1)]
        views.append(
            {"kind": "signed", "title": f"Cosines of “{word}” in its sentences", "rows": short,
             "columns": [str(number) for number in range(1, len(names) + 1)], "values": inside.tolist(),
             "low": -1, "high": 1, "note": f"by itself {_mean(alone)} on average, in its sentences {_mean(inside)}"}
        )  # fmt: skip
    notes = [f"{found.lost} places stand behind what the model can take in"] if found.lost else []
    lines = [
        f"{inside[i, j]:6.3f} in their sentences, {alone[i, j]:6.3f} by itself: {names[i]} – {names[j]}"
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]
    return Seen(title, arrays, views, sorted(lines, reverse=True)[:TOLD] or names, notes)


def _mean(cosines: np.ndarray) -> str:
    """Over all pairs."""
    return f"{cosines[np.triu_indices(len(cosines), 1)].mean():.2f}".replace("-", "−")


def _numbers(width: int) -> tuple[str, list[str]]:
    return "number", [str(index) for index in range(width)]
