"""Capabilities: what a predictor can do, declared once and without torch.

Commands, Python methods of a run, forms, the model card and the documentation are made from the declaration. The
method that computes is bound to it in a class of predictors:

    CLASSIFY = Capability("classify", "Predict …", INPUTS, {"label": LABEL}, ClassifyOptions)        spec.py

    @capability(spec.CLASSIFY)                                                                       predictor.py
    def classify(self, dataset, options): …

A plug-in in one file declares at the method: `@capability(outputs={"label": LABEL}, options=ClassifyOptions)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core.config import Settings
from ..data.kinds import Kind
from ..data.schema import Schema

if TYPE_CHECKING:
    from ..data.dataset import Dataset


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
    """

    name: str
    summary: str
    inputs: Schema
    outputs: Mapping[str, Kind]
    options: type[Settings] = NoOptions
    per_row: bool = True
    scalar: bool = False
    own_data: bool = False


Record = dict[str, Any]  # a prediction: column → value
PredictMethod = Callable[[Any, "Dataset", Any], list[Record]]  # (predictor, dataset, options) → records


@dataclass(frozen=True)
class CapabilityMethod:
    """A predictor's method with its declaration."""

    method: PredictMethod
    capability: Capability
    task_inputs: bool = False  # whether the declaration leaves its inputs to the schema of the task

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
) -> Callable[[PredictMethod], CapabilityMethod]:
    """Binds a method `(self, dataset, options) → records` of a predictor to a capability, or declares one by it.

    Args:
        declared: The capability of that name. Without it, the method's name and the first line of its docstring are
            name and summary, and the other arguments are the fields of `Capability`.
        outputs: Column → kind of the records it returns.
        options: The class of its options.
        inputs: The fields it reads; by default the task's schema without targets.
        per_row: Whether it returns exactly one record per row.
        scalar: Whether Python answers a single input by the first output column alone.
        own_data: Whether it reads the data of the run if there are no inputs.
    """

    def bind(method: PredictMethod) -> CapabilityMethod:
        if declared is not None:
            if method.__name__ != declared.name:
                raise TypeError(f"the method {method.__name__} is bound to the capability {declared.name}")
            return CapabilityMethod(method, declared)
        if not outputs:
            raise TypeError(f"the capability {method.__name__} declares no outputs")
        summary = (method.__doc__ or "").partition("\n")[0]
        fields = (summary, inputs or Schema(()), outputs, options, per_row, scalar, own_data)
        return CapabilityMethod(method, Capability(method.__name__, *fields), task_inputs=inputs is None)

    return bind
