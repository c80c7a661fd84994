"""The data doctor for two texts at once: all that is wrong or odd with two columns of text, found before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seriatim.core.errors import SeriatimError

from . import cells, columns, partition, tables, two_texts
from .columns import TARGETS, Columns
from .decoding import Facts, check_encoding
from .doctor import CONTROL, SHOWN, Problems, Trouble, Verdict
from .examples import ExampleSettings
from .pair_doctor import Side, side_of
from .sequences import Examples
from .sources import Found, find, find_path

LABELS = 20  # targets that are named


@dataclass
class TwoTextsReport(Verdict):
    source: str
    bytes: int = 0
    encoding: str = ""
    examples: int = 0
    empty: int = 0  # rows without a text
    half: int = 0  # rows with one text of two
    duplicates: int = 0
    contradictions: int = 0  # pairs that have several targets
    identical: int = 0
    sides: dict[str, Side] = field(default_factory=dict)  # by the names of the columns
    targets: list[tuple[str, int]] = field(default_factory=list)  # the most frequent first
    distinct_targets: int = 0
    split: dict[str, int] = field(default_factory=dict)
    problems: list[Trouble] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def holds_two_texts(source: str, column: str | None, target: str | None, encoding: str = "utf-8") -> bool:
    """Whether the columns named, or those with the usual names, are two columns of text in one table."""
    path = Path(source).expanduser()
    if not path.is_file() or (column is not None and "," not in column and ".." not in column):
        return False
    two = False

    def look(heading: tables.Heading) -> list[str]:
        nonlocal two
        chosen = columns.choose(heading, _settings(source, column, target, encoding), False, [])
        two = len(chosen.inputs) == 2 and all(heading.kinds[name] == "text" for name in chosen.inputs)
        return []

    try:
        for raw in (raw for raw in find_path(path).raws if raw.kind != "text"):
            next(tables.rows(raw, encoding, Facts(trouble=lambda _: None), look), None)
            break
    except SeriatimError:  # the other doctors say what is wrong
        return False
    return two


def check_two_texts(
    source: str,
    column: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    data_dir: str | None = None,
) -> TwoTextsReport:
    """Examines a table. Only what keeps it from being read at all is raised."""
    found = find(source, data_dir)
    size = sum(path.stat().st_size for path in found.files)
    report = TwoTextsReport(found.title, size, check_encoding(encoding), notes=list(found.notes))
    problems = Problems()
    facts = Facts(trouble=problems.count)
    names: tuple[str, str] = ("", "")
    gathered = Examples([], [], [])
    try:
        names, gathered = _rows(found, _settings(source, column, target, encoding), facts, report.notes)
    except SeriatimError as error:
        problems.count(error)
    examples, _, _ = partition.without_empty(gathered)
    report.examples, report.empty = len(examples), len(gathered) - len(examples)
    if not report.examples and not problems:
        problems.count(SeriatimError("data.empty", f"{source}: holds no example with a text", "give texts"))
    report.problems, report.notes = list(problems.values()), [*report.notes, *facts.notes]
    if report.examples:
        _count(report, names, examples)
        report.remarks = list(_remarks(report, examples))
    return report


def _settings(source: str, column: str | None, target: str | None, encoding: str) -> ExampleSettings:
    return ExampleSettings(source=source, column=column, target=target, encoding=encoding, kind="text")


def _rows(found: Found, settings: ExampleSettings, facts: Facts, notes: list[str]) -> tuple[tuple[str, str], Examples]:
    """The names of both columns, and all rows: their texts and, where there is a target, what it says."""
    chosen: list[Columns] = []

    def choose(heading: tables.Heading) -> list[str]:
        if not chosen:
            known = settings.target is not None or any(name.lower() in TARGETS for name in heading.columns)
            chosen.append(columns.choose(heading, settings, known, notes))
        return chosen[0].all

    values: list[list[Any]] = []
    targets: list[str] = []
    places: list[str] = []
    for raw in (raw for raw in found.raws if raw.kind != "text"):
        for place, row in tables.rows(raw, settings.encoding, facts, choose):
            values.append([row[name] for name in chosen[0].inputs])
            targets.append(_target([row[name] for name in chosen[0].targets], place, chosen[0], facts))
            places.append(place)
    if not chosen:
        return ("", ""), Examples([], [], [])
    first, second = chosen[0].inputs
    pairs = two_texts.of_cells(values, places, [first, second], facts)
    return (first, second), Examples(pairs, targets if chosen[0].targets else None, places)


def _target(values: list[Any], place: str, chosen: Columns, facts: Facts) -> str:
    try:
        found = [cells.label(value, place, name, None) for value, name in zip(values, chosen.targets, strict=True)]
    except SeriatimError as error:
        facts.trouble(error)
        return ""
    return ", ".join(", ".join(one) if isinstance(one, tuple) else one for one in found)


def _count(report: TwoTextsReport, names: tuple[str, str], examples: Examples) -> None:
    pairs = _pairs(examples)
    targets = examples.targets if isinstance(examples.targets, list) else []
    report.half = sum(bool(a.strip()) != bool(b.strip()) for a, b in pairs)
    report.duplicates = len(pairs) - len(set(pairs))
    report.identical = sum(a == b for a, b in pairs)
    if targets:
        several = Counter(pair for pair, _ in set(zip(pairs, targets, strict=True)))
        report.contradictions = sum(number > 1 for number in several.values())
        counts = Counter(target for target in targets if target)
        report.targets, report.distinct_targets = counts.most_common(LABELS), len(counts)
    few = len(set(targets)) <= len(targets) // 2  # labels are drawn each alike, numbers together
    shares = ExampleSettings.model_fields["fractions"].default
    parts = {name: partition.take(examples, []) for name in partition.NAMES}
    parts |= partition.drawn(examples, shares, numeric=not few)
    report.split = {name: len(part) for name, part in parts.items()}
    for index, name in enumerate(names):
        held = [pair[index] for part in ("valid", "test") for pair in _pairs(parts[part])]
        train = [pair[index] for pair in _pairs(parts["train"])]
        report.sides[name] = side_of([pair[index] for pair in pairs], train, held, list(examples.places))


def _remarks(report: TwoTextsReport, examples: Examples) -> Iterator[str]:
    pairs = _pairs(examples)
    if report.half:
        where = "; ".join(_places(examples, [bool(a.strip()) != bool(b.strip()) for a, b in pairs]))
        yield f"rows of which one text is empty: {report.half:,} ({where})"
    if report.identical:
        where = "; ".join(_places(examples, [a == b for a, b in pairs]))
        yield f"rows of which both texts are the same: {report.identical:,} ({where})"
    if report.duplicates:
        yield f"rows that repeat both texts of an earlier one: {report.duplicates:,}; parts drawn at random share some"
    if report.contradictions:
        yield f"pairs of texts that come with several targets: {report.contradictions:,}"
    if report.distinct_targets == 1:
        yield f'all rows have the target "{report.targets[0][0]}": there is nothing to learn'
    whole = "\n".join(text for pair in pairs for text in pair)
    if marks := whole.count("\ufffd"):
        yield f"{marks:,} replacement characters (U+FFFD): text was lost before it came here"
    if controls := len(CONTROL.findall(whole)):
        yield f"{controls:,} control characters"


def _pairs(examples: Examples) -> list[two_texts.Pair]:
    return examples.inputs if isinstance(examples.inputs, list) else []


def _places(examples: Examples, marked: list[bool]) -> list[str]:
    return [examples.place(row) for row, mark in enumerate(marked) if mark][:SHOWN]
