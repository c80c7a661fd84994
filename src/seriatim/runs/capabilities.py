"""Capabilities as JSON, for RUN/capabilities.json: a command line or a form reads it without importing torch."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.files import Json
from ..tasks.base import AnyTask
from ..tasks.capability import Capability
from ..tasks.old import Bridge


def capability_to_json(capability: Capability) -> Json:
    """Returns a capability as JSON values; its options by name, as JSON Schema without references."""
    schema = capability.options.model_json_schema()
    return {
        "summary": capability.summary,
        "inputs": [
            {"role": field.role, "kinds": [kind.name for kind in field.kinds], "required": field.required}
            for field in capability.inputs.fields
        ],
        "outputs": {column: kind.name for column, kind in capability.outputs.items()},
        "per_row": capability.per_row,
        "scalar": capability.scalar,
        "options": inline_references(schema.get("properties", {}), schema.get("$defs", {})),
    }


def inline_references(value: object, definitions: Mapping[str, Json]) -> object:
    """Returns a JSON Schema with each reference replaced by its definition."""
    if isinstance(value, list):
        return [inline_references(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        definition = definitions[value["$ref"].rpartition("/")[2]]
        return inline_references(
            {**definition, **{key: item for key, item in value.items() if key != "$ref"}}, definitions
        )
    return {key: inline_references(item, definitions) for key, item in value.items()}


def task_capabilities(task: type[AnyTask]) -> Json:
    """Returns the JSON of each capability of a task's predictor, by name; no network is built."""
    inputs, methods = task.schema.inputs(), task.predictor_type.methods
    return {name: capability_to_json(method.resolve(inputs)) for name, method in methods.items()}


def predictor_capabilities(task: AnyTask) -> Json:
    """Returns the JSON of each capability of the predictor of a prepared task, which may lack some of its class."""
    if isinstance(task, Bridge):
        capabilities = task.predictor_type(task.old, None).capabilities
    else:
        capabilities = task.predictor_type.describe(task)
    return {name: capability_to_json(capability) for name, capability in capabilities.items()}
