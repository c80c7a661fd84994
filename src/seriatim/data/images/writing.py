"""Images with captions as files: a folder that people can look through, and that can be trained on itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from ...core.errors import SeriatimError
from ...core.files import atomic_folder
from ..source import Source, open_source


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
    from PIL import Image

    columns = source.columns or {}
    files: dict[Any, str] = {}
    for row, pixels in enumerate(columns["image"]):
        key = columns["image_id"][row] if "image_id" in columns else row
        if key not in files:
            if len(files) == count:
                break
            files[key] = f"images/{split}-{len(files) + 1:05}.png"
            Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(
                folder / files[key]
            )
        record: dict[str, Any] = {"image": files[key], "caption": columns["caption"][row], "split": split}
        if "regions" in columns:
            record["regions"] = [
                {"noun": region.noun, "position": region.position, "box": list(map(int, region.box))}
                for region in columns["regions"][row]
            ]
        table.write(json.dumps(record, ensure_ascii=False) + "\n")
    return len(files)
