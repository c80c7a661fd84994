"""Reading labelled examples: rows of tables, a file for each class, or a folder for each class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from seriatim.core.errors import SeriatimError

from . import cells, columns, tables, two_texts
from .columns import PARTS, Columns
from .decoding import Facts, Raw, check_encoding, decode
from .pictures import Pictures
from .sequences import Sequences
from .sources import Found, blocks

UNLABELLED = {"unsup", "unlabelled", "unlabeled"}
NO_CLASS = ("readme", "license", "licence")


@dataclass
class Gathered:
    """Examples as they were read, with the part each belongs to where the source says so."""

    inputs: list[Any] | Sequences | Pictures
    targets: list[Any] | None
    places: Sequence[str]
    parts: list[str] | None = None
    features: tuple[str, ...] = ()
    columns: Columns | None = None
    notes: list[str] = field(default_factory=list)


def gather(
    found: Found, settings: Any, targets: bool, numeric: bool, facts: Facts, pinned: Columns | None = None
) -> Gathered:
    """All examples of a source, by the columns of another source where those are `pinned`."""
    check_encoding(settings.encoding)
    if any(raw.kind != "text" for raw in found.raws):
        gathered = _from_tables(found, settings, targets, numeric, facts, pinned)
    else:
        gathered = _from_texts(found, settings, targets, numeric, facts)
    if targets and not gathered.places:
        raise SeriatimError("data.empty", f"{found.title}: holds no examples", "give a file with at least one row")
    return gathered


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _from_tables(
    found: Found, settings: Any, targets: bool, numeric: bool, facts: Facts, pinned: Columns | None
) -> Gathered:
    chosen: list[Columns] = [pinned] if pinned else []
    notes: list[str] = []

    def choose(heading: tables.Heading) -> list[str]:
        if not chosen:
            chosen.append(columns.choose(heading, settings, targets, notes))
        return chosen[0].all

    values: list[Any] = []
    answers: list[Any] = []
    places: list[str] = []
    splits: list[tuple[Any, Any]] = []
    by_file: list[str] = []
    for raw, part in _tables(found, notes):
        for place, row in tables.rows(raw, settings.encoding, facts, choose):
            one = chosen[0]
            places.append(place)
            by_file.append(part)
            if len(one.inputs) > 1:
                values.append([row[name] for name in one.inputs])
            else:
                values.append(cells.early(row[one.inputs[0]], place, one.inputs[0]))
            if targets:
                answers.append(_target([row[name] for name in one.targets], place, one, numeric, settings.separator))
            if one.split:
                splits.append((row[one.split], row[one.validation] if one.validation else None))
    if not places:
        return Gathered([], [], [])
    one = chosen[0]
    inputs: list[Any] | Sequences
    if len(one.inputs) == 2 and two_texts.are_texts(values, one.inputs, places, settings.kind):
        inputs = two_texts.of_cells(values, places, one.inputs, facts)
        if one.named:
            notes.append(f'columns "{one.inputs[0]}" and "{one.inputs[1]}" are the two texts of an input')
    elif len(one.inputs) > 1:
        inputs = cells.columns_as_sequences(values, places, one.inputs)
        notes.append(f"{len(one.inputs)} columns are a sequence of {len(one.inputs)} numbers")
    else:
        inputs = cells.inputs(values, places, one.inputs[0], settings.kind, one.named, facts)
    _same_kind(answers, places)
    features = _features(inputs, one.inputs)
    if all(by_file):
        parts: list[str] | None = by_file
    else:
        parts = _parts(splits, places, one, notes) if splits else None
    return Gathered(inputs, answers if targets else None, places, parts, features, one, notes)


def _tables(found: Found, notes: list[str]) -> Iterator[tuple[Raw, str]]:
    """The tables of a source with the part that each file's name says, if all say one."""
    there = [raw for raw in found.raws if raw.kind != "text"]
    if len(there) < len(found.raws):
        notes.append(f"left out {len(found.raws) - len(there):,} files that are no tables")
    if len(there) == 1:
        return iter([(there[0], "")])
    parts = [_part_in(raw.name) for raw in there]
    stems = {re.sub(r"\d+", "0", PurePosixPath(raw.name).name) for raw in there}
    if all(parts):
        notes.append("parts by the names of files: " + ", ".join(f"{raw.name}" for raw in there[:6]))
    elif len(stems) > 1:
        names = ", ".join(raw.name for raw in there[:10])
        raise SeriatimError(
            "data.several",
            f"{found.title}: holds {len(there)} tables: {names}",
            f"name one of them: --data …/{there[0].name}",
        )
    return iter(zip(there, parts if all(parts) else [""] * len(there), strict=True))


