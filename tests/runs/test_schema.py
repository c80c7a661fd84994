"""The JSON Schema of the configuration accepts what is valid, and rejects what is not."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from seriatim.core import registry
from seriatim.runs.configure import configure
from seriatim.runs.schema import config_schema
from seriatim.tasks import NAMES


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_it_is_json() -> None:
    schema = config_schema()
    assert json.loads(json.dumps(schema)) == schema
    references = json.dumps(schema).count('"$ref"')
    assert references >= len(NAMES) + len(registry.models.names())


@pytest.mark.parametrize("task", NAMES)
def test_the_settings_of_every_task_are_valid(validator: Any, task: str) -> None:
    values = configure(task, "data.csv").model_dump(mode="json")
    validator.validate({"format": 1, **values})
    validator.validate({"task": task, "data": {"source": "data.csv"}, "model": values["model"]["name"]})


@pytest.mark.parametrize("model", registry.models.names())
def test_the_settings_of_every_model_are_valid(validator: Any, model: str) -> None:
    settings = registry.models.load(model).Settings(name=model).model_dump(mode="json")
    validator.validate({"task": "classify", "data": {"source": "data.csv"}, "model": settings})


@pytest.mark.parametrize(
    "values",
    [
        {"task": "clasify"},
        {"model": {"name": "lstm", "widht": 8}},
        {"model": {"name": "lstm", "width": "wide"}},
        {"train": {"stepz": 3}},
        {"train": {"batch_size": 0}},
        {"trian": {}},
        {"seed": "none"},
    ],
)
def test_mistakes_are_invalid(validator: Any, values: dict[str, Any]) -> None:
    valid = {"task": "classify", "data": {"source": "data.csv"}, "model": "lstm"}
    assert validator.is_valid(valid)
    assert not validator.is_valid(valid | values)


def test_one_task_alone() -> None:
    schema = config_schema("tag")
    definitions = [name for name in schema["$defs"] if name.startswith("task.")]
    assert definitions == ["task.tag"]


def test_descriptions_are_there_for_editors() -> None:
    properties = config_schema()["$defs"]["TrainSettings"]["properties"]
    assert all("description" in value or "$ref" in value or "default" in value for value in properties.values()), (
        properties
    )
