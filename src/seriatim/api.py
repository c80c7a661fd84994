"""Train, resume, load, evaluate and compare: what the command line, notebooks and servers call.

run = seriatim.train("language", data="book.txt", model="lstm", minutes=2)
run.generate("The students opened their", max_tokens=40)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import report
from ._version import __version__
from .core import registry
from .core.config import dump_yaml, merge, set_path
from .core.device import joined_ranks
from .core.errors import SeriatimError, did_you_mean
from .core.files import write_json, write_text
from .core.tensors import save_tensors
from .data.tokenizers import Tokenizer
from .nn.rounding import round_weights
from .origin import Origin
from .runs import Run, fresh_folder
from .session import Notify, Session, has_begun, unchanged
from .training.config import ENDS, Config, make_config
from .training.listeners import Listener

# The settings that have a short name, on the command line and as keywords here.
SHORT = {
    "steps": "train.steps",
    "epochs": "train.epochs",
    "minutes": "train.minutes",
    "batch": "train.batch",
    "rate": "train.optimiser.rate",
    "device": "train.device",
    "length": "task.length",
    "tokenizer": "data.tokenizer.kind",
    "vocabulary": "data.tokenizer.size",
    "column": "data.column",
    "target": "data.target",
    "pooling": "task.pooling",
    "horizon": "task.horizon",
    "encoding": "data.encoding",
    "valid": "data.valid",
    "test": "data.test",
    "params": "params",
    "seed": "seed",
    "start": "start",
    "teacher": "distil.teacher",
    "temperature": "distil.temperature",
    "alpha": "distil.alpha",
    "unlabelled": "distil.unlabelled",
}


def configure(
    task: str | None = None,
    data: str | None = None,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **short: Any,
) -> Config:
    """The checked configuration: `settings` (nested), then the names, then the short settings on top."""
    unknown = short.keys() - SHORT.keys()
    if unknown:
        name = sorted(unknown)[0]
        raise SeriatimError("config.unknown", f'there is no setting "{name}"', did_you_mean(name, SHORT))
    values: dict[str, Any] = {}
    for path, value in (("task.name", task), ("data.source", data), ("model.name", model)):
        if value is not None:
            set_path(values, path, value)
    for name, value in short.items():
        if value is not None:
            set_path(values, SHORT[name], value)
    values = merge(sections(settings or {}), values)
    return make_config(values if values.get("start") is None else _begun(values))


# What suits weights that are trained already, where the user does not say.
TUNING: dict[str, Any] = {
    "batch": 32,
    "optimiser": {"betas": [0.9, 0.999], "weight_decay": 0.01},
    "schedule": {"name": "linear", "warmup": 0.1, "floor": 0.0},
}
PASSES = 3  # over the data


def _begun(values: dict[str, Any]) -> dict[str, Any]:
    """Settings that name what to begin with: the model's come from there, and small steps suit it."""
    origin, own = Origin.open(str(values["start"])), values.get("model") or {}
    name = origin.model["name"]
    if own.get("name", name) != name:
        cause = f"{values['start']} is a {name}, not a {own['name']}"
        raise SeriatimError("start.model", cause, f"leave --model away, or name {name}")
    if values.get("params") is not None:
        raise SeriatimError("start.params", f"{values['start']} has a size already", "leave --params away")
    train = values.get("train") or {}
    endless = all(train.get(end) is None for end in ENDS)
    tuning = TUNING | ({"epochs": PASSES} if endless else {})
    return values | {"model": {**origin.model, **own}, "train": merge(tuning, train)}


def sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Bare names as sections, so that they merge: `model: lstm` is `model: {name: lstm}`."""
    keys = {"task": "name", "model": "name", "data": "source"}
    return {name: {keys[name]: v} if name in keys and isinstance(v, str) else v for name, v in values.items()}


def train(
    task: str | None = None,
    data: str | None = None,
    model: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    listeners: Iterable[Listener] = (),
    notify: Notify | None = None,
    **short: Any,
) -> Run:
    """Trains a model and returns its run. `short` are the keywords of `SHORT`; `out` is the run's folder."""
    config = configure(task, data, model, settings, **short)
    folder = fresh_folder("runs", f"{config.task.name}-{config.model.name}") if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise SeriatimError("run.exists", f"{folder} is a file", "choose another --out")
    if has_begun(folder):
        raise SeriatimError(
            "run.exists",
            f"{folder} holds a run already",
            "`seriatim resume` goes on with it; else choose another --out",
        )
    return Session(config, folder, data_dir, listeners, notify).start()


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    data_dir: str | None = None,
    listeners: Iterable[Listener] = (),
    notify: Notify | None = None,
) -> Run:
    """Goes on where a run stopped, as if it had not; `steps`, `epochs` or `minutes` move its end."""
    run = Run(path)
    if run.config.model.counts:
        raise SeriatimError("run.counts", f"{path}: a model that counts has nothing to resume", "train it again")
    return Session(run.config, run.path, data_dir, listeners, notify).resume(steps, epochs, minutes)


def load(path: str | Path) -> Run:
    """Opens a run folder."""
    return Run(path)


