"""The data doctor for captions: what is wrong or odd with pictures and what is said of them, found before training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from seriatim.core.errors import SeriatimError

from . import _caption_parts as divide
from . import _pair_texts as texts
from ._caption_columns import CAPTIONS, NUMBERED, Wanted
from ._caption_paths import placed
from ._caption_rows import Rows
from .caption_files import files_of, gather
from .captions import CaptionSettings
from .columns import TARGETS
from .decoding import Facts, check_encoding
from .doctor import CONTROL, Problems, Trouble, Verdict
from .pair_doctor import Side, side_of
from .picture_files import Header, is_picture, read_header, read_picture
from .sided import sided
from .sources import find_path, locate

HEAD = 1 << 16  # bytes of a file in which a picture must be named
NAMED = re.compile(rb"\.(jpe?g|png|gif|webp|bmp|tiff?|ppm)\b", re.IGNORECASE)
DECODED = 2_000  # pictures that are read whole; of further ones only the beginning is


@dataclass
class CaptionReport(Verdict):
    source: str
    bytes: int = 0
    encoding: str = ""
    pictures: int = 0
    captions: int = 0
    empty: int = 0
    fewest: int = 0
    most: int = 0
    repeated: int = 0  # captions that are said of several pictures
    sides: dict[str, Side] = field(default_factory=dict)
    sided: int = 0  # captions that tell left from right
    sizes: dict[str, str] = field(default_factory=dict)
    grey: int = 0
    split: dict[str, int] = field(default_factory=dict)
    problems: list[Trouble] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def holds_captions(source: str, column: str | None = None, target: str | None = None, encoding: str = "utf-8") -> bool:
    """Whether it is captions of pictures that a source holds, as far as its form tells."""
    path = Path(source).expanduser()
    try:
        if not path.exists() or path.suffix.lower() == ".zip":
            return False
        if path.is_dir() and not any(is_picture(file) for file in islice(path.rglob("*"), 10_000)):
            return False
        return all(_tells(file, Wanted(column, target, None, encoding)) for file, _ in files_of(path))
    except (SeriatimError, OSError):  # the doctor of texts says what is wrong
        return False


def _tells(file: Path, wanted: Wanted) -> bool:
    """Whether the file names pictures, and has words about them and not labels."""
    with find_path(file).raws[0].open() as stream:
        head = stream.read(HEAD)
    if file.suffix.lower() not in (".parquet", ".pq") and not NAMED.search(head):
        return False
    facts = Facts(trouble=lambda _: None)
    (rows,) = gather(file, wanted, facts)
    if not len(rows) or not is_picture(rows.pictures[0]):
        return False
    if wanted.target is None and any(f'captions in "{name}"' in note for name in TARGETS for note in facts.notes):
        return False
    usual = any(f'"{name}"' in note for name in CAPTIONS for note in facts.notes) or any(
        map(NUMBERED.search, facts.notes)
    )
    some = rows.captions[:100]
    return usual or sum(text.count(" ") for text in some) > len(some)


def check_captions(
    source: str,
    column: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    data_dir: str | None = None,
) -> CaptionReport:
    """Examines a source. Only what keeps it from being read at all is raised."""
    settings = CaptionSettings(source=source, column=column, target=target, encoding=encoding)
    report = CaptionReport(source, encoding=check_encoding(encoding))
    locate(source, data_dir)  # tells what is missing
    path = Path(source).expanduser()
    report.bytes = sum(file.stat().st_size for file, _ in files_of(path))
    problems = Problems()
    facts = Facts(trouble=problems.count)
    whole = Rows(path)
    wanted = Wanted(column, target, None, encoding)
    try:
        for rows in gather(path, wanted, facts):
            whole.extend(_placed(rows, problems))
    except SeriatimError as error:
        problems.count(error)
    said, _ = divide.complete(whole)
    report.captions, report.empty = len(said), len(whole) - len(said)
    if not report.captions and not problems:
        problems.count(SeriatimError("data.empty", f"{source}: holds no captions", "give captions"))
    _look(report, list(dict.fromkeys(said.pictures)), settings, problems)
    if report.captions:
        _count(report, said, settings)
        report.remarks += _remarks(said)
    report.problems, report.notes = list(problems.values()), [*facts.notes, *report.notes]
    return report


def _placed(rows: Rows, problems: Problems) -> Rows:
    """Those of which the picture is there; the others are a problem."""
    try:
        return placed(rows, None, skip=False)[0]
    except SeriatimError as error:
        problems.count(error)
    try:
        return placed(rows, None, skip=True)[0]
    except SeriatimError:  # none is there
        return Rows(rows.home)


def _look(report: CaptionReport, paths: list[str], settings: CaptionSettings, problems: Problems) -> None:
    """The pictures themselves: their sizes, and whether they can be read."""
    report.pictures = len(paths)
    headers: list[Header] = []
    for number, path in enumerate(paths):
        try:
            headers.append(read_header(Path(path), settings.pictures))
            if number < DECODED:
                read_picture(Path(path), settings.pictures)
        except SeriatimError as error:
            problems.count(error)
    if len(paths) > DECODED:
        report.notes.append(f"only the first {DECODED:,} pictures were read to their ends")
    if not headers:
        return
    areas = np.argsort([one.height * one.width for one in headers], kind="stable")
    for name, place in (("smallest", 0), ("middle", len(areas) // 2), ("largest", -1)):
        one = headers[int(areas[place])]
        report.sizes[name] = f"{one.width} × {one.height}"
    report.grey = sum(one.grey for one in headers)
    if animated := sum(one.animated for one in headers):
        report.remarks.append(f"pictures with several frames, of which the first is taken: {animated:,}")


def _count(report: CaptionReport, said: Rows, settings: CaptionSettings) -> None:
    said.captions, _, _ = texts.normalise(said.captions)
    counts = Counter(said.pictures)
    report.fewest, report.most = min(counts.values()), max(counts.values())
    of: dict[str, set[str]] = {}
    for picture, text in zip(said.pictures, said.captions, strict=True):
        of.setdefault(text, set()).add(picture)
    report.repeated = sum(len(pictures) > 1 for pictures in of.values())
    report.sided = sum(map(sided, said.captions))
    try:
        parts, notes = divide.divided(said, {}, settings.fractions)
        report.remarks += [note for note in notes if note.startswith("left out")]
    except SeriatimError as error:
        parts = {"train": said}
        report.remarks.append(error.cause)
    report.split = {name: len(set(rows.pictures)) for name, rows in parts.items()}
    held = [text for name in ("valid", "test") if name in parts for text in parts[name].captions]
    report.sides["caption"] = side_of(said.captions, parts["train"].captions, held, said.places)


def _remarks(said: Rows) -> Iterator[str]:
    again = len(said) - len(set(zip(said.pictures, said.captions, strict=True)))
    if again:
        yield f"captions that are said twice of the same picture: {again:,}"
    whole = "\n".join(said.captions)
    if marks := whole.count("\ufffd"):
        yield f"{marks:,} replacement characters (U+FFFD): text was lost before it came here"
    if controls := len(CONTROL.findall(whole)):
        yield f"{controls:,} control characters"
