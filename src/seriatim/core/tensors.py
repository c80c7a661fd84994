"""Named tensors on disk: safetensors, whole or not there at all."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .errors import SeriatimError
from .files import atomic_file


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    with atomic_file(path) as aside:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, aside)


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise SeriatimError(
            "checkpoint.missing", f"{path} is not there", "train the run again, or copy it whole"
        ) from None
    except (SafetensorError, OSError) as error:
        raise SeriatimError("checkpoint.damaged", f"{path} cannot be read: {error}", "restore the file") from None
