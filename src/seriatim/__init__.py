"""Seriatim: one toolkit for sequence models, from n-grams to GPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import average, compare, distill, evaluate, load, predict, resume, train
    from .core.errors import SeriatimError

__all__ = [
    "SeriatimError",
    "__version__",
    "average",
    "compare",
    "distill",
    "evaluate",
    "load",
    "predict",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports torch when something is computed, not when the package is imported."""
    if name == "SeriatimError":
        from .core.errors import SeriatimError

        return SeriatimError
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
