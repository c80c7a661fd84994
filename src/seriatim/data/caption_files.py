"""From what the user names to captions of pictures: a file of them, or a folder with such a file in it.

captions.csv .tsv .jsonl .json .txt .parquet    a table beside the pictures
metadata.csv .jsonl                             the same, as the image folders of Hugging Face have it
annotations/captions_train2014.json …           COCO: a file for each part
Flickr8k.token.txt                              with Flickr_8k.trainImages.txt … for the parts
dataset_flickr8k.json                           the split of Karpathy
"""

from __future__ import annotations

import re
from pathlib import Path

from seriatim.core.errors import SeriatimError

from ._caption_columns import Wanted
from ._caption_json import read_json
from ._caption_rows import Rows
from ._caption_tables import read_table
from .columns import PARTS
from .decoding import Facts, check_encoding, decode
from .picture_files import is_picture
from .sources import blocks, find_path
from .tables import lines

TABLE = r"\.(csv|tsv|jsonl|ndjson|json|txt|parquet|pq)(\.gz)?"
# The first of these that a folder has is taken; those of the second list may be several, one for each part.
SINGLE = (
    re.compile(r"flickr\d+k\.token\.txt|results_\d+\.token|results\.csv", re.IGNORECASE),
    re.compile(r"dataset_?\w*\.json", re.IGNORECASE),
    re.compile(rf"(captions?|metadata){TABLE}", re.IGNORECASE),
)
SEVERAL = (
    re.compile(r"captions_\w+\.json", re.IGNORECASE),
    re.compile(rf"(captions?[ _-]?)?(train|valid|validation|val|dev|test)(ing)?{TABLE}", re.IGNORECASE),
)
INSIDE = ("", "annotations", "Flickr8k_text", "captions")
SPLIT_FILE = re.compile(r"flickr_?\d+k\.(train|dev|test)images\.txt", re.IGNORECASE)
NO_TABLE = "put captions.csv with the columns image and caption beside the pictures, or name the file of captions"


def gather(path: Path, wanted: Wanted, facts: Facts) -> list[Rows]:
    """The captions of a file, or of the files of a folder."""
    check_encoding(wanted.encoding)
    found = []
    for file, part in files_of(path):
        rows = _read(file, wanted, facts)
        if part:
            rows.parts = [part] * len(rows)
        found.append(rows)
    if len(found) > 1:
        names = ", ".join(file.name for file, _ in files_of(path))
        facts.notes.append(f"parts by the names of files: {names}")
    return found


def files_of(path: Path) -> list[tuple[Path, str]]:
    """The files of captions that a path names, each with its part where its name says one."""
    if not path.is_dir():
        if path.suffix.lower() == ".zip":
            raise SeriatimError("data.caption", f"{path}: pictures are not read from archives", "unpack it")
        return [(path, "")]
    inner = [path / name for name in INSIDE if (path / name).is_dir()]
    files = [file for folder in inner for file in sorted(folder.iterdir()) if file.is_file()]
    for pattern in SINGLE:
        if there := [file for file in files if pattern.fullmatch(file.name)]:
            return [(_only(path, there), "")]
    for pattern in SEVERAL:
        if there := [file for file in files if pattern.fullmatch(file.name)]:
            return _by_parts(path, there)
    folders = [(one, PARTS[one.name.lower()]) for one in sorted(path.iterdir()) if one.name.lower() in PARTS]
    within = [(file, part) for one, part in folders if one.is_dir() for file in sorted(one.iterdir())]
    if there_too := [(file, part) for file, part in within if SINGLE[-1].fullmatch(file.name)]:
        return there_too
    tables = [file for file in files if re.search(f"{TABLE}$", file.name.lower()) and not is_picture(file)]
    if len(tables) == 1:
        return [(tables[0], "")]
    if tables:
        _only(path, tables)
    raise SeriatimError("data.caption", f"the folder {path} holds no file of captions", NO_TABLE)


def _only(path: Path, files: list[Path]) -> Path:
    if len(files) > 1:
        names = ", ".join(str(file.relative_to(path)) for file in files[:10])
        cause = f"the folder {path} holds {len(files)} files of captions: {names}"
        raise SeriatimError("data.several", cause, f"name one of them: --data {files[0]}")
    return files[0]


def _by_parts(path: Path, files: list[Path]) -> list[tuple[Path, str]]:
    """Each file to the part that its name says; each part has one."""
    if len(files) == 1:
        return [(files[0], "")]
    parts = {}
    for file in files:
        words = [word for word in re.split(r"[^a-z]+", file.name.lower()) if word in PARTS]
        part = PARTS[words[0]] if words else ""
        if not part or part in parts:
            _only(path, files)
        parts[part] = file
    return [(parts[part], part) for part in ("train", "valid", "test") if part in parts]


def _read(file: Path, wanted: Wanted, facts: Facts) -> Rows:
    raw = find_path(file).raws[0]
    hints = tuple(re.findall(r"(?:captions|instances)_(\w+)\.json", file.name))
    rows = Rows(file.parent, hints)
    if file.name.lower().removesuffix(".gz").endswith(".json"):
        read_json(raw, wanted, facts, rows)
    else:
        read_table(raw, wanted, facts, rows)
    return rows if rows.divided else _split_files(file, rows, facts)


def _split_files(file: Path, rows: Rows, facts: Facts) -> Rows:
    """Lists of the pictures of each part beside the file, as Flickr8k has them."""
    parts: dict[str, str] = {}
    found = {
        match[1].lower(): one for one in sorted(file.parent.iterdir()) if (match := SPLIT_FILE.fullmatch(one.name))
    }
    for word, listed in found.items():
        raw = find_path(listed).raws[0]
        for line in lines(decode(raw, blocks(raw), "utf-8", facts)):
            parts[line.strip()] = PARTS[word]
    if not parts:
        return rows
    kept = [row for row, picture in enumerate(rows.pictures) if picture in parts]
    left = len(set(rows.pictures) - parts.keys())
    names = ", ".join(one.name for one in found.values())
    facts.notes.append(f"parts by {names}" + (f"; {left:,} pictures are in none of them and are left out" * bool(left)))
    rows = rows.take(kept)
    rows.parts = [parts[picture] for picture in rows.pictures]
    return rows
