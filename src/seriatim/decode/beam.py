"""Beam search: keep the best few hypotheses of every row, and always return one, finished or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.state import select
from .options import DecodeSettings
from .sampling import Hypothesis, Step, forbid


def beam(
    step: Step,
    log_probs: Tensor,
    state: Any,
    options: DecodeSettings,
    eos: int | None = None,
    stopped: Callable[[int, list[int]], bool] = lambda row, tokens: False,
    forbidden: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The `nbest` best continuations of each of N rows, best first.

    Hypotheses are ranked by score / length^penalty. A row is done when no running hypothesis can still overtake
    the finished ones, or at `max_tokens`; then the running ones compete as they stand.
    """
    rows, vocabulary = log_probs.shape
    device = log_probs.device
    width = options.beams
    running: list[list[Hypothesis]] = [[Hypothesis([], 0.0, False)] for _ in range(rows)]
    finished: list[list[Hypothesis]] = [[] for _ in range(rows)]
    for length in range(1, options.max_tokens + 1):
        # the rows of the state are the running hypotheses of row 0, then of row 1, …
        totals = torch.tensor([h.score for row in running for h in row], dtype=torch.float64)
        candidates = totals[:, None] + forbid(log_probs, forbidden).cpu().double()  # (Σ hypotheses, V)
        parents: list[int] = []
        offset = 0
        for row in range(rows):
            count = len(running[row])
            if count == 0:
                continue
            scores = candidates[offset : offset + count].flatten()
            top = scores.topk(min(2 * width, len(scores)))  # twice: at most `width` of them can be finished
            survivors: list[Hypothesis] = []
            for score, index in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                if len(survivors) == width or score == -torch.inf:
                    break
                parent, token = divmod(index, vocabulary)
                tokens = [*running[row][parent].tokens, token]
                if token == eos or stopped(row, tokens):
                    finished[row].append(Hypothesis(tokens, score, True))
                else:
                    survivors.append(Hypothesis(tokens, score, False))
                    parents.append(offset + parent)
            offset += count
            if not survivors and not finished[row]:  # nothing can follow: the row ends as it stands
                finished[row] = running[row][:1]
            if _settled(finished[row], survivors, length, options):
                del parents[len(parents) - len(survivors) :]
                survivors = []
            running[row] = survivors
        if not parents or length == options.max_tokens:
            break
        last = torch.tensor([h.tokens[-1] for row in running for h in row], device=device)
        log_probs, state = step(last, select(state, torch.tensor(parents, device=device)))
    return [_ranked(done + left, options)[: options.nbest] for done, left in zip(finished, running, strict=True)]


def _value(score: float, length: int, options: DecodeSettings) -> float:
    return float(score / max(length, 1) ** options.length_penalty)


def _ranked(hypotheses: list[Hypothesis], options: DecodeSettings) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda h: -_value(h.score, len(h.tokens), options))


def _settled(done: list[Hypothesis], left: list[Hypothesis], length: int, options: DecodeSettings) -> bool:
    """Whether the wanted number of finished hypotheses beats all that the running ones can still become: their
    scores only fall, and with a length penalty are divided by at most the longest length allowed."""
    if len(done) < options.nbest:
        return False
    if not left:
        return True
    best_left = max(h.score for h in left)
    reach = max(_value(best_left, options.max_tokens, options), _value(best_left, length + 1, options))
    wanted = _ranked(done, options)[options.nbest - 1]
    return _value(wanted.score, len(wanted.tokens), options) >= reach
