"""Decoding: the constraints on the next token, greedy decoding and sampling.

Constraints are forbidden tokens, a minimum length, no repetition, and a forced prefix. Each function takes
log-probabilities (N,V) and returns them with −∞ for tokens that are not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..core.state import State, append, select
from .settings import GenerationSettings

# Constraints

NO_TOKEN = -1
Prefix = Sequence[Sequence[int]]


def forbid(log_probs: Tensor, tokens: Sequence[int]) -> Tensor:
    if not tokens:
        return log_probs
    return log_probs.index_fill(1, torch.tensor(tokens, device=log_probs.device), -torch.inf)


def penalize_repetition(log_probs: Tensor, past: Tensor, penalty: float) -> Tensor:
    """Multiplies the log-probability of tokens in `past` (N,L; −1: none) by the penalty (Keskar et al. 2019)."""
    if penalty == 1.0 or past.shape[1] == 0:
        return log_probs
    occurred = torch.zeros(len(log_probs), log_probs.shape[1] + 1, dtype=torch.bool, device=log_probs.device)
    occurred.scatter_(1, past % occurred.shape[1], True)  # −1 becomes the extra column
    return torch.where(occurred[:, :-1], log_probs * penalty, log_probs)


def ban_repeated_ngrams(log_probs: Tensor, past: Tensor, size: int) -> Tensor:
    """Forbids tokens that would repeat an n-gram of that size in `past` (N,L; −1: none)."""
    if size == 0 or past.shape[1] < size:
        return log_probs
    ngrams = past.unfold(1, size, 1)  # (N,L−size+1,size)
    last = past[:, past.shape[1] - size + 1 :]  # (N,size−1): what the next token would complete
    same = (ngrams[:, :, :-1] == last[:, None]).all(dim=-1) & (ngrams != NO_TOKEN).all(dim=-1)
    rows, positions = same.nonzero(as_tuple=True)
    log_probs = log_probs.clone()
    log_probs[rows, ngrams[rows, positions, -1]] = -torch.inf
    return log_probs


def force_tokens(log_probs: Tensor, allowed: Tensor, tokens: Tensor) -> Tensor:
    """Allows only the given token of each row (N,; −1: as `allowed`), even if it is not in `allowed`."""
    forced = tokens != NO_TOKEN
    if not bool(forced.any()):
        return allowed
    index = tokens.clamp(min=0)[:, None]
    only = torch.full_like(allowed, -torch.inf).scatter(1, index, log_probs.gather(1, index))
    return torch.where(forced[:, None], only, allowed)


class Constraints:
    """All constraints for the rows of a batch.

    Args:
        rows: The number of rows.
        options: The settings of decoding.
        eos: The token that ends a sequence.
        forbidden: Tokens that are never chosen.
        prefix: The tokens that each row begins with.
    """

    def __init__(
        self, rows: int, options: GenerationSettings, eos: int | None, forbidden: Sequence[int], prefix: Prefix | None
    ) -> None:
        self.options, self.eos, self.forbidden = options, eos, list(forbidden)
        self.prefix = pad_rows(prefix or [[]] * rows)

    def __call__(self, log_probs: Tensor, past: Tensor, position: int, rows: Tensor) -> Tensor:
        """Returns the constrained log-probabilities of the token at a position.

        Args:
            log_probs: (N,V).
            past: The tokens before it (N,L), prompt included.
            position: The position after the prompt.
            rows: The row of the batch of each entry (N,).
        """
        too_early = [self.eos] if self.eos is not None and position < self.options.min_tokens else []
        allowed = forbid(log_probs, self.forbidden + too_early)
        allowed = ban_repeated_ngrams(allowed, past.to(log_probs.device), self.options.no_repeat_ngram)
        if position < self.prefix.shape[1]:
            allowed = force_tokens(log_probs, allowed, self.prefix[rows, position].to(log_probs.device))
        return allowed


def pad_rows(rows: Prefix, left: bool = False) -> Tensor:
    """Returns rows of different lengths as one tensor (N,L), padded with −1 on the right, or on the left."""
    longest = max((len(row) for row in rows), default=0)
    gaps = [[NO_TOKEN] * (longest - len(row)) for row in rows]
    filled = [[*gap, *row] if left else [*row, *gap] for gap, row in zip(gaps, rows, strict=True)]
    return torch.tensor(filled, dtype=torch.long).reshape(len(rows), longest)


# A step of the model: tokens (N,) and the state before them → log-probabilities of the next ones (N,V), and the state.
# Sampling

Step = Callable[[Tensor, State], tuple[Tensor, State]]
Stopped = Callable[[int, list[int]], bool]  # (row, its tokens) → whether it ends
MULTI_STEP = 256  # tokens per call of `MultiStep`
MULTI_STEP_STOPPED = 8  # the same if `stopped` may end a row: tokens after the end are wasted


class MultiStep(Protocol):
    """Several steps in one call, by a model that chooses tokens itself as `sample` would."""

    def __call__(
        self, tokens: Tensor, state: State, steps: int, limits: list[int], min_tokens: int, uniforms: Tensor | None
    ) -> tuple[Tensor, Tensor, State] | None:
        """Returns up to `steps` tokens of each row after `tokens` (N,), their log-probabilities, and a state; or None.

        Tokens and log-probabilities are (N,steps), with −1 after the end or limit of a row. The state is that of the
        rows that continue, before their last token. No row ends among the first `min_tokens`. None: a single step has
        to be made.
        """


@dataclass(frozen=True)
class Hypothesis:
    """A decoded continuation. `score` is the sum of the model's log-probabilities, before any constraint."""

    tokens: list[int]
    score: float
    finished: bool  # whether it ended by itself, not by the limit
    normalized_score: float  # the score normalized by length, with coverage penalty: what hypotheses are ranked by


