"""Long short-term memory: a cell that is written, kept and read through gates.

Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers et al. (2000):

    I = σ(X W_xi + H W_hi + b_i)    F = σ(X W_xf + H W_hf + b_f)    O = σ(X W_xo + H W_ho + b_o)
    C̃ = tanh(X W_xc + H W_hc + b_c)    C_t = F ⊙ C_{t−1} + I ⊙ C̃    H_t = O ⊙ tanh(C_t)

New since the plain RNN: the way from C_{t−1} to C_t is a product with F alone, no matrix and no squashing, so
that with F near 1 content and gradient pass unchanged over hundreds of steps.
Initialisation: Glorot and orthogonal per gate; b_f = 1, so that the cell remembers from the start
(Jozefowicz et al. 2015); with `memory`, biases by which the units keep over spans up to so many steps.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from ..kernels import recurrent as kernels
from ..nn.backbone import BackboneSettings
from ..nn.recurrent import Cell, Products, Recurrent, State, Trace, keeping


class LSTMCell(Cell):
    gates = ("input", "forget", "candidate", "output")
    parts = 2
    native = "lstm"
    shown = ("input_gate", "forget_gate", "output_gate", "cell")

    def __init__(self, inputs: int, width: int, memory: int | None = None) -> None:
        super().__init__(inputs, width)
        forget = torch.ones(width) if memory is None else keeping(width, memory)
        self.input.bias.data[width : 2 * width] = forget
        if memory is not None:  # what is kept long is written slowly
            self.input.bias.data[:width] = -forget

    def step(self, projected: Tensor, state: State, products: Products | None = None) -> tuple[State, Trace]:
        h, c = state
        (recurrent,) = products or self.products()
        i, f, candidate, o = (projected + recurrent(h)).chunk(4, dim=-1)  # (B,D) each
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
        c = f * c + i * torch.tanh(candidate)
        h = o * torch.tanh(c)
        return (h, c), {"input_gate": i, "forget_gate": f, "output_gate": o, "cell": c, "hidden": h}

    def fast(self, x: Tensor, state: State, mask: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        h, c = state
        y, h, c = kernels.lstm(x, self.recurrent, h, c, mask, reverse, (self.input.weight, self.input.bias))
        return y, (h, c)


class LSTM(Recurrent):
    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        memory: int | None = None,
    ) -> None:
        super().__init__(partial(LSTMCell, memory=memory), inputs, width, layers, dropout, bidirectional)


class Settings(BackboneSettings):
    layers: int = Field(1, ge=1, le=64, description="recurrent layers, one above the other")
    bidirectional: bool = Field(False, description="read in both directions (not for predicting what comes next)")
    memory: int | None = Field(None, ge=2, description="steps to remember from the start (default: a few)")

    def rate(self) -> float:
        return 6e-3

    def build(self, inputs: int, length: int) -> LSTM:
        return LSTM(inputs, self.width, self.layers, self.dropout, self.bidirectional, self.memory)
