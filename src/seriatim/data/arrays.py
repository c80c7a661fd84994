"""Sequences of numbers from arrays, and what belongs to each.

(N,T) are N sequences of T numbers, (N,T,F) of T vectors of F numbers; a cell of a `.mat` file may hold sequences of
unequal length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError, did_you_mean
from seriatim.core.files import sha256

from . import cache, catalogue
from .array_files import Array, is_arrays, load_arrays
from .picture_arrays import looks_like_pictures, pictures_of
from .picture_settings import PictureSettings
from .pictures import Pictures
from .sequences import Examples, Numbered, Parts, Sequences

__all__ = ["holds_images", "is_arrays", "parts", "permuted", "read_arrays"]

IMAGES = ("mnist", "pmnist")  # of the catalogue
INPUTS = ("inputs", "input", "x", "X", "data")
TARGETS = ("targets", "target", "y", "Y", "labels", "label")
PERMUTATION = 1  # the seed of permuted MNIST
IDX_NAME = re.compile(r"(train|valid|t10k|test)[-_.](images|labels)[-_.]idx[13][-_.]ubyte(\.gz)?")

Targets = list[Any] | Sequences


def read_arrays(
    path: str | Path,
    target_path: str | Path | None = None,
    *,
    inputs: str | None = None,
    targets: str | None = None,
    symbols: bool = False,
    labels: bool | None = None,
    pictures: PictureSettings | None = None,
    notes: list[str] | None = None,
) -> tuple[Sequences | Pictures, Targets | None]:
    """The sequences of a file, and what belongs to each, from the same file or from `target_path`; with settings for
    them, its pictures, with `notes` about them.

    `inputs` and `targets` name the arrays where a file holds several. Numbers stay numbers unless `symbols` is set.
    Targets that are whole numbers are labels where the file keeps them as such; `labels` decides it for any file.
    """
    path = Path(path)
    found = load_arrays(path, pictures is not None)
    chosen = _pick(path.name, found, inputs, INPUTS, TARGETS)
    where = _titled(path.name, chosen)
    sequences: Sequences | Pictures
    if pictures is not None:
        sequences, told = pictures_of(where, found.pop(chosen), pictures)
        [] if notes is None else notes.extend(told)
    else:
        sequences = _sequences(where, found.pop(chosen), symbols)
    if target_path is not None:
        path = Path(target_path)
        found = load_arrays(path)
    elif targets is None and not set(TARGETS) & set(found):
        return sequences, None
    chosen = _pick(path.name, found, targets, TARGETS, ())
    return sequences, _targets(_titled(path.name, chosen), found[chosen], where, sequences, labels)


def parts(source: str | Path, data_dir: str | None = None, pictures: PictureSettings | None = None) -> Parts | None:
    """The parts of `mnist` or `pmnist`, or of a folder with such files; None for any other source. Images are rows of
    pixels, or `pictures` where there are settings for them."""
    path = Path(source).expanduser()
    if path.is_dir():
        files = _idx_files(path)
        notes = [f"{path.name}/: images in IDX files"]
        return _image_parts(files, notes, pictures) if ("train", "images") in files else None
    if path.exists() or str(source) not in IMAGES:
        return None
    if pictures is not None and source == "pmnist":
        cause = "pmnist: pixels in another order are no pictures"
        raise SeriatimError("data.kind", cause, "take mnist, or a model of sequences")
    located = catalogue.get("mnist", data_dir)
    made = _image_parts(_idx_files(located.train.parent), [f"{source}: {located.source}"], pictures)
    return made if source == "mnist" else _permuted(made)


def holds_images(source: str) -> bool:
    """Whether a source holds arrays of images, which may be read as pictures or as rows of pixels."""
    path = Path(source).expanduser()
    if path.is_dir():
        return ("train", "images") in _idx_files(path)
    return is_arrays(path) or (source in IMAGES and not path.exists())


def permuted(sequences: Sequences, seed: int = PERMUTATION) -> Sequences:
    """All sequences with their steps in one other order, drawn from the seed."""
    lengths = set(sequences.lengths.tolist())
    if len(lengths) > 1:
        raise SeriatimError("data.permuted", "sequences of unequal length cannot share an order", "pad them first")
    length = lengths.pop() if lengths else 1
    order = np.argsort(np.random.PCG64(seed).random_raw(length), kind="stable")
    block = sequences.values.reshape(-1, length, *sequences.values.shape[1:])
    return Sequences.equal(np.take(block, order, axis=1))


def _sequences(where: str, array: Array, symbols: bool) -> Sequences:
    pieces = _cells(where, array) if isinstance(array, list) else [array]
    for piece in pieces:
        if piece.dtype.kind not in "biuf":
            raise SeriatimError("data.arrays", f"{where}: holds {piece.dtype}, not numbers", "give an array of numbers")
    if looks_like_pictures(array):
        cause = f"{where}: holds pictures, where sequences are wanted"
        raise SeriatimError("data.arrays", cause, "use the task classify or regress, with data.kind=pictures")
    if isinstance(array, np.ndarray):
        if array.ndim not in (2, 3):
            cause = f"{where}: has the shape {array.shape}, where (N,T) or (N,T,F) is wanted"
            raise SeriatimError("data.arrays", cause, "give one row for each sequence")
        if array.ndim == 2:
            array = array[..., None]
        sequences = Sequences.equal(_floats(array))
    else:
        sequences = Sequences.of(map(_floats, pieces), width=pieces[0].shape[1])
    if not len(sequences.values):
        raise SeriatimError("data.empty", f"{where}: holds no numbers", "give at least one sequence")
    _check_finite(where, sequences)
    return _symbols(where, pieces, sequences) if symbols else sequences


def _cells(where: str, cells: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays of a cell as (T,F); where all are vectors, lying or standing, F is 1."""
    if not cells:
        raise SeriatimError("data.empty", f"{where}: an empty cell", "give at least one sequence")
    if all(cell.ndim == 2 and (min(cell.shape) == 1 or not cell.size) for cell in cells):
        return [cell.reshape(-1, 1) for cell in cells]
    width = cells[0].shape[-1]
    for number, cell in enumerate(cells, 1):
        if cell.ndim != 2 or (cell.size and cell.shape[1] != width):
            cause = f"{where}, cell {number}: has the shape {cell.shape}, where (T,{width}) is wanted as in the first"
            raise SeriatimError("data.arrays", cause, "give cells of one width")
    return [cell.reshape(-1, width) for cell in cells]


