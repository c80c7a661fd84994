"""The same network in the format of another program: which of its tensors are which of ours.

A model's file declares its forms (`HUB`), `hub/` reads and writes them. A form is a list of entries, and so the same
list serves in both directions: what is read and written again is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """Our tensor consists of theirs, one below the other, each transposed where they keep it so."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        parts = [tensors[name].t() if self.transposed else tensors[name] for name in self.theirs]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = tensor.chunk(len(self.theirs)) if len(self.theirs) > 1 else (tensor,)
        turned = [part.t() if self.transposed else part for part in parts]
        return {name: part.contiguous() for name, part in zip(self.theirs, turned, strict=True)}


def layer(ours: str, *theirs: str, transposed: bool = False) -> list[Entry]:
    """A weight and a bias; only matrices are ever transposed."""
    return [
        Entry(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), transposed),
        Entry(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs)),
    ]


@dataclass(frozen=True)
class Head:
    """What stands on the body in one architecture of theirs, and the task of ours that this is."""

    architecture: str
    task: str
    entries: tuple[Entry, ...] = ()
    optional: tuple[Entry, ...] = ()  # read where they are there
    options: Mapping[str, Any] = field(default_factory=dict)  # settings of the task that make this head
    prefixed: bool = True  # the body's tensors carry the form's prefix
    fits: Callable[[Mapping[str, Any]], bool] = lambda config: True


@dataclass(frozen=True)
class Form:
    """One `model_type` of theirs. `settings` turns a config.json into settings of ours and adds to the list of problems
    what has no counterpart here; `config` is the inverse, and adds likewise."""

    kind: str
    prefix: str
    settings: Callable[[Mapping[str, Any], list[str]], dict[str, Any]]
    config: Callable[[Any, int, list[str]], dict[str, Any]]
    body: Callable[[Any], list[Entry]]
    heads: tuple[Head, ...]
    ignored: tuple[str, ...] = ()  # patterns of tensors that hold nothing of their own: tied tables, constants

    def entries(self, settings: Any, head: Head) -> list[Entry]:
        """Of the whole model."""
        prefix = self.prefix if head.prefixed else ""
        body = [
            Entry(one.ours, tuple(prefix + name for name in one.theirs), one.transposed) for one in self.body(settings)
        ]
        return [*body, *head.entries]


def choose(problems: list[str], what: str, value: Any, known: Mapping[Any, Any]) -> Any:
    """The counterpart of a value, or a problem."""
    if value not in known:
        allowed = ", ".join(str(one) for one in known)
        problems.append(f"{what} is {value}; what is known here: {allowed}")
        return next(iter(known.values()))
    return known[value]


def whole(problems: list[str], config: Mapping[str, Any], names: Iterable[str]) -> dict[str, int]:
    """Sizes out of a config.json, each a whole number above 0; 1 in the place of one that is a problem."""
    found = {}
    for name in names:
        value = config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.append(
                f"config.json: {name} is {value!r}, no size" if name in config else f"config.json: no {name}"
            )
            value = 1
        found[name] = value
    return found