def _part_in(name: str) -> str:
    words = re.split(r"[^a-z]+", PurePosixPath(name).name.lower())
    found = {PARTS[word] for word in words if word in PARTS}
    return found.pop() if len(found) == 1 else ""


def _target(values: list[Any], place: str, one: Columns, numeric: bool, separator: str | None) -> Any:
    if len(values) > 1:
        if not numeric:
            return cells.indicated(values, place, one.targets)
        return tuple(
            cells.number(value, place, name, "regress predicts numbers")
            for value, name in zip(values, one.targets, strict=True)
        )
    make = cells.target_numbers if numeric else cells.label
    return make(values[0], place, one.targets[0], separator)


def _same_kind(answers: list[Any], places: Sequence[str]) -> None:
    """One label everywhere or several everywhere; as many numbers in the one row as in the other."""
    if not answers:
        return
    first = answers[0]
    for answer, place in zip(answers, places, strict=True):
        if isinstance(answer, tuple) != isinstance(first, tuple):
            cause = f"{place}: one target, where the first row has a list" if isinstance(first, tuple) else (
                f"{place}: a list of targets, where the first row has one"
            )  # fmt: skip
            raise SeriatimError("data.target", cause, "write all targets in the same way")
        numbers = isinstance(first, tuple) and any(isinstance(one, float) for one in (*first, *answer))
        if numbers and len(answer) != len(first):
            cause = f"{place}: {len(answer)} numbers to predict, where the first row has {len(first)}"
            raise SeriatimError("data.target", cause, "give every row the same number of targets")


def _features(inputs: list[Any] | Sequences, names: list[str]) -> tuple[str, ...]:
    if not isinstance(inputs, Sequences):
        return ()
    width = inputs.values.shape[1]
    if width > 1:
        return tuple(f"{names[0]}.{index + 1}" for index in range(width))
    return (names[0],) if len(names) == 1 else ("value",)


def _parts(splits: list[tuple[Any, Any]], places: list[str], one: Columns, notes: list[str]) -> list[str] | None:
    found = [columns.part_of(value) for value, _ in splits]
    if None in found:
        at = found.index(None)
        if not one.split_named:
            notes.append(f'column "{one.split}" holds {cells.shown(splits[at][0])} and says nothing about parts')
            return None
        raise SeriatimError(
            "data.split",
            f'{places[at]}: column "{one.split}" holds {cells.shown(splits[at][0])}, which is none of the parts',
            f"write one of: {', '.join(PARTS)}",
        )
    parts = [part or "" for part in found]
    how = f'parts by the column "{one.split}"'
    # The second column counts only where the first knows no validation part by itself.
    marks = [str("" if mark is None else mark).strip().lower() for _, mark in splits]
    if one.validation and "valid" not in parts and set(marks) <= cells.YES | cells.NO:
        parts = [
            "valid" if mark in cells.YES and part == "train" else part for part, mark in zip(parts, marks, strict=True)
        ]
        how += f', and of train those where "{one.validation}" is true for validation'
    notes.append(how)
    return parts


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _from_texts(found: Found, settings: Any, targets: bool, numeric: bool, facts: Facts) -> Gathered:
    notes: list[str] = []
    if not found.folder:
        if targets:
            raise SeriatimError(
                "data.column",
                f"{found.title}: plain text has no column for the target",
                "give a table (.csv, .tsv, .jsonl, .parquet), a folder with a file for each class, or arrays",
            )
        texts, places = _lines(found.raws, settings.encoding, facts)
        return _as_asked(Gathered(texts, None, places), settings, facts)
    if targets and numeric:
        raise SeriatimError(
            "data.column",
            f"{found.title}: files of text have labels, not numbers",
            "give a table with a column of numbers, or use the task classify",
        )
    files = _classes(found, notes)
    inputs: list[str] = []
    labels: list[str] = []
    places = []
    parts: list[str] = []
    for raw, label, part, whole in files:
        if whole:
            texts = ["".join(decode(raw, blocks(raw), settings.encoding, facts)).removesuffix("\n")]
            where = [raw.name]
        else:
            texts, where = _lines([raw], settings.encoding, facts)
        inputs += texts
        places += where
        labels += [label] * len(texts)
        parts += [part] * len(texts)
    answers = list(labels) if targets else None
    gathered = Gathered(inputs, answers, places, parts if all(parts) else None, notes=notes)
    return _as_asked(gathered, settings, facts)


