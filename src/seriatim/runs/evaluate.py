"""The data of a run, handed in from memory or read again, and the evaluation of a run on it or on other data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import Diagnostics, SeriatimError
from ..data.catalogue import remembered_folder
from ..data.source import DataInput
from ..tasks import load as load_task
from ..tasks.base import AnyTask
from ..tasks.reading import prepare, read_split
from ..tasks.values import AnyEvaluation, Splits
from .run import Run

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Data:
    """Data handed in from Python in place of the paths of the configuration."""

    train: DataInput | None = None
    validation: DataInput | None = None
    test: DataInput | None = None

    def settings(self) -> dict[str, str]:
        """Returns what the configuration records of it: a path as it is, else the type in angle brackets."""
        named = {"source": self.train, "validation": self.validation, "test": self.test}
        return {key: describe_source(spec) for key, spec in named.items() if spec is not None}

    def in_memory(self) -> dict[str, Any]:
        """Returns the arguments of `prepare` that are not paths."""
        named = {"data": self.train, "validation": self.validation, "test": self.test}
        return {key: spec for key, spec in named.items() if spec is not None and not isinstance(spec, str | Path)}

    def check_memory(self, run: Run) -> None:
        """Raises SeriatimError unless this has the splits that a run was trained on in memory, and no others."""
        data = run.config.data
        stored = {"data": data.source, "validation": data.validation, "test": data.test}
        for (name, source), spec in zip(stored.items(), (self.train, self.validation, self.test), strict=True):
            if source is not None and source.startswith("<") and (spec is None or isinstance(spec, str | Path)):
                cause = f"{run.path} was trained on data in memory ({name}: {source})"
                raise SeriatimError("data.memory", cause, f"pass the same data again: {name}=…")
            if isinstance(spec, str | Path) and str(spec) != source:
                cause = f"{run.path} was trained on {source or f'no {name} file'}, not on {spec}"
                raise SeriatimError("data.changed", cause, f"omit {name}=; to train on other data, start a new run")


def describe_source(spec: DataInput) -> str:
    """Returns a path as a string, and `<DataFrame>` for data in memory."""
    return str(spec) if isinstance(spec, str | Path) else f"<{type(spec).__name__}>"


def check_fingerprint(run: Run, splits: Splits[Any]) -> None:
    """Raises SeriatimError unless the training split is the one that the run was trained on."""
    fingerprint = run.stored_data.get("fingerprint")
    if fingerprint is not None and fingerprint != splits.fingerprint:
        cause = f"the data of {run.path} is not what it was trained on"
        raise SeriatimError("data.changed", cause, "restore the file; to train on other data, start a new run")


def reopen_task(
    run: Run, data: Data | None = None, data_dir: str | None = None, diagnostics: Diagnostics | None = None
) -> tuple[AnyTask, Splits[Any]]:
    """Returns the task of a run and the data it was trained on, read again with the run's processor.

    Args:
        run: The run.
        data: The data in memory, if the run was trained on such.
        data_dir: The folder of catalogue data sets; by default the one that the run was trained from.
        diagnostics: Receives notes.
    """
    data = Data() if data is None else data
    data.check_memory(run)
    with remembered_folder(run.task.layout.data_dir, data_dir) as folder:
        task, splits = prepare(
            load_task(run.config.task.name),
            run.config.task_config(),
            **data.in_memory(),
            processor=run.task.processor,
            diagnostics=diagnostics,
            data_dir=folder,
        )
    check_fingerprint(run, splits)
    return task, splits


def evaluate_run(
    run: Run,
    data: DataInput | None = None,
    *,
    split: str = "test",
    columns: Mapping[str, str] | None = None,
    data_dir: str | None = None,
    notify: Notify | None = None,
    int8: bool = False,
) -> AnyEvaluation:
    """Returns the evaluation of a run on a split of its own data, or on all rows of other data.

    Args:
        run: The run.
        data: Another source, whatever `open_source` takes.
        split: The split of the run's own data.
        columns: Role → column of the other source.
        data_dir: The folder of catalogue data sets.
        notify: Called with each note.
        int8: Whether to round the weights to 8 bits.
    """
    if run.members:
        cause = f"an ensemble of {len(run.members)} runs has no evaluation"
        raise SeriatimError("run.ensemble", cause, "evaluate each run, or the predictions of the ensemble")
    if data is None and columns:
        names = ", ".join(columns.values())
        raise SeriatimError("data.column", f"columns of other data are named ({names}), but no data", "pass the data")
    model = run.int8.network if int8 else run.network
    diagnostics = Diagnostics(notify)
    if data is not None:
        return run.task.evaluate(model, read_split(run.task, data, columns, diagnostics, data_dir))
    task, splits = reopen_task(run, run.memory, data_dir, diagnostics)
    if split not in splits:
        raise SeriatimError("data.no-split", f'{run.path} has no split "{split}"', f"its splits: {', '.join(splits)}")
    return task.evaluate(model, splits[split])
