"""Named tensors in safetensors files, written atomically, and networks without memory on the meta device."""

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
    with atomic_file(path) as temporary:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, temporary)


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        cause = f"{path} does not exist"
        raise SeriatimError("checkpoint.missing", cause, "train the run again, or copy the whole folder") from None
    except (SafetensorError, OSError) as error:
        raise SeriatimError("checkpoint.damaged", f"{path} cannot be read: {error}", "restore the file") from None


@contextlib.contextmanager
def on_meta_device() -> Iterator[None]:
    """Networks built within the block have shapes but no memory; initialization is skipped."""
    with torch.device("meta"), _SkipInitialization():
        yield


class _SkipInitialization(TorchFunctionMode):
    """Skips `torch.nn.init`, which on the meta device would load torch's compiler (two seconds) to do nothing."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
