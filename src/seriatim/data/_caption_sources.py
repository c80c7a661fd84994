"""From a path to captions of pictures that are there, and from these to rows of one store of pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seriatim.core.errors import SeriatimError

from . import _caption_parts as divide
from . import catalogue, sources
from ._caption_columns import Wanted
from ._caption_paths import placed
from ._caption_rows import Rows
from .caption_files import gather
from .captioned import CaptionExamples, Named
from .decoding import Facts
from .notes import Notes
from .picture_files import Form, is_picture, read_header, shown_box
from .picture_settings import PictureSettings
from .picture_sources import visible
from .picture_store import SMALL, store
from .pictures import Pictures
from .sided import unsided
from .tables import NoColumnError

LOOKED_AT = 100  # pictures, to tell drawings from photographs


def told(source: str, settings: Any, notes: Notes, facts: Facts, again: bool = False, captions: bool = True) -> Rows:
    """What a source says, each row with the full path of its picture.

    `again`: it is another source than that of the training, which may name its columns otherwise.
    """
    path = find(source)
    asked = Wanted(settings.column, settings.target, settings.split, settings.encoding, captions)
    try:
        found = gather(path, asked, facts)
    except NoColumnError:
        if not again:
            raise
        found = gather(path, Wanted(encoding=settings.encoding, captions=captions), facts)
    notes.extend(facts.notes)
    whole = Rows(path)
    for rows in found:
        if captions:
            rows, said = divide.complete(rows)
            notes.extend(said)
            notes.extend(divide.normalise(rows) if settings.normalise else [])
        rows, said = placed(rows, settings.folder, settings.pictures.broken == "skip")
        notes.extend(said)
        whole.extend(rows)
    if not len(whole):
        raise SeriatimError("data.empty", f"{source}: holds no captions", "give pictures and what is said of them")
    return whole


def find(source: str) -> Path:
    path = Path(source).expanduser()
    if not path.exists() and source in catalogue.ENTRIES:
        task = catalogue.ENTRIES[source].task
        cause = f"{source} is a data set for the task {task}: it holds no captions"
        raise SeriatimError("data.caption", cause, "see `seriatim data list` for those of the task caption")
    sources.locate(source)  # tells what is missing
    return path


def listed(source: str, settings: Any) -> list[tuple[str, str]]:
    """The pictures of a source, each with its place: a picture, all of a folder, or those that a file names."""
    path = find(source)
    if path.is_dir():
        files = [file for file in visible(path) if is_picture(file)]
        if not files:
            raise SeriatimError("data.empty", f"the folder {path} holds no pictures", "name a folder of pictures")
        return [(str(file), str(file.relative_to(path))) for file in files]
    if is_picture(path):
        return [(str(path), path.name)]
    rows = told(source, settings, Notes(None), Facts(), again=True, captions=False)
    return list(dict(zip(rows.pictures, rows.places, strict=True)).items())


@dataclass(frozen=True)
class Shown:
    """The pictures of several sources in one form, by their paths; those with the same pixels are one."""

    pictures: Pictures
    rows: dict[str, int]  # of each path that could be read
    settings: PictureSettings

    @classmethod
    def of(cls, paths: Sequence[str], settings: PictureSettings, notes: Notes, form: Form | None = None) -> Shown:
        """As the settings say. Small drawings are not moved in training unless it is asked for: what a caption names
        may stand at the edge."""
        if settings.crops is None and form is None and _small(paths, settings):
            settings = settings.model_copy(update={"crops": 0})
        pictures, kept, said = store([Path(path) for path in paths], settings, notes.notify, form)
        notes.extend(said)
        return cls(pictures, {paths[place]: row for row, place in enumerate(kept)}, settings)

    def united(self) -> tuple[dict[str, str], list[str]]:
        """For each path the first, by the names of files, that has the same pixels; and a note where there are two."""
        first: dict[bytes, str] = {}
        found = {}
        for path in sorted(self.rows, key=lambda path: (os.path.basename(path), path)):
            found[path] = first.setdefault(self.pictures.mark(self.rows[path]), path)
        again = [path for path, same in found.items() if path != same]
        if not again:
            return found, []
        one = f"{os.path.basename(again[0])} is {os.path.basename(found[again[0]])}"
        return found, [f"{len(again):,} pictures are there under another name, too ({one}); they count as one"]

    def examples(self, rows: Rows) -> CaptionExamples:
        pictures = self.pictures.take([self.rows[path] for path in rows.pictures])
        boxes = self._boxes(rows) if any(rows.boxes) else None
        return CaptionExamples(pictures, rows.captions, rows.places, boxes, unsided(rows.captions))

    def _boxes(self, rows: Rows) -> list[list[Named]]:
        """Brought from the size of each file to what is shown of it; what is not shown is left out."""
        channels, height, width = self.pictures.shape
        form = Form(height, width, channels, self.settings.fit, self.pictures.margin)
        sizes: dict[str, tuple[int, int]] = {}
        found = []
        for path, boxes in zip(rows.pictures, rows.boxes, strict=True):
            if boxes and path not in sizes:
                header = read_header(Path(path), self.settings)
                sizes[path] = header.height, header.width
            both = ((one, shown_box(one.box, sizes[path], form)) for one in boxes)
            found.append([one._replace(box=box) for one, box in both if box is not None])
        return found


def _small(paths: Sequence[str], settings: PictureSettings) -> bool:
    """Whether pictures are shown so small, as far as the first of them tell."""
    if settings.side is not None:
        return settings.side <= SMALL
    for path in paths[:LOOKED_AT]:
        try:
            header = read_header(Path(path), settings)
        except SeriatimError:  # the store says what is wrong with it
            continue
        if max(header.height, header.width) > SMALL:
            return False
    return True


def readable(rows: Rows, same: dict[str, str]) -> Rows:
    """The rows whose pictures could be read, with one path for each picture."""
    found = rows.take([row for row, path in enumerate(rows.pictures) if path in same])
    found.pictures = [same[path] for path in found.pictures]
    return found
