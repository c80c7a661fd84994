"""The surprise of each token of a text in bits, −log₂ p(token | what is known of the others), and its n-gram order.

0 bits: the model was certain of the token; each further bit halves its probability. The expected surprise is the
entropy of the model's distribution: a calibrated model has both alike. The sum over a text is what the capability
`score` returns; of an encoder that predicts masked tokens it is the pseudo-log-likelihood (Salazar et al., "Masked
language model scoring", 2020).

An n-gram model looks up the longest context first: if the token was never seen after it, a context that is one token
shorter is used, and so on down to the single token. The order of the n-gram says how much of the past was used; KenLM
calls it the n-gram length. Interpolated smoothing uses the shorter contexts in any case, with the mass it takes from
the counts of the longer ones: the shares are the parts of the probability (single tokens include the uniform 1/V).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...core.errors import SeriatimError
from ...data.tokenizers import Tokenizer
from ...models._ngram.table import Scorer
from ...models.ngram import NGram
from ...report.charts import Bars, Heatmap, Table, TokenStrip, View, format_number, matrix, row
from ...tasks.inspection import ScoredTokens, check_position
from ..result import NamedArray, Result
from ..subject import Subject
from . import view

OWN_TOKENS = 100  # of the run's own text, if none is passed
HINTS = 3  # alternatives in a tooltip
MAX_ROWS = 10  # most surprising tokens
CONTEXT = 10  # characters before them
MAX_COLUMNS = 120  # tokens whose shares are drawn one by one


@dataclass(frozen=True)
class Expectations:
    """What a model expected at each of T tokens."""

    scored: ScoredTokens
    entropy: np.ndarray  # (T,) of its distribution, in nats
    best: np.ndarray  # (T,K) the likeliest tokens
    probabilities: np.ndarray  # (T,K) theirs

    @classmethod
    def of(cls, scored: ScoredTokens, top: int) -> Expectations:
        """Returns the `top` likeliest tokens at each position."""
        parts = []
        for log_probs in scored.distributions:
            best = log_probs.topk(min(top, log_probs.shape[1]))
            entropy = torch.special.entr(log_probs.double().exp()).sum(dim=1)
            parts.append((entropy, best.indices, best.values.double().exp()))
        if not parts or not len(scored.ids):
            raise SeriatimError("inspect.text", "the text has no token to rate", "pass another one")
        return cls(scored, *(torch.cat(tensors).cpu().numpy() for tensors in zip(*parts, strict=True)))

    def alternatives(self, position: int, count: int) -> str:
        """Returns the likeliest tokens at a position in words."""
        token = self.scored.tokenizer.token
        pairs = zip(self.best[position, :count].tolist(), self.probabilities[position, :count].tolist(), strict=True)
        return "; ".join(f"{token(index)} {percent(value)}" for index, value in pairs if value > 0) or "nothing"


@view("surprise", {"does not predict tokens": lambda s: s.predictor.token_scorer() is None}, trained=True)
def show_surprise(
    subject: Subject, text: str | None = None, *, target: str | None = None, position: int | None = None, top: int = 10
) -> Result:
    """Of an encoder–decoder `text` is the source and `target` is rated, by default what the model generates.

    `position` shows the `top` likeliest tokens there. Without a text, a language model reads its own validation split.
    """
    if top < 1:
        raise SeriatimError("inspect.top", f"the {top} likeliest tokens cannot be shown", "ask for 1 or more")
    scored = score_tokens(subject, text, target)
    expected = Expectations.of(scored, max(top, HINTS))
    tokenizer, ids = scored.tokenizer, scored.ids.tolist()
    names = [tokenizer.token(index) for index in ids]
    bits, entropy = -scored.log_probs / math.log(2), expected.entropy / math.log(2)
    own = np.exp(scored.log_probs)
    arrays = {
        "surprise": NamedArray(bits, {"token": names}),
        "probability": NamedArray(own, {"token": names}),
        "expected surprise": NamedArray(entropy, {"token": names}),
    }
    title = f"Surprise of each token: {subject.label}"
    summary = summarize(bits, entropy, scored.characters)
    hints = [
        f"expected: {expected.alternatives(n, HINTS)} (this: {percent(value)})" for n, value in enumerate(own.tolist())
    ]
    charts: list[View] = [
        TokenStrip(
            title=title,
            note=summary,
            tokens=[written_token(tokenizer, index) for index in ids],
            values=row(bits),
            label="bits",
            low=0,
            high=math.log2(tokenizer.vocab_size),
            hints=hints,
        )
    ]
    order = np.argsort(-bits, kind="stable")[:MAX_ROWS].tolist()
    before = [text_before(tokenizer, scored.ids, n) for n in order]
    rows = [
        (names[n], context, n, float(bits[n]), percent(float(own[n])), expected.alternatives(n, HINTS))
        for n, context in zip(order, before, strict=True)
    ]
    columns = ("token", "after", "position", "bits", "probability", "expected")
    details = [Table(title="Most surprising tokens", note=summary, columns=columns, rows=rows)]
    if position is not None:
        check_position(position, len(ids))
        chart = alternatives_chart(expected, names, position, top)
        charts.append(chart)
        alternatives, values = candidates(expected, position, top)
        arrays["alternatives"] = NamedArray(np.array(values), {"token": [tokenizer.token(n) for n in alternatives]})
        cells = [(name, percent(value or 0.0)) for name, value in zip(chart.labels, chart.values, strict=True)]
        details.append(Table(title=chart.title, columns=("token", "probability"), rows=cells))
    elif sum(np.isfinite(bits[n]) for n in order) > 1:
        labeled = [(f"{context} {names[n]} ({n})".strip(), n) for n, context in zip(order, before, strict=True)]
        finite = [(label, n) for label, n in labeled if np.isfinite(bits[n])]
        labels = [label.replace("␣", "·") for label, _ in finite]  # a blank that fonts of charts have
        shares = row(bits[[n for _, n in finite]])
        charts.append(Bars(title="Most surprising tokens", labels=labels, values=shares, x="surprise in bits"))
    return Result(title, arrays, charts, notes_on(scored), details)


def score_tokens(subject: Subject, text: str | None, target: str | None = None) -> ScoredTokens:
    """Returns the tokens of a text, by default of the beginning of the validation split, as the model rates them."""
    score = subject.predictor.token_scorer()
    assert score is not None
    return score(subject.own_text(OWN_TOKENS) if text is None else text, target)


def candidates(expected: Expectations, position: int, top: int) -> tuple[list[int], list[float]]:
    """Returns the likeliest tokens at a position and their probabilities; the actual token is always among them."""
    ids, values = expected.best[position, :top].tolist(), expected.probabilities[position, :top].tolist()
    actual = int(expected.scored.ids[position])
    if actual not in ids:
        ids, values = [*ids, actual], [*values, math.exp(expected.scored.log_probs[position])]
    return ids, values


def alternatives_chart(expected: Expectations, names: list[str], position: int, top: int) -> Bars:
    """Returns the probabilities of the likeliest tokens at a position; an arrow marks the actual one."""
    ids, values = candidates(expected, position, top)
    actual, token = int(expected.scored.ids[position]), expected.scored.tokenizer.token
    labels = [f"→ {token(index)}" if index == actual else token(index) for index in ids]
    return Bars(
        title=f"Expected at position {position}, instead of {names[position]}".replace("␣", "·"),
        labels=[label.replace("␣", "·") for label in labels],
        values=row(values),
        x="probability",
    )


def summarize(bits: np.ndarray, entropy: np.ndarray, characters: int) -> str:
    """Returns the sum and the means of the surprise in words."""
    total, mean = float(bits.sum()), float(bits.mean())
    tokens = "1 token" if len(bits) == 1 else f"{len(bits):,} tokens"
    parts = [
        f"{tokens}, {format_number(total)} bits: {format_number(mean)} per token "
        f"(perplexity {format_number(2 ** min(mean, 99))})"
    ]
    if characters:
        parts.append(f"{format_number(total / characters)} per character")
    return f"{', '.join(parts)}; expected: {format_number(float(entropy.mean()))} per token"


def text_before(tokenizer: Tokenizer, ids: np.ndarray, position: int) -> str:
    """Returns the end of the text before a position."""
    text = tokenizer.decode(ids[max(position - CONTEXT, 0) : position])
    return text if position <= CONTEXT and len(text) <= CONTEXT else f"…{text[-CONTEXT:]}"


def written_token(tokenizer: Tokenizer, index: int) -> str:
    """Returns a token as it is written in a text; special tokens and tokens without text by their name."""
    name, text = tokenizer.token(index), tokenizer.decode([index])
    by_name = tokenizer.drops_whitespace or tokenizer.kind == "other" or not text or "\ufffd" in text
    if by_name:
        return f"{name}\n" if text == "\n" else name
    return text


def notes_on(scored: ScoredTokens) -> list[str]:
    notes, unk = [], scored.tokenizer.unk
    unknown = 0 if unk is None else int((scored.ids == unk).sum())
    if unknown and unk is not None:
        noun = "token is" if unknown == 1 else "tokens are"
        notes.append(f"{unknown:,} {noun} not in the vocabulary and rated as {scored.tokenizer.token(unk)}")
    if impossible := int(np.isinf(scored.log_probs).sum()):
        notes.append(f"{impossible:,} tokens have probability 0")
    return notes


def percent(probability: float) -> str:
    return f"{format_number(100 * probability)} %"


# The orders of an n-gram model


@view(
    "backoff",
    {"is not an n-gram model": lambda s: not (s.gradient_free and isinstance(s.predictor.network, NGram))},
    trained=True,
)
def show_backoff(subject: Subject, text: str | None = None) -> Result:
    """Of a text, by default of the beginning of the model's own validation split."""
    scored = score_tokens(subject, text)
    if not len(scored.ids):
        raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
    scorer: Scorer = subject.predictor.network.scorer
    tokenizer, ids, context = scored.tokenizer, scored.ids, scored.context
    orders = scorer.order_used(ids, context=context)
    bits = -scored.log_probs / math.log(2)
    names = [tokenizer.token(index) for index in ids.tolist()]
    levels = [f"order {order}" for order in range(1, scorer.order + 1)]
    title = f"Order of the n-gram used: {subject.label}"
    arrays = {"order": NamedArray(orders.astype(np.int64), {"token": names})}
    hints = [f"{format_number(value)} bits" for value in bits.tolist()]
    notes: list[str] = []
    shares: np.ndarray | None = None
    if scorer.direct:
        notes.append(
            f"{scorer.smoothing} uses the longest known context alone: where a shorter n-gram is shown, the "
            "token was never seen after it"
        )
    else:
        shares = scorer.shares(ids, context=context)  # (T,order)
        arrays["share"] = NamedArray(shares, {"token": names, "order": levels})
        hints = [f"{hint}; {describe_shares(line)}" for hint, line in zip(hints, shares.tolist(), strict=True)]
    mean = f"n-grams of {format_number(float(orders.mean()))} tokens on average, at most {scorer.order}"
    counts = np.bincount(orders, minlength=scorer.order + 1)[1:]
    charts: list[View] = [
        TokenStrip(
            title=title,
            note=mean,
            tokens=[written_token(tokenizer, index) for index in ids.tolist()],
            values=row(orders),
            label="order",
            low=1,
            high=scorer.order,
            hints=hints,
        ),
        Bars(title="How often each order is used", labels=levels, values=row(counts), x="tokens"),
    ]
    if shares is not None and len(ids) <= MAX_COLUMNS:
        charts.append(
            Heatmap(
                title="Share of each order in the probability",
                rows=levels[::-1],
                columns=names,
                values=matrix(shares.T[::-1]),
                x="token",
                low=0,
                high=1,
            )
        )
    rows = []
    for order, level in enumerate(levels, 1):
        used = orders == order
        surprise = float(bits[used].mean()) if used.any() else None
        of_probability = () if shares is None else (f"{100 * shares[:, order - 1].mean():.1f} %",)
        rows.append((level, int(used.sum()), f"{100 * used.mean():.1f} %", surprise, *of_probability))
    columns = ("order", "tokens", "share of tokens", "bits per token", "share of probability")[: len(rows[0])]
    table = Table(title="Orders", note=mean, columns=columns, rows=rows)
    return Result(title, arrays, charts, notes, [table])


def describe_shares(shares: list[float]) -> str:
    """Returns the shares of a token from the highest order down, without those near 0."""
    pairs = reversed(list(enumerate(shares, 1)))
    return ", ".join(f"{100 * share:.0f} % order {order}" for order, share in pairs if share >= 0.005)
