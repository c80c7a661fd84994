"""Show and tell: an LSTM reads an image once, as one vector, and then generates its caption.

Vinyals et al., "Show and tell: a neural image caption generator" (2015):

    x_{−1} = W max_i a_i of the grid a of an image    h_t = LSTM(y_{t−1}, h_{t−1})      p(y_t) = softmax(V h_t)

New since seq2seq: the source is an image, which enters like a word before the first one. Limitation: as in seq2seq, one
state holds all information, and the image cannot be read again: see `show_attend_tell`. The paper takes the mean of the
grid; here it is the maximum of each unit, because positions are normalized and a small object is lost in a mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from ..core.state import State
from ..nn.backbone import Trace, trace_scope
from ..nn.encoder_decoder import EncoderDecoderBackbone, EncoderDecoderSettings
from ..nn.network import Pool
from ..nn.recurrent import Recurrent
from .seq2seq import CellName, cell_lr, make_cell


class ShowTell(EncoderDecoderBackbone):
    """The memory is the state after the image: the first state of the decoder.

    Args:
        inputs: The size of the token vectors.
        memory: The size of the image's vectors.
        width: The size of the hidden vectors.
        cell: The recurrent cell.
        layers: Recurrent layers.
        dropout: The share of dropped activations.
    """

    def __init__(
        self, inputs: int, memory: int, width: int, cell: CellName = "lstm", layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = width
        self.pool = Pool("max", memory)
        self.image = nn.Linear(memory, inputs)
        self.decoder = Recurrent(make_cell(cell), inputs, [width] * layers, dropout)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        _, state = self.decoder(self.image(self.pool(x, mask))[:, None], None, None)
        return state

    def encoder_outputs(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        return x

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        hidden: Tensor
        hidden, state = self.decoder(y, None, memory if state is None else state, trace_scope(trace, "decoder"))
        return hidden, state


class Settings(EncoderDecoderSettings):
    title: ClassVar[str] = "Show and tell"
    attends: ClassVar[bool] = False
    modality: ClassVar[str | None] = "image"
    # A large receptive field, because one vector must contain the relations between objects.
    task_defaults: ClassVar[Mapping[str, object]] = {"encoder": "resnet"}

    cell: CellName = Field("lstm", description="rnn, lstm or gru")
    layers: int = Field(1, ge=1, le=64, description="recurrent layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")

    def default_lr(self) -> float:
        return cell_lr(self.cell)

    def build(self, inputs: int, length: int) -> ShowTell:
        return ShowTell(inputs, self.source_width(inputs), self.width, self.cell, self.layers, self.dropout)
