"""Stored classes: frozen dataclasses that a run keeps as versioned JSON, with tokenizers as files beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from functools import cache, singledispatch
from pathlib import Path
from typing import Any, ClassVar

from ..core.errors import SeriatimError
from ..data.tokenizers import Tokenizer

Json = Any  # a JSON value
Tokenizers = dict[str, Tokenizer]  # file name → tokenizer


class Stored:
    """The base of dataclasses that a run stores. A change of the fields raises `version`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    version: ClassVar[int] = 1
    classes: ClassVar[dict[str, type[Stored]]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        Stored.classes[cls.__name__] = cls

    @classmethod
    def migrate(cls, values: dict[str, Json], version: int) -> dict[str, Json]:
        """Returns the fields of the current version from those of an older one."""
        return values

    def to_dict(self) -> tuple[dict[str, Json], Tokenizers]:
        """Returns the fields as JSON values, and the tokenizers by the file name that stands for each."""
        tokenizers: Tokenizers = {}
        return pack(self, tokenizers), tokenizers


@singledispatch
def pack(value: object, tokenizers: Tokenizers) -> Json:
    """Returns a JSON value; adds each tokenizer it meets to `tokenizers`."""
    return value


@pack.register
def _(value: Stored, tokenizers: Tokenizers) -> Json:
    packed = {field.name: pack(getattr(value, field.name), tokenizers) for field in fields(value)}
    return {"type": type(value).__name__, "version": value.version, **packed}


@pack.register(tuple)
@pack.register(list)
def _(value: Sequence[object], tokenizers: Tokenizers) -> Json:
    return [pack(item, tokenizers) for item in value]


@pack.register
def _(value: Tokenizer, tokenizers: Tokenizers) -> Json:
    for name, tokenizer in tokenizers.items():
        if tokenizer is value:  # shared by two fields: stored once
            return {"tokenizer_file": name}
    name = f"tokenizer-{len(tokenizers) + 1}.json" if tokenizers else "tokenizer.json"
    tokenizers[name] = value
    return {"tokenizer_file": name}


def unpack(value: Json, load_tokenizer: Callable[[str], Tokenizer]) -> Any:
    """Returns the value that `pack` was called with; lists become tuples."""
    if isinstance(value, list):
        return tuple(unpack(item, load_tokenizer) for item in value)
    if not isinstance(value, dict):
        return value
    if "tokenizer_file" in value:
        return load_tokenizer(value["tokenizer_file"])
    packed = dict(value)
    name, version = packed.pop("type"), packed.pop("version")
    stored_class = Stored.classes.get(name)
    if stored_class is None:
        cause = f"{name} is defined neither by seriatim nor by a plug-in that is loaded"
        raise SeriatimError("run.version", cause, "name the file that defines the task (--plugin), or update seriatim")
    if version > stored_class.version:
        cause = f"{name} (version {version}) was written by a newer seriatim"
        raise SeriatimError("run.version", cause, "update seriatim")
    if version < stored_class.version:
        packed = stored_class.migrate(packed, version)
    return stored_class(**{key: unpack(item, load_tokenizer) for key, item in packed.items()})


def from_dict(values: dict[str, Json], folder: Path) -> Any:
    """Returns the object that `to_dict` was called on, with tokenizers loaded from `folder`, each file once."""
    return unpack(values, cache(lambda name: Tokenizer.load(folder / name)))
