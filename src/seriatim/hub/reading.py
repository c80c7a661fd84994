"""Reading a model of `transformers`: its settings, tokenizers and weights by our names, or all its problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core import registry
from ..core.config import validate
from ..core.errors import SeriatimError
from ..data.tokenizers import Tokenizer
from .folder import CONFIG, HubFolder
from .mapping import HubHead, ModelMapping, TensorMap, read_sizes
from .mappings import by_model_type
from .preprocessing import HubImage, read_preprocessor

MAX_LISTED = 20  # problems
NEW_WEIGHT_STD = 0.02  # of missing optional weights
TARGET_FOLDER = "target"  # of the second tokenizer, if a model has two


@dataclass(frozen=True)
class HubModel:
    """The contents of a model folder in our terms."""

    path: Path
    settings: dict[str, Any]  # of our model
    mapping: ModelMapping
    head: HubHead
    tensors: dict[str, Tensor]
    config: dict[str, Any]  # config.json
    tokenizers: dict[str, Tokenizer]  # "tokenizer", and "source_tokenizer" if source and target have separate ones
    labels: tuple[str, ...] = ()  # of its outputs, in order
    notes: list[str] = field(default_factory=list)
    new_tensors: dict[str, Tensor] = field(default_factory=dict)  # optional ones that are missing, initialized
    image: HubImage | None = None

    @property
    def decoder_start(self) -> int | None:
        """The token that a decoder begins with, if config.json has one."""
        token = self.config.get("decoder_start_token_id", self.config.get("pad_token_id"))
        if "decoder_layers" not in self.config or not isinstance(token, int):
            return None
        return token if 0 <= token < len(self.tensors[self.mapping.token_tables[-1]]) else None


def read_settings(path: str | Path) -> dict[str, Any]:
    """Returns the settings of the model in a folder, without reading its weights."""
    folder = HubFolder.open(path)
    return _model_settings(folder, _find_mapping(folder))[0]


def read_model(path: str | Path) -> HubModel:
    """Returns the model in a folder; raises SeriatimError with all its problems."""
    folder = HubFolder.open(path)
    mapping = _find_mapping(folder)
    values, settings = _model_settings(folder, mapping)
    problems: list[str] = []
    notes: list[str] = []
    head, labels = _find_head(folder, mapping), _labels(folder.config, problems)
    shapes = mapping.shapes(settings, head, folder.config, len(labels))
    stored = _with_prefix(folder.tensors(), mapping, head)
    required = mapping.maps(settings, head)
    present = [entry for entry in head.optional if all(name in stored for name in entry.hub_names)]
    tensors = _convert([*required, *present], shapes, stored, problems)
    problems += mapping.check(stored)
    absent = [entry for entry in head.optional if entry not in present]
    if absent:
        names = ", ".join(name for entry in absent for name in entry.hub_names)
        notes.append(f"{head.architecture} without {names}: these are initialized")
    image, tokenizers = None, {}
    if mapping.images:
        image = read_preprocessor(folder.path, folder.config, problems, notes)
        tensors |= {"input.mean": torch.tensor(image.mean), "input.std": torch.tensor(image.std)}
    else:
        tokenizers = _read_tokenizers(folder.path, "target.weight" in tensors, problems)
    for name in mapping.token_tables:
        if name in tensors:
            is_source = name == mapping.token_tables[0] and "source_tokenizer" in tokenizers
            tokenizer = tokenizers.get("source_tokenizer" if is_source else "tokenizer")
            tensors[name] = _fit_vocabulary(tensors[name], tokenizer, problems, notes)
    _raise_problems(folder.path, problems)
    used = {name for entry in (*required, *head.optional) for name in entry.hub_names}
    unused = [name for name in stored if name not in used and not any(re.fullmatch(p, name) for p in mapping.ignored)]
    if unused:
        more = " …" if len(unused) > 5 else ""
        notes.append(f"{len(unused)} tensors are not part of {head.architecture}: {', '.join(unused[:5])}{more}")
    new_tensors = {entry.name: _initialize(shapes[entry.name]) for entry in absent}
    notes = list(dict.fromkeys(notes))
    parts = (folder.path, values, mapping, head, tensors, folder.config, tokenizers)
    return HubModel(*parts, labels, notes, new_tensors, image)


def _model_settings(folder: HubFolder, mapping: ModelMapping) -> tuple[dict[str, Any], Any]:
    """Returns the settings as plain values and validated; building the modules shows contradictory sizes."""
    problems: list[str] = []
    values = mapping.settings(folder.config, problems)
    read_sizes(problems, folder.config, mapping.sizes)
    _raise_problems(folder.path, problems)
    try:
        settings = validate(registry.models.load(values["name"]).Settings, values, f"{folder.path / CONFIG}")
        mapping.shapes(settings, HubHead("", ""), folder.config, 1)
    except SeriatimError as error:
        raise SeriatimError("hub.unfit", error.cause, "use another model") from None
    return values, settings


def _convert(
    maps: Iterable[TensorMap], shapes: Mapping[str, Tensor], stored: Mapping[str, Tensor], problems: list[str]
) -> dict[str, Tensor]:
    """Returns tensors by our names; adds a problem for each hub tensor that config.json does not describe."""
    tensors = {}
    for entry in maps:
        errors = []
        for name, expected in entry.write(shapes[entry.name]).items():
            if name not in stored:
                errors.append(f"the tensor {name} is missing")
            elif stored[name].shape != expected.shape:
                actual, described = tuple(stored[name].shape), tuple(expected.shape)
                errors.append(f"the tensor {name} has the shape {actual}; config.json describes {described}")
            elif not stored[name].is_floating_point():
                dtype = str(stored[name].dtype).removeprefix("torch.")
                errors.append(f"the tensor {name} has the type {dtype}, not that of weights")
        if not errors and (problem := entry.problem(stored)) is not None:
            errors = [problem]
        problems += errors
        if not errors:
            tensors[entry.name] = entry.read(stored)
    return tensors


def _fit_vocabulary(table: Tensor, tokenizer: Tokenizer | None, problems: list[str], notes: list[str]) -> Tensor:
    """Returns a tensor with a row per token: some have unused rows at the end, to make the number a round one."""
    if tokenizer is None or tokenizer.vocab_size == len(table):
        return table
    if tokenizer.vocab_size > len(table):
        problem = f"the tokenizer has {tokenizer.vocab_size:,} tokens, the token vectors {len(table):,} rows"
        problems += [problem] if problem not in problems else []
        return table
    unused = f"the token vectors have {len(table):,} rows for {tokenizer.vocab_size:,} tokens"
    notes.append(f"{unused}; the rest is left out")
    return table[: tokenizer.vocab_size].clone()


def _initialize(like: Tensor) -> Tensor:
    tensor = torch.zeros(like.shape)
    if tensor.dim() < 2:
        return tensor
    return tensor.normal_(std=NEW_WEIGHT_STD, generator=torch.Generator().manual_seed(0))


def _labels(config: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    names, count = config.get("id2label"), config.get("num_labels", 2)
    if isinstance(names, dict) and names:
        numbered = {str(index): names.get(str(index)) for index in range(len(names))}
        if names.keys() == numbered.keys() and len(set(numbered.values())) < len(names):
            problems.append("config.json: id2label has two labels of the same name")
        if names.keys() == numbered.keys():
            return tuple(str(name) for name in numbered.values())
        problems.append(f"config.json: id2label does not number its {len(names)} labels from 0 on")
    elif names or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problems.append(f"config.json: {'id2label' if names else 'num_labels'} is {names or count!r}")
        return ("",)
    return tuple(f"LABEL_{index}" for index in range(len(names) if names else count))


def _find_mapping(folder: HubFolder) -> ModelMapping:
    mappings = by_model_type()
    if folder.model_type not in mappings:
        name = f"a model of type {folder.model_type}" if folder.model_type else "no type of model"
        cause = f"{folder.path}: config.json has {name}"
        raise SeriatimError("hub.type", cause, f"supported: {', '.join(sorted(mappings))}")
    return mappings[folder.model_type]


def _find_head(folder: HubFolder, mapping: ModelMapping) -> HubHead:
    architecture = folder.architecture or mapping.heads[0].architecture
    for head in mapping.heads:
        if head.architecture == architecture and head.matches(folder.config):
            return head
    supported = ", ".join(dict.fromkeys(head.architecture for head in mapping.heads))
    cause = f"{folder.path}: config.json has the architecture {architecture}"
    raise SeriatimError("hub.architecture", cause, f"supported: {supported}")


def _with_prefix(stored: dict[str, Tensor], mapping: ModelMapping, head: HubHead) -> dict[str, Tensor]:
    """Returns tensors with the names of the architecture: some folders have the body with a prefix, some without."""
    prefixed = any(name.startswith(mapping.prefix) for name in stored)
    if head.prefixed == prefixed or not mapping.prefix:
        return stored
    if prefixed:
        return {name.removeprefix(mapping.prefix): tensor for name, tensor in stored.items()}
    unchanged = {name for entry in head.maps for name in entry.hub_names}
    unchanged |= {name for name in stored if any(re.fullmatch(pattern, name) for pattern in mapping.ignored)}
    return {name if name in unchanged else mapping.prefix + name: tensor for name, tensor in stored.items()}


def _read_tokenizers(path: Path, separate: bool, problems: list[str]) -> dict[str, Tokenizer]:
    """Returns the tokenizer, that of the target if source and target have separate ones."""

    def load(folder: Path) -> Tokenizer | None:
        try:
            return Tokenizer.load(folder)
        except SeriatimError as error:
            if error.code != "tokenizer.missing":
                problems.append(error.cause)
            return None

    tokenizer = load(path)
    if not separate or tokenizer is None:
        return {} if tokenizer is None else {"tokenizer": tokenizer}
    target = load(path / TARGET_FOLDER if (path / TARGET_FOLDER).is_dir() else path)  # another object, even if equal
    return {"tokenizer": tokenizer if target is None else target, "source_tokenizer": tokenizer}


def _raise_problems(path: Path, problems: list[str]) -> None:
    if problems:
        lines = [f"  - {problem}" for problem in problems[:MAX_LISTED]]
        lines += [f"  - and {len(problems) - MAX_LISTED} more"] if len(problems) > MAX_LISTED else []
        cause = f"{path} cannot be used:\n" + "\n".join(lines)
        raise SeriatimError("hub.unfit", cause, "use a folder whose config.json, weights and tokenizer belong together")
