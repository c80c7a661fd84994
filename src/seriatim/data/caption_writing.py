"""Pictures with captions as files: a folder that people can look through, and that can be trained on itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from PIL import Image

from seriatim.core.errors import SeriatimError
from seriatim.core.files import atomic_folder

from .captioned import CaptionExamples, CaptionParts
from .partition import NAMES


def write(parts: CaptionParts, folder: Path, count: int | None = None) -> int:
    """Writes the pictures of all parts, or the first `count` of each, and captions.jsonl with what is said of them and,
    where it is known, the boxes of what is named; gives how many pictures there are."""
    if folder.exists():
        raise SeriatimError("data.exists", f"{folder} is there already", "name a folder that is not there yet")
    with atomic_folder(folder) as aside:
        (aside / "pictures").mkdir()
        with open(aside / "captions.jsonl", "w", encoding="utf-8", newline="\n") as table:
            return sum(_part(parts.part(name), name, aside, table, count) for name in NAMES)


def _part(part: CaptionExamples, name: str, folder: Path, table: TextIO, count: int | None) -> int:
    files: dict[int, str] = {}
    texts = part.targets if isinstance(part.targets, list) else []
    for row, text in enumerate(texts):
        picture = int(part.pictures.rows[row])
        if picture not in files:
            if len(files) == count:
                break
            files[picture] = f"pictures/{name}-{len(files) + 1:05}.png"
            shown = part.pictures[row]
            Image.fromarray(shown[..., 0] if shown.shape[2] == 1 else shown).save(folder / files[picture])
        record = {"image": files[picture], "caption": text, "split": name}
        if part.boxes is not None:
            boxes = [{"noun": one.noun, "place": one.place, "box": list(one.box)} for one in part.boxes[row]]
            table.write(json.dumps(record | {"boxes": boxes}, ensure_ascii=False) + "\n")
        else:
            table.write(json.dumps(record, ensure_ascii=False) + "\n")
    return len(files)
