"""The data doctor for labelled pictures: what is wrong or odd with files and labels, found before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seriatim.core.errors import SeriatimError

from . import partition
from .decoding import Facts
from .doctor import SHOWN, Problems, Trouble, Verdict
from .examples import ExampleSettings
from .labelled import Gathered, gather
from .picture_files import Header, decode, quiet, read_header
from .picture_settings import PictureSettings
from .picture_sources import from_files, from_table, holds_pictures
from .picture_store import choose_form
from .pictures import marked
from .sequences import Examples
from .sources import find_path
from .tables import Heading, rows

DECODED = 5_000  # pictures that are read whole; of further ones only the beginning is


@dataclass
class PictureReport(Verdict):
    source: str
    bytes: int = 0
    pictures: int = 0
    classes: list[tuple[str, int]] = field(default_factory=list)  # the most frequent first
    sizes: dict[str, str] = field(default_factory=dict)
    grey: int = 0
    animated: int = 0
    repeated: int = 0  # pictures that show what an earlier one shows
    form: str = ""  # what they would be brought to
    split: dict[str, int] = field(default_factory=dict)
    problems: list[Trouble] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sides: ClassVar[dict[str, Any]] = {}  # there are no texts


def holds_labelled_pictures(source: str, column: str | None, encoding: str = "utf-8") -> bool:
    """Whether a source is a folder of pictures, or a table with a column of their paths."""
    path = Path(source).expanduser()
    if path.is_dir():
        return holds_pictures(path)
    try:
        raw = find_path(path).raws[0] if path.is_file() else None
        if raw is None or raw.kind == "text":
            return False
        found: list[Heading] = []

        def choose(heading: Heading) -> list[str]:
            found.append(heading)
            return heading.columns

        next(rows(raw, encoding, Facts(trouble=lambda _: None), choose), None)
    except SeriatimError:  # the doctor of texts says what is wrong
        return False
    named = [name for heading in found for name in heading.pictures]
    return column in named if column is not None else len(named) == 1


def check_pictures(source: str, column: str | None, target: str | None, encoding: str = "utf-8") -> PictureReport:
    """Examines a source. Only what keeps it from being read at all is raised."""
    report = PictureReport(source)
    problems = Problems()
    gathered = _gathered(
        source, ExampleSettings(source=source, column=column, target=target, encoding=encoding), problems
    )
    paths: Any = gathered.inputs
    report.pictures, report.notes = len(paths), list(gathered.notes)
    report.bytes = sum(path.stat().st_size for path in paths if path.is_file())
    labels = gathered.targets or []
    report.classes = Counter(map(str, labels)).most_common()
    _look(report, paths, labels, problems)
    if len(report.classes) == 1:
        cause = f'all {len(labels):,} pictures have the label "{labels[0]}"'
        problems.count(SeriatimError("data.one-class", cause, "give pictures of at least two classes"))
    report.split = _split(gathered)
    report.remarks += _remarks(report)
    report.problems = list(problems.values())
    return report


def _gathered(source: str, settings: ExampleSettings, problems: Problems) -> Gathered:
    """The paths and labels; paths that lead nowhere are problems, and are left out."""
    path = Path(source).expanduser()
    found = from_files(path, "pictures", targets=True, numeric=False)
    if found is not None:
        return found
    facts = Facts(trouble=problems.count)
    table = gather(find_path(path), settings, True, False, facts)
    table.notes = [*facts.notes, *table.notes]
    try:
        return from_table(table, path, "pictures", PictureSettings())
    except SeriatimError as error:
        problems.count(error)
        return from_table(table, path, "pictures", PictureSettings(broken="skip"))


def _look(report: PictureReport, paths: list[Path], labels: list[Any], problems: Problems) -> None:
    """The pictures themselves: their sizes, whether they can be read, and which of them show the same."""
    headers: list[Header] = []
    first: dict[bytes, int] = {}
    unlike: list[str] = []
    with quiet():
        for row, path in enumerate(paths):
            if not path.is_file():
                continue  # told with its line
            try:
                headers.append(read_header(path, PictureSettings()))
                if row < DECODED:
                    same = first.setdefault(marked(decode(path, PictureSettings())), row)
                    report.repeated += same != row
                    if same != row and labels and labels[same] != labels[row]:
                        unlike.append(f"{paths[same].name} ({labels[same]}) and {path.name} ({labels[row]})")
            except SeriatimError as error:
                problems.count(error)
    if len(paths) > DECODED:
        report.notes.append(f"only the first {DECODED:,} pictures were read to their ends")
    if unlike:
        report.remarks.append(f"{len(unlike):,} show the same and have other labels: {'; '.join(unlike[:SHOWN])}")
    if not headers:
        return
    areas = np.argsort([one.height * one.width for one in headers], kind="stable")
    for name, place in (("smallest", 0), ("middle", len(areas) // 2), ("largest", -1)):
        one = headers[int(areas[place])]
        report.sizes[name] = f"{one.width} × {one.height}"
    report.grey, report.animated = sum(one.grey for one in headers), sum(one.animated for one in headers)
    report.form = choose_form(headers, PictureSettings())[1][0].removeprefix("pictures: ")


def _split(gathered: Gathered) -> dict[str, int]:
    """As the source says, else as it would be drawn."""
    if gathered.parts is not None:
        return dict(Counter(gathered.parts))
    examples = Examples(list(gathered.inputs), gathered.targets, gathered.places)  # type: ignore[arg-type]
    return {name: len(part) for name, part in partition.drawn(examples, (0.8, 0.1, 0.1), False).items()}


def _remarks(report: PictureReport) -> Iterator[str]:
    if report.animated:
        yield f"pictures with several frames, of which the first is taken: {report.animated:,}"
    if 0 < report.grey < report.pictures:
        yield f"{report.grey:,} pictures are grey, the others in colour: all are read in colour"
    if report.repeated:
        yield f"pictures that show what an earlier one shows: {report.repeated:,}"
    if rare := [name for name, count in report.classes if count < 10]:
        yield f"classes with fewer than ten pictures: {', '.join(rare[:SHOWN])}" + (" …" if len(rare) > SHOWN else "")
