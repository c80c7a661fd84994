"""One training of one model, from a checked configuration to a finished run folder."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import report
from ._version import __version__
from .core import registry
from .core.config import dump_yaml, validate
from .core.device import Ranks, flush_denormals, joined_ranks, keep_memory, pick_device
from .core.errors import SeriatimError
from .core.files import write_json, write_text
from .core.measures import signatures
from .core.tensors import load_tensors, save_tensors
from .nn.network import load_weights
from .origin import Origin
from .runs import Run
from .tasks._examples import refuse_counting, refuse_pairs
from .tasks._picture_coder import refuse_only_pictures
from .training import distil
from .training.budget import size_of, solve_width
from .training.checkpoint import Checkpoints
from .training.config import Config
from .training.cost import peak_memory, reset_peak_memory
from .training.counting import count
from .training.distil import Teacher
from .training.listeners import Listener, Outcome, Recorder
from .training.loop import Loop
from .training.settings import TrainSettings
from .training.signals import halting

Notify = Callable[[str], None]
LEARNT = 100  # steps after which a network is worth looking into


def has_begun(folder: Path) -> bool:
    """Whether there is something to lose: a folder whose training never got to its first checkpoint has nothing."""
    return (folder / "model.safetensors").exists() or bool(Checkpoints(folder / "checkpoints").steps())


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
        if not getattr(module, "PICTURES", False):
            refuse_only_pictures(self.config.model, self.config.task.name)
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
        pairs = {name: getattr(origin, name) for name in ("source_tokenizer", "start") if name in names}
        return {"tokenizer": origin.tokenizer, **pairs}

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
        if self.config.train.freeze != "none" and self.config.start is None and not resumed:
            self._notify(ranks)("what is frozen has fresh weights: nothing was trained before (--from)")
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
        for event in count(fit, keep, task.size, getattr(task, "unit", "elements")):
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
        if summary.get("measures"):
            self._look_inside(task, summary["step"])
        if "measures" in summary:
            report.write_card(Run(self.folder))
            report.write_run_report(Run(self.folder))

    def _look_inside(self, task: Any, step: int) -> None:
        """inspection.json: what the report shows of the inside. A network that hardly learnt has nothing to show."""
        if step < LEARNT and not self.config.model.counts:
            return
        from .inspect.overview import overview

        try:
            views = overview(Run(self.folder), task)
        except Exception as error:  # a model of the user's own may do anything; what was trained must not suffer
            if self.notify is not None:
                self.notify(f"the report does not show the inside: {type(error).__name__}: {error}")
            return
        if views:
            write_json(self.folder / "inspection.json", views)

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
