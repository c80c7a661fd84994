"""Train, resume, load, evaluate and predict: what the command line, notebooks and servers call.

run = seriatim.train("language", data="book.txt", model="lstm", minutes=2)
run.generate("The students opened their", max_tokens=40)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .core.errors import SeriatimError
from .data.catalogue import remembered_folder
from .data.source import DataInput
from .runs.auto import is_auto, train_best
from .runs.configure import add_plugins, configure
from .runs.evaluate import Data, Notify
from .runs.run import Run
from .runs.session import Session, has_started, make_folder
from .tasks import load as load_task
from .training.events import Callback

Plugins = str | Path | Sequence[str | Path] | None


def train(
    task: str | None = None,
    data: DataInput | None = None,
    model: str | None = None,
    *,
    validation: DataInput | None = None,
    test: DataInput | None = None,
    settings: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    callbacks: Iterable[Callback] = (),
    notify: Notify | None = None,
    plugin: Plugins = None,
    report: bool = True,
    **short: object,
) -> Run:
    """Trains a model and returns its run.

    Args:
        task: The name of the task.
        data: A path, the name of a catalogue data set, or data in memory: a DataFrame, an Arrow table, a
            `datasets.Dataset`, a list of records or tuples, a mapping of columns, arrays `(X, y)`.
        model: The name of the architecture; by default the task's default model. "auto" tries those that fit, within
            `minutes`, and returns the run of the best.
        validation: The validation split, whatever `data` may be; by default rows of `data`.
        test: The test split.
        settings: Nested settings (`{"train": {"steps": 100}}`).
        out: The run folder; by default a new one in runs/.
        data_dir: The folder of catalogue data sets.
        callbacks: Called with each event of the training loop.
        notify: Called with each note.
        plugin: The user's own files, which define tasks or models.
        report: Whether to write report.html, the model card and the views of the inside.
        short: Options by their short names, such as steps, lr, batch_size; see `runs.configure.short_settings`.
    """
    add_plugins(plugin)
    source = Data(data, validation, test)
    if is_auto(model, settings):
        silent = lambda text: None  # noqa: E731
        return train_best(
            task,
            source,
            settings,
            out,
            data_dir=data_dir,
            callbacks=lambda name: callbacks,
            notify=notify or silent,
            report=report,
            **short,
        )
    model_settings = (settings or {}).get("model")
    unnamed = model_settings is None or (isinstance(model_settings, Mapping) and "name" not in model_settings)
    named = model is not None or not unnamed or short.get("start") is not None
    config = configure(task, None, model, {**(settings or {}), **merged_data(settings, source)}, **short)
    if notify is not None and not named:
        notify(
            f"model: {config.model.name}, {load_task(config.task.name).default_model_reason} (--model names another)"
        )
    folder = make_folder(f"{config.task.name}-{config.model.name}") if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise SeriatimError("run.exists", f"{folder} is a file", "choose another --out")
    try:
        run = Session(config, folder, source, data_dir, callbacks, notify, report).start()
    finally:
        if out is None:
            with contextlib.suppress(OSError):  # it holds files, or another rank has removed it
                folder.rmdir()
    run.memory = source
    return run


def merged_data(settings: Mapping[str, object] | None, source: Data) -> dict[str, object]:
    """Returns the section `data` of the settings, with what was handed in."""
    section = (settings or {}).get("data") or {}
    section = {"source": section} if isinstance(section, str) else section
    if not isinstance(section, Mapping):
        return {"data": section}  # `configure` reports it
    values = dict(section) | source.settings()
    return {"data": values} if values else {}


def resume(
    path: str | Path,
    *,
    data: DataInput | None = None,
    validation: DataInput | None = None,
    test: DataInput | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    tokens: int | str | None = None,
    flops: float | None = None,
    minutes: float | None = None,
    data_dir: str | None = None,
    callbacks: Iterable[Callback] = (),
    notify: Notify | None = None,
    plugin: Plugins = None,
    report: bool = True,
) -> Run:
    """Continues an interrupted training exactly where it stopped, and returns the run.

    Args:
        path: The run folder.
        data: The data in memory that the run was trained on; not needed if it was a file.
        validation: Its validation split, if it was in memory.
        test: Its test split, if it was in memory.
        steps: A new end, as are the next four.
        epochs: A new end in passes over the training split.
        tokens: A new end in tokens, or what else the task counts.
        flops: A new end in floating-point operations.
        minutes: A new end in minutes of training.
        data_dir: The folder of catalogue data sets.
        callbacks: Called with each event of the training loop.
        notify: Called with each note.
        plugin: The user's own files, which define the task or model of the run.
        report: Whether to write report.html, the model card and the views of the inside.
    """
    add_plugins(plugin)
    run = Run(path)
    if run.config.model.gradient_free and has_started(run.path):
        cause = f"{path}: {run.config.model.name} is not trained in steps, so there is nothing to resume"
        raise SeriatimError("run.gradient-free", cause, "train it again")
    source = Data(data, validation, test)
    source.check_memory(run)
    with remembered_folder(run.task.layout.data_dir, data_dir) as folder:
        session = Session(run.config, run.path, source, folder, callbacks, notify, report)
        resumed = session.resume(steps=steps, epochs=epochs, tokens=tokens, flops=flops, minutes=minutes)
    resumed.memory = source
    return resumed


def load(path: str | Path, plugin: Plugins = None) -> Run:
    """Opens a run folder.

    Args:
        path: The run folder.
        plugin: The user's own files, which define the task or model of the run.
    """
    add_plugins(plugin)
    return Run(path)


def evaluate(
    path: str | Path,
    *,
    data: DataInput | None = None,
    split: str = "test",
    column: str | None = None,
    target: str | None = None,
    data_dir: str | None = None,
    notify: Notify | None = None,
    int8: bool = False,
    plugin: Plugins = None,
) -> dict[str, float]:
    """Returns the metrics of a run on a split of its own data, or on all rows of other data.

    Args:
        path: The run folder.
        data: Another source, whatever `train` takes.
        split: The split of the run's own data.
        column: The input column of the other source.
        target: The target column of the other source.
        data_dir: The folder of catalogue data sets.
        notify: Called with each note.
        int8: Whether to round the weights to 8 bits.
        plugin: The user's own files, which define the task or model of the run.
    """
    run = load(path, plugin)
    columns = named_columns(run, column, target)
    return run.evaluate(data, split=split, columns=columns, data_dir=data_dir, notify=notify, int8=int8)


def named_columns(run: Run, column: str | None, target: str | None) -> dict[str, str]:
    """Returns role → column name of the columns that are named."""
    schema = run.task.schema
    named = {schema.input_role: column, schema.target_role: target}
    return {role: name for role, name in named.items() if role is not None and name is not None}


def predict(path: str | Path, inputs: DataInput, *, plugin: Plugins = None, **options: object) -> Any:
    """Returns the predictions of a run; see `Run.predict`."""
    return load(path, plugin).predict(inputs, **options)
