"""The cache: folders of what can be made again, made once among several processes, and removed when old or too many.

<cache>/tables/<key>      tables of large files (data.disk)
<cache>/tokens/<key>      token shards (data.shards)
<cache>/images/<key>      decoded images
<cache>/catalogue/<name>  downloaded data sets
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import SeriatimError
from ..core.files import atomic_folder, cache_folder, locked

DAY = 86_400.0  # seconds
NOT_DATA = ("kernels",)  # folders of the cache that belong to others
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def cache_errors() -> Iterator[None]:
    """Turns the errors of a full disk or a folder that cannot be written into one with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        cause = f"the cache cannot be written: {error.strerror} ({error.filename or 'while writing'})"
        remedy = "free some space, or name another folder in the environment variable SERIATIM_CACHE"
        raise SeriatimError("data.cache", cause, remedy) from None


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Returns a folder, made by `make(temporary folder)` if it is not there; it appears complete or not at all."""
    if not folder.is_dir():
        with cache_errors(), locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():  # another process may have made it meanwhile
                with atomic_folder(folder) as temporary:
                    make(temporary)
    return folder


# What the cache holds, and how it is removed


@dataclass(frozen=True)
class CacheEntry:
    """A folder of the cache that can be removed by itself."""

    path: Path
    name: str  # with the folder above it, such as "tables/0f3c…"
    size: int  # bytes
    used: float  # when a file of it was last read or written, in seconds since 1970

    @property
    def age(self) -> float:
        """Days since it was last used."""
        return (time.time() - self.used) / DAY


def cache_entries() -> list[CacheEntry]:
    """Returns the entries of the cache, those not used for the longest time first."""
    kinds = [folder for folder in cache_folder().iterdir() if folder.is_dir() and folder.name not in NOT_DATA]
    folders = [folder for kind in kinds for folder in kind.iterdir()]
    result = []
    for folder in folders:
        files = [file for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else [folder]
        states = [file.stat() for file in files]
        used = max((max(state.st_atime, state.st_mtime) for state in states), default=folder.stat().st_mtime)
        result.append(
            CacheEntry(folder, f"{folder.parent.name}/{folder.name}", sum(state.st_size for state in states), used)
        )
    return sorted(result, key=lambda entry: entry.used)


def remove_entries(max_bytes: int | None = None, max_age: float | None = None) -> list[CacheEntry]:
    """Removes entries, those not used for the longest time first, and returns them.

    Args:
        max_bytes: Largest total size in bytes; None for any.
        max_age: Days an entry is kept after its last use; None for any number.
    """
    remaining = cache_entries()
    total, removed = sum(entry.size for entry in remaining), []
    for entry in remaining:
        if (max_age is not None and entry.age > max_age) or (max_bytes is not None and total > max_bytes):
            with contextlib.suppress(OSError):  # in use, or removed by another process
                shutil.rmtree(entry.path) if entry.path.is_dir() else os.unlink(entry.path)
            if not entry.path.exists():
                removed.append(entry)
                total -= entry.size
    return removed
