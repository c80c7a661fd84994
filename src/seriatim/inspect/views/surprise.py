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
from ...core.text import format_number, plural
from ...data.tokenizers import Tokenizer
from ...models._ngram.table import Scorer
from ...models.ngram import NGram
from ...report.charts import Bars, Heatmap, Table, TokenStrip, View, matrix, row
from ...tasks.inspection import ScoredTokens, check_position
from ..catalog import Backoff, Surprise
from ..result import Arrays, Drawing, NamedArray
from ..subject import Subject
from . import Request, implement

OWN_TOKENS = 100  # of the run's own text, if none is passed
HINTS = 3  # likeliest tokens in a tooltip
MAX_ROWS = 10  # most surprising tokens
CONTEXT = 10  # characters before them
MAX_COLUMNS = 120  # tokens whose shares are drawn one by one


@dataclass(frozen=True)
class SurpriseFacts:
    """What the charts need besides the arrays.

    Args:
        tokens: The tokens as they are written, with their white space.
        vocab_size: The number of tokens in the vocabulary.
        characters: The number of characters of the text.
        contexts: The text before each of the most surprising tokens, by position.
        position: Where the likeliest tokens are shown, None if they are not.
        actual: The rank of the actual token among the tokens shown there.
    """

    tokens: list[str]
    vocab_size: int
    characters: int
    contexts: dict[int, str]
    position: int | None
    actual: int = 0


def surprise_arrays(subject: Subject, request: Request[Surprise]) -> Arrays[SurpriseFacts]:
    """Returns surprise, probability and expected surprise (T,) of each token, and the likeliest tokens (T,K) there."""
    position, top = request.options.position, request.options.top
    if top < 1:
        raise SeriatimError("inspect.top", f"the {top} likeliest tokens cannot be shown", "ask for 1 or more")
    scored = score_tokens(subject, request.text, request.options.target)
    entropy, best, probabilities = expect_tokens(scored, max(top, HINTS))
    tokenizer, ids = scored.tokenizer, scored.ids.tolist()
    known = {index: tokenizer.token(index) for index in {*ids, *best.ravel().tolist()}}
    names = [known[index] for index in ids]
    bits = -scored.log_probs / math.log(2)
    ranked = {"token": names, "rank": [str(rank) for rank in range(1, best.shape[1] + 1)]}
    likely = np.array([[known[index] for index in line] for line in best.tolist()], dtype=np.str_)
    arrays = {
        "surprise": NamedArray(bits, {"token": names}),
        "probability": NamedArray(np.exp(scored.log_probs), {"token": names}),
        "expected surprise": NamedArray(entropy / math.log(2), {"token": names}),
        "likeliest tokens": NamedArray(likely, ranked),
        "likeliest probabilities": NamedArray(probabilities, ranked),
    }
    actual = 0
    if position is not None:
        check_position(position, len(ids))
        shown, values = best[position, :top].tolist(), probabilities[position, :top].tolist()
        if ids[position] not in shown:  # the actual token is always among them
            shown, values = [*shown, ids[position]], [*values, math.exp(scored.log_probs[position])]
        actual = shown.index(ids[position])
        arrays["alternatives"] = NamedArray(np.array(values), {"token": [known[index] for index in shown]})
    facts = SurpriseFacts(
        tokens=[written_token(tokenizer, index) for index in ids],
        vocab_size=tokenizer.vocab_size,
        characters=scored.characters,
        contexts={n: text_before(tokenizer, scored.ids, n) for n in most_surprising(bits)},
        position=position,
        actual=actual,
    )
    return Arrays(f"Surprise of each token: {subject.label}", arrays, facts, notes_on(scored))


def score_tokens(subject: Subject, text: str | None, target: str | None = None) -> ScoredTokens:
    """Returns the tokens of a text, by default of the beginning of the validation split, as the model rates them."""
    score = subject.predictor.token_scorer()
    assert score is not None
    return score(subject.own_text(OWN_TOKENS) if text is None else text, target)


