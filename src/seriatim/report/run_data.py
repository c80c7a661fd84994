"""What reports read from the folder of a run, once: settings, metrics, curves and views."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from statistics import fmean, stdev
from typing import Any

from pydantic import ValidationError

from ..core import registry
from ..core.config import drop_path
from ..core.errors import SeriatimError
from ..core.files import Json
from ..core.findings import Finding
from ..core.metrics import ExampleScores, displayed_metrics, finite, get_metric, main_metric, merge_metrics
from ..core.model_info import ModelInfo
from ..core.run_folder import RunFolder
from ..core.run_summary import Metrics, RunSummary, mean, mean_costs
from ..core.text import one_line
from .charts import View, views_from_json

SPLITS = ("validation", "test")
NOT_FINISHED = "not finished"


@dataclass(frozen=True)
class Point:
    """A value, and what had been spent up to it."""

    step: int
    seconds: float
    tokens: float
    value: float


@dataclass(frozen=True)
class BrokenView:
    """A view of evaluation.json or inspection.json that cannot be drawn, and why."""

    title: str
    kind: str
    problem: str


def mapping(value: object) -> Json:
    """Returns the value if it is a dict, else an empty one: files may hold anything."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class RunData:
    """A run, under the label that it has among others. `SeededRun` is several, which differ in their seed."""

    folder: RunFolder
    label: str
    ranked_by: str = ""  # the main metric of a comparison, if it is not that of the run

    @property
    def runs(self) -> tuple[RunData, ...]:
        """The run of each seed."""
        return (self,)

    # Settings and summary

    @cached_property
    def results(self) -> RunSummary:
        return self.folder.results

    @cached_property
    def settings(self) -> Json:
        return self.folder.settings

    @cached_property
    def history(self) -> list[Json]:
        return self.folder.history()

    def events(self, name: str) -> list[Json]:
        return [event for event in self.history if event.get("event") == name]

    def setting(self, *path: str) -> Any:
        """Returns a setting, or None if there is none of this name."""
        value: Any = self.settings
        for name in path:
            value = mapping(value).get(name)
        return value

    @property
    def model(self) -> str:
        return str(self.results.model or self.setting("model", "name") or self.folder.path.name)

    @property
    def title(self) -> str:
        """The name of the architecture as people write it, or the label if it says more: "GPT", "GPT 100k"."""
        head, _, rest = self.label.partition("-")
        return f"{self.info.title or head} {rest}".rstrip() if head == self.model else self.label

    @cached_property
    def info(self) -> ModelInfo:
        """What the architecture declares: its title, its place in history, …"""
        return self.results.model_info or model_info(self.model)

    @property
    def task(self) -> str:
        return str(self.results.task or self.setting("task", "name") or "unknown")

    @property
    def task_summary(self) -> str:
        """What the task is, in a line without a period; by default what the run's first capability does."""
        first = mapping(next(iter(self.folder.capabilities.values()), None))
        return str(self.results.task_summary or first.get("summary") or self.task).rstrip(".")

    @property
    def model_summary(self) -> str:
        """What the architecture is, in a line without a period."""
        try:
            known = registry.models.summary(self.model)
        except SeriatimError:  # of a plug-in that is not loaded
            known = self.model
        return (self.results.model_summary or known).rstrip(".")

    @property
    def data_name(self) -> str:
        source = str(self.results.data.source or self.setting("data", "source") or "unknown data")
        return PurePath(source).name or source

    @property
    def fingerprint(self) -> str:
        return self.results.data.fingerprint

    @property
    def reason(self) -> str:
        return self.results.reason or NOT_FINISHED

    @property
    def interrupted(self) -> bool:
        return bool(self.results.signal) or not self.results.reason

    @property
    def gradient_free(self) -> bool:
        """Whether the model was fitted in one pass, without gradient descent."""
        declared = self.results.gradient_free
        return any(event.get("flops") is None for event in self.events("started")) if declared is None else declared

    @property
    def unit(self) -> str:
        """What was counted while training, in the plural: "tokens", "examples"."""
        units = [self.results.unit, *(event.get("unit") for event in self.events("started"))]
        return next((str(unit) for unit in units if unit), "elements")

    @property
    def budget(self) -> int | None:
        budget = self.settings.get("params")
        return budget if isinstance(budget, int) and budget > 0 else None

    @property
    def off_budget(self) -> float | None:
        """The relative distance of the number of parameters from the budget."""
        size = self.results.parameters
        return None if self.budget is None or size is None else size / self.budget - 1

    @property
    def time_budget(self) -> float | None:
        """The seconds that the training had, evaluations not counted; None if something else was its end."""
        steps = any(self.setting("train", end) is not None for end in ("steps", "epochs", "tokens", "flops"))
        minutes = None if steps or self.gradient_free else finite(self.setting("train", "minutes"))
        return 60 * float(minutes) if minutes is not None else None

    @property
    def time_used(self) -> float | None:
        """The share of the time budget that was used."""
        seconds = self.results.seconds
        return None if self.time_budget is None or seconds is None else seconds / self.time_budget

    @property
    def times(self) -> dict[str, float]:
        """The seconds of each stage: "reading", "training", "evaluation" on the way, "final evaluation", …"""
        return {stage.replace("_", " "): seconds for stage, seconds in self.results.times.items()}

    # Metrics

    def metrics(self, split: str) -> Metrics:
        return self.results.metrics.get(split, {})

    def values(self, split: str, metric: str) -> list[float]:
        """Returns a metric of each seed that has it."""
        found = (finite(run.metrics(split).get(metric)) for run in self.runs)
        return [float(value) for value in found if value is not None]

    def spread(self, split: str, metric: str) -> float | None:
        """Returns the standard deviation of a metric over the seeds; None if fewer than two have it."""
        values = self.values(split, metric)
        return stdev(values) if len(values) > 1 else None

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of simple methods on a split, by their name."""
        return self.results.baselines.get(split, {})

    @cached_property
    def examples(self) -> dict[str, ExampleScores]:
        """What each example of the validation split contributes to a metric, of a single run."""
        try:
            return self.folder.examples() if len(self.runs) == 1 else {}
        except SeriatimError:  # damaged: a test less
            return {}

    @property
    def splits(self) -> list[str]:
        """The splits that were evaluated at the end."""
        return [split for split in SPLITS if self.metrics(split)]

    @cached_property
    def all_metrics(self) -> Json:
        """Every metric of the run, each with its first value."""
        last = {
            key.removeprefix("val_"): value
            for event in self.events("evaluated")[-1:]
            for key, value in event.items()
            if key.startswith("val_")
        }
        return merge_metrics([self.metrics("validation"), self.metrics("test"), last])

    @cached_property
    def monitor(self) -> str:
        """The metric that selected the weights."""
        return self.results.monitor if self.results.monitor in self.all_metrics else "loss"

    @cached_property
    def main(self) -> str:
        """The metric to show first, and in charts."""
        return self.ranked_by or main_metric(self.all_metrics, self.monitor)

    @property
    def columns(self) -> list[str]:
        """The metrics worth showing, the main one first."""
        return list(dict.fromkeys([self.main, *displayed_metrics(self.all_metrics, self.monitor)]))

    def reached(self, split: str = "validation") -> float | int | None:
        """Returns the main metric on a split."""
        return finite(self.metrics(split).get(self.main))

    @property
    def score(self) -> float | int | None:
        """The number that ranks runs, lower is better: the main metric on the validation split, maybe with a minus."""
        if self.ranked_by:
            return self.reached()
        if self.monitor == "loss" and get_metric(self.main).direction == "higher":
            reached = self.reached()
            return None if reached is None else -reached
        value = finite(self.metrics("validation").get(self.monitor))
        return -value if value is not None and get_metric(self.monitor).direction == "higher" else value

    @property
    def loss_unit(self) -> str:
        """The unit of the loss: "nats" if it is the logarithm of a perplexity."""
        return "nats" if "perplexity" in self.all_metrics else ""

    # Curves

    @cached_property
    def training(self) -> list[Point]:
        """The loss of the recorded steps."""
        return points(self.events("stepped"), lambda event: event.get("loss"))

    def evaluations(self, metric: str) -> list[Point]:
        """Returns a metric of the evaluations during training."""
        return points(self.events("evaluated"), lambda event: event.get(f"val_{metric}"))

    def steps(self, key: str) -> list[tuple[int, float]]:
        """Returns the step and a finite quantity, such as lr or grad_norm, of the recorded steps."""
        pairs = [(finite(event.get("step")), finite(event.get(key))) for event in self.events("stepped")]
        return [(int(step), float(value)) for step, value in pairs if step is not None and value is not None]

    def samples(self) -> list[Json]:
        """Returns the samples made during training that have a text."""
        return [sample for sample in self.folder.samples() if str(sample.get("text", "")).strip()]

    # Views

    @cached_property
    def evaluation(self) -> tuple[str, list[View | BrokenView]]:
        """The split whose predictions are shown, the test split if it has views, and these views."""
        try:
            stored = self.folder.evaluation()
        except SeriatimError as error:  # the rest of the page does not need it
            return SPLITS[-1], [BrokenView("Predictions", "file", one_line(error.cause, 200))]
        for split in reversed(SPLITS):
            if isinstance(stored.get(split), list) and stored[split]:
                return split, read_views(stored[split])
        return "", []

    @cached_property
    def findings(self) -> list[Finding]:
        """What the task found, of a single run."""
        try:
            return self.folder.findings()
        except SeriatimError:  # damaged: `evaluation` shows it
            return []

    @cached_property
    def inspection(self) -> list[View | BrokenView]:
        try:
            return read_views(self.folder.inspection())
        except SeriatimError as error:
            return [BrokenView("The inside of the model", "file", one_line(error.cause, 200))]


@dataclass(frozen=True)
class SeededRun(RunData):
    """The runs of one model with several seeds: metrics, costs and curves are means, all else is the first run's."""

    seeded: tuple[RunData, ...] = ()

    @property
    def runs(self) -> tuple[RunData, ...]:
        return self.seeded

    @cached_property
    def results(self) -> RunSummary:
        finished = [run.results for run in self.seeded if not run.interrupted]
        names = {split: merge_metrics(run.metrics(split) for run in self.seeded) for split in SPLITS}
        means = {split: {name: mean(self.values(split, name)) for name in own} for split, own in names.items()}
        trained = finished or [run.results for run in self.seeded]
        metrics = {split: values for split, values in means.items() if values}
        changes = {**mean_costs(trained), "metrics": metrics, "reason": trained[0].reason}
        return self.seeded[0].results.model_copy(update=changes)

    @cached_property
    def training(self) -> list[Point]:
        return []

    def evaluations(self, metric: str) -> list[Point]:
        curves = [curve for run in self.seeded if (curve := run.evaluations(metric))]
        return [
            Point(
                round(fmean(point.step for point in points)),
                fmean(point.seconds for point in points),
                fmean(point.tokens for point in points),
                fmean(point.value for point in points),
            )
            for points in zip(*curves, strict=False)  # the evaluations of one number, as far as all have it
        ]


