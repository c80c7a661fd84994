"""Beam search: keep the best few hypotheses of every row, and always return one, finished or not.

All rows search together. Each has the same number of places for hypotheses, and a place without one has the score −∞:
so the whole beam is a few tensors, and a state whose rows are the hypotheses of row 0, then of row 1, …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.state import select
from .constraints import NOTHING, Constraints, Prefix
from .coverage import Coverage
from .options import DecodeSettings
from .sampling import Hypothesis, Step, Stopped


def beam(
    step: Step,
    log_probs: Tensor,
    state: Any,
    options: DecodeSettings,
    eos: int | None = None,
    stopped: Stopped | None = None,
    history: Tensor | None = None,
    forbidden: Sequence[int] = (),
    prefix: Prefix | None = None,
    limits: Sequence[int] | None = None,
    coverage: Coverage | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` best continuations of each of N rows, best first; the arguments are those of `sample`.

    Hypotheses are ranked by score / divisor(length) + coverage penalty. A row is done when no running hypothesis can
    (with `early_stop`: is likely to) overtake the finished ones, or at its limit; then the running ones compete as
    they stand. One that ends counts if it is among the best `beams` of its step, as in fairseq and transformers.
    """
    rows = len(log_probs)
    constrain = Constraints(rows, options, eos, forbidden, prefix)
    most = [options.max_tokens] * rows if limits is None else [min(limit, options.max_tokens) for limit in limits]
    past = torch.empty(rows, 0, dtype=torch.long) if history is None else history.cpu()
    found: list[list[Hypothesis]] = [[] for _ in range(rows)]
    alive = torch.arange(rows)  # the rows that still search
    running = Beam.empty(rows)
    covered: Tensor | None = None  # (N,K,S): how much of each place of the source was read
    for length in range(1, max(most, default=0) + 1):
        places = running.scores.shape[1]
        behind = torch.cat([past[alive].repeat_interleave(places, dim=0), running.tokens.flatten(0, 1)], dim=1)
        allowed = constrain(log_probs, behind, length - 1, alive.repeat_interleave(places))
        best = _continued(running, allowed, 2 * options.beams)  # twice: half may end, and `beams` must go on
        values = best.scores / options.divisor(length)
        if coverage is not None:
            read = coverage.read(state).unflatten(0, running.scores.shape)
            covered = read if covered is None else covered + read
            values = values + coverage.penalty(covered, alive).gather(1, best.parents)
        done, ahead = _parted(replace(best, values=values), options.beams, eos, stopped, alive)

        stay = []
        ending, leaders = done.exist().any(dim=1).tolist(), ahead.scores[:, 0].tolist()
        for index, row in enumerate(alive.tolist()):
            new = done.listed(index, finished=True) if ending[index] else []
            if length == most[row]:
                new += ahead.listed(index, finished=False)
            if not new and not found[row] and leaders[index] == -torch.inf:  # nothing can follow: as it stands
                new = running.listed(index, finished=False)
            if new:
                found[row] = sorted(found[row] + new, key=lambda one: -one.value)[: options.nbest]
            if length < most[row] and not _settled(found[row], leaders[index], length, most[row], options):
                stay.append(index)
        if not stay:
            break
        kept = torch.tensor(stay)
        alive, running = alive[kept], ahead.rows(kept)
        order = (kept[:, None] * places + running.parents).flatten()
        if covered is not None:
            covered = covered.flatten(0, 1)[order].unflatten(0, running.scores.shape)
        if not torch.equal(order, torch.arange(len(log_probs))):
            state = select(state, order.to(log_probs.device))
        log_probs, state = step(running.tokens[:, :, -1].flatten().to(log_probs.device), state)
    return found


@dataclass(frozen=True)
class Beam:
    """K hypotheses of each of N rows, best first. In doubles, so on the processor, whatever device runs the model."""

    tokens: Tensor  # (N,K,T)
    scores: Tensor  # (N,K)
    values: Tensor  # (N,K): what they are ranked by
    parents: Tensor  # (N,K): the places of the hypotheses that they continue

    @classmethod
    def empty(cls, rows: int) -> Beam:
        """One hypothesis a row, of no tokens."""
        zeros = torch.zeros(rows, 1, dtype=torch.float64)
        return cls(torch.empty(rows, 1, 0, dtype=torch.long), zeros, zeros, zeros.long())

    def exist(self) -> Tensor:
        return self.scores > -torch.inf

    def without(self, places: Tensor) -> Beam:
        """The same with places (N,K) made empty."""
        return replace(self, scores=self.scores.masked_fill(places, -torch.inf))

    def at(self, places: Tensor) -> Beam:
        """The hypotheses at some places (N,J) of each row."""
        tokens = self.tokens.gather(1, places[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        return Beam(tokens, *(part.gather(1, places) for part in (self.scores, self.values, self.parents)))

    def rows(self, rows: Tensor) -> Beam:
        return Beam(self.tokens[rows], self.scores[rows], self.values[rows], self.parents[rows])

    def listed(self, row: int, finished: bool) -> list[Hypothesis]:
        there = self.exist()[row]
        parts = (part[row][there].tolist() for part in (self.tokens, self.scores, self.values))
        return [Hypothesis(tokens, score, finished, value) for tokens, score, value in zip(*parts, strict=True)]


def _continued(running: Beam, log_probs: Tensor, size: int) -> Beam:
    """The best `size` continuations of each row by one token, best first. They have the values of their parents."""
    (rows, places), (_, vocabulary) = running.scores.shape, log_probs.shape
    gains, tokens = log_probs.topk(min(size, vocabulary))  # (N·K,J): a row takes no more than that from one parent
    scores = running.scores[:, :, None] + gains.cpu().double().unflatten(0, (rows, places))
    top = scores.flatten(1).topk(min(size, places * gains.shape[1]))
    parents = top.indices // gains.shape[1]
    chosen = tokens.cpu().view(rows, places * gains.shape[1]).gather(1, top.indices)
    before = running.at(parents)
    return Beam(torch.cat([before.tokens, chosen[:, :, None]], dim=2), top.values, before.values, parents)


def _parted(best: Beam, beams: int, eos: int | None, stopped: Stopped | None, alive: Tensor) -> tuple[Beam, Beam]:
    """Those that end here, and those that go on, as many as there are beams."""
    ends = best.tokens[:, :, -1] == (NOTHING if eos is None else eos)
    if stopped is not None:
        listed = zip(alive.tolist(), best.tokens.tolist(), strict=True)
        ends |= torch.tensor([[stopped(row, tokens) for tokens in candidates] for row, candidates in listed])
    late = torch.arange(ends.shape[1]) >= beams
    onward = ends.int().argsort(dim=1, stable=True)[:, :beams]
    return best.without(~ends | late), best.without(ends).at(onward)


def _settled(done: list[Hypothesis], leader: float, length: int, limit: int, options: DecodeSettings) -> bool:
    """Whether the finished hypotheses beat all that the running ones, of which the best has the score `leader`, can
    become: scores only fall, and are divided by no more than belongs to the limit. A beam of one is greedy search."""
    if leader == -torch.inf or options.beams == 1:
        return leader == -torch.inf or len(done) > 0
    reach = leader / options.divisor(length if options.early_stop else limit)
    return len(done) >= options.nbest and done[-1].value >= reach
