"""Weights rounded to 8 bits: a quarter of the memory to read, which is what a generated token costs.

Every output of a product has a scale of its own: its largest weight becomes 127, and the others the nearest whole
number. Vectors of tokens that go in, biases, norms and all that is computed stay as they are. What this costs in
quality is to be measured: `seriatim evaluate RUN --int8`.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from .network import TokenHead
from .recurrent import Cell

LARGEST = 127


def rounded(weight: Tensor) -> Tensor:
    """A matrix (outputs, inputs) that whole numbers and a scale for each row can say exactly."""
    largest = weight.abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / LARGEST, 1.0)
    return (weight / scale).round() * scale


@torch.no_grad()
def round_weights(network: Any) -> Any:
    """A copy of a network whose products have rounded weights; a table that served as input and output is two then."""
    network = copy.deepcopy(network)
    modules = list(network.modules())
    within = {module.input for module in modules if isinstance(module, Cell)}
    for module in modules:
        if isinstance(module, TokenHead):
            module.weight = nn.Parameter(rounded(module.weight), requires_grad=False)
        elif isinstance(module, Cell):
            _round_cell(module)
        elif isinstance(module, nn.Linear) and module not in within:
            module.weight.copy_(rounded(module.weight))
    return network


def _round_cell(cell: Cell) -> None:
    """Its two matrices are one product."""
    both = rounded(torch.cat([cell.input.weight, cell.recurrent], dim=1))
    cell.input.weight.copy_(both[:, : cell.input.in_features])
    cell.recurrent.copy_(both[:, cell.input.in_features :])