def model_info(name: str) -> ModelInfo:
    """Returns what an architecture declares; nothing of a plug-in that is not loaded."""
    return registry.models.infos([name]).get(name) or ModelInfo()


def read_views(values: Sequence[object]) -> list[View | BrokenView]:
    """Returns views from JSON; one that is not valid becomes a `BrokenView`, so that a page shows the others."""
    views: list[View | BrokenView] = []
    for value in values:
        if not isinstance(value, Mapping):
            continue
        try:
            views += views_from_json([value])
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"][2:])
            problem = f"{field}: {first['msg']}".removeprefix(": ")
            title, kind = one_line(value.get("title", "A view"), 100), one_line(value.get("kind", "no kind"))
            views.append(BrokenView(title, kind, one_line(problem, 200)))
    return views


def points(events: Sequence[Json], value_of: Callable[[Json], object]) -> list[Point]:
    """Returns the points of events whose value, seconds and tokens are finite."""
    result = []
    for event in events:
        value, step = finite(value_of(event)), finite(event.get("step"))
        seconds, tokens = finite(event.get("seconds")), finite(event.get("tokens"))
        if value is not None and step is not None and seconds is not None and tokens is not None:
            result.append(Point(int(step), seconds, tokens, value))
    return result


def read_runs(folders: Sequence[RunFolder]) -> list[RunData]:
    """Returns each run under the name of its model; if several have the same, with the name of the folder.

    Runs that differ in nothing but the seed become one `SeededRun`. Losses per token of different tokenizers cannot be
    compared: such runs are ranked by bits per byte.
    """
    groups: dict[str, list[list[RunFolder]]] = {}  # settings without the seed → runs with different seeds
    decided = {path for folder in folders for path in folder.results.decided}
    for folder in folders:
        settings = copy.deepcopy(dict(folder.settings))
        seed = settings.pop("seed", None)
        for path in decided:  # by the pace, which may differ a little: one seed may have kept what another changed
            drop_path(settings, path)
        alike = groups.setdefault(json.dumps(settings, sort_keys=True, default=str), [])
        free = next((own for own in alike if seed not in (other.settings.get("seed") for other in own)), None)
        if free is None:
            alike.append([folder])
        else:
            free.append(folder)
    ordered = sorted((own for alike in groups.values() for own in alike), key=lambda own: folders.index(own[0]))
    names = [RunData(own[0], "").model for own in ordered]
    tokenizers = [mapping(folder.settings.get("task")).get("tokenizer") for folder in folders]
    several = any(tokenizer != tokenizers[0] for tokenizer in tokenizers)
    comparable = all("bits_per_byte" in RunData(folder, "").all_metrics for folder in folders)
    metric = "bits_per_byte" if several and comparable else ""
    counts, taken = Counter(names), Counter[str]()
    runs = []
    for own, name in zip(ordered, names, strict=True):
        folder_name = own[0].path.name
        longer = folder_name if folder_name.startswith(f"{name}-") else f"{name} ({folder_name})"
        label = name if counts[name] == 1 else longer
        taken[label] += 1
        label = label if taken[label] == 1 else f"{label} #{taken[label]}"
        seeded = tuple(RunData(folder, label, metric) for folder in own)
        runs.append(seeded[0] if len(seeded) == 1 else SeededRun(own[0], label, metric, seeded))
    return runs


def ranked(runs: Sequence[RunData]) -> list[RunData]:
    """Returns the runs, best on the validation split first, equal ones by their loss; those without a value last."""

    def key(run: RunData) -> tuple[bool, float, float]:
        loss = finite(run.metrics("validation").get("loss"))
        return run.score is None, run.score or 0.0, float("inf") if loss is None else loss

    return sorted(runs, key=key)


def shared_metrics(runs: Sequence[RunData]) -> list[str]:
    """Returns the metrics of a comparison, the main one first."""
    return list(dict.fromkeys(name for run in runs for name in run.columns))


def shared_baselines(runs: Sequence[RunData], split: str) -> dict[str, Metrics]:
    """Returns the baselines of a comparison, each once: all models saw the same data.

    One that is called like a model is marked, since charts and tables show both. A model that is a baseline of the
    others has not itself as one, and is shown once.
    """
    labels = {run.label for run in runs}
    evaluated = [baselines for run in runs if (baselines := run.baselines(split))]
    common = set.intersection(*map(set, evaluated)) if evaluated else set()
    return {
        f"{name} (baseline)" if name in labels else name: values
        for baselines in evaluated[:1]
        for name, values in baselines.items()
        if name in common
    }
