"""The JSON Schema of the configuration, by which editors complete and check config files."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ..core import registry
from ..tasks import load, names
from ..training.config import Config

SCHEMA_FILE = "seriatim.schema.json"
# The first line of --print-config, which editors with a YAML language server read.
MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n# `seriatim schema --out {SCHEMA_FILE}` writes that file."


def config_schema(task: str | None = None) -> dict[str, Any]:
    """Returns the JSON Schema of config files; the sections task and model have one variant per name.

    Args:
        task: Only with the settings of this task; by default with those of all.
    """
    schema = Config.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    tasks = {name: load(name).settings_type for name in ([task] if task is not None else names())}
    models = {name: registry.models.load(name).Settings for name in registry.models.names()}
    for section, variants in (("task", tasks), ("model", models)):
        description = schema["properties"][section].get("description", "")
        schema["properties"][section] = {
            "description": description,
            "anyOf": [
                {"enum": list(variants)},
                *(add_definition(definitions, section, name, settings) for name, settings in variants.items()),
            ],
        }
    schema["properties"]["format"] = {"const": 1, "description": "the format of a run folder"}
    schema["required"] = sorted(set(schema.get("required", [])) - {"model"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Seriatim configuration", **schema}


def add_definition(definitions: dict[str, Any], section: str, name: str, settings: type[BaseModel]) -> dict[str, Any]:
    """Adds the settings of a task or model to the definitions and returns a reference to them."""
    schema = settings.model_json_schema()
    for key, definition in schema.pop("$defs", {}).items():
        definitions.setdefault(key, definition)
    schema["properties"]["name"] = {"const": name, "description": f"the {section}"}
    schema["required"] = sorted({*schema.get("required", []), "name"})
    definitions[f"{section}.{name}"] = schema
    return {"$ref": f"#/$defs/{section}.{name}"}
