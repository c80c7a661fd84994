"""Files, folders and tensors written atomically, and the cache folder. Torch is imported with the first tensor."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from .errors import SeriatimError

if TYPE_CHECKING:
    from torch import Tensor


Json = dict[str, Any]  # an object of a JSON or YAML file


def cache_folder(*parts: str) -> Path:
    """Returns a folder under `SERIATIM_CACHE`, or under the platform's user cache folder; creates it."""
    root = os.environ.get("SERIATIM_CACHE") or platformdirs.user_cache_dir("seriatim", appauthor=False)
    folder = Path(root, *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; the file written there is synced and renamed to `path` at the end."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yields a temporary folder that is synced and renamed to `path` at the end; its files need not be atomic."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        os.chmod(temporary, 0o777 & ~_umask())
        for file in temporary.rglob("*"):
            _sync(file)
        _sync(temporary)
        old = temporary.with_suffix(".old")
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        _sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    write_text(path, to_json(value))


def to_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes named tensors as a safetensors file."""
    from safetensors.torch import save_file

    with atomic_file(path) as temporary:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, temporary)


def load_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        cause = f"{path} does not exist"
        raise SeriatimError("checkpoint.missing", cause, "train the run again, or copy the whole folder") from None
    except (SafetensorError, OSError) as error:
        raise SeriatimError("checkpoint.damaged", f"{path} cannot be read: {error}", "restore the file") from None


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
