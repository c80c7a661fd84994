"""Cells and the loop over time, kept apart: a cell knows one step, this file knows sequences, depth and directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels import library
from .backbone import Backbone, wants_equations
from .dropout import Dropout
from .product import Product
from .trace import Trace, inside, show, wants

State = tuple[Tensor, ...]
Products = tuple[Product, ...]


class Cell(nn.Module):
    """One recurrent step. The input products of all gates, of all steps, are one product: `input`.

    `step` holds the equations and is the reference; `fast` runs the whole sequence and is proven equal to it. The
    first part of a state is the output h.
    """

    gates: tuple[str, ...]  # the order of the blocks in the stacked weights
    parts = 1  # tensors in a state: 1 for h, 2 for (h, c)
    shown: tuple[str, ...] = ()  # what `step` tells besides the output
    native: str | None = None  # its name among the kinds of nn/native.py

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.input = nn.Linear(inputs, len(self.gates) * width)
        self.recurrent = nn.Parameter(torch.empty(len(self.gates) * width, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for what comes in; orthogonal for what goes round, so that a step keeps the length of h."""
        for block in self.input.weight.chunk(len(self.gates)):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.input.bias)
        for block in self.recurrent.chunk(len(self.gates)):
            nn.init.orthogonal_(block)

    def start(self, x: Tensor) -> State:
        return tuple(x.new_zeros(len(x), self.width, dtype=self.recurrent.dtype) for _ in range(self.parts))

    def products(self) -> Products:
        """x ↦ x Wᵀ for each of the recurrent matrices that a step multiplies with, to be used for many steps."""
        return (Product(self.recurrent.T),)

    def step(self, projected: Tensor, state: State, products: Products | None = None) -> tuple[State, Trace]:
        """From W_x x_t + b of one step (B,G·D) and the state to the next state, and what the gates did (`shown`)."""
        raise TypeError(f"{type(self).__name__} has no step")

    def fast(self, x: Tensor, state: State, mask: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        """The whole sequence at once, from its inputs (B,T,D): by a native kernel, else by the equations."""
        return scan(self, self.input(x).to(self.recurrent.dtype), state, mask, reverse)

    def on_gpu(self, x: Tensor, state: State, mask: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        """The same by cuDNN, from the inputs themselves."""
        inner = self.input.bias.new_zeros(self.input.bias.shape)
        if isinstance(bias := getattr(self, "bias", None), Tensor):  # the GRU's, within its reset
            inner = torch.cat([inner[: -self.width], bias])
        weights, biases = (self.input.weight, self.recurrent), (self.input.bias, inner)
        return library.layer(str(self.native), x, weights, biases, state, mask, reverse)

    def forward(
        self, x: Tensor, mask: Tensor | None, state: State | None, reverse: bool = False, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        if state is None:
            state = self.start(x)
        if wants_equations():
            return scan(self, self.input(x).to(self.recurrent.dtype), state, mask, reverse, trace)
        if trace is not None and wants(trace, *self.shown):  # once more, by the equations: fused, no gate is seen
            scan(self, self.input(x).to(self.recurrent.dtype), state, mask, reverse, trace)
        run = self.on_gpu if library.serves(x, self.native, mask) else self.fast
        y, after = run(x, state, mask, reverse)
        show(trace, "hidden", y)
        return y, after


def keeping(width: int, steps: int) -> Tensor:
    """Biases of a gate that keeps: with log u the unit forgets by a factor e in about u steps, and u is drawn between 1
    and `steps`, so that the units remember over spans of all sizes from the start (Tallec and Ollivier, "Can recurrent
    neural networks warp time?", 2018)."""
    return torch.empty(width).uniform_(1, max(steps - 1, 1)).log()


def scan(
    cell: Cell, projected: Tensor, state: State, mask: Tensor | None, reverse: bool, trace: Trace | None = None
) -> tuple[Tensor, State]:
    """The cell's equations, step after step. A padded step keeps the state and gives zeros.

    Run backwards over right-padded rows, each row thus begins at its own last real element.
    """
    steps, products = projected.shape[1], cell.products()
    outputs: list[Tensor] = [projected] * steps
    traces: list[Trace] = [{}] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        new, traces[t] = cell.step(projected[:, t], state, products)
        if mask is None:
            outputs[t] = new[0]
        else:
            real = mask[:, t, None]
            outputs[t] = torch.where(real, new[0], 0.0)
            new = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
        state = new
    if trace is not None and steps:
        trace.update({name: torch.stack([one[name] for one in traces], dim=1) for name in traces[0]})
    return torch.stack(outputs, dim=1), state


class Recurrent(Backbone):
    """Cells stacked in layers, in one direction or both.

    Dropout stands on every connection that does not go round: before, between and after the layers (Zaremba et
    al., "Recurrent neural network regularization", 2014). The state is a list over
    layers (and directions) of the cells' states.
    """

    carries = True

    def __init__(
        self,
        cell: Callable[[int, int], Cell],
        inputs: int,
        width: int,
        layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        below: int = 0,
    ) -> None:
        """`below`: layers that stand below these elsewhere, for the names in a trace."""
        super().__init__()
        self.below = below
        self.directions = 2 if bidirectional else 1
        self.causal = self.carries = not bidirectional
        self.width = width * self.directions
        sizes = [inputs] + [self.width] * (layers - 1)
        self.cells = nn.ModuleList(cell(size, width) for size in sizes for _ in range(self.directions))
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        states: list[State] = []
        for first in range(0, len(self.cells), self.directions):
            x = self.dropout(x)
            outputs = []
            for direction in range(self.directions):
                index = first + direction
                before = None if state is None else state[index]
                inner = inside(trace, self._place(index), mask)
                y, after = self.cells[index](x, mask, before, reverse=direction == 1, trace=inner)
                outputs.append(y)
                states.append(after)
            x = torch.cat(outputs, dim=-1) if self.directions == 2 else outputs[0]
        return self.dropout(x), states

    def native(self, tokens: Tensor, head: Any) -> Any:
        from .native import recurrent_parts

        return recurrent_parts(tokens, list(self.cells), head) if self.causal else None  # type: ignore[arg-type]

    def kept(self, state: Any) -> tuple[list[Tensor], Tensor | None]:
        return [part for cell in state for part in cell], None

    def _place(self, index: int) -> str:
        """Of a cell, in a trace."""
        layer, direction = divmod(index, self.directions)
        side = (".forward", ".backward")[direction] if self.directions == 2 else ""
        return f"layer{self.below + layer}{side}"
