"""Look inside a model: what it attended to, what its gates did, where its gradients went, what surprised it.

    run.inspect.attention("They are watching .")            a run
    Inspector("rnn", "lstm", "gpt").gradients()             fresh networks of these models

Each view is one file of this package: `suits` says whether a model has it, `look` gives labelled figures and how to
draw them (`Seen`). Inspecting never changes an answer and leaves nothing behind. This file imports no torch: the
command line makes its options from the table below.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core.errors import SeriatimError, did_you_mean

if TYPE_CHECKING:
    from ..runs import Run
    from .seen import Seen
    from .subject import Subject

__all__ = ["VIEWS", "Inspector", "View"]


@dataclass(frozen=True)
class View:
    """`text` says whether one may be given; `several`, whether `look` takes a list of subjects for one picture."""

    help: str
    text: bool = True
    several: bool = False


VIEWS = {
    "attention": View("Where each element looks: all heads, or those of --layer and --head."),
    "alignment": View("Which words of the source each word of a translation was read from."),
    "entropy": View("How widely each head looks, from one element (0 bits) to all."),
    "gates": View("What the gates of an LSTM or GRU do over a text, averaged or of one --unit."),
    "cells": View("Units that keep track of something: place, quotes, brackets, …"),
    "activations": View("What each layer or level gives, element by element."),
    "gradients": View("How far back the last loss reaches: fresh and trained, all models together.", several=True),
    "depth": View("Gradients layer by layer in deep stacks, with skips and without.", text=False, several=True),
    "backpropagation": View("Back-propagation through time on a tiny network, term by term.", text=False),
    "surprise": View("How surprising each token was, and what was expected instead at a --position."),
    "lens": View("What each layer of a Transformer would predict."),
    "backoff": View("Which order of n-gram answered at each token."),
    "neighbours": View("The tokens whose vectors are nearest to those of the text."),
    "projection": View("The vectors of tokens in the plane."),
    "context": View("A word in several sentences: its vector in each, beside the one it has by itself."),
    "positions": View("The vectors of places, and how alike they are by distance.", text=False),
    "scores": View("Weights of every attention score over the same queries and keys.", text=False),
    "growth": View("Time and memory over the length of a sequence, beside the theory.", text=False, several=True),
    "saliency": View("Which tokens of a text moved a classifier: integrated gradients."),
}  # fmt: skip


class Inspector:
    """One or several subjects: runs, folders of runs, or names of models."""

    def __init__(self, *what: Run | Subject | str | Path) -> None:
        from .subject import subjects

        self.subjects = subjects(what)

    def __repr__(self) -> str:
        return f"Inspector({', '.join(one.label for one in self.subjects)})"

    def offered(self) -> list[str]:
        """The views that can be shown of them; one of several leaves those away that it does not suit."""
        return [name for name in VIEWS if not self._why(name)]

    def look(self, name: str, *texts: str, notify: Callable[[str], None] | None = None, **options: Any) -> Seen:
        """One view; options are those of its `look`. `notify` hears of one that takes long how far it is."""
        if name not in VIEWS:
            raise SeriatimError("inspect.view", f'there is no view "{name}"', did_you_mean(name, VIEWS))
        if why := self._why(name):
            raise SeriatimError("inspect.offer", why, f"it offers: {', '.join(self.offered())}")
        if texts and not VIEWS[name].text:
            raise SeriatimError("inspect.text", f"{name} is not about a text", "leave the text away")
        if strangers := [type(text).__name__ for text in texts if not isinstance(text, str)]:
            raise SeriatimError("inspect.text", f"a text is a str, and {strangers[0]} is none", "give each as a str")
        look: Callable[..., Seen] = _module(name).look
        parameters = list(inspect.signature(look).parameters.values())
        _enough(name, parameters[1:], len(texts))
        known = {one.name for one in parameters if one.kind == one.KEYWORD_ONLY}
        if strange := sorted(options.keys() - known):
            takes = f"it takes: {', '.join(sorted(known))}" if known else "it has none"
            raise SeriatimError("inspect.option", f"{name} has no option {strange[0]}", takes)
        if notify is not None and "notify" in known:
            options["notify"] = notify
        fit = [one for one in self.subjects if not _module(name).suits(one)]
        return look(fit if VIEWS[name].several else fit[0], *texts, **options)

    def __getattr__(self, name: str) -> Callable[..., Seen]:
        if name not in VIEWS:
            raise AttributeError(f"there is no view {name!r}: {', '.join(VIEWS)}")
        return self._view(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *VIEWS]

    def _view(self, name: str) -> Callable[..., Seen]:
        """`look` of one view, which says of itself what it shows and takes."""
        look = _module(name).look

        def view(*texts: str, **options: Any) -> Seen:
            return self.look(name, *texts, **options)

        own = inspect.signature(look)
        view.__name__, view.__doc__ = name, "\n\n".join(filter(None, (VIEWS[name].help, inspect.getdoc(look))))
        setattr(view, "__signature__", own.replace(parameters=list(own.parameters.values())[1:]))  # noqa: B010
        return view

    def _why(self, name: str) -> str:
        """Why a view cannot be shown, as a sentence; "" where it can."""
        if not VIEWS[name].several and len(self.subjects) > 1:
            return f"{name} is a view of one model, and there are {len(self.subjects)}"
        reasons = [_module(name).suits(one) for one in self.subjects]
        return f"{self.subjects[0].label} {reasons[0]}" if all(reasons) else ""  # of several, those that suit


def _enough(name: str, parameters: list[inspect.Parameter], texts: int) -> None:
    """Whether a view has the texts that it needs, and no more than it takes."""
    wanted = [one for one in parameters if one.kind == one.POSITIONAL_OR_KEYWORD]
    if texts < sum(one.default is one.empty for one in wanted):
        raise SeriatimError("inspect.text", f"{name} is about a text, and none is given", "give one")
    if texts > len(wanted) and not any(one.kind == one.VAR_POSITIONAL for one in parameters):
        raise SeriatimError("inspect.text", f"{name} is about one text, and {texts} are given", "give one")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
