"""Traces: intermediate values of a network, recorded by name in a dict that the caller passes.

    trace = {}                       backbone(x, trace=trace)               trace["layer0.attention"]  (B,H,T,S)
    trace = NamedTrace("alignment")  network.decode(y, memory, s, trace)    nothing else is computed or stored

Elements are dimension 1 of a recorded value; in attention weights of heads (B,H,T,S), dimension 2. If a mask is known,
padding is recorded as zeros. A part of a network records into its `TraceScope`; costly values are computed only if
`is_traced`. All names are listed in inspect/trace.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

Trace = dict[str, Tensor]


class SelectiveTrace(Trace):
    """Base of traces that accept only some names."""

    def accepts(self, name: str) -> bool:
        raise TypeError(f"{type(self).__name__} has no accepts")

    def reserve(self, size: int) -> None:
        """Called before a value of `size` bytes is computed; may raise an error."""

    def update(self, *others: Any, **more: Tensor) -> None:
        for name, value in dict(*others, **more).items():
            self[name] = value


class NamedTrace(SelectiveTrace):
    """A trace of the given names, or last parts of names ("attention" is that of every layer). Without names: all."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = frozenset(names)

    def accepts(self, name: str) -> bool:
        return not self.names or name in self.names or name.rpartition(".")[2] in self.names

    def __setitem__(self, name: str, value: Tensor) -> None:
        if self.accepts(name):
            super().__setitem__(name, value)


class TraceScope(SelectiveTrace):
    """Records into another trace under a prefix; the names in `keep` are also kept here, for the caller."""

    def __init__(self, trace: Trace, prefix: str, mask: Tensor | None = None, keep: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.trace, self.prefix, self.mask, self.keep = trace, prefix, mask, keep

    def reserve(self, size: int) -> None:
        if isinstance(self.trace, SelectiveTrace):
            self.trace.reserve(size)

    def accepts(self, name: str) -> bool:
        return name in self.keep or is_traced(self.trace, f"{self.prefix}.{name}")

    def __setitem__(self, name: str, value: Tensor) -> None:
        if name in self.keep:
            super().__setitem__(name, value)
        record(self.trace, f"{self.prefix}.{name}", value, self.mask)


def trace_scope(
    trace: Trace | None, prefix: str, mask: Tensor | None = None, keep: tuple[str, ...] = ()
) -> TraceScope | None:
    """Returns a scope of the trace, None without a trace. `mask` (B,T) is True for elements, False for padding."""
    return None if trace is None else TraceScope(trace, prefix, mask, keep)


def is_traced(trace: Trace | None, *names: str) -> bool:
    """Returns whether the trace accepts any of the names; a plain dict accepts all."""
    if isinstance(trace, SelectiveTrace):
        return any(trace.accepts(name) for name in names)
    return trace is not None


def record(trace: Trace | None, name: str, value: Tensor, mask: Tensor | None = None) -> None:
    if trace is not None and is_traced(trace, name):
        trace[name] = value if mask is None else zero_padding(value, mask)


def zero_padding(value: Tensor, mask: Tensor) -> Tensor:
    """Returns the value with zeros at padded elements."""
    shape = [1] * value.dim()
    shape[0], shape[element_axis(value)] = mask.shape
    return value.masked_fill(~mask.view(shape), 0.0)


def element_axis(value: Tensor) -> int:
    return 2 if value.dim() == 4 else 1
