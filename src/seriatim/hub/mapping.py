"""Mappings between our weights and settings and the weights and settings of `transformers`.

The modules of `hub/mappings/` declare a `ModelMapping` for each `model_type`. It is a list of tensor maps, which serve
both directions: a model that is read and written again is unchanged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.device import on_meta_device
from ..core.errors import SeriatimError
from ..core.files import Json
from ..core.limits import FILE_BYTES

Config = Mapping[str, Any]  # the contents of config.json


# Tensors


@dataclass(frozen=True)
class TensorMap:
    """Our tensor is the concatenation of hub tensors, each transposed if `transposed`."""

    name: str
    hub_names: tuple[str, ...]
    transposed: bool = False

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        parts = [tensors[name].t() if self.transposed else tensors[name] for name in self.hub_names]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = tensor.chunk(len(self.hub_names)) if len(self.hub_names) > 1 else (tensor,)
        transposed = [part.t() if self.transposed else part for part in parts]
        return {name: part.contiguous() for name, part in zip(self.hub_names, transposed, strict=True)}

    def problem(self, tensors: Mapping[str, Tensor]) -> str | None:
        """Returns why hub tensors of the right shape cannot be mapped, None if they can."""
        return None


@dataclass(frozen=True)
class UnsqueezedMap(TensorMap):
    """The hub tensor has `depth` more dimensions of size 1 in front."""

    depth: int = 1

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return super().read(tensors)[(0,) * self.depth]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return super().write(tensor[(None,) * self.depth])


@dataclass(frozen=True)
class PatchMap(TensorMap):
    """Our matrix (D,C·s·s) is a hub convolution over patches (D,C,s,s) of one or three channels."""

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return super().read(tensors).flatten(1)

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        side = math.isqrt(tensor.shape[1])
        side = side if side**2 == tensor.shape[1] else math.isqrt(tensor.shape[1] // 3)
        return super().write(tensor.unflatten(1, (-1, side, side)))


@dataclass(frozen=True)
class TiedMap(TensorMap):
    """Our tensor is stored several times."""

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return tensors[self.hub_names[0]]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return dict.fromkeys(self.hub_names, tensor)

    def problem(self, tensors: Mapping[str, Tensor]) -> str | None:
        first, *others = (tensors[name] for name in self.hub_names)
        same = all(torch.equal(first, other) for other in others)
        return None if same else f"{' and '.join(self.hub_names)} differ, but must be equal here"


@dataclass(frozen=True)
class OffsetMap(TiedMap):
    """The hub tables have `offset` more rows in front, which nothing reads; they are written as zeros."""

    offset: int = 2

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return super().read(tensors)[self.offset :]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return super().write(torch.cat([tensor.new_zeros(self.offset, *tensor.shape[1:]), tensor]))


@dataclass(frozen=True)
class InterleavedMap(TensorMap):
    """Along an axis, the hub tensor has our even entries first, then the odd ones."""

    axis: int = 0

    def read(self, tensors: Mapping[str, Tensor]) -> Tensor:
        tensor = super().read(tensors)
        return tensor.index_select(self.axis, self._order(tensor).argsort())

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        return super().write(tensor.index_select(self.axis, self._order(tensor)))

    def _order(self, tensor: Tensor) -> Tensor:
        indices = torch.arange(tensor.shape[self.axis], device=tensor.device)
        return torch.cat([indices[::2], indices[1::2]])


def layer_maps(name: str, *hub_names: str, transposed: bool = False) -> list[TensorMap]:
    """Returns the maps of a layer's weight and bias; only the weight is transposed."""
    return [
        TensorMap(f"{name}.weight", tuple(f"{hub_name}.weight" for hub_name in hub_names), transposed),
        TensorMap(f"{name}.bias", tuple(f"{hub_name}.bias" for hub_name in hub_names)),
    ]


# Models


@dataclass(frozen=True)
class HubHead:
    """An architecture of `transformers`: the head on the body of a model.

    Args:
        architecture: The name in config.json.
        kind: The `hub_head` of the task that it belongs to.
        maps: The tensors of the head.
        optional: Tensors that are read if they exist.
        task_settings: Settings of the task with this head.
        prefixed: Whether the body's tensors have the prefix of the mapping.
        matches: Whether a config.json with this architecture has this head.
        make: (settings, input module, outputs) → the head, for its shapes.
        copies: Hub tensors that some files store again: (tensor, copy). They are not read, but must be equal.
    """

    architecture: str
    kind: str
    maps: tuple[TensorMap, ...] = ()
    optional: tuple[TensorMap, ...] = ()
    task_settings: Mapping[str, object] = field(default_factory=dict)
    prefixed: bool = True
    matches: Callable[[Config], bool] = lambda config: True
    make: Callable[[Any, Any, int], nn.Module] | None = None
    copies: tuple[tuple[str, str], ...] = ()


