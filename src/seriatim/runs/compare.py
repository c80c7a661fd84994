"""Comparisons: several architectures trained on the same data, split, budget and seeds, with one report."""

from __future__ import annotations

import functools
import gc
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import report as reports
from ..core.config import drop_path, get_path, merge, set_path
from ..core.device import join_ranks, pick_device
from ..core.errors import SeriatimError
from ..core.files import Json, WriteError, write_json
from ..core.text import plural
from ..data.source import DataInput
from ..report.charts import Lines
from ..training.config import Config
from ..training.events import Callback
from .configure import add_plugins, configure, expand_names, short_settings
from .evaluate import Data, Notify
from .jobs import Workers
from .run import Run
from .session import Session, has_started, locked_by_first_rank, make_folder, train_or_resume
from .tuning import InterruptedTuningError, Trainer, Tuning, tune

MAX_SEEDS = 1_000
Training = tuple[str, str, Config]  # model, folder, settings
LISTED = ("params", "tokenizer")  # options that may name several values, each of which every model is trained with


@dataclass(frozen=True)
class Comparison:
    """Several runs on the same data: of each model one, or one for each seed."""

    path: Path
    runs: list[Run]
    failed: dict[str, str]  # folder → reason
    loads: dict[str, float] = field(default_factory=dict)  # folder → load of the machine when its training ended
    tunings: dict[str, Tuning] = field(default_factory=dict)  # folder of the first seed → search for the learning rate
    signal: str = ""  # that ended it before all was trained

    def table(self) -> list[Json]:
        """Returns a row per model: quality, size and cost; of several seeds means and standard deviations."""
        return reports.comparison_rows(self.runs)

    def scaling(self) -> list[Json]:
        """Returns the power law of each model that was trained at several sizes, over parameters, compute and time."""
        return reports.scaling_rows(self.runs)

    def verdict(self) -> str:
        """Returns which model is best, by how much and how sure that is."""
        return reports.comparison_verdict(self.runs)

    def plot(self) -> Lines:
        """Returns the curves of all trainings."""
        return reports.curves(self.runs)

    def write(self) -> None:
        """Writes comparison.json and report.html."""
        rows = [{"folder": run.path.name, **row} for run in self.runs for row in reports.comparison_rows([run])]
        values: Json = {
            "verdict": self.verdict(),
            "table": self.table(),
            "runs": rows,
            "failed": self.failed,
            "loads": self.loads,
            "tuning": {name: tuning.record() for name, tuning in self.tunings.items()},
            "scaling": self.scaling(),
        }
        write_json(self.path / "comparison.json", values)
        reports.write_comparison_report(self.path, self.runs, self.failed, values["tuning"])


