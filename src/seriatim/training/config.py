"""The configuration of a run: the settings of task, data, model and training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, create_model

from .. import tasks
from ..core import registry
from ..core.config import Count, validate
from ..core.errors import SeriatimError
from ..nn.backbone import ModelSettings
from ..tasks.base import DataSettings, TaskConfig
from .settings import DistillSettings, TrainSettings

ENDS = ("steps", "epochs", "minutes")  # of a training
EXAMPLE = "`seriatim train language --data book.txt --model lstm`"


class Config(TaskConfig):
    """The contents of config.yaml. The exact types of `task` and `model` follow from their names."""

    task: Any = Field(description="the task and its settings")
    data: DataSettings = Field(description="where the data is and how it is read")
    model: Any = Field(description="the architecture and its settings")
    start: str | None = Field(
        None, description="pretrained weights: a run, a folder of `transformers` or a name on its hub (--from)"
    )
    distill: DistillSettings | None = Field(None, description="distillation from a teacher")
    train: TrainSettings = Field(default_factory=TrainSettings, description="the training loop")
    params: Count | None = Field(None, ge=1, description="parameter budget: solves for the model's width")
    seed: int = Field(0, ge=0, description="of every random stream")

    def task_config(self) -> TaskConfig:
        """Returns the settings that a task depends on."""
        return TaskConfig(task=self.task, data=self.data, model=self.model, seed=self.seed)


def make_config(values: Mapping[str, Any], origin: str = "the settings") -> Config:
    """Returns the validated configuration, with the defaults of task and model.

    Args:
        values: Nested plain values. `task` and `model` may be names, `data` a source.
        origin: Where the values are from, for messages.
    """
    values = dict(values)
    values.pop("format", None)  # of a run folder's config.yaml
    for section, key in (("task", "name"), ("model", "name"), ("data", "source")):
        if isinstance(values.get(section), str):
            values[section] = {key: values[section]}
        if section == "model" and isinstance(values.get("model") or {}, Mapping):  # after the task, with a default
            default = tasks.load(str(values["task"]["name"])).default_model
            values["model"] = {"name": default, **(values.get("model") or {})}
        if not isinstance(values.get(section), Mapping) or key not in values[section]:
            cause = f"{origin}: {section} is not named"
            raise SeriatimError("config.incomplete", cause, f"set {section}.{key}, as in {EXAMPLE}")
    task = tasks.load(str(values["task"]["name"]))
    model: type[ModelSettings] = registry.models.load(str(values["model"]["name"])).Settings
    values["model"] = {**_known(task.model_defaults(values), model), **values["model"]}
    values["task"] = {**_known(model.task_defaults, task.settings_type), **values["task"]}
    tokenizer = values["task"].get("tokenizer")
    if model.tokenizer_defaults and isinstance(tokenizer, Mapping) and "kind" not in tokenizer:
        # A vocabulary size alone, as --vocab-size 8000, is that of the model's usual tokenizer.
        values["task"]["tokenizer"] = {**model.tokenizer_defaults, **tokenizer}
    if isinstance(train := values.get("train") or {}, Mapping):  # else `validate` reports it
        has_end = any(train.get(name) is not None for name in ENDS)  # an end set by the user replaces the task's
        defaults = {key: value for key, value in task.train_defaults(values).items() if not (has_end and key in ENDS)}
        values["train"] = defaults | dict(train)
    schema = create_model("Config", __base__=Config, task=(task.settings_type, ...), model=(model, ...))
    config = validate(schema, values, origin)
    return config.model_copy(update={"task": task.resolve_settings(config.task, config.model_dump(mode="json"))})


def _known(defaults: Mapping[str, Any], settings: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if name in settings.model_fields}
