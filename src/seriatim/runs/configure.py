"""The configuration of a run from names, short options and nested settings, and its JSON Schema."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..core import registry
from ..core.config import ShortOption, merge, set_path, short_options
from ..core.errors import SeriatimError, did_you_mean
from ..tasks import NAMES, add_file, load, load_spec, names
from ..training.config import ENDS, Config, make_config

SECTIONS = ("params", "train", "task", "data", "distill", "seed", "start")  # the order of short names in help texts
# Short names of columns, which are stored under the role they have in the task's schema.
COLUMN_NAMES = ("column", "target")

# Settings for weights that are pretrained, if the user names no others.
FINE_TUNING: dict[str, Any] = {
    "batch_size": 32,
    "optimizer": {"betas": [0.9, 0.999], "weight_decay": 0.01},
    "schedule": {"name": "linear", "warmup": 0.1, "floor": 0.0},
}
FINE_TUNING_EPOCHS = 3


def configure(
    task: str | None = None,
    data: str | None = None,
    model: str | None = None,
    settings: Mapping[str, object] | None = None,
    **short: Any,
) -> Config:
    """Returns the validated configuration.

    Args:
        task: The name of the task.
        data: The source of the training data.
        model: The name of the architecture; by default the task's default model.
        settings: Nested settings, over which the names and the short options take precedence.
        short: Options by their short names, those of `short_settings` and `COLUMN_NAMES`.
    """
    named = expand_names(settings or {})
    name = task or (named.get("task") or {}).get("name")
    options = short_settings(*([name] if isinstance(name, str) and name in names() else []))
    if unknown := sorted(short.keys() - {*options, *COLUMN_NAMES}):
        remedy = did_you_mean(unknown[0], [*options, *COLUMN_NAMES])
        raise SeriatimError("config.unknown", f'there is no setting "{unknown[0]}"', remedy)
    values: dict[str, Any] = {}
    for path, value in (("task.name", task), ("data.source", data), ("model.name", model)):
        if value is not None:
            set_path(values, path, value)
    for option in options.values():
        if short.get(option.name) is not None:
            set_path(values, option.path, short[option.name])
    values = merge(named, values)
    for name in COLUMN_NAMES:
        if short.get(name) is not None:
            role = column_role(values, name)
            set_path(values, f"data.columns.{role}", short[name])
    if values.get("start") is not None:
        values = add_fine_tuning_defaults(values)
    return make_config(values)


def short_settings(*tasks: str) -> dict[str, ShortOption]:
    """Returns the settings with a short name, by that: of training, data and built-in tasks, and of others.

    Args:
        tasks: The others, such as that of a plug-in.
    """
    options = {option.name: option for option in short_options(Config)}
    having: dict[str, list[str]] = {}
    for task in dict.fromkeys((*NAMES, *tasks)):
        for option in short_options(load_spec(task).settings_type, "task"):
            known = options.setdefault(option.name, option)
            if known.path != option.path:
                cause = f'the short name "{option.name}" of {option.path} is that of {known.path}'
                raise SeriatimError("plugin.name-taken", cause, "give it another one: Short(name=…)")
            having.setdefault(option.name, []).append(task)
    for name, own in having.items():
        if 2 * len(own) < len(NAMES):  # else most tasks have it
            text = options[name].help
            options[name] = replace(options[name], help=f"{', '.join(own)}: {text}{'' if text[-1] in '.)' else '.'}")
    return dict(sorted(options.items(), key=lambda item: SECTIONS.index(item[1].path.partition(".")[0])))


def expand_names(values: Mapping[str, object]) -> dict[str, Any]:
    """Returns settings whose bare names are sections: `model: lstm` becomes `model: {name: lstm}`."""
    keys = {"task": "name", "model": "name", "data": "source"}
    return {name: {keys[name]: v} if name in keys and isinstance(v, str) else v for name, v in values.items()}


def column_role(values: Mapping[str, Any], name: str) -> str:
    """Returns the role that --column or --target names a column for: the first required input, or target."""
    task = (values.get("task") or {}).get("name")
    if task is None:
        raise SeriatimError("config.incomplete", f"--{name} needs a task", "name the task first")
    schema = load(str(task)).schema
    role = schema.input_role if name == "column" else schema.target_role
    if role is None:
        raise SeriatimError("data.column", f"the task {task} has no --{name}", f"omit --{name}")
    return role


def add_fine_tuning_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Returns settings that start from pretrained weights: with the model of these, and a small learning rate."""
    from ..hub.warm_start import WarmStart

    start, model = WarmStart.open(str(values["start"])), values.get("model") or {}
    name = start.model["name"]
    if model.get("name", name) != name:
        cause = f"{values['start']} is a {name}, not a {model['name']}"
        raise SeriatimError("start.model", cause, f"omit --model, or name {name}")
    if values.get("params") is not None:
        raise SeriatimError("start.params", f"{values['start']} has a size already", "omit --params")
    task = values.get("task") or {}
    if start.decoder_start is not None and "decoder_start" in load(str(task["name"])).settings_type.model_fields:
        values = values | {"task": {"decoder_start": start.decoder_start, **task}}
    train = values.get("train") or {}
    if not isinstance(train, Mapping):
        return values  # `make_config` reports it
    endless = all(train.get(end) is None for end in ENDS)
    defaults = FINE_TUNING | ({"epochs": FINE_TUNING_EPOCHS} if endless else {})
    return values | {"model": {**start.model, **model}, "train": merge(defaults, train)}


def add_plugins(files: str | Path | Sequence[str | Path] | None) -> None:
    """Registers the tasks, models and codecs that the user's own files define.

    A file defines a model if it has a class `Settings`, as the files of `seriatim.models` do; a subclass of `Task`
    with a name registers itself, and so does one of `InputCodec` with a modality.
    """
    for file in [files] if isinstance(files, str | Path) else files or ():
        path = Path(file)
        source = path.read_text(encoding="utf-8") if path.is_file() and path.suffix == ".py" else ""
        try:
            classes = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
        except SyntaxError:
            classes = set()
        if "Settings" in classes or not source:
            registry.models.add_file(path)
        else:
            add_file(path)


# JSON Schema, by which editors complete and check config files

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
