"""Work that is done once: several processes that want the same folder at the same time make it only once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..core.errors import SeriatimError
from ..core.files import atomic_folder, cache_folder


def key(*parts: Any) -> str:
    """A name for what follows from `parts` alone."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def folder(*parts: str) -> Path:
    """A folder in the cache; a cache that cannot be written is the user's to mend."""
    with explained():
        return cache_folder(*parts)


def once(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`, made by `make` if it is not there. It appears complete or not at all."""
    if target.is_dir():
        return target
    with explained(), locked(target.with_name(f"{target.name}.lock")):
        # Another process may have made it while this one waited for the lock.
        if not target.is_dir():
            with atomic_folder(target) as aside:
                make(aside)
    return target


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock among the processes of this machine; it goes with the process, so none is ever left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        _lock(file.fileno())
        yield


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns a full or forbidden disk into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise SeriatimError(
            "data.cache",
            f"the cache cannot be written: {error.strerror} ({error.filename or 'while writing'})",
            "make room, or name another folder in the environment variable SERIATIM_CACHE",
        ) from None


def _lock(descriptor: int) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # Some network file systems have no locks. The work may then be done twice, each time atomically.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
