"""Train, resume, load, evaluate and compare: what the command line, notebooks and servers call.

run = seriatim.train("language", data="book.txt", model="lstm", minutes=2)
run.generate("The students opened their", max_tokens=40)
"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import report
from ._version import __version__
from .core import registry
from .core.config import dump_yaml, merge, set_path, validate
from .core.device import Ranks, flush_denormals, joined_ranks, keep_memory, pick_device
from .core.errors import SeriatimError, did_you_mean
from .core.files import write_json, write_text
from .core.measures import signatures
from .core.tensors import load_tensors, save_tensors
from .data.tokenizers import Tokenizer
from .nn.network import load_weights
from .origin import Origin
from .runs import Run, fresh_folder
from .tasks._examples import refuse_counting, refuse_pairs
from .training import distil
from .training.budget import size_of, solve_width
from .training.checkpoint import Checkpoints
from .training.config import ENDS, Config, make_config
from .training.cost import peak_memory, reset_peak_memory
from .training.counting import count
from .training.distil import Teacher
from .training.listeners import Listener, Outcome, Recorder
from .training.loop import Loop
from .training.settings import TrainSettings
from .training.signals import halting

Notify = Callable[[str], None]

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


def has_begun(folder: Path) -> bool:
    """Whether there is something to lose: a folder whose training never got to its first checkpoint has nothing."""
    return (folder / "model.safetensors").exists() or bool(Checkpoints(folder / "checkpoints").steps())


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
) -> dict[str, float]:
    """The measures of a run on its own `split`, or on the whole of another file, by columns of its own if need be."""
    run = Run(path)
    module = registry.tasks.load(run.config.task.name)
    if data is None:
        task = module.reopen(run.path, run.config, data_dir, notify)
        unchanged(run, task)
    else:
        named = run.named(column=column, target=target)
        task, split = module.reopen_on(run.path, named, data, data_dir, notify), "test"
    measures: dict[str, float] = task.evaluate(run.model, split)
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


@dataclass
class Session:
    """One training of one model: from the configuration to a finished run folder."""

    config: Config
    folder: Path
    data_dir: str | None
    listeners: Iterable[Listener]
    notify: Notify | None
    teacher: dict[str, Any] | None = None  # what is known of it, where there is one

    def start(self) -> Run:
        module = registry.tasks.load(self.config.task.name)
        if not getattr(module, "PAIRS", False):
            refuse_pairs(self.config.model, self.config.task.name)
        flush_denormals()
        keep_memory()
        ranks = joined_ranks()
        pick_device(self.config.train.device)  # all that can be wrong is found before the folder is made
        origin = None if self.config.start is None else Origin.open(self.config.start)
        known = {} if origin is None else self._known(module, origin)
        teacher = self._teacher()
        if teacher is not None and origin is None and getattr(module, "SAME_TOKENS", False) and not self._named_tokens:
            known = self._known(module, Origin.open(str(teacher.path)))
        prepare = lambda: module.prepare(self.config, self.data_dir, self._notify(ranks), **known)  # noqa: E731
        task = self._in_turn(ranks, prepare)
        if not hasattr(task, "count"):
            refuse_counting(self.config.model, self.config.task.name)
        if teacher is not None:
            teacher.must_suit(task, self.config)
        self._meet_budget(task)
        if not task.has("valid"):
            remedy = "name a file: --valid" if hasattr(self.config.data, "valid") else "give more data"
            raise SeriatimError("data.no-split", "there is no validation part", remedy)
        if not self.config.model.counts:
            task.build(self.config.model)
            task.batch(0, 0, 1, 1)
        if ranks.first:
            self.folder.mkdir(parents=True, exist_ok=True)
            task.save(self.folder)
            write_text(self.folder / "config.yaml", dump_yaml(self.config))
        if not self.config.model.counts:
            return self._learn(task, ranks, origin, teacher)
        if ranks.first:
            self._count(task)
        ranks.wait()
        return Run(self.folder)

    def resume(self, steps: int | None = None, epochs: float | None = None, minutes: float | None = None) -> Run:
        flush_denormals()
        keep_memory()
        module = registry.tasks.load(self.config.task.name)
        end = {"steps": steps, "epochs": epochs, "minutes": minutes}
        moved = any(value is not None for value in end.values())
        if moved:  # the old end no longer counts
            train = validate(TrainSettings, self.config.train.model_dump() | end, "the new end")
            self.config = self.config.model_copy(update={"train": train})
        ranks = joined_ranks()
        reopen = lambda: module.reopen(self.folder, self.config, self.data_dir, self._notify(ranks))  # noqa: E731
        task = self._in_turn(ranks, reopen)
        unchanged(Run(self.folder), task)
        teacher = self._teacher()
        if teacher is not None:
            teacher.must_suit(task, self.config)
        if moved and ranks.first:
            write_text(self.folder / "config.yaml", dump_yaml(self.config))
        return self._learn(task, ranks, None, teacher, resumed=True, moved=moved)

    def _notify(self, ranks: Ranks) -> Notify:
        return self.notify if ranks.first and self.notify is not None else lambda text: None

    @staticmethod
    def _in_turn(ranks: Ranks, prepare: Callable[[], Any]) -> Any:
        """Rank 0 first: the others then find the data in the cache, or learn that there is none."""
        error: SeriatimError | None = None
        task: Any = None
        if ranks.first:
            try:
                task = prepare()
            except SeriatimError as caught:
                error = caught
        failed = ranks.share([float(error is not None)])[0]
        if error is not None:
            raise error
        if failed:
            raise SeriatimError("train.first", "the first process could not start", "see what it says")
        return task if ranks.first else prepare()

    def _meet_budget(self, task: Any) -> None:
        wanted, model = self.config.params, self.config.model
        if wanted is None:
            return
        if model.counts:
            solved = task.within(model, wanted)
        else:
            solved = solve_width(model, wanted, task.shape)
            size = size_of(solved, task.shape)
            if self.notify is not None and size < 0.98 * wanted:
                self.notify(f"{model.name}: {size:,} parameters; the next width would exceed {wanted:,}")
            if self.notify is not None and "width" in model.model_fields_set and model.width != solved.width:
                self.notify(f"{model.name}: --params makes the width {solved.width}, not {model.width}")
        self.config = self.config.model_copy(update={"model": solved})

    def _teacher(self) -> Teacher | None:
        if self.config.distil is None:
            return None
        if self.config.model.counts:
            cause = f"{self.config.model.name} learns nothing by gradients, so nothing from a teacher"
            raise SeriatimError("distil.student", cause, "choose another --model, or leave --teacher away")
        return Teacher(Run(self.config.distil.teacher))

    @property
    def _named_tokens(self) -> bool:
        """Whether the user says how text is to be cut."""
        tokenizer = getattr(self.config.data, "tokenizer", None)
        return tokenizer is not None and bool(tokenizer.model_fields_set)

    def _known(self, module: Any, origin: Origin) -> dict[str, Any]:
        """What the preparation of a task is to take over: the tokenizers that the weights were trained with."""
        names = inspect.signature(module.prepare).parameters
        if self._named_tokens:
            cause = f"{origin.source} has a tokenizer of its own"
            raise SeriatimError("start.tokenizer", cause, "leave --tokenizer and --vocabulary away")
        if origin.tokenizer is None:
            return {}
        if "tokenizer" not in names:
            cause = f"{origin.source} reads text, the task {self.config.task.name} does not"
            raise SeriatimError("start.task", cause, "begin with a run of the same kind of data")
        sources = {"source_tokenizer": origin.source_tokenizer} if "source_tokenizer" in names else {}
        return {"tokenizer": origin.tokenizer, **sources}

    def _learn(
        self,
        task: Any,
        ranks: Ranks,
        origin: Origin | None,
        teacher: Teacher | None,
        resumed: bool = False,
        moved: bool = False,
    ) -> Run:
        device = pick_device(self.config.train.device)
        network = task.build(self.config.model)
        model = self.config.model
        if origin is not None:
            labels = list(getattr(getattr(task, "coder", None), "labels", ()))
            origin.give(network, self.config.task.name, labels, self._notify(ranks))
            task.begun = None  # it began with these weights, not with fresh ones
        given = self.config.train.optimiser.rate
        usual = model.rate() if self.config.start is None else model.tuning_rate()
        rate = usual if given is None else given
        learner = task if teacher is None else self._taught(task, teacher, device, self._notify(ranks), resumed)
        outcome = Outcome()
        recorder = [Recorder(self.folder)] if ranks.first else []
        told: list[Listener] = [*recorder, outcome, *(self.listeners if ranks.first else ())]
        reset_peak_memory()
        with halting() as halt:
            loop = Loop(
                learner,
                network,
                self.config.train,
                rate,
                self.config.seed,
                Checkpoints(self.folder / "checkpoints"),
                device,
                ranks,
                keep_best=lambda weights: save_tensors(self.folder / "model.safetensors", weights),
                halt=halt,
            )
            if loop.frozen:
                self._notify(ranks)(loop.frozen)
            if resumed:
                try:
                    loop.resume(moved)
                except (KeyError, ValueError) as error:
                    raise registry.tasks.load(self.config.task.name).mismatch(self.folder, error) from None
            elif ranks.first:
                self.summarise(task, outcome)  # what is known now, should the power fail
            for event in loop.run():
                for listener in told:
                    listener(event)
        if ranks.first:
            if (self.folder / "model.safetensors").exists():
                load_weights(network, load_tensors(self.folder / "model.safetensors"))
            if self.notify is not None and outcome.stopped is not None and not outcome.stopped.reason.startswith("SIG"):
                self.notify("measuring the best weights")
            self.summarise(task, outcome, network.eval())
        ranks.wait()
        return Run(self.folder)

    def _taught(self, task: Any, teacher: Teacher, device: torch.device, notify: Notify, resumed: bool) -> Any:
        """The task with its teacher, which is the one that a resumed training began with. A teacher without a part in
        the loss is not asked."""
        wanted = self.config.distil
        if wanted is None:
            raise TypeError("no teacher was asked for")
        if not wanted.alpha and not wanted.hidden:
            return task
        source, more = wanted.unlabelled, None
        if source is not None:
            more = task.with_unlabelled(source, self.config, self.data_dir, notify)
        self.teacher = teacher.about | ({} if more is None else {"unlabelled": more.fingerprint})
        if resumed:
            distil.unchanged(Run(self.folder).summary.get("teacher", {}), self.teacher)
        return distil.distilled(task, wanted, teacher, device, notify, more)

    def _count(self, task: Any) -> None:
        outcome = Outcome()
        kept: list[Any] = []

        def keep(model: Any) -> tuple[dict[str, float], str]:
            kept.append(model)
            arrays = model.tensors()
            save_tensors(self.folder / "model.safetensors", {name: torch.from_numpy(a) for name, a in arrays.items()})
            return task.evaluate(model, "valid", self.config.train.evaluate_limit), task.sample(model, 1)

        reset_peak_memory()
        told: list[Listener] = [Recorder(self.folder), outcome, *self.listeners]
        fit = lambda: task.count(self.config.model, self.notify or (lambda text: None))  # noqa: E731
        for event in count(fit, keep, task.size):
            for listener in told:
                listener(event)
        self.summarise(task, outcome, kept[0])

    def summarise(self, task: Any, outcome: Outcome, model: Any = None) -> None:
        """summary.json, the model card and the report. Without a model: only what is known before training."""
        summary: dict[str, Any] = {
            "version": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "task": self.config.task.name,
            "model": self.config.model.name,
            "objective": task.objective,
            "seed": self.config.seed,
            "data": {"source": self.config.data.source, "fingerprint": task.fingerprint, "notes": task.notes},
        }
        if self.teacher is not None:
            summary["teacher"] = self.teacher
        started, stopped = outcome.started, outcome.stopped
        if model is not None and started is not None and stopped is not None:
            interrupted = stopped.reason.startswith("SIG")
            splits = [] if interrupted else ["valid", *(["test"] if task.has("test") else [])]
            summary |= {
                "reason": stopped.reason,
                "step": stopped.step,
                "best_step": stopped.best_step,
                "parameters": started.parameters if isinstance(model, torch.nn.Module) else model.entries,
                "seconds": round(stopped.seconds, 3),
                "tokens": stopped.tokens,
                "tokens_per_second": round(stopped.tokens / max(stopped.seconds, 1e-9), 1),
                "flops": None if started.flops is None else started.flops * stopped.step,
                "memory": peak_memory(),
                "measures": (measured := {split: task.evaluate(model, split) for split in splits}),
                "baselines": {split: found for split in splits if (found := _asked(task, "baselines", {}, split))},
                "sample": outcome.sample or self._best_sample(stopped.best_step),
            }
            if taken := {name: how for values in measured.values() for name, how in signatures(values).items()}:
                summary["signatures"] = taken
            views = {split: found for split in splits if (found := _asked(task, "details", [], model, split))}
            if views:
                write_json(self.folder / "evaluation.json", views)
        write_json(self.folder / "summary.json", summary)
        if "measures" in summary:
            report.write_card(Run(self.folder))
            report.write_run_report(Run(self.folder))

    def _best_sample(self, step: int) -> str:
        """What the best weights wrote, where that was before this session."""
        return next((one["text"] for one in Run(self.folder).samples() if one["step"] == step), "")


def _asked(task: Any, question: str, otherwise: Any, *arguments: Any) -> Any:
    """What a task has to say where it has: trivial answers to compare with, pictures of its own."""
    answer = getattr(task, question, None)
    return otherwise if answer is None else answer(*arguments)


def unchanged(run: Run, task: Any) -> None:
    """The data is what the run was trained on, or an error."""
    known = run.summary.get("data", {}).get("fingerprint")
    if known is not None and known != task.fingerprint:
        raise SeriatimError(
            "data.changed",
            f"the data of {run.path} is not what it was trained on",
            "restore the file; to train on other data, start a new run",
        )


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
