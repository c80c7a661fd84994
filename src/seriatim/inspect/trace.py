"""Traces: what happened inside a network while it read a sequence, as named arrays.

A network that is given a trace (a dictionary) writes into it and changes nothing else: what it answers is the same bit
for bit, and nothing stays on its modules. The names tell the place: "layer0.attention" (B,H,T,S), "layer1.forget"
(B,T,D).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError

MOST = 2**28  # bytes of a trace: attention of a long text grows with its square


class Trace(dict[str, Tensor]):
    """A trace that keeps copies on the CPU, and refuses to grow beyond `most` bytes."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self.most = most
        self.bytes = 0

    def __setitem__(self, name: str, value: Tensor) -> None:
        value = value.detach()
        self.bytes += value.nbytes
        if self.bytes > self.most:
            raise SeriatimError(
                "inspect.memory",
                f"what happens inside takes more than {self.most >> 20} MB for this text",
                "give a shorter text",
            )
        super().__setitem__(name, value.cpu())

    def update(self, *others: Any, **more: Tensor) -> None:
        for name, value in dict(*others, **more).items():
            self[name] = value


@torch.inference_mode()
def traced(network: nn.Module, *inputs: Any, most: int = MOST) -> tuple[Any, Trace]:
    """What a network answers, and its trace."""
    network.eval()
    trace = Trace(most)
    answer = network(*inputs, trace=trace)
    return answer, trace
