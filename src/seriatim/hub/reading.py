"""A foreign model as one of ours: its settings, its tokenizer and its weights by our names, or all that is wrong."""

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
from ..core.exchange import Entry, Form, Head, whole
from ..data.tokenizers import Tokenizer
from .folder import CONFIG, Folder
from .preprocessing import read_preprocessor

SHOWN = 20  # problems that are told one by one
SPREAD = 0.02  # of weights that are made anew
TARGET = "target"  # the folder of the second tokenizer, where a model has two


@dataclass(frozen=True)
class Foreign:
    """What a folder of `transformers` holds, in our terms."""

    path: Path
    model: dict[str, Any]  # settings
    form: Form
    head: Head
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer | None  # of targets where there are two
    config: dict[str, Any]
    labels: tuple[str, ...] = ()  # of its outputs, in their order
    notes: list[str] = field(default_factory=list)
    source_tokenizer: Tokenizer | None = None
    fresh: dict[str, Tensor] = field(default_factory=dict)  # parts that may be missing there and are: made anew
    picture: dict[str, Any] | None = None  # the form of what it reads, where that is pictures

    @property
    def start(self) -> int | None:
        """The token that a decoder begins with, where there is one."""
        if self.head.task != "translate":
            return None
        named = self.config.get("decoder_start_token_id", self.config.get("pad_token_id"))
        return named if isinstance(named, int) and 0 <= named < len(self.tensors[self.form.tables[-1]]) else None

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
    folder = Folder.open(path)
    return _settings(folder, _form(folder))[0]


def read(path: str | Path) -> Foreign:
    folder = Folder.open(path)
    form = _form(folder)
    values, settings = _settings(folder, form)
    problems: list[str] = []
    head, labels = _head(folder, form), _labels(folder.config, problems)
    shapes = form.shapes(settings, head, folder.config, len(labels))
    stored = _prefixed(folder.tensors(), form, head)
    entries = form.entries(settings, head)
    there = [one for one in head.optional if all(name in stored for name in one.theirs)]
    found = _fitting([*entries, *there], shapes, stored, problems)
    problems += form.check(stored)
    notes: list[str] = []
    absent = [one for one in head.optional if one not in there]
    if absent:
        named = ", ".join(name for one in absent for name in one.theirs)
        notes.append(f"{head.architecture} without {named}: these begin anew")
    picture = None
    if form.pictures:
        picture, spread = read_preprocessor(folder.path, folder.config, problems, notes)
        found |= spread
    tokenizer = None if form.pictures else _tokenizer(folder.path, problems)
    two = (folder.path / TARGET).is_dir()
    target = _tokenizer(folder.path / TARGET if two else folder.path, problems) if "target.weight" in found else None
    for name in form.tables:
        if name in found:
            found[name] = _rows(
                found[name], target if target and name != form.tables[0] else tokenizer, problems, notes
            )
    _refuse(folder.path, problems)
    used = {name for entry in (*entries, *head.optional) for name in entry.theirs}
    left = [name for name in stored if name not in used and not any(re.fullmatch(p, name) for p in form.ignored)]
    if left:
        more = " …" if len(left) > 5 else ""
        notes.append(
            f"{len(left)} tensors that {head.architecture} has no use for were left: {', '.join(left[:5])}{more}"
        )
    known = (target or tokenizer, folder.config, labels, list(dict.fromkeys(notes)), tokenizer)
    fresh = {one.ours: _fresh(shapes[one.ours]) for one in absent}
    return Foreign(folder.path, values, form, head, found, *known, fresh, picture)


def _settings(folder: Folder, form: Form) -> tuple[dict[str, Any], Any]:
    """As they are given, and checked: sizes may contradict each other only once they are put together."""
    problems: list[str] = []
    values = form.settings(folder.config, problems)
    whole(problems, folder.config, form.sizes)
    _refuse(folder.path, problems)
    try:
        settings = validate(registry.models.load(values["name"]).Settings, values, f"{folder.path / CONFIG}")
        form.shapes(settings, Head("", ""), folder.config, 1)
    except SeriatimError as error:
        raise SeriatimError("hub.unfit", error.cause, "use another model") from None
    return values, settings


def _fitting(
    entries: Iterable[Entry], shapes: Mapping[str, Tensor], stored: Mapping[str, Tensor], problems: list[str]
) -> dict[str, Tensor]:
    """Tensors by our names; a problem for each of theirs that is not as config.json says."""
    found = {}
    for entry in entries:
        wrong = []
        for name, wanted in entry.write(shapes[entry.ours]).items():
            if name not in stored:
                wrong.append(f"the tensor {name} is missing")
            elif stored[name].shape != wanted.shape:
                is_, should = tuple(stored[name].shape), tuple(wanted.shape)
                wrong.append(f"the tensor {name} has the shape {is_}; config.json asks for {should}")
            elif not stored[name].is_floating_point():
                wrong.append(f"the tensor {name} holds {str(stored[name].dtype).removeprefix('torch.')}, no weights")
        if not wrong:
            unlike = entry.problem(stored)
            wrong = [] if unlike is None else [unlike]
        problems += wrong
        if not wrong:
            found[entry.ours] = entry.read(stored)
    return found


def _rows(table: Tensor, tokenizer: Tokenizer | None, problems: list[str], notes: list[str]) -> Tensor:
    """A tensor with a row for each token. Some have more, to make the number a round one: those mean nothing."""
    if tokenizer is None or tokenizer.size == len(table):
        return table
    if tokenizer.size > len(table):
        said = f"the tokenizer has {tokenizer.size:,} tokens, the table of vectors {len(table):,} rows"
        problems += [said] if said not in problems else []
        return table
    notes.append(f"the table of vectors has {len(table):,} rows for {tokenizer.size:,} tokens; the rest is left out")
    return table[: tokenizer.size].clone()


def _fresh(like: Tensor) -> Tensor:
    made = torch.zeros(like.shape)
    return made if made.dim() < 2 else made.normal_(std=SPREAD, generator=torch.Generator().manual_seed(0))


def _labels(config: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    names, count = config.get("id2label"), config.get("num_labels", 2)
    if isinstance(names, dict) and names:
        numbered = {str(index): names.get(str(index)) for index in range(len(names))}
        if names.keys() == numbered.keys() and len(set(numbered.values())) < len(names):
            problems.append("config.json: id2label gives two labels the same name")
        if names.keys() == numbered.keys():
            return tuple(str(name) for name in numbered.values())
        problems.append(f"config.json: id2label numbers its {len(names)} labels otherwise than from 0 on")
    elif names or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problems.append(f"config.json: {'id2label' if names else 'num_labels'} is {names or count!r}")
        return ("",)
    return tuple(f"LABEL_{index}" for index in range(len(names) if names else count))


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
    kept = {name for entry in head.entries for name in entry.theirs}
    kept |= {name for name in stored if any(re.fullmatch(pattern, name) for pattern in form.ignored)}
    return {name if name in kept else form.prefix + name: tensor for name, tensor in stored.items()}


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
