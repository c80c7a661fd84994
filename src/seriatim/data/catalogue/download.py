"""Downloads: resumed after an interruption, verified, and complete or not there at all."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import SeriatimError
from ...core.files import locked
from ..cache import cache_errors

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 3
BLOCK_SIZE = 1 << 16

Progress = Callable[[int, int | None], None]  # bytes so far, and the total if the server sends it


def download(urls: Sequence[str], path: Path, digest: str, progress: Progress | None = None) -> Path:
    """Returns the file at `path`, downloaded from the first address that gives the right one if it is not there.

    Args:
        urls: Public addresses, tried in order.
        path: Where the file is stored; beside it, what an interrupted download left.
        digest: Its SHA-256, or SHA-1 if it has 40 digits.
        progress: Called after each block.
    """
    if path.exists():
        return path
    with cache_errors(), locked(path.with_name(f"{path.name}.lock")):
        if path.exists():  # another process has made it
            return path
        partial = path.with_name(f"{path.name}.part")
        problems: list[SeriatimError] = []
        for url in urls:
            try:
                _download_verified(url, partial, digest, progress)
                os.replace(partial, path)
                return path
            except SeriatimError as error:
                problems.append(error)
        first, *others = problems
        cause = first.cause + "".join(f"\n    {problem.cause}" for problem in others)
        raise SeriatimError(first.code, cause, first.remedy, exit_code=first.exit_code)


def _download_verified(url: str, partial: Path, digest: str, progress: Progress | None) -> None:
    algorithm = "sha1" if len(digest) == 40 else "sha256"
    for resumed in (partial.exists(), False):
        _download_all(url, partial, progress)
        with partial.open("rb") as file:
            result = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
        if result == digest:
            return
        partial.unlink()
        if not resumed:  # else its beginning may have been of another file: once more
            break
    cause = f"{url} gives a file other than that of the catalogue\n    {algorithm} {result}\n    expected {digest}"
    raise SeriatimError("data.hash", cause, "put a good copy into the folder that SERIATIM_DATA names")


def _download_all(url: str, partial: Path, progress: Progress | None) -> None:
    """Connects until all bytes are there; what was received stays for the next time."""
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            if _download_some(url, partial, progress):
                return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # there are more bytes here than on the server
                partial.unlink(missing_ok=True)
                continue
            cause = f"{url}: the server answers {error.code} ({error.reason})"
            remedy = "put a copy of the data into the folder that SERIATIM_DATA names"
            raise SeriatimError("data.fetch", cause, remedy) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # not the fault of the network
            problem = error
    reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
    raise SeriatimError(
        "data.offline",
        f"{url} cannot be reached: {reason or 'the connection ended early'}",
        "try again (what was downloaded is kept), or set SERIATIM_DATA to a folder with a copy",
        exit_code=1,
    )


def _download_some(url: str, partial: Path, progress: Progress | None) -> bool:
    """Reads from one connection; returns whether all bytes that the server announced are there."""
    received = partial.stat().st_size if partial.exists() else 0
    headers = {"User-Agent": "seriatim", "Accept-Encoding": "identity"}
    if received:
        headers["Range"] = f"bytes={received}-"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as response:
        if response.status != 206:
            received = 0  # the server sends everything again
        length = response.headers.get("Content-Length")
        total = received + int(length) if length else None
        with partial.open("ab" if received else "wb") as file:
            while block := response.read(BLOCK_SIZE):
                file.write(block)
                received += len(block)
                if progress is not None:
                    progress(received, total)
    return total is None or received >= total
