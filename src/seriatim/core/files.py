"""Files that are whole or not there at all, and the folders where Seriatim keeps what it can make again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs


def cache_folder(*parts: str) -> Path:
    """`SERIATIM_CACHE`, or the user's cache folder of the platform."""
    root = os.environ.get("SERIATIM_CACHE") or platformdirs.user_cache_dir("seriatim", appauthor=False)
    folder = Path(root, *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; what is written there is synced and takes its place at the end."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        os.chmod(aside, 0o666 & ~_umask())
        _sync(aside)
        os.replace(aside, path)
        _sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """The same for a whole folder: it appears complete under its name, or not at all. Its files need not be atomic."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield aside
        os.chmod(aside, 0o777 & ~_umask())
        for file in aside.rglob("*"):
            _sync(file)
        _sync(aside)
        old = aside.with_suffix(".old")
        if path.exists():
            os.replace(path, old)
        os.replace(aside, path)
        _sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, as_json(value))


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


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
