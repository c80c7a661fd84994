"""The tokens whose vectors are nearest to those of the text, by their cosine, before anything is known of context.

Of a translator the text is looked up among the tokens of the source, `target` among those of the target.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import SeriatimError
from ..tasks._neighbours import Nearest
from .seen import Array, Seen
from .subject import Subject
from .tokens import Table, chosen, lacking, tables


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
        names, near, cosines = nearest(table, ids, top)
        where = f"{title}, {side}" if side else title
        ranks = [str(rank) for rank in range(1, near.shape[1] + 1)]
        of = f"{side} " if side else ""
        arrays[f"{of}neighbours"] = Array(near, (("token", names), ("rank", ranks)))
        arrays[f"{of}cosines"] = Array(cosines, (("token", names), ("rank", ranks)))
        views.append(
            {"kind": "words", "title": where, "rows": names, "columns": ranks, "texts": near.tolist(),
             "values": cosines.tolist(), "x": "nearest first", "y": "token", "high": 1}
        )  # fmt: skip
        lines += [
            f"{name:<16} " + "  ".join(f"{other} {cosine:.2f}" for other, cosine in zip(*pair, strict=True))
            for name, *pair in zip(names, near.tolist(), cosines.tolist(), strict=True)
        ]
    if not views:
        raise SeriatimError("inspect.text", "there is no text whose tokens to look up", "give one")
    return Seen(title, arrays, views, lines)


def nearest(table: Table, ids: list[int], top: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of tokens (n,), of those nearest to each (n,top), and their cosines (n,top); none is its own neighbour."""
    search = Nearest(table.vectors[ids], min(top, len(table) - 1))
    search.show(table.vectors, 0, without=np.array(ids))
    names = [[table.name(row) for row in rows] for rows in search.rows.tolist()]
    return [table.name(index) for index in ids], np.array(names, dtype=object), search.values
