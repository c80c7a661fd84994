"""Inspection of runs: opening them, and the views that the report of a training shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..core import registry
from ..core.errors import SeriatimError, did_you_mean
from ..core.run_folder import list_runs
from ..inspect import VIEWS, Inspector
from ..inspect.subject import GradientHistory, Subject
from ..inspect.views import load_view
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

MAX_CHARTS = 2  # of a view: the first ones are its main charts


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
    for info in sorted((info for info in VIEWS.values() if info.report), key=lambda info: info.report):
        try:
            result = load_view(info.name).show_briefly(subject)
        except SeriatimError:  # the data has nothing to show: too short, no running text, …
            continue
        charts += result.charts[:MAX_CHARTS] if result is not None else []
    return charts
