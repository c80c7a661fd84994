"""A foreign model as one of ours: its settings, its tokenizer and its weights by our names, or all that is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ..core import registry
from ..core.errors import SeriatimError
from ..core.exchange import Form, Head
from ..data.tokenizers import Tokenizer
from .folder import Folder

SHOWN = 20  # problems that are told one by one


@dataclass(frozen=True)
class Foreign:
    """What a folder of `transformers` holds, in our terms."""

    path: Path
    model: dict[str, Any]  # settings
    form: Form
    head: Head
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer | None
    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of its outputs, in their order."""
        names = self.config.get("id2label")
        if isinstance(names, dict) and names:
            return tuple(str(names[key]) for key in sorted(names, key=lambda key: int(key)))
        return tuple(f"LABEL_{index}" for index in range(int(self.config.get("num_labels", 2))))


    @property
    def several(self) -> bool:
        """Its labels do not exclude each other."""
        return self.config.get("problem_type") == "multi_label_classification"


def forms() -> dict[str, Form]:
    """Every form that a registered model declares, by `model_type`."""
    found = (form for name in registry.models.names() for form in getattr(registry.models.load(name), "HUB", ()))
    return {form.kind: form for form in found}


def read_settings(path: str | Path) -> dict[str, Any]:
    """The settings of the model in a folder, without its weights."""
    folder, problems = Folder.open(path), []  # type: tuple[Folder, list[str]]
    settings = _form(folder).settings(folder.config, problems)
    _refuse(folder.path, problems)
    return settings


def read(path: str | Path) -> Foreign:
    folder = Folder.open(path)
    form = _form(folder)
    problems: list[str] = []
    values = form.settings(folder.config, problems)
    head = _head(folder, form)
    _refuse(folder.path, problems)
    settings = registry.models.load(values["name"]).Settings(**values)
    stored = _prefixed(folder.tensors(), form, head)
    found: dict[str, Tensor] = {}
    entries = form.entries(settings, head)
    for entry in entries:
        if missing := [name for name in entry.theirs if name not in stored]:
            problems += [f"the tensor {name} is missing" for name in missing]
            continue
        parts = {tuple(stored[name].shape) for name in entry.theirs}
        if len(parts) > 1:
            problems.append(f"{', '.join(entry.theirs)} differ in shape: {parts}")
            continue
        found[entry.ours] = entry.read(stored)
    for entry in head.optional:
        if all(name in stored for name in entry.theirs):
            found[entry.ours] = entry.read(stored)
    tokenizer = _tokenizer(folder.path, problems)
    table = found.get("input.weight")
    notes = []
    if tokenizer is not None and table is not None and tokenizer.size > len(table):
        problems.append(f"the tokenizer has {tokenizer.size:,} tokens, the table of vectors {len(table):,} rows")
    _refuse(folder.path, problems)
    used = {name for entry in (*entries, *head.optional) for name in entry.theirs}
    left = [name for name in stored if name not in used and not any(re.fullmatch(p, name) for p in form.ignored)]
    if left:
        more = " …" if len(left) > 5 else ""
        notes.append(
            f"{len(left)} tensors that {head.architecture} has no use for were left: {', '.join(left[:5])}{more}"
        )
    return Foreign(folder.path, values, form, head, found, tokenizer, folder.config, notes)


def _form(folder: Folder) -> Form:
    known = forms()
    if folder.kind not in known:
        named = f"a model of type {folder.kind}" if folder.kind else "no type of model"
        cause = f"{folder.path}: config.json names {named}"
        raise SeriatimError("hub.type", cause, f"what can be read: {', '.join(sorted(known))}")
    return known[folder.kind]


def _head(folder: Folder, form: Form) -> Head:
    named = folder.architecture or form.heads[0].architecture
    for head in form.heads:
        if head.architecture == named and head.fits(folder.config):
            return head
    known = ", ".join(dict.fromkeys(head.architecture for head in form.heads))
    cause = f"{folder.path}: config.json names the architecture {named}"
    raise SeriatimError("hub.architecture", cause, f"what can be read: {known}")


def _prefixed(stored: dict[str, Tensor], form: Form, head: Head) -> dict[str, Tensor]:
    """Names as the architecture has them: some folders keep the body of a model with a prefix, some without."""
    has = any(name.startswith(form.prefix) for name in stored)
    if head.prefixed == has or not form.prefix:
        return stored
    if has:
        return {name.removeprefix(form.prefix): tensor for name, tensor in stored.items()}
    return stored | {form.prefix + name: tensor for name, tensor in stored.items()}


def _tokenizer(path: Path, problems: list[str]) -> Tokenizer | None:
    try:
        return Tokenizer.load(path)
    except SeriatimError as error:
        if error.code != "tokenizer.missing":
            problems.append(error.cause)
        return None


def _refuse(path: Path, problems: list[str]) -> None:
    if problems:
        lines = [f"  - {problem}" for problem in problems[:SHOWN]]
        lines += [f"  - and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        cause = f"{path} cannot be used:\n" + "\n".join(lines)
        raise SeriatimError("hub.unfit", cause, "use a folder whose config.json, weights and tokenizer belong together")
