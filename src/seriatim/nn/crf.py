"""Linear-chain conditional random fields: the tags of a sequence are predicted together, not one by one.

Lafferty et al., "Conditional random fields: probabilistic models for segmenting and labeling sequence data" (2001), on
the outputs of a network as in Huang et al., "Bidirectional LSTM-CRF models for sequence tagging" (2015):

    score(y) = start(y_1) + Σ_t emission_t(y_t) + Σ_t transition(y_{t−1}, y_t) + end(y_T)
    p(y) = exp(score(y)) / Z        α_t(j) = emission_t(j) + log Σ_i exp(α_{t−1}(i) + transition(i, j))

log Z is the sum at the end of the forward recursion α. A transition that is not allowed has the score −∞. The best
sequence is found by Viterbi's algorithm, the same recursion with a maximum; the probability of one tag by the recursion
from both ends. All sequences of a batch and all
tags are computed at once, the elements one after the other. The gradient of log Z is known: the probabilities of tags
and of pairs of neighboring tags. So no graph of the recursion is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..kernels import Context
from .network import StepHead

MAX_PAIRS = 1 << 22  # numbers of the table of pairs of tags that are computed at once
MAX_SCORE = 100.0  # of an element and a transition: exp(±6·MAX_SCORE) is a number in double precision
LOWEST = -torch.inf
SMALLEST = torch.finfo(torch.float64).min


class Chain(NamedTuple):
    """The scores of all tag sequences of a batch of rows; K is the number of tags."""

    emissions: Tensor  # (B,T,K) padded on the right
    lengths: Tensor  # (B,)
    start: Tensor  # (K,), or (B,K)
    transitions: Tensor  # (K,K) from the tag of the row to that of the column
    end: Tensor  # (K,), or (B,K)

    @property
    def mask(self) -> Tensor:
        """(B,T), True for elements and False for padding."""
        return torch.arange(self.emissions.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def restricted(self, tags: Tensor) -> Chain:
        """Returns the scores of those sequences only that have given tags (B,T); elements with −1 or less have any."""
        others = torch.arange(self.emissions.shape[2], device=tags.device) != tags[:, :, None]
        return self._replace(emissions=self.emissions.masked_fill(others & (tags >= 0)[:, :, None], LOWEST))

    def scaled(self, factor: float) -> Chain:
        """Returns the chain with all scores multiplied by a factor above 0."""
        emissions, lengths, *scores = self
        start, transitions, end = (score * factor for score in scores)
        return Chain(emissions * factor, lengths, start, transitions, end)


def _unary_scores(chain: Chain) -> Tensor:
    """Returns the emissions (B,T,K) with the scores of the start and the end; padding is 0."""
    mask, count = chain.mask, chain.emissions.shape[1]
    last = torch.arange(count, device=mask.device) == chain.lengths[:, None] - 1  # (B,T)
    scores = chain.emissions + torch.where(last[:, :, None], chain.end.expand(len(mask), -1)[:, None], 0.0)
    first = scores[:, :1] + chain.start.expand(len(mask), -1)[:, None]
    return torch.cat([first, scores[:, 1:]], dim=1).masked_fill(~mask[:, :, None], 0.0)


def _are_usual(*scores: Tensor) -> bool:
    """Returns whether the exponentials of a few scores that are not −∞ can be multiplied in double precision."""
    return sum(float(torch.where(part == LOWEST, 0.0, part.detach()).abs().max()) for part in scores) <= MAX_SCORE


def _forward_scores(unary: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """Returns the log of the sum over all beginnings that end with a tag; after the last element of a row the same.

    Several chains of the same rows are computed at once. If the scores have a usual size, sums of exponentials are
    matrix products, in double precision: no tag of consequence is too unlikely for it.

    Args:
        unary: (C,B,T,K) in double precision.
        transitions: (C,K,K), likewise.
        lengths: (B,).
    """
    factors = transitions.exp() if _are_usual(unary, transitions) else None
    steps = unary.permute(2, 0, 1, 3)  # (T,C,B,K)
    inside = lengths[:, None] > torch.arange(len(steps), device=lengths.device)[:, None, None]  # (T,B,1)
    scores = [steps[0]]
    for t in range(1, len(steps)):
        previous = scores[-1]
        if factors is None:
            sums = torch.logsumexp(previous[..., None] + transitions[:, None], dim=-2)
        else:
            largest = previous.amax(dim=-1, keepdim=True).clamp(min=SMALLEST)
            sums = ((previous - largest).exp_() @ factors).log_() + largest
        scores.append(torch.where(inside[t], sums + steps[t], previous))
    return torch.stack(scores, dim=2)


def _reverse(rows: Tensor, lengths: Tensor) -> Tensor:
    """Returns rows (B,T,K) with the elements of each in reverse order; the padding stays where it is."""
    positions = torch.arange(rows.shape[1], device=rows.device)
    index = torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)
    return rows.gather(1, index[:, :, None].expand_as(rows))


def _both_directions(unary: Tensor, transitions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log Z (B,), and the sums over all beginnings up to an element and all ends from it on, both (B,T,K)."""
    both = torch.stack([unary, _reverse(unary, lengths)]).double(), torch.stack([transitions, transitions.T]).double()
    before, after = _forward_scores(*both, lengths)
    return before[:, -1].logsumexp(dim=-1), before, _reverse(after, lengths)


