"""Greedy decoding and sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.state import select
from .options import DecodeSettings

# The step: tokens (N,) and the state before them → log-probabilities of what follows (N,V), and the state after them.
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


@dataclass(frozen=True)
class Hypothesis:
    """A decoded continuation. `score` is the sum of the model's own log-probabilities, whatever the options were."""

    tokens: list[int]
    score: float
    finished: bool  # ended by itself, not by the limit


def forbid(log_probs: Tensor, tokens: Sequence[int]) -> Tensor:
    """The same without some tokens."""
    if not tokens:
        return log_probs
    return log_probs.index_fill(1, torch.tensor(tokens, device=log_probs.device), -torch.inf)


def repel(log_probs: Tensor, history: Tensor, penalty: float) -> Tensor:
    """Keskar et al. 2019: what occurred in `history` (N,L; −1 is nothing) has its log-probability multiplied."""
    if penalty == 1.0 or history.shape[1] == 0:
        return log_probs
    seen = torch.zeros(len(log_probs), log_probs.shape[1] + 1, dtype=torch.bool, device=log_probs.device)
    seen.scatter_(1, history % seen.shape[1], True)  # −1 falls on the extra column
    return torch.where(seen[:, :-1], log_probs * penalty, log_probs)


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
    streams: list[np.random.Generator],
    eos: int | None = None,
    stopped: Callable[[int, list[int]], bool] = lambda row, tokens: False,
    history: Tensor | None = None,
    forbidden: Sequence[int] = (),
) -> list[Hypothesis]:
    """Continues each of N rows, from the log-probabilities (N,V) behind its prompt, until it ends.

    Each row draws from its own stream, so that neighbours do not matter; finished rows leave the batch.
    `stopped(row, tokens)` may end a row, `history` (N,L) is what the repetition penalty looks back on, and
    `forbidden` tokens are never chosen.
    """
    rows = len(log_probs)
    tokens: list[list[int]] = [[] for _ in range(rows)]
    scores, ended = [0.0] * rows, [False] * rows
    active = list(range(rows))
    past = torch.empty(rows, 0, dtype=torch.long, device=log_probs.device) if history is None else history
    for _ in range(options.max_tokens):
        adjusted = repel(forbid(log_probs, forbidden), past, options.repetition_penalty)
        if options.temperature == 0:
            chosen = adjusted.argmax(dim=-1)
        else:
            uniforms = torch.tensor([streams[row].random() for row in active], dtype=torch.float64)
            chosen = draw(filtered(adjusted, options), uniforms)
        gained = log_probs.gather(1, chosen[:, None])[:, 0].tolist()
        stay = []
        for place, (row, token, gain) in enumerate(zip(active, chosen.tolist(), gained, strict=True)):
            if gain == -math.inf:  # nothing can follow: an n-gram without smoothing in a context never seen
                continue
            tokens[row].append(token)
            scores[row] += gain
            ended[row] = token == eos or stopped(row, tokens[row])
            if not ended[row]:
                stay.append(place)
        if not stay:
            break
        if options.repetition_penalty != 1.0:
            past = torch.cat([past, chosen[:, None]], dim=1)
        if len(stay) < len(active):
            keep = torch.tensor(stay, device=chosen.device)
            active = [active[place] for place in stay]
            state, chosen, past = select(state, keep), chosen[keep], past[keep]
        log_probs, state = step(chosen, state)
    return [Hypothesis(*parts) for parts in zip(tokens, scores, ended, strict=True)]