def sampling_probs(log_probs: Tensor, options: GenerationSettings) -> Tensor:
    """Returns probabilities (N,V) after temperature, top-k and top-p; at least one token always remains."""
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


def draw_tokens(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Returns a token per row, by inverting the cumulative distribution at the row's uniform number."""
    cumulative = probs.cpu().double().cumsum(dim=-1)  # not every device has float64
    targets = uniforms[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, targets, right=True)[:, 0].to(probs.device)
    last = probs.shape[-1] - 1 - (probs > 0).flip(-1).int().argmax(dim=-1)  # rounding must not exceed it
    return torch.minimum(tokens, last)


@dataclass
class Continuation:
    """The generated tokens of a row."""

    limit: int
    stream: np.random.Generator
    unused: list[float] = field(default_factory=list)  # uniform numbers, drawn but not used yet
    tokens: list[int] = field(default_factory=list)
    score: float = 0.0
    ended: bool = False

    @property
    def left(self) -> int:
        return self.limit - len(self.tokens)

    def extend(self, tokens: list[int], log_probs: list[float]) -> None:
        self.tokens += tokens
        self.score += sum(log_probs)
        del self.unused[: len(tokens)]

    def uniforms(self, count: int) -> list[float]:
        """Returns the next numbers of its stream; the same ones until `extend` uses them."""
        if len(self.unused) < count:
            self.unused += self.stream.random(count - len(self.unused)).tolist()
        return self.unused[:count]

    @property
    def continues(self) -> bool:
        return not self.ended and self.left > 0


def sample(
    step: Step,
    log_probs: Tensor,
    state: State,
    options: GenerationSettings,
    streams: Sequence[np.random.Generator],
    eos: int | None = None,
    stopped: Stopped | None = None,
    history: Tensor | None = None,
    forbidden: Sequence[int] = (),
    prefix: Prefix | None = None,
    limits: Sequence[int] | None = None,
    multi_step: MultiStep | None = None,
) -> list[Hypothesis]:
    """Continues each of N rows until it ends.

    Each row draws from its own stream, so that neighbors have no influence; finished rows leave the batch.

    Args:
        step: A step of the model.
        log_probs: The log-probabilities (N,V) after the prompts.
        state: The state after the prompts.
        options: The settings of decoding.
        streams: The random stream of each row.
        eos: The token that ends a row.
        stopped: May end a row: (row, tokens) → bool.
        history: The prompts (N,L), padded with −1 on the left, for the constraints on repetition.
        forbidden: Tokens that are never chosen.
        prefix: The tokens that each row begins with.
        limits: The largest number of tokens of each row (at least 1), if less than `max_tokens`.
        multi_step: Several steps in one call; it supports neither prefix nor constraints on repetition.
    """
    rows = len(log_probs)
    constrain = Constraints(rows, options, eos, forbidden, prefix)
    max_lengths = [options.max_tokens] * rows if limits is None else [min(n, options.max_tokens) for n in limits]
    texts = [Continuation(limit, stream) for limit, stream in zip(max_lengths, streams, strict=True)]
    active = list(range(rows))
    past = torch.empty(rows, 0, dtype=torch.long) if history is None else history
    past = past.to(log_probs.device)

    def ends(row: int) -> bool:
        return texts[row].tokens[-1] == eos or (stopped is not None and stopped(row, texts[row].tokens))

    position = 0
    while active:
        allowed = constrain(log_probs, past, position, torch.tensor(active))
        allowed = penalize_repetition(allowed, past, options.repetition_penalty)
        if options.temperature == 0:
            tokens = allowed.argmax(dim=-1)
        else:
            uniforms = torch.tensor([texts[row].uniforms(1)[0] for row in active], dtype=torch.float64)
            tokens = draw_tokens(sampling_probs(allowed, options), uniforms)
        possible = (allowed.gather(1, tokens[:, None]) > -torch.inf)[:, 0].tolist()
        token_log_probs = log_probs.gather(1, tokens[:, None])[:, 0].tolist()
        stay = []
        for index, (row, token, log_prob) in enumerate(zip(active, tokens.tolist(), token_log_probs, strict=True)):
            if possible[index]:  # false for an n-gram model without smoothing in an unseen context
                texts[row].extend([token], [log_prob])
                texts[row].ended = ends(row)
                stay += [index] if texts[row].continues else []
        if not stay:
            break
        past = append(past, tokens[:, None], dim=1)
        if len(stay) < len(active):
            state, tokens, past = select((state, tokens, past), torch.tensor(stay, device=tokens.device))
        active = [active[index] for index in stay]
        position += 1
        while multi_step is not None and active:
            left = [texts[row].left for row in active]
            size = min(MULTI_STEP if stopped is None else MULTI_STEP_STOPPED, max(left))
            numbers = [texts[row].uniforms(size) for row in active] if options.temperature > 0 else None
            uniforms_ahead = None if numbers is None else torch.tensor(numbers, dtype=torch.float64)
            result = multi_step(tokens, state, size, left, max(options.min_tokens - position, 0), uniforms_ahead)
            if result is None:
                break
            generated, generated_log_probs, state = result
            size = generated.shape[1]
            with_state: list[int] = []  # indices of `active` of the rows in the state
            rows_ahead = zip(active, generated.tolist(), generated_log_probs.tolist(), strict=True)
            for index, (row, row_tokens, row_log_probs) in enumerate(rows_ahead):
                count = size - row_tokens.count(NO_TOKEN)  # only at the end
                with_state += [index] if count == size < left[index] and row_tokens[-1] != eos else []
                at_once = 1 if stopped is not None else count
                for first in range(0, count, max(at_once, 1)):
                    if texts[row].continues:
                        last = first + at_once
                        texts[row].extend(row_tokens[first:last], row_log_probs[first:last])
                        texts[row].ended = ends(row)
            stay = [index for index in with_state if texts[active[index]].continues]
            if stay and len(stay) < len(with_state):
                state = select(state, torch.tensor([with_state.index(index) for index in stay]))
            tokens, past = generated[stay, -1], past[stay]
            active = [active[index] for index in stay]
            position += size
        if active:
            log_probs, state = step(tokens, state)
    return [
        Hypothesis(text.tokens, text.score, text.ended, text.score / options.divisor(len(text.tokens)))
        for text in texts
    ]
