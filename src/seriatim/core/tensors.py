"""Named tensors on disk: safetensors, whole or not there at all. And tensors without contents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

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


@contextlib.contextmanager
def without_contents() -> Iterator[None]:
    """Networks that are made within have shapes and no weights: neither memory nor time is spent on them."""
    with torch.device("meta"), _Untouched():
        yield


class _Untouched(TorchFunctionMode):
    """Initialising what has no contents does nothing, but loads torch's compiler for it: two seconds."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
