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
from torch import Tensor, nn

from ..nn.attention import ONE_LENGTH, ScoreName, make_score, masked_softmax
from ..nn.dropout import Dropout
from ..nn.pair import PairBackbone, PairSettings
from ..nn.product import Product
from ..nn.recurrent import Recurrent, State
from ..nn.trace import Trace, inside, show
from ._cells import CellName, Reset, cell_maker, cell_rate


class Bahdanau(PairBackbone):
    """The memory: the encoder's outputs, the keys made of them, what each adds to the gates, their mask (or None), and
    the first state. The state: that of the layer that attends, and those of the layers above.

    W c_t = Σ_i α_i W h_i: what the source adds to the gates is one product for all its places, none for each step.
    """

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
        super().__init__()
        self.width = width
        maker = cell_maker(cell, reset)
        halved = bidirectional and score in ONE_LENGTH  # both directions together are as wide as the decoder
        self.encoder = Recurrent(maker, inputs, max(width // 2, 1) if halved else width, layers, dropout, bidirectional)
        self.cell = maker(inputs, width)
        self.attended = nn.Linear(self.encoder.width, self.cell.input.out_features, bias=False)  # W of c_t in f
        self.bridge = nn.Linear(self.encoder.width, width * self.cell.parts)
        self.score = make_score(score, width, self.encoder.width, width)
        self.above = Recurrent(maker, width, width, layers - 1, dropout, below=1) if layers > 1 else None
        self.readout = nn.Linear(width + self.encoder.width + inputs, width)
        self.dropout = Dropout(dropout)
        for block in self.attended.weight.chunk(len(self.cell.gates)):
            nn.init.xavier_uniform_(block)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        memory, states = self.encoder(x, mask, None, inside(trace, "encoder"))
        ends = torch.cat([state[0] for state in states[-self.encoder.directions :]], dim=-1)
        first = torch.tanh(self.bridge(ends)).chunk(self.cell.parts, dim=-1)
        return memory, self.score.prepare(memory), self.attended(memory), mask, first

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        values, keys, pulls, mask, first = memory
        visible = None if mask is None else mask[:, None]
        inner: State = first if state is None else state[0]
        projected = self.cell.input(self.dropout(y))  # (B,T,G·D) of all steps at once
        products, to_gates = self.cell.products(), Product(pulls)
        hidden, looked, gates = [], [], []
        for t in range(y.shape[1]):
            weights = masked_softmax(self.score(inner[0][:, None], keys), visible)  # (B,1,S)
            inner, told = self.cell.step(projected[:, t] + to_gates(weights)[:, 0], inner, products)
            hidden.append(inner[0])
            looked.append(weights)
            if trace is not None:
                gates.append(told)
        alignment = torch.cat(looked, dim=1)  # (B,T,S)
        show(trace, "alignment", alignment)
        for name in gates[0] if gates else ():
            show(trace, f"decoder.layer0.{name}", torch.stack([told[name] for told in gates], dim=1))
        above = None
        outputs = torch.stack(hidden, dim=1)  # (B,T,D)
        if self.above is not None:
            outputs, above = self.above(outputs, None, None if state is None else state[1], inside(trace, "decoder"))
        seen = torch.cat([outputs, alignment @ values, y], dim=-1)
        return self.dropout(torch.tanh(self.readout(self.dropout(seen)))), (inner, above)


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
