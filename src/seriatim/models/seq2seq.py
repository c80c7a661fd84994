"""Sequence to sequence: one recurrent network reads the source, another writes the target from its last state.

Sutskever et al., "Sequence to sequence learning with neural networks" (2014), and Cho et al. (2014):

    h_t = f(x_t, h_{t−1}) over the source      s_0 = h_S      s_t = f(y_{t−1}, s_{t−1})      p(y_t) = softmax(W s_t)

New since the language models: what is said depends on another sequence. All that is known of it must fit into one state
of fixed size, which is why long sentences come out badly, and why attention was invented.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor

from ..nn.pair import PairBackbone, PairSettings
from ..nn.recurrent import Recurrent
from ..nn.trace import Trace, inside
from ._cells import CellName, Reset, cell_maker, cell_rate


class Seq2Seq(PairBackbone):
    """The memory is the state of the encoder behind the last real element, layer by layer: the decoder's first."""

    def __init__(
        self, inputs: int, width: int, cell: CellName, layers: int = 1, dropout: float = 0.0, reset: Reset = "before"
    ) -> None:
        super().__init__()
        self.width = width
        maker = cell_maker(cell, reset)
        self.encoder = Recurrent(maker, inputs, width, layers, dropout)
        self.decoder = Recurrent(maker, inputs, width, layers, dropout)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        _, state = self.encoder(x, mask, None, inside(trace, "encoder"))
        return state

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        hidden: Tensor
        hidden, state = self.decoder(y, None, memory if state is None else state, inside(trace, "decoder"))
        return hidden, state


class Settings(PairSettings):
    cell: CellName = Field("lstm", description="rnn, lstm or gru")
    layers: int = Field(2, ge=1, le=64, description="recurrent layers of the encoder and of the decoder")
    reset: Reset = Field("before", description="gru: reset before the product (the paper) or after it (cuDNN)")

    def rate(self) -> float:
        return cell_rate(self.cell)

    def build(self, inputs: int, length: int) -> Seq2Seq:
        return Seq2Seq(inputs, self.width, self.cell, self.layers, self.dropout, self.reset)
