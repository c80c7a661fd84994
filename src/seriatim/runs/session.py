"""A training session: from a validated configuration to a finished run folder."""

from __future__ import annotations

import contextlib
import datetime
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import torch

from .. import report
from .._version import __version__
from ..core import registry
from ..core.config import validate
from ..core.device import Ranks, flush_denormals, join_ranks, pick_device, retain_freed_memory
from ..core.errors import Diagnostics, SeriatimError
from ..core.files import Json, WriteError, append_json, load_tensors, remove_partial, save_tensors, to_json, write_json
from ..core.run_folder import FORMAT, RunFolder, fresh_folder, locked_folder
from ..core.run_summary import AverageSummary, DataSummary, RunSummary, TeacherSummary
from ..data.source import open_source
from ..data.tokenizers import Tokenizer
from ..nn.network import check_memory, count_parameters, load_weights, weights
from ..report.charts import View, views_to_json
from ..tasks import load as load_task
from ..tasks.base import AnyTask
from ..tasks.inputs import plural_of
from ..tasks.reading import prepare, same_data
from ..tasks.values import AnyEvaluation, Splits
from ..training.budget import check_batch_memory, make_plan
from ..training.checkpoint import Checkpoints
from ..training.config import ENDS, Config, TrainSettings, learning_rates
from ..training.cost import parameter_count, peak_memory, reset_peak_memory, solve_width
from ..training.events import Callback, Evaluating, Outcome, Recorder, Stopped
from ..training.loop import CLOCKS, Loop, check_monitor, fit_events, stop_signals
from ..training.objective import Objective, TaskObjective
from .capabilities import predictor_capabilities
from .evaluate import Data, Notify, check_fingerprint
from .run import WEIGHTS, Run, save_task

if TYPE_CHECKING:
    from ..hub.warm_start import WarmStart
    from ..training.distillation import Teacher

T = TypeVar("T")
TRAINING_COPIES = 4  # of the weights: themselves, gradients, the two averages of Adam
RECORDS = (
    WEIGHTS,
    "metrics.jsonl",
    "samples.jsonl",
    "summary.json",
    "evaluation.json",
    "inspection.json",
    "examples.json",
)
# Where the time goes: reading data and deciding what is left open; training; evaluating on the way; …
TIMES = ("reading", "training", "evaluation", "final_evaluation", "inspection")
EVALUATING_SECONDS = 1.0  # between two lines on the progress of the final evaluation
MIN_INSPECTED_STEPS = 100  # of training, before which a network has nothing to show inside


def make_folder(stem: str) -> Path:
    """Makes and returns a new folder runs/stem or runs/stem-2, …, the same on all ranks."""
    ranks = join_ranks()
    name = fresh_folder("runs", stem).name if ranks.is_first else stem
    number = ranks.broadcast([float(name[len(stem) + 1 :] or 1)])[0]
    return Path("runs", stem if number == 1 else f"{stem}-{number:.0f}")


