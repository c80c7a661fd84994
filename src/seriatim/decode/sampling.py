"""Greedy decoding and sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..core.room import append
from ..core.state import select
from .constraints import NOTHING, Constraints, Prefix, repel
from .options import DecodeSettings

# The step: tokens (N,) and the state before them → log-probabilities of what follows (N,V), and the state after them.
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
Stopped = Callable[[int, list[int]], bool]  # whether a row ends behind these tokens
AHEAD = 256  # tokens that may be chosen without coming back
WATCHED = 8  # the same where each may end the text: what stands behind its end was in vain


class Ahead(Protocol):
    """Several steps at once, for a model that can choose by itself what `sample` would."""

    def __call__(
        self, tokens: Tensor, state: Any, steps: int, limits: list[int], least: int, uniforms: Tensor | None
    ) -> tuple[Tensor, Tensor, Any] | None:
        """Up to `steps` tokens of each row (N,steps) behind `tokens` (N,), −1 behind its end or its limit, their
        log-probabilities, and the state of the rows that go on, behind all but the last of their tokens. No end among
        the first `least`. None: a step is to be made by itself."""


@dataclass(frozen=True)
class Hypothesis:
    """A decoded continuation. `score` is the sum of the model's own log-probabilities, whatever the options were."""

    tokens: list[int]
    score: float
    finished: bool  # ended by itself, not by the limit
    value: float  # what it is ranked by: the score after its length, and what it left unread, are accounted for


def filtered(log_probs: Tensor, options: DecodeSettings) -> Tensor:
    """The probabilities to draw from: temperature, then top-k, then top-p (at least one token always stays)."""
    scores = log_probs / options.temperature
    if options.top_k is not None and options.top_k < scores.shape[-1]:
        lowest = scores.topk(options.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < lowest, -torch.inf)
    probs = scores.softmax(dim=-1)
    if options.top_p is not None and options.top_p < 1:
        ordered, order = probs.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        probs = probs.masked_fill((before >= options.top_p).scatter(1, order, before >= options.top_p), 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """One token a row by inverting the cumulative distribution at the row's own uniform number."""
    cumulative = probs.cpu().double().cumsum(dim=-1)  # not every device has doubles
    targets = uniforms[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, targets, right=True)[:, 0].to(probs.device)
    last = probs.shape[-1] - 1 - (probs > 0).flip(-1).int().argmax(dim=-1)  # rounding must not reach beyond
    return torch.minimum(drawn, last)


@dataclass
class Text:
    """One that is being written."""

    limit: int
    stream: np.random.Generator
    numbers: list[float] = field(default_factory=list)  # drawn, and not used yet
    tokens: list[int] = field(default_factory=list)
    score: float = 0.0
    ended: bool = False

    @property
    def left(self) -> int:
        return self.limit - len(self.tokens)

    def take(self, tokens: list[int], gains: list[float]) -> None:
        self.tokens += tokens
        self.score += sum(gains)
        del self.numbers[: len(tokens)]

    def uniforms(self, count: int) -> list[float]:
        """The next numbers of its stream; they stay so until they are used."""
        if len(self.numbers) < count:
            self.numbers += self.stream.random(count - len(self.numbers)).tolist()
        return self.numbers[:count]

    @property
    def goes_on(self) -> bool:
        return not self.ended and self.left > 0


def sample(
    step: Step,
    log_probs: Tensor,
    state: Any,
    options: DecodeSettings,
    streams: Sequence[np.random.Generator],
    eos: int | None = None,
    stopped: Stopped | None = None,
    history: Tensor | None = None,
    forbidden: Sequence[int] = (),
    prefix: Prefix | None = None,
    limits: Sequence[int] | None = None,
    ahead: Ahead | None = None,
) -> list[Hypothesis]:
    """Continues each of N rows, from the log-probabilities (N,V) behind its prompt, until it ends.

    Each row draws from its own stream, so that neighbours do not matter; finished rows leave the batch.
    `stopped(row, tokens)` may end a row, `history` (N,L; −1, nothing, comes first) is what the bans on repetition
    look back on, `forbidden` tokens are never chosen, `prefix` holds the tokens that each row begins with, and
    `limits` the most tokens (one at least) it may have, where that is less than `max_tokens`. With `ahead`, which knows
    no prefix and no bans on repetition, nobody comes back here for every token.
    """
    rows = len(log_probs)
    constrain = Constraints(rows, options, eos, forbidden, prefix)
    most = [options.max_tokens] * rows if limits is None else [min(n, options.max_tokens) for n in limits]
    texts = [Text(limit, stream) for limit, stream in zip(most, streams, strict=True)]
    active = list(range(rows))
    past = torch.empty(rows, 0, dtype=torch.long) if history is None else history
    past = past.to(log_probs.device)

    def ends(row: int) -> bool:
        return texts[row].tokens[-1] == eos or (stopped is not None and stopped(row, texts[row].tokens))

    place = 0
    while active:
        allowed = constrain(log_probs, past, place, torch.tensor(active))
        allowed = repel(allowed, past, options.repetition_penalty)
        if options.temperature == 0:
            chosen = allowed.argmax(dim=-1)
        else:
            uniforms = torch.tensor([texts[row].uniforms(1)[0] for row in active], dtype=torch.float64)
            chosen = draw(filtered(allowed, options), uniforms)
        possible = (allowed.gather(1, chosen[:, None]) > -torch.inf)[:, 0].tolist()
        gained = log_probs.gather(1, chosen[:, None])[:, 0].tolist()
        stay = []
        for index, (row, token, gain) in enumerate(zip(active, chosen.tolist(), gained, strict=True)):
            if possible[index]:  # not so: an n-gram without smoothing in a context never seen
                texts[row].take([token], [gain])
                texts[row].ended = ends(row)
                stay += [index] if texts[row].goes_on else []
        if not stay:
            break
        past = append(past, chosen[:, None], dim=1)
        if len(stay) < len(active):
            state, chosen, past = select((state, chosen, past), torch.tensor(stay, device=chosen.device))
        active = [active[index] for index in stay]
        place += 1
        while ahead is not None and active:
            left = [texts[row].left for row in active]
            size = min(AHEAD if stopped is None else WATCHED, max(left))
            numbers = [texts[row].uniforms(size) for row in active] if options.temperature > 0 else None
            draws = None if numbers is None else torch.tensor(numbers, dtype=torch.float64)
            went = ahead(chosen, state, size, left, max(options.min_tokens - place, 0), draws)
            if went is None:
                break
            found, gains, state = went
            size = found.shape[1]
            there: list[int] = []  # of `active`, those of which there is a state
            for index, (row, some, gained) in enumerate(zip(active, found.tolist(), gains.tolist(), strict=True)):
                count = size - some.count(NOTHING)  # nothing stands at the end alone
                there += [index] if count == size < left[index] and some[-1] != eos else []
                at_once = 1 if stopped is not None else count
                for first in range(0, count, max(at_once, 1)):
                    if texts[row].goes_on:
                        texts[row].take(some[first : first + at_once], gained[first : first + at_once])
                        texts[row].ended = ends(row)
            stay = [index for index in there if texts[active[index]].goes_on]
            if stay and len(stay) < len(there):
                state = select(state, torch.tensor([there.index(index) for index in stay]))
            chosen, past = found[stay, -1], past[stay]
            active = [active[index] for index in stay]
            place += size
        if active:
            log_probs, state = step(chosen, state)
    return [
        Hypothesis(text.tokens, text.score, text.ended, text.score / options.divisor(len(text.tokens)))
        for text in texts
    ]