def evaluate(
    path: str | Path,
    *,
    data: str | None = None,
    split: str = "test",
    column: str | None = None,
    target: str | None = None,
    data_dir: str | None = None,
    notify: Notify | None = None,
    int8: bool = False,
) -> dict[str, float]:
    """The measures of a run on its own `split`, or on the whole of another file, by columns of its own if need be;
    `int8`: with its weights rounded to 8 bits."""
    run = Run(path)
    module = registry.tasks.load(run.config.task.name)
    if data is None:
        task = module.reopen(run.path, run.config, data_dir, notify)
        unchanged(run, task)
    else:
        named = run.named(column=column, target=target)
        task, split = module.reopen_on(run.path, named, data, data_dir, notify), "test"
    model = run.model
    if int8:
        if run.config.model.counts:
            raise SeriatimError("run.counts", f"{path}: a model that counts has no weights to round", "leave int8 away")
        model = round_weights(model)
    measures: dict[str, float] = task.evaluate(model, split)
    return measures


def import_arpa(file: str | Path, out: str | Path | None = None) -> Run:
    """A run folder around an n-gram model that another program estimated."""
    NGram = registry.models.load("ngram").NGram
    first, names = NGram.read_arpa(file)
    words = [name for name in names if name not in ("<unk>", "<s>", "</s>", "<eos>")]
    kind = "char" if all(len(word) == 1 for word in words) else "word"
    values = {"kind": kind, "size": len(words) + 2, "punctuation": False}
    config = configure("language", str(file), "ngram", {"data": {"tokenizer": values}})
    tokenizer = Tokenizer.train(config.data.tokenizer, ["".join(words) if kind == "char" else "\n".join(words)])
    boundary = None if first.boundary is None else tokenizer.eos
    model, _ = NGram.read_arpa(file, tokenizer.names, boundary)
    folder = fresh_folder("runs", Path(file).stem) if out is None else Path(out)
    if has_begun(folder):
        raise SeriatimError("run.exists", f"{folder} holds a run already", "choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    config = config.model_copy(update={"model": model.settings})
    write_text(folder / "config.yaml", dump_yaml(config))
    save_tensors(folder / "model.safetensors", {n: torch.from_numpy(a) for n, a in model.tensors().items()})
    about = {"version": __version__, "task": "language", "model": "ngram", "parameters": model.entries}
    write_json(folder / "summary.json", about | {"reason": "imported", "data": {"source": str(file)}})
    return Run(folder)


@dataclass(frozen=True)
class Comparison:
    """Several runs on the same data."""

    path: Path
    runs: list[Run]
    failed: dict[str, str]  # model → why

    def table(self) -> list[dict[str, Any]]:
        """A row a model: quality, size, cost."""
        return [report.row(run) for run in self.runs]

    def plot(self) -> Any:
        return report.charts.curves(self.runs)


def compare(
    task: str | None = None,
    data: str | None = None,
    models: Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
    *,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    data_dir: str | None = None,
    listeners: Callable[[str], Iterable[Listener]] = lambda model: (),
    notify: Notify | None = None,
    **short: Any,
) -> Comparison:
    """Trains several architectures on the same data, split and budget, and writes one report.

    `models` are names, or labels with the settings of each on top of the common ones (`{"deep": {"model": …}}`).
    A folder that holds a part of the comparison already is completed: finished models are not trained again.
    """
    if not models:
        raise SeriatimError("compare.empty", "no models were named", "name some: --models ngram,lstm,gpt")
    given = models if isinstance(models, Mapping) else {name: {"model": name} for name in models}
    common = sections(settings or {})
    configs = {name: configure(task, data, None, merge(common, sections(own)), **short) for name, own in given.items()}
    first = next(iter(configs.values()))
    path = fresh_folder("runs", f"compare-{first.task.name}") if out is None else Path(out)
    runs: list[Run] = []
    failed: dict[str, SeriatimError] = {}
    for name, config in configs.items():
        must_agree(path / name, config)
        try:
            run = completed(config, path / name, data_dir, listeners(name), notify)
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
    if joined_ranks().first:
        write_json(path / "comparison.json", {"table": comparison.table(), "failed": reasons})
        report.write_comparison_report(path, runs, reasons)
    return comparison


def completed(
    config: Config, folder: Path, data_dir: str | None, listeners: Iterable[Listener], notify: Notify | None
) -> Run:
    """A run that is there already as it is, one that was begun gone on with, or a new one."""
    state = [has_begun(folder), bool(has_begun(folder) and Run(folder).summary.get("measures"))]
    begun, done = (bool(value) for value in joined_ranks().share([float(value) for value in state]))
    if done:
        return Run(folder)
    if begun:
        return Session(Run(folder).config, folder, data_dir, listeners, notify).resume()
    return Session(config, folder, data_dir, listeners, notify).start()


def must_agree(folder: Path, config: Config) -> None:
    """A comparison that goes on is the one that was begun, but for the sizes that a budget solved for."""
    if not has_begun(folder):
        return
    solved = {"width", "order", "entries", getattr(config.model, "fine", "")} if config.params is not None else set()
    stored, wanted = Run(folder).config.model_dump(mode="json"), config.model_dump(mode="json")
    for values in (stored, wanted):
        values["model"] = {name: value for name, value in values["model"].items() if name not in solved}
    if differing := [name for name in wanted if stored[name] != wanted[name]]:
        raise SeriatimError(
            "compare.differs",
            f"{folder} was trained with other settings ({', '.join(differing)})",
            "repeat the command as it was, or choose another --out",
        )
