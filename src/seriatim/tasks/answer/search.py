"""The best spans of a passage by the scores of their start and end, over all its windows.

    score(i, j) = start_i + end_j        i ≤ j < i + answer_length        p(i, j) = exp(score) / Σ exp(scores)

All spans are compared, not only those between the best starts and the best ends. If a question may have no answer, the
null element takes part with its score: the lowest over the windows, as in BERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..base import IGNORED
from ..batching import run_batches
from .processor import FAR, AnswerEncoded

MAX_SPANS = 1 << 22  # of a batch that is searched at once


@dataclass(frozen=True)
class BestSpans:
    """The k best spans of n questions, best first."""

    rows: np.ndarray  # (n,) the questions, in order
    spans: np.ndarray  # (n,k,2) first and last token among those of all passages; IGNORED: there are no more
    scores: np.ndarray  # (n,k) −∞ there
    null: np.ndarray  # (n,) the score of no answer
    total: np.ndarray  # (n,) log Σ exp(score) over all spans, and no answer if that is possible

    def characters(self, encoded: AnswerEncoded, rank: int = 0) -> list[tuple[int, int]]:
        """Returns start and end characters of the spans of a rank; (0, 0) if there is none."""
        first, last = self.spans[:, rank].T
        exists = first != IGNORED
        characters = np.zeros((len(first), 2), np.int64)
        passages = encoded.passages
        characters[exists] = np.stack([passages.starts[first[exists]], passages.ends[last[exists]]], axis=1)
        return [(start, end) for start, end in characters.tolist()]

    def is_null(self, threshold: float) -> np.ndarray:
        """Returns whether no answer is better than the best span by more than the threshold (n,)."""
        missing = self.scores[:, 0] == -np.inf
        with np.errstate(invalid="ignore"):
            null: np.ndarray = missing | (self.null - self.scores[:, 0] > threshold)
        return null


def search_spans(
    encoded: AnswerEncoded, items: np.ndarray, scores: Sequence[np.ndarray], answer_length: int, count: int = 1
) -> BestSpans:
    """Returns the `count` best spans of each question.

    Args:
        encoded: The windows.
        items: Those that were scored (n,), all windows of each of their questions.
        scores: Start and end scores (2,T) of each of them, −∞ outside of its choices.
        answer_length: The longest span, in tokens.
        count: The number of spans.
    """
    lengths = encoded.lengths[items]

    def run(batch: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        padded = np.full((len(batch), 2, int(lengths[batch].max())), -np.inf, dtype=scores[0].dtype)
        for n, item in enumerate(batch.tolist()):
            padded[n, :, : lengths[item]] = scores[item][:, : lengths[item]]
        columns = search_windows(encoded, items[batch], torch.from_numpy(padded), answer_length, count)
        return list(zip(*columns, strict=True))

    results = run_batches(lengths, run, max_elements=MAX_SPANS // answer_length)
    tokens, values, totals, nulls = (np.stack(column) for column in zip(*results, strict=True))
    rows, index = np.unique(encoded.rows[items], return_inverse=True)
    null = np.full(len(rows), np.inf)
    np.minimum.at(null, index, nulls)
    total = np.full(len(rows), -np.inf)
    np.logaddexp.at(total, index, totals)
    if encoded.unanswerable:
        total = np.logaddexp(total, null)
    flat_rows = np.repeat(index, count)
    order = np.lexsort((-values.ravel(), flat_rows))
    flat_rows = flat_rows[order]
    rank = np.arange(len(flat_rows)) - np.searchsorted(flat_rows, flat_rows)
    selected = (rank < count) & (values.ravel()[order] > -np.inf)
    spans = np.full((len(rows), count, 2), IGNORED, dtype=np.int64)
    best = np.full((len(rows), count), -np.inf)
    spans[flat_rows[selected], rank[selected]] = tokens.reshape(-1, 2)[order][selected]
    best[flat_rows[selected], rank[selected]] = values.ravel()[order][selected]
    return BestSpans(rows, spans, best, null, total)


def search_windows(
    encoded: AnswerEncoded, items: np.ndarray, scores: Tensor, answer_length: int, count: int
) -> tuple[np.ndarray, ...]:
    """Returns the best spans (B,k,2) of windows, their scores (B,k), the log sum of all spans (B,) and the score of no
    answer (B,), from start and end scores (B,2,T)."""
    steps = scores.shape[2]
    selectable = torch.from_numpy(encoded.selectable(items))[:, :steps]
    start, end = scores.masked_fill(~selectable[:, None], -torch.inf).unbind(dim=1)  # (B,T)
    reach = min(answer_length, steps)
    ends = F.pad(end, (0, reach - 1), value=-torch.inf).unfold(1, reach, 1)  # (B,T,L): of spans of length 1 … L
    sums = start[..., None] + ends
    windows = encoded.inputs
    offset = windows.first[items] - windows.offsets[items]  # from an element to its position in the passage
    if (np.abs(encoded.owned[items]) < FAR).any():  # a passage has several windows
        middles = torch.arange(steps)[:, None] * 2 + torch.arange(reach)  # first + last element
        owned = torch.from_numpy(encoded.owned[items] - 2 * offset[:, None])[:, None, None]  # (B,1,1,2)
        sums = sums.masked_fill((middles < owned[..., 0]) | (middles >= owned[..., 1]), -torch.inf)
    flat = F.pad(sums.flatten(1), (0, max(count - steps * reach, 0)), value=-torch.inf)
    values, positions = flat.topk(count, dim=1)
    tokens = torch.stack([positions // reach, positions // reach + positions % reach], dim=-1).numpy()  # (B,k,2)
    tokens = tokens + (offset + windows.passages.starts[windows.passage[items]])[:, None, None]
    null = scores[torch.arange(len(items)), :, torch.from_numpy(encoded.null[items])].sum(dim=-1)
    return tokens, values.double().numpy(), flat.logsumexp(dim=1).double().numpy(), null.double().numpy()
