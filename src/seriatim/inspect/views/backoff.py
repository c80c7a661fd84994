"""Which n-gram order predicted each token, and how much of its probability came from each order.

An n-gram model looks up the longest context first: if the token was never seen after it, a context that is one token
shorter is used, and so on down to the single token. The order of the n-gram says how much of the past was used; KenLM
calls it the n-gram length. Interpolated smoothing uses the shorter contexts in any case, with the mass it takes from
the counts of the longer ones: the shares are the parts of the probability (single tokens include the uniform 1/V).
"""

from __future__ import annotations

import math

import numpy as np

from ...core.errors import SeriatimError
from ...models.ngram import DIRECT, NGram
from ...report.charts import Bars, Cell, Heatmap, Table, TokenStrip, View, format_number, matrix, row
from ..result import NamedArray, Result
from ..subject import Subject
from . import view
from .surprise import OWN_TOKENS, written_token

MAX_COLUMNS = 120  # tokens whose shares are drawn one by one


def missing_ngrams(subject: Subject) -> str:
    is_ngram = subject.gradient_free and isinstance(subject.predictor.network, NGram)
    return "" if is_ngram else "is not an n-gram model"


@view("backoff", missing_ngrams, trained=True)
def show_backoff(subject: Subject, text: str | None = None) -> Result:
    """Of a text, by default of the beginning of the model's own validation split."""
    score = subject.predictor.token_scorer()
    assert score is not None
    scored = score(subject.own_text(OWN_TOKENS) if text is None else text, None)
    if not len(scored.ids):
        raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
    model: NGram = subject.predictor.network
    tokenizer, ids, context = scored.tokenizer, scored.ids, scored.context
    orders = model.order_used(ids, context=context)
    bits = -scored.log_probs / math.log(2)
    names = [tokenizer.token(index) for index in ids.tolist()]
    levels = [f"order {order}" for order in range(1, model.order + 1)]
    title = f"Order of the n-gram used: {subject.label}"
    arrays = {"order": NamedArray(orders.astype(np.int64), {"token": names})}
    hints = [f"{format_number(value)} bits" for value in bits.tolist()]
    notes: list[str] = []
    shares: np.ndarray | None = None
    if model.settings.smoothing in DIRECT:
        notes.append(
            f"{model.settings.smoothing} uses the longest known context alone: where a shorter n-gram is shown, the "
            "token was never seen after it"
        )
    else:
        shares = model.shares(ids, context=context)  # (T,order)
        arrays["share"] = NamedArray(shares, {"token": names, "order": levels})
        hints = [f"{hint}; {describe_shares(line)}" for hint, line in zip(hints, shares.tolist(), strict=True)]
    mean = f"n-grams of {format_number(float(orders.mean()))} tokens on average, at most {model.order}"
    counts = np.bincount(orders, minlength=model.order + 1)[1:]
    charts: list[View] = [
        TokenStrip(
            title=title,
            note=mean,
            tokens=tuple(written_token(tokenizer, index) for index in ids.tolist()),
            values=row(orders),
            label="order",
            low=1,
            high=model.order,
            hints=tuple(hints),
        ),
        Bars(title="How often each order is used", labels=tuple(levels), values=row(counts), x="tokens"),
    ]
    if shares is not None and len(ids) <= MAX_COLUMNS:
        charts.append(
            Heatmap(
                title="Share of each order in the probability",
                rows=tuple(levels[::-1]),
                columns=tuple(names),
                values=matrix(shares.T[::-1]),
                x="token",
                low=0,
                high=1,
            )
        )
    rows: list[tuple[Cell, ...]] = []
    for order, level in enumerate(levels, 1):
        used = orders == order
        surprise = float(bits[used].mean()) if used.any() else None
        of_probability = () if shares is None else (f"{100 * shares[:, order - 1].mean():.1f} %",)
        rows.append((level, int(used.sum()), f"{100 * used.mean():.1f} %", surprise, *of_probability))
    columns = ("order", "tokens", "share of tokens", "bits per token", "share of probability")[: len(rows[0])]
    table = Table(title="Orders", note=mean, columns=columns, rows=tuple(rows))
    return Result(title, arrays, charts, notes, [table])


def describe_shares(shares: list[float]) -> str:
    """Returns the shares of a token from the highest order down, without those near 0."""
    pairs = reversed(list(enumerate(shares, 1)))
    return ", ".join(f"{100 * share:.0f} % order {order}" for order, share in pairs if share >= 0.005)
