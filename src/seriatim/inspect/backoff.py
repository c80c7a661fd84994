"""Which order of n-gram answered at each token, and how much of the answer came from each order.

An n-gram model looks up the longest context first: where the token was never seen behind it, a context that is one
token shorter answers, and so on down to the single token. The order of the n-gram that was found says how much of the
past could be used; it is what KenLM calls the n-gram length. Interpolated smoothing asks the shorter contexts in any
case, and gives them the mass that it took from the counts of the longer ones: the shares say how much of the
probability came from which order (that of single tokens has the 1/V in it that all tokens share).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.measures import plain
from ..models.ngram import DIRECT, NGram
from ._judged import spoken, written
from .rows import aligned
from .seen import Array, Seen
from .subject import Subject

LEGIBLE = 120  # tokens whose shares are drawn one by one


def suits(subject: Subject) -> str:
    if subject.run is None:
        return "was never trained"
    return "" if subject.counts and isinstance(subject.run.model, NGram) else "counts no n-grams"


def look(subject: Subject, text: str | None = None) -> Seen:
    """Without a text, of the first of its own validation part."""
    speaker, row = spoken(subject, text)
    model: NGram = speaker.model
    ids, context = row[1:], row[:1]
    orders = model.order_used(ids, context=context)
    bits = -model.log_probs(ids, context=context) / math.log(2)
    names = [speaker.tokenizer.token(index) for index in ids.tolist()]
    levels = [f"order {order}" for order in range(1, model.order + 1)]
    title = f"Which order of n-gram answered: {subject.label}"
    arrays = {"order": Array(orders.astype(np.int64), (("token", names),))}
    counts = np.bincount(orders, minlength=model.order + 1)[1:]
    hints = [f"{plain(value, 1, 2)} bits" for value in bits.tolist()]
    notes: list[str] = []
    shares: np.ndarray | None = None
    if model.settings.smoothing in DIRECT:
        notes.append(
            f"{model.settings.smoothing} asks the longest known context alone: where a shorter n-gram was found, the "
            "token was never seen behind it"
        )
    else:
        shares = model.shares(ids, context=context)  # (T,order)
        arrays["share"] = Array(shares, (("token", names), ("order", levels)))
        hints = [f"{told}; {_shared(one)}" for told, one in zip(hints, shares.tolist(), strict=True)]
    mean = f"an n-gram of {plain(float(orders.mean()), 2)} tokens on average, of {model.order} at most"
    views: list[dict[str, Any]] = [
        {"kind": "strip", "title": title, "note": mean, "tokens": [written(speaker.tokenizer, one) for one in ids],
         "values": orders.tolist(), "low": 1, "high": model.order, "of": "order", "hints": hints},
        {"kind": "bars", "title": "How often each order answered", "measure": "tokens",
         "rows": [[name, int(count)] for name, count in zip(levels, counts, strict=True)]},
    ]  # fmt: skip
    if shares is not None and len(ids) <= LEGIBLE:
        views.append(
            {"kind": "heat", "title": "How much of each probability came from which order", "x": "token", "y": "",
             "rows": levels[::-1], "columns": names, "values": shares.T[::-1].tolist(), "high": 1}
        )  # fmt: skip
    return Seen(title, arrays, views, [mean, "", *_table(levels, orders, bits, shares)], notes)


def _shared(one: list[float]) -> str:
    """The shares of a token, from the highest order down, without those that are nothing."""
    return ", ".join(
        f"{100 * value:.0f} % order {order}" for order, value in reversed([*enumerate(one, 1)]) if value >= 0.005
    )


def _table(levels: list[str], orders: np.ndarray, bits: np.ndarray, shares: np.ndarray | None) -> list[str]:
    rows: list[list[Any]] = [
        ["", "tokens", "share of tokens", "bits a token", *(["share of p"] if shares is not None else [])]
    ]
    for order, name in enumerate(levels, 1):
        mine = orders == order
        surprise = plain(float(bits[mine].mean()), 2) if mine.any() else ""
        given = [f"{100 * shares[:, order - 1].mean():.1f} %"] if shares is not None else []
        rows.append([name, int(mine.sum()), f"{100 * mine.mean():.1f} %", surprise, *given])
    return aligned(rows)
