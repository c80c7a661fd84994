"""Pictures of vectors: how alike texts are, and what a word means in one sentence and in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import SeriatimError
from . import looks
from .axes import named
from .fields import depth, sign
from .looks import GROUND, INK, PALE, SECOND, WHOLE, data
from .numbers import whole
from .places import LONGEST, NAMED, plane
from .projection import Frame, principal
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn, Panel

FIELDS = 30  # texts whose similarities are drawn one and all
WRITTEN = 12  # texts up to which the figures stand in the fields
TOLD = 12


def texts_picture(texts: Sequence[str], vectors: np.ndarray, title: str = "How alike the texts are") -> Drawn:
    """The cosines of all pairs, where they are few, and all texts on a plane; near points are alike."""
    if len(texts) < 2:
        raise SeriatimError("embed.picture", "a picture compares texts, and there is only one", "give two or more")
    panels: list[Any] = []
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    if len(texts) <= FIELDS:
        panels.append(_fields(texts, unit @ unit.T, title))
    if len(texts) > 2:
        labels = [f"{number} {text}" if panels else text for number, text in enumerate(map(_name, texts), 1)]
        panels.append(_plane(unit, labels, list(texts), 620 if panels else 980, 480 if panels else 680))
    return looks.row(panels), _told(texts, unit)


def word_picture(word: str, fragments: Sequence[str], contextual: np.ndarray, plain: np.ndarray) -> Drawn:
    """A word on a plane by its vectors in sentences, and beside it, at the same scale, by those it has by itself."""
    points, shares = principal(contextual)
    frame = Frame.around(points, 760, 460)
    hint = "each point is the word in one sentence; near points mean alike"
    left = plane(frame, points, list(map(_name, fragments)), fragments, shares)
    alone, alone_shares = principal(plain)
    groups = _together(alone)
    said = [_how_often(len(some), len(fragments)) for some in groups]
    spread = max(float(np.abs(alone).max()) * 2, 1e-12)
    small = Frame.around(alone, 240, 460, max(frame.unit, spread / 180))
    firsts = alone[[some[0] for some in groups]]
    right = plane(small, firsts, said, said, alone_shares, colour=SECOND)
    by_itself = "its vectors of the input: the same in every sentence" if len(groups) == 1 else "as it is written"
    chart = looks.row(
        [
            left.properties(title=looks.title(f"“{label(word, 40)}” in its sentences", hint)),
            right.properties(title=looks.title(f"“{label(word, 20)}” by itself", by_itself)),
        ]
    )
    return chart, f"{label(word)} in {whole(len(fragments))} places; {_told(fragments, contextual)}"


def word(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """The same of a view: `word`, the `fragments` around it, and its vectors, `contextual` and `plain`."""
    fragments = [str(fragment) for fragment in view["fragments"]]
    contextual, plain = (np.array(view[name], dtype=np.float64) for name in ("contextual", "plain"))
    if not fragments or contextual.ndim != 2 or plain.ndim != 2 or not len(fragments) == len(contextual) == len(plain):
        raise ValueError("a word has two vectors in every sentence")
    return word_picture(str(view["word"]), fragments, contextual, plain)


def _name(text: str) -> str:
    return label(text, LONGEST) or "␣"


def _fields(texts: Sequence[str], cosines: np.ndarray, title: str) -> Panel:
    """A field for each pair: the deeper, the more alike."""
    import altair as alt

    count = len(texts)
    rows = [
        {"row": i, "column": j, "value": float(cosines[i, j]), "share": min(abs(float(cosines[i, j])), 1.0),
         "text": f"{cosines[i, j]:.2f}".replace("-", "−"), "tip": f"{_name(texts[i])} – {_name(texts[j])}"}
        for i in range(count)
        for j in range(count)
    ]  # fmt: skip
    size = max(14, min(44, 460 // count))
    plain: dict[str, Any] = {"ticks": False, "domain": False, "title": None, "labelOverlap": False}
    numbers = [str(number) for number in range(1, count + 1)]
    sentences = [f"{number} {_name(text)}" for number, text in enumerate(texts, 1)]
    scale = alt.Scale(padding=0, domain=list(range(count)))
    x = alt.X("column:O", scale=scale, axis=alt.Axis(orient="top", labelAngle=0, labelExpr=named(numbers), **plain))
    y = alt.Y("row:O", scale=scale, axis=alt.Axis(labelExpr=named(sentences), labelLimit=300, **plain))
    tip = [alt.Tooltip("tip:N", title="texts"), alt.Tooltip("value:Q", title="cosine", format=".4f")]
    layers = [
        data(rows)
        .mark_rect(stroke=GROUND[0], strokeWidth=1)
        .encode(x, y, fill=sign(), fillOpacity=depth(), tooltip=tip)
    ]
    if count <= WRITTEN:
        deep = alt.condition("abs(datum.value) > 0.55", alt.value(GROUND[0]), alt.value(INK[0]))
        layers.append(data(rows).mark_text().encode(x, y, text="text:N", color=deep))
    hint = "cosines of their vectors: 1 alike, 0 nothing in common"
    return alt.layer(*layers, view=alt.ViewBackground(fill=PALE[0])).properties(
        width=size * count, height=size * count, title=looks.title(label(title, 80), hint)
    )


def _plane(vectors: np.ndarray, labels: list[str], texts: list[str], width: int, height: int) -> Panel:
    points, shares = principal(vectors)
    hint = "near points are alike" + ("" if len(texts) <= NAMED else f"; {whole(len(texts))} texts")
    chart = plane(Frame.around(points, width, height), points, labels, texts, shares)
    return chart.properties(title=looks.title("On a plane", hint))


def _together(points: np.ndarray) -> list[list[int]]:
    """Points that are one and the same."""
    groups: list[list[int]] = []
    for index, point in enumerate(points):
        own = next((some for some in groups if np.abs(points[some[0]] - point).max() < 1e-6), None)
        if own is None:
            groups.append([index])
        else:
            own.append(index)
    return groups


def _how_often(count: int, of: int) -> str:
    return f"in all {of}" if count == of else f"in {count} of {of}"


def _told(texts: Sequence[str], vectors: np.ndarray) -> str:
    """For those who listen: the nearest to each of a few."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = unit[:TOLD] @ unit.T
    if len(texts) < 2:
        return f"{_name(texts[0])}."
    np.fill_diagonal(cosines, -np.inf)
    best = cosines.argmax(axis=1).tolist()
    pairs = [f"{_name(texts[i])} – {_name(texts[j])} ({cosines[i, j]:.2f})" for i, j in enumerate(best)]
    return f"the nearest to each: {'; '.join(pairs)}{' …' if len(texts) > TOLD else ''}."
