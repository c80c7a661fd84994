"""Seriatim: one toolkit for sequence models, from n-grams to GPT."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

# Before torch is loaded: OpenMP's threads otherwise spin for long at every barrier, which beside another busy process
# makes a training step several times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
    from .api import evaluate, load, predict, resume, train
    from .core.errors import SeriatimError
    from .runs.average import average
    from .runs.compare import compare
    from .runs.distill import distill

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


MODULES = {
    "SeriatimError": "core.errors",
    "average": "runs.average",
    "compare": "runs.compare",
    "distill": "runs.distill",
    **dict.fromkeys(("evaluate", "load", "predict", "resume", "train"), "api"),
}


def __getattr__(name: str) -> Any:
    """Imports torch when something is computed, not when the package is imported."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{MODULES[name]}", __name__), name)