def _unary_probabilities(unary: Tensor, before: Tensor, after: Tensor, log_z: Tensor, mask: Tensor) -> Tensor:
    both = torch.where(unary == LOWEST, LOWEST, before + after - unary)  # both sums have the score of the element
    return (both - log_z[:, None, None]).exp().masked_fill(~mask[:, :, None], 0.0)


def _expected_pairs(
    before: Tensor, after: Tensor, log_z: Tensor, transitions: Tensor, mask: Tensor, weights: Tensor, usual: bool
) -> Tensor:
    """Returns the expected number of each pair of neighboring tags (K,K), summed over rows with weights (B,)."""
    rows, positions = mask[:, 1:].nonzero(as_tuple=True)
    first, second = before[rows, positions], after[rows, positions + 1] - log_z[rows][:, None]  # (N,K)
    if usual:
        largest = first.amax(dim=1, keepdim=True)
        return transitions.exp() * ((first - largest).exp().T @ ((second + largest).exp() * weights[rows][:, None]))
    total = torch.zeros_like(transitions)
    for part in torch.arange(len(rows), device=rows.device).split(max(MAX_PAIRS // len(total) ** 2, 1)):
        pairs = (first[part][:, :, None] + second[part][:, None] + transitions).exp_()
        total += torch.einsum("nij,n->ij", pairs, weights[rows[part]])
    return total


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, unary: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
        if not any(ctx.needs_input_grad):
            sums = _forward_scores(unary[None].double(), transitions[None].double(), lengths)
            return sums[0, :, -1].logsumexp(dim=-1).to(unary.dtype)
        log_z, before, after = _both_directions(unary, transitions, lengths)
        ctx.save_for_backward(unary, transitions, lengths, before, after, log_z)
        return log_z.to(unary.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        unary, transitions, lengths, before, after, log_z = ctx.saved_tensors
        mask = torch.arange(unary.shape[1], device=lengths.device) < lengths[:, None]
        tags = _unary_probabilities(unary, before, after, log_z, mask) * gradient[:, None, None]
        weights, usual = gradient.double(), _are_usual(unary, transitions)
        pairs = _expected_pairs(before, after, log_z, transitions.double(), mask, weights, usual)
        return tags.to(unary.dtype), pairs.to(transitions.dtype), None


def log_partition(chain: Chain) -> Tensor:
    """Returns log Z (B,): the log of the sum of exp(score) over all tag sequences of each row; 0 for an empty row."""
    if not chain.emissions.shape[1]:
        return chain.emissions.sum(dim=(1, 2))
    log_z: Tensor = _LogPartition.apply(_unary_scores(chain), chain.transitions, chain.lengths)
    return torch.where(chain.lengths > 0, log_z, 0.0)


def path_score(chain: Chain, tags: Tensor) -> Tensor:
    """Returns the score (B,) of one tag sequence (B,T) of each row; tags of padding are ignored."""
    if not chain.emissions.shape[1]:
        return chain.emissions.sum(dim=(1, 2))
    tags = tags.masked_fill(~chain.mask, 0)
    unary = _unary_scores(chain).gather(2, tags[:, :, None])[:, :, 0]
    pairs = torch.where(chain.mask[:, 1:], chain.transitions[tags[:, :-1], tags[:, 1:]], 0.0)
    return unary.sum(dim=1) + pairs.sum(dim=1)


def log_likelihood(chain: Chain, tags: Tensor) -> Tensor:
    """Returns log p (B,) of tag sequences (B,T); at elements with −1 or less all tags are summed over.

    It is −∞ if no tag is allowed there, between those on both sides.
    """
    known = bool(((tags >= 0) | ~chain.mask).all())
    score = path_score(chain, tags) if known else log_partition(chain.restricted(tags))
    return score - log_partition(chain)


def marginals(chain: Chain) -> Tensor:
    """Returns the probability of each tag at each element (B,T,K); 0 in the padding."""
    if not chain.emissions.shape[1]:
        return chain.emissions
    unary = _unary_scores(chain)
    log_z, before, after = _both_directions(unary, chain.transitions, chain.lengths)
    return _unary_probabilities(unary, before, after, log_z, chain.mask).to(unary.dtype)


def best_path(chain: Chain) -> Tensor:
    """Returns the tag sequence (B,T) with the highest score of each row; what padding has is undefined."""
    steps = _unary_scores(chain).transpose(0, 1)  # (T,B,K)
    if not len(steps):
        return chain.lengths.new_zeros(chain.emissions.shape[:2])
    scores, pointers = steps[0], []
    stay = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
    for t in range(1, len(steps)):
        best, previous = (scores[:, :, None] + chain.transitions).max(dim=1)
        inside = (chain.lengths > t)[:, None]
        scores = torch.where(inside, best + steps[t], scores)
        pointers.append(torch.where(inside, previous, stay))
    tags = [scores.argmax(dim=1, keepdim=True)]  # (B,1)
    for pointer in reversed(pointers):
        tags.append(pointer.gather(1, tags[-1]))
    return torch.cat(tags[::-1], dim=1)


def divergence(chain: Chain, teacher: Chain) -> Tensor:
    """Returns the Kullback–Leibler divergence of a chain from a teacher's, over whole tag sequences, summed over rows.

    Every sequence that the teacher allows must be allowed by the chain; the gradient is for the chain only.
    """
    if not chain.emissions.shape[1]:
        return chain.emissions.sum()
    ours, theirs = _unary_scores(chain), _unary_scores(teacher)
    with torch.no_grad():
        log_z, before, after = _both_directions(theirs, teacher.transitions, teacher.lengths)
        tags = _unary_probabilities(theirs, before, after, log_z, teacher.mask)  # (B,T,K)
        transitions, usual = teacher.transitions.double(), _are_usual(theirs, teacher.transitions)
        pairs = _expected_pairs(before, after, log_z, transitions, teacher.mask, torch.ones_like(log_z), usual)
        log_z, tags, pairs = (value.to(ours.dtype) for value in (log_z, tags, pairs))
    own_log_z: Tensor = _LogPartition.apply(ours, chain.transitions, chain.lengths)
    difference = _expectation(tags, theirs - ours) + _expectation(pairs, teacher.transitions - chain.transitions)
    return difference + (own_log_z - log_z).sum()


def _expectation(probabilities: Tensor, values: Tensor) -> Tensor:
    """Returns the sum of the values, weighted; where the probability is 0, both scores of a difference may be −∞."""
    return (torch.where(probabilities > 0, values, 0.0) * probabilities).sum()


class CrfHead(StepHead):
    """A linear layer for the emissions, and transition scores of a chain of tags, initialized to 0.

    Args:
        width: The size of the hidden vectors.
        allowed: (K+1,K+1), whether the tag of the column may follow that of the row; the last row is the start of a
            sequence, the last column its end.
    """

    def __init__(self, width: int, allowed: np.ndarray) -> None:
        tags = len(allowed) - 1
        super().__init__(width, tags)
        self.start = nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.allowed = allowed

    def chain(self, emissions: Tensor, lengths: Tensor, cut: Tensor | None = None) -> Chain:
        """Returns the scores of all tag sequences.

        Args:
            emissions: (B,T,K), padded on the right.
            lengths: (B,).
            cut: (B,2), whether a row begins, and whether it ends, inside of its sequence: there is no score for that.
        """
        allowed = torch.from_numpy(self.allowed).to(emissions.device)
        start = self.start.to(emissions.dtype).masked_fill(~allowed[-1, :-1], LOWEST)
        end = self.end.to(emissions.dtype).masked_fill(~allowed[:-1, -1], LOWEST)
        transitions = self.transitions.to(emissions.dtype).masked_fill(~allowed[:-1, :-1], LOWEST)
        if cut is not None:
            start, end = torch.where(cut[:, :1], 0.0, start), torch.where(cut[:, 1:], 0.0, end)
        return Chain(emissions, lengths, start, transitions, end)
