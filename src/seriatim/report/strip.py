"""A text as its tokens, each in a box that is the deeper the larger its figure: surprise, saliency, a cell's activity.

Boxes are set by pixels like words on a page: from the left, or from the right for a script that is read so; a line ends
where it is full, or with a token that ends a line of the text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.measures import finite, plain
from . import looks
from .fields import depth, rounded, sign
from .looks import ACCENT, GRID, INK, PALE, WHOLE, data
from .numbers import whole
from .text import label, letters, visible

if TYPE_CHECKING:
    from .looks import Drawn

TOKENS = 2_000
LONGEST = 32  # letters of a token
TYPE = 13  # pixels of the letters
LETTER = 0.6 * TYPE  # of type whose letters are all as wide
AROUND = 4  # pixels left and right of a token
HEIGHT, LINE, GAP = 22, 28, 2  # of a box, from line to line, between boxes
DEEPEST = 0.55  # of a colour: deeper, and letters would be hard to read on a light or on a dark ground
TOLD = 8
FONT = "Liberation Mono, Menlo, Consolas, DejaVu Sans Mono, Noto Sans Mono CJK SC, monospace"
TURNED = "\u200f"  # an unseen letter that is read from the right: what stands at the ends of a token follows it
SEEN = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"})


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    width: float


def strip(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """`values` has a figure, or none, for each of `tokens`; the palest is `low`, the deepest `high` (by default the
    smallest and the largest there are), or with `diverging` 0 and the furthest from it, orange below. `hints` are texts
    that show at the pointer."""
    import altair as alt

    every, values, hints = _checked(view)
    diverging = bool(view.get("diverging"))
    low, high = _ends(view, values, diverging)
    tokens = every[:TOKENS]
    right_to_left = from_right(tokens)
    texts = [written(token) for token in tokens]
    turned = TURNED if right_to_left else ""
    boxes = placed(texts, [token.endswith("\n") for token in tokens], width)
    extent = max(box.left + box.width for box in boxes)
    rows = []
    for index, (text, box) in enumerate(zip(texts, boxes, strict=True)):
        value = values[index]
        share = (
            0.0 if value is None else min(max(((abs(value) if diverging else value) - low) / (high - low), 0.0), 1.0)
        )
        left = extent - box.left - box.width if right_to_left else box.left
        rows.append(
            {"x": left, "end": left + box.width, "middle": left + box.width / 2, "share": round(share, 3),
             "y": box.top, "bottom": box.top + HEIGHT, "centre": box.top + HEIGHT / 2,
             "text": f"{turned}{text}{turned}", "value": None if value is None else rounded(value),
             "token": text, "place": index, "hint": label(hints[index], 400)}
        )  # fmt: skip
    tall = boxes[-1].top + HEIGHT
    across, down = alt.Scale(domain=[0, extent], nice=False), alt.Scale(domain=[tall, 0], nice=False)
    x, y = alt.X("x:Q", axis=None, scale=across), alt.Y("y:Q", axis=None, scale=down)
    middle, centre = alt.X("middle:Q", axis=None, scale=across), alt.Y("centre:Q", axis=None, scale=down)
    tips = [
        alt.Tooltip("token:N", title="token"),
        alt.Tooltip("place:Q", title="place"),
        alt.Tooltip("value:Q", title=label(view.get("of", "value"), 40), format=".4~g"),
    ]
    tips += [alt.Tooltip("hint:N", title=label(view.get("hint", "more"), 40))] if any(hints) else []
    known, unknown = ([row for row in rows if (row["value"] is None) == missing] for missing in (False, True))
    fill = sign() if diverging else alt.value(ACCENT[0])
    ends: dict[str, Any] = {"x2": "end:Q", "y2": "bottom:Q"}
    layers: list[alt.Chart] = [
        data(known).mark_rect(color=PALE[0]).encode(x, y, **ends),
        data(known).mark_rect().encode(x, y, **ends, fill=fill, fillOpacity=depth(DEEPEST), tooltip=tips),
        data(unknown).mark_rect(color=PALE[0], fillOpacity=0, stroke=GRID[0]).encode(x, y, **ends, tooltip=tips),
    ]
    type_: dict[str, Any] = {"font": FONT, "fontSize": TYPE, "baseline": "middle", "color": INK[0]}
    layers.append(data(rows).mark_text(**type_).encode(middle, centre, text="text:N", tooltip=tips))
    chart = alt.layer(*layers).properties(
        width=extent, height=tall, title=looks.title(label(view["title"], 100), _hint(view, low, high, len(every)))
    )
    return looks.row([chart]), f"{label(view['title'], 100)}: {_told(view, every, values)}"


def _checked(view: dict[str, Any]) -> tuple[list[str], list[float | None], list[str]]:
    tokens = [str(token) for token in view["tokens"]]
    values = [finite(value) for value in view["values"]]
    hints = ["" if hint is None else str(hint) for hint in view.get("hints") or [""] * len(tokens)]
    if not tokens or len(values) != len(tokens) or len(hints) != len(tokens):
        raise ValueError("a strip has a figure (and a hint, where there are any) for every token")
    if any(not isinstance(value, int | float | None) for value in view["values"]):
        raise ValueError("the values of a strip are figures, or none")
    return tokens, values, hints


def _ends(view: dict[str, Any], values: Sequence[float | None], diverging: bool) -> tuple[float, float]:
    """The figures of the palest and of the deepest colour, never the same."""
    found = [value for value in values if value is not None]
    low, high = finite(view.get("low")), finite(view.get("high"))
    if diverging:
        given = max(-(low or 0), high or 0)
        return 0.0, given or max(map(abs, found), default=0.0) or 1.0
    least = min(found, default=0.0) if low is None else low
    most = max(found, default=1.0) if high is None else high
    return (least, most) if most > least else (min(least, 0.0), max(most, 0.0) or 1.0)


def written(token: str) -> str:
    """A token with spaces and ends of lines that can be seen."""
    text = visible(token.translate(SEEN))
    return "∅" if not text else text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def placed(texts: Sequence[str], breaks: Sequence[bool], width: float) -> list[Box]:
    """A box for each text, from the left, line by line; `breaks` where one ends its line."""
    boxes, left, top = [], 0.0, 0.0
    for text, last in zip(texts, breaks, strict=True):
        wide = max(letters(text), 1) * LETTER + 2 * AROUND
        if left and left + wide > width:
            left, top = 0.0, top + LINE
        boxes.append(Box(left, top, wide))
        left, top = (0.0, top + LINE) if last else (left + wide + GAP, top)
    return boxes


def from_right(tokens: Sequence[str]) -> bool:
    """Whether most of the letters that have a direction are read from the right."""
    ways = [unicodedata.bidirectional(letter) for token in tokens for letter in token]
    return sum(way in ("R", "AL") for way in ways) > sum(way == "L" for way in ways)


def _hint(view: dict[str, Any], low: float, high: float, count: int) -> str:
    if view.get("diverging"):
        parts = [f"blue: above 0, orange: below (the deepest: ±{plain(high, 3, 2)})"]
    else:
        parts = [f"pale: {plain(low, 3, 2)}, deep: {plain(high, 3, 2)}"]
    parts += [label(view["note"], 160)] if view.get("note") else []
    parts += [f"the first {whole(TOKENS)} of {whole(count)} tokens"] if count > TOKENS else []
    return "; ".join(parts)


def _told(view: dict[str, Any], tokens: Sequence[str], values: Sequence[float | None]) -> str:
    """The ends, and the tokens furthest from nothing, for those who listen."""
    found = [(value, written(token)) for token, value in zip(tokens, values, strict=True) if value is not None]
    count = "1 token" if len(tokens) == 1 else f"{whole(len(tokens))} tokens"
    if not found:
        return f"{count} without figures."
    top = sorted(found, key=lambda pair: -abs(pair[0]) if view.get("diverging") else -pair[0])[:TOLD]
    low, high = min(found)[0], max(found)[0]
    often = ", ".join(f"{token} {plain(value, 3, 2)}" for value, token in top)
    return f"{count} from {plain(low, 3, 2)} to {plain(high, 3, 2)}; the furthest: {often}."
