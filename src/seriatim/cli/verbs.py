"""Commands that use a run, made from the capabilities of predictors.

Those of the built-in tasks are declared without torch (`tasks/NAME/spec.py`); RUN/capabilities.json has those of a run,
plug-ins included. `predict` is the main capability of any run.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
import typer.main
from pydantic.fields import FieldInfo

from ..tasks import NAMES, load_spec
from ..tasks.capability import Capability
from . import options as o

TYPES: dict[str, type] = {"integer": int, "number": float, "boolean": bool, "string": str, "array": list[str]}

Inputs = Annotated[
    list[str] | None, typer.Argument(help="Inputs; without any, lines of standard input.", show_default=False)
]
InputData = Annotated[str | None, typer.Option("--data", help="Inputs from a file: any format that training reads.")]
OUT = "Write a .csv, .tsv, .jsonl, .parquet or .txt file."
OUT_VECTORS = "Write a .npy, .parquet, .csv, .tsv, .jsonl or .txt file."
Chart = Annotated[Path | None, typer.Option("--chart", help="Draw the predictions: .html, .png, .svg or .json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object per line, with all columns.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Round the weights to 8 bits: faster, nearly as accurate.")]
With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="RUN", help="Another run whose probabilities are averaged; may be repeated."),
]


@dataclass(frozen=True)
class Option:
    """An option of a verb: its type, default and description, as a command line needs them."""

    name: str
    type: Any
    default: object
    description: str


@dataclass(frozen=True)
class Verb:
    """A capability as a command."""

    name: str
    summary: str
    roles: tuple[str, ...]  # required inputs
    outputs: tuple[str, ...]  # columns
    options: dict[str, Option]

    @classmethod
    def declared(cls, capability: Capability) -> Verb:
        """Returns the verb of a declaration."""
        roles = tuple(field.role for field in capability.inputs.fields if field.required)
        options = {
            name: Option(name, option_type(field.annotation), default_of(field), field.description or "")
            for name, field in capability.options.model_fields.items()
        }
        return cls(capability.name, capability.summary, roles, tuple(capability.outputs), options)

    @classmethod
    def from_json(cls, name: str, values: dict[str, Any]) -> Verb:
        """Returns the verb of a declaration in capabilities.json."""
        options = {key: read_option(key, schema) for key, schema in values["options"].items()}
        roles = tuple(field["role"] for field in values["inputs"] if field["required"])
        return cls(name, values["summary"], roles, tuple(values["outputs"]), options)

    def merge(self, other: Verb) -> Verb:
        """Returns the verb of two tasks that both have it, with the options of both; a run refuses what it lacks."""
        roles = (*self.roles, *(role for role in other.roles if role not in self.roles))
        simpler = min((self, other), key=lambda verb: len(verb.roles))
        return Verb(self.name, simpler.summary, roles, simpler.outputs, {**other.options, **self.options})


def default_of(field: FieldInfo) -> object:
    """Returns the default of a field; None if it has none, or one that is made for each instance."""
    return None if field.is_required() or field.default_factory is not None else field.default


def option_type(annotation: Any) -> Any:
    """Returns the type of an option on the command line, from that of its field; of several types the first."""
    variants = [variant for variant in get_args(annotation) if variant is not NoneType]
    kind = variants[0] if NoneType in get_args(annotation) else annotation
    if get_origin(kind) is Literal:
        return kind
    return list[str] if get_origin(kind) in (list, tuple) else kind if kind in (bool, int, float) else str


def read_option(name: str, schema: dict[str, Any]) -> Option:
    """Returns an option from its JSON Schema."""
    variants = [variant for variant in schema.get("anyOf", [schema]) if variant.get("type") != "null"]
    choices = variants[0].get("enum") or ([variants[0]["const"]] if "const" in variants[0] else None)
    kind = Literal[tuple(choices)] if choices else TYPES.get(variants[0].get("type", "string"), str)
    return Option(name, kind, schema.get("default"), schema.get("description", ""))


@cache
def built_in_verbs() -> dict[str, Verb]:
    """Returns the verbs of all built-in tasks."""
    verbs: dict[str, Verb] = {}
    predict = Verb("predict", "Run the main capability of a run, whatever its task.", ("input",), ("prediction",), {})
    for name in NAMES:
        declared = [Verb.declared(capability) for capability in load_spec(name).capabilities]
        for verb in declared:
            verbs[verb.name] = verbs[verb.name].merge(verb) if verb.name in verbs else verb
        predict = replace(predict, options=predict.options | declared[0].options)
    return {"predict": predict, **verbs}


def verb_command(name: str, arguments: Sequence[str]) -> Any:
    """Returns the command of a verb: built in, or of the run that the first argument names; None if there is none."""
    verb = built_in_verbs().get(name)
    if verb is None and arguments and (Path(arguments[0]) / "capabilities.json").is_file():
        from ..core.run_folder import RunFolder

        declared = RunFolder(arguments[0]).capabilities.get(name)
        verb = None if declared is None else Verb.from_json(name, declared)
    return None if verb is None else typer.main.get_command(make_command(verb))


def make_command(verb: Verb) -> typer.Typer:
    """Returns the command of a verb: RUN, inputs, the common options, and its own."""
    out = OUT_VECTORS if verb.outputs[0] == "vector" else OUT
    common: dict[str, tuple[object, object]] = {
        "run": (o.RunPath, inspect.Parameter.empty),
        "inputs": (Inputs, None),
        "data": (InputData, None),
        "column": (o.Column, None),
        "out": (Annotated[Path | None, typer.Option("--out", "-o", help=out)], None),
        "chart": (Chart, None),
        "int8": (Int8, False),
        "others": (With, None),
        "data_dir": (o.DataDir, None),
        "plugin": (o.Plugin, None),
        "json": (AsJson, False),
        "quiet": (o.Quiet, False),
    }
    panel = f"Options of {verb.name}"
    fixed: dict[str, tuple[object, object]] = {}
    if len(verb.roles) > 1:
        for role in verb.roles:
            text = f"The {role} of all inputs: a text, or a file that is read."
            info = typer.Option(f"--{role}", help=text, rich_help_panel=panel, show_default=False)
            fixed[f"fixed_{role}"] = (Annotated[str | None, info], None)
    own: dict[str, tuple[object, object]] = {}
    for option in verb.options.values():
        if option.name in common:
            continue
        default = "" if option.default in (None, [], "") else f" (default: {option.default})"
        info = typer.Option(help=option.description + default, rich_help_panel=panel, show_default=False)
        own[option.name] = (Annotated[option.type | None, info], None)
    parameters = {**common, **fixed, **own}

    def command(**values: Any) -> None:
        from .runner import Command, answer

        options = {name: values[name] for name in own if values[name] not in (None, [])}
        roles = {role: text for role in verb.roles if (text := values.get(f"fixed_{role}")) is not None}
        request = {name: values[name] for name in common}
        answer(Command(verb=verb.name, fixed=roles, options=options, **request))

    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in parameters.items()
        ]
    )
    command.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    columns = ", ".join(verb.outputs)
    help_text = f"{verb.summary}\n\nInputs: {' and '.join(verb.roles)}. Columns of the result: {columns}."
    return o.single_command(verb.name, command, o.USE, help_text)
