"""Lines of a file or of stdin, as they come, so that the longest file needs little memory."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

from ..core.errors import SeriatimError

T = TypeVar("T")


def open_lines(path: Path) -> tuple[IO[bytes], str, int | None]:
    """The open file (stdin for -), what it is called, and its bytes where that is known."""
    if str(path) == "-":
        return sys.stdin.buffer, "stdin", None
    if not path.is_file():
        raise SeriatimError("file.missing", f"there is no file {path}", "check the path")
    return open(path, "rb"), str(path), path.stat().st_size


def decoded(stream: IO[bytes], name: str) -> Iterator[str]:
    """The lines of a stream without their ends, empty ones too; only \\n and \\r\\n end a line."""
    for number, data in enumerate(stream, 1):
        try:
            text = data.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode("utf-8")
        except UnicodeDecodeError:
            raise SeriatimError("file.encoding", f"{name}, line {number}: not UTF-8", "convert the file") from None
        yield text.removesuffix("\n").removesuffix("\r")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    waiting = iter(items)
    while some := list(islice(waiting, size)):
        yield some
