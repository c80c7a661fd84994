"""The declaration of a task, without torch, and the settings that it depends on.

The command line, forms and the documentation are made from declarations. A built-in task has its own in
`tasks/NAME/spec.py` as `SPEC`, to which its class in `tasks/NAME/task.py` refers. That of a plug-in in one file is made
from the class variables of its `Task`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core.config import Seed, Settings, Short
from ..data.schema import Schema
from ..data.settings import DataSettings
from ..nn.settings import ModelSettings
from .capability import Capability

S = TypeVar("S", bound=Settings)

# Short names that the settings of several tasks have
CONTEXT_LENGTH = Short("Elements in a training sequence; longer inputs are truncated.")
POOLING = Short("last, mean, max, attention; bert: first. (default: mean; first)")


@dataclass(frozen=True)
class TaskSpec:
    """The declaration of a task.

    Args:
        name: As commands and settings name it.
        summary: A sentence without a period.
        schema: The fields of its data.
        settings_type: The class of its settings.
        capabilities: What its predictor can do; `predict` runs the first one.
        default_model: The model that `train` takes if none is named.
        default_model_reason: Why.
        compared_models: The models that `compare` takes by default.
        fitted_models: Gradient-free models that it supports.
        encoder_decoder: Whether it accepts encoder–decoder models.
        modality: That of its inputs; None: that of the data, which a codec reads.
    """

    name: str
    summary: str
    schema: Schema
    settings_type: type[Settings]
    capabilities: tuple[Capability, ...]
    default_model: str = "gru"
    default_model_reason: str = "a recurrent network is small, fast on a CPU and has no length limit"
    compared_models: tuple[str, ...] = ("mlp", "rnn", "lstm", "gru", "tcn", "gpt")
    fitted_models: tuple[str, ...] = ()
    encoder_decoder: bool = False
    modality: str | None = "text"


class TaskConfig(Settings, Generic[S]):
    """All settings a task may depend on. Those of the training loop are not among them."""

    task: S  # an instance of the task's `settings_type`
    data: DataSettings
    model: ModelSettings  # an instance of the architecture's own class
    seed: Seed = 0
