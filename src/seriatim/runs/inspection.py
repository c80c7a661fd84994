"""Inspection of runs: opening them, and the views that the report of a training shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..core import registry
from ..core.errors import SeriatimError, did_you_mean
from ..core.run_folder import list_runs
from ..inspect import Inspector
from ..inspect.result import Result
from ..inspect.subject import GradientHistory, Subject
from ..inspect.trace import TraceName
from ..inspect.views import load_view
from ..nn.network import count_parameters
from ..report.charts import View
from ..tasks.base import AnyTask
from ..tasks.predictor import Predictor
from ..tasks.values import Splits
from .evaluate import reopen_task
from .run import Run


def open_inspector(*models: str | Path | Run) -> Inspector:
    """Returns the inspector of runs, folders of runs (a comparison) and fresh networks by the name of their model."""
    subjects: list[Subject] = []
    for model in models:
        if isinstance(model, Run):
            subjects.append(run_subject(model))
        elif (Path(model) / "config.yaml").is_file():
            subjects.append(run_subject(Run(model)))
        elif isinstance(model, str) and model in registry.models.names():
            subjects.append(Subject.fresh(model))
        elif runs := list_runs(model):
            subjects += [run_subject(Run(run.path)) for run in reversed(runs)]
        elif isinstance(model, str) and not Path(model).exists() and Path(model).name == model:
            remedy = did_you_mean(model, registry.models.names())
            raise SeriatimError("inspect.subject", f"{model} is neither the folder of a run nor a model", remedy)
        else:
            subjects.append(run_subject(Run(model)))  # raises the error of a folder without a run
    return Inspector(*subjects)


def run_subject(run: Run) -> Subject:
    """Returns a run as a subject; its network and its data are opened when they are needed."""

    def gradient_history() -> GradientHistory | None:
        events = [event for event in run.history("stepped") if event.get("grad_norm") is not None]
        if not events:
            return None
        steps, norms = (np.array([event[key] for event in events], float) for key in ("step", "grad_norm"))
        return GradientHistory(steps, norms, run.config.train.clip)

    return Subject(run.path.name, run.config.model, lambda: run.predictor, lambda: reopen_task(run), gradient_history)


# The report

VIEWS = ("surprise", "backoff", "saliency", "attention", "gates", "transitions", "gradients")
MAX_TOKENS = 64  # of running text
MAX_ELEMENTS = 100  # of an example: attention grows with their square
MAX_CHARTS = 2  # of a view: the first ones are its main charts
MAX_HEADS = 24  # that are all shown; of more, those of the last layer
MAX_PARAMETERS = 5_000_000  # above, gradients take too long for a report


def overview(predictor: Predictor[Any], task: AnyTask, splits: Splits[Any]) -> list[View]:
    """Returns the charts of a trained model for its report.

    Args:
        predictor: The trained model.
        task: Its task.
        splits: The data of the run.
    """
    settings = task.config.model
    subject = Subject(settings.name, settings, lambda: predictor, lambda: (task, splits))
    charts: list[View] = []
    for name in VIEWS:
        try:
            result = show_briefly(subject, name)
        except SeriatimError:  # the data has nothing to show: too short, no running text, …
            continue
        charts += result.charts[:MAX_CHARTS] if result is not None else []
    return charts


def show_briefly(subject: Subject, name: str) -> Result | None:
    """Returns the result of a view on the model's own data; None if it has none, or if it would take long."""
    view = load_view(name)
    if view.missing(subject):
        return None
    stream = subject.stream
    if name == "gradients":
        return None if count_parameters(subject.network) > MAX_PARAMETERS else view.show([subject])
    if name in ("saliency", "attention") and stream is None and len(subject.read().names) > MAX_ELEMENTS:
        return None
    if name == "saliency":
        return view.show(subject, example=0)
    if name == "attention":
        if subject.predictor.task.modality == "image" and subject.encoder_decoder:
            return None  # the views of the task show it beside the captions
        names = [TraceName.parse(location) for location in subject.trace_names]
        last = max(location.index or 0 for location in names)
        heads = (last + 1) * getattr(subject.settings, "heads", 1)
        return view.show(subject, *own_texts(subject), layer=last if heads > MAX_HEADS else None)
    return view.show(subject, *own_texts(subject))


def own_texts(subject: Subject) -> tuple[str, ...]:
    """Returns the beginning of running text, ended at a word; nothing if rows are separate examples."""
    if subject.stream is None:
        return ()
    limit = None if subject.gradient_free else subject.backbone.context_length
    text = subject.own_text(MAX_TOKENS if limit is None else min(MAX_TOKENS, limit - 2))
    return (text.strip().rsplit(" ", 1)[0] or text,)
