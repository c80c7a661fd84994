"""A model folder of `transformers` on disk: config.json and tensors, checked before anything is used.

Weights are read from model.safetensors, whole or in shards. The older pytorch_model.bin is a pickle, which can run
code: it is read by torch's restricted reader, which knows tensors and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..core.errors import SeriatimError

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OLD_NAMES = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}


@dataclass(frozen=True)
class Folder:
    path: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> Folder:
        path = Path(path)
        if not path.is_dir():
            raise SeriatimError("hub.missing", f"there is no folder {path}", "name a folder with a config.json")
        if not (path / CONFIG).is_file():
            cause = f"{path} is not a model: it holds no {CONFIG}"
            raise SeriatimError(
                "hub.not-a-model", cause, "name a folder as `save_pretrained` of transformers writes it"
            )
        return cls(path, read_object(path / CONFIG))

    @property
    def kind(self) -> str:
        return str(self.config.get("model_type") or "")

    @property
    def architecture(self) -> str:
        named = self.config.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""

    def tensors(self) -> dict[str, Tensor]:
        """All weights by their own names, in single precision."""
        for name in WEIGHTS:
            for file in (self.path / name, self.path / f"{name}.index.json"):
                if file.is_file():
                    found = _sharded(file) if file.suffix == ".json" else _tensors(file)
                    return {_modern(name): _single(tensor) for name, tensor in found.items()}
        cause = f"{self.path} holds no weights: neither {' nor '.join(WEIGHTS)}"
        raise SeriatimError("hub.not-a-model", cause, "copy the weights into the folder")


def read_object(file: Path) -> dict[str, Any]:
    """What a file of JSON holds, if that is an object."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SeriatimError("hub.damaged", f"{file} is not JSON: {error}", "restore the file") from None
    if not isinstance(values, dict):
        raise SeriatimError("hub.damaged", f"{file} holds no object", "restore the file")
    return values


def _sharded(index: Path) -> dict[str, Tensor]:
    placed = read_object(index).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise SeriatimError("hub.damaged", f"{index} has no weight_map", "restore the file")
    names = sorted({str(name) for name in placed.values()})
    strange = [name for name in names if Path(name).name != name]  # a shard lies beside its index, and nowhere else
    if missing := [name for name in names if name in strange or not (index.parent / name).is_file()]:
        cause = f"{index.parent}: missing shards: {', '.join(missing)}"
        raise SeriatimError("hub.shards", cause, "copy all shards into the folder")
    return {name: tensor for shard in names for name, tensor in _tensors(index.parent / shard).items()}


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found = _restricted(file)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError, LookupError) as error:
        first = str(error).strip().partition("\n")[0]
        raise SeriatimError("hub.damaged", f"{file} cannot be read: {first}", "copy the file once more") from None
    if not isinstance(found, dict) or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in found.items()):
        raise SeriatimError("hub.pickle", f"{file} holds something else than named tensors", "use model.safetensors")
    return found


def _restricted(file: Path) -> Any:
    """What a pickle holds, if that is tensors and plain containers; nothing else in it is run."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=_zipped(file))
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        cause = f"{file} holds more than tensors: it may run code, and was not opened"
        raise SeriatimError("hub.pickle", cause, "ask for the model as model.safetensors") from None


def _zipped(file: Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(2) == b"PK"


def _modern(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = re.sub(old, new, name)
    return name


def _single(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
