"""What the catalogue knows of a data set: what it is, where its files lie, and what must be in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Remote:
    """A public address (or several, tried in order) and what must come from it."""

    addresses: tuple[str, ...]
    sha256: str  # or the SHA-1, where that is all its publisher gives
    member: str | None = None  # the file wanted from a ZIP archive


@dataclass(frozen=True)
class File:
    path: str
    sha256: str
    remote: Remote | None = None
    member: str = ""  # the file wanted from a ZIP archive that is used as it is


@dataclass(frozen=True)
class Entry:
    name: str
    task: str
    summary: str
    licence: str
    size: int  # bytes of text, about
    files: dict[str, File] = field(default_factory=dict)  # "train", and "valid" and "test" where they are given
    make: Callable[[], str] | None = None  # instead of files: the text is made here
    numbers: bool = False  # instead of files: numbers that the task makes as it needs them
    remark: str = ""
    folder: bool = False  # the files are the classes of one folder, in which they lie together
    options: dict[str, str] = field(default_factory=dict)  # how to read it: settings that differ from the defaults

    @property
    def origin(self) -> str:
        if self.make or self.numbers:
            return "built in"
        remote = next(iter(self.files.values())).remote
        return remote.addresses[0] if remote else "a local copy"
