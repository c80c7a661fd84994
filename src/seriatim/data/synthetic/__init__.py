"""Synthetic data sets, made from a seed: the same values on every machine.

`SETS` maps names to sets; `synthetic_source("adding:200")` opens one as any other data.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ...core.errors import SeriatimError
from ..source import Source, Stream
from . import digit_scenes, scenes, sequences, translation
from .sequences import Columns, Splits

__all__ = ["SETS", "Columns", "Option", "Splits", "SyntheticSet", "is_generated", "parse_name", "synthetic_source"]


@dataclass(frozen=True)
class Option:
    """The number behind the colon of a name such as "adding:200"."""

    name: str
    default: int
    minimum: int
    maximum: int


@dataclass(frozen=True)
class SyntheticSet:
    """A data set made from a seed; it has either `text` or `columns`.

    Args:
        name: By which `open_source` finds it.
        summary: One line for the catalogue.
        task: For which it is made, as the catalogue lists it.
        size: Bytes, about.
        text: Returns a plain text.
        columns: Returns split → column → values, one per row. Takes the option and the splits of the base set, if there
            are such. A single split "train" is to be split by the policy of the task.
        option: What may be chosen.
        base: The catalogue set it is made of, with the columns "image" (n, 28, 28) uint8 and "label" by split.
        license: Of the data.
    """

    name: str
    summary: str
    task: str
    size: int
    text: Callable[[], str] | None = None
    columns: Callable[..., Splits] | None = None
    option: Option | None = None
    base: str | None = None
    license: str = "CC0"


SETS: Mapping[str, SyntheticSet] = {
    entry.name: entry
    for entry in (
        SyntheticSet(
            "pydoc",
            "the help topics of the running Python; the text differs between versions of Python",
            "language",
            465_000,
            text=sequences.pydoc,
            license="PSF",
        ),
        SyntheticSet(
            "brackets",
            "20,000 lines of nested brackets of four kinds (a Dyck language), made from a seed",
            "language",
            641_000,
            text=sequences.brackets,
        ),
        SyntheticSet(
            "copying",
            "20,000 lines such as abc=abc: remember and repeat, made from a seed",
            "language",
            300_000,
            text=sequences.copying,
        ),
        SyntheticSet(
            "adding",
            "the adding problem: add the two marked numbers of a sequence of 600; adding:200 has 200 steps",
            "regress",
            249_600_000,
            columns=sequences.adding,
            option=Option("length", 600, 2, 10_000),
        ),
        SyntheticSet(
            "copy",
            "copy memory: remember ten symbols over 1,000 steps; copy:100 has 100 steps",
            "tag",
            187_680_000,
            columns=sequences.copy_memory,
            option=Option("length", 1000, 1, 10_000),
        ),
        SyntheticSet(
            "curve",
            "a number for a number: 400 points of 2 sin x + x^0.8 with noise; curve:50 has 50 points",
            "regress",
            5_600,
            columns=sequences.curve,
            option=Option("number of points", 400, 2, 10_000),
        ),
        SyntheticSet(
            "sine",
            "10,000 series of 51 steps: two sine waves of random frequency and phase, and noise",
            "forecast",
            2_040_000,
            columns=sequences.sine,
        ),
        *(
            SyntheticSet(
                name,
                f"21,500 pairs: 1 to 20 letters and the same letters {how}, made from a seed; {name}:40 has up to 40",
                "translate",
                880_000,
                columns=partial(sequences.letter_pairs, answer),
                option=Option("length", 20, 2, 1_000),
            )
            for name, how, answer in (
                ("copy-pairs", "again", list),
                ("reverse-pairs", "backwards", lambda letters: letters[::-1]),
                ("sort-pairs", "in order", sorted),
            )
        ),
        SyntheticSet(
            "dates",
            "20,000 dates, numbers, times and short sentences in English and French, made from a seed",
            "translate",
            1_803_823,
            columns=translation.date_pairs,
        ),
        SyntheticSet(
            "scenes",
            "14,000 drawn images of one or two shapes, all captions of each, and their boxes; scenes:3 has up to three",
            "caption",
            172_032_000,
            columns=scenes.shape_scenes,
            option=Option("number of shapes", 2, 2, 3),
        ),
        SyntheticSet(
            "digits",
            "14,000 images of one or two colored handwritten digits of MNIST, all captions of each, and their boxes",
            "caption",
            172_032_000,
            columns=digit_scenes.digit_scenes,
            base="mnist",
            license="CC BY-SA 3.0",
        ),
    )
}


def parse_name(spec: str) -> tuple[SyntheticSet, int | None] | None:
    """Returns the set and the option of a name such as "adding" or "adding:200"; None for other names."""
    name, colon, value = spec.partition(":")
    entry = SETS.get(name)
    if entry is None or (colon and entry.option is None):
        return None
    option = entry.option
    if option is None or not colon:
        return entry, None if option is None else option.default
    remedy = f"write for example {name}:{option.default}"
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise SeriatimError("data.length", f'"{spec}": "{value}" is not a {option.name}', remedy)
    if not option.minimum <= int(value) <= option.maximum:
        limits = f"between {option.minimum} and {option.maximum:,}"
        raise SeriatimError("data.length", f"{name}: a {option.name} of {int(value):,} is not {limits}", remedy)
    return entry, int(value)


def is_generated(spec: str) -> bool:
    """Returns whether a name such as "copy:100" is that of a synthetic set."""
    return spec.partition(":")[0] in SETS


def synthetic_source(spec: str, load_base: Callable[[str], Splits] | None = None) -> Source | None:
    """Returns the source of a name such as "adding:200"; None for a name that is not of these sets.

    Args:
        spec: The name, with its option behind a colon.
        load_base: Returns the splits of a catalogue set, for sets that are made of one; see `SyntheticSet.base`.
    """
    parsed = parse_name(spec)
    if parsed is None:
        return None
    entry, option = parsed
    if entry.text is not None:
        data = entry.text().encode()
        return Source(spec, (Stream(f"{spec}.txt", "txt", lambda: io.BytesIO(data), len(data)),))
    assert entry.columns is not None
    arguments: list[int | Splits] = [] if option is None else [option]
    if entry.base is not None:
        if load_base is None:
            cause = f"{spec} is made of the data set {entry.base}, which is not here"
            raise SeriatimError("data.missing", cause, f"open it by its name: --data {spec}")
        arguments.append(load_base(entry.base))
    splits = entry.columns(*arguments)
    columns = {split: cast(Mapping[str, Sequence[Any]], values) for split, values in splits.items()}  # arrays, too
    if len(columns) == 1:
        return Source(spec, columns=columns["train"])
    sources = {split: Source(f"{spec}, {split}", columns=values) for split, values in columns.items()}
    return Source(spec, columns=columns["train"], splits=sources)
