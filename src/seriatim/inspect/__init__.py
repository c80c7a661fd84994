"""Look inside a model: attention, gates, gradients, surprise and more.

    run.inspect.attention("They are watching .")            a trained run
    run.inspect.arrays("gates", "They are watching .")      the numbers alone, fast enough for every key that is pressed
    Inspector("rnn", "lstm", "gpt").gradients()             fresh networks of these architectures

Inspecting never changes an output and leaves nothing behind. This package imports torch when a view is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..core import registry
from ..core.errors import SeriatimError, did_you_mean
from . import catalog as catalog
from .declare import DECLARED as VIEWS
from .declare import Notify, OptionInfo, ViewInfo

if TYPE_CHECKING:
    from ..tasks.predictor import Predictor
    from .result import Arrays, Result
    from .subject import Subject
    from .views import InspectionView

__all__ = ["VIEWS", "Inspector", "OptionInfo", "ViewInfo"]

importlib.import_module("seriatim.lab.views.catalog")  # by name, as an entry point: nothing here depends on the lab


class HasPredictor(Protocol):
    """A trained model, such as a run."""

    @property
    def predictor(self) -> Predictor: ...


class Inspector:
    """The views of one model or several.

    Args:
        subjects: Models: a `Subject`, anything with a predictor, or the name of an architecture for a fresh network.
    """

    def __init__(self, *subjects: Subject | HasPredictor | str) -> None:
        self.subjects = [make_subject(subject) for subject in subjects]
        if not self.subjects:
            raise SeriatimError("inspect.subject", "no model is named", "name a run, or a model")
        models = [subject.settings.name for subject in self.subjects]
        if len(models) > 1 and len(set(models)) == len(models):
            for subject in self.subjects:
                subject.label = subject.settings.name

    def __repr__(self) -> str:
        return f"Inspector({', '.join(subject.label for subject in self.subjects)})"

    def available(self) -> list[str]:
        """Returns the names of the views that can be shown of these models."""
        return [name for name in VIEWS if not self._missing(name)]

    def show(self, name: str, *texts: str, notify: Notify | None = None, **options: object) -> Result:
        """Returns the result of a view, whose charts are made when they are first asked for.

        Args:
            name: The view.
            texts: What the model reads.
            notify: Called with a line before each step of a view that takes long; what it raises stops the view.
            options: Those of the view.
        """
        view, subjects = self._find(name, texts)
        return view.show(subjects, *texts, notify=notify, **options)

    def arrays(self, name: str, *texts: str, notify: Notify | None = None, **options: object) -> Arrays[Any]:
        """Returns the arrays of a view, without its charts; see `show`."""
        return self.show(name, *texts, notify=notify, **options).arrays

    def live(self) -> Inspector:
        """Returns an inspector of the same models for a text that grows: of the next text they read what is new."""
        from .live import LiveSubject

        return Inspector(*(LiveSubject(subject) for subject in self.subjects))

    def __getattr__(self, name: str) -> Callable[..., Result]:
        """Returns a view as a method `(*texts, **options)`, with its signature and documentation."""
        if name not in VIEWS:
            raise AttributeError(f"there is no view {name!r}: {', '.join(VIEWS)}")
        info = VIEWS[name]

        def method(*texts: str, notify: Notify | None = None, **options: Any) -> Result:
            return self.show(name, *texts, notify=notify, **options)

        method.__name__ = name
        lines = [f"{option.name}: {option.help}" for option in info.options.values()]
        method.__doc__ = "\n\n".join(filter(None, (info.summary, info.description, "\n".join(lines))))
        setattr(method, "__signature__", info.signature)  # noqa: B010
        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *VIEWS]

    def _find(self, name: str, texts: tuple[object, ...]) -> tuple[InspectionView, Subject | list[Subject]]:
        """Returns a view and the models that have it; raises an error unless it can be shown of these texts."""
        from .views import load_view

        if name not in VIEWS:
            raise SeriatimError("inspect.view", f'there is no view "{name}"', did_you_mean(name, VIEWS))
        if reason := self._missing(name):
            raise SeriatimError("inspect.unavailable", reason, f"available: {', '.join(self.available())}")
        info, view = VIEWS[name], load_view(name)
        check_texts(info, texts)
        fitting = [subject for subject in self.subjects if not view.missing(subject)]
        return view, fitting if info.several else fitting[0]

    def _missing(self, name: str) -> str:
        """Returns why a view cannot be shown, "" if it can; models without the view are left out."""
        from .views import load_view

        if not VIEWS[name].several and len(self.subjects) > 1:
            return f"{name} shows one model, not {len(self.subjects)}"
        reasons = [load_view(name).missing(subject) for subject in self.subjects]
        return f"{self.subjects[0].label} {reasons[0]}" if all(reasons) else ""


def make_subject(subject: Subject | HasPredictor | str) -> Subject:
    """Returns the subject of a model; see `Inspector`."""
    from .subject import Subject

    if isinstance(subject, Subject):
        return subject
    if isinstance(subject, str):
        if subject not in registry.models.names():
            remedy = did_you_mean(subject, registry.models.names())
            raise SeriatimError("inspect.subject", f'there is no model "{subject}"', remedy)
        return Subject.fresh(subject)
    model = subject
    settings = model.predictor.task.config.model
    return Subject(settings.name, settings, lambda: model.predictor)


def check_texts(info: ViewInfo, texts: tuple[object, ...]) -> None:
    """Raises an error unless a view reads these texts."""
    if texts and not info.text:
        raise SeriatimError("inspect.text", f"{info.name} takes no text", "omit the text")
    for text in texts:
        if not isinstance(text, str):
            raise SeriatimError("inspect.text", f"a text must be a str, not {type(text).__name__}", "pass a str")
    if len(texts) < info.texts.least:
        raise SeriatimError("inspect.text", f"{info.name} needs a text", "pass one")
    if info.texts.most is not None and len(texts) > info.texts.most:
        raise SeriatimError("inspect.text", f"{info.name} takes one text, not {len(texts)}", "pass one")
