"""From scores for where an answer begins and ends to the best spans of a passage, over all its windows.

    score(i, j) = start_i + end_j        i ≤ j < i + longest answer        p(i, j) = exp(score) / Σ exp(scores)

All spans are looked at, not only those between the best starts and the best ends. Where a question may have no answer,
the element that stands for none takes part with its own score: the lowest over the windows, as in BERT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..nn.network import full
from ._examples import ELEMENTS
from ._spans import UNKNOWN, SpanPart

NOWHERE = -1


@dataclass(frozen=True)
class Found:
    """What a network says about n questions, the k best spans of each, best first."""

    questions: np.ndarray  # (n,) their places in the part, in order
    spans: np.ndarray  # (n,k,2) the first and the last token among those of all passages; NOWHERE: there are no more
    scores: np.ndarray  # (n,k) −∞ there
    null: np.ndarray  # (n,) the score of no answer
    total: np.ndarray  # (n,) log Σ exp(score) over all spans, and no answer where that is possible
    losses: np.ndarray  # −log p of the targets, of the rows that have some

    def places(self, part: SpanPart, rank: int = 0) -> list[tuple[int, int]]:
        """From which character to which the spans of a rank go in their passages; (0, 0) where there is none."""
        first, last = self.spans[:, rank].T
        there = first != NOWHERE  # passages may have no token at all
        found = np.zeros((len(first), 2), np.int64)
        found[there] = np.stack([part.passages.starts[first[there]], part.passages.ends[last[there]]], axis=1)
        return [(start, end) for start, end in found.tolist()]

    def none(self, threshold: float) -> np.ndarray:
        """(n,) whether no answer is the better one: by more than the threshold."""
        missing = self.scores[:, 0] == -np.inf
        with np.errstate(invalid="ignore"):
            found: np.ndarray = missing | (self.null - self.scores[:, 0] > threshold)
        return found


def among(scores: Tensor, choice: Tensor) -> Tensor:
    """Scores (B,T,2) of each element to begin and to end the answer, as (B,2,T): −∞ outside of the choice (B,T)."""
    return full(scores).transpose(1, 2).masked_fill(~choice[:, None], -torch.inf)


def target_losses(scores: Tensor, targets: Tensor, choice: Tensor, smoothing: float = 0.0) -> Tensor:
    """The mean of −log p of begin and end of each row (B,); 0 where there is no target. Scores as of `among`."""
    known = targets[:, 0] != UNKNOWN
    log_probs = scores.log_softmax(dim=-1)
    losses = -log_probs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]  # (B,2)
    if smoothing:
        spread = -log_probs.masked_fill(~choice[:, None], 0.0).sum(dim=-1) / choice.sum(dim=-1, keepdim=True)
        losses = (1 - smoothing) * losses + smoothing * spread
    return torch.where(known, losses.mean(dim=-1), 0.0)


@torch.inference_mode()
def search(network: nn.Module, part: SpanPart, rows: np.ndarray, longest: int, best: int = 1) -> Found:
    """Some rows of a part through a network, like lengths together; all windows of a question are to be among them."""
    network.eval()
    device = next(network.parameters()).device
    windows = part.inputs
    lengths = windows.lengths
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    found: list[tuple[np.ndarray, ...]] = []
    losses = [np.zeros(0)]
    while len(rows):
        some = rows[: max(ELEMENTS // int(lengths[rows[0]]), 1)]
        rows = rows[len(some) :]
        batch = part.collate(some).to(device)
        scores, _ = network(batch.inputs, batch.mask)
        targets, choice = batch.targets
        loss = target_losses(among(scores, choice), targets, choice)
        losses.append(loss.cpu().double().numpy()[part.targets[some, 0] != UNKNOWN])
        found.append((some, *_of_batch(full(scores), part, some, longest, best)))
    rows, tokens, values, totals, nulls = (np.concatenate(one) for one in zip(*found, strict=True))
    return _combined(part, rows, tokens, values, totals, nulls, np.concatenate(losses), best)


def _of_batch(scores: Tensor, part: SpanPart, rows: np.ndarray, longest: int, best: int) -> tuple[np.ndarray, ...]:
    """The best spans (B,k) of some rows with their scores, the sum over all of them (B,), and no answer's (B,)."""
    device, steps = scores.device, scores.shape[1]
    sayable = torch.from_numpy(part.sayable(rows)).to(device)
    start, end = scores.masked_fill(~sayable[..., None], -torch.inf).unbind(dim=-1)  # (B,T)
    reach = min(longest, steps)
    sums = start[..., None] + F.pad(end, (0, reach - 1), value=-torch.inf).unfold(1, reach, 1)  # (B,T,L): i, j − i
    windows = part.inputs
    offset = windows.first[rows] - windows.lead[rows]  # from an element to its place in the passage
    if (np.abs(part.owned[rows]) < 1 << 40).any():  # some passage has several windows
        middles = torch.arange(steps, device=device)[:, None] * 2 + torch.arange(reach, device=device)  # i + j
        owned = torch.from_numpy(part.owned[rows] - 2 * offset[:, None]).to(device)[:, None, None]  # (B,1,1,2)
        sums = sums.masked_fill((middles < owned[..., 0]) | (middles >= owned[..., 1]), -torch.inf)
    flat = F.pad(sums.flatten(1), (0, max(best - steps * reach, 0)), value=-torch.inf)
    values, places = flat.topk(best, dim=1)
    tokens = torch.stack([places // reach, places // reach + places % reach], dim=-1).cpu().numpy()  # (B,k,2)
    tokens = tokens + (offset + windows.passages.starts[windows.passage[rows]])[:, None, None]
    each = torch.arange(len(rows), device=device)
    null = scores[each, torch.from_numpy(part.null[rows]).to(device)].sum(dim=-1)
    numbers = (one.double().cpu().numpy() for one in (values, flat.logsumexp(dim=1), null))
    return (tokens, *numbers)


def _combined(
    part: SpanPart,
    rows: np.ndarray,
    tokens: np.ndarray,
    values: np.ndarray,
    totals: np.ndarray,
    nulls: np.ndarray,
    losses: np.ndarray,
    best: int,
) -> Found:
    """What the windows of each question say together."""
    questions, which = np.unique(part.inputs.question[rows], return_inverse=True)
    null = np.full(len(questions), np.inf)
    np.minimum.at(null, which, nulls)
    total = np.full(len(questions), -np.inf)
    np.logaddexp.at(total, which, totals)
    total = np.logaddexp(total, null) if part.unanswerable else total
    of = np.repeat(which, values.shape[1])
    order = np.lexsort((-values.ravel(), of))
    of = of[order]
    rank = np.arange(len(of)) - np.searchsorted(of, of)
    kept = (rank < best) & (values.ravel()[order] > -np.inf)
    spans = np.full((len(questions), best, 2), NOWHERE, dtype=np.int64)
    scores = np.full((len(questions), best), -np.inf)
    spans[of[kept], rank[kept]] = tokens.reshape(-1, 2)[order][kept]
    scores[of[kept], rank[kept]] = values.ravel()[order][kept]
    return Found(questions, spans, scores, null, total, losses)
