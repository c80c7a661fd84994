"""The catalogue: data sets by name, found in a local copy, in the cache, or fetched and verified."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from seriatim.core.errors import SeriatimError, did_you_mean
from seriatim.core.files import atomic_file, sha256

from . import cache
from .entries import LIST
from .entry import Entry, File, Remote
from .fetch import Progress, fetch

__all__ = ["ENTRIES", "Entry", "File", "Located", "Remote", "entry", "get"]


@dataclass(frozen=True)
class Located:
    """Where a data set lies now."""

    train: Path
    valid: Path | None
    test: Path | None
    source: str  # for the user: where it came from
    others: dict[str, Path] = field(default_factory=dict)  # files beside these, such as labels


ENTRIES = {entry.name: entry for entry in LIST}


def entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise SeriatimError("data.unknown", f'there is no data set "{name}"', did_you_mean(name, ENTRIES))
    return ENTRIES[name]


def get(name: str, data_dir: str | None = None, progress: Progress | None = None) -> Located:
    """The files of a data set: from a local copy, else from the cache, else fetched."""
    wanted = entry(name)
    if wanted.numbers:
        what = {"translate": "pairs", "caption": "pictures"}.get(wanted.task, "numbers")
        cause = f"{name} is no file: its {what} are made for the task {wanted.task} as it needs them"
        raise SeriatimError("data.built-in", cause, f"seriatim train {wanted.task} --data {name}")
    if wanted.make:
        return Located(_made(name, wanted.make), None, None, "built in")
    for root in _roots(data_dir):
        paths = {part: root / file.path for part, file in wanted.files.items()}
        if all(path.is_file() for path in paths.values()):
            for part, path in paths.items():
                _verify(path, wanted.files[part])
            return _located(wanted, paths, f"local copy in {root}")
    paths = {part: _fetched(name, file, progress) for part, file in wanted.files.items()}
    return _located(wanted, paths, f"fetched from {wanted.origin}")


def _roots(data_dir: str | None) -> list[Path]:
    """The folders with local copies; one that is named and not there is a slip of the pen."""
    named = {"--data-dir": data_dir, "SERIATIM_DATA": os.environ.get("SERIATIM_DATA")}
    roots = {where: Path(root).expanduser() for where, root in named.items() if root}
    for where, root in roots.items():
        if not root.is_dir():
            raise SeriatimError("data.missing", f"there is no folder {root}", f"check the path given in {where}")
    return list(roots.values())


def _located(wanted: Entry, paths: dict[str, Path], source: str) -> Located:
    if wanted.folder:
        return Located(next(iter(paths.values())).parent, None, None, source)
    paths = {part: path / wanted.files[part].member for part, path in paths.items()}
    others = {part: path for part, path in paths.items() if part not in ("train", "valid", "test")}
    return Located(paths["train"], paths.get("valid"), paths.get("test"), source, others)


def _verify(path: Path, file: File) -> None:
    """A local copy is as the catalogue describes it, or as it is at the public address."""
    found = sha256(path)
    public = file.remote.sha256 if file.remote and not file.remote.member else None
    if found not in (file.sha256, public):
        raise SeriatimError(
            "data.hash",
            f"{path} is another file than the catalogue knows\n    sha256 {found}\n    wanted {file.sha256}",
            "replace the file, or give its path instead of the name",
        )


def _fetched(name: str, file: File, progress: Progress | None) -> Path:
    if file.remote is None:
        raise SeriatimError(
            "data.local-only",
            f"{name} has no public address, and {file.path} is not in a local copy",
            "set SERIATIM_DATA to a folder that has it",
        )
    home = cache.folder("catalogue", name)
    whole = fetch(file.remote.addresses, home / Path(file.remote.addresses[0]).name, file.remote.sha256, progress)
    return _member(whole, file.remote.member) if file.remote.member else whole


def _member(archive: Path, member: str) -> Path:
    path = archive.parent / Path(member).name
    if not path.exists():
        with zipfile.ZipFile(archive) as opened, opened.open(member) as source, atomic_file(path) as aside:
            _copy(source, aside)
    return path


def _copy(source: IO[bytes], path: Path) -> None:
    with open(path, "wb") as file:
        shutil.copyfileobj(source, file)


def _made(name: str, make: Callable[[], str]) -> Path:
    """Named by its content, so that a text that changes with Python's version has a name for each."""
    text = make()
    path = cache.folder("catalogue", name) / f"{name}-{cache.key(text)[:12]}.txt"
    if not path.exists():
        with cache.explained(), atomic_file(path) as aside:
            aside.write_text(text, encoding="utf-8", newline="\n")
    return path