def has_started(folder: Path) -> bool:
    """Returns whether a folder holds something that a new training would destroy.

    That is a checkpoint, or the weights of a run that has ended or lost its checkpoints. Whatever else a process that
    was killed has left can be written again.
    """
    if Checkpoints(folder / "checkpoints").steps():
        return True
    if not (folder / WEIGHTS).exists():
        return False
    try:
        run = RunFolder(folder)
        return bool(run.results.reason or run.history("saved"))
    except SeriatimError:  # a file is damaged
        return True


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task and its splits.

    Args:
        task: The task, with the settings of the model that is trained.
        splits: The data, encoded.
    """

    task: AnyTask
    splits: Splits[Any]


@dataclass(eq=False)
class Session:
    """One training of one model.

    Args:
        config: The settings.
        folder: The run folder.
        data: Data in memory that replaces the paths in the settings.
        data_dir: The folder of catalogue data sets.
        callbacks: Called with each event of the loop: progress bars, logs.
        notify: Called with each note.
        report: Whether to inspect the trained model and write report.html and the model card.
        trial: Whether only the metrics on the validation split are wanted: no test, no views, no report.
        teacher_summary: What the summary says of the teacher.
        averaged: What the summary says of the runs or checkpoints that are averaged; see `average`.
        pause: After how many seconds of training to stop before the end, and the reason to give; after "paused" the
            model is not evaluated on all rows, because the training will be resumed.
        shared: Other sessions; the data of one that has the same is used instead of a second copy of it.
        known_baselines: The baselines that sessions on the same data have evaluated; they are not evaluated again.
    """

    config: Config
    folder: Path
    data: Data = field(default_factory=Data)
    data_dir: str | None = None
    callbacks: Iterable[Callback] = ()
    notify: Notify | None = None
    report: bool = True
    teacher_summary: TeacherSummary | None = None
    averaged: AverageSummary | None = None
    trial: bool = False
    pause: tuple[float, str] | None = None
    shared: WeakSet[Session] | None = None
    known_baselines: dict[str, Json] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)  # stage → seconds; see `TIMES`
    decided: list[str] = field(default_factory=list)  # settings that were open, and follow from the budget
    prepared: Prepared | None = field(default=None, init=False)
    diagnostics: Diagnostics = field(default_factory=Diagnostics, init=False)  # with the notes that the run stores

    def start(self) -> Run:
        """Trains from the beginning and returns the run."""
        check_model(self.config)
        ranks = self._set_up()
        with self._locked(ranks):
            on_first_rank(
                ranks, lambda: check_unused(self.folder, f"`seriatim resume {self.folder}` continues it; else ")
            )
            return self._start(ranks)

    def resume(self, **end: float | str | None) -> Run:
        """Continues from the last checkpoint, or else from the beginning, and returns the run.

        The end may be moved: `steps`, `minutes` or another of `ENDS`.
        """
        ranks = self._set_up()
        with self._locked(ranks):
            return self._resume(ranks, dict.fromkeys(ENDS) | end)

    @contextlib.contextmanager
    def _locked(self, ranks: Ranks) -> Iterator[None]:
        """Locks the folder and removes what a process that was killed was writing; errors say how to go on."""
        with locked_by_first_rank(self.folder, ranks):
            if ranks.is_first:
                remove_partial(self.folder)
                remove_partial(self.folder / "checkpoints")
            try:
                yield
            except WriteError as error:
                if steps := Checkpoints(self.folder / "checkpoints").steps():
                    error.remedy += f"; `seriatim resume {self.folder}` then continues from step {steps[-1]}"
                raise

    def _start(self, ranks: Ranks) -> Run:
        warm_start = None if self.config.start is None else open_warm_start(self.config.start)
        teacher = self._open_teacher()
        prepared = self.prepare(ranks, pretrained=self._pretrained_tokenizers(warm_start, teacher))
        if teacher is not None:
            teacher.check_compatible(prepared.task, self.config)
        prepared = self._solve_budget(prepared)
        if "validation" not in prepared.splits:
            raise SeriatimError("data.no-split", "there is no validation split", "name a file: --validation")
        if not self.config.model.gradient_free:  # whatever can fail does so before the folder is made
            check_memory(lambda: prepared.task.network(self.config.model), TRAINING_COPIES)
            with self._timed("reading"):
                prepared = self._follow_budget(prepared, ranks)
        if ranks.is_first:
            self._remove_records("config.yaml")
            settings = self.config.model_dump(mode="json")
            self._save_task(prepared, settings)
            declared = predictor_capabilities(prepared.task, prepared.splits["validation"].rows)
            write_json(self.folder / "capabilities.json", declared)
            Run.create(self.folder, settings)  # last: a folder with a config.yaml can be resumed
        return self._fit(prepared, ranks, warm_start, teacher)

    def _resume(self, ranks: Ranks, end: Mapping[str, float | str | None]) -> Run:
        new_end = any(value is not None for value in end.values())
        if new_end:
            train = validate(TrainSettings, self.config.train.model_dump() | dict(end), "the new end")
            self.config = self.config.model_copy(update={"train": train})
        run = Run(self.folder)
        self.decided = run.results.decided
        started = bool(ranks.broadcast([float(has_started(self.folder))])[0])
        warm_start = None if started or self.config.start is None else open_warm_start(self.config.start)
        prepared = self.prepare(ranks, processor=run.task.processor)
        check_fingerprint(run, prepared.splits)
        teacher = self._open_teacher()
        if teacher is not None:
            teacher.check_compatible(prepared.task, self.config)
        if ranks.is_first:
            for section in sorted(run.changed_settings(run.stored_data)):
                self._note(f"{run.path / 'config.yaml'}: {section} was edited since the training started")
            if not started:
                self._note("there is no checkpoint: the training starts from the beginning")
                self._remove_records()
            if new_end:
                Run.create(
                    self.folder,
                    run.settings
                    | {"train": run.settings["train"] | {name: getattr(self.config.train, name) for name in ENDS}},
                )
        return self._fit(prepared, ranks, warm_start, teacher, resumed=started, new_end=new_end)

    # Preparation

    def _set_up(self) -> Ranks:
        flush_denormals()
        retain_freed_memory()
        pick_device(self.config.train.device)
        return join_ranks()

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Adds the time of the block to that of a stage, by the clock of the training."""
        now = CLOCKS[self.config.train.clock]
        began = now()
        yield
        self.times[stage] = self.times.get(stage, 0.0) + now() - began

    def _note(self, text: str) -> None:
        if self.notify is not None:
            self.notify(text)

    def prepare(self, ranks: Ranks, **options: Any) -> Prepared:
        """Returns the task and its splits. Rank 0 reads first: the others then find the data in the cache, or stop."""
        if self.prepared is not None:
            return self.prepared
        task_type = load_task(self.config.task.name)
        arguments = {**self.data.in_memory(), **options, "data_dir": self.data_dir}

        def read() -> Prepared:
            self.diagnostics = Diagnostics(self.notify if ranks.is_first else None)
            return Prepared(*prepare(task_type, self.config.task_config(), diagnostics=self.diagnostics, **arguments))

        with self._timed("reading"):
            own = on_first_rank(ranks, read)
            own = read() if own is None else own
        for session in self.shared or ():
            other = session.prepared
            if other is not None and same_data(own.task, own.splits, other.task, other.splits):
                own = Prepared(replace(own.task, processor=other.task.processor), other.splits)
                break
        if self.shared is not None:
            self.shared.add(self)
        self.prepared = own
        return own

    def _with_config(self, prepared: Prepared, config: Config) -> Prepared:
        """Adopts a configuration whose model has other settings, and returns the task with them."""
        self.config = config
        self.prepared = replace(prepared, task=prepared.task.with_model(config.model))
        return self.prepared

    def _remove_records(self, *names: str) -> None:
        """Removes what a training without a checkpoint has left, and files of these names before that."""
        for name in (*names, *RECORDS):
            (self.folder / name).unlink(missing_ok=True)

    def _pretrained_tokenizers(self, start: WarmStart | None, teacher: Teacher | None) -> dict[str, Tokenizer]:
        """Returns the tokenizers of the pretrained weights, or of a teacher that reads the same tokens."""
        settings = getattr(self.config.task, "tokenizer", None)
        named = settings is not None and bool(settings.model_fields_set)
        task_class = load_task(self.config.task.name)
        if start is None and teacher is not None and task_class.teacher_tokenizer and not named:
            start = open_warm_start(str(teacher.path))
        if start is None or start.tokenizer is None:
            return {}
        if named:
            cause = f"{start.source} has a tokenizer of its own"
            raise SeriatimError("start.tokenizer", cause, "omit --tokenizer and --vocab-size")
        if "tokenizer" not in task_class.settings_type.model_fields:
            cause = f"{start.source} reads text, the task {self.config.task.name} does not"
            raise SeriatimError("start.task", cause, "start from a run of the same kind of data")
        tokenizers = {"tokenizer": start.tokenizer, "source_tokenizer": start.source_tokenizer}
        return {name: tokenizer for name, tokenizer in tokenizers.items() if tokenizer is not None}

    def _solve_budget(self, prepared: Prepared) -> Prepared:
        """Sets the width (or the size of a gradient-free model) by the parameter budget."""
        budget, model, task = self.config.params, self.config.model, prepared.task
        if budget is None:
            return prepared
        if model.gradient_free:
            solved = task.resize(model, prepared.splits.train, budget, self.config.train.tokens)
        else:
            solved = solve_width(model, budget, task.network)
            count = parameter_count(solved, task.network)
            if count < 0.98 * budget:
                self._note(f"{model.name}: {count:,} parameters; the next width would exceed {budget:,}")
            if "width" in model.model_fields_set and model.width != solved.width:
                self._note(f"{model.name}: --params sets the width to {solved.width}, not {model.width}")
        return self._with_config(prepared, self.config.model_copy(update={"model": solved}))

    def _follow_budget(self, prepared: Prepared, ranks: Ranks) -> Prepared:
        """Decides what the settings leave open, by the budget, the data and the machine, and checks the result."""
        task, splits = prepared.task, prepared.splits
        objective = TaskObjective.of(task, splits, self.config.train.evaluate_limit)
        plan = make_plan(self.config, objective, task.network, pick_device(self.config.train.device), ranks)
        self.decided = plan.decided
        prepared = self._with_config(prepared, plan.config)
        if plan.note:
            self.diagnostics.note(plan.note)
        network, train = prepared.task.build(splits.train), self.config.train
        check_batch_memory(objective, network, train.batch_size or objective.batch_size)
        if train.monitor not in (None, task.monitor):
            sample = task.sample_split(splits["validation"], 1)
            check_monitor(train.monitor, task.evaluate(network, sample).metrics)
        return prepared

    def _open_teacher(self) -> Teacher | None:
        if self.config.distill is None:
            return None
        if self.config.model.gradient_free:
            cause = f"{self.config.model.name} is not trained by gradient descent and cannot learn from a teacher"
            raise SeriatimError("distill.student", cause, "choose another --model, or omit --teacher")
        from ..training.distillation import Teacher

        return Teacher(Run(self.config.distill.teacher))

    # Training

    def _fit(
        self,
        prepared: Prepared,
        ranks: Ranks,
        warm_start: WarmStart | None,
        teacher: Teacher | None,
        resumed: bool = False,
        new_end: bool = False,
    ) -> Run:
        task = prepared.task
        if self.config.model.gradient_free:
            if ranks.is_first:
                self._fit_gradient_free(prepared)
            ranks.barrier()
            return Run(self.folder)
        device = pick_device(self.config.train.device)
        notify = self._note if ranks.is_first else lambda text: None
        if resumed:
            check_memory(lambda: task.network(self.config.model), TRAINING_COPIES)
        network = task.build(prepared.splits.train)
        if warm_start is not None:
            warm_start.load_into(network, task.name, task.hub_head, task.processor.outputs, notify)
        if self.config.train.freeze != "none" and self.config.start is None and not resumed:
            notify("frozen layers have random weights: nothing was pretrained (--from)")
        lr, muon_lr = learning_rates(self.config)
        objective = self._objective(prepared, teacher, device, notify, resumed)
        outcome = Outcome()
        recorder = [Recorder(self.folder, self._note)] if ranks.is_first else []
        callbacks: list[Callback] = [*recorder, outcome, *(self.callbacks if ranks.is_first else ())]
        reset_peak_memory()
        with stop_signals() as stop_signal:
            loop = Loop(
                objective,
                network,
                self.config.train,
                lr,
                self.config.seed,
                Checkpoints(self.folder / "checkpoints"),
                device,
                ranks,
                save_best=lambda weights: save_tensors(self.folder / WEIGHTS, weights),
                stop_signal=stop_signal,
                muon_lr=muon_lr,
                pause=self.pause,
            )
            if loop.frozen:
                notify(loop.frozen)
            if resumed:
                try:
                    loop.resume(new_end)
                except (KeyError, TypeError, ValueError) as error:
                    cause = f"the checkpoint does not fit the settings of {self.folder}: {error}"
                    raise SeriatimError("run.damaged", cause, "restore config.yaml, or start a new run") from None
            elif ranks.is_first:
                self.summarize(prepared, outcome)  # what is known now, should the power fail
            for event in loop.run():
                for callback in callbacks:
                    callback(event)
        if ranks.is_first:
            if (self.folder / WEIGHTS).exists():
                load_weights(network, load_tensors(self.folder / WEIGHTS))
            if outcome.stopped is not None and not will_resume(outcome.stopped.reason):
                self._note("evaluating the best weights")
            self.times |= {"training": loop.progress.seconds, "evaluation": loop.progress.evaluation_seconds}
            self.summarize(prepared, outcome, network.eval())
        ranks.barrier()
        return Run(self.folder)

    def _objective(
        self, prepared: Prepared, teacher: Teacher | None, device: torch.device, notify: Notify, resumed: bool
    ) -> Objective[Any, Any]:
        """Returns what is minimized: the loss of the task, or with a teacher that has a share in it a distillation."""
        task, splits, settings = prepared.task, prepared.splits, self.config.distill
        limit = self.config.train.evaluate_limit
        if teacher is None or settings is None or not (settings.weight or settings.hidden_weight):
            return TaskObjective.of(task, splits, limit, self.diagnostics)
        from ..training.distillation import check_same_teacher, make_distillation, read_unlabeled

        unlabeled = None
        if settings.unlabeled_data is not None:
            source = open_source(settings.unlabeled_data, self.data_dir)
            unlabeled = read_unlabeled(task, splits, source, self.diagnostics)
        self.teacher_summary = teacher.summary
        if unlabeled is not None:
            self.teacher_summary = self.teacher_summary.replace(unlabeled=unlabeled.fingerprint())
        if resumed:
            check_same_teacher(Run(self.folder).results.teacher or TeacherSummary(), self.teacher_summary)
        return make_distillation(task, splits, settings, teacher, device, notify, limit, unlabeled)

    def _fit_gradient_free(self, prepared: Prepared) -> None:
        """Fits a model that is not trained by gradient descent, with the events of a training of one step."""
        task, splits, train = prepared.task, prepared.splits, prepared.splits.train
        objective = TaskObjective.of(task, splits, self.config.train.evaluate_limit, self.diagnostics)
        outcome, fitted = Outcome(), task.network(self.config.model)
        elements, limit = int(train.items.lengths.sum()), self.config.train.tokens
        if limit is not None and limit < elements:
            self._note(f"{self.config.model.name}: the first {limit:,} of {elements:,} {task.unit} are counted")
            elements = limit

        def fit() -> torch.nn.Module:
            nonlocal fitted
            fitted = task.fit(self.config.model, train, self.diagnostics, limit)
            return fitted

        reset_peak_memory()
        callbacks: list[Callback] = [Recorder(self.folder), outcome, *self.callbacks]
        for event in fit_events(objective, fit, self._save_weights, elements):
            for callback in callbacks:
                callback(event)
        self.summarize(prepared, outcome, fitted)

    def _save_weights(self, network: torch.nn.Module) -> None:
        save_tensors(self.folder / WEIGHTS, weights(network))

    # Records

    def _save_task(self, prepared: Prepared, settings: Json) -> None:
        save_task(self.folder, prepared.task, settings, prepared.splits.fingerprint, self.diagnostics.notes)

    def summarize(self, prepared: Prepared, outcome: Outcome, model: Any = None) -> None:
        """Writes summary.json and, once trained, examples, evaluation and inspection.json, model card and report.

        Args:
            prepared: The task and its splits.
            outcome: How the training went.
            model: The trained network or gradient-free model; None before training.
        """
        run, task, splits = Run(self.folder), prepared.task, prepared.splits
        origin = {"teacher": self.teacher_summary, "averaged": self.averaged}
        summary = RunSummary(
            format=FORMAT,
            version=__version__,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            task=task.name,
            model=self.config.model.name,
            monitor=self.config.train.monitor or task.monitor,
            task_summary=task.spec.summary,
            model_summary=registry.models.summary(self.config.model.name),
            model_info=self.config.model.info(),
            gradient_free=self.config.model.gradient_free,
            unit=task.unit,
            seed=self.config.seed,
            data=DataSummary(source=self.config.data.source, fingerprint=splits.fingerprint),
            notes=self.diagnostics.notes,
            decided=self.decided,
        ).replace(**{key: value for key, value in origin.items() if value is not None})
        started, stopped = outcome.started, outcome.stopped
        if model is None or started is None or stopped is None:
            run.write_results(summary)
            return
        names = [] if will_resume(stopped.reason) else splits.evaluated[: 1 if self.trial else None]
        if "validation" in names:
            task = self._calibrate(prepared, model, run)
        with self._timed("final_evaluation"):
            evaluations = {name: self._evaluate(task, model, splits, name, stopped) for name in names}
            baselines = {} if self.trial or not names else self._baselines(prepared, names)
        predictor = task.predictor(model)
        shown = splits["validation"].rows if "validation" in splits else None
        best_sample = next((line["text"] for line in run.samples() if line["step"] == stopped.best_step), "")
        signatures = {key: text for one in evaluations.values() for key, text in one.signatures.items()}
        summary = summary.replace(
            notes=self.diagnostics.notes,  # the calibration may have noted more
            reason=stopped.reason,
            step=stopped.step,
            best_step=stopped.best_step,
            parameters=count_parameters(model),
            seconds=round(stopped.seconds, 3),
            time_budget=started.budget,
            tokens=stopped.tokens,
            tokens_per_second=round(stopped.tokens / max(stopped.seconds, 1e-9), 1),
            flops=None if started.flops is None else started.flops * stopped.step,
            memory=peak_memory(),
            cpu_seconds=None if stopped.cpu_seconds is None else round(stopped.cpu_seconds, 3),
            threads=torch.get_num_threads(),
            metrics={name: dict(evaluation.metrics) for name, evaluation in evaluations.items()},
            baselines=baselines,
            sample=outcome.sample or best_sample,
            usage=[vars(usage) for usage in predictor.usage(str(self.folder), shown)],
            **({"signatures": signatures} if signatures else {}),
        )
        if names and not self.trial and (scores := evaluations["validation"].examples):
            run.write_examples(scores)
        run.write_results(summary)
        if not names or self.trial:
            return
        with self._timed("final_evaluation"):
            views = {
                name: [*task.views(evaluation), *task.network_views(model, evaluation)]
                for name, evaluation in evaluations.items()
            }
            stored = {name: views_to_json(charts) for name, charts in views.items()}
            run.write_evaluation(stored, task.findings(evaluations))
        if self.report and (stopped.step >= MIN_INSPECTED_STEPS or self.config.model.gradient_free):
            with self._timed("inspection"):
                self._write_inspection(prepared, predictor)
        elif self.report:
            least = f"{MIN_INSPECTED_STEPS} steps or more"
            self._note(f"the report shows the inside of models trained for {least}: `seriatim inspect {self.folder}`")
        times = {stage: round(self.times[stage], 3) for stage in TIMES if stage in self.times}
        run.write_results(summary.replace(times=times))
        if self.report:
            report.write_card(run)
            report.write_run_report(run)

    def _calibrate(self, prepared: Prepared, network: torch.nn.Module, run: Run) -> AnyTask:
        """Returns the task that the validation split has adapted, with the weights; stores both if they changed."""
        task, adapted = prepared.task.calibrate(network, prepared.splits["validation"], self.diagnostics)
        if adapted or task is not prepared.task:
            load_weights(network, {**weights(network), **adapted})
            self._save_weights(network)
            self._save_task(replace(prepared, task=task), run.settings)
        return task

    def _evaluate(self, task: AnyTask, model: Any, splits: Splits[Any], name: str, stopped: Stopped) -> AnyEvaluation:
        """Returns the evaluation on a whole split; callbacks and metrics.jsonl learn how much of it is done."""
        last_line = -math.inf

        def show(done: int, total: int) -> None:
            nonlocal last_line
            event = Evaluating(stopped.step, stopped.seconds, name, done, total)
            for callback in self.callbacks:
                callback(event)
            if not self.trial and time.monotonic() - last_line > EVALUATING_SECONDS:
                last_line = time.monotonic()
                append_json(self.folder / "metrics.jsonl", event.record())

        return task.evaluate(model, splits[name], show)

    def _baselines(self, prepared: Prepared, names: Sequence[str]) -> Json:
        """Returns the metrics of simple methods, which follow from data, settings of the task and processor.

        A model without gradients may be one of them.
        """
        processor = prepared.task.processor
        values, tokenizers = processor.to_dict()
        values = {name: value for name, value in values.items() if name not in processor.from_weights}
        settings = [self.config.task.model_dump_json(), self.config.data.model_dump_json()]
        parts = [prepared.splits.fingerprint, list(names), self.config.model.gradient_free, *settings, values]
        key = to_json([*parts, *(tokenizer.to_json() for tokenizer in tokenizers.values())])
        if key not in self.known_baselines:
            self.known_baselines[key] = prepared.task.baselines(prepared.splits, names)
        return self.known_baselines[key]

    def _write_inspection(self, prepared: Prepared, predictor: Any) -> None:
        """Writes inspection.json: what the report shows of the inside of the network."""
        from .inspection import overview

        try:
            charts: list[View] = overview(predictor, prepared.task, prepared.splits)
        except Exception as error:  # a model of the user's own may do anything; the trained weights must not be lost
            self._note(f"the report does not show the inside: {type(error).__name__}: {error}")
            return
        Run(self.folder).write_inspection(views_to_json(charts))


