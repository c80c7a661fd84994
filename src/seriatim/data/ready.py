"""Examples that no table holds: the sets of the catalogue that are made or kept as arrays, and files of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seriatim.core.errors import SeriatimError

from . import arrays, generated
from .array_files import load_arrays
from .labelled import Gathered
from .picture_arrays import looks_like_pictures
from .picture_settings import PictureSettings
from .pictures import Pictures
from .sequences import Examples, Numbered, Parts, Sequences


def made_parts(
    source: str, data_dir: str | None, numeric: bool | None, pictures: PictureSettings | None = None
) -> Parts | None:
    """The parts of a set that is not read from tables; `numeric` None: whatever its targets are. With settings for
    them, images are `pictures`, else rows of pixels."""
    made = None if Path(source).expanduser().exists() else generated.parts(source)
    made = made if made is not None else arrays.parts(source, data_dir, pictures)
    if made is None or numeric is None:
        return made
    if isinstance(made.train.targets, Sequences):
        cause, task = "has an answer for each step, not one for each sequence", "tag"
    elif not numeric and isinstance(made.train.targets[0], float):  # type: ignore[index]
        cause, task = "has numbers to predict, not labels", "regress"
    elif numeric and isinstance(made.train.targets[0], str):  # type: ignore[index]
        cause, task = "has labels, not numbers to predict", "classify"
    else:
        return made
    raise SeriatimError("data.target", f"{source}: {cause}", f"use the task {task}")


def last_part(source: str, made: Parts, numeric: bool | None) -> Examples:
    """The test part, else the training part, of a set that is made of sequences."""
    if numeric is False:
        raise SeriatimError("data.kind", f"{source}: holds numbers, where texts are wanted", "give texts")
    return made.test if len(made.test) else made.train


def from_arrays(path: Path, settings: Any, targets: bool, numeric: bool) -> Gathered:
    """The target of arrays is a file of its own, or an array of the same file by its name. What can be nothing but
    pictures is taken for that."""
    if settings.kind == "text":
        raise SeriatimError("data.kind", f"{path.name}: holds numbers, where texts are wanted", "give texts")
    file = Path(settings.target).expanduser() if settings.target is not None else None
    labels = file if file is not None and file.is_file() and targets else None
    name = settings.target if labels is None and targets else None
    shown = settings.kind == "pictures" or any(map(looks_like_pictures, load_arrays(path).values()))
    notes: list[str] = []
    how = settings.pictures if shown and settings.kind != "numbers" else None
    inputs, found = arrays.read_arrays(
        path, labels, inputs=settings.column, targets=name, labels=not numeric, pictures=how, notes=notes
    )
    if targets and found is None:
        cause = f"{path.name}: holds no targets"
        remedy = "name the file of labels, or the array in this file, with --target; to evaluate, keep both in one .npz"
        raise SeriatimError("data.target", cause, remedy)
    if isinstance(found, Sequences):
        raise SeriatimError("data.target", f"{path.name}: has an answer for each step", "use the task tag")
    numbers = not isinstance(inputs, Pictures) and inputs.numeric
    features = tuple(f"x{index + 1}" for index in range(inputs.values.shape[1])) if numbers else ()
    places = Numbered(f"{path.name}, row", range(1, len(inputs) + 1))
    return Gathered(inputs, found if targets else None, places, features=features, notes=notes)
