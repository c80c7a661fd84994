"""Runs to and from other programs: a folder of `transformers` becomes a run, a run becomes such a folder.

An imported run answers, is evaluated, begun from and exported like any other; it only has no story of its training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import report
from ._version import __version__
from .core import registry
from .core.config import dump_yaml
from .core.errors import SeriatimError
from .core.exchange import Form, Head
from .core.files import write_json, write_text
from .core.tensors import save_tensors
from .hub import fetching, reading, writing
from .nn.network import count_parameters, weights
from .runs import Run, fresh_folder
from .session import has_begun
from .training.config import make_config

Notify = Callable[[str], None]
# In a config.json of ours, what theirs has no name for:
OPENING = "seriatim_opening"  # whether texts are read behind a line end
UNANSWERABLE = "seriatim_unanswerable"  # whether a question may have no answer


def import_model(source: str | Path, out: str | Path | None = None, notify: Notify | None = None) -> Run:
    """A run around a model in the format of `transformers`: a folder, or a name on the hub."""
    if (Path(source) / "config.yaml").is_file():
        raise SeriatimError("hub.run", f"{source} is the folder of a run already", "use it as it is")
    foreign = reading.read(fetching.located(str(source)))
    notify = notify or (lambda text: None)
    for note in foreign.notes:
        notify(note)
    if foreign.tokenizer is None and foreign.picture is None:
        cause = f"{foreign.path} holds no tokenizer"
        raise SeriatimError("hub.tokenizer", cause, "add its tokenizer.json, vocab.txt, or vocab.json and merges.txt")
    task = {"name": foreign.head.task, **foreign.head.options}
    if foreign.head.task == "language":
        task |= {"length": foreign.model["context"], "opening": bool(foreign.config.get(OPENING))}
    config = make_config({"task": task, "data": {"source": str(source)}, "model": foreign.model})
    folder = fresh_folder("runs", foreign.path.resolve().name) if out is None else Path(out)
    if has_begun(folder):
        raise SeriatimError("run.exists", f"{folder} holds a run already", "choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    module = registry.tasks.load(foreign.head.task)
    known = (foreign.tokenizer, foreign.labels, getattr(config.model, "context", None), foreign.several)
    pairs = {"source": foreign.source_tokenizer, "start": foreign.start} if foreign.head.task == "translate" else {}
    silent = {"unanswerable": bool(foreign.config.get(UNANSWERABLE))} if foreign.head.task == "answer" else {}
    seen = {} if foreign.picture is None else {"picture": foreign.picture}
    module.adopt(folder, *known, **pairs, **silent, **seen)
    save_tensors(folder / "model.safetensors", foreign.tensors | foreign.fresh | _unscaled(foreign))
    write_text(folder / "config.yaml", dump_yaml(config))
    run = Run(folder)
    about = {"version": __version__, "task": config.task.name, "model": config.model.name}
    about |= {"parameters": count_parameters(run.model), "reason": "imported"}
    write_json(folder / "summary.json", about | {"data": {"source": str(source)}})
    report.write_card(run)
    size = f"{about['parameters']:,} parameters"
    notify(f"{foreign.head.architecture}: {config.model.name} of {size}, task {config.task.name}")
    return run


def _unscaled(foreign: reading.Foreign) -> dict[str, Tensor]:
    """Values come out in the units of the data: no scale, no shift."""
    count = len(foreign.labels)
    return {"head.scale": torch.ones(count), "head.shift": torch.zeros(count)} if foreign.head.task == "regress" else {}


def export_model(path: str | Path, out: str | Path | None = None) -> Path:
    """A folder that `transformers` opens, with the same numbers in it."""
    run = Run(path)
    found = _forms(run)
    folder = run.path / "transformers" if out is None else Path(out)
    if folder.exists():
        raise SeriatimError("export.exists", f"{folder} is there already", "remove it, or choose another --out")
    predictor = run.predictor
    tensors = _plain(weights(predictor.model))
    form, head = _placed(found, run.config.model, tensors)
    coder: Any = getattr(predictor, "coder", None)
    extra, target = _labels(run, coder), None
    if head.task == "translate":
        tokenizer, target = coder.source, None if coder.joint else coder.target
        extra |= {"decoder_start_token_id": coder.begin}
    else:
        extra |= {OPENING: run.config.task.opening} if head.task == "language" else {}
        extra |= {UNANSWERABLE: coder.unanswerable} if head.task == "answer" else {}
        tokenizer = getattr(coder, "tokenizer", None) or getattr(predictor, "tokenizer", None)
    picture = getattr(coder, "picture", None)
    if tokenizer is None and picture is None:
        raise SeriatimError("export.numbers", f"{path} reads numbers, not text", "no architecture there fits")
    if tokenizer is not None:
        extra |= _ids(target or tokenizer)
    writing.write(folder, form, head, run.config.model, tensors, tokenizer, extra, target, picture)
    return folder


def _placed(found: list[tuple[Form, Head]], settings: Any, tensors: Mapping[str, Tensor]) -> tuple[Form, Head]:
    """Of several architectures the one where every tensor has a place; where none has one, writing tells why."""
    for form, head in found:
        known = {entry.ours for entry in (*form.entries(settings, head), *head.optional)}
        if tensors.keys() <= known | {f"input.{name}" for name in writing.SPREAD if form.pictures}:
            return form, head
    return found[0]


def _forms(run: Run) -> list[tuple[Form, Head]]:
    """The architectures that a run may be in the other format."""
    config = run.config
    found = []
    for form in getattr(registry.models.load(config.model.name), "HUB", ()):
        for head in form.heads:
            wanted = {name: getattr(config.task, name, None) for name in head.options}
            if form.suits(config.model) and head.task == config.task.name and wanted == dict(head.options):
                found.append((form, head))
    if found:
        return found
    known = {
        name: ", ".join(dict.fromkeys(head.task for form in forms for head in form.heads))
        for name in registry.models.names()
        if (forms := getattr(registry.models.load(name), "HUB", ()))
    }
    cause = f"{run.path}: transformers has no {config.model.name} for the task {config.task.name}"
    pooled = getattr(config.task, "pooling", "first") != "first"
    remedy = "train with --pooling first" if config.model.name == "bert" and pooled else (
        "what it has: " + "; ".join(f"{name} ({tasks})" for name, tasks in known.items())
    )  # fmt: skip
    raise SeriatimError("export.format", cause, remedy)


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values in the units of the data are a scale and a shift behind the last layer: they become a part of it."""
    scale, shift = tensors.pop("head.scale", None), tensors.pop("head.shift", None)
    if scale is not None and shift is not None:
        weight, bias = tensors["head.head.output.weight"], tensors["head.head.output.bias"]
        tensors |= {"head.head.output.weight": weight * scale[:, None], "head.head.output.bias": bias * scale + shift}
    return tensors


def _labels(run: Run, coder: Any) -> dict[str, Any]:
    labels = list(getattr(coder, "labels", ()))
    task = run.config.task.name
    if not labels:
        return {}
    problem = "multi_label_classification" if getattr(coder, "several", False) else "single_label_classification"
    kinds = {"classify": problem, "regress": "regression"}
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    } | ({"problem_type": kinds[task]} if task in kinds else {})


def _ids(tokenizer: Any) -> dict[str, Any]:
    pad = tokenizer.pad if tokenizer.pad is not None else tokenizer.eos
    found = {"pad_token_id": pad}
    return found if tokenizer.framed else found | {"bos_token_id": tokenizer.eos, "eos_token_id": tokenizer.eos}
