"""Depths of parameters, for learning rates that fall with depth and for frozen layers.

    from the input    embeddings 0, lowest block 1, …, top block n, parameters after the blocks n + 1, head n + 2
    from the output   head 0, top block and parameters after it 1, …, lowest block n, embeddings n + 1

Blocks are the numbered parts of a backbone: `blocks.3`, `cells.0`, `layers.1`. Two stacks (an encoder and a decoder)
are counted separately. Parameters before the blocks, such as positions, belong to the embeddings. A matrix that serves
as input and output is an embedding.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torch import nn

from ..core.errors import SeriatimError
from .settings import Freeze

NUMBERED = re.compile(r"(backbone\..*?)\.(\d+)\.")


class LayerDepth(NamedTuple):
    from_input: int
    from_output: int


def layer_depths(network: nn.Module) -> dict[str, LayerDepth]:
    """Returns the depth of each parameter by its name."""
    numbers, stacks = _blocks(network)
    height = _height(stacks)
    depths: dict[str, LayerDepth] = {}
    in_blocks = not stacks  # a backbone without numbers is one block
    for name, _ in network.named_parameters():
        in_blocks = in_blocks or name in numbers
        if name in numbers:
            stack, number = numbers[name]
            index = stacks[stack].index(number)
            depths[name] = LayerDepth(1 + index, len(stacks[stack]) - index)
        elif name.startswith("head."):
            depths[name] = LayerDepth(height + 2, 0)
        elif name.startswith("backbone.") and in_blocks:
            depths[name] = LayerDepth(height + 1 if stacks else 1, 1)
        else:
            depths[name] = LayerDepth(0, height + 1)
    return depths


def _blocks(network: nn.Module) -> tuple[dict[str, tuple[str, int]], dict[str, list[int]]]:
    """Returns stack and number of every parameter of a numbered part, and the numbers of each stack."""
    numbers: dict[str, tuple[str, int]] = {}
    stacks: dict[str, list[int]] = {}
    for name, _ in network.named_parameters():
        if match := NUMBERED.match(name):
            stack = match[1]
            directions: int = getattr(network.get_submodule(stack.rpartition(".")[0]), "directions", 1)
            number = int(match[2]) // directions  # both directions of a layer are one block
            numbers[name] = stack, number
            stacks[stack] = sorted({*stacks.get(stack, []), number})
    return numbers, stacks


def _height(stacks: dict[str, list[int]]) -> int:
    return max((len(stack) for stack in stacks.values()), default=1)


def freeze(network: nn.Module, setting: Freeze) -> str:
    """Freezes parameters by `requires_grad`, and returns a note of which, empty for none."""
    if setting == "none":
        return ""
    depths, blocks = layer_depths(network), _height(_blocks(network)[1])
    if isinstance(setting, int) and setting > blocks:
        cause = f"{setting} blocks are to be frozen, the model has {blocks}"
        raise SeriatimError("train.freeze", cause, f"freeze at most {blocks}")
    highest = {"embeddings": 0, "backbone": blocks + 1}[setting] if isinstance(setting, str) else setting
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(depths[name].from_input > highest)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in network.parameters()]
    total, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
    if not trained:
        cause = f"all {total:,} parameters would be frozen"
        raise SeriatimError("train.freeze", cause, "freeze less")
    names = {"embeddings": "the embeddings", "backbone": "all but the head"}
    lowest = f"the embeddings and the lowest {'block' if setting == 1 else f'{setting} blocks'}"
    description = names[setting] if isinstance(setting, str) else lowest
    return f"frozen: {description}, {total - trained:,} of {total:,} parameters; {trained:,} are trained"