def _token_modules(settings: Any, config: Config, vocab_size: int) -> dict[str, nn.Module]:
    inputs = settings.token_input(vocab_size)
    return {"input": inputs, "backbone": settings.build(inputs.embedding_dim, 1)}


@dataclass(frozen=True)
class ModelMapping:
    """The mapping of a `model_type` of `transformers` to one of our models.

    Args:
        model_type: The name in config.json.
        model: The name of our model.
        prefix: Of the body's tensors in architectures with a head.
        settings: config.json → settings of our model; adds unsupported values to the list of problems.
        config: (settings, tensors) → entries of config.json; adds likewise.
        body: Settings → the tensors without the head.
        heads: The architectures.
        ignored: Patterns of hub tensors that are not read: tied matrices, constants.
        supports: Whether a model with these settings has this `model_type`.
        token_tables: Our tensors with a row for each token.
        constants: Settings → hub tensors that follow from the settings.
        modules: (settings, config.json, vocabulary size) → the modules of the body, for their shapes.
        images: Whether the model reads images.
        sizes: Sizes that config.json must have, besides the settings.
        check: Hub tensors → problems of tensors that are not read.
        aliases: Hub tensors that some folders store only under another name.
    """

    model_type: str
    model: str
    prefix: str
    settings: Callable[[Config, list[str]], Json]
    config: Callable[[Any, Mapping[str, Tensor], list[str]], Json]
    body: Callable[[Any], list[TensorMap]]
    heads: tuple[HubHead, ...]
    ignored: tuple[str, ...] = ()
    supports: Callable[[Any], bool] = lambda settings: True
    token_tables: tuple[str, ...] = ("input.weight",)
    constants: Callable[[Any], dict[str, Tensor]] = lambda settings: {}
    modules: Callable[[Any, Config, int], Mapping[str, nn.Module]] = _token_modules
    images: bool = False
    sizes: tuple[str, ...] = ("vocab_size",)
    check: Callable[[Mapping[str, Tensor]], list[str]] = lambda tensors: []
    aliases: Mapping[str, str] = field(default_factory=dict)

    def maps(self, settings: Any, head: HubHead) -> list[TensorMap]:
        """Returns the tensors of a whole model."""
        prefix = self.prefix if head.prefixed else ""
        body = [
            replace(entry, hub_names=tuple(prefix + name for name in entry.hub_names)) for entry in self.body(settings)
        ]
        return [*body, *head.maps]

    def shapes(self, settings: Any, head: HubHead, config: Config, outputs: int) -> dict[str, Tensor]:
        """Returns our tensors of a model with this config.json, on the meta device."""
        with on_meta_device():
            modules = dict(self.modules(settings, config, config["vocab_size"] if "vocab_size" in self.sizes else 0))
            if head.make is not None:
                modules["head"] = head.make(settings, modules["input"], outputs)
        return {
            f"{part}.{name}": tensor for part, module in modules.items() for name, tensor in module.state_dict().items()
        }


# Values of config.json


def read_json(file: Path) -> object:
    """Returns the contents of a file of a model folder."""
    try:
        FILE_BYTES.check(file.stat().st_size, str(file))
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SeriatimError("hub.damaged", f"{file} is not JSON: {error}", "restore the file") from None


def read_json_object(file: Path) -> Json:
    values = read_json(file)
    if not isinstance(values, dict):
        raise SeriatimError("hub.damaged", f"{file} is not a JSON object", "restore the file")
    return values


MAX_SIZE = 100_000_000  # of a vocabulary; the sizes of a model have narrower ranges of their own

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu", "silu": "silu",
    "swish": "silu",
}  # fmt: skip


V = TypeVar("V")


def inverse(names: dict[str, V]) -> dict[V, str]:
    """Returns our name → the first hub name for it."""
    return {ours: hub_name for hub_name, ours in reversed(names.items())}


def map_value(problems: list[str], key: str, value: object, known: Mapping[Any, V]) -> V:
    """Returns our counterpart of a value, or adds a problem."""
    if isinstance(value, list | dict) or value not in known:
        supported = ", ".join(str(option) for option in known)
        problems.append(f"{key} is {str(value)[:100]}; supported: {supported}")
        return next(iter(known.values()))
    return known[value]


def require_values(problems: list[str], config: Config, expected: Config) -> None:
    """Adds a problem for each key whose value is not the expected one; a missing key has the expected value."""
    for key, value in expected.items():
        map_value(problems, key, config.get(key, value), {value: 0})


def read_sizes(problems: list[str], config: Config, keys: Iterable[str]) -> dict[str, int]:
    """Returns sizes of config.json, from 1 to `MAX_SIZE`; adds a problem for each other value, which becomes 1."""
    sizes = {}
    for key in keys:
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SIZE:
            shown = "too large" if isinstance(value, int) and value > MAX_SIZE else f"{repr(value)[:100]}, no size"
            problems.append(f"config.json: {key} is {shown}" if key in config else f"config.json: no {key}")
            value = 1
        sizes[key] = value
    return sizes
