"""Look inside a model: attention, gates, gradients, surprise and more.

    run.inspect.attention("They are watching .")            a trained run
    Inspector("rnn", "lstm", "gpt").gradients()             fresh networks of these architectures

Inspecting never changes an output and leaves nothing behind. This package imports torch when a view is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..core import registry
from ..core.errors import SeriatimError, did_you_mean

if TYPE_CHECKING:
    from ..tasks.predictor import Predictor
    from .result import Result
    from .subject import Subject

__all__ = ["OPTIONS", "VIEWS", "Inspector", "ViewInfo"]

Notify = Callable[[str], None]


@dataclass(frozen=True)
class ViewInfo:
    """What a view shows.

    Args:
        summary: One line for help texts.
        text: Whether it takes a text.
        several: Whether it shows several models in one chart.
        package: Of its module; a view that looks inside no run is in `lab.views`.
        module: Its file in the package.
    """

    summary: str
    module: str
    text: bool = True
    several: bool = False
    package: str = "seriatim.inspect.views"


@dataclass(frozen=True)
class OptionInfo:
    """An option that one or more views take."""

    type: type
    summary: str


LAB = "seriatim.lab.views"

VIEWS = {
    "attention": ViewInfo("Attention weights: all heads, or those of --layer and --head.", "attention"),
    "alignment": ViewInfo("Which source words each word of a translation attends to.", "attention"),
    "entropy": ViewInfo("Entropy of each attention head, from one element (0 bits) to all.", "attention"),
    "attention_steps": ViewInfo(
        "Attention step by step: queries, keys, scores, weights, outputs of every head.", "attention_steps"
    ),
    "masked_softmax": ViewInfo(
        "Masked softmax over rows of different --lengths, beside one without a mask.",
        "masked_softmax",
        text=False,
        package=LAB,
    ),
    "gates": ViewInfo("Gates of an LSTM or GRU over a text, averaged or of one --unit.", "gates"),
    "units": ViewInfo("Units that track something: position, quotes, brackets, …", "units"),
    "activations": ViewInfo("Outputs of each layer or level, element by element.", "layers"),
    "gradients": ViewInfo(
        "How far back the gradient of the last loss reaches, before and after training.", "gradients", several=True
    ),
    "depth": ViewInfo(
        "Gradients layer by layer in deep stacks, with and without skips.", "depth", text=False, several=True
    ),
    "paths": ViewInfo(
        "Residual networks as ensembles: path lengths, gradients by length, and deleted blocks.",
        "paths",
        text=False,
        several=True,
    ),
    "saturation": ViewInfo(
        "Sigmoids in deep stacks: gradients shrink layer by layer; batch norm cures it.",
        "norms",
        text=False,
        package=LAB,
    ),
    "normalization": ViewInfo(
        "Batch norm and layer norm on the same batch, also small and ragged ones.", "norms", text=False, package=LAB
    ),
    "backpropagation": ViewInfo(
        "Backpropagation through time on a tiny network, term by term, and what truncation drops.",
        "backpropagation",
        text=False,
        package=LAB,
    ),
    "surprise": ViewInfo("Surprise of each token, and what was expected instead at a --position.", "surprise"),
    "lens": ViewInfo("What each layer of a Transformer would predict (logit lens).", "layers"),
    "backoff": ViewInfo("Which n-gram order predicted each token.", "surprise"),
    "neighbors": ViewInfo("Tokens whose vectors are nearest to those of the text.", "embeddings"),
    "projection": ViewInfo("Token vectors projected on the plane.", "embeddings"),
    "context": ViewInfo("A word in several sentences: its vector in each, beside its own embedding.", "embeddings"),
    "positions": ViewInfo("Position embeddings, and their similarity by distance.", "positions", text=False),
    "scores": ViewInfo(
        "Weights of every attention score over the same queries and keys.", "scores", text=False, package=LAB
    ),
    "growth": ViewInfo(
        "Time and memory over the sequence length, beside the theory.", "growth", text=False, several=True, package=LAB
    ),
    "complexity": ViewInfo(
        "Operations of one layer over n, d and k, sequential operations and paths, beside the theory.",
        "complexity",
        text=False,
        several=True,
        package=LAB,
    ),
    "transitions": ViewInfo(
        "Scores of transitions between tags, of a tagger with a CRF (task.crf).", "transitions", text=False
    ),
    "saliency": ViewInfo("Which tokens a prediction depends on: integrated gradients.", "saliency"),
}

OPTIONS = {
    "layer": OptionInfo(int, "Only this layer, counted from 0."),
    "head": OptionInfo(int, "Only this head, counted from 0."),
    "unit": OptionInfo(int, "Only this unit, counted from 0."),
    "position": OptionInfo(int, "At this token, counted from 0."),
    "top": OptionInfo(int, "How many of the best."),
    "target": OptionInfo(str, "The second text: a translation, or the label that is explained."),
    "part": OptionInfo(str, "Of an encoder–decoder: encoder, decoder or cross."),
    "example": OptionInfo(int, "Without a text: this sequence of the run's validation split, counted from 0."),
    "generate": OptionInfo(int, "How many tokens the model generates after the text, traced step by step."),
    "tokens": OptionInfo(bool, "By token, not by word."),
    "word": OptionInfo(str, "The word that is shown."),
    "lengths": OptionInfo(str, "Sequence lengths, as 64,128,256."),
    "budget": OptionInfo(float, "Seconds for each curve of --growth."),
    "context_length": OptionInfo(int, "Elements of the windows that gradients are followed through."),
    "layers": OptionInfo(str, "Layers of the stacks of --depth and --paths, as 20,56, and of --saturation, as 20."),
    "width": OptionInfo(int, "Units of the tiny network of --backpropagation."),
    "steps": OptionInfo(int, "Elements that it reads; or points of the integral of --saliency."),
    "outputs": OptionInfo(str, "Outputs in its loss: all, last, last3, or steps as 2,5."),
    "scale": OptionInfo(
        float, "Spectral radius of its recurrent matrix: 0.5 vanishes, 2 may explode; also of --gradients."
    ),
    "seed": OptionInfo(int, "Seed of random weights and inputs: of --backpropagation, --depth, --paths and the norms."),
}


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
        """Returns the result of a view.

        Args:
            name: The view.
            texts: What the model reads.
            notify: Called with the progress of views that take long.
            options: Those of the view.
        """
        from .views import load_view

        if name not in VIEWS:
            raise SeriatimError("inspect.view", f'there is no view "{name}"', did_you_mean(name, VIEWS))
        if reason := self._missing(name):
            raise SeriatimError("inspect.unavailable", reason, f"available: {', '.join(self.available())}")
        if texts and not VIEWS[name].text:
            raise SeriatimError("inspect.text", f"{name} takes no text", "omit the text")
        for text in texts:
            if not isinstance(text, str):
                raise SeriatimError("inspect.text", f"a text must be a str, not {type(text).__name__}", "pass a str")
        view = load_view(name)
        parameters = list(inspect.signature(view.show).parameters.values())
        check_texts(name, parameters[1:], len(texts))
        known = {parameter.name for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY}
        if unknown := sorted(options.keys() - known):
            names = sorted(known - {"notify"})
            remedy = f"its options: {', '.join(names)}" if names else "it has none"
            raise SeriatimError("inspect.option", f"{name} has no option {unknown[0]}", remedy)
        if notify is not None and "notify" in known:
            options["notify"] = notify
        fitting = [subject for subject in self.subjects if not view.missing(subject)]
        return view.show(fitting if VIEWS[name].several else fitting[0], *texts, **options)

    def __getattr__(self, name: str) -> Callable[..., Result]:
        """Returns a view as a method `(*texts, **options)`, with its signature and documentation."""
        if name not in VIEWS:
            raise AttributeError(f"there is no view {name!r}: {', '.join(VIEWS)}")
        from .views import load_view

        show = load_view(name).show

        def method(*texts: str, **options: Any) -> Result:
            return self.show(name, *texts, **options)

        signature = inspect.signature(show)
        method.__name__ = name
        method.__doc__ = "\n\n".join(filter(None, (VIEWS[name].summary, inspect.getdoc(show))))
        parameters = list(signature.parameters.values())[1:]
        setattr(method, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *VIEWS]

    def _missing(self, name: str) -> str:
        """Returns why a view cannot be shown, "" if it can; of several models those that have it are shown."""
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


def check_texts(name: str, parameters: Sequence[inspect.Parameter], count: int) -> None:
    """Raises an error unless a view accepts so many texts."""
    positional = [parameter for parameter in parameters if parameter.kind == parameter.POSITIONAL_OR_KEYWORD]
    if count < sum(parameter.default is parameter.empty for parameter in positional):
        raise SeriatimError("inspect.text", f"{name} needs a text", "pass one")
    if count > len(positional) and not any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters):
        raise SeriatimError("inspect.text", f"{name} takes one text, not {count}", "pass one")
