"""Labelled examples, in parts: what classify and regress learn from, choose by and are measured on.

A source is a table (a column of text or of lists of numbers, two columns of text, or several columns of numbers, and a
target), a file or a folder for each class, arrays with a file of labels, or a name of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from seriatim.core.config import Settings
from seriatim.core.errors import SeriatimError

from . import catalogue, partition, two_texts
from .array_files import is_arrays
from .columns import Columns
from .corpus import fetching
from .decoding import Facts, decodes
from .fractions import Fractions
from .labelled import Gathered, gather
from .notes import Notes
from .ready import from_arrays, last_part, made_parts
from .sequences import NOTHING, Examples, Parts, Sequences
from .sources import find_path, locate
from .tables import NoColumnError
from .tokenizers import TokenizerSettings, with_kind

Notify = Callable[[str], None]


class ExampleSettings(Settings):
    source: str = Field(
        description="a table (CSV, TSV, JSONL, Parquet), a folder with a file or a folder for each class, arrays "
        "(.npy, .npz, .mat, IDX), or a name of the catalogue"
    )
    valid: str | None = Field(None, description="the file to validate on; without one a part of the source")
    test: str | None = Field(None, description="the file to test on; without one a part of the source")
    column: str | None = Field(
        None,
        description="the input: a column of text or of lists of numbers, two texts at once as a,b, or numbers in "
        "columns as a,b,c or a..z",
    )
    target: str | None = Field(
        None, description="the column to predict, or several as a,b; for arrays the file of labels or the array's name"
    )
    split: str | None = Field(None, description="the column that says train, valid or test")
    kind: Literal["auto", "text", "numbers"] = Field("auto", description="what the input columns hold")
    separator: str | None = Field(
        None, min_length=1, description="what stands between several labels in one cell, such as |"
    )
    encoding: str = Field("utf-8", description="the encoding of the files, such as utf-8, utf-16 or cp1252")
    fractions: Fractions = Field(
        (0.8, 0.1, 0.1), description="the shares of training, validation and test where the data does not say"
    )
    scale: Literal["standard", "none"] = Field(
        "standard", description="numbers: to mean 0 and deviation 1 by the training part, or as they are"
    )
    tokenizer: TokenizerSettings | None = Field(
        None, description="how text becomes tokens; by default words in small letters, or characters without words"
    )

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        return with_kind(given, kind="word", lowercase=True)


def read(
    settings: ExampleSettings,
    data_dir: str | None = None,
    notify: Notify | None = None,
    numeric_target: bool = False,
) -> Parts:
    """The parts of the source, checked. `numeric_target`: numbers are to be predicted, not labels."""
    notes = Notes(notify)
    made = made_parts(settings.source, data_dir, numeric_target)
    if made is not None:
        notes.extend(made.notes)
        notes.extend(partition.told({name: made.part(name) for name in partition.NAMES}, numeric_target))
        return replace(made, notes=list(notes))
    settings = _catalogued(settings)
    whole, given = _gather_all(settings, data_dir, notes, numeric_target)
    examples, rows, empty = partition.without_empty(Examples(whole.inputs, whole.targets, whole.places))
    notes.extend(empty)
    if not len(examples):
        raise _nothing(settings.source)
    said = None if whole.parts is None else [whole.parts[row] for row in rows]
    parts = _split(examples, said, given, settings, numeric_target, notes)
    if not len(parts["train"]):
        raise _nothing(settings.source)
    if not numeric_target:
        partition.check_labels(parts)
    notes.extend(partition.told(parts, numeric_target))
    found = Parts(parts["train"], parts["valid"], parts["test"], list(notes), features=whole.features)
    chosen = whole.columns
    columns = {} if chosen is None else {"column": ",".join(chosen.inputs), "target": ",".join(chosen.targets)}
    return replace(found, fingerprint=partition.fingerprint(parts), columns=columns)


def read_single(
    source: str,
    settings: ExampleSettings,
    data_dir: str | None = None,
    notify: Notify | None = None,
    numeric_target: bool = False,
    numeric_input: bool | None = None,
    columns: Mapping[str, str] | None = None,
    pairs: bool | None = None,
) -> Examples:
    """All examples of another source, read by the same settings: what a trained model is evaluated on.

    `numeric_input` says what the model knows, so that a column of texts such as "42" is not taken for numbers;
    `columns` are those it was trained on, and are taken again where the source has them; `pairs` says whether an input
    of it is two texts.
    """
    notes = Notes(notify)
    made = made_parts(source, data_dir, numeric_target)
    if made is not None:
        notes.extend(made.notes)
        return last_part(source, made, numeric_input)
    settings = _for_another(source, settings, numeric_input)
    gathered = _known(columns, settings, lambda s: _gather(source, s, data_dir, notes, True, numeric_target)[0])
    inputs = two_texts.as_known(gathered, source, pairs)
    examples, _, empty = partition.without_empty(Examples(inputs, gathered.targets, gathered.places))
    notes.extend([*empty, f"examples: {len(examples):,}"])
    return examples


def read_inputs(
    source: str,
    settings: ExampleSettings,
    data_dir: str | None = None,
    numeric_input: bool | None = None,
    columns: Mapping[str, str] | None = None,
    pairs: bool | None = None,
) -> Examples:
    """Only the inputs, a row for each row of the source and for each line of a text file, the empty ones too."""
    made = made_parts(source, data_dir, None)
    if made is not None:
        return replace(last_part(source, made, numeric_input), targets=None)
    settings = _for_another(source, settings, numeric_input)
    gathered = _known(columns, settings, lambda s: _gather(source, s, data_dir, Notes(None), False, False)[0])
    return Examples(two_texts.as_known(gathered, source, pairs), None, gathered.places)


def _nothing(source: str) -> SeriatimError:
    return SeriatimError("data.empty", f"{source}: there is nothing to learn from", "give examples for training")


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _catalogued(settings: ExampleSettings) -> ExampleSettings:
    """With what the catalogue knows about reading a data set, where the settings say nothing else."""
    if Path(settings.source).expanduser().exists() or settings.source not in catalogue.ENTRIES:
        return settings
    defaults = {name: info.default for name, info in ExampleSettings.model_fields.items()}
    options = catalogue.ENTRIES[settings.source].options
    return settings.model_copy(
        update={name: value for name, value in options.items() if getattr(settings, name) == defaults[name]}
    )


def _for_another(source: str, settings: ExampleSettings, numeric: bool | None) -> ExampleSettings:
    """The settings of a trained model for a source that it was not trained on."""
    kind = settings.kind if numeric is None else "numbers" if numeric else "text"
    path = Path(source).expanduser()
    plain = path.is_file() and not is_arrays(path) and all(decodes(raw, "utf-8") for raw in find_path(path).raws)
    encoding = "utf-8" if plain else settings.encoding  # that of the training data holds where this one is not UTF-8
    update = {"source": source, "split": None, "kind": kind, "encoding": encoding}
    if is_arrays(path) and source != settings.source and Path(settings.target or "").expanduser().is_file():
        update["target"] = None  # the labels of the training file are not those of another
    return _catalogued(settings.model_copy(update=update))


def _known(
    columns: Mapping[str, str] | None, settings: ExampleSettings, read: Callable[[ExampleSettings], Gathered]
) -> Gathered:
    """Read by the columns that the model was trained on; a source with a single column of another name may do, too."""
    missing = {name: value for name, value in (columns or {}).items() if getattr(settings, name) is None}
    if missing:
        try:
            return read(settings.model_copy(update=missing))
        except NoColumnError as error:
            if len(error.names) > 1:  # which of them takes its place is for the user to say
                which = "those that take their" if "," in missing.get("column", "") else "the one that takes its"
                remedy = f"name {which} place with --column (or --target); {error.remedy}"
                raise SeriatimError(error.code, error.cause, remedy) from None
    return read(settings)


def _gather_all(
    settings: ExampleSettings, data_dir: str | None, notes: Notes, numeric: bool
) -> tuple[Gathered, dict[str, Gathered]]:
    """The source, and the files given for validation and test, read by the same columns."""
    files = settings.valid is not None or settings.test is not None
    if files and settings.split is not None:
        cause = f'both the column "{settings.split}" and files say the parts'
        raise SeriatimError("data.split", cause, "leave data.split away, or --valid and --test")
    whole, given = _gather(settings.source, settings, data_dir, notes, True, numeric)
    if files:
        named = {"valid": settings.valid, "test": settings.test}
        given = {name: path for name, path in named.items() if path is not None}
    if not given:
        return whole, {}
    kind = "numbers" if isinstance(whole.inputs, Sequences) else "text"
    like = settings.model_copy(update={"kind": kind})
    pinned = Columns(whole.columns.inputs, whole.columns.targets, named=True) if whole.columns else None
    read = {name: _gather(path, like, data_dir, notes, True, numeric, pinned)[0] for name, path in given.items()}
    whole.parts = None
    for other in read.values():
        _alike(whole, other)
    return whole, read


def _gather(
    source: str,
    settings: ExampleSettings,
    data_dir: str | None,
    notes: Notes,
    targets: bool,
    numeric: bool,
    pinned: Columns | None = None,
) -> tuple[Gathered, dict[str, str]]:
    """One source, and the files that the catalogue gives with it."""
    located = locate(source, data_dir, fetching(source, notes.notify))
    path = Path(source).expanduser() if located is None else located.train
    given = {}
    if located is not None:
        notes.extend([f"{source}: {located.source}"])
        given = {name: str(one) for name in ("valid", "test") if (one := getattr(located, name)) is not None}
    if is_arrays(path):
        return from_arrays(path, settings, targets, numeric), given
    facts = Facts()
    found = find_path(path)
    gathered = gather(found, settings, targets, numeric, facts, pinned)
    notes.extend([*found.notes, *facts.notes, *gathered.notes])
    if facts.crlf:
        notes.extend([f"turned {facts.crlf:,} Windows line ends (CRLF) into \\n"])
    return gathered, given


def _alike(whole: Gathered, other: Gathered) -> None:
    if len(whole.features) != len(other.features):
        cause = f"{other.places[0]}: {len(other.features)} numbers a step, {len(whole.features)} in the training file"
        raise SeriatimError("data.features", cause, "give files of the same form")


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _split(
    examples: Examples,
    said: list[str] | None,
    given: dict[str, Gathered],
    settings: ExampleSettings,
    numeric: bool,
    notes: Notes,
) -> dict[str, Examples]:
    """As files say, else as the data says, else drawn. Where only the validation part is missing, it is drawn."""
    parts = {"train": examples, "valid": NOTHING, "test": NOTHING}
    for name, one in given.items():
        parts[name], _, empty = partition.without_empty(Examples(one.inputs, one.targets, one.places))
        notes.extend(empty)
    if said is not None:
        of = np.array(said)
        parts = {name: partition.take(examples, np.flatnonzero(of == name)) for name in partition.NAMES}
    if given or said is not None:
        if not len(parts["valid"]) and settings.fractions[1] > 0 and len(parts["train"]) > 1:
            share = settings.fractions[1] / (settings.fractions[0] + settings.fractions[1])
            parts |= partition.drawn(parts["train"], (1 - share, share, 0.0), numeric)
            notes.extend([f"no validation part is given: drew {100 * share:.3g} % of the training examples for it"])
        if not len(parts["test"]):
            notes.extend(["no test part is given, so it is empty"])
        return parts
    parts |= {"train": NOTHING} | partition.drawn(examples, settings.fractions, numeric)
    shares = " / ".join(f"{100 * share:g}" for share in settings.fractions)
    if any(share > 0 and not len(parts[name]) for name, share in zip(partition.NAMES, settings.fractions, strict=True)):
        raise SeriatimError(
            "data.too-short",
            f"too few to split {shares} %: {len(examples):,} examples"
            + ("" if numeric else partition.of_classes(examples)),
            "give more, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0",
        )
    by = ", each class alike" if examples.targets and isinstance(examples.targets[0], str) else ""
    notes.extend([f"split {shares} % at random{by}, in the same way each time"])
    return parts
