"""Settings: strict pydantic models from YAML files and `a.b=c` overrides, with every problem reported at once.

A default lives in one field and nowhere else; help texts, the printed configuration and the documentation
are made from that field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from .errors import SeriatimError, did_you_mean

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


class Settings(BaseModel):
    """The base of every settings class: unknown keys are errors, values cannot be changed after the check."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


def parse_count(value: object) -> object:
    """'1M' → 1000000, '70k' → 70000; anything else is left for pydantic to judge."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgb]?)\s*", value.lower())
        if match:
            value = float(match[1]) * UNITS[match[2]]
    if isinstance(value, float) and math.isfinite(value):
        return round(value) if value == round(value) else value
    return value


Count = Annotated[int, BeforeValidator(parse_count)]

S = TypeVar("S", bound=BaseModel)


def validate(schema: type[S], values: Mapping[str, Any], origin: str = "the settings") -> S:
    """The settings object, or one error that lists every problem."""
    try:
        return schema.model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(schema, detail) for detail in error.errors()]
        count = f"{len(lines)} problems" if len(lines) > 1 else "a problem"
        raise SeriatimError(
            "config.invalid",
            f"{origin}: {count}\n" + "\n".join(f"    {line}" for line in lines),
            "`--help` says what there is; `train … --print-config` shows every setting with its value",
        ) from None


def load_yaml(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    if not path.is_file():
        raise SeriatimError("config.missing", f"there is no settings file {path}", "check the path given to --config")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or error
        raise SeriatimError("config.yaml", f"{where}: not valid YAML ({problem})", "mend the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SeriatimError("config.yaml", f"{path} holds no mapping at its top", "write `key: value` lines")
    return values


def override(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Applies `a.b=c` assignments; values are read as YAML, so `true`, `3`, `[1, 2]` and `null` mean what they say."""
    result = _copy(values)
    for text in assignments:
        key, equals, raw = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*", key.strip()):
            raise SeriatimError(
                "config.assignment", f'"{text}" is not of the form a.b=c', "write --set model.width=256"
            )
        set_path(result, key.strip(), _scalar(raw))
    return result


def set_path(values: dict[str, Any], path: str, value: Any) -> None:
    """Sets `values["a"]["b"]` for the path "a.b", making the mappings on the way."""
    *parents, last = path.split(".")
    for name in parents:
        inner = values.get(name)
        if not isinstance(inner, dict):
            inner = values[name] = {}
        values = inner
    values[last] = value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, mapping by mapping."""
    result = _copy(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def dump_yaml(settings: BaseModel | Mapping[str, Any]) -> str:
    values = settings.model_dump(mode="json") if isinstance(settings, BaseModel) else dict(settings)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _scalar(raw: str) -> Any:
    if len(raw) == 1 and not raw.isalnum() and raw != "~":
        return raw  # a separator such as | or - or #, which YAML takes for something else
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError:
        return raw
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _explain(schema: type[BaseModel], detail: ErrorDetails) -> str:
    path = [str(part) for part in detail["loc"]]
    name = ".".join(path)
    if detail["type"] == "extra_forbidden":
        hint = did_you_mean(path[-1], _keys(schema, path[:-1]))
        return f"{name}: there is no such setting; {hint}"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    wanted = message if message != detail["msg"] else detail["msg"][0].lower() + detail["msg"][1:]
    if detail["type"] == "missing":
        return f"{name}: is required"
    if not name:  # settings that contradict each other: the message names them
        return wanted
    return f"{name}: {wanted} (got {detail['input']!r})"


def _keys(schema: type[BaseModel], path: list[str]) -> list[str]:
    """The names of the settings under a path, looking through optional and union types."""
    candidates: list[Any] = [schema]
    for part in path:
        candidates = [
            inner
            for one in candidates
            if part in one.model_fields
            for inner in _settings_in(one.model_fields[part].annotation)
        ]
    return [key for one in candidates for key in one.model_fields]


def _settings_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in getattr(annotation, "__args__", ()) for found in _settings_in(inner)]
