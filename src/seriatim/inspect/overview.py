"""What a report shows of the inside of a model: the views that suit it, over a little of its own validation data."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import SeriatimError
from ..nn.network import count_parameters
from . import own
from .seen import Seen
from .sights import describes
from .subject import Subject

if TYPE_CHECKING:
    from ..runs import Run

TOKENS = 64  # of running text that is shown
LONG = 100  # elements of an example that is shown: attention grows with their square
PICTURES = 2  # of a view: the first are its main ones
PANELS = 24  # heads that are all shown; of more, those of the last layer
LARGE = 5_000_000  # parameters from which on gradients take longer than somebody waits for a report
VIEWS = ("surprise", "backoff", "saliency", "attention", "gates", "gradients")


def overview(run: Run, task: Any) -> list[dict[str, Any]]:
    """Views as `report/views.py` draws them. `task` is the run's, with its data, which need not be read again."""
    subject = Subject(run.config.model.name, run.config.model.name, run)
    subject.data = task
    found: list[dict[str, Any]] = []
    for name in VIEWS:
        try:
            found += _seen(subject, name).views[:PICTURES]
        except SeriatimError:  # this data has nothing to show of it: too short, no label, …
            continue
    return found


def _seen(subject: Subject, name: str) -> Seen:
    module = importlib.import_module(f"{__package__}.{name}")
    if why := module.suits(subject):
        raise subject.lacks(why, "")
    if name in ("saliency", "attention") and not own.speaks(subject) and len(subject.read().names) > LONG:
        raise subject.lacks("has long examples", "")
    if name == "attention" and describes(subject):
        raise subject.lacks("shows where it looked among its captions", "")
    if name == "gradients" and count_parameters(subject.network) > LARGE:
        raise subject.lacks("is too large for it", "")
    if name == "gradients":
        seen: Seen = module.look([subject])
    elif name == "saliency":
        seen = module.look(subject, example=0)
    else:
        seen = module.look(subject, *_texts(subject), **_fewer(subject, name))
    return seen


def _fewer(subject: Subject, name: str) -> dict[str, int]:
    layers, heads = getattr(subject.settings, "layers", 1), getattr(subject.settings, "heads", 1)
    return {"layer": layers - 1} if name == "attention" and layers * heads > PANELS else {}


def _texts(subject: Subject) -> Sequence[str]:
    """Some running text, cut at a word; other tasks take their own first example, what counts its own text."""
    if not own.speaks(subject) or subject.counts:
        return ()
    context = getattr(subject.run.predictor.engine, "context", None) if subject.run is not None else None
    text = own.text(subject, TOKENS if context is None else min(TOKENS, context - 2))
    return (text.strip().rsplit(" ", 1)[0] or text,)
