"""`RunSummary`: summary.json as a checked value, which reports, lists and comparisons read.

The keys belong to format 1; a key of a later version is kept. Every key may be missing, because a summary is written
when a training starts and again when it has ended, and because an imported model was never trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from .files import Json
from .metrics import finite
from .model_info import ModelInfo
from .run_folder import damaged

TYPES = {  # type of the error → the type that the value should have
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "an integer",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "a list",
    "number": "a finite number",
    "metric": "a number",
}


def _finite_number(value: object) -> float:
    number = finite(value)
    if number is None:
        raise PydanticCustomError("number", "not a finite number")
    return number


def _metric_value(value: object) -> float | None:
    """Returns a number or None. NaN and infinity are what a training that diverged has."""
    if value is None or isinstance(value, float):
        return value
    number = finite(value)
    if number is None:
        raise PydanticCustomError("metric", "not a number")
    return number


Number = Annotated[float, PlainValidator(_finite_number)]  # an integer stays one
Metrics = dict[str, Annotated[float | None, PlainValidator(_metric_value)]]


class Record(BaseModel):
    """Base of the objects in summary.json: values have their type, unknown keys are kept."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", protected_namespaces=(), defer_build=True)

    def to_json(self) -> Json:
        """Returns the values that were read or given, without the defaults of others."""
        return self.model_dump(exclude_unset=True)

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values, which are checked."""
        return self.model_validate(self.to_json() | changes)


class DataSummary(Record):
    """What a run was trained on."""

    source: str = ""
    fingerprint: str = ""  # of the training split


class UsageSummary(Record):
    """A use of the model, as a line of shell and one of Python."""

    shell: str = ""
    python: str = ""


class TeacherSummary(Record):
    """What a student keeps of its teacher."""

    path: str = ""
    fingerprint: str = ""  # of the weights
    unlabeled: str | None = None  # fingerprint of the unlabeled examples
    model: str = ""
    parameters: Number | None = None
    metrics: dict[str, Metrics] = Field(default_factory=dict)


class AverageSummary(Record):
    """What an average is made of: checkpoints of one run, or runs; of gradient-free models the weights of each."""

    run: str = ""
    steps: list[int] = Field(default_factory=list)
    runs: list[str] = Field(default_factory=list)
    weights: list[Number] = Field(default_factory=list)


class RunSummary(Record):
    """What is known when a training starts and, from `reason` on, what is known when it has ended."""

    format: int | None = None
    version: str = ""
    created: str = ""
    task: str = ""
    model: str = ""
    monitor: str = "loss"  # the metric that selects the weights
    task_summary: str = ""
    model_summary: str = ""
    model_info: ModelInfo | None = None
    gradient_free: bool | None = None
    unit: str = ""  # what is counted while training, in the plural: "tokens", "examples"
    seed: Number | None = None
    data: DataSummary = DataSummary()
    notes: list[str] = Field(default_factory=list)
    decided: list[str] = Field(default_factory=list)  # settings that were open, and follow from the budget
    teacher: TeacherSummary | None = None
    averaged: AverageSummary | None = None

    reason: str = ""  # why the training ended: finished, minutes, patience, the name of a signal, …
    step: Number | None = None
    best_step: Number | None = None
    parameters: Number | None = None
    seconds: Number | None = None
    time_budget: Number | None = None
    tokens: Number | None = None
    tokens_per_second: Number | None = None
    flops: Number | None = None
    memory: Number | None = None
    cpu_seconds: Number | None = None
    threads: Number | None = None
    metrics: dict[str, Metrics] = Field(default_factory=dict)  # by split
    baselines: dict[str, dict[str, Metrics]] = Field(default_factory=dict)  # by split and name
    sample: str = ""
    usage: list[UsageSummary] = Field(default_factory=list)
    signatures: dict[str, str] = Field(default_factory=dict)  # how metrics were computed that depend on it
    evaluation_notes: list[str] = Field(default_factory=list)
    times: dict[str, Number] = Field(default_factory=dict)  # stage → seconds

    @property
    def finished(self) -> bool:
        """Whether the run was evaluated at its end."""
        return bool(self.metrics)

    @property
    def signal(self) -> str:
        """The signal that ended the training; "" if none did."""
        return self.reason if self.reason.startswith("SIG") else ""

    @classmethod
    def parse(cls, values: Mapping[str, object], file: Path) -> Self:
        """Returns the summary of a file's values; raises SeriatimError that names the first value of a wrong type."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise damaged(file, _describe(error.errors(include_url=False)[0])) from None


COSTS = (
    "step", "best_step", "parameters", "seconds", "time_budget", "tokens", "tokens_per_second", "flops", "memory",
    "cpu_seconds", "threads",
)  # fmt: skip


def mean_costs(summaries: Sequence[RunSummary]) -> dict[str, float | None]:
    """Returns the mean of each number that says what trainings took; None if none of the summaries has it."""
    known = {name: [value for one in summaries if (value := getattr(one, name)) is not None] for name in COSTS}
    return {name: mean(values) for name, values in known.items()}


def mean(values: Sequence[float]) -> float | None:
    """Returns the mean of numbers, rounded if they are integers; None if there are none."""
    if not values:
        return None
    return round(fmean(values)) if all(isinstance(value, int) for value in values) else fmean(values)


def _describe(problem: ErrorDetails) -> str:
    """Returns the key of a value and what is wrong with it: "metrics.test.loss is not a number"."""
    key, expected = ".".join(map(str, problem["loc"])), TYPES.get(problem["type"])
    return f"{key} is not valid: {problem['msg']}" if expected is None else f"{key} is not {expected}"
