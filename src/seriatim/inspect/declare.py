"""Declarations of views: what a view shows, how many texts it reads, and its options, without importing torch.

A declaration is a class whose fields are the options of the view, each with its help:

    @view("gates", "seriatim.inspect.views.gates", texts=ANY_TEXTS)
    class Gates:
        '''Gates of an LSTM or GRU over a text, averaged or of one unit.'''
        layer: Layer = None

The module it names implements the view (`inspect.views`). Python, the command line and forms are made from `ViewInfo`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from threading import Lock
from typing import Annotated, Any, NamedTuple, TypeVar, dataclass_transform, get_args

T = TypeVar("T")
Notify = Callable[[str], None]  # called with a line before each long step of a view; what it raises stops the view


class TextCount(NamedTuple):
    """How many texts a view reads; None: any number."""

    least: int
    most: int | None


NO_TEXT = TextCount(0, 0)
ONE_TEXT = TextCount(1, 1)
TEXT_OR_OWN = TextCount(0, 1)  # without a text: the model's own data
ANY_TEXTS = TextCount(0, None)


_DATACLASSES = Lock()  # of which there are thirty: too many to make for --help


@dataclass(frozen=True)
class OptionInfo:
    """An option of a view.

    Args:
        name: As a Python keyword; the command line writes it with hyphens.
        annotation: Its type in Python.
        default: The value if it is omitted.
        help: One sentence.
    """

    name: str
    annotation: Any
    default: object
    help: str

    @property
    def type(self) -> type | None:
        """The type on the command line; None if the option is for Python alone."""
        members = get_args(self.annotation) or (self.annotation,)
        return next((member for member in members if member in (bool, int, float, str)), None)


@dataclass(frozen=True)
class ViewInfo:
    """What a view shows and takes.

    Args:
        name: The view.
        summary: One sentence for lists of views.
        description: More about its options; "" if there is no more to say.
        options: Its options by name.
        texts: How many texts it reads.
        several: Whether it shows several models in one chart.
        module: The full name of the module that implements it.
        declaration: The class whose instances hold the options.
        report: Its place in the report of a training, from 1; 0 if it is not shown there.
    """

    name: str
    summary: str
    description: str
    options: Mapping[str, OptionInfo]
    texts: TextCount
    several: bool
    module: str
    declaration: type
    report: int = 0

    def make_options(self, values: Mapping[str, object]) -> Any:
        """Returns an instance of the declaration, which becomes a frozen dataclass with the first one."""
        with _DATACLASSES:
            if not is_dataclass(self.declaration):
                dataclass(frozen=True, kw_only=True)(self.declaration)
        return self.declaration(**values)

    @property
    def text(self) -> bool:
        """Whether it reads texts."""
        return self.texts.most != 0

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of the view as a method of an inspector."""
        texts = []
        if self.texts == ANY_TEXTS:
            texts = [inspect.Parameter("texts", inspect.Parameter.VAR_POSITIONAL, annotation=str)]
        elif self.text:
            default = inspect.Parameter.empty if self.texts.least else None
            annotation = str if self.texts.least else str | None
            kind = inspect.Parameter.POSITIONAL_ONLY
            texts = [inspect.Parameter("text", kind, default=default, annotation=annotation)]
        keywords = [
            inspect.Parameter(
                option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.annotation
            )
            for option in self.options.values()
        ]
        return inspect.Signature([*texts, *keywords])


DECLARED: dict[str, ViewInfo] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def view(
    name: str, module: str, *, texts: TextCount = NO_TEXT, several: bool = False, report: int = 0
) -> Callable[[type[T]], type[T]]:
    """Declares a view by a class of its options; see `ViewInfo`. It becomes a frozen dataclass when it is first used.

    The docstring of the class is the summary, then a blank line and the description. The type of each field is
    annotated with its help, and each has a default.
    """

    def declare(cls: type[T]) -> type[T]:
        options = {}
        for option, annotated in cls.__annotations__.items():
            annotation, text = get_args(annotated)
            options[option] = OptionInfo(option, annotation, getattr(cls, option), text)
        summary, _, description = (cls.__doc__ or "").partition("\n\n")
        summary, description = (" ".join(text.split()) for text in (summary, description))
        DECLARED[name] = ViewInfo(name, summary, description, options, texts, several, module, cls, report)
        return cls

    return declare


# Options of several views

Layer = Annotated[int | None, "Only this layer, counted from 0."]
Head = Annotated[int | None, "Only this head, counted from 0."]
Unit = Annotated[int | None, "Only this unit, counted from 0."]
Part = Annotated[str | None, "The part of an encoder–decoder: encoder, decoder or cross."]
Target = Annotated[str | None, "The target text of an encoder–decoder, by default what the model generates."]
Example = Annotated[int | None, "Without a text: this sequence of the run's validation split, counted from 0."]
Generate = Annotated[int | None, "The number of tokens that the model generates after the text, traced step by step."]
Seed = Annotated[int, "The seed of random weights and inputs."]
Layers = Annotated[str | Sequence[int] | None, "The numbers of layers of the stacks, as 20,56."]
