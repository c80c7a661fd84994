"""The catalogue: data sets by name, read from a local copy, from the cache, or downloaded and verified.

`catalogue.toml` describes them. Sets that are generated from a seed are in `generated`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path

from ...core.errors import SeriatimError, did_you_mean
from ...core.files import atomic_file, cache_folder, sha256, write_text
from ..cache import cache_errors
from .download import Progress, download
from .generated import SETS, generate

__all__ = [
    "Entry",
    "File",
    "Located",
    "LocatedFile",
    "data_folder",
    "entries",
    "find_entry",
    "local_folders",
    "locate",
    "remembered_folder",
]

UNREACHABLE = ("data.local-only", "data.fetch", "data.offline")  # errors of a set that is neither here nor downloaded


@dataclass(frozen=True)
class File:
    """A file of a data set; the fields are those of catalogue.toml."""

    path: str
    sha256: str
    split: str = "train"
    member: str = ""
    urls: tuple[str, ...] = ()
    url_sha256: str = ""
    url_member: str = ""


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue."""

    name: str
    task: str
    summary: str
    license: str
    size: int  # bytes, about
    files: tuple[File, ...]
    note: str = ""
    encoding: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # role → columns
    options: Mapping[str, object] = field(default_factory=dict)  # of the format
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # split → first row, last row + 1

    @property
    def origin(self) -> str:
        """Where it can be downloaded, or "a local copy"."""
        return self.files[0].urls[0] if self.files[0].urls else "a local copy"


@dataclass(frozen=True)
class LocatedFile:
    path: Path
    member: str = ""  # the file to read from a zip archive


@dataclass(frozen=True)
class Located:
    """The files of a data set on this machine."""

    files: Mapping[str, tuple[LocatedFile, ...]]  # split → its files
    origin: str  # where they come from, for messages


@cache
def entries() -> dict[str, Entry]:
    """Returns the data sets of the catalogue by name."""
    text = (package_files(__package__) / "catalogue.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    result = {}
    for name, values in tables.items():
        files = tables[values.pop("files_of", name)]["files"]
        parsed = tuple(File(**{**file, "urls": tuple(file.get("urls", ()))}) for file in files)
        rows = {split: (first, end) for split, (first, end) in values.pop("rows", {}).items()}
        result[name] = Entry(name, **{**values, "files": parsed}, rows=rows)
    return result


def find_entry(name: str) -> Entry | None:
    """Returns the entry of a name, compared without case and punctuation; None if there is none."""
    by_name = {re.sub(r"[\W_]", "", known).lower(): entry for known, entry in entries().items()}
    return entries().get(name) or by_name.get(re.sub(r"[\W_]", "", name).lower())


def locate(name: str, data_dir: str | None = None, progress: Progress | None = None) -> Located:
    """Returns the files of a data set, verified: from a local copy, else from the cache, else downloaded.

    Args:
        name: Of the data set.
        data_dir: A folder with local copies, tried before the one that SERIATIM_DATA names.
        progress: Called with the bytes downloaded so far, and the total.
    """
    entry = find_entry(name)
    if entry is None:
        return _locate_synthetic(name)
    for root in local_folders(data_dir):
        paths = [root / file.path for file in entry.files]
        if all(path.is_file() for path in paths):
            for path, file in zip(paths, entry.files, strict=True):
                _verify(path, file)
            return _located(entry, paths, f"local copy in {root}")
    paths = [_fetch(entry.name, file, progress) for file in entry.files]
    return _located(entry, paths, f"downloaded from {entry.origin}")


def data_folder(sources: Iterable[object], data_dir: str | None = None) -> str | None:
    """Returns the absolute path of the folder with local copies, if any of the sources is a name, not a path."""
    names = [source for source in sources if isinstance(source, str) and not Path(source).expanduser().exists()]
    folder = data_dir or os.environ.get("SERIATIM_DATA")
    if not names or not folder or not Path(folder).expanduser().is_dir():
        return None
    return str(Path(folder).expanduser().resolve())


@contextlib.contextmanager
def remembered_folder(stored: str | None, data_dir: str | None = None) -> Iterator[str | None]:
    """Yields the folder to read data sets from; the errors of sets that are not found say where they were.

    Args:
        stored: Where a run has read its data.
        data_dir: Where the user says it is now.
    """
    lost = data_dir is None and stored is not None and not Path(stored).is_dir()
    try:
        yield stored if data_dir is None and not lost else data_dir
    except SeriatimError as error:
        if lost and error.code in UNREACHABLE:
            error.cause += f"; the run read it from {stored}, which does not exist any more"
            error.remedy = "name the folder where it is now: --data-dir, data_dir=, or SERIATIM_DATA"
        raise


def _locate_synthetic(name: str) -> Located:
    """Returns the file of a synthetic text, written to the cache; other synthetic sets have no files."""
    synthetic = SETS.get(name.partition(":")[0])
    if synthetic is None:
        hint = did_you_mean(name, [*entries(), *SETS])
        raise SeriatimError("data.unknown", f'there is no data set "{name}"', hint)
    text = generate(name) if synthetic.task == "language" else None
    if not isinstance(text, str):
        cause = f"{name} has no files: it is generated when it is named"
        raise SeriatimError("data.built-in", cause, f"seriatim train {synthetic.task} --data {name}")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]  # the text may depend on the version of Python
    with cache_errors():
        path = cache_folder("catalogue", name) / f"{name}-{digest}.txt"
        if not path.exists():
            write_text(path, text)
    return Located({"train": (LocatedFile(path),)}, "generated")


