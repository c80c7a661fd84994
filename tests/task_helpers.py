"""Helpers of the tests of tasks: a prepared task, and a short training without a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from seriatim import tasks
from seriatim.core import registry
from seriatim.core.config import validate
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.tasks import reading
from seriatim.tasks.base import AnyTask, DataSettings, TaskConfig
from seriatim.tasks.predictor import Predictor
from seriatim.tasks.values import Splits
from seriatim.training.objective import TaskObjective


def make_config(
    name: str,
    data: Any,
    model: str | Mapping[str, Any] = "gru",
    settings: Mapping[str, Any] | None = None,
    **data_settings: Any,
) -> TaskConfig[Any]:
    """Returns the configuration of a task; `settings` are those of the task, `model` a name or settings."""
    task_class = tasks.load(name)
    model_values = {"name": model} if isinstance(model, str) else dict(model)
    model_class = registry.models.load(model_values["name"]).Settings
    if "width" in model_class.model_fields:
        model_values = {"width": 8, **model_values}
    known = {
        key: value for key, value in model_class.task_defaults.items() if key in task_class.settings_type.model_fields
    }
    source = {"source": data if isinstance(data, str) else str(data) if hasattr(data, "parts") else "data"}
    return TaskConfig(
        task=validate(task_class.settings_type, {**known, **(settings or {})}),
        data=validate(DataSettings, {**source, **data_settings}),
        model=validate(model_class, model_values),
    )


def prepare_splits(name: str, data: Any, *rest: Any, diagnostics: Diagnostics | None = None, **more: Any) -> Any:
    """Returns a task and its splits; see `make_config`."""
    in_memory = None if isinstance(data, str) or hasattr(data, "parts") else data
    config = make_config(name, data, *rest, **more)
    return reading.prepare(tasks.load(name), config, in_memory, diagnostics=diagnostics)


def fit_splits(
    task: AnyTask, splits: Splits[Any], steps: int = 30, batch_size: int = 16, lr: float = 0.02
) -> Predictor[Any]:
    """Returns the predictor of a network that was trained for a few steps."""
    objective, network = TaskObjective.of(task, splits), task.build(splits.train)
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    network.train()
    for step in range(steps):
        batch = objective.batch(step, 0, batch_size, batch_size)
        loss = task.loss(task.forward(network, batch), batch) / batch.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return task.predictor(network)


def refused(code: str, *words: str, **arguments: Any) -> None:
    """Asserts that preparing a task raises an error with this code, these words and a remedy."""
    with pytest.raises(SeriatimError) as caught:
        prepare_splits(**arguments)
    assert caught.value.code == code, caught.value
    assert caught.value.remedy
    for word in words:
        assert word in str(caught.value), str(caught.value)
