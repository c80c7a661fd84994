"""Capabilities: what a predictor can do, declared once and without torch.

Commands, Python methods of a run, forms, the model card and the documentation are made from the declaration. The
method that computes is bound to it in a class of predictors:

    CLASSIFY = Capability("classify", "Predict …", INPUTS, {"label": LABEL}, ClassifyOptions)        spec.py

    @capability(spec.CLASSIFY)                                                                       predictor.py
    def classify(self, call): …

A plug-in in one file declares at the method: `@capability(outputs={"label": LABEL}, options=ClassifyOptions)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..core.config import Settings
from ..data.kinds import Kind
from ..data.schema import Schema

if TYPE_CHECKING:
    from ..core.errors import Diagnostics
    from ..data.dataset import Dataset

O = TypeVar("O", bound=Settings)  # noqa: E741  (options)


# How a page may show the predictions of a capability, and the columns that it reads for that besides the main one.
PRESENTATIONS: Mapping[str, tuple[str, ...]] = {
    "records": (),  # a table
    "text": (),
    "number": (),
    "label": ("probabilities",),
    "candidates": ("completion", "probability"),  # texts that may follow, the likeliest first
    "tokens": ("token_log_probabilities",),  # a text whose tokens are more or less expected
    "masks": ("masks",),  # a text with the candidates of each gap
    "tags": ("words", "tags"),
    "span": ("start", "end"),  # of the text that was read
    "alignment": ("source", "target", "weights"),  # (target, source)
    "image attention": ("words", "grid", "weights"),  # (words, cells)
    "series": ("time", "series", "variable"),
    "notes": ("notes",),
    "neighbors": ("query", "similarity"),
    "vectors": ("vector",),
}


class NoOptions(Settings):
    """The options of a capability that has none."""


@dataclass(frozen=True)
class Capability:
    """A declared operation of a predictor.

    Args:
        name: The name of the command, and of the method of a predictor and of a run.
        summary: The first line of its help.
        inputs: The fields it reads.
        outputs: Column → kind of the records it returns; the first one is the main output.
        options: The class of its options.
        per_row: Whether it returns exactly one record per input row.
        scalar: Whether Python answers a single input by the main output alone, such as a translation.
        own_data: Whether it reads the data that the run was trained on if there are no inputs, as a forecast does.
        streams: Whether the main output can be sent in pieces, as it is made.
        sources: The options whose texts name files or data sets, which a server does not read.
        presentation: How a page may show the predictions: a name of `PRESENTATIONS`.
        common: The few options that people change.
        examples: Inputs by role. Those of a run are from its data, if its task declares none.
    """

    name: str
    summary: str
    inputs: Schema
    outputs: Mapping[str, Kind]
    options: type[Settings] = NoOptions
    per_row: bool = True
    scalar: bool = False
    own_data: bool = False
    streams: bool = False
    sources: tuple[str, ...] = ()
    presentation: str = "records"
    common: tuple[str, ...] = ()
    examples: tuple[Mapping[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.presentation not in PRESENTATIONS:
            raise TypeError(f"there is no presentation {self.presentation}")
        if missing := {*PRESENTATIONS[self.presentation]} - self.outputs.keys():
            raise TypeError(f"{self.name} has no {min(missing)} to be shown as {self.presentation}")
        if missing := {*self.sources, *self.common} - self.options.model_fields.keys():
            raise TypeError(f"{self.name} has no option {min(missing)}")

    @property
    def main(self) -> str:
        """The column of the main output."""
        return next(iter(self.outputs))


@dataclass(frozen=True)
class Call(Generic[O]):
    """What the method of a capability works on: some rows of a request, its options, and where its notes go."""

    rows: Dataset
    options: O
    diagnostics: Diagnostics

    def note(self, text: str) -> None:
        """Adds a note to the answer."""
        self.diagnostics.note(text)


Record = dict[str, Any]  # a prediction: column → value
Method = Callable[..., Iterable[Record]]  # (predictor, call) → records


@dataclass(frozen=True)
class CapabilityMethod:
    """A predictor's method with its declaration.

    Args:
        method: Returns the records of a call.
        capability: The declaration.
        task_inputs: Whether the declaration leaves its inputs to the schema of the task.
        pieces: Yields the main output of one row piece by piece, in records; the last record has all other columns.
    """

    method: Method
    capability: Capability
    task_inputs: bool = False
    pieces: Method | None = None

    def run(self, predictor: Any, call: Call[Any]) -> list[Record]:
        """Returns the records of a call."""
        return list(self.method(predictor, call))

    def resolve(self, inputs: Schema) -> Capability:
        """Returns the declaration; `inputs` are those of the task."""
        return replace(self.capability, inputs=inputs) if self.task_inputs else self.capability


def capability(
    declared: Capability | None = None,
    *,
    outputs: Mapping[str, Kind] | None = None,
    options: type[Settings] = NoOptions,
    inputs: Schema | None = None,
    per_row: bool = True,
    scalar: bool = False,
    own_data: bool = False,
    pieces: Method | None = None,
    sources: tuple[str, ...] = (),
    presentation: str = "records",
    common: tuple[str, ...] = (),
    examples: tuple[Mapping[str, str], ...] = (),
) -> Callable[[Method], CapabilityMethod]:
    """Binds a method `(self, call) → records` of a predictor to a capability, or declares one by it.

    Args:
        declared: The capability of that name. Without it, the method's name and the first line of its docstring are
            name and summary, and the other arguments are the fields of `Capability`.
        outputs: Column → kind of the records it returns.
        options: The class of its options.
        inputs: The fields it reads; by default the task's schema without targets.
        per_row: Whether it returns exactly one record per row.
        scalar: Whether Python answers a single input by the first output column alone.
        own_data: Whether it reads the data of the run if there are no inputs.
        pieces: A method that yields the main output of one row piece by piece, in records; the last has all columns.
        sources: The options whose texts name files or data sets.
        presentation: How a page may show the predictions.
        common: The few options that people change.
        examples: Inputs by role.
    """

    def bind(method: Method) -> CapabilityMethod:
        if declared is not None:
            if method.__name__ != declared.name:
                raise TypeError(f"the method {method.__name__} is bound to the capability {declared.name}")
            if declared.streams != (pieces is not None):
                raise TypeError(f"the capability {declared.name} streams, but has no pieces, or the reverse")
            return CapabilityMethod(method, declared, pieces=pieces)
        if not outputs:
            raise TypeError(f"the capability {method.__name__} declares no outputs")
        summary = (method.__doc__ or "").partition("\n")[0]
        flags = (per_row, scalar, own_data, pieces is not None, sources, presentation, common, examples)
        own = Capability(method.__name__, summary, inputs or Schema(()), outputs, options, *flags)
        return CapabilityMethod(method, own, inputs is None, pieces)

    return bind
