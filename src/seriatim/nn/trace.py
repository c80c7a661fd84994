"""Traces: what happens inside a network, put under names into a dictionary that the caller gave.

    trace = {}                  backbone(x, trace=trace)              trace["layer0.attention"]  (B,H,T,S)
    trace = Only("alignment")   network.decode(y, memory, s, trace)   nothing else is worked out or kept

Elements stand in dimension 1 of what is kept; of the weights of heads (B,H,T,S), in dimension 2. Where a mask is
known, padding shows zeros. A part of a network writes into its `Place`; what is costly is worked out only where
`wants` says so. All names stand in inspect/trace.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

Trace = dict[str, Tensor]


class Chosen(Trace):
    """A trace that does not take everything, however it is put there."""

    def wants(self, name: str) -> bool:
        raise TypeError(f"{type(self).__name__} has no wants")

    def expect(self, size: int) -> None:
        """Told before something of so many bytes is worked out, it may refuse."""

    def update(self, *others: Any, **more: Tensor) -> None:
        for name, value in dict(*others, **more).items():
            self[name] = value


class Only(Chosen):
    """A trace of some names: whole ones, or last parts of them ("attention" is that of every layer). Without: all."""

    def __init__(self, *wanted: str) -> None:
        super().__init__()
        self.wanted = frozenset(wanted)

    def wants(self, name: str) -> bool:
        return not self.wanted or name in self.wanted or name.rpartition(".")[2] in self.wanted

    def __setitem__(self, name: str, value: Tensor) -> None:
        if self.wants(name):
            super().__setitem__(name, value)


class Place(Chosen):
    """A place in a network: what is put here goes into the trace, the place before its name. What is named in `keep`
    stays here besides, for those who work with it."""

    def __init__(self, trace: Trace, place: str, mask: Tensor | None = None, keep: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.trace, self.place, self.mask, self.keep = trace, place, mask, keep

    def expect(self, size: int) -> None:
        if isinstance(self.trace, Chosen):
            self.trace.expect(size)

    def wants(self, name: str) -> bool:
        return name in self.keep or wants(self.trace, f"{self.place}.{name}")

    def __setitem__(self, name: str, value: Tensor) -> None:
        if name in self.keep:
            super().__setitem__(name, value)
        show(self.trace, f"{self.place}.{name}", value, self.mask)


def inside(trace: Trace | None, place: str, mask: Tensor | None = None, keep: tuple[str, ...] = ()) -> Place | None:
    """`mask` (B,T) is True where a real element stands."""
    return None if trace is None else Place(trace, place, mask, keep)


def wants(trace: Trace | None, *names: str) -> bool:
    """Whether any of these is to be shown; a plain dictionary takes all."""
    if isinstance(trace, Chosen):
        return any(trace.wants(name) for name in names)
    return trace is not None


def show(trace: Trace | None, name: str, value: Tensor, mask: Tensor | None = None) -> None:
    if trace is not None and wants(trace, name):
        trace[name] = value if mask is None else real(value, mask)


def real(value: Tensor, mask: Tensor) -> Tensor:
    """With zeros in the padding."""
    shape = [1] * value.dim()
    shape[0], shape[element_axis(value)] = mask.shape
    return value.masked_fill(~mask.view(shape), 0.0)


def element_axis(value: Tensor) -> int:
    return 2 if value.dim() == 4 else 1
