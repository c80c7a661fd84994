"""Show, attend and tell: an LSTM that attends to positions of an image before each word of its caption.

Xu et al., "Show, attend and tell: neural image caption generation with visual attention" (2015), soft attention:

    a = the grid of an image      α_t = softmax_i score(h_{t−1}, a_i)      ẑ_t = β_t Σ_i α_{t,i} a_i
    h_t = LSTM([y_{t−1}; ẑ_t], h_{t−1})      β_t = σ(w·h_{t−1} + b)         p(y_t) from h_t, ẑ_t and y_{t−1}

New since Show and Tell: the decoder reads every position of the image at each step, and the weights α show which of
them a word depends on. It is Bahdanau's decoder over a grid instead of words; the gate β lets it write "of the" without
the image. The first state comes from the mean of the grid. The paper's loss asks that every position receive about the
same attention in total (`task.penalty`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from ..core.state import State
from ..nn.backbone import Trace
from ..nn.encoder_decoder import AttentionDecoder, EncoderDecoderSettings
from ..nn.names import ScoreName
from ..nn.network import masked_mean
from .seq2seq import CellName, cell_lr, make_cell


class ShowAttendTell(AttentionDecoder):
    """The memory is the grid of the image."""

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        return self.make_memory(x, masked_mean(x, mask), mask)

    def encoder_outputs(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        return x


class Settings(EncoderDecoderSettings):
    title: ClassVar[str] = "Show, attend and tell"
    modality: ClassVar[str | None] = "image"
    task_defaults: ClassVar[Mapping[str, object]] = {"penalty": 0.001}  # more spreads the weights over empty regions

    cell: CellName = Field("lstm", description="rnn, lstm or gru")
    score: ScoreName = Field("additive", description="attention score: see docs/models.md")
    learned_values: bool = Field(False, description="attention pools learned values v(a) of the cells a of the image")
    layers: int = Field(1, ge=1, le=64, description="recurrent layers; the first of them attends")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")

    def default_lr(self) -> float:
        return cell_lr(self.cell)

    def build(self, inputs: int, length: int) -> ShowAttendTell:
        sizes = (inputs, self.source_width(inputs), self.width, self.score, self.layers, self.dropout, inputs)
        return ShowAttendTell(
            make_cell(self.cell), *sizes, gated=True, query_input=True, precompute=False,
            learned_values=self.learned_values,
        )  # fmt: skip
