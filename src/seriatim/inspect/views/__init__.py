"""The views, some related ones in a file; a view is a function `(subject, *texts, **options) → Result`.

@view("gates", {"has no recurrent layers": lacks_recurrence}, network=True)
def show_gates(subject: Subject, *texts: str, layer: int | None = None) -> Result: …

Positional parameters after the subject are texts, keyword-only parameters are options. A view of several models
(`ViewInfo.several`) takes a list of subjects. Names and summaries are in `inspect`, which imports no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .. import VIEWS
from ..result import Result
from ..subject import Subject

F = TypeVar("F", bound=Callable[..., Result])
Reasons = Mapping[str, Callable[[Subject], object]]  # why a subject lacks a view, as the end of a sentence → if it does


@dataclass(frozen=True)
class InspectionView:
    """A view: its function, and what a subject needs for it; see `view`."""

    show: Callable[..., Result]
    reasons: Reasons
    network: bool
    trained: bool

    def missing(self, subject: Subject) -> str:
        """Returns why a subject does not have the view, as the end of a sentence; "" if it has it."""
        if self.network and subject.gradient_free:
            return "is not a network"
        if self.trained and not subject.trained:
            return "is not trained"
        return next((reason for reason, applies in self.reasons.items() if applies(subject)), "")


REGISTRY: dict[str, InspectionView] = {}


def view(
    name: str, reasons: Reasons | None = None, *, network: bool = False, trained: bool = False
) -> Callable[[F], F]:
    """Registers a function as a view.

    Args:
        name: Its name in `inspect.VIEWS`.
        reasons: Why a subject may lack the view; the first that applies is named.
        network: Whether it needs a network, not a gradient-free model.
        trained: Whether it needs a trained model.
    """

    def register(show: F) -> F:
        REGISTRY[name] = InspectionView(show, reasons or {}, network, trained)
        return show

    return register


def load_view(name: str) -> InspectionView:
    """Returns a view by its name; its module is imported when it is first used."""
    if name not in REGISTRY:
        importlib.import_module(f"{VIEWS[name].package}.{VIEWS[name].module}")
    return REGISTRY[name]
