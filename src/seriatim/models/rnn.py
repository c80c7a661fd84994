"""The plain recurrent network: one hidden vector, updated at every step.

Elman, "Finding structure in time" (1990); as a language model Mikolov et al., "Recurrent neural network based language
model" (2010). A vector of fixed size summarizes everything read so far, so that the context has no fixed window and the
number of weights does not grow with it:

    H_t = φ(X_t W_xh + H_{t−1} W_hh + b_h)

New since the window MLP: weights shared over time. Limitation: the gradient over k steps is a product of k matrices,
which vanishes or explodes (hence clipping), so that distant elements are forgotten.
Initialization: Glorot for W_xh, orthogonal for W_hh (Saxe et al. 2014), zero bias.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from ..core.model_info import History
from ..kernels import recurrent as kernels
from ..nn.backbone import Trace
from ..nn.recurrent import Cell, CellState, Matmuls, RecurrentSettings


class RNNCell(Cell):
    gates = ("hidden",)

    def __init__(self, inputs: int, width: int, activation: Literal["tanh", "relu"] = "tanh") -> None:
        super().__init__(inputs, width)
        self.activation = self.native = activation

    def step(self, projected: Tensor, state: CellState, matmuls: Matmuls | None = None) -> tuple[CellState, Trace]:
        (h,) = state
        (recurrent,) = matmuls or self.matmuls()
        total = projected + recurrent(h)  # (B,D)
        h = torch.tanh(total) if self.activation == "tanh" else torch.relu(total)
        return (h,), {"hidden": h}

    def run_kernel(self, x: Tensor, state: CellState, mask: Tensor | None, reverse: bool) -> tuple[Tensor, CellState]:
        inputs = self.input.weight, self.input.bias
        y, h = kernels.rnn(x, self.recurrent, state[0], mask, reverse, self.activation, inputs)
        return y, (h,)


class Settings(RecurrentSettings):
    title: ClassVar[str] = "plain RNN"
    color: ClassVar[tuple[str, str] | None] = ("#56b4e9", "#9ad6f7")
    history: ClassVar[History] = "sequences"
    recurrent: ClassVar[bool] = True
    predecessors: ClassVar[tuple[str, ...]] = ("mlp",)
    novelty: ClassVar[str] = "its state carries what it read, where the MLP sees {window}"
    limitation: ClassVar[str] = (
        "its gradient vanishes over many steps, so that it may use little more than a window does"
    )
    muon_lr: ClassVar[float | None] = 0.02  # at 0.05 long trainings diverge

    activation: Literal["tanh", "relu"] = Field("tanh", description="φ")

    def default_lr(self) -> float:
        return 1e-3

    def cell(self, inputs: int, width: int) -> RNNCell:
        return RNNCell(inputs, width, activation=self.activation)
