"""Traces of whole networks: what happens inside while a sequence is read, as named tensors of bounded size.

A network that is passed a trace records into it and changes nothing else: its outputs are the same bit for bit, and
nothing stays on its modules. A name is a location and a part, such as "layer0.attention" or
"encoder.layer1.backward.cell". Elements are dimension 1, of the weights of heads dimension 2; padding is zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..nn.backbone import NamedTrace, element_axis

MAX_BYTES = 2**28  # of a trace: attention grows with the square of the length

# The last part of a name → its dimensions, and what it is
NAMES = {
    "attention": ("BHTS", "attention weights of each element over the elements of its own sequence, by head"),
    "cross_attention": ("BHTS", "attention weights of each target element over the source, by head"),
    "alignment": ("BTS", "attention weights of each target element over the source, averaged over heads and blocks"),
    "input_gate": ("BTD", "LSTM: the share of the candidate that is written to the cell"),
    "forget_gate": ("BTD", "LSTM: the share of the cell that is kept"),
    "output_gate": ("BTD", "LSTM: the share of the cell that is output"),
    "cell": ("BTD", "LSTM: the cell state"),
    "reset_gate": ("BTD", "GRU: the share of the state that enters the candidate"),
    "update_gate": ("BTD", "GRU: the share of the state that is kept"),
    "embedded": ("BTD", "Transformer: tokens with positions, the input of the first block"),
    "hidden": ("BTD", "the output of a layer; of a Transformer block the residual stream after it"),
    "attention_residual": ("BT", "Transformer: the norm of the residual stream after self-attention"),
    "cross_attention_residual": ("BT", "Transformer: the norm of the residual stream after cross-attention"),
    "feedforward_residual": ("BT", "Transformer: the norm of the residual stream after the feed-forward network"),
    "first": ("BTD", "TCN: the output of a level's first convolution, after relu"),
    "second": ("BTD", "TCN: the output of a level's second convolution, after relu"),
    "activation": ("BTD", "TCN: the output of a level"),
}
PATTERN = re.compile(r"(?:(encoder|decoder)\.)?(?:(layer|level)(\d+)\.)?(?:(forward|backward)\.)?(.+)")


@dataclass(frozen=True)
class TraceName:
    """A name in a trace, taken apart: "encoder.layer1.backward.cell"."""

    side: str  # encoder, decoder or ""
    kind: str  # layer, level or ""
    index: int | None
    direction: str  # forward, backward or ""
    part: str

    @classmethod
    def parse(cls, name: str) -> TraceName:
        match = PATTERN.fullmatch(name)
        assert match is not None, name
        side, kind, index, direction, part = match.groups()
        return cls(side or "", kind or "", None if index is None else int(index), direction or "", part)

    @property
    def location(self) -> str:
        """The location in words: "encoder, layer 1, backward"; empty if the name has none."""
        layer = f"{self.kind} {self.index}" if self.kind else ""
        return ", ".join(word for word in (self.side, layer, self.direction) if word)


class BoundedTrace(NamedTrace):
    """A trace on the CPU that raises an error rather than exceed a size.

    Args:
        names: Names, or last parts of names, to record; by default all.
        max_bytes: The largest size in bytes.
        used_bytes: What earlier traces of the same inspection use of it.
    """

    def __init__(self, names: Iterable[str] = (), max_bytes: int = MAX_BYTES, used_bytes: int = 0) -> None:
        super().__init__(*names)
        self.max_bytes, self.bytes = max_bytes, used_bytes

    def __setitem__(self, name: str, value: Tensor) -> None:
        if self.accepts(name):
            self.reserve(value.nbytes)
            self.bytes += value.nbytes
            super().__setitem__(name, value.detach().cpu())

    def reserve(self, size: int) -> None:
        if self.bytes + size > self.max_bytes:
            cause = f"the trace of this text needs more than {self.max_bytes / 2**20:.3g} MB"
            raise SeriatimError("inspect.memory", cause, "pass a shorter text, or choose one layer")


T = TypeVar("T")


@torch.inference_mode()
def run_traced(
    network: Callable[..., T], *inputs: object, names: Iterable[str] = (), max_bytes: int = MAX_BYTES
) -> tuple[T, BoundedTrace]:
    """Returns the output of a network in evaluation mode, and its trace."""
    trace = BoundedTrace(names, max_bytes)
    with evaluation_mode(network):
        output = network(*inputs, trace=trace)
    return output, trace


_EVALUATED: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()  # blocks, and the mode before
_MODES = Lock()


@contextmanager
def evaluation_mode(network: object) -> Iterator[None]:
    """Sets a module to evaluation mode within the block; each of its modules is restored afterwards.

    Of blocks that overlap, in several threads, the last one restores.
    """
    modules = list(network.modules()) if isinstance(network, nn.Module) else []
    with _MODES:
        for module in modules:
            blocks, training = _EVALUATED.get(module, (0, module.training))
            _EVALUATED[module] = (blocks + 1, training)
            module.training = False
    try:
        yield
    finally:
        with _MODES:
            for module in modules:
                blocks, training = _EVALUATED.pop(module)
                if blocks > 1:
                    _EVALUATED[module] = (blocks - 1, training)
                else:
                    module.training = training


def join_traces(traces: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the trace of a sequence from the traces of its consecutive parts, each read from the state before it."""
    parts: dict[str, list[Tensor]] = {}
    for trace in traces:
        for name, value in trace.items():
            parts.setdefault(name, []).append(value)
    joined = {}
    for name, values in parts.items():
        if values[0].dim() == 4:  # weights over the elements so far
            longest = max(value.shape[-1] for value in values)
            values = [F.pad(value, (0, longest - value.shape[-1])) for value in values]
        joined[name] = torch.cat(values, dim=element_axis(values[0]))
    return joined
