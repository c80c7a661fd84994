"""Captions in one JSON file: COCO's annotations, the split that most papers use (Karpathy), or a plain list.

COCO       {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "…"}]}
Karpathy   {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "…"}]}]}
lists      [{"image": "a.jpg", "caption": "…"}]   or   {"a.jpg": ["…", "…"]}
"""

from __future__ import annotations

import json
from typing import Any

from seriatim.core.errors import SeriatimError

from ._caption_columns import Wanted, choose
from ._caption_rows import Rows, part_of
from ._caption_tables import add_record
from .decoding import Facts, Raw, decode
from .sources import blocks

FORMS = 'as of COCO {"images": …, "annotations": …}, or a list of {"image": …, "caption": …}'


def read_json(raw: Raw, wanted: Wanted, facts: Facts, rows: Rows) -> None:
    try:
        found = json.loads("".join(decode(raw, blocks(raw), wanted.encoding, facts)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise SeriatimError("data.json", f"{raw.name}: not JSON ({error})", "mend the file") from None
    if isinstance(found, dict) and isinstance(found.get("images"), list):
        if isinstance(found.get("annotations"), list):
            _coco(raw.name, found["images"], found["annotations"], wanted, facts, rows)
        else:
            _karpathy(raw.name, found["images"], facts, rows)
    elif isinstance(found, dict) and all(isinstance(one, str | list) for one in found.values()):
        for number, (picture, said) in enumerate(found.items(), 1):
            place = f"{raw.name}, entry {number}"
            for text in said if isinstance(said, list) else [said]:
                rows.add(picture, _text(text, place, facts), place)
    elif isinstance(found, list):
        _list(raw.name, found, wanted, facts, rows)
    else:
        raise SeriatimError("data.json", f"{raw.name}: holds no captions of a known form", f"write it {FORMS}")


def _coco(name: str, images: list[Any], annotations: list[Any], wanted: Wanted, facts: Facts, rows: Rows) -> None:
    files: dict[Any, tuple[str, int]] = {}
    for number, one in enumerate(images, 1):
        try:
            files[one["id"]] = one["file_name"], number
        except (TypeError, KeyError):
            cause = f"{name}, image {number}: has no id or no file_name"
            facts.trouble(SeriatimError("data.json", cause, f"write it {FORMS}"))
    silent = dict(files)
    if wanted.captions:
        for number, one in enumerate(annotations, 1):
            place = f"{name}, annotation {number}"
            try:
                picture, text = one["image_id"], one["caption"]
            except (TypeError, KeyError):
                facts.trouble(_no_caption(place))
                continue
            if picture not in files:
                cause = f"{place}: there is no image {picture}"
                facts.trouble(SeriatimError("data.json", cause, "add the image, or remove its annotations"))
                continue
            silent.pop(picture, None)
            rows.add(files[picture][0], _text(text, place, facts), place)
    for picture, number in silent.values():
        rows.add(picture, "", f"{name}, image {number}")


def _no_caption(place: str) -> SeriatimError:
    cause = f"{place}: has no image_id or no caption"
    return SeriatimError("data.json", cause, "name the file of captions; that of instances has none")


def _karpathy(name: str, images: list[Any], facts: Facts, rows: Rows) -> None:
    for number, one in enumerate(images, 1):
        place = f"{name}, image {number}"
        try:
            folder, picture = one.get("filepath", ""), one["filename"]
            said = [sentence["raw"] for sentence in one["sentences"]]
        except (AttributeError, TypeError, KeyError):
            cause = f"{place}: has no filename or no sentences"
            facts.trouble(SeriatimError("data.json", cause, f"write it {FORMS}"))
            continue
        part = part_of(one["split"], place, facts) if "split" in one else ""
        for text in said or [""]:
            rows.add(f"{folder}/{picture}" if folder else picture, _text(text, place, facts), place, part)


def _list(name: str, records: list[Any], wanted: Wanted, facts: Facts, rows: Rows) -> None:
    chosen = None
    for number, one in enumerate(records, 1):
        place = f"{name}, entry {number}"
        if not isinstance(one, dict):
            facts.trouble(SeriatimError("data.json", f"{place}: no object", f"write it {FORMS}"))
            continue
        if chosen is None:
            kinds = {key: "list" if isinstance(value, list) else "text" for key, value in one.items()}
            chosen = choose(name, kinds, wanted)
        missing = next((key for key in chosen.all if key not in one), None)
        if missing is not None:
            cause = f'{place}: has no "{missing}"'
            facts.trouble(SeriatimError("data.json", cause, "add it, or remove the entry"))
            continue
        add_record(rows, one, chosen, place, facts)


def _text(value: Any, place: str, facts: Facts) -> str:
    if isinstance(value, str):
        return value
    cause = f"{place}: the caption is {type(value).__name__}, not text"
    facts.trouble(SeriatimError("data.json", cause, "write it as a text"))
    return ""
