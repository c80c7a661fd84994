"""Tensors that grow with every step: what was read last is written behind the rest, which stays where it is.

A state that keeps all it has read (keys and values, a window) would otherwise be copied once for every element. Here it
is a view into memory with room behind it, and twice the memory is taken when that is full. To everybody else it is an
ordinary tensor: what it holds never changes. Room belongs to whoever writes into it first; a state that is gone on with
a second time, in another way, is copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

FEW = 64  # elements at once, up to which room pays: a step, not a text


@dataclass
class Room:
    memory: Tensor
    dim: int
    filled: int  # places of that dimension that are taken


_views: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor → its room, and where in it the tensor begins


def append(past: Tensor, new: Tensor, dim: int) -> Tensor:
    """`torch.cat([past, new], dim)`, without copying what is past."""
    before, more = past.shape[dim], new.shape[dim]
    if not _serves(past, new, more):
        return torch.cat([past, new], dim=dim)
    room, start = _views.get(past, (None, 0))
    if room is None or start + before != room.filled or room.filled + more > room.memory.shape[dim]:
        room, start = _made(past, dim, max(FEW, 2 * (before + more))), 0
        room.memory.narrow(dim, 0, before).copy_(past)
        room.filled = before
    room.memory.narrow(dim, room.filled, more).copy_(new)
    room.filled += more
    return _view(room, start, before + more)


def last(whole: Tensor, size: int, dim: int) -> Tensor:
    """The last elements of it, which keep their room."""
    if whole not in _views:
        return whole.narrow(dim, whole.shape[dim] - size, size)
    room, start = _views[whole]
    return _view(room, start + whole.shape[dim] - size, size)


def rows_of(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor, with as much room as before."""
    if tensor not in _views or torch.is_grad_enabled():
        return tensor.index_select(0, rows)
    old, size = _views[tensor][0], tensor.shape[_views[tensor][0].dim]
    room = _made(tensor, old.dim, old.memory.shape[old.dim], len(rows))
    room.filled = size
    torch.index_select(tensor, 0, rows, out=room.memory.narrow(old.dim, 0, size))
    return _view(room, 0, size)


def _serves(past: Tensor, new: Tensor, more: int) -> bool:
    return (
        0 < more <= FEW
        and past.dtype == new.dtype
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and (torch.is_inference_mode_enabled() or not past.is_inference())
    )


def _made(like: Tensor, dim: int, size: int, rows: int | None = None) -> Room:
    shape = list(like.shape)
    shape[dim] = size
    if rows is not None:
        shape[0] = rows
    return Room(like.new_empty(shape), dim, 0)


def _view(room: Room, start: int, size: int) -> Tensor:
    view = room.memory.narrow(room.dim, start, size)
    _views[view] = room, start
    return view
