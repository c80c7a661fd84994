"""Beam search: keeps the best hypotheses of every row, and always returns one, finished or not.

All rows search together. Each has the same number of slots for hypotheses, and an empty slot has the score −∞: so the
beam is a few tensors, and a state whose rows are the hypotheses of row 0, then of row 1, …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.state import State, select
from .sampling import NO_TOKEN, Constraints, Hypothesis, Prefix, Step, Stopped
from .settings import GenerationSettings

MIN_COVERAGE = 1e-44  # an unread position costs about 100 β, not infinity: all hypotheses may leave one unread


@dataclass(frozen=True)
class Coverage:
    """The coverage penalty of Wu et al. 2016: hypotheses that leave parts of the source unread score less.

    cp = β Σ_i log min(Σ_j p_ij, 1) over the source positions i; p_ij is the attention of target token j to i.
    """

    weight: float  # β
    attention: Callable[[State], Tensor]  # state → the attention (N,S) of its step to the source
    mask: Tensor | None = None  # (rows,S): True for source positions, False for padding; None: no padding

    def penalty(self, covered: Tensor, rows: Tensor) -> Tensor:
        """Returns the penalties (N,K) of hypotheses with total attention (N,K,S), of batch rows (N,)."""
        terms = covered.clamp(MIN_COVERAGE, 1.0).log()
        if self.mask is not None:
            terms = terms.masked_fill(~self.mask.cpu()[rows][:, None], 0.0)
        penalty: Tensor = self.weight * terms.sum(dim=-1)
        return penalty


def beam_search(
    step: Step,
    log_probs: Tensor,
    state: State,
    options: GenerationSettings,
    eos: int | None = None,
    stopped: Stopped | None = None,
    history: Tensor | None = None,
    forbidden: Sequence[int] = (),
    prefix: Prefix | None = None,
    limits: Sequence[int] | None = None,
    coverage: Coverage | None = None,
    forced_eos: bool = False,
) -> list[list[Hypothesis]]:
    """Returns the `nbest` best continuations of each of N rows, best first; see `sample` for the arguments.

    Hypotheses are ranked by score / divisor(length) + coverage penalty. A row is done when no running hypothesis can
    (with `early_stop`: is likely to) overtake the finished ones, or at its limit, where running ones compete
    unfinished; with `forced_eos` their last token is `<eos>`, whatever its probability. A hypothesis that ends counts
    if it is among the best `beams` of its step, as in fairseq and transformers.
    """
    rows = len(log_probs)
    constrain = Constraints(rows, options, eos, forbidden, prefix)
    max_lengths = (
        [options.max_tokens] * rows if limits is None else [min(limit, options.max_tokens) for limit in limits]
    )
    past = torch.empty(rows, 0, dtype=torch.long) if history is None else history.cpu()
    results: list[list[Hypothesis]] = [[] for _ in range(rows)]
    alive = torch.arange(rows)  # rows that still search
    running = Beam.empty(rows)
    covered: Tensor | None = None  # (N,K,S): total attention to each source position
    for length in range(1, max(max_lengths, default=0) + 1):
        slots = running.scores.shape[1]
        tokens_before = torch.cat([past[alive].repeat_interleave(slots, dim=0), running.tokens.flatten(0, 1)], dim=1)
        allowed = constrain(log_probs, tokens_before, length - 1, alive.repeat_interleave(slots))
        best = _extend(running, allowed, 2 * options.beams)  # twice: half may end, and `beams` must continue
        values, running_values = best.scores / options.divisor(length), running.scores / options.divisor(length)
        if coverage is not None:
            attention = coverage.attention(state).cpu().double().unflatten(0, running.scores.shape)
            covered = attention if covered is None else covered + attention
            penalty = coverage.penalty(covered, alive)
            values, running_values = values + penalty.gather(1, best.parents), running_values + penalty
        ended, continuing = _split_ended(replace(best, values=values), options.beams, eos, stopped, alive)

        stay = []
        any_ended, leaders = ended.exist().any(dim=1).tolist(), continuing.scores[:, 0].tolist()
        for index, row in enumerate(alive.tolist()):
            new = ended.hypotheses(index, finished=True) if any_ended[index] else []
            if length == max_lengths[row] and forced_eos and eos is not None:
                unfinished = replace(running, values=running_values).hypotheses(index, finished=False)
                new = [replace(hypothesis, tokens=[*hypothesis.tokens, eos]) for hypothesis in unfinished]
            elif length == max_lengths[row]:
                new += continuing.hypotheses(index, finished=False)
            if not new and not results[row] and leaders[index] == -torch.inf:  # no token can follow
                new = running.hypotheses(index, finished=False)
            if new:
                ranked = sorted(results[row] + new, key=lambda hypothesis: -hypothesis.normalized_score)
                results[row] = ranked[: options.nbest]
            if length < max_lengths[row] and not _is_done(
                results[row], leaders[index], length, max_lengths[row], options
            ):
                stay.append(index)
        if not stay:
            break
        kept_rows = torch.tensor(stay)
        alive, running = alive[kept_rows], continuing.rows(kept_rows)
        order = (kept_rows[:, None] * slots + running.parents).flatten()
        if covered is not None:
            covered = covered.flatten(0, 1)[order].unflatten(0, running.scores.shape)
        if not torch.equal(order, torch.arange(len(log_probs))):
            state = select(state, order.to(log_probs.device))
        log_probs, state = step(running.tokens[:, :, -1].flatten().to(log_probs.device), state)
    return results


@dataclass(frozen=True)
class Beam:
    """K hypotheses of each of N rows, best first. In float64, so always on the CPU."""

    tokens: Tensor  # (N,K,T)
    scores: Tensor  # (N,K)
    values: Tensor  # (N,K): normalized scores, the order of the hypotheses
    parents: Tensor  # (N,K): the slots of the hypotheses that they continue

    @classmethod
    def empty(cls, rows: int) -> Beam:
        """Returns one hypothesis without tokens per row."""
        zeros = torch.zeros(rows, 1, dtype=torch.float64)
        return cls(torch.empty(rows, 1, 0, dtype=torch.long), zeros, zeros, zeros.long())

    def exist(self) -> Tensor:
        return self.scores > -torch.inf

    def without(self, mask: Tensor) -> Beam:
        """Returns the beam with the masked slots (N,K) empty."""
        return replace(self, scores=self.scores.masked_fill(mask, -torch.inf))

    def at(self, slots: Tensor) -> Beam:
        """Returns the hypotheses in these slots (N,J) of each row."""
        tokens = self.tokens.gather(1, slots[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        return Beam(tokens, *(part.gather(1, slots) for part in (self.scores, self.values, self.parents)))

    def rows(self, rows: Tensor) -> Beam:
        return Beam(self.tokens[rows], self.scores[rows], self.values[rows], self.parents[rows])

    def hypotheses(self, row: int, finished: bool) -> list[Hypothesis]:
        exists = self.exist()[row]
        parts = (part[row][exists].tolist() for part in (self.tokens, self.scores, self.values))
        return [Hypothesis(tokens, score, finished, value) for tokens, score, value in zip(*parts, strict=True)]


def _extend(running: Beam, log_probs: Tensor, size: int) -> Beam:
    """Returns the best `size` continuations of each row by one token, best first, with the values of their parents."""
    (rows, slots), (_, vocab_size) = running.scores.shape, log_probs.shape
    gains, tokens = log_probs.topk(min(size, vocab_size))  # (N·K,J): more from one parent are never needed
    scores = running.scores[:, :, None] + gains.cpu().double().unflatten(0, (rows, slots))
    top = scores.flatten(1).topk(min(size, slots * gains.shape[1]))
    parents = top.indices // gains.shape[1]
    last = tokens.cpu().view(rows, slots * gains.shape[1]).gather(1, top.indices)
    before = running.at(parents)
    return Beam(torch.cat([before.tokens, last[:, :, None]], dim=2), top.values, before.values, parents)


def _split_ended(best: Beam, beams: int, eos: int | None, stopped: Stopped | None, alive: Tensor) -> tuple[Beam, Beam]:
    """Returns the hypotheses that end with this token, and the best `beams` that continue."""
    ends = best.tokens[:, :, -1] == (NO_TOKEN if eos is None else eos)
    if stopped is not None:
        candidates = zip(alive.tolist(), best.tokens.tolist(), strict=True)
        ends |= torch.tensor([[stopped(row, tokens) for tokens in hypotheses] for row, hypotheses in candidates])
    late = torch.arange(ends.shape[1]) >= beams
    continuing = ends.int().argsort(dim=1, stable=True)[:, :beams]
    return best.without(~ends | late), best.without(ends).at(continuing)


def _is_done(done: list[Hypothesis], leader: float, length: int, limit: int, options: GenerationSettings) -> bool:
    """Returns whether no running hypothesis can overtake the finished ones; `leader` is the best running score.

    Scores only fall, and the divisor is at most that of the limit. A beam of one is greedy search.
    """
    if leader == -torch.inf or options.beams == 1:
        return leader == -torch.inf or len(done) > 0
    best_possible = leader / options.divisor(length if options.early_stop else limit)
    return len(done) >= options.nbest and done[-1].normalized_score >= best_possible
