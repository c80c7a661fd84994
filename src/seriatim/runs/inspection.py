"""Opens runs for `seriatim.inspect`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..core import registry
from ..core.errors import SeriatimError, did_you_mean
from ..core.run_folder import list_runs
from ..inspect import Inspector
from ..inspect.subject import GradientHistory, Subject
from .run import Run
from .session import reopen_task


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
