"""The views: two functions each, from a subject to arrays and from these arrays to charts.

    def gate_arrays(subject: Subject, request: Request[Gates]) -> Arrays[GateFacts]: …      runs the network
    def gate_charts(arrays: Arrays[GateFacts]) -> Drawing: …                                needs the arrays alone
    implement(Gates, gate_arrays, gate_charts, {"has no recurrent layers": lacks_recurrence}, network=True)

`Gates` declares the view: its summary, texts and options (`inspect.catalog`). A view of several models takes a list of
subjects. Related views share a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ...core.errors import SeriatimError
from .. import VIEWS
from ..declare import Notify, ViewInfo
from ..result import Arrays, Drawing, Result
from ..subject import Subject

Options = TypeVar("Options", covariant=True)
Facts = TypeVar("Facts")
Subjects = TypeVar("Subjects")
MAX_TOKENS = 64  # of running text in a report
MAX_ELEMENTS = 100  # of an example in a report: attention grows with their square
Reasons = Mapping[str, Callable[[Subject], object]]  # why a subject lacks a view, as the end of a sentence → if it does


def ignore(line: str) -> None:
    """Is the `notify` of callers that pass none."""


@dataclass(frozen=True)
class Request(Generic[Options]):
    """What a view is asked for.

    Args:
        texts: What the model reads.
        options: The options of the view.
        notify: Called with a line before each step that takes long; what it raises stops the view.
    """

    texts: tuple[str, ...]
    options: Options
    notify: Notify = ignore

    @property
    def text(self) -> str | None:
        """The text of a view that reads one at most."""
        return self.texts[0] if self.texts else None


@dataclass(frozen=True)
class Brief:
    """The texts and options with which a view shows a trained model in its report."""

    texts: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def own_text_brief(subject: Subject) -> Brief:
    """Returns the beginning of running text, ended at a word; no text if rows are separate examples."""
    if subject.stream is None:
        return Brief()
    limit = None if subject.gradient_free else subject.backbone.context_length
    text = subject.own_text(MAX_TOKENS if limit is None else min(MAX_TOKENS, limit - 2))
    return Brief((text.strip().rsplit(" ", 1)[0] or text,))


def is_long(subject: Subject) -> bool:
    """Returns whether the own example of a model is too long for a report."""
    return subject.stream is None and len(subject.read().names) > MAX_ELEMENTS


@dataclass(frozen=True)
class InspectionView:
    """A view: its two functions, and what a subject needs for it; see `implement`."""

    info: ViewInfo
    arrays: Callable[[Any, Request[Any]], Arrays[Any]]
    charts: Callable[[Arrays[Any]], Drawing]
    reasons: Reasons
    network: bool
    trained: bool
    brief: Callable[[Subject], Brief | None] = own_text_brief

    def missing(self, subject: Subject) -> str:
        """Returns why a subject does not have the view, as the end of a sentence; "" if it has it."""
        if self.network and subject.gradient_free:
            return "is not a network"
        if self.trained and not subject.trained:
            return "is not trained"
        return next((reason for reason, applies in self.reasons.items() if applies(subject)), "")

    def show(
        self, subjects: Subject | list[Subject], *texts: str, notify: Notify | None = None, **options: object
    ) -> Result:
        """Returns the result for a subject, or for a list of them if the view shows several."""
        known = self.info.options
        if unknown := sorted(options.keys() - known.keys()):
            remedy = f"its options: {', '.join(sorted(known))}" if known else "it has none"
            raise SeriatimError("inspect.option", f"{self.info.name} has no option {unknown[0]}", remedy)
        request = Request(texts, self.info.make_options(options), notify or ignore)
        return Result(self.arrays(subjects, request), self.charts)

    def show_briefly(self, subject: Subject) -> Result | None:
        """Returns the result on the model's own data for its report; None if it has none, or if it would take long."""
        brief = None if self.missing(subject) else self.brief(subject)
        if brief is None:
            return None
        return self.show([subject] if self.info.several else subject, *brief.texts, **brief.options)


REGISTRY: dict[str, InspectionView] = {}


def implement(
    declaration: type[Options],
    arrays: Callable[[Subjects, Request[Options]], Arrays[Facts]],
    charts: Callable[[Arrays[Facts]], Drawing],
    reasons: Reasons | None = None,
    *,
    network: bool = False,
    trained: bool = False,
    brief: Callable[[Subject], Brief | None] = own_text_brief,
) -> None:
    """Registers the functions of a view.

    Args:
        declaration: The class of its options.
        arrays: From a subject and a request to the arrays.
        charts: From the arrays to the charts.
        reasons: Why a subject may lack the view; the first that applies is named.
        network: Whether it needs a network, not a gradient-free model.
        trained: Whether it needs a trained model.
        brief: How the report of a training shows it; returns None if that would take long.
    """
    info = next(info for info in VIEWS.values() if info.declaration is declaration)
    REGISTRY[info.name] = InspectionView(info, arrays, charts, reasons or {}, network, trained, brief)


def load_view(name: str) -> InspectionView:
    """Returns a view by its name; its module is imported when it is first used."""
    if name not in REGISTRY:
        importlib.import_module(VIEWS[name].module)
    return REGISTRY[name]
