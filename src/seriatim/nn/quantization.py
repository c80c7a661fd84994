"""Quantization of weights to 8 bits: a quarter of the memory traffic, which bounds the time per generated token.

Each output of a matrix product has its own scale: its largest weight becomes 127, the others the nearest integer. Input
embeddings, biases, norms and activations are unchanged. `seriatim evaluate RUN --int8` measures the loss of quality.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from .network import TokenHead
from .recurrent import Cell

MAX_INT8 = 127


def quantize_rows(weight: Tensor) -> Tensor:
    """Returns a matrix (outputs, inputs) rounded to integers times a scale for each row."""
    largest = weight.abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / MAX_INT8, 1.0)
    return (weight / scale).round() * scale


@torch.no_grad()
def quantize_weights(network: Any) -> Any:
    """Returns a copy of a network with quantized matrices; a tied matrix becomes two: the output's is quantized."""
    network = copy.deepcopy(network)
    modules = list(network.modules())
    cell_inputs = {module.input for module in modules if isinstance(module, Cell)}
    for module in modules:
        if isinstance(module, TokenHead):
            module.weight = nn.Parameter(quantize_rows(module.weight), requires_grad=False)
        elif isinstance(module, Cell):  # its two matrices are one product
            both = quantize_rows(torch.cat([module.input.weight, module.recurrent], dim=1))
            module.input.weight.copy_(both[:, : module.input.in_features])
            module.recurrent.copy_(both[:, module.input.in_features :])
        elif isinstance(module, nn.Linear) and module not in cell_inputs:
            module.weight.copy_(quantize_rows(module.weight))
    return network
