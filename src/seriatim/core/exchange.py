"""The same network in the format of another program: which of its tensors are which of ours.

A model's file declares its forms (`HUB`), `hub/` reads and writes them. A form is a list of entries, and so the same
list serves in both directions: what is read and written again is what it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from .tensors import without_contents


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

    def problem(self, tensors: Mapping[str, Tensor]) -> str | None:
        """Why tensors of the right shape cannot be one of ours, where they cannot."""
        return None


@dataclass(frozen=True)
class Row(Entry):
    """Our tensor is the only one in theirs, which has so many dimensions more."""

    depth: int = 1

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return super().read(tensors)[(0,) * self.depth]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return super().write(tensor[(None,) * self.depth])


@dataclass(frozen=True)
class Squares(Entry):
    """Our matrix is their convolution over squares of pixels (D,C,s,s), which are grey or have three colours."""

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return super().read(tensors).flatten(1)

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        side = math.isqrt(tensor.shape[1])
        side = side if side**2 == tensor.shape[1] else math.isqrt(tensor.shape[1] // 3)
        return super().write(tensor.unflatten(1, (-1, side, side)))


@dataclass(frozen=True)
class Copies(Entry):
    """Our tensor stands there several times."""

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return tensors[self.theirs[0]]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return dict.fromkeys(self.theirs, tensor)

    def problem(self, tensors: Mapping[str, Tensor]) -> str | None:
        first, *others = (tensors[name] for name in self.theirs)
        same = all(torch.equal(first, other) for other in others)
        return None if same else f"{' and '.join(self.theirs)} differ; here they are one"


@dataclass(frozen=True)
class Halves(Entry):
    """Along one axis they have first what stands at our even places, then what stands at the odd ones."""

    axis: int = 0

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        tensor = super().read(tensors)
        return tensor.index_select(self.axis, self._places(tensor).argsort())

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return super().write(tensor.index_select(self.axis, self._places(tensor)))

    def _places(self, tensor: Tensor) -> Tensor:
        places = torch.arange(tensor.shape[self.axis], device=tensor.device)
        return torch.cat([places[::2], places[1::2]])


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
    make: Callable[[Any, Any, int], nn.Module] | None = None  # (settings, input, outputs) → the head, for its shapes


def _body_modules(settings: Any, config: Mapping[str, Any], vocabulary: int) -> dict[str, nn.Module]:
    inputs = settings.token_input(vocabulary)
    return {"input": inputs, "backbone": settings.build(inputs.embedding_dim, 1)}


@dataclass(frozen=True)
class Form:
    """One `model_type` of theirs. `settings` turns a config.json into settings of ours and adds to the list of problems
    what has no counterpart here; `config` is the inverse for a network with some tensors, and adds likewise."""

    kind: str
    prefix: str
    settings: Callable[[Mapping[str, Any], list[str]], dict[str, Any]]
    config: Callable[[Any, Mapping[str, Tensor], list[str]], dict[str, Any]]
    body: Callable[[Any], list[Entry]]
    heads: tuple[Head, ...]
    ignored: tuple[str, ...] = ()  # patterns of tensors that hold nothing of their own: tied tables, constants
    suits: Callable[[Any], bool] = lambda settings: True  # where a model has several forms: whether it is this one
    tables: tuple[str, ...] = ("input.weight",)  # tensors of ours with a row for each token
    made: Callable[[Any], dict[str, Tensor]] = lambda settings: {}  # what stands there and follows from settings here
    modules: Callable[[Any, Mapping[str, Any], int], Mapping[str, nn.Module]] = _body_modules  # for their shapes
    pictures: bool = False  # what it reads are pictures
    sizes: tuple[str, ...] = ("vocab_size",)  # that config.json must name for the shapes, besides what settings are of
    check: Callable[[Mapping[str, Tensor]], list[str]] = lambda stored: []  # problems of tensors that are not read

    def entries(self, settings: Any, head: Head) -> list[Entry]:
        """Of the whole model."""
        prefix = self.prefix if head.prefixed else ""
        body = [replace(one, theirs=tuple(prefix + name for name in one.theirs)) for one in self.body(settings)]
        return [*body, *head.entries]

    def shapes(self, settings: Any, head: Head, config: Mapping[str, Any], outputs: int) -> dict[str, Tensor]:
        """Our tensors as they must be for a config.json, without their contents."""
        with without_contents():
            parts = dict(self.modules(settings, config, int(config.get("vocab_size", 0))))
            if head.make is not None:
                parts["head"] = head.make(settings, parts["input"], outputs)
        return {f"{part}.{name}": one for part, module in parts.items() for name, one in module.state_dict().items()}


ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu", "silu": "silu",
    "swish": "silu",
}  # fmt: skip


def inverse(names: dict[str, str]) -> dict[str, str]:
    """The first of their names for each of ours."""
    return {ours: theirs for theirs, ours in reversed(names.items())}


def choose(problems: list[str], what: str, value: Any, known: Mapping[Any, Any]) -> Any:
    """The counterpart of a value, or a problem."""
    if isinstance(value, list | dict) or value not in known:
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
