"""Seriatim: one toolkit for sequence models, from counting n-grams to GPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import compare, evaluate, load, resume, train
    from .averaging import average
    from .core.errors import SeriatimError
    from .distilling import distil

__all__ = ["SeriatimError", "__version__", "average", "compare", "distil", "evaluate", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Torch is imported when something is computed, not when the package is."""
    if name == "SeriatimError":
        from .core.errors import SeriatimError

        return SeriatimError
    if name == "average":
        from .averaging import average

        return average
    if name == "distil":
        from .distilling import distil

        return distil
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
