"""Files, folders and tensors written atomically, and the cache folder. Torch is imported with the first tensor.

What is written has another name until it is complete and on the disk: `.NAME.….partial`. A process that is killed
leaves such a file behind; `remove_partial` removes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from .errors import SeriatimError
from .text import plural

if TYPE_CHECKING:
    from torch import Tensor


Json = dict[str, Any]  # an object of a JSON or YAML file
PARTIAL = ".partial"  # the end of the name of what is being written
OLD = ".old"  # the end of the name of a folder that is being replaced
DIGEST = "sha256"  # the key of a safetensors file's metadata

ELSEWHERE = "choose a folder that can be written"
WRITE_ERRORS = {  # number of the system's error → code, cause, remedy
    errno.ENOSPC: ("disk.full", "the disk is full", "free some space"),
    errno.EDQUOT: ("disk.quota", "the disk quota is used up", "remove some of your files, or ask for a larger quota"),
    errno.EROFS: ("disk.read-only", "the disk is read-only", ELSEWHERE),
    errno.EACCES: (
        "disk.permission",
        "there is no permission to write there",
        f"change the permissions, or {ELSEWHERE}",
    ),
    errno.EPERM: (
        "disk.permission",
        "there is no permission to write there",
        f"change the permissions, or {ELSEWHERE}",
    ),
    errno.ENOENT: (
        "disk.removed",
        "the folder does not exist any more",
        "it was moved or removed meanwhile: restore it",
    ),
    errno.ESTALE: (
        "disk.removed",
        "the folder does not exist any more",
        "it was moved or removed meanwhile: restore it",
    ),
    errno.EIO: ("disk.failed", "the disk reports an error", "check the disk, and its connection"),
}


# What file systems without locks, or without the syncing of folders, answer.
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class WriteError(SeriatimError, OSError):
    """A file could not be written; `errno`, `strerror` and `filename` come from the system's error."""

    def __init__(self, error: OSError, path: Path) -> None:
        code, cause, remedy = WRITE_ERRORS[error.errno or errno.EIO]
        super().__init__(code, f"{path} cannot be written: {cause}", remedy, exit_code=1)
        self.errno, self.strerror, self.filename = error.errno, error.strerror, str(path)


@contextlib.contextmanager
def write_errors(path: str | Path) -> Iterator[None]:
    """Converts the system's errors of writing `path` to `WriteError`; errors of other files are raised unchanged."""
    try:
        yield
    except OSError as error:
        folder = Path(path).absolute().parent
        named = folder if error.filename is None else Path(os.fsdecode(error.filename)).absolute()
        related = named == folder or named in folder.parents or folder in named.parents
        if error.errno not in WRITE_ERRORS or not related:
            raise
        raise WriteError(error, Path(path)) from None


def cache_folder(*parts: str) -> Path:
    """Returns a folder under `SERIATIM_CACHE`, or under the platform's user cache folder; creates it."""
    root = os.environ.get("SERIATIM_CACHE") or platformdirs.user_cache_dir("seriatim", appauthor=False)
    folder = Path(root, *parts)
    try:
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    except WriteError as error:
        error.remedy = "name another folder in the environment variable SERIATIM_CACHE"
        raise
    return folder