def _as_asked(gathered: Gathered, settings: Any, facts: Facts) -> Gathered:
    """Lines of numbers where numbers are asked for."""
    if settings.kind != "numbers":
        return gathered
    texts = gathered.inputs if isinstance(gathered.inputs, list) else []
    inputs = cells.inputs(texts, gathered.places, "text", "numbers", True, facts)
    return replace(gathered, inputs=inputs, features=_features(inputs, ["value"]))


def _lines(raws: list[Raw], encoding: str, facts: Facts) -> tuple[list[str], list[str]]:
    texts, places = [], []
    for raw in raws:
        for number, line in enumerate(tables.lines(decode(raw, blocks(raw), encoding, facts)), 1):
            texts.append(line.removesuffix("\n"))
            places.append(f"{raw.name}, line {number}")
    return texts, places


def _classes(found: Found, notes: list[str]) -> list[tuple[Raw, str, str, bool]]:
    """Each file with its class, its part, and whether it is one example or one on each line."""
    named = [(raw, PurePosixPath(raw.name).parts[1:]) for raw in found.raws]
    while all(len(path) > 2 for _, path in named) and len({path[0] for _, path in named}) == 1:
        named = [(raw, path[1:]) for raw, path in named]  # a folder around all others says nothing
    left: list[Raw] = []
    parted = [(raw, path[1:], PARTS.get(path[0].lower(), "")) for raw, path in named if len(path) > 1]
    parted = [one for one in parted if one[2]]
    if parted:
        used = {raw.name for raw, _, _ in parted}
        left += [raw for raw, _ in named if raw.name not in used]
        notes.append("parts by folders: " + ", ".join(sorted({part for _, _, part in parted})))
    else:
        parted = [(raw, path, "") for raw, path in named]
    files: list[tuple[Raw, str, str, bool]] = []
    if any(len(path) > 1 for _, path, _ in parted):
        for raw, path, part in parted:
            if len(path) == 1 or path[0].lower() in UNLABELLED:
                left.append(raw)
            else:
                files.append((raw, path[0], part, True))
        notes.append("a folder for each class, a file for each example")
    else:
        for part in sorted({part for _, _, part in parted}):
            some = [(raw, path[0]) for raw, path, other in parted if other == part]
            left += [raw for raw, name in some if name.lower().startswith(NO_CLASS)]
            some = [(raw, name) for raw, name in some if not name.lower().startswith(NO_CLASS)]
            classes = class_names([name for _, name in some])
            files += [(raw, label, part, False) for (raw, _), label in zip(some, classes, strict=True)]
        notes.append("a file for each class, an example on each line")
    if left:
        notes.append(f"left out {len(left):,} files without a class: {', '.join(raw.name for raw in left[:3])}")
    return files


def class_names(names: list[str]) -> list[str]:
    """What tells files apart: the endings of film.neg and film.pos, the stems of neg.txt and pos.txt."""
    names = [name.removesuffix(".gz") for name in names]
    if len({PurePosixPath(name).suffix for name in names}) == 1:
        names = [PurePosixPath(name).stem for name in names]
    endings = [PurePosixPath(name).suffix for name in names]
    if len({PurePosixPath(name).stem for name in names}) == 1 and len(set(endings)) > 1 and all(endings):
        return [ending[1:] for ending in endings]
    return [PurePosixPath(name).stem or name for name in names] if len(set(endings)) > 1 else names
