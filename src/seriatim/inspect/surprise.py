"""How surprising each token of a text was, in bits: −log₂ p(token | what is known of the others).

0 bits: the model was certain of it; each bit more, half as likely. What the model expected to be surprised by, had the
text been its own, is the entropy of its distribution: a model that knows what it does not know has both alike. The sum
over a text is what `score` says of it; of an encoder that guesses hidden tokens it is the pseudo-log-likelihood
(Salazar et al., "Masked language model scoring", 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.errors import SeriatimError
from ..core.measures import plain
from ._judged import Judged, judged, unable
from .rows import aligned
from .seen import Array, Seen
from .subject import Subject

HINTED = 3  # alternatives that a token of the picture tells
MOST = 10  # tokens that are told for having surprised most
NEAR = 10  # letters before them


def suits(subject: Subject) -> str:
    return unable(subject)


def look(
    subject: Subject, text: str | None = None, *, target: str | None = None, position: int | None = None, top: int = 10
) -> Seen:
    """Of a translator `text` is the source, `target` what is judged (by default its own translation). `position` asks
    for the `top` likeliest tokens at a place; without a text, a language model reads its own validation part."""
    if top < 1:
        raise SeriatimError("inspect.top", f"{top} alternatives are none", "ask for 1 or more")
    found = judged(subject, text, target, max(top, HINTED))
    count = len(found.ids)
    if position is not None and not 0 <= position < count:
        raise SeriatimError("inspect.position", f"there is no token {position}", f"choose from 0 to {count - 1}")
    names, bits = found.names, -found.log_probs / math.log(2)
    axis = ("token", names)
    arrays = {
        "surprise": Array(bits, (axis,)),
        "probability": Array(np.exp(found.log_probs), (axis,)),
        "expected surprise": Array(found.entropy / math.log(2), (axis,)),
    }
    title = f"How surprising each token was: {subject.label}"
    whole = _whole(found, bits)
    views: list[dict[str, Any]] = [
        {"kind": "strip", "title": title, "note": whole, "tokens": found.written, "values": bits.tolist(), "low": 0,
         "high": math.log2(found.tokenizer.size), "of": "bits", "hint": "expected", "hints": _hints(found)}
    ]  # fmt: skip
    lines = [whole, "", *_strangest(found, names, bits)]
    if position is not None:
        tokens, likely, marked = _alternatives(found, names, position, top)
        arrays["alternatives"] = Array(likely, (("token", tokens),))
        shown = [_drawn(f"→ {name}" if own else name) for name, own in zip(tokens, marked, strict=True)]
        rows = [[name, value] for name, value in zip(shown, likely.tolist(), strict=True)]
        before = found.tokenizer.decode(found.ids[:position])
        behind = f"Expected at {position}, where {names[position]} stands"
        views.append({"kind": "bars", "title": _drawn(behind), "measure": "probability", "rows": rows})
        told = [["→" if own else "", name, _percent(p)] for name, p, own in zip(tokens, likely, marked, strict=True)]
        lines += ["", f"{behind}, behind {before[-40:]!r}:" if before else f"{behind}:", *aligned(told, (0, 1))]
    else:
        strange = [place for place in _order(bits) if np.isfinite(bits[place])]
        heads = [_drawn(f"{_before(found, place)} {names[place]} ({place})".strip()) for place in strange]
        bars = [[head, float(bits[place])] for head, place in zip(heads, strange, strict=True)]
        if len(bars) > 1:
            views.append({"kind": "bars", "title": "The most surprising", "measure": "surprise_in_bits", "rows": bars})
    return Seen(title, arrays, views, lines, _notes(found))


def _whole(found: Judged, bits: np.ndarray) -> str:
    count, total, mean = len(bits), float(bits.sum()), float(bits.mean())
    tokens = "1 token" if count == 1 else f"{count:,} tokens"
    parts = [f"{tokens}, {plain(total, 1)} bits: {plain(mean, 2)} a token (perplexity {plain(2 ** min(mean, 99), 2)})"]
    if found.characters:
        parts.append(f"{plain(total / found.characters, 2)} a character")
    return f"{', '.join(parts)}; expected: {plain(float(found.entropy.mean()) / math.log(2), 2)} a token"


def _order(bits: np.ndarray) -> list[int]:
    """The places of the most surprising tokens; of equals the first."""
    order: list[int] = np.argsort(-bits, kind="stable")[:MOST].tolist()
    return order


def _strangest(found: Judged, names: list[str], bits: np.ndarray) -> list[str]:
    rows: list[list[Any]] = [["the most surprising", "behind", "place", "bits", "probability", "expected"]]
    for place in _order(bits):
        instead = ", ".join(_said(found, place, HINTED))
        figures = place, plain(float(bits[place]), 1), _percent(2 ** -bits[place])
        rows.append([names[place], _before(found, place), *figures, instead])
    return aligned(rows, (0, 1, 5))


def _before(found: Judged, place: int) -> str:
    """The end of what stands before a place."""
    text = found.tokenizer.decode(found.ids[max(place - NEAR, 0) : place])
    return text if place <= NEAR and len(text) <= NEAR else f"…{text[-NEAR:]}"


def _said(found: Judged, place: int, count: int) -> list[str]:
    pairs = zip(found.best[place, :count].tolist(), found.likely[place, :count].tolist(), strict=True)
    return [f"{found.tokenizer.token(token)} {_percent(value)}" for token, value in pairs if value > 0]


def _hints(found: Judged) -> list[str]:
    own = np.exp(found.log_probs).tolist()
    told = ["; ".join(_said(found, place, HINTED)) or "nothing" for place in range(len(own))]
    return [f"{one} (this: {_percent(value)})" for one, value in zip(told, own, strict=True)]


def _alternatives(found: Judged, names: list[str], place: int, top: int) -> tuple[list[str], np.ndarray, list[bool]]:
    """The likeliest tokens at a place, the one that stands there among them or, where it is not, behind them."""
    ids, likely = found.best[place, :top].tolist(), found.likely[place, :top].tolist()
    there = int(found.ids[place])
    if there not in ids:
        ids, likely = [*ids, there], [*likely, math.exp(found.log_probs[place])]
    return [found.tokenizer.token(index) for index in ids], np.array(likely), [index == there for index in ids]


def _drawn(text: str) -> str:
    """With a sign for a blank that the type of pictures has."""
    return text.replace("␣", "·")


def _notes(found: Judged) -> list[str]:
    notes = []
    if unknown := int((found.ids == found.tokenizer.unk).sum()):
        what = "token is" if unknown == 1 else "tokens are"
        notes.append(
            f"{unknown:,} {what} not in the vocabulary and judged as {found.tokenizer.token(found.tokenizer.unk or 0)}"
        )
    if never := int(np.isinf(found.log_probs).sum()):
        notes.append(f"{never:,} of the tokens had no probability at all")
    return notes


def _percent(value: float) -> str:
    return f"{plain(100 * float(value), 1, 2)} %"
