"""Many files of pictures as one array in the cache: decoded once, then mapped, never loaded whole.

All pictures take one form, chosen by what their headers say. They are kept in pieces of some hundred pictures, each
named after the files it is made of and the form: preparing that was interrupted goes on where it stopped, and a file
that changes costs one piece. Beside each piece stands what could not be read, and why.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError
from seriatim.core.files import atomic_file, write_json

from . import cache
from .picture_files import Form, Header, decode, quiet, read_header
from .picture_settings import PictureSettings
from .pictures import Pictures, marked

VERSION = 1  # of what is kept
PIECE = 1 << 27  # bytes of one
OPEN = 500  # pieces mapped at a time: each holds a file open
SHOWN = 10  # files named in an error
EVERY = 5.0  # seconds between words about progress
SMALL = 64  # pixels of a side up to which pictures that are all alike stay as they are
SIDES = ((32, 32), (128, 64), (1 << 30, 224))  # shorter sides up to the first are shown with the second

Notify = Callable[[str], None]
Read = tuple[np.ndarray | str, bytes]


@dataclass(frozen=True)
class Pieces:
    """Arrays of some pictures each, one behind the other, read like one array (N,H,W,C)."""

    files: tuple[Path, ...]
    starts: tuple[int, ...]  # of each piece, and the end of the last
    shape: tuple[int, int, int, int]
    marks: list[bytes]  # of each picture

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> np.ndarray:
        piece = int(np.searchsorted(self.starts, row, side="right")) - 1
        found: np.ndarray = _mapped(self.files[piece])[row - self.starts[piece]]
        return found


def store(
    paths: Sequence[Path], settings: PictureSettings, notify: Notify | None = None, form: Form | None = None
) -> tuple[Pictures, list[int], list[str]]:
    """The pictures of some files in one form, that of the settings where none is given; the places of those that
    could be read, and what is worth telling. `notify` hears of progress."""
    paths = [Path(path).absolute() for path in paths]
    marks = [_mark(path) for path in paths]
    headers = _headers(paths, marks, settings, notify)
    notes: list[str] = []
    trains = form is None
    if form is None:
        form, notes = choose_form([one for one in headers if isinstance(one, Header)], settings)
    pieces, broken = _prepared(paths, marks, settings, form, notify)
    if broken and (settings.broken == "refuse" or len(broken) == len(paths)):
        raise _refused(broken, len(paths), trains)
    if broken:
        notes.append(f"left out {len(broken):,} of {len(paths):,} pictures: " + _listed(list(broken.values())))
    animated = [row for row, one in enumerate(headers) if isinstance(one, Header) and one.animated]
    if animated:
        first = paths[animated[0]].name
        notes.append(f"{len(animated):,} pictures have several frames; the first of them is taken ({first})")
    kept = [row for row in range(len(paths)) if row not in broken]
    return Pictures(pieces, np.array(kept, dtype=np.int64), form.margin), kept, notes


def choose_form(headers: Sequence[Header], settings: PictureSettings) -> tuple[Form, list[str]]:
    """The size, the colours and the margin of a source, and a sentence about each choice that was not the user's."""
    if not headers:
        return Form(1, 1, 1), []
    sizes = {(one.height, one.width) for one in headers}
    height, width = sizes.pop() if len(sizes) == 1 else (0, 0)
    own = settings.side is None and 0 < max(height, width) <= SMALL
    if not own:
        shorter = float(np.median([min(one.height, one.width) for one in headers]))
        usual = next(side for most, side in SIDES if shorter <= most)
        height = width = usual if settings.side is None else settings.side
    grey = settings.colours == "grey" or (settings.colours == "auto" and all(one.grey for one in headers))
    margin = max(height, width) // (8 if max(height, width) <= SMALL else 14)
    form = Form(height, width, 1 if grey else 3, settings.fit, margin if settings.crops is None else settings.crops)
    colours = "grey" if grey else "in colour"
    how = "their own size" if own else {
        "crop": "the middle of each", "pad": "edges repeated around what is not square", "stretch": "stretched"
    }[settings.fit]  # fmt: skip
    notes = [f"pictures: {width} × {height} pixels, {colours} ({how}; data.pictures.side, .fit and .colours)"]
    if form.margin:
        notes.append(f"training moves pictures by up to {form.margin} pixels (data.pictures.crops)")
    return form, notes


# ── looking at all files ──────────────────────────────────────────────────────────────────────────────────────────


def _mark(path: Path) -> list[Any]:
    """What makes a file another: its name, its size and the time it was written."""
    try:
        found = os.stat(path)
    except OSError:
        return [str(path), -1, 0]
    return [str(path), found.st_size, found.st_mtime_ns]


def _headers(
    paths: Sequence[Path], marks: list[list[Any]], settings: PictureSettings, notify: Notify | None
) -> list[Header | None]:
    """What each file says about itself; None: nothing that can be read. Looked at once and kept."""
    file = cache.folder("pictures") / f"{cache.key(VERSION, 'headers', settings.megapixels, marks)}.json"
    if not file.exists():
        look = partial(_header, settings=settings)
        found = list(_together(look, paths, notify, f"looking at {len(paths):,} pictures"))
        with cache.explained():
            write_json(file, [None if one is None else list(asdict(one).values()) for one in found])
        return found
    return [None if one is None else Header(*one) for one in json.loads(file.read_text(encoding="utf-8"))]


