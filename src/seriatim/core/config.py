"""Settings: strict pydantic models from YAML files and `a.b=c` overrides; all problems are reported at once.

A default lives in one field; help texts, the printed configuration and the documentation are made from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .errors import SeriatimError, did_you_mean
from .files import Json
from .text import MAX_LISTED, listed

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


class Settings(BaseModel):
    """Base of every settings class: unknown keys are errors, numbers are finite, instances are immutable."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        protected_namespaces=(),
        allow_inf_nan=False,
        defer_build=True,  # at the first use: --help reads the fields only
    )


def add_section(settings: type[Settings], name: str, section: type[Settings]) -> None:
    """Adds a section of settings to a class and its subclasses, those that are defined later among them.

    Args:
        settings: The class.
        name: The name of the section.
        section: Its class; the first line of its docstring describes it.
    """
    settings.__annotations__[name] = section  # which later subclasses inherit
    classes = [settings]
    for cls in classes:  # it grows
        classes += cls.__subclasses__()
        field = FieldInfo(annotation=section, default_factory=section, description=section.__doc__)
        cls.model_fields[name] = field
        cls.model_rebuild(force=True)


def parse_count(value: object) -> object:
    """Converts '1M' to 1000000 and '70k' to 70000; returns anything else unchanged for pydantic to validate."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgb]?)\s*", value.lower())
        if match:
            value = float(match[1]) * UNITS[match[2]]
    if isinstance(value, float) and math.isfinite(value):
        return round(value) if value == round(value) else value
    return value


def _read_count(value: object) -> object:
    value = parse_count(value)
    if isinstance(value, str):
        raise ValueError("a number, which may end in k, M or G: 20000, 20k, 1.5M")
    return value


Count = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(_read_count)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True)
class Short:
    """Gives a setting a short name, for keywords in Python and options of commands: `Annotated[int, Short()]`.

    Args:
        help: The text of the option; by default the description of the setting, and its default.
        name: By default that of the field.
    """

    help: str = ""
    name: str = ""


@dataclass(frozen=True)
class ShortOption:
    """A setting with a short name.

    Args:
        name: The short name.
        path: Of the setting: "train.optimizer.lr".
        type: Of its values on the command line: bool, int or float, else text.
        help: The text of the option.
    """

    name: str
    path: str
    type: type
    help: str


def short_options(settings: type[BaseModel], path: str = "") -> Iterator[ShortOption]:
    """Yields the settings with a short name, those of inner sections included.

    Args:
        settings: The class.
        path: Of the section in the configuration.
    """
    for name, field in settings.model_fields.items():
        inner = f"{path}.{name}" if path else name
        for short in (entry for entry in field.metadata if isinstance(entry, Short)):
            default = "" if field.is_required() or field.default is None else f" (default: {field.default})"
            text = short.help or f"{field.description}{default}"
            yield ShortOption(short.name or name, inner, _option_type(field), text)
        for section in _settings_in(field.annotation):
            yield from short_options(section, inner)


def _option_type(field: FieldInfo) -> type:
    """Returns the type of a setting on the command line; what is parsed, as 10M, is text."""
    variants = [variant for variant in get_args(field.annotation) if variant is not NoneType] or [field.annotation]
    kind, metadata = variants[0], field.metadata
    if get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
    parsed = any(isinstance(entry, BeforeValidator) for entry in metadata)
    return kind if not parsed and kind in (bool, int, float) else str


S = TypeVar("S", bound=BaseModel)
MAX_SHOWN = 200  # characters of a value in a message


def validate(schema: type[S], values: Mapping[str, object], origin: str = "the settings") -> S:
    """Returns the settings object, or raises one error that lists every problem."""
    try:
        return schema.model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(schema, detail) for detail in error.errors()[:MAX_LISTED]]
        count = f"{error.error_count():,} problems" if len(lines) > 1 else "a problem"
        raise SeriatimError(
            "config.invalid",
            f"{origin}: {count}\n    " + listed(lines, separator="\n    ", total=error.error_count()),
            "`--help` lists the options; `train … --print-config` shows every setting with its value",
        ) from None


def load_yaml(path: str | Path) -> Json:
    import yaml  # by the few commands that read or write settings, as --help needs none

    from .yaml_text import parse_yaml

    path = Path(path)
    if not path.is_file():
        raise SeriatimError("config.missing", f"there is no settings file {path}", "check the path given to --config")
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or error
        raise SeriatimError("config.yaml", f"{where}: not valid YAML ({problem})", "correct the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SeriatimError("config.yaml", f"{path} has no mapping at its top level", "write `key: value` lines")
    return values


def override(values: Mapping[str, object], assignments: Iterable[str]) -> Json:
    """Returns values with `a.b=c` assignments applied; `c` is parsed as YAML (`true`, `3`, `[1, 2]`, `null`)."""
    result = _copy(values)
    for text in assignments:
        key, equals, raw = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*", key.strip()):
            raise SeriatimError(
                "config.assignment", f'"{text}" is not of the form a.b=c', "write --set model.width=256"
            )
        set_path(result, key.strip(), _scalar(raw))
    return result


def set_path(values: Json, path: str, value: object) -> None:
    """Sets `values["a"]["b"]` for the path "a.b", creating mappings as needed."""
    *parents, last = path.split(".")
    for name in parents:
        inner = values.get(name)
        if not isinstance(inner, dict):
            inner = values[name] = {}
        values = inner
    values[last] = value


def get_path(values: Json, path: str) -> object:
    """Returns a setting by its path, get_path(values, "train.optimizer.lr"); None if it is not there."""
    inner: object = values
    for name in path.split("."):
        inner = inner.get(name) if isinstance(inner, dict) else None
    return inner


def drop_path(values: Json, path: str) -> None:
    """Removes a setting by its path, if it is there: drop_path(values, "train.batch_size")."""
    *parents, last = path.split(".")
    for name in parents:
        inner = values.get(name)
        values = inner if isinstance(inner, dict) else {}
    values.pop(last, None)


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> Json:
    """Returns `base` updated with `over`, recursively."""
    result = _copy(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def dump_yaml(settings: BaseModel | Mapping[str, object]) -> str:
    import yaml

    values = settings.model_dump(mode="json") if isinstance(settings, BaseModel) else dict(settings)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _scalar(raw: str) -> object:
    if len(raw) == 1 and not raw.isalnum() and raw != "~":
        return raw  # a separator such as | or - or #, which YAML would parse otherwise
    import yaml

    from .yaml_text import parse_yaml

    try:
        value = parse_yaml(raw)
    except (yaml.YAMLError, ValueError):
        return raw
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _copy(values: Mapping[str, object]) -> Json:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _explain(schema: type[BaseModel], detail: ErrorDetails) -> str:
    path = [str(part) for part in detail["loc"]]
    name = ".".join(path)
    if detail["type"] == "extra_forbidden":
        hint = did_you_mean(path[-1], _keys(schema, path[:-1]))
        return f"{name}: unknown setting; {hint}"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    expected = message if message != detail["msg"] else detail["msg"][0].lower() + detail["msg"][1:]
    if detail["type"] == "missing":
        return f"{name}: is required"
    if not name:  # settings that contradict each other: the message names them
        return expected
    try:
        shown = repr(detail["input"])
    except ValueError:  # Python writes no number of more than 4,300 digits
        shown = "a number of thousands of digits"
    return f"{name}: {expected} (got {shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + '…'})"


def _keys(schema: type[BaseModel], path: list[str]) -> list[str]:
    """Returns the names of the settings under a path, through optional and union types."""
    candidates = [schema]
    for part in path:
        candidates = [
            inner
            for model in candidates
            if part in model.model_fields
            for inner in _settings_in(model.model_fields[part].annotation)
        ]
    return [key for model in candidates for key in model.model_fields]


def _settings_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _settings_in(inner)]
