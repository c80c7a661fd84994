"""The configuration of a run: the settings of its task, data, model and training in one schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, create_model

from ..core import registry
from ..core.config import Count, Settings, validate
from ..core.errors import SeriatimError
from .settings import DistilSettings, TrainSettings

ENDS = ("steps", "epochs", "minutes")  # of a training
EXAMPLE = "`seriatim train language --data book.txt --model lstm`"


class Config(Settings):
    """What config.yaml holds. The exact types of `task`, `data` and `model` follow from the names in them."""

    task: Any = Field(description="the task and its settings")
    data: Any = Field(description="where the data is and how it is read")
    model: Any = Field(description="the architecture and its settings")
    start: str | None = Field(
        None, description="what to begin with: a run, a folder of `transformers` or a name on its hub (--from)"
    )
    distil: DistilSettings | None = Field(None, description="a teacher to learn from, and how")
    train: TrainSettings = Field(default_factory=TrainSettings, description="the training loop")
    params: Count | None = Field(None, ge=1, description="parameters to have: solves for the model's width")
    seed: int = Field(0, ge=0, description="of every random stream")


def make_config(values: Mapping[str, Any], origin: str = "the settings") -> Config:
    """Checks everything at once. `task` and `model` may be given as bare names, `data` as a bare source."""
    values = dict(values)
    for section, key in (("task", "name"), ("model", "name"), ("data", "source")):
        if isinstance(values.get(section), str):
            values[section] = {key: values[section]}
        if not isinstance(values.get(section), Mapping) or key not in values[section]:
            raise SeriatimError(
                "config.incomplete", f"{origin}: {section} is not named", f"set {section}.{key}, as in {EXAMPLE}"
            )
    task = registry.tasks.load(str(values["task"]["name"]))
    model = registry.models.load(str(values["model"]["name"]))
    if hasattr(task, "model_defaults"):  # what suits the task where the user does not say
        suited = task.model_defaults(values)
        known = {name: value for name, value in suited.items() if name in model.Settings.model_fields}
        values["model"] = {**known, **values["model"]}
    suited = getattr(model.Settings, "suits", {})
    known = {name: value for name, value in suited.items() if name in task.Settings.model_fields}
    values["task"] = {**known, **values["task"]}
    values["data"] = _with_tokens(values["data"], getattr(model.Settings, "tokens", {}))
    if hasattr(task, "train_defaults"):
        values["train"] = _suited(task.train_defaults(values), values.get("train") or {})
    schema = create_model(
        "Config", __base__=Config, task=(task.Settings, ...), data=(task.DataSettings, ...), model=(model.Settings, ...)
    )
    return validate(schema, values, origin)


def _with_tokens(data: Mapping[str, Any], suited: Mapping[str, Any]) -> dict[str, Any]:
    """Whoever asks for a size of vocabulary alone, as by --vocabulary 8000, asks for the tokens that suit the model."""
    given = data.get("tokenizer")
    if not suited or not isinstance(given, Mapping) or "kind" in given:
        return dict(data)
    return {**data, "tokenizer": {**suited, **given}}


def _suited(suited: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What suits a task, with what the user says on top. Whoever says how long by any measure says it alone."""
    said = any(given.get(name) is not None for name in ENDS)
    return {name: value for name, value in suited.items() if not (said and name in ENDS)} | dict(given)
