"""Traces: what happened inside a network while it read a sequence, as named arrays.

A network that is given a trace (a dictionary) writes into it and changes nothing else: what it answers is the same bit
for bit, and nothing stays on its modules. A name is a place and what is seen there, "layer0.attention" or
"encoder.layer1.backward.cell"; below are all that the models of this package have. Elements stand in dimension 1, of
the weights of heads in dimension 2; padding shows zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..nn.trace import Only, element_axis

MOST = 2**28  # bytes of a trace: attention of a long text grows with its square

PLACES = {
    "layer0": "the first layer or block; those of an encoder–decoder begin with encoder. or decoder.",
    "layer0.forward": "of a network that reads in both directions, the cells that read forwards; backward: backwards",
    "level0": "the first level of a temporal convolutional network",
}
NAMES = {
    "attention": ("BHTS", "weights by which each element looks at the elements of its own sequence, head by head"),
    "cross_attention": ("BHTS", "weights by which each element of a target looks at those of the source"),
    "alignment": ("BTS", "weights over the source for each element of a target; of several heads and blocks, the mean"),
    "input_gate": ("BTD", "of an LSTM: how much of what is new is written into the cell"),
    "forget_gate": ("BTD", "of an LSTM: how much of the cell is kept"),
    "output_gate": ("BTD", "of an LSTM: how much of the cell is given out"),
    "cell": ("BTD", "of an LSTM: what is kept"),
    "reset_gate": ("BTD", "of a GRU: how much of the state has a part in what is new"),
    "update_gate": ("BTD", "of a GRU: how much of the state is kept"),
    "embedded": ("BTD", "of a Transformer: tokens with their places, as they enter the first block"),
    "hidden": ("BTD", "what a layer gives; of a Transformer's block, the residual stream behind it"),
    "attention_residual": ("BT", "of a Transformer's block: the length of the residual stream behind self-attention"),
    "cross_attention_residual": ("BT", "the same behind cross-attention"),
    "feedforward_residual": ("BT", "the same behind the element-wise network, which ends the block"),
    "first": ("BTD", "of a level of a TCN: what its first convolution gives, behind relu"),
    "second": ("BTD", "of a level of a TCN: what its second convolution gives, behind relu"),
    "activation": ("BTD", "what a level of a TCN gives"),
}  # the last part of a name → its dimensions, and what it is


class Trace(Only):
    """A trace that keeps what is `wanted` on the CPU (all, if nothing is named), and refuses to grow beyond `most`
    bytes."""

    def __init__(self, most: int = MOST, wanted: Iterable[str] = ()) -> None:
        super().__init__(*wanted)
        self.most = most
        self.bytes = 0

    def __setitem__(self, name: str, value: Tensor) -> None:
        if self.wants(name):
            self.expect(value.nbytes)
            self.bytes += value.nbytes
            super().__setitem__(name, value.detach().cpu())

    def expect(self, size: int) -> None:
        if self.bytes + size > self.most:
            raise SeriatimError(
                "inspect.memory",
                f"what happens inside takes more than {_megabytes(self.most)} for this text",
                "give a shorter text, or look at one layer alone",
            )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.3g} MB"


@torch.inference_mode()
def traced(
    network: nn.Module | Callable[..., Any], *inputs: Any, most: int = MOST, wanted: Iterable[str] = ()
) -> tuple[Any, Trace]:
    """What a network answers, and its trace."""
    trace = Trace(most, wanted)
    with at_rest(network):
        answer = network(*inputs, trace=trace)
    return answer, trace


@contextmanager
def at_rest(network: Any) -> Iterator[None]:
    """Answering, not learning; afterwards as it was."""
    parts = list(network.modules()) if isinstance(network, nn.Module) else []
    before = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, learning in zip(parts, before, strict=True):
            part.training = learning


def joined(traces: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The traces of the parts of a sequence, fed one after the other with the state carried on, as that of the whole:
    an element looks at nothing that was not there yet."""
    found: dict[str, list[Tensor]] = {}
    for trace in traces:
        for name, value in trace.items():
            found.setdefault(name, []).append(value)
    return {name: _joined(values) for name, values in found.items()}


def _joined(values: list[Tensor]) -> Tensor:
    if values[0].dim() == 4:
        most = max(value.shape[-1] for value in values)
        values = [F.pad(value, (0, most - value.shape[-1])) for value in values]
    return torch.cat(values, dim=element_axis(values[0]))
