"""Bahdanau's attention: a recurrent encoder–decoder that attends to the source before each output.

Bahdanau et al., "Neural machine translation by jointly learning to align and translate" (2015):

    h = [→h; ←h] over the source        c_t = Σ_i α(s_{t−1}, h_i) h_i        s_t = f([y_{t−1}; c_t], s_{t−1})
    ŝ_t = tanh(W [s_t; c_t; y_{t−1}])   p(y_t) = softmax(V ŝ_t)

New since seq2seq: the decoder reads all of the source at every step, and learns what to read: attention. The weights α
show which source words a target word depends on. Any score can be used (`score`); additive is the paper's. Further
layers of the decoder are above the one that attends. If the score needs queries and keys of equal size (dot,
scaled_dot, distance, kernels), each direction of the encoder has half the width. With `learned_values` the context is
c_t = Σ_i α(s_{t−1}, h_i) v(h_i), v(h) = V h.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ..core.model_info import History
from ..core.state import State
from ..nn.attention import EQUAL_SIZE_SCORES
from ..nn.backbone import Trace, trace_scope
from ..nn.encoder_decoder import AttentionDecoder, EncoderDecoderSettings
from ..nn.names import ScoreName
from ..nn.recurrent import Recurrent
from .gru import Reset
from .seq2seq import CellName, cell_lr, make_cell


class Bahdanau(AttentionDecoder):
    """The memory is the encoder's output for each element; the decoder's first state is made from its last states."""

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
        learned_values: bool = False,
    ) -> None:
        maker = make_cell(cell, reset)
        halved = bidirectional and score in EQUAL_SIZE_SCORES  # both directions together are as wide as the decoder
        size = max(width // 2, 1) if halved else width
        memory = size * (2 if bidirectional else 1)
        super().__init__(maker, inputs, memory, width, score, layers, dropout, learned_values=learned_values)
        self.encoder = Recurrent(maker, inputs, [size] * layers, dropout, bidirectional)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        memory, states = self.encoder(x, mask, None, trace_scope(trace, "encoder"))
        last = torch.cat([state[0] for state in states[-self.encoder.directions :]], dim=-1)
        return self.make_memory(memory, last, mask)


class Settings(EncoderDecoderSettings):
    title: ClassVar[str] = "Bahdanau model"
    color: ClassVar[tuple[str, str] | None] = ("#009e73", "#22b98d")
    history: ClassVar[History] = "pairs"
    recurrent: ClassVar[bool] = True
    predecessors: ClassVar[tuple[str, ...]] = ("seq2seq",)

    cell: CellName = Field("gru", description="rnn, lstm or gru")
    score: ScoreName = Field("additive", description="attention score: see docs/models.md")
    learned_values: bool = Field(False, description="attention pools learned values v(h) of the encoder's outputs h")
    layers: int = Field(1, ge=1, le=64, description="recurrent layers of the encoder and of the decoder")
    bidirectional: bool = Field(True, description="the encoder reads in both directions")
    reset: Reset = Field("before", description="gru: reset before the product (the paper) or after it (cuDNN)")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")

    def default_lr(self) -> float:
        return cell_lr(self.cell)

    def width_multiples(self) -> tuple[int, ...]:
        return (2 if self.bidirectional and self.score in EQUAL_SIZE_SCORES else 1,)

    def build(self, inputs: int, length: int) -> Bahdanau:
        more = (self.layers, self.dropout, self.bidirectional, self.reset, self.learned_values)
        return Bahdanau(inputs, self.width, self.cell, self.score, *more)
