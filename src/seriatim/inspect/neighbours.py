"""The tokens whose vectors are nearest to those of the text, by their cosine, before anything is known of context.

Of a translator the text is looked up among the tokens of the source, `target` among those of the target.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import SeriatimError
from .seen import Array, Seen
from .subject import Subject
from .tokens import chosen, lacking, nearest, tables


def suits(subject: Subject) -> str:
    return lacking(subject)


def look(subject: Subject, text: str = "", *, top: int = 8, target: str | None = None) -> Seen:
    """`top` neighbours of each distinct token of the text."""
    if top < 1:
        raise SeriatimError("inspect.top", f"{top} neighbours are none", "ask for 1 or more")
    found = tables(subject)
    texts = [text, target]
    if target is not None and not found[0].of:
        raise SeriatimError("inspect.target", f"{subject.label} has no target", "leave it away")
    title = f"Nearest tokens: {subject.label}"
    arrays: dict[str, Array] = {}
    views: list[dict[str, Any]] = []
    lines: list[str] = []
    for index, text_of_side in enumerate(texts):
        if not text_of_side:
            continue
        table = found[min(index, len(found) - 1)]
        side = ("source", "target")[index] if found[0].of else ""
        ids = chosen(table, text_of_side)
        search = nearest(table, ids, top)
        names, cosines = [table.name(index) for index in ids], search.values
        near = np.array([[table.name(row) for row in rows] for rows in search.rows.tolist()])
        where = f"{title}, {side}" if side else title
        ranks = [str(rank) for rank in range(1, near.shape[1] + 1)]
        of = f"{side} " if side else ""
        arrays[f"{of}neighbours"] = Array(near, (("token", names), ("rank", ranks)))
        arrays[f"{of}cosines"] = Array(cosines, (("token", names), ("rank", ranks)))
        views.append(
            {"kind": "words", "title": where, "rows": names, "columns": ranks, "texts": near.tolist(),
             "values": cosines.tolist(), "x": "nearest first", "y": "token", "high": 1,
             "note": "by the cosine of their vectors"}
        )  # fmt: skip
        lines += [
            f"{name:<16} " + "  ".join(f"{other} {cosine:.2f}" for other, cosine in zip(*pair, strict=True))
            for name, *pair in zip(names, near.tolist(), cosines.tolist(), strict=True)
        ]
    if not views:
        raise SeriatimError("inspect.text", "there is no text whose tokens to look up", "give one")
    return Seen(title, arrays, views, lines)
