"""Rows of images with captions: columns, several captions in a row, the folder of the images, splits by image.

Regions are boxes of what the nouns of a caption name. With them the pointing game (Zhang et al., "Top-down neural
attention by excitation backprop", 2016) shows whether a model attends to what it names: while it writes a noun, its
attention is spread over the cells of a grid on the image. The noun is a hit if the center of the cell with the largest
weight lies in the box.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import MAX_LISTED, listed, plural
from ...data.dataset import Column, Dataset
from ...data.formats.coco import find_image_folder
from ...data.images import IMAGE
from ...data.kinds import TEXT
from ...data.source import Source
from ...data.split import Grouped
from ..codecs import normalize_text
from .spec import Region

MissingFiles = Literal["error", "skip", "keep"]


def expand_captions(rows: Dataset, normalized: bool, drop_empty: bool, diagnostics: Diagnostics) -> Dataset:
    """Returns the data set with a row for each caption.

    Args:
        rows: With one or more captions in a row.
        normalized: Whether to bring captions to Unicode NFC with single spaces.
        drop_empty: Whether to leave out empty captions, with a note; images without captions have one.
        diagnostics: Receives the note.
    """
    columns = rows.columns["caption"]
    numbers, texts, empty = [], [], []
    for row in range(len(rows)):
        cells = [column.values[row] for column in columns]
        captions = [text for cell in cells for text in ((cell,) if isinstance(cell, str) else cell)]
        filled = [normalize_text(text) if normalized else text for text in captions if text.strip()]
        if not filled:
            empty.append(row)
            if drop_empty:
                continue
        for text in filled or [""]:
            numbers.append(row)
            texts.append(text)
    if empty and drop_empty:
        many = plural(len(empty), "row without a caption is", "rows without a caption are")
        diagnostics.note(f"{many} left out (the first: {rows.locations[empty[0]]})")
    taken = rows.take(np.array(numbers, dtype=np.int64))
    name = ",".join(column.name for column in columns)  # as overrides are written, to read further files alike
    column = Column(name, TEXT, TEXT.store(texts))
    return replace(taken, columns={**taken.columns, "caption": (column,)})


def locate_images(
    rows: Dataset,
    source: Source,
    folder: str | None,
    missing_files: MissingFiles,
    diagnostics: Diagnostics,
) -> Dataset:
    """Returns the data set with the paths of existing image files.

    Names are looked for beside the table, in the folders that are usual there, or in `folder`.

    Args:
        rows: With images as paths, bytes or arrays; only paths are changed.
        source: Where the rows come from.
        folder: The folder of the images, if it is not that of the table.
        missing_files: Whether missing files are an error here, are left out with a note, or stay as they are.
        diagnostics: Receives notes.
    """
    values = rows["image"]
    paths = [value for value in values if isinstance(value, Path)]
    if not paths:
        return rows
    home = source.folder
    if folder is None and all(path.is_file() for path in dict.fromkeys(paths)):
        return rows
    names = {path: os.path.relpath(path, home) if path.is_relative_to(home) else str(path) for path in paths}
    bases = [home, home.parent] if folder is None else [_existing_folder(folder, home)]
    root = find_image_folder(list(dict.fromkeys(names.values())), bases)
    located = {path: Path(os.path.normpath(os.path.join(root, name))) for path, name in names.items()}
    located = {path: file if file.is_file() or not path.is_file() else path for path, file in located.items()}
    missing = {path for path in names if not located[path].is_file()}
    if missing and (missing_files == "error" or (missing_files == "skip" and len(missing) == len(names))):
        lines: dict[Path, str] = {}
        for row, value in enumerate(values):
            if value in missing and len(lines) < MAX_LISTED:
                lines.setdefault(value, f"{rows.locations[row]}: {names[value]}")
        shown = listed(list(lines.values()), separator="\n    ", total=len(missing))
        remote = any(name.startswith(("http:/", "https:/")) for name in names.values())
        raise SeriatimError(
            "image.missing",
            f"{len(missing):,} of {len(names):,} images are not in {root}:\n    {shown}",
            f"{'download the images and name their files' if remote else 'check the names'}; name their folder: "
            "task.image_folder=…, or leave them out: task.images.broken=skip",
        )
    if root != home:
        diagnostics.note(f"images from {root}")
    changed = values.copy()
    for row, value in enumerate(values):
        if isinstance(value, Path) and value not in missing:
            changed[row] = located[value]
    rows = replace(rows, columns={**rows.columns, "image": (replace(rows.columns["image"][0], values=changed),)})
    if not missing or missing_files == "keep":
        return rows
    first = next(row for row, value in enumerate(values) if isinstance(value, Path) and value in missing)
    diagnostics.note(
        f"{len(missing):,} images are missing and left out (the first: {names[values[first]]}; {rows.locations[first]})"
    )
    kept = [row for row, value in enumerate(values) if not isinstance(value, Path) or value not in missing]
    return rows.take(np.array(kept, dtype=np.int64))


def _existing_folder(name: str, home: Path) -> Path:
    for folder in (Path(name).expanduser(), home / name):
        if folder.is_dir():
            return folder
    raise SeriatimError("data.missing", f"there is no folder {name}", "check task.image_folder")


def group_images(dataset: Dataset) -> np.ndarray:
    """Returns a group number per row (rows,): all captions of an image are in one split."""
    return dataset.group_ids(["image"])


def hashed_images(dataset: Dataset, rows: np.ndarray) -> Iterator[tuple[bytes, str]]:
    """Returns what the images of some rows are hashed by: their file names, whatever the folder."""
    values, kind = dataset["image"], dataset.kind("image")
    for row in rows.tolist():
        value = values[row]
        name = value.name if isinstance(value, Path) else str(kind.key(value))
        yield name.encode("utf-8", "surrogateescape"), str(value) if isinstance(value, Path) else ""


BY_IMAGE = Grouped(
    group_images,
    "images",
    "of the images, chosen by a hash of their names",
    hashed_images,
    validation_first=True,
)


def held_out_rows(datasets: Mapping[str, Dataset], diagnostics: Diagnostics) -> dict[str, np.ndarray]:
    """Returns the rows of each split without training images that are in another split, and validation images in the
    test split, if there are any; notes how many images these are."""
    keys = {
        name: np.array([IMAGE.key(value) for value in rows["image"]], dtype=object) for name, rows in datasets.items()
    }
    kept: dict[str, np.ndarray] = {}
    for name, later in (("validation", ("test",)), ("train", ("validation", "test"))):
        held_out = {key for other in later if other in keys for key in keys[other]}
        if name not in keys or not held_out & set(keys[name]):
            continue
        lost = len(held_out & set(keys[name]))
        kept[name] = np.flatnonzero([key not in held_out for key in keys[name]])
        if not len(kept[name]):
            cause = f"all {lost:,} images of the {name} split are held out, too"
            raise SeriatimError("data.split", cause, "name other images for validation and test")
        keys[name] = keys[name][kept[name]]
        diagnostics.note(f"{lost:,} images of the {name} split are left out: they are held out for evaluation, too")
    return kept


# The pointing game


@dataclass(frozen=True)
class PointedNoun:
    noun: str
    hit: float  # 1 if the largest weight lies in the box; a share if several are equal
    mass: float  # fraction of the weights in the box
    chance: float  # fraction of the cells whose center lies in the box


def point(
    weights: np.ndarray,
    groups: Sequence[Sequence[int]],
    grid: tuple[int, int],
    size: tuple[int, int],
    regions: Sequence[Region],
) -> list[PointedNoun]:
    """Returns the result for each noun of a caption.

    A noun attends with the mean of the weights of all its tokens. The peak is the center of the cell with the largest
    mean; of equal ones each counts its share, so that uniform weights reach what chance does. A center on the left or
    upper edge of a box lies in it, one on the right or lower edge does not. For the mass, the weight of a cell is
    spread evenly over it.

    Args:
        weights: (T,S) of each token over the cells.
        groups: The tokens of each word.
        grid: Rows and columns of the cells.
        size: Height and width of the image.
        regions: The nouns with their boxes.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != grid[0] * grid[1]:
        raise ValueError(f"weights {weights.shape} do not fit a grid of {grid[0]} × {grid[1]} cells")
    results = []
    for position, noun, (left, top, right, bottom) in regions:
        words = groups[position : position + max(len(noun.split()), 1)]
        row = weights[[token for group in words for token in group]].mean(axis=0)
        inside = np.outer(_centers(grid[0], size[0], top, bottom), _centers(grid[1], size[1], left, right)).ravel()
        shares = np.outer(_shares(grid[0], size[0], top, bottom), _shares(grid[1], size[1], left, right)).ravel()
        hit = float(inside[row == row.max()].mean())
        results.append(PointedNoun(noun, hit, float(row @ shares / row.sum()), float(inside.mean())))
    return results


def pointing_metrics(nouns: Sequence[PointedNoun]) -> dict[str, float]:
    """Returns the fraction of hits, the mean mass in the boxes, and the number of nouns; nothing without nouns."""
    if not nouns:
        return {}
    hits, masses = ([noun.hit for noun in nouns], [noun.mass for noun in nouns])
    return {"pointing": float(np.mean(hits)), "pointing_mass": float(np.mean(masses)), "nouns": float(len(nouns))}


def _centers(cells: int, pixels: int, first: float, last: float) -> np.ndarray:
    """Returns which cells along a side have their center between two edges."""
    centers = (np.arange(cells) + 0.5) * pixels / cells
    return (centers >= first) & (centers < last)


def _shares(cells: int, pixels: int, first: float, last: float) -> np.ndarray:
    """Returns the fraction of each cell along a side that lies between two edges."""
    edges = np.arange(cells + 1) * pixels / cells
    return np.clip(np.minimum(edges[1:], last) - np.maximum(edges[:-1], first), 0, None) * cells / pixels
