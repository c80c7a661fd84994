"""States are opaque trees of tensors whose first dimension is the batch; these are the only operations on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def map_state(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Applies `function` to every tensor of a tree of tuples, lists, dicts and None."""
    if isinstance(state, Tensor):
        return function(state)
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(map_state(function, part) for part in state))
    if isinstance(state, tuple | list):
        return type(state)(map_state(function, part) for part in state)
    if isinstance(state, dict):
        return {key: map_state(function, part) for key, part in state.items()}
    return state


def select(state: Any, rows: Tensor) -> Any:
    """The state of the given batch rows: what beam search does when hypotheses change places."""
    return map_state(lambda tensor: tensor.index_select(0, rows), state)


def detach(state: Any) -> Any:
    """The same state, cut from the graph: what truncated back-propagation through time carries over."""
    return map_state(lambda tensor: tensor.detach(), state)


def flatten(state: Any) -> list[Tensor]:
    """The tensors of a tree in a fixed order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_state(keep, state)
    return found


def restore(like: Any, tensors: list[Tensor]) -> Any:
    """The inverse of `flatten`: a tree shaped as `like` with these tensors in it."""
    waiting = iter(tensors)
    return map_state(lambda _: next(waiting), like)


def concat(states: list[Any]) -> Any:
    """Joins the states of several batches into that of one."""
    columns = zip(*(flatten(state) for state in states), strict=True)
    return restore(states[0], [torch.cat(column) for column in columns])
