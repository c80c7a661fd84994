"""Rows of a step with tokens hidden in them, as batches; and what a network says about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..core.random import numpy_stream
from ..nn.loss import token_scores
from ._masking import Masking
from ._passages import Passages
from ._pretrain_network import read
from ._task import Batch

GROUP = 64  # rows that are drawn together where a part is measured on


@dataclass(frozen=True)
class Rows:
    """Rows side by side, with what was there and what is shown instead."""

    tokens: np.ndarray  # (B,T) as they were
    shown: np.ndarray  # (B,T) with some of them hidden
    chosen: np.ndarray  # (B,T) those that are asked for
    lengths: np.ndarray  # (B,)
    elsewhere: np.ndarray  # (B,)

    @classmethod
    def draw(cls, part: Passages, rows: np.ndarray, masking: Masking | None, seed: int, name: str, number: int) -> Rows:
        """From the streams `name` at the place `number`."""
        pairs = part.draw(rows, numpy_stream(seed, f"{name} pairs", number))
        if masking is None:
            nothing = np.zeros(pairs.tokens.shape, dtype=bool)
            return cls(pairs.tokens, pairs.tokens, nothing, pairs.lengths, pairs.elsewhere)
        draw = numpy_stream(seed, f"{name} masks", number)
        chosen = masking.choose(pairs.tokens, pairs.text, draw)
        return cls(pairs.tokens, masking.cover(pairs.tokens, chosen, draw), chosen, pairs.lengths, pairs.elsewhere)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def weight(self) -> float:
        """Hidden tokens for each pair."""
        return float(self.chosen.sum() / len(self)) if self.chosen.any() else 1.0

    def take(self, rows: slice | np.ndarray) -> Rows:
        """Some of them, as long as they need be."""
        longest = int(self.lengths[rows].max())
        tokens, shown, chosen = (block[rows, :longest] for block in (self.tokens, self.shown, self.chosen))
        return Rows(tokens, shown, chosen, self.lengths[rows], self.elsewhere[rows])

    def batch(self, weight: float) -> Batch:
        """`weight` is that of the whole step, of which these rows may be a part."""
        steps = self.shown.shape[1]
        mask = None if int(self.lengths.min()) == steps else torch.from_numpy(np.arange(steps) < self.lengths[:, None])
        places = np.flatnonzero(self.chosen)
        targets = {
            "places": torch.from_numpy(places),  # (M,) among all B·T
            "tokens": torch.from_numpy(self.tokens.reshape(-1)[places]),  # (M,)
            "elsewhere": torch.from_numpy(self.elsewhere),  # (B,)
            "weight": torch.tensor(weight),
        }
        return Batch(torch.from_numpy(self.shown), targets, len(places) or len(self), mask)


@dataclass(frozen=True)
class Said:
    """What a network says: about hidden tokens (M,), and about pairs (R,)."""

    row: np.ndarray  # of each token, among the rows that were asked
    place: np.ndarray  # in its row
    token: np.ndarray  # that was there
    shown: np.ndarray  # that was shown instead
    best: np.ndarray  # the likeliest
    likely: np.ndarray  # log p of the true one
    elsewhere: np.ndarray  # whether a pair was made of two documents
    guessed: np.ndarray  # whether it was taken for that
    sure: np.ndarray  # log p of the truth


def groups(part: Passages, masking: Masking | None, seed: int, split: str, rows: np.ndarray) -> Iterator[Rows]:
    """Some rows of a part as they are always drawn where it is measured on, whichever others are."""
    for number in np.unique(rows // GROUP).tolist():
        there = np.arange(number * GROUP, min((number + 1) * GROUP, len(part)))
        whole = Rows.draw(part, there, masking, seed, f"evaluated {split}", number)
        yield whole.take(np.flatnonzero(np.isin(there, rows)))


@torch.inference_mode()
def said_of(network: nn.Module, drawn: Iterable[Rows]) -> Said:
    """What a network says about some rows, in their order."""
    network.eval()
    device = next(network.parameters()).device
    found: list[tuple[np.ndarray, ...]] = []
    before = 0
    for rows in drawn:
        batch = rows.batch(1.0).to(device)
        said, _ = read(network, batch)
        row, place = np.nonzero(rows.chosen)
        best, likely = torch.zeros(len(row), dtype=torch.int64), torch.zeros(len(row))
        if said.masked is not None:
            likely, best = token_scores(*said.masked, batch.targets["tokens"])
        scores = torch.zeros(len(rows), 2) if said.next is None else said.next.log_softmax(dim=-1).cpu()
        sure = scores.gather(1, torch.from_numpy(rows.elsewhere)[:, None])[:, 0]
        tokens = before + row, place, rows.tokens[row, place], rows.shown[row, place]
        guesses = best.cpu().numpy(), likely.cpu().numpy()
        found.append((*tokens, *guesses, rows.elsewhere, scores.argmax(dim=1).numpy(), sure.numpy()))
        before += len(rows)
    return Said(*(np.concatenate(one) for one in zip(*found, strict=True)))