def expect_tokens(scored: ScoredTokens, top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the entropy (T,) of the distributions in nats, the likeliest tokens (T,K) and their probabilities."""
    parts = []
    for log_probs in scored.distributions:
        best = log_probs.topk(min(top, log_probs.shape[1]))
        entropy = torch.special.entr(log_probs.double().exp()).sum(dim=1)
        parts.append((entropy, best.indices, best.values.double().exp()))
    if not parts or not len(scored.ids):
        raise SeriatimError("inspect.text", "the text has no token to rate", "pass another one")
    entropies, ids, values = (torch.cat(tensors).cpu().numpy() for tensors in zip(*parts, strict=True))
    return entropies, ids, values


def most_surprising(bits: np.ndarray) -> list[int]:
    """Returns the positions of the most surprising tokens, the most surprising first."""
    order: list[int] = np.argsort(-bits, kind="stable")[:MAX_ROWS].tolist()
    return order


def surprise_charts(arrays: Arrays[SurpriseFacts]) -> Drawing:
    """Returns the surprise over the text, the most surprising tokens, and what was expected at one position."""
    facts = arrays.facts
    bits, own = arrays["surprise"].values, arrays["probability"].values
    names = list(arrays["surprise"].axes["token"])
    summary = summarize(bits, arrays["expected surprise"].values, facts.characters)
    expected = [
        describe_alternatives(*pair)
        for pair in zip(arrays["likeliest tokens"].values[:, :HINTS].tolist(),
                        arrays["likeliest probabilities"].values[:, :HINTS].tolist(), strict=True)
    ]  # fmt: skip
    hints = [f"expected: {text} (this: {percent(value)})" for text, value in zip(expected, own.tolist(), strict=True)]
    charts: list[View] = [
        TokenStrip(
            title=arrays.title,
            note=summary,
            tokens=facts.tokens,
            values=row(bits),
            label="bits",
            low=0,
            high=math.log2(facts.vocab_size),
            hints=hints,
        )
    ]
    order = most_surprising(bits)
    before = [facts.contexts[n] for n in order]
    rows = [
        (names[n], context, n, float(bits[n]), percent(float(own[n])), expected[n])
        for n, context in zip(order, before, strict=True)
    ]
    columns = ("token", "after", "position", "bits", "probability", "expected")
    details = [Table(title="Most surprising tokens", note=summary, columns=columns, rows=rows)]
    if facts.position is not None:
        chart = alternatives_chart(arrays["alternatives"], names[facts.position], facts.position, facts.actual)
        charts.append(chart)
        cells = [(name, percent(value or 0.0)) for name, value in zip(chart.labels, chart.values, strict=True)]
        details.append(Table(title=chart.title, columns=("token", "probability"), rows=cells))
    elif sum(np.isfinite(bits[n]) for n in order) > 1:
        labeled = [(f"{context} {names[n]} ({n})".strip(), n) for n, context in zip(order, before, strict=True)]
        finite = [(label, n) for label, n in labeled if np.isfinite(bits[n])]
        labels = [label.replace("␣", "·") for label, _ in finite]  # a blank that fonts of charts have
        shares = row(bits[[n for _, n in finite]])
        charts.append(Bars(title="Most surprising tokens", labels=labels, values=shares, x="surprise in bits"))
    return Drawing(charts, details)


def describe_alternatives(tokens: list[str], probabilities: list[float]) -> str:
    """Returns the likeliest tokens of a position in words."""
    pairs = zip(tokens, probabilities, strict=True)
    return "; ".join(f"{token} {percent(value)}" for token, value in pairs if value > 0) or "nothing"


def alternatives_chart(alternatives: NamedArray, name: str, position: int, actual: int) -> Bars:
    """Returns the probabilities of the likeliest tokens at a position; an arrow marks the actual one."""
    labels = [f"→ {token}" if n == actual else token for n, token in enumerate(alternatives.axes["token"])]
    return Bars(
        title=f"Expected at position {position}, instead of {name}".replace("␣", "·"),
        labels=[label.replace("␣", "·") for label in labels],
        values=row(alternatives.values),
        x="probability",
    )


implement(
    Surprise,
    surprise_arrays,
    surprise_charts,
    {"does not predict tokens": lambda subject: subject.predictor.token_scorer() is None},
    trained=True,
)


def summarize(bits: np.ndarray, entropy: np.ndarray, characters: int) -> str:
    """Returns the sum and the means of the surprise in words."""
    total, mean = float(bits.sum()), float(bits.mean())
    parts = [
        f"{plural(len(bits), 'token')}, {format_number(total)} bits: {format_number(mean)} per token "
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
        tokens = plural(unknown, "token is", "tokens are")
        notes.append(f"{tokens} not in the vocabulary and rated as {scored.tokenizer.token(unk)}")
    if impossible := int(np.isinf(scored.log_probs).sum()):
        notes.append(f"{plural(impossible, 'token has', 'tokens have')} probability 0")
    return notes


def percent(probability: float) -> str:
    return f"{format_number(100 * probability)} %"


# The orders of an n-gram model


@dataclass(frozen=True)
class BackoffFacts:
    """The tokens as they are written, and the order of the model."""

    tokens: list[str]
    order: int


def backoff_arrays(subject: Subject, request: Request[Backoff]) -> Arrays[BackoffFacts]:
    """Returns the order (T,) and the surprise (T,) of each token; of interpolated smoothing the shares (T,order)."""
    scored = score_tokens(subject, request.text)
    if not len(scored.ids):
        raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
    scorer: Scorer = subject.predictor.network.scorer
    tokenizer, ids, context = scored.tokenizer, scored.ids, scored.context
    names = [tokenizer.token(index) for index in ids.tolist()]
    orders = scorer.order_used(ids, context=context)
    arrays = {
        "order": NamedArray(orders.astype(np.int64), {"token": names}),
        "surprise": NamedArray(-scored.log_probs / math.log(2), {"token": names}),
    }
    notes: list[str] = []
    if scorer.direct:
        notes.append(
            f"{scorer.smoothing} uses the longest known context alone: where a shorter n-gram is shown, the "
            "token was never seen after it"
        )
    else:
        levels = [f"order {order}" for order in range(1, scorer.order + 1)]
        arrays["share"] = NamedArray(scorer.shares(ids, context=context), {"token": names, "order": levels})
    facts = BackoffFacts([written_token(tokenizer, index) for index in ids.tolist()], scorer.order)
    return Arrays(f"Order of the n-gram used: {subject.label}", arrays, facts, notes)


def backoff_charts(arrays: Arrays[BackoffFacts]) -> Drawing:
    """Returns the orders over the text, their frequencies, and the shares of few tokens."""
    facts, orders, bits = arrays.facts, arrays["order"].values, arrays["surprise"].values
    names = list(arrays["order"].axes["token"])
    levels = [f"order {order}" for order in range(1, facts.order + 1)]
    hints = [f"{format_number(value)} bits" for value in bits.tolist()]
    shares = arrays["share"].values if "share" in arrays else None
    if shares is not None:
        hints = [f"{hint}; {describe_shares(line)}" for hint, line in zip(hints, shares.tolist(), strict=True)]
    mean = f"n-grams of {format_number(float(orders.mean()))} tokens on average, at most {facts.order}"
    counts = np.bincount(orders, minlength=facts.order + 1)[1:]
    charts: list[View] = [
        TokenStrip(
            title=arrays.title,
            note=mean,
            tokens=facts.tokens,
            values=row(orders),
            label="order",
            low=1,
            high=facts.order,
            hints=hints,
        ),
        Bars(title="How often each order is used", labels=levels, values=row(counts), x="tokens"),
    ]
    if shares is not None and len(names) <= MAX_COLUMNS:
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
    return Drawing(charts, [Table(title="Orders", note=mean, columns=columns, rows=rows)])


implement(
    Backoff,
    backoff_arrays,
    backoff_charts,
    {"is not an n-gram model": lambda s: not (s.gradient_free and isinstance(s.predictor.network, NGram))},
    trained=True,
)


def describe_shares(shares: list[float]) -> str:
    """Returns the shares of a token from the highest order down, without those near 0."""
    pairs = reversed(list(enumerate(shares, 1)))
    return ", ".join(f"{100 * share:.0f} % order {order}" for order, share in pairs if share >= 0.005)