def path_exists(name: str | Path) -> bool:
    """Returns whether a text names a file or folder; one that is too long for a name does not."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; the file written there is synced and renamed to `path` at the end."""
    path = Path(path)
    with write_errors(path):
        _make_folder(path.parent)
        handle, name = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            os.chmod(temporary, 0o666 & ~_umask())
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
        finally:
            with contextlib.suppress(OSError):  # the error that led here is the one to report
                temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yields a temporary folder that is synced and renamed to `path` at the end; its files need not be atomic.

    An existing `path` is renamed to `path`.old for a moment; readers that survive a crash look there too.
    """
    path = Path(path)
    with write_errors(path):
        _make_folder(path.parent)
        temporary = Path(tempfile.mkdtemp(PARTIAL, f".{path.name}.", path.parent))
        try:
            yield temporary
            os.chmod(temporary, 0o777 & ~_umask())
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            old = path.with_name(path.name + OLD)
            if path.exists():
                remove_folder(old)
                os.replace(path, old)
            os.replace(temporary, path)
            sync(path.parent)
            remove_folder(old)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _make_folder(path: Path) -> None:
    """Makes a folder and its parents unless they exist, and syncs them to the disk."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder if it exists; it is whole, or has another name."""
    if path.is_dir():
        aside = Path(tempfile.mkdtemp(PARTIAL, f".{path.name}.", path.parent))
        os.replace(path, aside)
        shutil.rmtree(aside, ignore_errors=True)


def remove_partial(folder: Path) -> None:
    """Removes what a process that was killed was writing into a folder; no other process may be writing there."""
    for path in folder.glob(f".*{PARTIAL}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Holds a lock among the processes of this machine; it ends with the process, so none is ever left behind.

    Some network file systems have no locks: the work may then be done twice, each time atomically.

    Args:
        path: The file of the lock.
        timeout: Seconds to wait for another process, after which `filelock.Timeout` is raised; negative: any number.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout)
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
            raise
    try:
        yield
    finally:
        lock.release()


def write_text(path: str | Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    write_text(path, to_json(value))


def to_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def json_line(record: Json) -> bytes:
    """Returns a line of a file of JSON lines; lone surrogates become "?"."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def append_json(path: Path, record: Json, durable: bool = False) -> None:
    """Adds a line to a file of JSON lines, and to the disk if it must be `durable`."""
    with write_errors(path):
        with open(path, "ab") as file:
            file.write(json_line(record))
        if durable:
            sync(path)


def read_json_lines(path: Path) -> tuple[list[Json], str]:
    """Returns the objects of a file of JSON lines, and a note on lines that are damaged, "" if there are none.

    A line ends with "\\n" and nothing else. The rest after the last one is no line: a process was killed writing it.
    """
    records: list[Json] = []
    damaged: list[int] = []
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            damaged.append(number)
    if not damaged:
        return records, ""
    count = plural(len(damaged), "damaged line is", "damaged lines are")
    return records, f"{path}, line {damaged[0]}: {count} ignored"


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes named tensors as a safetensors file, with their digest in its metadata."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    stored = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with atomic_file(path) as temporary:
        try:
            save_file(stored, temporary, {DIGEST: digest_of(stored)})
        except SafetensorError as error:  # names the system's error by its number
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None


def load_tensors(path: Path, finite: bool = False) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file, compared with their digest if it has one.

    Args:
        path: The file.
        finite: Whether to refuse numbers that are not finite, which no weights are.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            digest = (file.metadata() or {}).get(DIGEST)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        cause = f"{path} does not exist"
        raise SeriatimError("checkpoint.missing", cause, "train the run again, or copy the whole folder") from None
    except (SafetensorError, OSError) as error:
        raise SeriatimError("checkpoint.damaged", f"{path} cannot be read: {error}", "restore the file") from None
    if digest is not None and digest != digest_of(tensors):
        raise SeriatimError("checkpoint.damaged", f"{path} is damaged: its checksum differs", "restore the file")
    if finite:
        check_finite(tensors, path)
    return tensors


def digest_of(tensors: dict[str, Tensor]) -> str:
    """Returns the SHA-256 of the names, types, shapes and values of tensors on the CPU."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises SeriatimError if a weight is not a finite number, naming the file it comes from."""
    for name, tensor in tensors.items():
        # The sum is quick, and finite if all are; if it is not, it may also have overflowed.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            cause = f"{path}: {count:,} of {tensor.numel():,} weights of {name} are not finite"
            raise SeriatimError("weights.not-finite", cause, "restore the file, or use other weights")


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk, as far as the file system can do that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
