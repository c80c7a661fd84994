"""Where the pictures are that a file of captions names: beside it, in a folder that is usual there, or as said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from seriatim.core.errors import SeriatimError

from ._caption_rows import Rows

LOOKED_FOR = 20  # pictures, to tell in which folder they are
SHOWN = 10  # names in an error
USUAL = (
    "", "images", "Images", "pictures", "photos", "Flicker8k_Dataset", "Flickr8k_Dataset",
    "Flickr8k_Dataset/Flicker8k_Dataset", "flickr30k_images", "flickr30k-images",
)  # fmt: skip


def placed(rows: Rows, folder: str | None, skip: bool) -> tuple[Rows, list[str]]:
    """The rows with the full paths of their pictures, and a note; those that are not there are refused by name and
    line, or left out."""
    distinct = list(dict.fromkeys(rows.pictures))
    root = _root(distinct, rows, folder)
    paths = {name: os.path.normpath(os.path.join(root, name)) for name in distinct}
    missing = {name for name in distinct if not name or not os.path.isfile(paths[name])}
    notes = [] if root == rows.home or not distinct else [f"pictures from {root}"]
    if missing and (not skip or len(missing) == len(distinct)):
        raise _refused(rows, missing, len(distinct), root)
    kept = [row for row, name in enumerate(rows.pictures) if name not in missing]
    if missing:
        first = next(row for row, name in enumerate(rows.pictures) if name in missing)
        many = "1 picture that is" if len(missing) == 1 else f"{len(missing):,} pictures that are"
        notes.append(f"left out {many} not there (the first: {rows.pictures[first]}; {rows.places[first]})")
        rows = rows.take(kept)
    rows.places = [f"{name} ({place})" for name, place in zip(rows.pictures, rows.places, strict=True)]
    rows.pictures = [paths[name] for name in rows.pictures]
    return rows, notes


def _root(names: list[str], rows: Rows, folder: str | None) -> Path:
    """The folder in which most of the first pictures are; of several alike, the nearest to the file."""
    bases = [rows.home, rows.home.parent] if folder is None else [_folder(folder, rows.home)]
    some = names[:LOOKED_FOR]
    best, most = bases[0], 0
    for root in _candidates(bases, rows.hints):
        there = sum(os.path.isfile(os.path.join(root, name)) for name in some)
        if there > most:
            best, most = root, there
    return best


def _candidates(bases: list[Path], hints: tuple[str, ...]) -> Iterator[Path]:
    for base in bases:
        for hint in ("", *hints):
            for usual in USUAL:
                if (root := base / usual / hint).is_dir():
                    yield root


def _folder(named: str, home: Path) -> Path:
    for found in (Path(named).expanduser(), home / named):
        if found.is_dir():
            return found
    raise SeriatimError("data.missing", f"there is no folder {named}", "check the path given in data.folder")


def _refused(rows: Rows, missing: set[str], total: int, root: Path) -> SeriatimError:
    listed: dict[str, str] = {}
    for name, place in zip(rows.pictures, rows.places, strict=True):
        if name in missing and name not in listed:
            listed[name] = f"{place}: {name or 'names no picture'}"
        if len(listed) == SHOWN:
            break
    more = f"\n    … and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
    remote = any(name.startswith(("http://", "https://")) for name in missing)
    remedy = "fetch the pictures and name their files" if remote else "check the names"
    return SeriatimError(
        "picture.missing",
        f"{len(missing):,} of {total:,} pictures are not in {root}:\n    " + "\n    ".join(listed.values()) + more,
        f"{remedy}; name their folder with --set data.folder=…, or leave them out: --set data.pictures.broken=skip",
    )
