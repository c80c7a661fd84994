"""Bahdanau's: a recurrent encoder–decoder that looks back at the source before every word that it writes.

Bahdanau et al., "Neural machine translation by jointly learning to align and translate" (2015):

    h = [→h; ←h] over the source        c_t = Σ_i α(s_{t−1}, h_i) h_i        s_t = f([y_{t−1}; c_t], s_{t−1})
    ŝ_t = tanh(W [s_t; c_t; y_{t−1}])   p(y_t) = softmax(V ŝ_t)

New since seq2seq: the source stays in view, all of it, and what is looked at is learned: attention. The weights α show
which words of the source stand behind a word of the target. Any score serves (`score`); additive is the paper's.
Further layers of the decoder stand above the one that attends. Where the score wants queries and keys of one length
(dot, scaled_dot, distance), each direction of the encoder has half the width.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from ..nn.attending import Attending
from ..nn.attention import ONE_LENGTH, ScoreName
from ..nn.pair import PairSettings
from ..nn.recurrent import Recurrent
from ..nn.trace import Trace, inside
from ._cells import CellName, Reset, cell_maker, cell_rate


class Bahdanau(Attending):
    """The memory is what the encoder gives for each element; its ends start the decoder."""

    def __init__(
        self,
        inputs: int,
        width: int,
        cell: CellName = "gru",
        score: ScoreName = "additive",
        layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = True,
        reset: Reset = "before",
    ) -> None:
        maker = cell_maker(cell, reset)
        halved = bidirectional and score in ONE_LENGTH  # both directions together are as wide as the decoder
        size = max(width // 2, 1) if halved else width
        super().__init__(maker, inputs, size * (2 if bidirectional else 1), width, score, layers, dropout)
        self.encoder = Recurrent(maker, inputs, size, layers, dropout, bidirectional)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        memory, states = self.encoder(x, mask, None, inside(trace, "encoder"))
        ends = torch.cat([state[0] for state in states[-self.encoder.directions :]], dim=-1)
        return self.remember(memory, ends, mask)


class Settings(PairSettings):
    cell: CellName = Field("gru", description="rnn, lstm or gru")
    score: ScoreName = Field("additive", description="how well a place of the source fits: see docs/models.md")
    layers: int = Field(1, ge=1, le=64, description="recurrent layers of the encoder and of the decoder")
    bidirectional: bool = Field(True, description="the encoder reads in both directions")
    reset: Reset = Field("before", description="gru: reset before the product (the paper) or after it (cuDNN)")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")

    def rate(self) -> float:
        return cell_rate(self.cell)

    def grain(self) -> int:
        return 2 if self.bidirectional and self.score in ONE_LENGTH else 1

    def build(self, inputs: int, length: int) -> Bahdanau:
        return Bahdanau(
            inputs, self.width, self.cell, self.score, self.layers, self.dropout, self.bidirectional, self.reset
        )
