"""Synthetic data sets, generated from a seed: the same values on every machine.

`SETS` maps names to sets; `open_source("adding:200")` opens one as any other data. A set names the function that
generates it, as an entry point does: its module is imported when the set is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import SeriatimError

if TYPE_CHECKING:
    from ..stream import Stream

__all__ = ["SETS", "Columns", "Option", "Splits", "SyntheticSet", "generate", "parse_name"]

Columns = Mapping[str, Sequence[object] | np.ndarray]  # one value per row
Splits = Mapping[str, Columns]
GENERATORS = "seriatim.lab.synthetic"  # the package of the modules that sets name


@dataclass(frozen=True)
class Option:
    """The number behind the colon of a name such as "adding:200"."""

    name: str
    default: int
    minimum: int
    maximum: int


@dataclass(frozen=True)
class SyntheticSet:
    """A data set made from a seed.

    Args:
        name: By which `open_source` finds it.
        task: For which it is made.
        summary: One line for the catalogue.
        size: Bytes, about.
        generator: Module and function, as "sequences:adding". The function returns a plain text, or split → column →
            values, one per row; a single split "train" is split by the policy of the task. It takes the option and the
            splits of the base set, if there are such.
        option: What may be chosen.
        base: The catalogue set it is made of, with the columns "image" (n, 28, 28) uint8 and "label" by split.
        license: Of the data.
    """

    name: str
    task: str
    summary: str
    size: int
    generator: str
    option: Option | None = None
    base: str | None = None
    license: str = "CC0"

    def generate(self, *arguments: int | Splits) -> str | Splits:
        """Returns the text or the splits."""
        module, _, function = self.generator.partition(":")
        values: str | Splits = getattr(importlib.import_module(f"{GENERATORS}.{module}"), function)(*arguments)
        return values


def _letter_pairs(name: str, how: str) -> SyntheticSet:
    summary = f"21,500 pairs: 1 to 20 letters and the same letters {how}, made from a seed; {name}:40 has up to 40"
    generator = f"sequences:{name.replace('-', '_')}"
    return SyntheticSet(name, "translate", summary, 880_000, generator, Option("length", 20, 2, 1_000))


_PYDOC = "the help topics of the running Python; the text differs between versions of Python"
_BRACKETS = "20,000 lines of nested brackets of four kinds (a Dyck language), made from a seed"
_COPYING = "20,000 lines such as abc=abc: remember and repeat, made from a seed"
_ADDING = "the adding problem: 52,000 sequences of 600 steps, two marked numbers to add; adding:200 has 200 steps"
_COPY = "copy memory: 11,500 sequences, ten symbols to remember over 1,000 steps; copy:200 over 200"
_CURVE = "a curve with noise: 700 points, y = 2 sin x + x^0.8; curve:50 has 50 for training"
_SINE = "10,000 series of 51 steps: two sine waves of random frequency and phase, and noise"
_DATES = "20,000 dates, numbers, times and short sentences in English and French, made from a seed"
_SCENES = "14,000 drawn images of one or two shapes, all captions of each, and their boxes; scenes:3 has up to three"
_DIGITS = "14,000 images of one or two colored handwritten digits of mnist, all captions of each, and their boxes"

_ALL = (
    SyntheticSet("pydoc", "language", _PYDOC, 465_000, "sequences:pydoc", license="PSF"),
    SyntheticSet("brackets", "language", _BRACKETS, 641_000, "sequences:brackets"),
    SyntheticSet("copying", "language", _COPYING, 300_000, "sequences:copying"),
    SyntheticSet("adding", "regress", _ADDING, 249_600_000, "sequences:adding", Option("length", 600, 2, 10_000)),
    SyntheticSet("copy", "tag", _COPY, 93_840_000, "sequences:copy_memory", Option("length", 1000, 1, 10_000)),
    SyntheticSet("curve", "regress", _CURVE, 5_600, "sequences:curve", Option("number of points", 400, 2, 10_000)),
    SyntheticSet("sine", "forecast", _SINE, 2_040_000, "sequences:sine"),
    _letter_pairs("copy-pairs", "again"),
    _letter_pairs("reverse-pairs", "backwards"),
    _letter_pairs("sort-pairs", "in order"),
    SyntheticSet("dates", "translate", _DATES, 1_803_823, "translation:date_pairs"),
    SyntheticSet("scenes", "caption", _SCENES, 172_032_000, "scenes:shape_scenes", Option("number of shapes", 2, 2, 3)),
    SyntheticSet(
        "digits", "caption", _DIGITS, 172_032_000, "scenes:digit_scenes", base="mnist", license="CC BY-SA 3.0"
    ),
)
SETS: Mapping[str, SyntheticSet] = {entry.name: entry for entry in _ALL}


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


def generate(spec: str, load_base: Callable[[str], Splits] | None = None) -> str | Splits | None:
    """Returns the text or the splits of a name such as "adding:200"; None for a name that is not of these sets.

    Args:
        spec: The name, with its option behind a colon.
        load_base: Returns the splits of a catalogue set, for sets that are made of one; see `SyntheticSet.base`.
    """
    parsed = parse_name(spec)
    if parsed is None:
        return None
    entry, option = parsed
    arguments: list[int | Splits] = [] if option is None else [option]
    if entry.base is not None:
        if load_base is None:
            cause = f"{spec} is made of the data set {entry.base}, which is not here"
            raise SeriatimError("data.missing", cause, f"open it by its name: --data {spec}")
        arguments.append(load_base(entry.base))
    return entry.generate(*arguments)


def read_image_splits(streams: Iterable[Stream]) -> Splits:
    """Returns the images (n,28,28) and labels (n,) of MNIST by split; the last twelfth of train is for validation."""
    arrays = {}
    for stream in streams:  # in the format IDX: a header, then bytes
        split = "train" if stream.name.startswith("train") else "test"
        images = "images" in stream.name
        values = np.frombuffer(stream.read_bytes(), np.uint8, offset=16 if images else 8)
        arrays[split, images] = values.reshape(-1, 28, 28) if images else values
    end = len(arrays["train", False]) * 11 // 12
    rows = {"train": ("train", slice(end)), "validation": ("train", slice(end, None)), "test": ("test", slice(None))}
    return {name: {"image": arrays[part, True][s], "label": arrays[part, False][s]} for name, (part, s) in rows.items()}
