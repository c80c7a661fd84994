"""Which columns of a table are input, target and part: as named, else guessed where there is no doubt, and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seriatim.core.errors import SeriatimError

from .tables import Heading, no_column

TARGETS = ("label", "labels", "target", "class", "sentiment", "y")
SPLITS = ("split", "set", "part", "partition", "subset")
PARTS = {
    "train": "train", "training": "train",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid", "development": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip
# Names of two texts that belong together, as the usual collections have them.
PAIRS = (
    ("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("text1", "text2"), ("texta", "textb"),
    ("question1", "question2"), ("premise", "hypothesis"), ("question", "sentence"), ("query", "passage"),
)  # fmt: skip
FLIP = "validation"  # a column of yes and no beside one of train and test, as the benchmark FLIP has it


@dataclass(frozen=True)
class Columns:
    inputs: list[str]
    targets: list[str]
    split: str | None = None
    validation: str | None = None
    named: bool = False  # the input was named by the user
    split_named: bool = False

    @property
    def all(self) -> list[str]:
        return [*self.inputs, *self.targets, *(name for name in (self.split, self.validation) if name)]


def choose(heading: Heading, settings: Any, targets: bool, notes: list[str]) -> Columns:
    """The columns by the settings and by the heading. Without `targets` only the input is looked for."""
    named = named_columns(heading, settings.column)
    target = named_columns(heading, settings.target) if targets else _known_targets(heading, settings)
    split = _split(heading, settings, {*named, *target})
    two = [] if named or settings.kind == "numbers" else _two_texts(heading, [*target, *split])
    shown = _picture(heading, settings, [*target, *split]) if not named and not two else []
    if targets and not target:
        target = [_guess_target(heading, named or two or shown, split)]
        notes.append(f'{heading.name}: took column "{target[0]}" as the target')
    if two:
        notes.append(f'{heading.name}: took columns "{two[0]}" and "{two[1]}" as the two texts of the input')
    if shown:
        notes.append(f'{heading.name}: took column "{shown[0]}" as the paths of pictures')
    inputs = named or two or shown or [_guess_input(heading, [*target, *split], notes)]
    if twice := next((name for name in inputs if name in target and targets), None):
        cause = f'{heading.name}: column "{twice}" cannot be input and target'
        raise SeriatimError("data.column", cause, "name others with --column and --target")
    if not targets:
        return Columns(inputs, [], named=bool(named))
    return Columns(
        inputs,
        target,
        split[0] if split else None,
        split[1] if len(split) > 1 else None,
        named=bool(named),
        split_named=settings.split is not None,
    )


def named_columns(heading: Heading, names: str | None) -> list[str]:
    """ "a", "a,b,c" or "a..z" (all from a to z) as columns; a name that is a column as it stands is that column."""
    if names is None:
        return []
    there = heading.columns
    if names in there:
        return [names]
    found: list[str] = []
    for part in (one.strip() for one in names.split(",")):
        first, dots, last = part.partition("..")
        if part in there or not dots:
            ends = [part]
        else:
            ends = [first.strip(), last.strip()]
        for name in ends:
            if name not in there:
                raise no_column(heading.name, name, there)
        if len(ends) == 2:
            found += there[there.index(ends[0]) : there.index(ends[1]) + 1]
        else:
            found.append(part)
    if not found:
        cause = f'{heading.name}: "{names}" names no columns: the second stands before the first'
        raise SeriatimError("data.column", cause, f"its columns are, in order: {', '.join(there)}")
    return found


def part_of(value: Any) -> str | None:
    """train, valid or test; None for other values."""
    return PARTS.get(str(value).strip().lower())


def _split(heading: Heading, settings: Any, taken: set[str]) -> list[str]:
    """The column that says the part, if there is one, and the one beside it that takes a part of train for valid."""
    if settings.split is not None:
        if settings.split not in heading.columns:
            raise no_column(heading.name, settings.split, heading.columns)
        found = [settings.split]
    else:
        found = [name for name in heading.columns if name.lower() in SPLITS and name not in taken][:1]
    if found:
        found += [name for name in heading.columns if name.lower() == FLIP and name not in {*taken, *found}][:1]
    return found


def _known_targets(heading: Heading, settings: Any) -> list[str]:
    """Columns that are certainly no input, in a file that need not have a target."""
    if settings.target is not None:
        return [name for name in heading.columns if name in {settings.target, *settings.target.split(",")}]
    return [name for name in heading.columns if name.lower() in TARGETS]


def _guess_target(heading: Heading, named: list[str], split: list[str]) -> str:
    free = [name for name in heading.columns if name not in named and name not in split]
    likely = [name for name in free if name.lower() in TARGETS]
    if len(likely) == 1:
        return likely[0]
    if named and len(free) == 1:
        return free[0]
    numbers = [name for name in free if heading.kinds[name] == "number"]
    if not named and len(free) == 2 and len(numbers) == 1:
        return numbers[0]
    which = (
        f"has several columns that may be the target ({', '.join(likely)})"
        if likely
        else "it is not clear which is the target"
    )
    raise SeriatimError(
        "data.column",
        f"{heading.name}: {which}; its columns are: {', '.join(heading.columns)}",
        f"name the column to predict with --target, for example --target {(likely or free or ['label'])[-1]}",
    )


def _two_texts(heading: Heading, taken: list[str]) -> list[str]:
    """Two columns of text whose names say that they belong together, where no others say so, too."""
    bare = {
        name.lower().replace("_", "").replace("-", "").replace(" ", ""): name
        for name in heading.columns
        if heading.kinds[name] == "text" and name not in taken
    }
    found = [[bare[first], bare[second]] for first, second in PAIRS if first in bare and second in bare]
    return found[0] if len(found) == 1 else []


def _picture(heading: Heading, settings: Any, taken: list[str]) -> list[str]:
    """The only column that names files of pictures, where there is one."""
    found = [name for name in heading.pictures if name not in taken]
    return found if len(found) == 1 and settings.kind in ("auto", "pictures") else []


def _guess_input(heading: Heading, taken: list[str], notes: list[str]) -> str:
    free = [name for name in heading.columns if name not in taken]
    likely = [name for name in free if heading.kinds[name] == "list"] or [
        name for name in free if heading.kinds[name] == "text"
    ]
    if len(likely) == 1:
        if len(free) > 1 or taken:
            notes.append(f'{heading.name}: took column "{likely[0]}" as the input')
        return likely[0]
    which = "several columns that may be the input" if likely else "no column of text"
    remedy = "several numbers make a sequence: --column a,b or a..z"
    if likely:
        two = f"; two texts at once: --column {likely[0]},{likely[1]}" if heading.kinds[likely[0]] == "text" else ""
        remedy = f"for example --column {likely[0]}{two}"
    raise SeriatimError(
        "data.column",
        f"{heading.name}: has {which}; its columns are: {', '.join(heading.columns)}",
        f"name the input with --column; {remedy}",
    )