def train_or_resume(session: Session) -> Run:
    """Returns the finished run in the session's folder, resumes an interrupted one, or trains a new one."""
    folder, ranks = session.folder, join_ranks()
    started = has_started(folder)
    finished = started and Run(folder).results.finished
    started, finished = (bool(flag) for flag in ranks.broadcast([float(started), float(finished)]))
    if finished:
        return Run(folder)
    if started and not session.config.model.gradient_free:  # others are fitted again: they have no checkpoints
        session.config = Run(folder).config
        return session.resume()
    return session.start()


def will_resume(reason: str) -> bool:
    """Returns whether a training that ended for this reason is not at its end."""
    return reason.startswith("SIG") or reason == "paused"


def on_first_rank(ranks: Ranks, function: Callable[[], T]) -> T | None:
    """Returns the result of a function that rank 0 calls, None on the others; all raise an error if it fails."""
    error: SeriatimError | None = None
    result: T | None = None
    if ranks.is_first:
        try:
            result = function()
        except SeriatimError as caught:
            error = caught
    failed = ranks.broadcast([float(error is not None)])[0]
    if error is not None:
        raise error
    if failed:
        raise SeriatimError("train.rank", "the process of rank 0 could not start", "see its message")
    return result


@contextlib.contextmanager
def locked_by_first_rank(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Locks a folder against other processes than these ranks."""
    with contextlib.ExitStack() as stack:
        on_first_rank(ranks, lambda: stack.enter_context(locked_folder(folder)))
        yield


def check_unused(folder: Path, resuming: str = "") -> None:
    """Raises SeriatimError if a new run would destroy something in its folder: a run, or files of the user's.

    A config.yaml with a format is that of a run, whatever has become of it, and its files can be written again.

    Args:
        folder: The run folder.
        resuming: How to continue the run instead.
    """
    cause = f"{folder} is a file" if folder.is_file() else ""
    if has_started(folder):
        cause = f"{folder} holds a run already"
    else:
        resuming = ""
        names = [name for name in ("README.md", "config.yaml", "report.html") if (folder / name).is_file()]
        if "config.yaml" in names and b"\nformat:" in b"\n" + (folder / "config.yaml").read_bytes():
            names = []
        if names:
            cause = f"{folder} is not the folder of a run, and {' and '.join(names)} in it would be overwritten"
    if cause:
        raise SeriatimError("run.exists", cause, f"{resuming}choose another --out")


def open_warm_start(source: str) -> WarmStart:
    """Returns pretrained weights: of a run, a folder of transformers or a hub name."""
    from ..hub.warm_start import WarmStart

    return WarmStart.open(source)


def check_model(config: Config) -> None:
    """Raises SeriatimError if the task cannot use a model of this architecture."""
    task_class, model = load_task(config.task.name), config.model
    if model.gradient_free and model.name not in task_class.fitted_models:
        cause = f"{model.name} is not trained by gradient descent and does not support the task {task_class.name}"
        raise SeriatimError("task.model", cause, f"choose another --model, such as {task_class.default_model}")
    if model.encoder_decoder and not task_class.encoder_decoder:
        cause = f"{model.name} is an encoder–decoder, but the task {task_class.name} has one sequence"
        raise SeriatimError("task.model", cause, f"choose another --model, such as {task_class.default_model}")
    if model.modality is not None and task_class.modality not in (None, model.modality):
        cause = f"{model.name} reads {plural_of(model.modality)}, but the task {task_class.name} has none"
        raise SeriatimError("task.model", cause, f"choose another --model, such as {task_class.default_model}")
