"""Sequence to sequence: a recurrent network reads the source, another generates the target from its last state.

Sutskever et al., "Sequence to sequence learning with neural networks" (2014), and Cho et al. (2014):

    h_t = f(x_t, h_{t−1}) over the source      s_0 = h_S      s_t = f(y_{t−1}, s_{t−1})      p(y_t) = softmax(W s_t)

New since the language models: the output depends on another sequence. Limitation: one state of fixed size holds all
information about the source, so that long sentences come out badly, which is why attention was invented.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from ..core.model_info import History
from ..core.state import State
from ..nn.backbone import Trace, trace_scope
from ..nn.encoder_decoder import EncoderDecoderBackbone, EncoderDecoderSettings
from ..nn.recurrent import Cell, Recurrent
from . import gru, lstm, rnn
from .gru import Reset

CellName = Literal["rnn", "lstm", "gru"]


def make_cell(name: CellName, reset: Reset = "before") -> Callable[[int, int], Cell]:
    """Returns a function that makes a cell of that name from the size of its inputs and its width."""
    if name == "gru":
        return partial(gru.GRUCell, reset=reset)
    return lstm.LSTMCell if name == "lstm" else rnn.RNNCell


def cell_lr(name: CellName) -> float:
    """Returns the learning rate of encoder–decoders with that cell."""
    return {"rnn": 1e-3, "lstm": 2e-3, "gru": 2e-3}[name]


class Seq2Seq(EncoderDecoderBackbone):
    """The memory is the state of each encoder layer after the last element: the first state of the decoder."""

    def __init__(
        self, inputs: int, width: int, cell: CellName, layers: int = 1, dropout: float = 0.0, reset: Reset = "before"
    ) -> None:
        super().__init__()
        self.width = width
        maker = make_cell(cell, reset)
        self.encoder = Recurrent(maker, inputs, [width] * layers, dropout)
        self.decoder = Recurrent(maker, inputs, [width] * layers, dropout)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        _, state = self.encoder(x, mask, None, trace_scope(trace, "encoder"))
        return state

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        hidden: Tensor
        hidden, state = self.decoder(y, None, memory if state is None else state, trace_scope(trace, "decoder"))
        return hidden, state


class Settings(EncoderDecoderSettings):
    title: ClassVar[str] = "seq2seq model"
    color: ClassVar[tuple[str, str] | None] = ("#56b4e9", "#9ad6f7")
    history: ClassVar[History] = "pairs"
    recurrent: ClassVar[bool] = True
    attention_novelty: ClassVar[str] = (
        "it attends to the whole source before every word; the other has it in one state only"
    )
    attention_limitation: ClassVar[str] = (
        "one state holds sources as short as these, and where to attend has yet to be learned"
    )
    attends: ClassVar[bool] = False

    cell: CellName = Field("lstm", description="rnn, lstm or gru")
    layers: int = Field(2, ge=1, le=64, description="recurrent layers of the encoder and of the decoder")
    reset: Reset = Field("before", description="gru: reset before the product (the paper) or after it (cuDNN)")

    def default_lr(self) -> float:
        return cell_lr(self.cell)

    def build(self, inputs: int, length: int) -> Seq2Seq:
        return Seq2Seq(inputs, self.width, self.cell, self.layers, self.dropout, self.reset)
