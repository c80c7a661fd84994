"""Long short-term memory: a cell that is written, kept and read through gates.

Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers et al. (2000):

    I = σ(X W_xi + H W_hi + b_i)    F = σ(X W_xf + H W_hf + b_f)    O = σ(X W_xo + H W_ho + b_o)
    C̃ = tanh(X W_xc + H W_hc + b_c)    C_t = F ⊙ C_{t−1} + I ⊙ C̃    H_t = O ⊙ tanh(C_t)

New since the plain RNN: the path from C_{t−1} to C_t is an element-wise product with F, without matrix or nonlinearity,
so that with F near 1 content and gradient pass unchanged over hundreds of steps.
Initialization: Glorot and orthogonal per gate; b_f = 1, so that the cell remembers from the start (Jozefowicz et al.
2015); with `memory`, biases for memories of up to that many steps.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ..core.model_info import History
from ..kernels import recurrent as kernels
from ..nn.backbone import Trace
from ..nn.recurrent import Cell, CellState, Matmuls, RecurrentSettings, memory_bias


class LSTMCell(Cell):
    gates = ("input", "forget", "candidate", "output")
    state_tensors = 2
    native = "lstm"
    traced = ("input_gate", "forget_gate", "output_gate", "cell")

    def __init__(self, inputs: int, width: int, memory: int | None = None) -> None:
        super().__init__(inputs, width)
        forget = torch.ones(width) if memory is None else memory_bias(width, memory)
        self.input.bias.data[width : 2 * width] = forget
        if memory is not None:  # units with a long memory are written slowly
            self.input.bias.data[:width] = -forget

    def step(self, projected: Tensor, state: CellState, matmuls: Matmuls | None = None) -> tuple[CellState, Trace]:
        h, c = state
        (recurrent,) = matmuls or self.matmuls()
        i, f, candidate, o = (projected + recurrent(h)).chunk(4, dim=-1)  # (B,D) each
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
        c = f * c + i * torch.tanh(candidate)
        h = o * torch.tanh(c)
        return (h, c), {"input_gate": i, "forget_gate": f, "output_gate": o, "cell": c, "hidden": h}

    def run_kernel(self, x: Tensor, state: CellState, mask: Tensor | None, reverse: bool) -> tuple[Tensor, CellState]:
        h, c = state
        y, h, c = kernels.lstm(x, self.recurrent, h, c, mask, reverse, (self.input.weight, self.input.bias))
        return y, (h, c)


class Settings(RecurrentSettings):
    title: ClassVar[str] = "LSTM"
    color: ClassVar[tuple[str, str] | None] = ("#0072b2", "#3d9be0")
    history: ClassVar[History] = "sequences"
    recurrent: ClassVar[bool] = True
    predecessors: ClassVar[tuple[str, ...]] = ("rnn",)
    novelty: ClassVar[str] = "its gates keep the gradient alive over many steps"
    limitation: ClassVar[str] = "what the gates help to remember seems to matter little in this text at this size"

    memory: int | None = Field(None, ge=2, le=10**9, description="steps to remember from the start (default: a few)")

    def default_lr(self) -> float:
        return 6e-3

    def cell(self, inputs: int, width: int) -> LSTMCell:
        return LSTMCell(inputs, width, memory=self.memory)
