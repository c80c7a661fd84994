"""States are opaque trees of tensors whose first dimension is the batch; these are the only operations on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .room import rows_of


class Rows(ABC):
    """A part of a state that keeps its rows in a way of its own."""

    @abstractmethod
    def select(self, rows: Tensor) -> Rows:
        """The same for the given rows."""


def map_state(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Applies `function` to every tensor of a tree of tuples, lists, dicts and None."""
    if isinstance(state, Tensor):
        return function(state)
    if isinstance(state, tuple | list):
        return type(state)(map_state(function, part) for part in state)
    if isinstance(state, dict):
        return {key: map_state(function, part) for key, part in state.items()}
    return state


def select(state: Any, rows: Tensor) -> Any:
    """The state of the given batch rows: what beam search does when hypotheses change places."""
    if isinstance(state, Rows):
        return state.select(rows)
    if isinstance(state, tuple | list):
        return type(state)(select(part, rows) for part in state)
    if isinstance(state, dict):
        return {key: select(part, rows) for key, part in state.items()}
    return rows_of(state, rows) if isinstance(state, Tensor) else state


def detach(state: Any) -> Any:
    """The same state, cut from the graph: what truncated back-propagation through time carries over."""
    return map_state(lambda tensor: tensor.detach(), state)


def flatten(state: Any) -> tuple[list[Tensor], Any]:
    """The tensors of a tree in a fixed order, and its form as plain JSON values, for `rebuild`."""
    tensors: list[Tensor] = []

    def form(part: Any) -> Any:
        if isinstance(part, Tensor):
            tensors.append(part)
            return "tensor"
        if isinstance(part, tuple | list):
            return {"tuple" if isinstance(part, tuple) else "list": [form(inner) for inner in part]}
        if isinstance(part, dict):
            return {"dict": {key: form(inner) for key, inner in part.items()}}
        return None

    return tensors, form(state)


def rebuild(form: Any, tensors: list[Tensor]) -> Any:
    """The inverse of `flatten`."""
    waiting = iter(tensors)

    def build(part: Any) -> Any:
        if part == "tensor":
            return next(waiting)
        if part is None:
            return None
        ((kind, inner),) = part.items()
        if kind == "dict":
            return {key: build(value) for key, value in inner.items()}
        return (tuple if kind == "tuple" else list)(build(value) for value in inner)

    return build(form)


def concat(states: list[Any]) -> Any:
    """Joins the states of several batches into that of one."""
    flat = [flatten(state) for state in states]
    columns = zip(*(tensors for tensors, _ in flat), strict=True)
    return rebuild(flat[0][1], [torch.cat(column) for column in columns])


def split(state: Any, size: int) -> list[Any]:
    """The inverse of `concat`: states of `size` rows each."""
    tensors, form = flatten(state)
    rows = len(tensors[0]) if tensors else 0
    return [rebuild(form, [t[first : first + size] for t in tensors]) for first in range(0, rows, size)]