def local_folders(data_dir: str | None) -> list[Path]:
    """Returns the folders with local copies, the user's first; raises an error if one of them does not exist."""
    candidates = {"--data-dir": data_dir, "SERIATIM_DATA": os.environ.get("SERIATIM_DATA")}
    folders = {option: Path(folder).expanduser() for option, folder in candidates.items() if folder}
    for option, folder in folders.items():
        if not folder.is_dir():
            raise SeriatimError("data.missing", f"there is no folder {folder}", f"check the path in {option}")
    return list(folders.values())


def _located(entry: Entry, paths: list[Path], origin: str) -> Located:
    by_split: dict[str, tuple[LocatedFile, ...]] = {}
    for path, file in zip(paths, entry.files, strict=True):
        by_split[file.split] = (*by_split.get(file.split, ()), LocatedFile(path, file.member))
    for split in entry.rows:
        by_split.setdefault(split, by_split["train"])
    return Located(by_split, origin)


def _verify(path: Path, file: File) -> None:
    """Raises an error unless a local copy is the file of the catalogue, or the one at its public address."""
    digest = sha256(path)
    if digest not in (file.sha256, "" if file.url_member else file.url_sha256):
        cause = f"{path} is not the file of the catalogue\n    sha256   {digest}\n    expected {file.sha256}"
        raise SeriatimError("data.hash", cause, "replace the file, or pass its path instead of the name")


def _fetch(name: str, file: File, progress: Progress | None) -> Path:
    """Returns a file in the cache, downloaded if it is not there."""
    if not file.urls:
        cause = f"{name} has no public address, and {file.path} is not in a local copy"
        raise SeriatimError("data.local-only", cause, "set SERIATIM_DATA to a folder that has it")
    with cache_errors():
        folder = cache_folder("catalogue", name)
    path = download(file.urls, folder / Path(file.urls[0]).name, file.url_sha256 or file.sha256, progress)
    if not file.url_member:
        return path
    member = folder / Path(file.url_member).name
    if not member.exists():
        with cache_errors(), zipfile.ZipFile(path) as archive, atomic_file(member) as temporary:
            temporary.write_bytes(archive.read(file.url_member))
    return member
