"""Comparisons: several architectures trained on the same data, split and budget, with one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import report
from ..core.config import merge
from ..core.device import join_ranks
from ..core.errors import SeriatimError
from ..core.files import write_json
from ..report.charts import Lines
from ..training.config import Config
from ..training.events import Callback
from .configure import add_plugins, configure, expand_names
from .run import Run
from .session import Data, Notify, Session, has_started, make_folder


@dataclass(frozen=True)
class Comparison:
    """Several runs on the same data."""

    path: Path
    runs: list[Run]
    failed: dict[str, str]  # model → reason

    def table(self) -> list[dict[str, Any]]:
        """Returns a row per model: quality, size and cost."""
        return report.comparison_rows(self.runs)

    def plot(self) -> Lines:
        """Returns the curves of all trainings."""
        return report.curves(self.runs)


def compare(
    task: str | None = None,
    data: Any = None,
    models: Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
    *,
    validation: Any = None,
    test: Any = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    callbacks: Callable[[str], Iterable[Callback]] = lambda model: (),
    notify: Notify | None = None,
    plugin: str | Path | Sequence[str | Path] | None = None,
    **short: Any,
) -> Comparison:
    """Trains several architectures on the same data, split and budget, and writes one report.

    Args:
        task: The name of the task.
        data: The source of the data, a path or data in memory.
        models: Names, or labels with the settings of each over the common ones (`{"deep": {"model": …}}`).
        validation: The source of the validation split.
        test: The source of the test split.
        settings: Nested settings of all models.
        out: The folder. A comparison that it holds in part is completed: finished models are not trained again.
        data_dir: The folder of catalogue data sets.
        callbacks: Returns the callbacks of a model's training.
        notify: Called with each note.
        plugin: The user's own files, which define tasks or models.
        short: Options by their short names; see `SHORT_NAMES`.
    """
    if not models:
        raise SeriatimError("compare.empty", "no models were named", "name some: --models ngram,lstm,gpt")
    add_plugins(plugin)
    memory = Data(data, validation, test)
    common = merge(expand_names(settings or {}), {"data": memory.settings()})
    variants = models if isinstance(models, Mapping) else {name: {"model": name} for name in models}
    configs = {
        name: configure(task, None, None, merge(common, expand_names(own)), **short) for name, own in variants.items()
    }
    first = next(iter(configs.values()))
    path = make_folder(f"compare-{first.task.name}") if out is None else Path(out)
    runs: list[Run] = []
    failed: dict[str, SeriatimError] = {}
    for name, config in configs.items():
        check_same_settings(path / name, config)
    for name, config in configs.items():
        try:
            session = Session(config, path / name, memory, data_dir, callbacks(name), notify)
            run = train_or_resume(session)
        except SeriatimError as error:
            failed[name] = error
            if notify is not None:
                notify(f"{name} failed: {error}")
            continue
        runs.append(run)
        if run.summary["reason"].startswith("SIG"):
            break
    if not runs:
        raise next(iter(failed.values()))
    reasons = {name: str(error) for name, error in failed.items()}
    comparison = Comparison(path, runs, reasons)
    if join_ranks().is_first:
        write_json(path / "comparison.json", {"table": comparison.table(), "failed": reasons})
        report.write_comparison_report(path, runs, reasons)
    return comparison


def train_or_resume(session: Session) -> Run:
    """Returns the finished run in the session's folder, resumes an interrupted one, or trains a new one."""
    folder, ranks = session.folder, join_ranks()
    started = has_started(folder)
    finished = started and bool(Run(folder).summary.get("metrics"))
    started, finished = (bool(flag) for flag in ranks.broadcast([float(started), float(finished)]))
    if finished:
        return Run(folder)
    if started and not session.config.model.gradient_free:  # others are fitted again: they have no checkpoints
        session.config = Run(folder).config
        return session.resume()
    return session.start()


def check_same_settings(folder: Path, config: Config) -> None:
    """Raises SeriatimError if a folder holds a run with other settings, sizes that a budget solves for aside."""
    if not has_started(folder):
        return
    solved: set[str] = set()
    if config.params is not None:
        solved = {"order", "entries"} if config.model.gradient_free else {"width", config.model.budget_field}
    stored, requested = Run(folder).config.model_dump(mode="json"), config.model_dump(mode="json")
    for values in (stored, requested):
        values["model"] = {name: value for name, value in values["model"].items() if name not in solved}
    if differing := [name for name in requested if stored[name] != requested[name]]:
        raise SeriatimError(
            "compare.differs",
            f"{folder} was trained with other settings ({', '.join(differing)})",
            "repeat the command as it was, or choose another --out",
        )
