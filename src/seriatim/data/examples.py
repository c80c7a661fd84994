"""Labelled examples, in parts: what classify and regress learn from, choose by and are measured on.

A source is a table (a column of text, of lists of numbers or of paths of pictures, two columns of text, or several
columns of numbers, and a target), a file or a folder for each class, of texts or of pictures, arrays with a file of
labels, or a name of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from seriatim.core.config import Settings
from seriatim.core.errors import SeriatimError

from . import catalogue, partition, two_texts
from .array_files import is_arrays
from .arrays import holds_images
from .columns import Columns
from .corpus import fetching
from .decoding import Facts, decodes
from .fractions import Fractions
from .labelled import Gathered, gather
from .notes import Notes
from .picture_files import Form, is_picture
from .picture_settings import PictureSettings
from .picture_sources import PictureFiles, from_files, from_table, prepared, shown
from .pictures import Pictures
from .ready import from_arrays, last_part, made_parts
from .sequences import Examples, Parts, Sequences
from .sources import find_path, locate
from .tables import NoColumnError
from .tokenizers import TokenizerSettings, with_kind

Notify = Callable[[str], None]


class ExampleSettings(Settings):
    source: str = Field(
        description="a table (CSV, TSV, JSONL, Parquet), a folder with a file or a folder for each class (of texts or "
        "of pictures), arrays (.npy, .npz, .mat, IDX), or a name of the catalogue"
    )
    valid: str | None = Field(None, description="the file to validate on; without one a part of the source")
    test: str | None = Field(None, description="the file to test on; without one a part of the source")
    column: str | None = Field(
        None,
        description="the input: a column of text, of lists of numbers or of paths of pictures, two texts at once as "
        "a,b, or numbers in columns as a,b,c or a..z",
    )
    target: str | None = Field(
        None, description="the column to predict, or several as a,b; for arrays the file of labels or the array's name"
    )
    split: str | None = Field(None, description="the column that says train, valid or test")
    kind: Literal["auto", "text", "numbers", "pictures"] = Field("auto", description="what the input holds")
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
    pictures: PictureSettings = Field(default_factory=PictureSettings, description="how pictures are read")
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
    pictures: bool = False,
) -> Parts:
    """The parts of the source, checked. `numeric_target`: numbers are to be predicted, not labels. `pictures`: what
    may be read as pictures or as sequences is read as pictures."""
    notes = Notes(notify)
    if pictures and settings.kind == "auto" and holds_images(settings.source):
        settings = settings.model_copy(update={"kind": "pictures"})
    made = made_parts(settings.source, data_dir, numeric_target, _how(settings))
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
    others: dict[str, Examples] = {}
    for name, one in given.items():
        others[name], _, empty = partition.without_empty(Examples(one.inputs, one.targets, one.places))
        notes.extend(empty)
    parts = partition.split(examples, said, others, settings.fractions, numeric_target, notes)
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
    form: Form | None = None,
) -> Examples:
    """All examples of another source, read by the same settings: what a trained model is evaluated on.

    `numeric_input` says what the model knows, so that a column of texts such as "42" is not taken for numbers;
    `columns` are those it was trained on, and are taken again where the source has them; `pairs` says whether an input
    of it is two texts; `form` is that of the pictures it knows.
    """
    notes = Notes(notify)
    settings = _for_another(source, settings, numeric_input, form)
    made = made_parts(source, data_dir, numeric_target, _how(settings))
    if made is not None:
        notes.extend(made.notes)
        return last_part(source, made, numeric_input)
    gathered = _known(columns, settings, lambda s: _gather(source, s, data_dir, notes, True, numeric_target)[0])
    gathered = shown(gathered, source, settings.pictures, notes, form)
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
    form: Form | None = None,
) -> Examples:
    """Only the inputs, a row for each row of the source and for each line of a text file, the empty ones too."""
    settings = _for_another(source, settings, numeric_input, form)
    made = made_parts(source, data_dir, None, _how(settings))
    if made is not None:
        return replace(last_part(source, made, numeric_input), targets=None)
    gathered = _known(columns, settings, lambda s: _gather(source, s, data_dir, Notes(None), False, False)[0])
    every = settings.pictures.model_copy(update={"broken": "refuse"})  # a row for each row
    gathered = shown(gathered, source, every, Notes(None), form)
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


def _for_another(
    source: str, settings: ExampleSettings, numeric: bool | None, form: Form | None = None
) -> ExampleSettings:
    """The settings of a trained model for a source that it was not trained on."""
    known = "text" if numeric is False else "numbers" if numeric else settings.kind
    kind = known if form is None else "pictures"
    path = Path(source).expanduser()
    readable = path.is_file() and not is_arrays(path) and not is_picture(path)
    plain = readable and all(decodes(raw, "utf-8") for raw in find_path(path).raws)
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
        return shown(whole, settings.source, settings.pictures, notes), {}
    kind = "numbers" if isinstance(whole.inputs, Sequences) else "text"
    kind = "pictures" if isinstance(whole.inputs, Pictures | PictureFiles) else kind
    like = settings.model_copy(update={"kind": kind})
    pinned = Columns(whole.columns.inputs, whole.columns.targets, named=True) if whole.columns else None
    read = {name: _gather(path, like, data_dir, notes, True, numeric, pinned)[0] for name, path in given.items()}
    whole.parts = None
    if isinstance(whole.inputs, PictureFiles):
        whole, *others = prepared([whole, *read.values()], settings.pictures, notes)
        return whole, dict(zip(read, others, strict=True))
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
        gathered = from_arrays(path, settings, targets, numeric)
        notes.extend(gathered.notes)
        return gathered, given
    if (of_pictures := from_files(path, settings.kind, targets, numeric)) is not None:
        notes.extend(of_pictures.notes)
        return of_pictures, given
    facts = Facts()
    found = find_path(path)
    gathered = gather(found, settings, targets, numeric, facts, pinned)
    notes.extend([*found.notes, *facts.notes, *gathered.notes])
    gathered = from_table(gathered, path, settings.kind, settings.pictures)
    if facts.crlf:
        notes.extend([f"turned {facts.crlf:,} Windows line ends (CRLF) into \\n"])
    return gathered, given


def _how(settings: ExampleSettings) -> PictureSettings | None:
    """How images are read as pictures, where they are to be."""
    return settings.pictures if settings.kind == "pictures" else None


def _alike(whole: Gathered, other: Gathered) -> None:
    if isinstance(whole.inputs, Pictures) and isinstance(other.inputs, Pictures):
        if whole.inputs.shape != other.inputs.shape:
            cause = f"{other.places[0]}: pictures of another size than those of the training file"
            raise SeriatimError("data.pictures", cause, "name one size for both: data.pictures.side")
        return
    if len(whole.features) != len(other.features):
        cause = f"{other.places[0]}: {len(other.features)} numbers a step, {len(whole.features)} in the training file"
        raise SeriatimError("data.features", cause, "give files of the same form")
