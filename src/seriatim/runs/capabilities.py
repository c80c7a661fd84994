"""Capabilities as JSON, for RUN/capabilities.json: a command line or a form reads it without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.files import Json
from ..core.text import evenly_spaced
from ..data.dataset import Dataset
from ..data.schema import Schema
from ..tasks.base import AnyTask
from ..tasks.capability import Capability

EXAMPLES = 3  # inputs from the data of a run
MAX_CHARACTERS = 200  # of a text in them


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
        "own_data": capability.own_data,
        "streams": capability.streams,
        "sources": list(capability.sources),
        "presentation": capability.presentation,
        "common": list(capability.common),
        "examples": [dict(example) for example in capability.examples],
        "options": inline_references(schema.get("properties", {}), schema.get("$defs", {})),
    }


def example_inputs(capability: Capability, rows: Dataset, schema: Schema) -> tuple[Mapping[str, str], ...]:
    """Returns a few inputs of a capability from the data of a run; none if it reads anything but texts.

    Args:
        capability: Of the run.
        rows: Some of the data.
        schema: That of the task, whose main input is an example for any capability with one text.
    """
    roles = [field.role for field in capability.inputs.fields if field.required]
    held = {role: role for role in roles if role in rows}
    if len(roles) == 1:
        held.setdefault(roles[0], schema.input_role)
    if not roles or len(held) < len(roles) or not all(role in rows for role in held.values()):
        return ()
    chosen = evenly_spaced(len(rows), EXAMPLES).tolist()
    examples = [{role: example_text(rows[own][row]) for role, own in held.items()} for row in chosen]
    return tuple(example for example in examples if all(example.values()))


def example_text(value: object) -> str:
    """Returns the first line of a text, or words, within `MAX_CHARACTERS`; "" for other values."""
    words = value if isinstance(value, tuple) and all(isinstance(word, str) for word in value) else ()
    text = value if isinstance(value, str) else " ".join(words)
    line = text.strip().partition("\n")[0]
    cut = line[:MAX_CHARACTERS]
    return line if len(line) <= MAX_CHARACTERS else cut.rpartition(" ")[0] or cut


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


def predictor_capabilities(task: AnyTask, rows: Dataset | None = None) -> Json:
    """Returns the JSON of each capability of the predictor of a prepared task, which may lack some of its class.

    Args:
        task: The task of a run.
        rows: Some of its data, for examples; None if it was not trained here.
    """
    declared = task.predictor_type.describe(task)
    if rows is not None:
        declared = {
            name: replace(capability, examples=capability.examples or example_inputs(capability, rows, task.schema))
            for name, capability in declared.items()
        }
    return {name: capability_to_json(capability) for name, capability in declared.items()}
