"""What a report shows of the inside of a model: the views it has, over a little of its own validation data."""

from __future__ import annotations

from typing import Any

from ..core.errors import SeriatimError
from ..nn.network import count_parameters
from ..report.charts import View
from ..tasks.base import Task
from ..tasks.predictor import Predictor
from .result import Result
from .subject import Subject
from .trace import TraceName
from .views import load_view

VIEWS = ("surprise", "backoff", "saliency", "attention", "gates", "gradients")
MAX_TOKENS = 64  # of running text
MAX_ELEMENTS = 100  # of an example: attention grows with their square
MAX_CHARTS = 2  # of a view: the first ones are its main charts
MAX_HEADS = 24  # that are all shown; of more, those of the last layer
MAX_PARAMETERS = 5_000_000  # above, gradients take too long for a report


def overview(predictor: Predictor, task: Task[Any]) -> list[View]:
    """Returns the charts of a trained model for its report.

    Args:
        predictor: The trained model.
        task: The task with its data.
    """
    settings = task.config.model
    subject = Subject(settings.name, settings, lambda: predictor, lambda: task)
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
    stream = subject.task.stream(subject.split)
    if name == "gradients":
        return None if count_parameters(subject.network) > MAX_PARAMETERS else view.show([subject])
    if name in ("saliency", "attention") and stream is None and len(subject.read().names) > MAX_ELEMENTS:
        return None
    if name == "saliency":
        return view.show(subject, example=0)
    if name == "attention":
        if subject.predictor.processor.image_layout is not None and subject.encoder_decoder:
            return None  # the views of the task show it beside the captions
        names = [TraceName.parse(location) for location in subject.trace_names]
        last = max(location.index or 0 for location in names)
        heads = (last + 1) * getattr(subject.settings, "heads", 1)
        options = {"layer": last} if heads > MAX_HEADS else {}
        return view.show(subject, *own_texts(subject), **options)
    return view.show(subject, *own_texts(subject))


def own_texts(subject: Subject) -> tuple[str, ...]:
    """Returns the beginning of running text, ended at a word; nothing if rows are separate examples."""
    if subject.task.stream(subject.split) is None:
        return ()
    limit = None if subject.gradient_free else subject.backbone.context_length
    text = subject.own_text(MAX_TOKENS if limit is None else min(MAX_TOKENS, limit - 2))
    return (text.strip().rsplit(" ", 1)[0] or text,)
