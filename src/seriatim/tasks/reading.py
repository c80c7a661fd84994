"""Reading: from sources to a task and its splits, and from further data to rows. The hooks of a task are two:

    schema_for(schema, config, training)                   the fields, as the settings demand them
    clean(rows, source, config, diagnostics, predicting)   rows that are left out, normalization

Training, evaluation and prediction go through the same function, `read_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..core.errors import Diagnostics, SeriatimError
from ..data.catalogue import data_folder
from ..data.check import check
from ..data.dataset import Dataset
from ..data.kinds import Cell, CellError, Kind
from ..data.reader import options_of_source, read_dataset, read_header
from ..data.schema import Schema, normalize_name
from ..data.source import DataInput, Source, open_source
from ..data.split import split
from .processor import Tokenizers
from .values import Split, Splits

if TYPE_CHECKING:
    from .base import AnyTask, TaskConfig

T = TypeVar("T", bound="AnyTask")


@dataclass(frozen=True)
class Layout:
    """How the training data was laid out, by which further data is read."""

    columns: Mapping[str, str] = field(default_factory=dict)  # role → column names
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # role → kind
    data_dir: str | None = None  # the folder with local copies of catalogue data sets


def prepare(
    task_type: type[T],
    config: TaskConfig[Any],
    data: DataInput | None = None,
    validation: DataInput | None = None,
    test: DataInput | None = None,
    processor: Any = None,
    pretrained: Tokenizers | None = None,
    diagnostics: Diagnostics | None = None,
    data_dir: str | None = None,
) -> tuple[T, Splits[Any]]:
    """Reads, checks, splits and encodes the data, and returns the task and its splits.

    Args:
        task_type: The class of the task.
        config: The settings.
        data: A source that replaces `config.data.source`, such as a DataFrame.
        validation: A source of the validation split that replaces `config.data.validation`.
        test: A source of the test split that replaces `config.data.test`.
        processor: That of an existing run; by default one is fitted.
        pretrained: Tokenizers for the fit, by the name of their field.
        diagnostics: Receives notes; problems are raised after each stage.
        data_dir: The folder of catalogue data sets.
    """
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    settings = config.data
    source = open_source(settings.source if data is None else data, data_dir)
    specs = {
        "validation": settings.validation if validation is None else validation,
        "test": settings.test if test is None else test,
    }
    named = {name: open_source(spec, data_dir) for name, spec in specs.items() if spec is not None}
    named = {**source.splits, **named}  # a file that is named replaces only the split of its name
    source = named.pop("train", source)
    rows = read_rows(task_type, config, source, diagnostics)
    if "test" in named and specs["test"] is None and _lacks_targets(task_type, config, named["test"], rows):
        diagnostics.note(f"{named['test'].name}: has no targets, and is left out")
        del named["test"]
    like = layout_of(task_type, rows)
    named_columns = config.data.columns
    predefined = {
        name: task_type.held_out(
            read_rows(task_type, config, part, diagnostics, like, columns=named_columns, train=rows), diagnostics
        )
        for name, part in named.items()
    }
    for dataset in (rows, *predefined.values()):
        check(dataset, task_type.schema, diagnostics)
    diagnostics.raise_problems()
    policy, fractions = task_type.choose_split(config, rows)
    datasets = split(rows, policy, fractions, diagnostics, predefined, task_type.schema)
    fitted = processor is None
    if processor is None:
        processor = task_type.processor_type.fit(datasets["train"], config, pretrained or {}, diagnostics)
    folder = data_folder([settings.source if data is None else data, *specs.values()], data_dir)
    layout = Layout(rows.column_names, task_type.stored_kinds(rows, source), folder)
    task = task_type(config, processor, layout)
    parts = {
        name: Split(name, part, task.encode_split(name, part, diagnostics))
        for name, part in datasets.items()
        if len(part)
    }
    diagnostics.raise_problems()
    splits = task.link(Splits(parts), diagnostics)
    return task.select(splits, diagnostics) if fitted else (task, splits)


def read_split(
    task: AnyTask,
    source: DataInput,
    columns: Mapping[str, str] | None = None,
    diagnostics: Diagnostics | None = None,
    data_dir: str | None = None,
) -> Split[Any]:
    """Returns other data, targets included, as a split to evaluate on.

    Args:
        task: That of a run.
        source: Whatever `open_source` takes.
        columns: Role → column names that differ from those of the training data.
        diagnostics: Receives notes; problems are raised.
        data_dir: The folder of catalogue data sets.
    """
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    rows = task.read(open_source(source, data_dir), diagnostics, columns=columns)
    if not len(rows):
        raise SeriatimError("data.empty", f"{rows.name} has no rows with an input", "pass a file with data")
    check(rows, task.schema, diagnostics)
    diagnostics.raise_problems()
    return split_of(task, rows, diagnostics)


def split_of(task: AnyTask, rows: Dataset, diagnostics: Diagnostics, name: str = "test") -> Split[Any]:
    """Returns rows as a split to evaluate on."""
    part = Split(name, rows, task.encode_split(name, rows, diagnostics))
    diagnostics.raise_problems()
    return task.link(Splits({name: part}), diagnostics)[name]


def same_data(task: AnyTask, splits: Splits[Any], other: AnyTask, others: Splits[Any]) -> bool:
    """Returns whether two tasks have the same rows, encoded alike."""
    return (
        type(task) is type(other)
        and list(splits) == list(others)
        and splits.fingerprint == others.fingerprint
        and task.processor.equals(other.processor)
    )


def read_rows(
    task_type: type[AnyTask],
    config: TaskConfig[Any],
    source: Source,
    diagnostics: Diagnostics,
    layout: Layout | None = None,
    schema: Schema | None = None,
    columns: Mapping[str, str] | None = None,
    train: Dataset | None = None,
) -> Dataset:
    """Returns the rows of a source, cleaned.

    Args:
        task_type: The task.
        config: The settings.
        source: The files or columns.
        diagnostics: Receives notes; problems are raised.
        layout: Of the training rows, if these are others.
        schema: The fields to read at prediction; by default all of the task, targets included.
        columns: Role → column names; by default those of the settings for the training data.
        train: The training rows, if these are of a validation or test file.
    """
    predicting = schema is not None
    fields = task_type.schema_for(task_type.schema if schema is None else schema, config, layout is None)
    named = config.data.columns if columns is None and layout is None else columns
    if layout is not None and fields.gathered:
        named = {role: "" for role in fields.roles if role not in layout.columns} | dict(named or {})
    options = config.data.read_options()
    trained = (None, None) if layout is None else (layout.columns, layout.kinds)
    rows = read_dataset(source, fields, named, options, diagnostics, trained[0], trained[1], predicting)
    diagnostics.raise_problems()
    return task_type.clean(rows, source, config, diagnostics, predicting, train)


def layout_of(task_type: type[AnyTask], train: Dataset) -> Layout:
    """Returns the layout of training rows, by which the other files of the run are read."""
    kinds = {} if task_type.schema.gathered else {role: train.kind(role) for role in train.columns}
    return Layout(train.column_names, kinds)


def check_stored_source(config: TaskConfig[Any]) -> None:
    """Raises SeriatimError if a run was trained on data in memory, which cannot be read again."""
    if config.data.source.startswith("<"):
        cause = f"the run was trained on data in memory ({config.data.source})"
        raise SeriatimError("data.memory", cause, "pass the data")


def _lacks_targets(task_type: type[AnyTask], config: TaskConfig[Any], source: Source, like: Dataset) -> bool:
    """Returns whether a table has no column that could be a target, as the test splits of some benchmarks."""
    schema = task_type.schema
    roles = [field.role for field in schema.fields if field.target and field.required and field.role in like]
    options = options_of_source(source, config.data.read_options(), config.data.columns, trained=False)
    header, _ = read_header(source, schema, options, Diagnostics())
    present = set(map(normalize_name, header.columns))
    trained = {normalize_name(column.name) for role in roles for column in like.columns[role]}
    usual = any(schema.has_usual_name(role, header) for role in roles)
    return bool(roles) and bool(present) and not (usual or trained & present)


def without_empty(rows: Dataset, schema: Schema, diagnostics: Diagnostics) -> Dataset:
    """Returns the rows without those whose inputs are all empty, with a note."""
    inputs = [field.role for field in schema.fields if field.required and not field.target]
    columns = [column for role in inputs for column in rows.columns.get(role, ())]
    empty = np.max([column.sizes for column in columns], axis=0) == 0 if columns else np.zeros(len(rows), bool)
    if not empty.any():
        return rows
    first = rows.locations[int(empty.argmax())]
    diagnostics.note(f"{rows.name}: {empty.sum():,} rows with an empty input are left out, the first at {first}")
    return rows.take(np.flatnonzero(~empty))


# Paths in cells


def refuse_paths(schema: Schema, layout: Layout) -> tuple[Schema, Layout]:
    """Returns schema and layout with kinds that take contents only, so that no cell can name a local file."""
    twins = {kind: _pathless(kind) for field in schema.fields for kind in field.kinds if kind.is_path}
    fields = tuple(
        replace(field, kinds=tuple(twins.get(kind, kind) for kind in field.kinds)) for field in schema.fields
    )
    kinds = {role: twins.get(kind, kind) for role, kind in layout.kinds.items()}
    return replace(schema, fields=fields), replace(layout, kinds=kinds)


def restore_kinds(rows: Dataset, layout: Layout) -> Dataset:
    """Returns rows whose columns have the kinds of the layout again."""
    columns = {
        role: tuple(replace(column, kind=layout.kinds[role]) for column in parts)
        if role in layout.kinds and parts[0].kind.name == layout.kinds[role].name
        else parts
        for role, parts in rows.columns.items()
    }
    return replace(rows, columns=columns)


def _pathless(kind: Kind) -> Kind:
    def parse(cell: Cell) -> Any:
        named = (cell.get("bytes") or cell.get("path")) if isinstance(cell, Mapping) else cell
        value = None if isinstance(named, str | Path) else kind.parse(cell)
        if value is None or isinstance(value, Path):  # whatever a kind makes of a cell
            raise CellError("input.path", "names a file, and files are not read here", "send the contents of the file")
        return value

    return replace(kind, parse=parse, is_path=False)
