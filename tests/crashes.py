"""Records what a process does to files, and rebuilds them as a crash at any moment leaves them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Tree = dict[str, bytes | None]  # path → content, None for a folder
WRITING = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link")


@dataclass
class Disk:
    """A folder whose changes are recorded: `states` are all that a crash may leave of it.

    Before every operation on files there are three of them: a process that is killed leaves everything that it has
    written; a power cut leaves what was synced under the names that were synced; and since names may reach the disk
    before contents, a power cut may also leave all names with what was synced of their files.
    """

    root: Path
    states: list[Tree] = field(default_factory=list)
    operations: int = 0

    def __post_init__(self) -> None:
        self.synced: dict[int, bytes] = {}  # inode → content
        self.names: dict[int, dict[str, int]] = {}  # inode of a folder → name → inode
        self.folders: set[int] = set()
        self.descriptors: dict[int, int] = {}  # inode → descriptor, so that no number is used again
        self._seen: set[tuple[Any, ...]] = set()
        self._walk(initial=True)

    def record(self) -> None:
        """Adds the states of this moment."""
        self.operations += 1
        live = self._walk()
        killed: Tree = {path: self._content(path) for path in live}
        torn: Tree = {
            path: None if inode in self.folders else self.synced.get(inode, b"") for path, inode in live.items()
        }
        for tree in (killed, dict(self._durable(self.root.stat().st_ino, "")), torn):
            tree = {path: content for path, content in tree.items() if not path.endswith(".lock")}
            names = {path: re.sub(r"\.\w{8}\.partial", ".partial", path) for path in tree}
            key = tuple(sorted((names[path], content or b"") for path, content in tree.items()))
            if key not in self._seen:
                self._seen.add(key)
                self.states.append(tree)

    def sync(self, descriptor: int) -> None:
        """Notes that a file or folder is on the disk now."""
        inode = os.fstat(descriptor).st_ino
        live = self._walk()
        path = next((path for path, other in live.items() if other == inode), None)
        if inode in self.names:
            folder = self.root if path is None else self.root / path
            self.names[inode] = {entry.name: entry.inode() for entry in os.scandir(folder)}
        elif path is not None:
            self.synced[inode] = (self.root / path).read_bytes()

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)

    def _walk(self, initial: bool = False) -> dict[str, int]:
        live = {}
        for path in [self.root, *sorted(self.root.rglob("*"))]:
            inode = path.stat().st_ino
            if inode not in self.descriptors:
                self.descriptors[inode] = os.open(path, os.O_RDONLY)
                if path.is_dir():
                    self.folders.add(inode)
                    entries = {entry.name: entry.inode() for entry in os.scandir(path)} if initial else {}
                    self.names[inode] = entries
                elif initial:
                    self.synced[inode] = path.read_bytes()
            if path != self.root:
                live[path.relative_to(self.root).as_posix()] = inode
        return live

    def _content(self, path: str) -> bytes | None:
        file = self.root / path
        return None if file.is_dir() else file.read_bytes()

    def _durable(self, folder: int, prefix: str) -> Iterator[tuple[str, bytes | None]]:
        for name, inode in self.names.get(folder, {}).items():
            if inode in self.folders:
                yield prefix + name, None
                yield from self._durable(inode, f"{prefix}{name}/")
            else:
                yield prefix + name, self.synced.get(inode, b"")


_active: list[Disk] = []
_busy = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: it is called before every operation on files, and cannot be removed again."""
    global _busy
    if not _active or _busy:
        return
    flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else 0
    if event in WRITING or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _busy = True
        try:
            _active[-1].record()
        finally:
            _busy = False


@contextlib.contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Yields a disk that records all that this process does to files below a folder."""
    global _busy
    if not hasattr(sys, "_seriatim_crashes"):
        sys._seriatim_crashes = True  # type: ignore[attr-defined]
        sys.addaudithook(_hook)
    disk, fsync = Disk(root), os.fsync

    def recording_fsync(descriptor: int) -> None:
        global _busy
        _busy = True
        try:
            disk.record()
            fsync(descriptor)
            disk.sync(descriptor)
        finally:
            _busy = False

    monkeypatch.setattr(os, "fsync", recording_fsync)
    _active.append(disk)
    try:
        yield disk
    finally:
        _active.pop()
        monkeypatch.setattr(os, "fsync", fsync)
        _busy = True
        disk.record()
        disk.close()
        _busy = False


def write_tree(root: Path, tree: Tree) -> None:
    """Writes a state into an empty folder."""
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
