"""Greedy decoding and sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.room import append, rows_of
from ..core.state import select
from .constraints import Constraints, Prefix, repel
from .options import DecodeSettings

# The step: tokens (N,) and the state before them → log-probabilities of what follows (N,V), and the state after them.
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
Stopped = Callable[[int, list[int]], bool]  # whether a row ends behind these tokens


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
) -> list[Hypothesis]:
    """Continues each of N rows, from the log-probabilities (N,V) behind its prompt, until it ends.

    Each row draws from its own stream, so that neighbours do not matter; finished rows leave the batch.
    `stopped(row, tokens)` may end a row, `history` (N,L; −1, nothing, comes first) is what the bans on repetition
    look back on, `forbidden` tokens are never chosen, `prefix` holds the tokens that each row begins with, and
    `limits` the most tokens (one at least) it may have, where that is less than `max_tokens`.
    """
    rows = len(log_probs)
    constrain = Constraints(rows, options, eos, forbidden, prefix)
    most = [options.max_tokens] * rows if limits is None else [min(n, options.max_tokens) for n in limits]
    tokens: list[list[int]] = [[] for _ in range(rows)]
    scores, ended = [0.0] * rows, [False] * rows
    active = list(range(rows))
    past = torch.empty(rows, 0, dtype=torch.long) if history is None else history
    past = past.to(log_probs.device)
    for place in range(max(most, default=0)):
        allowed = constrain(log_probs, past, place, torch.tensor(active))
        allowed = repel(allowed, past, options.repetition_penalty)
        if options.temperature == 0:
            chosen = allowed.argmax(dim=-1)
        else:
            uniforms = torch.tensor([streams[row].random() for row in active], dtype=torch.float64)
            chosen = draw(filtered(allowed, options), uniforms)
        possible = (allowed.gather(1, chosen[:, None]) > -torch.inf)[:, 0].tolist()
        gained = log_probs.gather(1, chosen[:, None])[:, 0].tolist()
        stay = []
        for index, (row, token, gain) in enumerate(zip(active, chosen.tolist(), gained, strict=True)):
            if not possible[index]:  # nothing can follow: an n-gram without smoothing in a context never seen
                continue
            tokens[row].append(token)
            scores[row] += gain
            ended[row] = token == eos or (stopped is not None and stopped(row, tokens[row]))
            if not ended[row] and len(tokens[row]) < most[row]:
                stay.append(index)
        if not stay:
            break
        past = append(past, chosen[:, None], dim=1)
        if len(stay) < len(active):
            keep = torch.tensor(stay, device=chosen.device)
            active = [active[index] for index in stay]
            state, chosen, past = select(state, keep), chosen[keep], rows_of(past, keep)
        log_probs, state = step(chosen, state)
    values = [score / options.divisor(len(row)) for score, row in zip(scores, tokens, strict=True)]
    return [Hypothesis(*parts) for parts in zip(tokens, scores, ended, values, strict=True)]
