"""Show and tell: an LSTM sees a picture once, as one vector, and then writes its caption.

Vinyals et al., "Show and tell: a neural image caption generator" (2015):

    x_{−1} = W max_i a_i of the grid a of a picture    h_t = LSTM(y_{t−1}, h_{t−1})      p(y_t) = softmax(V h_t)

New since seq2seq: what is encoded is not a sequence but a picture, which enters like a word before the first. All that
is known of it must fit into one state, as in seq2seq, and cannot be looked at again: see `showattend`. The paper takes
the mean of the grid; here it is the largest of each unit, since places are normed, and a small thing is lost in a mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from ..nn.heads import Pool
from ..nn.pair import PairBackbone, PairSettings
from ..nn.recurrent import Recurrent
from ..nn.trace import Trace, inside
from ._cells import CellName, cell_maker, cell_rate


class ShowTell(PairBackbone):
    """The memory is the state behind the picture: the decoder's first."""

    def __init__(
        self, inputs: int, memory: int, width: int, cell: CellName = "lstm", layers: int = 1, dropout: float = 0.0
    ) -> None:
        """For words of `inputs` numbers and a picture of vectors of size `memory`."""
        super().__init__()
        self.width = width
        self.pool = Pool("max", memory)
        self.picture = nn.Linear(memory, inputs)
        self.decoder = Recurrent(cell_maker(cell), inputs, width, layers, dropout)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        _, state = self.decoder(self.picture(self.pool(x, mask))[:, None], None, None)
        return state

    def read(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        return x

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        hidden: Tensor
        hidden, state = self.decoder(y, None, memory if state is None else state, inside(trace, "decoder"))
        return hidden, state


class Settings(PairSettings):
    pictures: ClassVar[bool] = True
    suits: ClassVar[Mapping[str, Any]] = {"encoder": "resnet"}  # places that see far: one vector must know relations

    cell: CellName = Field("lstm", description="rnn, lstm or gru")
    layers: int = Field(1, ge=1, le=64, description="recurrent layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")

    def rate(self) -> float:
        return cell_rate(self.cell)

    def build(self, inputs: int, length: int) -> ShowTell:
        return ShowTell(inputs, self.source_width(inputs), self.width, self.cell, self.layers, self.dropout)