def _floats(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # a number too large becomes infinity, and is told below with its place
        return np.ascontiguousarray(array, dtype=np.float32)


def _check_finite(where: str, sequences: Sequences) -> None:
    good = np.isfinite(sequences.values)
    if good.all():
        return
    step, feature = (int(place) for place in np.argwhere(~good)[0])
    row = int(np.searchsorted(sequences.ends, step, side="right"))
    place = f"sequence {row + 1}, step {step - int(sequences.starts[row]) + 1}, number {feature + 1}"
    cause = f"{where}, {place}: not a number, or too large ({int((~good).sum()):,} in all)"
    raise SeriatimError("data.nan", cause, "fill or remove what is missing")


def _symbols(where: str, pieces: list[np.ndarray], sequences: Sequences) -> Sequences:
    numbers = np.concatenate([piece.reshape(-1) for piece in pieces])
    if sequences.values.shape[1] != 1 or (numbers != np.floor(numbers)).any() or numbers.min() < 0:
        cause = f"{where}: symbols are whole numbers from 0, one for each step"
        raise SeriatimError("data.symbols", cause, "read them as numbers instead")
    return Sequences(numbers.astype(np.int64), sequences.ends)


def _targets(where: str, array: Array, of: str, sequences: Sequences | Pictures, labels: bool | None) -> Targets:
    """A label or a value for each sequence, or several, or one for each step, by the array's kind and shape."""
    count = len(sequences)
    if isinstance(array, list):
        made = _symbols(where, array, _sequences(where, array, False))
        if isinstance(sequences, Pictures) or not np.array_equal(made.ends, sequences.ends):
            raise _unequal(where, f"{len(made):,} sequences of targets", of, sequences)
        return made
    if array.shape == (1, count) or array.shape == (count, 1):  # MATLAB has no vectors, only matrices
        array = array.reshape(count)
    if array.ndim not in (1, 2) or len(array) != count:
        raise _unequal(where, f"targets of the shape {array.shape}", of, sequences)
    if array.dtype.kind in "US":
        return [str(label) for label in array.astype(str).reshape(count, -1)[:, 0]]
    if array.dtype.kind not in "biuf":
        raise SeriatimError("data.arrays", f"{where}: holds {array.dtype}, not numbers", "give labels or numbers")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        cause = f"{where}, row {int(wrong[0][0]) + 1}: not a number ({len(wrong):,} in all)"
        raise SeriatimError("data.nan", cause, "fill or remove what is missing, and the sequences it belongs to")
    if not (array.dtype.kind in "biu" if labels is None else labels):
        values = array.astype(np.float64).tolist()
        return values if array.ndim == 1 else [tuple(row) for row in values]
    whole = array.astype(np.int64)
    if (whole != array).any():
        row = int(np.argwhere(whole != array)[0][0])
        raise SeriatimError("data.label", f"{where}, row {row + 1}: {array[row]} is no label", "give whole numbers")
    if array.ndim == 1:
        return [str(label) for label in whole.tolist()]
    if isinstance(sequences, Sequences) and (sequences.lengths == array.shape[1]).all():
        return Sequences.equal(whole)
    if whole.min() >= 0 and whole.max() <= 1:  # a column for each label
        return [tuple(str(column) for column in np.flatnonzero(row)) for row in whole]
    return [tuple(map(float, row)) for row in whole.tolist()]


def _unequal(where: str, what: str, of: str, sequences: Sequences | Pictures) -> SeriatimError:
    kind = "picture" if isinstance(sequences, Pictures) else "sequence"
    cause = f"{where}: {what}, where {of} has {len(sequences):,} {kind}s"
    return SeriatimError("data.arrays", cause, f"give a target for each {kind}")


def _pick(
    file: str, found: Mapping[str, Array], named: str | None, usual: tuple[str, ...], others: tuple[str, ...]
) -> str:
    """The array that is named, or the only one, or the only one with a usual name."""
    if named is not None and "" not in found:
        if named not in found:
            raise SeriatimError("data.arrays", f'{file}: has no array "{named}"', did_you_mean(named, found))
        return named
    left = [name for name in found if name not in others]
    if len(left) == 1:
        return left[0]
    likely = [name for name in found if name in usual]
    if len(likely) == 1:
        return likely[0]
    names = ", ".join(found)
    raise SeriatimError("data.arrays", f"{file}: which of its arrays is meant: {names}?", f'name one "{usual[0]}"')


def _titled(file: str, name: str) -> str:
    return f"{file}/{name}" if name else file


def _idx_files(folder: Path) -> dict[tuple[str, str], Path]:
    """The IDX files of a folder by part and kind; an unpacked file goes before a packed one."""
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        match = IDX_NAME.fullmatch(path.name)
        if match:
            part = {"t10k": "test"}.get(match[1], match[1])
            files.setdefault((part, match[2]), path)
    return files


def _image_parts(files: dict[tuple[str, str], Path], notes: list[str], pictures: PictureSettings | None) -> Parts:
    """Without a part to validate on, the last twelfth of the training part is it: 5,000 of MNIST's 60,000."""
    made: dict[str, Any] = {}
    told: list[str] = []
    for (part, kind), path in files.items():
        if kind == "images":
            if (part, "labels") not in files:
                raise SeriatimError("data.missing", f"{path}: there are no labels beside it", "add the file of labels")
            labels = files[part, "labels"]
            inputs, targets = read_arrays(path, labels, labels=True, pictures=pictures, notes=told)
            made[part] = Examples(inputs, targets, Numbered(f"{path.name}, image", range(1, len(inputs) + 1)))
    if "valid" not in made:
        whole = made["train"]
        cut = len(whole) - len(whole) // 12
        made["train"], made["valid"] = _slice(whole, 0, cut), _slice(whole, cut, len(whole))
        notes = [*notes, f"validation on the last {len(whole) - cut:,} of the {len(whole):,} training images"]
    fingerprint = cache.key(*(sha256(path) for _, path in sorted(files.items())))
    notes = [*notes, *dict.fromkeys(told)]  # all parts are of one form
    return Parts(**made, notes=notes, fingerprint=fingerprint, features=("pixel",) if pictures is None else ())


def _slice(examples: Examples, start: int, end: int) -> Examples:
    """Examples that follow one another, without a copy of sequences of one length."""
    inputs, targets = examples.inputs, examples.targets
    assert isinstance(targets, list)
    if isinstance(inputs, Pictures):
        return Examples(inputs.take(range(start, end)), targets[start:end], examples.places[start:end])
    assert isinstance(inputs, Sequences)
    offset = int(inputs.starts[start]) if start < len(inputs) else len(inputs.values)
    ends = inputs.ends[start:end] - offset
    rows = Sequences(inputs.values[offset : offset + (int(ends[-1]) if len(ends) else 0)], ends)
    return Examples(rows, targets[start:end], examples.places[start:end])


def _permuted(made: Parts) -> Parts:
    changed: dict[str, Any] = {}
    for part in ("train", "valid", "test"):
        examples = made.part(part)
        assert isinstance(examples.inputs, Sequences)
        changed[part] = replace(examples, inputs=permuted(examples.inputs))
    notes = [*made.notes, f"the pixels of all images in one other order (seed {PERMUTATION})"]
    return replace(made, **changed, notes=notes, fingerprint=cache.key(made.fingerprint, "permuted", PERMUTATION))