def _header(path: Path, settings: PictureSettings) -> Header | None:
    try:
        return read_header(path, settings)
    except SeriatimError:
        return None


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _prepared(
    paths: Sequence[Path], marks: list[list[Any]], settings: PictureSettings, form: Form, notify: Notify | None
) -> tuple[Pieces, dict[int, str]]:
    """The pieces of all pictures, made where they are not there, and what could not be read by its place."""
    many = max(PIECE // math.prod(form.stored), 1)
    spans = [range(start, min(start + many, len(paths))) for start in range(0, len(paths), many)]
    names = [cache.key(VERSION, asdict(form), settings.megapixels, marks[span.start : span.stop]) for span in spans]
    folder = cache.folder("pictures")
    files = tuple(folder / f"{name}.npy" for name in names)
    if not all(file.exists() for file in files):
        with cache.explained(), cache.locked(folder / f"{cache.key(names)}.lock"):
            _make(dict(zip(files, spans, strict=True)), paths, settings, form, notify)
    broken: dict[int, str] = {}
    known: list[bytes] = []
    for span, file in zip(spans, files, strict=True):
        told = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        broken |= {span.start + int(row): cause for row, cause in told["broken"].items()}
        known += [bytes.fromhex(mark) for mark in told["marks"]]
    starts = tuple(accumulate((len(span) for span in spans), initial=0))
    return Pieces(files, starts, (len(paths), *form.stored), known), broken


def _make(
    pieces: dict[Path, range], paths: Sequence[Path], settings: PictureSettings, form: Form, notify: Notify | None
) -> None:
    """The pieces that are not there yet; another process may have made them meanwhile."""
    missing = {file: span for file, span in pieces.items() if not file.exists()}
    chosen = [paths[row] for span in missing.values() for row in span]
    _check_room(cache.folder("pictures"), len(chosen) * math.prod(form.stored))
    read = partial(_decoded, settings=settings, form=form)
    with contextlib.closing(_together(read, chosen, notify, f"preparing {len(chosen):,} pictures")) as made:
        for file, span in missing.items():
            _write_piece(file, len(span), form, made)


def _decoded(path: Path, settings: PictureSettings, form: Form) -> Read:
    """The picture, or why there is none, and a mark of its pixels."""
    try:
        picture = decode(path, settings, form)
    except SeriatimError as error:
        return error.cause, b""
    return picture, marked(picture)


def _write_piece(file: Path, count: int, form: Form, made: Iterator[Read]) -> None:
    broken: dict[str, str] = {}
    marks: list[str] = []
    with atomic_file(file) as aside:
        block = np.lib.format.open_memmap(aside, "w+", np.uint8, (count, *form.stored))
        for row in range(count):
            picture, mark = next(made)
            marks.append(mark.hex())
            if isinstance(picture, str):
                broken[str(row)] = picture
            else:
                block[row] = picture
        block.flush()
        write_json(
            file.with_suffix(".json"), {"broken": broken, "marks": marks}
        )  # first: where the piece is, this is, too


def _check_room(folder: Path, needed: int) -> None:
    if needed > (free := shutil.disk_usage(folder).free):
        raise SeriatimError(
            "data.cache",
            f"the prepared pictures take {needed / 1e9:.1f} GB, {folder} has {free / 1e9:.1f} GB left",
            "choose a smaller data.pictures.side, or another folder in the environment variable SERIATIM_CACHE",
        )


def _together(work: Callable[[Path], Any], paths: Sequence[Path], notify: Notify | None, title: str) -> Generator[Any]:
    """The work on all paths in their order, by several threads that run only a little ahead, with words about it."""
    if not paths:
        return
    threads = min(os.cpu_count() or 1, 16)
    shown = time.monotonic()
    with quiet(), ThreadPoolExecutor(threads) as pool:
        ahead = [pool.submit(work, path) for path in paths[: 4 * threads]]
        try:
            for done in range(len(paths)):
                if done + len(ahead) < len(paths):
                    ahead.append(pool.submit(work, paths[done + len(ahead)]))
                yield ahead.pop(0).result()
                if notify is not None and time.monotonic() - shown > EVERY:
                    shown = time.monotonic()
                    notify(f"{title}: {100 * (done + 1) / len(paths):.0f} %")
        finally:
            for one in ahead:
                one.cancel()


@lru_cache(maxsize=OPEN)
def _mapped(file: Path) -> np.ndarray:
    found: np.ndarray = np.load(file, mmap_mode="r")
    return found


# ── what could not be read ────────────────────────────────────────────────────────────────────────────────────────


def _refused(broken: dict[int, str], total: int, trains: bool) -> SeriatimError:
    many = f"{len(broken):,} of {total:,} pictures" if total > 1 else "a picture"
    skip = ", or leave them out: --set data.pictures.broken=skip" if trains and len(broken) < total else ""
    cause = f"{many} cannot be read:\n    " + _listed(list(broken.values()), "\n    ")
    return SeriatimError("picture.broken", cause, f"mend or remove these files{skip}")


def _listed(causes: list[str], between: str = "; ") -> str:
    more = f"{between}… and {len(causes) - SHOWN:,} more" if len(causes) > SHOWN else ""
    return between.join(causes[:SHOWN]) + more
