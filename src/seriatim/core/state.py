"""States: opaque trees of tensors whose first dimension is the batch, and the operations on them.

A state that keeps all it has read, such as keys and values, would be copied for every new element. `append` returns a
view into a growing buffer instead: the buffer doubles when it is full, and contents that a view shows never change. If
a state is continued a second time, in another way, it is copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

State = Any  # an opaque tree of tensors: tuples, lists and dicts of them, or a `RowState`
# The structure of a state, as plain JSON values
Structure: TypeAlias = "Literal['tensor'] | dict[str, list[Structure] | dict[str, Structure]] | None"
MIN_CAPACITY = 64  # elements of a buffer; also the largest number appended at once


class RowState(ABC):
    """A state that stores its batch rows in its own way, such as natively."""

    @abstractmethod
    def select(self, rows: Tensor) -> RowState:
        """Returns the state of the given batch rows."""


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """Applies `function` to every tensor of a tree of tuples, lists, dicts and None."""
    if isinstance(state, Tensor):
        return function(state)
    if isinstance(state, tuple | list):
        return type(state)(map_state(function, part) for part in state)
    if isinstance(state, dict):
        return {key: map_state(function, part) for key, part in state.items()}
    return state


def select(state: State, rows: Tensor) -> State:
    """Returns the state of the given batch rows, as beam search needs when it reorders hypotheses."""
    if isinstance(state, RowState):
        return state.select(rows)
    if isinstance(state, tuple | list):
        return type(state)(select(part, rows) for part in state)
    if isinstance(state, dict):
        return {key: select(part, rows) for key, part in state.items()}
    return select_rows(state, rows) if isinstance(state, Tensor) else state


def detach(state: State) -> State:
    """Returns the state detached from the graph, as truncated backpropagation through time carries it."""
    return map_state(lambda tensor: tensor.detach(), state)


def flatten(state: State) -> tuple[list[Tensor], Structure]:
    """Returns the tensors of a tree in a fixed order, and its structure as plain JSON values, for `rebuild`."""
    tensors: list[Tensor] = []

    def structure(part: State) -> Structure:
        if isinstance(part, Tensor):
            tensors.append(part)
            return "tensor"
        if isinstance(part, tuple | list):
            return {"tuple" if isinstance(part, tuple) else "list": [structure(inner) for inner in part]}
        if isinstance(part, dict):
            return {"dict": {key: structure(inner) for key, inner in part.items()}}
        return None

    return tensors, structure(state)


def rebuild(structure: Structure, tensors: list[Tensor]) -> State:
    """Returns the tree of a structure and its tensors: the inverse of `flatten`."""
    remaining = iter(tensors)

    def build(part: Structure) -> State:
        if part == "tensor":
            return next(remaining)
        if part is None:
            return None
        ((kind, inner),) = part.items()
        if isinstance(inner, dict):
            return {key: build(value) for key, value in inner.items()}
        return (tuple if kind == "tuple" else list)(build(value) for value in inner)

    return build(structure)


def concat(states: list[State]) -> State:
    """Joins the states of several batches into that of one."""
    flat = [flatten(state) for state in states]
    columns = zip(*(tensors for tensors, _ in flat), strict=True)
    return rebuild(flat[0][1], [torch.cat(column) for column in columns])


def split(state: State, size: int) -> list[State]:
    """Splits a state into states of `size` rows each: the inverse of `concat`."""
    tensors, structure = flatten(state)
    rows = len(tensors[0]) if tensors else 0
    return [rebuild(structure, [t[first : first + size] for t in tensors]) for first in range(0, rows, size)]


# Growing buffers


@dataclass
class Buffer:
    """Memory with unused capacity along one dimension. Views are appended to only at its filled end."""

    memory: Tensor
    dim: int
    filled: int = 0  # used elements of that dimension


_views: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor → its buffer, and where in it the tensor begins


def append(past: Tensor, new: Tensor, dim: int) -> Tensor:
    """Returns `torch.cat([past, new], dim)`, without copying `past` in most cases."""
    before, added = past.shape[dim], new.shape[dim]
    buffered = (
        0 < added <= MIN_CAPACITY
        and past.dtype == new.dtype
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and (torch.is_inference_mode_enabled() or not past.is_inference())
    )
    if not buffered:
        return torch.cat([past, new], dim=dim)
    buffer, start = _views.get(past, (None, 0))
    if buffer is None or start + before != buffer.filled or buffer.filled + added > buffer.memory.shape[dim]:
        buffer, start = _allocate(past, dim, max(MIN_CAPACITY, 2 * (before + added))), 0
        buffer.memory.narrow(dim, 0, before).copy_(past)
        buffer.filled = before
    buffer.memory.narrow(dim, buffer.filled, added).copy_(new)
    buffer.filled += added
    return _view(buffer, start, before + added)


def last_elements(tensor: Tensor, size: int, dim: int) -> Tensor:
    """Returns the last `size` elements along a dimension; `append` may still extend them in place."""
    if tensor not in _views:
        return tensor.narrow(dim, tensor.shape[dim] - size, size)
    buffer, start = _views[tensor]
    return _view(buffer, start + tensor.shape[dim] - size, size)


def select_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Returns rows of a tensor, with the unused capacity that it had."""
    if tensor not in _views or torch.is_grad_enabled():
        return tensor.index_select(0, rows)
    old, size = _views[tensor][0], tensor.shape[_views[tensor][0].dim]
    buffer = _allocate(tensor, old.dim, old.memory.shape[old.dim], len(rows))
    buffer.filled = size
    torch.index_select(tensor, 0, rows, out=buffer.memory.narrow(old.dim, 0, size))
    return _view(buffer, 0, size)


def _allocate(like: Tensor, dim: int, size: int, rows: int | None = None) -> Buffer:
    shape = list(like.shape)
    shape[dim] = size
    if rows is not None:
        shape[0] = rows
    return Buffer(like.new_empty(shape), dim)


def _view(buffer: Buffer, start: int, size: int) -> Tensor:
    view = buffer.memory.narrow(buffer.dim, start, size)
    _views[view] = buffer, start
    return view