def compare(
    task: str | None = None,
    data: DataInput | None = None,
    models: Sequence[str] | Mapping[str, Mapping[str, object]] = (),
    *,
    seeds: int | str | Sequence[int] | None = None,
    tune_minutes: float | None = None,
    jobs: int = 1,
    report: bool = True,
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

    `params` and `tokenizer` may name several values, as "100k,300k,1M" or a list: every model is trained with each.

    Args:
        task: The name of the task.
        data: The source of the data, a path or data in memory.
        models: Names, or labels with the settings of each over the common ones (`{"deep": {"model": …}}`).
        seeds: How many seeds each model is trained with, from `seed` on, or the seeds themselves. By default one.
        tune_minutes: How long to search for the learning rate of each model (and size) before it is trained.
        jobs: How many trainings at a time; more than one are in processes of their own, on one thread each.
        report: Whether the run of the first seed of each model has a report.html and views of the inside of its own.
        validation: The source of the validation split.
        test: The source of the test split.
        settings: Nested settings of all models.
        out: The folder. A comparison that it holds in part is completed: finished models are not trained again.
        data_dir: The folder of catalogue data sets.
        callbacks: Returns the callbacks of a training, by the name of its folder.
        notify: Called with each note.
        plugin: The user's own files, which define tasks or models.
        short: Options by their short names; see `runs.configure.short_settings`.
    """
    if not models:
        raise SeriatimError("compare.empty", "no models were named", "name some: --models ngram,lstm,gpt")
    add_plugins(plugin)
    memory = Data(data, validation, test)
    common = merge(expand_names(settings or {}), {"data": memory.settings()})
    variants = models if isinstance(models, Mapping) else {name: {"model": name} for name in models}
    variants, short = cross_options({name: expand_names(own) for name, own in variants.items()}, short)
    configs = {name: configure(task, None, None, merge(common, own), **short) for name, own in variants.items()}
    if tune_minutes is not None and tune_minutes <= 0:
        raise SeriatimError("compare.tuning", f"--tune-minutes {tune_minutes:g} is no time", "name some, as 5")
    trainings = plan_trainings(configs, seeds)
    first = next(iter(configs.values()))
    check_jobs(jobs, memory, first)
    path = make_folder(f"compare-{first.task.name}") if out is None else Path(out)
    for _, folder, config in trainings:
        check_same_settings(path / folder, config, tuned=tune_minutes is not None)
    if tune_minutes is not None:
        check_same_tuning(path, tune_minutes)

    # The page of the comparison shows views of the first seed only; `seriatim report` writes those of another.
    reported = {folder for model, folder, _ in trainings if report and model == folder}
    baselines: dict[str, Json] = {}

    def train(folder: str, config: Config, trial: bool) -> Run:
        session = Session(config, path / folder, memory, data_dir, callbacks(folder), notify, folder in reported)
        session.trial, session.known_baselines = trial, baselines
        try:
            return train_or_resume(session)
        finally:
            del session
            gc.collect()  # session, loop and task refer to each other: the data of many would stay in memory

    plugins = [str(file) for file in ([plugin] if isinstance(plugin, str | Path) else plugin or ())]
    workers = Workers(path, jobs, data_dir, plugins, callbacks, notify, reported) if jobs > 1 else None
    with locked_by_first_rank(path, join_ranks()):
        trainer = Trainings(path, train if workers is None else workers.train, workers, notify)
        if tune_minutes is not None:
            trainer.tune(trainings, tune_minutes)
        trainer.train_all(trainings)
        if not trainer.runs and trainer.failed:
            raise next(iter(trainer.failed.values()))
        comparison = trainer.comparison([folder for _, folder, _ in trainings])
        if comparison.runs and join_ranks().is_first:
            comparison.write()
    return comparison


@dataclass
class Trainings:
    """The trainings of a comparison, one after the other or in workers, and what came of them so far.

    Args:
        path: The folder of the comparison.
        train: Trains settings in a folder within, or continues what it holds.
        workers: The processes that train; None if this one does.
        notify: Called with each note.
    """

    path: Path
    train: Trainer
    workers: Workers | None
    notify: Notify | None
    runs: dict[str, Run] = field(default_factory=dict)  # by folder
    failed: dict[str, SeriatimError] = field(default_factory=dict)
    loads: dict[str, float] = field(default_factory=dict)
    tunings: dict[str, Tuning] = field(default_factory=dict)
    unsuitable: set[str] = field(default_factory=set)  # models that could not start, and cannot with another seed
    signal: str = ""

    def tune(self, trainings: Sequence[Training], minutes: float) -> None:
        """Searches for the learning rate of each model that has one, with the first seed."""

        def search(model: str, config: Config) -> None:
            best = self.tunings[model] = tune(model, config, minutes, self.train, self.path)
            self.note(f"{model}: {best.describe(config.train.timed)}")

        first = {model: config for model, folder, config in trainings if model == folder}
        networks = {model: config for model, config in first.items() if not config.model.gradient_free}
        self.run_all({(name, name): functools.partial(search, name, config) for name, config in networks.items()})

    def train_all(self, trainings: Sequence[Training]) -> None:
        """Trains all models with the first seed, then with the next: which do not fit the task is known by then."""

        def complete(model: str, folder: str, config: Config) -> None:
            if model in self.unsuitable:
                return
            if model in self.tunings:
                config = self.tunings[model].apply(config)
                check_same_settings(self.path / folder, config)
            self.runs[folder] = run = self.train(folder, config, False)
            self.loads |= {folder: round(os.getloadavg()[0], 2)} if hasattr(os, "getloadavg") else {}
            self.signal = run.results.signal or self.signal

        for seed in dict.fromkeys(config.seed for *_, config in trainings):
            own = [training for training in trainings if training[2].seed == seed]
            self.run_all({training[:2]: functools.partial(complete, *training) for training in own})

    def run_all(self, parts: Mapping[tuple[str, str], Callable[[], None]]) -> None:
        """Calls the functions of models and folders until a signal arrives; what fails is noted, and the rest goes on.

        Raises:
            WriteError: The disk is full, for instance, so that the next training would not fare better.
        """
        calls = parts.values() if self.workers is None else self.workers.run_all(list(parts.values()))
        for (model, folder), call in zip(parts, calls, strict=True):
            if self.signal and self.workers is None:
                break
            try:
                call()
            except WriteError:
                raise
            except InterruptedTuningError as interruption:
                self.signal = interruption.reason
            except SeriatimError as error:
                self.failed[folder] = error
                self.unsuitable |= set() if (self.path / folder / "config.yaml").is_file() else {model}
                self.note(f"{folder} failed: {error}")
        if self.workers is not None and self.workers.signal:
            self.signal = self.workers.signal

    def note(self, text: str) -> None:
        if self.notify is not None:
            self.notify(text)

    def comparison(self, folders: Sequence[str]) -> Comparison:
        """Returns the comparison as far as it came, with the runs in the order of these folders."""
        runs = [self.runs[folder] for folder in folders if folder in self.runs]
        failed = {folder: str(error) for folder, error in self.failed.items()}
        return Comparison(self.path, runs, failed, self.loads, self.tunings, self.signal)


def cross_options(
    variants: Mapping[str, dict[str, object]], short: Mapping[str, object]
) -> tuple[dict[str, dict[str, object]], dict[str, object]]:
    """Returns a variant of each model for each value of the options that name several, and the other options.

    The folder of the GPT with --params 100k,1M is `gpt-100k`, then `gpt-1M`; all models of one size come before the
    next size.
    """
    crossed, others = dict(variants), dict(short)
    for option in LISTED:
        value = others.get(option)
        values = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Sequence) else [value]
        values = [item.strip() if isinstance(item, str) else item for item in values]
        if len(values) < 2:
            continue
        if len({str(item) for item in values}) < len(values) or "" in values:
            cause = f"--{option} {','.join(map(str, values))} does not name different values"
            raise SeriatimError("compare.values", cause, "name each once, as --params 100k,300k,1M")
        del others[option]
        combined: dict[str, dict[str, object]] = {}
        for item in values:
            for name, own in crossed.items():
                change: dict[str, object] = {}
                set_path(change, short_settings()[option].path, item)
                combined[f"{name}-{item}"] = merge(own, change)
        crossed = combined
    return crossed, others


def check_jobs(jobs: int, data: Data, config: Config) -> None:
    """Raises SeriatimError unless this number of simultaneous trainings is possible and fair to each."""
    if jobs == 1:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cause = ""
    if jobs < 1:
        cause = f"--jobs {jobs} is no number of trainings"
    elif jobs > cores:
        cause = f"{jobs} trainings at a time would share {plural(cores, 'processor')}"
    elif pick_device(config.train.device).type != "cpu":
        cause = "several trainings at a time would share one GPU"
    elif join_ranks().world_size > 1:
        cause = "these processes train one model together"
    elif data.in_memory():
        cause = "data in memory is not passed on to other processes"
    if cause:
        raise SeriatimError("compare.jobs", cause, "omit --jobs, or name fewer; data as a path")


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


def check_same_tuning(path: Path, minutes: float) -> None:
    """Raises SeriatimError if the learning rates of a comparison were searched for within another time."""
    try:
        before = json.loads((path / "comparison.json").read_text(encoding="utf-8"))["tuning"]
        budgets = {record["budget"] for record in before.values()} - {minutes}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # there is none yet, or it is damaged and will be written again
    if budgets:
        cause = f"{path} was tuned with --tune-minutes {max(budgets):g}"
        raise SeriatimError("compare.differs", cause, "repeat the command as it was, or choose another --out")


def check_same_settings(folder: Path, config: Config, tuned: bool = False) -> None:
    """Raises SeriatimError if a folder holds a run with other settings, sizes that a budget solves for aside.

    What the run decided by itself is not compared as long as it is left open. If the learning rate is `tuned`, it may
    be another.
    """
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
    for path in Run(folder).results.decided:
        section, _, name = path.partition(".")
        named = name in config.model.model_fields_set if section == "model" else get_path(requested, path) is not None
        if not named:  # open now as it was then
            drop_path(stored, path)
            drop_path(requested, path)
    for values in (stored, requested):
        values["model"] = {name: value for name, value in values["model"].items() if name not in solved}
        if tuned:
            values["train"]["optimizer"] |= {"lr": None, "lr_scale": None}
    if differing := [name for name in requested if stored[name] != requested[name]]:
        raise SeriatimError(
            "compare.differs",
            f"{folder} was trained with other settings ({', '.join(differing)})",
            "repeat the command as it was, or choose another --out",
        )
