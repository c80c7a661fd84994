"""Fetching a file: resumable, verified, and there only when it is whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from seriatim.core.errors import SeriatimError
from seriatim.core.files import sha256

from .cache import explained, locked

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 3
BLOCK = 1 << 16

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server says so


def fetch(addresses: tuple[str, ...], path: Path, digest: str, progress: Progress | None = None) -> Path:
    """The file at `path`, fetched from the first address that gives it with the right sha256 (or SHA-1, if shorter)."""
    if path.exists():
        return path
    with explained(), locked(path.with_name(f"{path.name}.lock")):
        if path.exists():
            return path
        part = path.with_name(f"{path.name}.part")
        problems = []
        for address in addresses:
            try:
                _fetch_one(address, part, digest, progress)
                os.replace(part, path)
                return path
            except SeriatimError as error:
                problems.append(error)
        raise _worst(problems)


def _fetch_one(address: str, part: Path, digest: str, progress: Progress | None) -> None:
    resumed = part.exists()
    _complete(address, part, progress)
    kind, found = ("sha1", _sha1(part)) if len(digest) == 40 else ("sha256", sha256(part))
    if found == digest:
        return
    part.unlink()
    if resumed:  # what lay there may have been of another file: once more from the beginning
        _fetch_one(address, part, digest, progress)
        return
    raise SeriatimError(
        "data.hash",
        f"{address} gives another file than the catalogue knows\n    {kind} {found}\n    wanted {digest}",
        "put a good copy into the folder that SERIATIM_DATA names",
    )


def _sha1(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def _complete(address: str, part: Path, progress: Progress | None) -> None:
    """Reads on until the whole file is there; what was read stays for the next time."""
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            if _read_on(address, part, progress):
                return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # more is here than the server has
                part.unlink(missing_ok=True)
                continue
            raise SeriatimError(
                "data.fetch",
                f"{address}: the server answers {error.code} ({error.reason})",
                "put a copy of the data into the folder that SERIATIM_DATA names",
            ) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in (28, 122):  # the disk is full: not the network's fault
                raise
            problem = error
    reason = getattr(problem, "reason", problem) or "the connection ended early"
    raise SeriatimError(
        "data.offline",
        f"{address} cannot be reached: {reason}",
        "try again (what was fetched is kept), or set SERIATIM_DATA to a folder with a copy",
        exit_code=1,
    )


def _read_on(address: str, part: Path, progress: Progress | None) -> bool:
    """One connection. True when all bytes the server announced are there."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "seriatim", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT) as answer:
        if answer.status != 206:
            have = 0  # the server sends all of it again
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if have else "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
                have += len(block)
                if progress:
                    progress(have, total)
    return total is None or have >= total


def _worst(problems: list[SeriatimError]) -> SeriatimError:
    """One error for all addresses: that of the first, with what the others said."""
    first, *others = problems
    more = "".join(f"\n    {problem.cause}" for problem in others)
    return SeriatimError(first.code, first.cause + more, first.remedy, exit_code=first.exit_code)
