"""The store of decoded images: files are decoded once into arrays in the cache, which are mapped, never loaded whole.

All images get one layout, chosen by their headers. A shard holds some hundred images and is named by the files it is
made of and the layout: an interrupted preparation continues where it stopped, and a changed file costs one shard. A
JSON file beside each shard lists what could not be read, and why.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TextIO, TypeVar

import numpy as np
from PIL import Image

from ...core.errors import SeriatimError
from ...core.files import atomic_file, atomic_folder, cache_folder, locked, write_json
from ..cache import cache_errors
from ..disk import cache_key
from ..settings import ImageSettings
from ..source import Source, open_source
from . import ImageLayout, ImageValue
from .batches import Images
from .decode import DEFAULT_SETTINGS, Header, decode, quiet, read_header

VERSION = 2  # of the files in the cache
SHARD_BYTES = 1 << 27
OPEN_SHARDS = 500  # mapped at a time: each holds a file open
PROGRESS_SECONDS = 5.0
SMALL_SIZE = 64  # pixels per side; images of one size up to it are not resized
DEFAULT_SIZES = ((32, 32), (128, 64), (1 << 30, 224))  # shorter sides up to the first get the second

Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Shards:
    """Arrays of images one behind the other; reads like one array (N,H,W,C)."""

    files: tuple[Path, ...]
    starts: tuple[int, ...]  # of each shard, and the end of the last
    shape: tuple[int, int, int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> np.ndarray:
        shard = int(np.searchsorted(self.starts, row, side="right")) - 1
        image: np.ndarray = _map_shard(self.files[shard])[row - self.starts[shard]]
        return image


def load_images(
    values: Sequence[ImageValue] | np.ndarray,
    layout: ImageLayout,
    settings: ImageSettings = DEFAULT_SETTINGS,
    progress: Progress | None = None,
) -> tuple[Images, dict[int, SeriatimError]]:
    """Returns images in one layout, image files through the cache, and the error of each row that could not be read.

    Args:
        values: Paths, encoded bytes or pixels.
        layout: The size, channels and margin.
        settings: The largest size that is read.
        progress: Called with a sentence every few seconds.
    """
    paths = [value.absolute() for value in values if isinstance(value, Path)]
    if len(paths) < len(values):
        return _load_in_memory(values, layout, settings)
    unique = {path: place for place, path in enumerate(dict.fromkeys(paths))}
    shards, broken = _load_shards(list(unique), settings, layout, progress)
    rows = np.array([unique[path] for path in paths], dtype=np.int64)
    errors = {row: broken[place] for row, place in enumerate(rows.tolist()) if place in broken}
    return Images(shards, rows, layout.margin), errors


def _load_in_memory(
    values: Sequence[ImageValue] | np.ndarray, layout: ImageLayout, settings: ImageSettings
) -> tuple[Images, dict[int, SeriatimError]]:
    height, width, channels = layout.height, layout.width, layout.channels
    plain_shapes = ((height, width), (height, width, 1)) if channels == 1 else ((height, width, channels),)
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.shape in plain_shapes]
    if arrays and len(arrays) == len(values):
        block = np.stack(arrays).reshape(-1, height, width, channels)
        margin = (layout.margin, layout.margin)
        return Images.of(np.pad(block, ((0, 0), margin, margin, (0, 0)), mode="edge"), layout.margin), {}
    block, errors = np.zeros((len(values), *layout.stored_shape), np.uint8), {}
    with quiet():
        for row, image in enumerate(map(_or_error(lambda value: decode(value, settings, layout)), values)):
            if isinstance(image, SeriatimError):
                errors[row] = image
            else:
                block[row] = image
    return Images.of(block, layout.margin), errors


def choose_layout(headers: Sequence[Header], settings: ImageSettings) -> tuple[ImageLayout, list[str]]:
    """Returns the layout of a data set by its headers, and a note on each choice that the settings leave open."""
    if not headers:
        return ImageLayout(1, 1, 1), []
    sizes = {(header.height, header.width) for header in headers}
    height, width = sizes.pop() if len(sizes) == 1 else (0, 0)
    keeps_size = settings.size is None and 0 < max(height, width) <= SMALL_SIZE
    if not keeps_size:
        shorter = float(np.median([min(header.height, header.width) for header in headers]))
        default = next(size for limit, size in DEFAULT_SIZES if shorter <= limit)
        height = width = default if settings.size is None else settings.size
    gray = settings.color == "gray" or (settings.color == "auto" and all(header.gray for header in headers))
    margin = max(height, width) // (8 if max(height, width) <= SMALL_SIZE else 14)
    margin = margin if settings.max_shift is None else settings.max_shift
    layout = ImageLayout(height, width, 1 if gray else 3, settings.fit, margin)
    how = {"crop": "cropped to the center", "pad": "padded by repeating the edges", "stretch": "stretched"}
    source = "their own size" if keeps_size else how[settings.fit]
    color = "gray" if gray else "RGB"
    notes = [f"images: {width} × {height} pixels, {color} ({source}; task.images.size, .fit and .color)"]
    if layout.margin:
        notes.append(f"training shifts images by up to {layout.margin} pixels (task.images.max_shift)")
    animated = sum(header.animated for header in headers)
    if animated:
        notes.append(f"{animated:,} images have several frames; the first one is read")
    return layout, notes


# Headers


def read_headers(
    values: Sequence[ImageValue] | np.ndarray,
    settings: ImageSettings = DEFAULT_SETTINGS,
    progress: Progress | None = None,
) -> list[Header | SeriatimError]:
    """Returns the header of each image, or the error that reading it raised; headers of files are cached."""
    read = _or_error(partial(read_header, settings=settings))
    paths = [value.absolute() for value in values if isinstance(value, Path)]
    if len(paths) < len(values):
        with quiet():
            return [read(value) for value in values]
    stamps = [_stamp(path) for path in paths]
    file = cache_folder("images") / f"{cache_key(VERSION, 'headers', settings.max_megapixels, stamps)}.json"
    if not file.exists():
        headers = list(_run_threads(read, paths, progress, f"reading the headers of {len(paths):,} images"))
        with cache_errors():
            write_json(file, [list(astuple(h)) if isinstance(h, Header) else _pack_error(h) for h in headers])
        return headers
    return [
        Header(*packed) if isinstance(packed, list) else SeriatimError(**packed)
        for packed in json.loads(file.read_text(encoding="utf-8"))
    ]


def _pack_error(error: SeriatimError) -> dict[str, str]:
    return {"code": error.code, "cause": error.cause, "remedy": error.remedy}


def _stamp(path: Path) -> tuple[str, int, int]:
    """Returns what changes when a file does: its name, its size and the time of the last change."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # also a name that no file can have
        return str(path), -1, 0
    return str(path), status.st_size, status.st_mtime_ns


