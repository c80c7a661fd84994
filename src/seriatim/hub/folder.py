"""A model folder of `transformers`: local or fetched from the hub, with its config.json and tensors.

Weights are read from model.safetensors, whole or in shards. The older pytorch_model.bin is a pickle, which can run
code: torch's restricted reader loads tensors only.
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
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
FETCHED = [
    "config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    "vocab.json", "merges.txt", "special_tokens_map.json", "preprocessor_config.json",
]  # fmt: skip


def locate_model(source: str) -> Path:
    """Returns an existing folder, or that of a model of this name on the hub, fetched if it is not in the cache."""
    path = Path(source).expanduser()
    if path.exists() or not HUB_NAME.fullmatch(source):
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=FETCHED))
    except Exception as error:  # the package raises whatever its network layer raises
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        cause = f'there is no folder "{source}", and no model of that name could be fetched: {reason}'
        raise SeriatimError("hub.fetch", cause, "name a run or the folder of a model, or check the network") from None


@dataclass(frozen=True)
class HubFolder:
    path: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> HubFolder:
        path = Path(path)
        if not path.is_dir():
            raise SeriatimError("hub.missing", f"there is no folder {path}", "name a folder with a config.json")
        if not (path / CONFIG).is_file():
            cause = f"{path} is not a model: it has no {CONFIG}"
            remedy = "name a folder that `save_pretrained` of transformers wrote"
            raise SeriatimError("hub.not-a-model", cause, remedy)
        return cls(path, read_json_object(path / CONFIG))

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type") or "")

    @property
    def architecture(self) -> str:
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    def tensors(self) -> dict[str, Tensor]:
        """Returns all weights by their own names, in single precision."""
        for name in WEIGHTS:
            for file in (self.path / name, self.path / f"{name}.index.json"):
                if file.is_file():
                    tensors = _read_shards(file) if file.suffix == ".json" else _read_tensors(file)
                    return {
                        _modern_name(name): tensor.float() if tensor.is_floating_point() else tensor
                        for name, tensor in tensors.items()
                    }
        cause = f"{self.path} has no weights: neither {' nor '.join(WEIGHTS)}"
        raise SeriatimError("hub.not-a-model", cause, "copy the weights into the folder")


def read_json_object(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SeriatimError("hub.damaged", f"{file} is not JSON: {error}", "restore the file") from None
    if not isinstance(values, dict):
        raise SeriatimError("hub.damaged", f"{file} is not a JSON object", "restore the file")
    return values


def _read_shards(index: Path) -> dict[str, Tensor]:
    files = read_json_object(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise SeriatimError("hub.damaged", f"{index} has no weight_map", "restore the file")
    names = sorted({str(name) for name in files.values()})
    outside = [name for name in names if Path(name).name != name]  # a shard must be beside its index
    if missing := [name for name in names if name in outside or not (index.parent / name).is_file()]:
        cause = f"{index.parent}: missing shards: {', '.join(missing)}"
        raise SeriatimError("hub.shards", cause, "copy all shards into the folder")
    return {name: tensor for shard in names for name, tensor in _read_tensors(index.parent / shard).items()}


def _read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        tensors = _read_pickle(file)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError, LookupError) as error:
        first = str(error).strip().partition("\n")[0]
        raise SeriatimError("hub.damaged", f"{file} cannot be read: {first}", "copy the file again") from None
    named = isinstance(tensors, dict) and all(isinstance(n, str) and isinstance(t, Tensor) for n, t in tensors.items())
    if not named:
        raise SeriatimError("hub.pickle", f"{file} contains other objects than named tensors", "use model.safetensors")
    return tensors


def _read_pickle(file: Path) -> Any:
    """Returns the contents of a pickle of tensors and plain containers; no other code in it is run."""
    with open(file, "rb") as opened:
        zipped = opened.read(2) == b"PK"
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        cause = f"{file} contains more than tensors: it may run code, and was not opened"
        raise SeriatimError("hub.pickle", cause, "ask for the model as model.safetensors") from None


def _modern_name(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = re.sub(old, new, name)
    return name
