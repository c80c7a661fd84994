"""Comparisons: several architectures trained on the same data, split, budget and seeds, with one report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import report
from ..core.config import merge
from ..core.device import join_ranks
from ..core.errors import SeriatimError
from ..core.files import Json, WriteError, write_json
from ..data.source import DataInput
from ..report.charts import Lines
from ..training.config import Config
from ..training.events import Callback
from .configure import add_plugins, configure, expand_names
from .evaluate import Data, Notify
from .run import Run
from .session import Session, has_started, locked_by_first_rank, make_folder

MAX_SEEDS = 1_000


@dataclass(frozen=True)
class Comparison:
    """Several runs on the same data: of each model one, or one for each seed."""

    path: Path
    runs: list[Run]
    failed: dict[str, str]  # folder → reason
    loads: dict[str, float] = field(default_factory=dict)  # folder → load of the machine when its training ended

    def table(self) -> list[Json]:
        """Returns a row per model: quality, size and cost; of several seeds means and standard deviations."""
        return report.comparison_rows(self.runs)

    def verdict(self) -> str:
        """Returns which model is best, by how much and how sure that is."""
        return report.comparison_verdict(self.runs)

    def plot(self) -> Lines:
        """Returns the curves of all trainings."""
        return report.curves(self.runs)

    def write(self) -> None:
        """Writes comparison.json and report.html."""
        rows = [{"folder": run.path.name, **row} for run in self.runs for row in report.comparison_rows([run])]
        values = {
            "verdict": self.verdict(),
            "table": self.table(),
            "runs": rows,
            "failed": self.failed,
            "loads": self.loads,
        }
        write_json(self.path / "comparison.json", values)
        report.write_comparison_report(self.path, self.runs, self.failed)


def compare(
    task: str | None = None,
    data: DataInput | None = None,
    models: Sequence[str] | Mapping[str, Mapping[str, object]] = (),
    *,
    seeds: int | str | Sequence[int] | None = None,
    validation: DataInput | None = None,
    test: DataInput | None = None,
    settings: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    callbacks: Callable[[str], Iterable[Callback]] = lambda model: (),
    notify: Notify | None = None,
    plugin: str | Path | Sequence[str | Path] | None = None,
    **short: object,
) -> Comparison:
    """Trains several architectures on the same data, split and budget, and writes one report.

    Args:
        task: The name of the task.
        data: The source of the data, a path or data in memory.
        models: Names, or labels with the settings of each over the common ones (`{"deep": {"model": …}}`).
        seeds: How many seeds each model is trained with, from `seed` on, or the seeds themselves. By default one.
        validation: The source of the validation split.
        test: The source of the test split.
        settings: Nested settings of all models.
        out: The folder. A comparison that it holds in part is completed: finished models are not trained again.
        data_dir: The folder of catalogue data sets.
        callbacks: Returns the callbacks of a training, by the name of its folder.
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
    trainings = plan_trainings(configs, seeds)
    first = next(iter(configs.values()))
    path = make_folder(f"compare-{first.task.name}") if out is None else Path(out)
    for _, folder, config in trainings:
        check_same_settings(path / folder, config)
    runs: list[Run] = []
    failed: dict[str, SeriatimError] = {}
    loads: dict[str, float] = {}
    unsuitable: set[str] = set()  # models that could not start, and cannot with another seed
    with locked_by_first_rank(path, join_ranks()):
        for model, folder, config in trainings:
            if model in unsuitable:
                continue
            try:
                run = train_or_resume(Session(config, path / folder, memory, data_dir, callbacks(folder), notify))
            except WriteError:  # the next model would not fare better
                raise
            except SeriatimError as error:
                failed[folder] = error
                unsuitable |= set() if (path / folder / "config.yaml").is_file() else {model}
                if notify is not None:
                    notify(f"{folder} failed: {error}")
                continue
            runs.append(run)
            loads |= {folder: round(os.getloadavg()[0], 2)} if hasattr(os, "getloadavg") else {}
            if run.summary.get("reason", "").startswith("SIG"):
                break
        if not runs:
            raise next(iter(failed.values()))
        comparison = Comparison(path, runs, {name: str(error) for name, error in failed.items()}, loads)
        if join_ranks().is_first:
            comparison.write()
    return comparison


def plan_trainings(
    configs: Mapping[str, Config], seeds: int | str | Sequence[int] | None
) -> list[tuple[str, str, Config]]:
    """Returns model, folder and settings of each training: all models with the first seed, then with the next.

    The folder of the first seed has the name of the model, that of another one ends in `-seed1`. A gradient-free model
    has no randomness and is fitted once.
    """
    if seeds is None:
        return [(name, name, config) for name, config in configs.items()]
    trainings = []
    for number, seed in enumerate(parse_seeds(seeds, next(iter(configs.values())).seed)):
        for name, config in configs.items():
            if number == 0 or not config.model.gradient_free:
                folder = name if number == 0 else f"{name}-seed{seed}"
                trainings.append((name, folder, config.model_copy(update={"seed": seed})))
    folders = [folder for _, folder, _ in trainings]
    if len(set(folders)) < len(folders):
        cause = f"two trainings would have the folder {max(folders, key=folders.count)}"
        raise SeriatimError("compare.seeds", cause, "give the models other labels")
    return trainings


def parse_seeds(seeds: int | str | Sequence[int], first: int) -> list[int]:
    """Returns the seeds: `3` is three from the first on, `"0,7"` or a list are these."""
    try:
        if isinstance(seeds, int) or (isinstance(seeds, str) and "," not in seeds):
            numbers = list(range(first, first + min(int(seeds), MAX_SEEDS + 1)))
        else:
            numbers = [int(seed) for seed in (seeds.split(",") if isinstance(seeds, str) else seeds)]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) > MAX_SEEDS:
        raise SeriatimError("compare.seeds", f"--seeds names more than {MAX_SEEDS:,} seeds", "name fewer")
    if not numbers or not 0 <= min(numbers) <= max(numbers) < 2**63 or len(set(numbers)) < len(numbers):
        remedy = "a number from 1 on, as --seeds 3, or a list, as --seeds 0,1,2"
        raise SeriatimError("compare.seeds", f"--seeds {seeds} does not name seeds", remedy)
    return numbers


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
    try:
        stored = Run(folder).config.model_dump(mode="json")
    except SeriatimError:  # a file is damaged: this model fails, and the others are trained
        return
    solved: set[str] = set()
    if config.params is not None:
        solved = {"order", "entries"} if config.model.gradient_free else {"width", "heads", config.model.budget_field}
    requested = config.model_dump(mode="json")
    for values in (stored, requested):
        values["model"] = {name: value for name, value in values["model"].items() if name not in solved}
    if differing := [name for name in requested if stored[name] != requested[name]]:
        raise SeriatimError(
            "compare.differs",
            f"{folder} was trained with other settings ({', '.join(differing)})",
            "repeat the command as it was, or choose another --out",
        )
