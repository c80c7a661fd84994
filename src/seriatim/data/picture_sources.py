"""Labelled pictures from files: a folder for each class, or a table with a column of paths.

What is gathered here are paths; only when all parts are known are the files looked at, together, because they take one
form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError

from .columns import PARTS
from .labelled import UNLABELLED, Gathered
from .notes import Notes
from .picture_files import Form, is_picture
from .picture_settings import PictureSettings
from .picture_store import store
from .pictures import Pictures
from .sources import kind_of

SHOWN = 10  # of what is missing


class PictureFiles(list[Path]):
    """Pictures that are still in their files."""


def holds_pictures(path: Path) -> bool:
    """Whether a folder is one of pictures: there are more of them than of other files, and no table says which."""
    if not path.is_dir():
        return False
    files = visible(path)
    pictures = sum(map(is_picture, files))
    return 2 * pictures > len(files) and all(is_picture(file) or kind_of(file.name) == "text" for file in files)


def from_files(path: Path, kind: str, targets: bool, numeric: bool) -> Gathered | None:
    """The pictures of a folder, or the only one of a file where no targets are asked for; None for any other source."""
    if kind == "pictures" and not targets and path.is_file() and is_picture(path):
        return Gathered(PictureFiles([path]), None, [path.name])
    if kind not in ("auto", "pictures") or not holds_pictures(path):
        return None
    if targets and numeric:
        cause = f"{path.name}/: folders of pictures have labels, not numbers"
        raise SeriatimError("data.column", cause, "give a table with their paths and numbers")
    return _from_folder(path, targets)


def _from_folder(path: Path, targets: bool) -> Gathered:
    """A folder for each class, perhaps within folders for the parts; without targets, all pictures there are."""
    files = [file for file in visible(path) if is_picture(file)]
    named = [(file, file.relative_to(path).parts) for file in files]
    places = [str(Path(path.name, *parts)) for _, parts in named]
    if not targets:
        return Gathered(PictureFiles(files), None, places)
    while all(len(parts) > 2 for _, parts in named) and len({parts[0] for _, parts in named}) == 1:
        named = [(file, parts[1:]) for file, parts in named]  # a folder around all others says nothing
    said = [PARTS.get(parts[0].lower(), "") if len(parts) > 1 else "" for _, parts in named]
    notes = []
    if any(said):
        named = [(file, parts[1:] if part else ()) for (file, parts), part in zip(named, said, strict=True)]
        notes.append("parts by folders: " + ", ".join(sorted({part for part in said if part})))
    kept = [row for row, (_, parts) in enumerate(named) if len(parts) > 1 and parts[0].lower() not in UNLABELLED]
    if not kept:
        raise SeriatimError(
            "data.column",
            f"{path}: its pictures have no labels",
            "put them into a folder for each class, or give a table with their paths and labels",
        )
    notes.append("a folder for each class, a file for each picture")
    if len(kept) < len(named):
        left = [places[row] for row in range(len(named)) if row not in set(kept)]
        notes.append(f"left out {len(left):,} pictures without a class: {', '.join(left[:3])}")
    labels = [named[row][1][0] for row in kept]
    parts = [said[row] for row in kept] if any(said) else None
    return Gathered(PictureFiles(files[row] for row in kept), labels, [places[row] for row in kept], parts, notes=notes)


def from_table(gathered: Gathered, path: Path, kind: str, settings: PictureSettings) -> Gathered:
    """The paths of a column as files, from the folder of the table on; those that are not there are told by line.
    What holds no paths, and nobody called pictures, stays as it is."""
    values: Any = gathered.inputs
    guessed = kind == "auto" and gathered.columns is not None and isinstance(values, list) and _all_paths(values)
    if not guessed and (kind != "pictures" or not isinstance(values, list)):
        return gathered
    if path.suffix.lower() == ".zip" or any(one.suffix.lower() == ".zip" for one in path.parents):
        raise SeriatimError("data.kind", f"{path}: pictures are not read from archives", "unpack it first")
    base = path if path.is_dir() else path.parent
    files = PictureFiles(base / Path(str(value).strip()).expanduser() for value in values)
    missing = [row for row, file in enumerate(files) if not file.is_file()]
    if missing and (settings.broken == "refuse" or len(missing) == len(files)):
        lines = [f"{gathered.places[row]}: there is no file {values[row]!r}" for row in missing[:SHOWN]]
        more = [f"… and {len(missing) - SHOWN:,} more"] if len(missing) > SHOWN else []
        raise SeriatimError(
            "picture.missing",
            f"{len(missing):,} of {len(files):,} pictures are not there:\n    " + "\n    ".join([*lines, *more]),
            f"paths count from {base.absolute()}; to leave these out: --set data.pictures.broken=skip",
        )
    return replace(gathered, inputs=files, features=())


def _all_paths(values: list[Any]) -> bool:
    """Whether all cells of a column are names of pictures."""
    there = [value for value in values if not (isinstance(value, str) and not value.strip())]
    return bool(there) and all(isinstance(value, str) and is_picture(value.strip()) for value in there)


def shown(
    gathered: Gathered, source: str, settings: PictureSettings, notes: Notes, form: Form | None = None
) -> Gathered:
    """With pictures instead of their files; a model that knows pictures of a `form` takes nothing else."""
    if isinstance(gathered.inputs, PictureFiles):
        return prepared([gathered], settings, notes, form)[0]
    if form is not None and not isinstance(gathered.inputs, Pictures):
        cause = f"{source}: holds no pictures, and the model knows nothing else"
        raise SeriatimError("data.kind", cause, "give files of pictures, a folder or a table of them")
    return gathered


def prepared(
    some: Sequence[Gathered], settings: PictureSettings, notes: Notes, form: Form | None = None
) -> list[Gathered]:
    """The pictures of all files in one form, in the order they came in; what cannot be read is left out or refused."""
    listed: list[Any] = [one.inputs for one in some]
    files: list[Path] = [file for paths in listed for file in paths]
    unique = {file: place for place, file in enumerate(dict.fromkeys(files))}
    pictures, kept, told = store(list(unique), settings, notes.notify, form)
    notes.extend(told)
    good = set(kept)
    found = []
    for one, paths in zip(some, listed, strict=True):
        places = [unique[file] for file in paths]
        rows = [row for row, place in enumerate(places) if place in good]
        left = Pictures(pictures.values, np.array([places[row] for row in rows], dtype=np.int64), pictures.margin)
        found.append(_taken(one, rows, left))
    return found


def _taken(gathered: Gathered, rows: list[int], pictures: Pictures) -> Gathered:
    whole = len(rows) == len(gathered.inputs)
    return replace(
        gathered,
        inputs=pictures,
        targets=gathered.targets if whole or gathered.targets is None else [gathered.targets[row] for row in rows],
        places=gathered.places if whole else [gathered.places[row] for row in rows],
        parts=gathered.parts if whole or gathered.parts is None else [gathered.parts[row] for row in rows],
    )


def visible(path: Path) -> list[Path]:
    """All files below a folder but hidden ones, in the order of their names. A link that leads nowhere is one, too:
    whoever opens it tells its name."""
    found = [file for file in path.rglob("*") if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    return sorted(
        (file for file in found if file.is_file() or not file.exists()),
        key=lambda file: file.relative_to(path).as_posix(),
    )
