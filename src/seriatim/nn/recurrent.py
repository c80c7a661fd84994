"""Recurrent networks: a cell computes one step; this file runs it over sequences, layers and directions.

A step multiplies by the same matrices as the others. By autograd alone, each would form a gradient of the size of the
matrix and add it to the products of the other steps; `LoopMatmul` makes one matrix product of all of them:

    multiply = LoopMatmul(matrix)      for … : y = multiply(x)         y = x M,  x (N,A), M (A,C), or (B,N,A), (B,A,C)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core.state import State
from ..kernels import Context
from ..kernels import recurrent as kernels
from .backbone import Backbone, LayeredSettings, Trace, is_traced, record, trace_scope
from .layers import Dropout, equations_enabled
from .settings import BackboneTraits

Steps = list[tuple[Tensor, Tensor]]  # x and the gradient of y, of every step
StepsByPass = dict[int, Steps]  # by backward pass: an earlier pass may have been for other gradients only


class LoopMatmul:
    def __init__(self, matrix: Tensor) -> None:
        self.trains = torch.is_grad_enabled() and matrix.requires_grad
        self.steps: StepsByPass = {}
        self.matrix: Tensor = _GatherGradient.apply(_autocast(matrix), self.steps) if self.trains else matrix

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _Multiply.apply(_autocast(x), self.matrix, self.steps) if self.trains else x @ self.matrix
        return y


def _autocast(tensor: Tensor) -> Tensor:
    """Returns the tensor in autocast's type for matrix products, which autocast does not do for our functions."""
    device = tensor.device.type
    if tensor.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, x: Tensor, matrix: Tensor, steps: StepsByPass) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.steps = steps
        return x @ matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, matrix = ctx.saved_tensors
        # Detached: otherwise the saved steps would hold the graph, which holds the saved steps.
        ctx.steps.setdefault(torch._C._current_graph_task_id(), []).append((x.detach(), gradient))
        return gradient @ matrix.transpose(-2, -1), None, None


class _GatherGradient(torch.autograd.Function):
    """The identity of the matrix; its backward pass runs after all steps."""

    @staticmethod
    def forward(ctx: Context, matrix: Tensor, steps: StepsByPass) -> Tensor:
        ctx.steps = steps
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, _: Tensor | None) -> tuple[Tensor | None, None]:
        steps = ctx.steps.pop(torch._C._current_graph_task_id(), None)
        ctx.steps.clear()
        if steps is None:
            return None, None
        inputs, gradients = (torch.cat(parts, dim=-2) for parts in zip(*steps, strict=True))
        return inputs.transpose(-2, -1) @ gradients, None


CellState = tuple[Tensor, ...]
Matmuls = tuple[LoopMatmul, ...]


