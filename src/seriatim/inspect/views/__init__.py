"""The views, some related ones in a file; a view is a function `(subject, *texts, **options) → Result`.

@view("gates", missing_gates)
def show_gates(subject: Subject, *texts: str, layer: int | None = None) -> Result: …

Positional parameters after the subject are texts, keyword-only parameters are options. A view of several models
(`ViewInfo.several`) takes a list of subjects. Names and summaries are in `inspect.catalog`, which imports no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..catalog import VIEWS
from ..result import Result
from ..subject import Subject

F = TypeVar("F", bound=Callable[..., Result])


@dataclass(frozen=True)
class InspectionView:
    """A view: its function, and a function that says why a subject does not have it, "" if it has it."""

    show: Callable[..., Result]
    missing: Callable[[Subject], str]


REGISTRY: dict[str, InspectionView] = {}


def view(name: str, missing: Callable[[Subject], str] = lambda subject: "") -> Callable[[F], F]:
    """Registers a function as a view.

    Args:
        name: Its name in `catalog.VIEWS`.
        missing: Returns why a subject does not have the view, as the end of a sentence; "" if it has it.
    """

    def register(show: F) -> F:
        REGISTRY[name] = InspectionView(show, missing)
        return show

    return register


def load_view(name: str) -> InspectionView:
    """Returns a view of the catalog; its module is imported when it is first used."""
    if name not in REGISTRY:
        importlib.import_module(f"{__name__}.{VIEWS[name].module}")
    return REGISTRY[name]
