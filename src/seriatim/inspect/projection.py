"""The vectors of tokens in the plane, along the two directions in which they differ most (PCA).

Near points are alike in these two directions; how much of the whole they tell is said beside the axes.
"""

from __future__ import annotations

from typing import Any

from ..core.errors import SeriatimError
from .seen import Array, Seen
from .subject import Subject
from .tokens import Table, chosen, lacking, nearest, tables

TOKENS = 200
OWN, NEAR = "of the text", "nearest to them"
FEW, AROUND = 12, 6  # so few tokens of a text are drawn among so many that are nearest to each


def suits(subject: Subject) -> str:
    return lacking(subject)


def look(subject: Subject, text: str = "", *, top: int = TOKENS, target: str | None = None) -> Seen:
    """The tokens of the text, and where they are few those nearest to them; without a text, the first `top` of the
    vocabulary. Of a translator both sides, unless only one of the texts is given."""
    from ..report.projection import principal

    found = tables(subject)
    if target is not None and not found[0].of:
        raise SeriatimError("inspect.target", f"{subject.label} has no target", "leave it away")
    if top < 1:
        raise SeriatimError("inspect.top", f"{top} tokens are none", "ask for 1 or more")
    title = f"Vectors of tokens: {subject.label}"
    arrays: dict[str, Array] = {}
    views: list[dict[str, Any]] = []
    lines: list[str] = []
    given = {"source": text, "target": target or ""}
    for table in found:
        own = given.get(table.of, text)
        if not own and any(given.values()):
            continue
        ids, groups = _chosen(table, own) if own else (table.first(top), [])
        names = [table.name(index) for index in ids]
        points, shares = principal(table.vectors[ids])
        of = f"{table.of} " if table.of else ""
        arrays[f"{of}points"] = Array(points, (("token", names), ("direction", ("1", "2"))))
        views.append(
            {"kind": "places", "title": f"{title}, {table.of}" if of else title, "names": names,
             "points": points.tolist(), "shares": list(shares), "groups": groups, "note": "near points are alike"}
        )  # fmt: skip
        told = f"{len(ids):,} of {len(table):,} tokens; the two directions hold {sum(shares):.0%} of their variance"
        lines.append(f"{of}{told}")
    return Seen(title, arrays, views, lines)


def _chosen(table: Table, text: str) -> tuple[list[int], list[str]]:
    ids = chosen(table, text)
    if len(ids) > FEW:
        return ids, []
    near = [row for rows in nearest(table, ids, AROUND).rows.tolist() for row in rows if row not in ids]
    others = list(dict.fromkeys(near))
    return [*ids, *others], [OWN] * len(ids) + [NEAR] * len(others)