class Cell(nn.Module):
    """One recurrent step. The input products of all gates and steps are one matrix product: `input`.

    `step` holds the equations and is the reference; `run_kernel` runs the whole sequence, and tests hold it equal to
    the equations. The first tensor of a state is the output h.
    """

    gates: tuple[str, ...]  # the order of the blocks in the stacked weights
    state_tensors = 1  # 1 for h, 2 for (h, c)
    traced: tuple[str, ...] = ()  # what `step` records besides the output
    native: str | None = None  # its name among the kinds of nn/native.py

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.input = nn.Linear(inputs, len(self.gates) * width)
        self.recurrent = nn.Parameter(torch.empty(len(self.gates) * width, width))
        self.stacked = {"input.weight": len(self.gates), "recurrent": len(self.gates)}  # matrices in one parameter
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for the input weights; orthogonal for the recurrent ones, so that a step preserves the norm of h."""
        for block in self.input.weight.chunk(len(self.gates)):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.input.bias)
        for block in self.recurrent.chunk(len(self.gates)):
            nn.init.orthogonal_(block)

    def initial_state(self, x: Tensor) -> CellState:
        return tuple(x.new_zeros(len(x), self.width, dtype=self.recurrent.dtype) for _ in range(self.state_tensors))

    def matmuls(self) -> Matmuls:
        """Returns x ↦ x Wᵀ for each recurrent matrix of a step, to be used for all steps of a loop."""
        return (LoopMatmul(self.recurrent.T),)

    def step(self, projected: Tensor, state: CellState, matmuls: Matmuls | None = None) -> tuple[CellState, Trace]:
        """Returns the next state and the values of the gates (`traced`), from W_x x_t + b (B,G·D) and the state."""
        raise TypeError(f"{type(self).__name__} has no step")

    def run_kernel(self, x: Tensor, state: CellState, mask: Tensor | None, reverse: bool) -> tuple[Tensor, CellState]:
        """Returns outputs and last state of a whole sequence (B,T,D), by a native kernel or else by the equations."""
        return scan(self, self.input(x).to(self.recurrent.dtype), state, mask, reverse)

    def run_cudnn(self, x: Tensor, state: CellState, mask: Tensor | None, reverse: bool) -> tuple[Tensor, CellState]:
        """Returns the same by cuDNN."""
        recurrent_bias = self.input.bias.new_zeros(self.input.bias.shape)
        if isinstance(bias := getattr(self, "bias", None), Tensor):  # the GRU's, inside its reset
            recurrent_bias = torch.cat([recurrent_bias[: -self.width], bias])
        weights, biases = (self.input.weight, self.recurrent), (self.input.bias, recurrent_bias)
        return kernels.library_layer(str(self.native), x, weights, biases, state, mask, reverse)

    def forward(
        self, x: Tensor, mask: Tensor | None, state: CellState | None, reverse: bool = False, trace: Trace | None = None
    ) -> tuple[Tensor, CellState]:
        if state is None:
            state = self.initial_state(x)
        if equations_enabled():
            return scan(self, self.input(x).to(self.recurrent.dtype), state, mask, reverse, trace)
        if trace is not None and is_traced(trace, *self.traced):  # fused kernels do not return the gates
            scan(self, self.input(x).to(self.recurrent.dtype), state, mask, reverse, trace)
        run = self.run_cudnn if kernels.supports_cudnn(x, self.native, mask) else self.run_kernel
        y, after = run(x, state, mask, reverse)
        record(trace, "hidden", y)
        return y, after


def memory_bias(width: int, steps: int) -> Tensor:
    """Returns biases of a forget gate for memories of 1 to `steps` steps.

    With bias log u a unit forgets by a factor e in about u steps; u is drawn from 1 to `steps`, so that the units
    remember over spans of all lengths from the start (Tallec and Ollivier, "Can recurrent neural networks warp time?",
    2018).
    """
    return torch.empty(width).uniform_(1, max(steps - 1, 1)).log()


def scan(
    cell: Cell, projected: Tensor, state: CellState, mask: Tensor | None, reverse: bool, trace: Trace | None = None
) -> tuple[Tensor, CellState]:
    """Returns outputs and last state of the cell's equations, step by step.

    A padded step keeps the state and outputs zeros; in reverse over right-padded rows, each row thus begins at its own
    last element.
    """
    steps, matmuls = projected.shape[1], cell.matmuls()
    outputs: list[Tensor] = [projected] * steps
    traces: list[Trace] = [{}] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        new, traces[t] = cell.step(projected[:, t], state, matmuls)
        if mask is None:
            outputs[t] = new[0]
        else:
            valid = mask[:, t, None]
            outputs[t] = torch.where(valid, new[0], 0.0)
            new = tuple(torch.where(valid, after, before) for after, before in zip(new, state, strict=True))
        state = new
    if trace is not None and steps:
        trace.update({name: torch.stack([values[name] for values in traces], dim=1) for name in traces[0]})
    return torch.stack(outputs, dim=1), state


class Recurrent(Backbone):
    """Cells stacked in layers, in one direction or both.

    Dropout is applied to every connection that is not recurrent: before, between and after the layers (Zaremba et al.,
    "Recurrent neural network regularization", 2014). The state is a list over layers (and directions) of cell states.

    Args:
        cell: Makes a cell from the size of its inputs and its width.
        inputs: The size of the input vectors.
        widths: The size of the hidden vectors of one direction, for each layer.
        dropout: The share of dropped activations.
        bidirectional: Whether to read in both directions.
        first_layer: The number of the first layer in traces, if other layers are below these.
    """

    def __init__(
        self,
        cell: Callable[[int, int], Cell],
        inputs: int,
        widths: Sequence[int],
        dropout: float = 0.0,
        bidirectional: bool = False,
        first_layer: int = 0,
    ) -> None:
        super().__init__()
        self.first_layer = first_layer
        self.directions = 2 if bidirectional else 1
        self.causal = self.carries_state = not bidirectional
        outputs = [width * self.directions for width in widths]
        self.width = outputs[-1]
        sizes = zip([inputs, *outputs], widths, strict=False)
        self.cells = nn.ModuleList(cell(size, width) for size, width in sizes for _ in range(self.directions))
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        states: list[CellState] = []
        for first in range(0, len(self.cells), self.directions):
            x = self.dropout(x)
            outputs = []
            for direction in range(self.directions):
                index = first + direction
                before = None if state is None else state[index]
                scope = trace_scope(trace, self._trace_prefix(index), mask)
                y, after = self.cells[index](x, mask, before, reverse=direction == 1, trace=scope)
                outputs.append(y)
                states.append(after)
            x = torch.cat(outputs, dim=-1) if self.directions == 2 else outputs[0]
        return self.dropout(x), states

    def native_parts(self, embeddings: Tensor, head: Any) -> Any:
        from .native import recurrent_parts

        return recurrent_parts(embeddings, list(self.cells), head) if self.causal else None  # type: ignore[arg-type]

    def export_state(self, state: State) -> tuple[list[Tensor], Tensor | None]:
        return [tensor for cell in state for tensor in cell], None

    def _trace_prefix(self, index: int) -> str:
        layer, direction = divmod(index, self.directions)
        side = (".forward", ".backward")[direction] if self.directions == 2 else ""
        return f"layer{self.first_layer + layer}{side}"


class RecurrentSettings(LayeredSettings):
    """The settings that recurrent backbones share."""

    layers: int = Field(1, ge=1, le=64, description="recurrent layers")
    bidirectional: bool = Field(False, description="read in both directions (not for predicting the next element)")

    @property
    def traits(self) -> BackboneTraits:
        causal = not self.bidirectional
        return BackboneTraits(causal=causal, carries_state=causal, directions=1 if causal else 2)

    def cell(self, inputs: int, width: int) -> Cell:
        """Returns a cell for input vectors of size `inputs`."""
        raise TypeError(f"{type(self).__name__} has no cell")

    def build(self, inputs: int, length: int) -> Recurrent:
        return Recurrent(self.cell, inputs, self.layer_widths, self.dropout, self.bidirectional)
