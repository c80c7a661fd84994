"""The gated recurrent unit: the LSTM's idea with two gates and no separate cell.

Cho et al., "Learning phrase representations using RNN encoder–decoder" (2014):

    R = σ(X W_xr + H W_hr + b_r)    Z = σ(X W_xz + H W_hz + b_z)
    H̃ = tanh(X W_xh + (R ⊙ H_{t−1}) W_hh + b_h)    H_t = Z ⊙ H_{t−1} + (1 − Z) ⊙ H̃

New since the LSTM: one gate decides what is kept and what is written, which saves a quarter of the weights. Z near 1
skips the step; R near 1 and Z near 0 give the plain RNN. The paper resets *before* the product, the default here; cuDNN
resets *after* it, H̃ = tanh(X W_xh + b_h + R ⊙ (H_{t−1} W_hh + b_hh)): the other value of `reset`.
Initialization: Glorot and orthogonal per gate, zero biases; with `memory`, biases of Z for memories of up to that many
steps.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.model_info import History
from ..kernels import recurrent as kernels
from ..nn.backbone import Trace
from ..nn.recurrent import Cell, CellState, LoopMatmul, Matmuls, RecurrentSettings, memory_bias

Reset = Literal["before", "after"]


class GRUCell(Cell):
    gates = ("reset", "update", "candidate")
    traced = ("reset_gate", "update_gate")

    def __init__(self, inputs: int, width: int, reset: Reset = "before", memory: int | None = None) -> None:
        super().__init__(inputs, width)
        if memory is not None:
            self.input.bias.data[width : 2 * width] = memory_bias(width, memory)
        self.reset = reset
        self.native = "gru" if reset == "before" else "gru-after"
        self.bias = nn.Parameter(torch.zeros(width)) if reset == "after" else None  # b_hh

    def matmuls(self) -> Matmuls:
        gates, candidate = self.recurrent.T.split([2 * self.width, self.width], dim=-1)
        return LoopMatmul(gates), LoopMatmul(candidate)

    def step(self, projected: Tensor, state: CellState, matmuls: Matmuls | None = None) -> tuple[CellState, Trace]:
        (h,) = state
        to_gates, to_candidate = matmuls or self.matmuls()
        gates, candidate = projected.split([2 * self.width, self.width], dim=-1)
        r, z = torch.sigmoid(gates + to_gates(h)).chunk(2, dim=-1)  # (B,D) each
        if self.bias is None:
            candidate = torch.tanh(candidate + to_candidate(r * h))
        else:
            candidate = torch.tanh(candidate + r * (to_candidate(h) + self.bias))
        h = z * h + (1 - z) * candidate
        return (h,), {"reset_gate": r, "update_gate": z, "hidden": h}

    def run_kernel(self, x: Tensor, state: CellState, mask: Tensor | None, reverse: bool) -> tuple[Tensor, CellState]:
        inputs = self.input.weight, self.input.bias
        y, h = kernels.gru(x, self.recurrent, state[0], self.bias, mask, reverse, self.reset, inputs)
        return y, (h,)


class Settings(RecurrentSettings):
    title: ClassVar[str] = "GRU"
    color: ClassVar[tuple[str, str] | None] = ("#009e73", "#22b98d")
    history: ClassVar[History] = "sequences"
    recurrent: ClassVar[bool] = True
    predecessors: ClassVar[tuple[str, ...]] = ("lstm",)
    novelty: ClassVar[str] = "one gate decides what is kept and what is written{wider}"
    limitation: ClassVar[str] = "the separate memory cell of the LSTM seems to be worth its weights here"

    reset: Reset = Field("before", description="reset before the product (the paper) or after it (cuDNN)")
    memory: int | None = Field(None, ge=2, le=10**9, description="steps to remember from the start (default: a few)")

    def default_lr(self) -> float:
        return 4e-3

    def cell(self, inputs: int, width: int) -> GRUCell:
        return GRUCell(inputs, width, reset=self.reset, memory=self.memory)