# Shards


def _load_shards(
    paths: Sequence[Path], settings: ImageSettings, layout: ImageLayout, progress: Progress | None
) -> tuple[Shards, dict[int, SeriatimError]]:
    """Returns the shards of all images, written if they are missing, and the errors by position."""
    stamps = [_stamp(path) for path in paths]
    per_shard = max(SHARD_BYTES // math.prod(layout.stored_shape), 1)
    spans = [range(start, min(start + per_shard, len(paths))) for start in range(0, len(paths), per_shard)]
    names = [
        cache_key(VERSION, asdict(layout), settings.max_megapixels, stamps[span.start : span.stop]) for span in spans
    ]
    folder = cache_folder("images")
    files = tuple(folder / f"{name}.npy" for name in names)
    if not all(map(_is_complete, files)):
        with cache_errors(), locked(folder / f"{cache_key(names)}.lock"):
            _write_missing(dict(zip(files, spans, strict=True)), paths, settings, layout, progress)
    broken: dict[int, SeriatimError] = {}
    for span, file in zip(spans, files, strict=True):
        errors = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        broken |= {span.start + int(row): SeriatimError(**error) for row, error in errors.items()}
    starts = tuple(accumulate((len(span) for span in spans), initial=0))
    return Shards(files, starts, (len(paths), *layout.stored_shape)), broken


def _write_missing(
    shards: dict[Path, range],
    paths: Sequence[Path],
    settings: ImageSettings,
    layout: ImageLayout,
    progress: Progress | None,
) -> None:
    """Writes the shards that do not exist; another process may have written some of them in the meantime."""
    missing = {file: span for file, span in shards.items() if not _is_complete(file)}
    selected = [paths[row] for span in missing.values() for row in span]
    folder, needed = cache_folder("images"), len(selected) * math.prod(layout.stored_shape)
    if needed > (free := shutil.disk_usage(folder).free):
        raise SeriatimError(
            "data.cache",
            f"the decoded images take {needed / 1e9:.1f} GB, {folder} has {free / 1e9:.1f} GB left",
            "choose a smaller task.images.size, or another folder in the environment variable SERIATIM_CACHE",
        )
    read = _or_error(lambda path: decode(path, settings, layout))
    title = f"decoding {len(selected):,} images"
    with contextlib.closing(_run_threads(read, selected, progress, title)) as images:
        for file, span in missing.items():
            _write_shard(file, len(span), layout, images)


def _is_complete(file: Path) -> bool:
    """Returns whether a shard and its list of errors are there."""
    return file.exists() and file.with_suffix(".json").exists()


def _write_shard(file: Path, count: int, layout: ImageLayout, images: Iterator[np.ndarray | SeriatimError]) -> None:
    errors: dict[str, dict[str, str]] = {}
    with atomic_file(file) as temporary:
        block = np.lib.format.open_memmap(temporary, "w+", np.uint8, (count, *layout.stored_shape))
        for row in range(count):
            image = next(images)
            if isinstance(image, SeriatimError):
                errors[str(row)] = _pack_error(image)
            else:
                block[row] = image
        block.flush()
        write_json(file.with_suffix(".json"), errors)


def _or_error(work: Callable[[ImageValue], T]) -> Callable[[ImageValue], T | SeriatimError]:
    """Returns a function that returns the error of an image instead of raising it."""

    def attempt(image: ImageValue) -> T | SeriatimError:
        try:
            return work(image)
        except SeriatimError as error:
            return error

    return attempt


def _run_threads(
    work: Callable[[ImageValue], T], paths: Sequence[Path], progress: Progress | None, title: str
) -> Generator[T]:
    """Yields the results for all paths in order, by threads that are only a little ahead."""
    if not paths:
        return
    threads = min(os.cpu_count() or 1, 16)
    reported = time.monotonic()
    with quiet(), ThreadPoolExecutor(threads) as pool:
        pending = [pool.submit(work, path) for path in paths[: 4 * threads]]
        try:
            for done in range(len(paths)):
                if done + len(pending) < len(paths):
                    pending.append(pool.submit(work, paths[done + len(pending)]))
                yield pending.pop(0).result()
                if progress is not None and time.monotonic() - reported > PROGRESS_SECONDS:
                    reported = time.monotonic()
                    progress(f"{title}: {100 * (done + 1) / len(paths):.0f} %")
        finally:
            for future in pending:
                future.cancel()


@lru_cache(maxsize=OPEN_SHARDS)
def _map_shard(file: Path) -> np.ndarray:
    shard: np.ndarray = np.load(file, mmap_mode="r")
    return shard


# Images with captions as files: a folder that people can look through, and that can be trained on itself


def write_image_set(name: str | Source, folder: Path, count: int | None = None, data_dir: str | None = None) -> int:
    """Writes the images of a data set with splits as PNG files beside captions.jsonl; returns their number.

    Args:
        name: A built-in set of images with captions, such as "scenes", or its source.
        folder: Must not exist.
        count: The largest number of images of each split; by default all.
        data_dir: The folder of catalogue data sets.
    """
    source = open_source(name, data_dir)
    if not source.splits or any("image" not in (part.columns or {}) for part in source.splits.values()):
        cause = f"{source.name} is not a built-in set of images"
        raise SeriatimError("data.write", cause, "name one of them, such as scenes or digits")
    if folder.exists():
        raise SeriatimError("data.exists", f"{folder} exists", "name a new folder")
    with atomic_folder(folder) as temporary:
        (temporary / "images").mkdir()
        with open(temporary / "captions.jsonl", "w", encoding="utf-8", newline="\n") as table:
            return sum(_write_split(part, split, temporary, table, count) for split, part in source.splits.items())


def _write_split(source: Source, split: str, folder: Path, table: TextIO, count: int | None) -> int:
    """Writes the images of a split, each once, and a line for each of its captions; returns the number of images."""
    columns = source.columns or {}
    files: dict[Hashable, str] = {}
    for row, pixels in enumerate(columns["image"]):
        key = columns["image_id"][row] if "image_id" in columns else row
        if key not in files:
            if len(files) == count:
                break
            files[key] = f"images/{split}-{len(files) + 1:05}.png"
            gray = pixels.ndim == 3 and pixels.shape[2] == 1
            Image.fromarray(pixels[..., 0] if gray else pixels).save(folder / files[key])
        record: dict[str, object] = {"image": files[key], "caption": columns["caption"][row], "split": split}
        if "regions" in columns:
            record["regions"] = [
                {"noun": region.noun, "position": region.position, "box": list(map(int, region.box))}
                for region in columns["regions"][row]
            ]
        table.write(json.dumps(record, ensure_ascii=False) + "\n")
    return len(files)
