"""How deep a weight lies: what rates that fall with depth and frozen parts go by.

    from below   embeddings 0, lowest block 1, …, top block n, what stands behind the blocks n + 1, head n + 2
    from above   head 0, top block and what stands behind it 1, …, lowest block n, embeddings n + 1

Blocks are the parts of a backbone that bear numbers, whatever they are called: `blocks.3`, `cells.0`, `layers.1`. Two
stacks side by side (an encoder and a decoder) are each counted by themselves. What a backbone has before its blocks
(positions, say) goes with the embeddings. A table that serves as input and as output is an embedding.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torch import nn

from ..core.errors import SeriatimError
from .settings import Freeze

NUMBERED = re.compile(r"(backbone\..*?)\.(\d+)\.")


class Place(NamedTuple):
    below: int  # counted from the embeddings
    above: int  # counted from the head


def places(network: nn.Module) -> dict[str, Place]:
    """Where each parameter lies, by its name."""
    numbers, stacks = _blocks(network)
    height = _height(stacks)
    found: dict[str, Place] = {}
    begun = not stacks  # a backbone without numbers is one block
    for name, _ in network.named_parameters():
        begun = begun or name in numbers
        if name in numbers:
            stack, number = numbers[name]
            place = stacks[stack].index(number)
            found[name] = Place(1 + place, len(stacks[stack]) - place)
        elif name.startswith("head."):
            found[name] = Place(height + 2, 0)
        elif name.startswith("backbone.") and begun:
            found[name] = Place(height + 1 if stacks else 1, 1)
        else:
            found[name] = Place(0, height + 1)
    return found


def _blocks(network: nn.Module) -> tuple[dict[str, tuple[str, int]], dict[str, list[int]]]:
    """The stack and the number of every parameter that has them, and the numbers of each stack."""
    numbers: dict[str, tuple[str, int]] = {}
    stacks: dict[str, list[int]] = {}
    for name, _ in network.named_parameters():
        if match := NUMBERED.match(name):
            stack = match[1]
            directions: int = getattr(network.get_submodule(stack.rpartition(".")[0]), "directions", 1)
            number = int(match[2]) // directions  # two directions of one layer are one block
            numbers[name] = stack, number
            stacks[stack] = sorted({*stacks.get(stack, []), number})
    return numbers, stacks


def _height(stacks: dict[str, list[int]]) -> int:
    return max((len(stack) for stack in stacks.values()), default=1)


def freeze(network: nn.Module, wanted: Freeze) -> str:
    """Lets some of the parameters be as they are, and says which: no gradient is computed for them or below them."""
    if wanted == "none":
        return ""
    where, blocks = places(network), _height(_blocks(network)[1])
    if isinstance(wanted, int) and wanted > blocks:
        raise SeriatimError(
            "train.freeze", f"{wanted} blocks are to be frozen, the model has {blocks}", f"freeze {blocks} at most"
        )
    highest = {"embeddings": 0, "backbone": blocks + 1}[wanted] if isinstance(wanted, str) else wanted
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(where[name].below > highest)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in network.parameters()]
    total, learning = sum(size for size, _ in sizes), sum(size for size, learns in sizes if learns)
    if not learning:
        raise SeriatimError(
            "train.freeze", f"all {total:,} parameters would be frozen: nothing is left to learn", "freeze less of it"
        )
    what = {"embeddings": "the embeddings", "backbone": "all but the head"}
    lowest = f"the embeddings and the lowest {'block' if wanted == 1 else f'{wanted} blocks'}"
    told = what[wanted] if isinstance(wanted, str) else lowest
    return f"frozen: {told}, {total - learning:,} of {total:,} parameters; {learning:,} learn"
