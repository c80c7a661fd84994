"""What a training may begin with: the weights, the tokenizer and the shape of a model that was trained before.

It is named by the folder of a run, by a folder of `transformers`, or by a name on the hub. All that the new network
shares with it is taken over: the vectors of tokens and the backbone always, the head where it answers the same
question. The rest begins fresh.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .core.config import load_yaml
from .core.errors import SeriatimError
from .core.tensors import load_tensors
from .data.tokenizers import Tokenizer
from .hub import fetching, reading
from .nn.network import weights

SIZED = ("name", "width", "layers", "heads", "context", "embedding", "feedforward", "segments")
KEPT = "pooler."  # a part of the head that means the same in every task, within another head or not


@dataclass(frozen=True)
class Origin:
    source: str
    path: Path

    @classmethod
    def open(cls, source: str) -> Origin:
        path = fetching.located(source)
        if not (path / "config.yaml").is_file() and not (path / "config.json").is_file():
            cause = f"{path} is neither the folder of a run nor of a model"
            raise SeriatimError("start.missing", cause, "name a folder with a config.yaml or a config.json")
        return cls(source, path)

    @property
    def is_run(self) -> bool:
        return (self.path / "config.yaml").is_file()

    @cached_property
    def foreign(self) -> reading.Foreign:
        return reading.read(self.path)

    @cached_property
    def model(self) -> dict[str, Any]:
        """The settings of the model. How large the vectors of tokens are is said outright: it may have followed from
        the task."""
        if not self.is_run:
            return reading.read_settings(self.path)
        settings = dict(self._section("model"))
        table = self.tensors.get("input.weight", self.tensors.get("input.words.weight"))
        if table is not None and table.dim() == 2:
            settings["embedding"] = table.shape[1]
        return settings

    @cached_property
    def task(self) -> str:
        if not self.is_run:
            return self.foreign.head.task
        return str(self._section("task")["name"])

    def _section(self, name: str) -> dict[str, Any]:
        """What the configuration of a run says of its model, or of its task."""
        file = self.path / "config.yaml"
        found = load_yaml(file).get(name)
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            raise SeriatimError("run.damaged", f"{file} names no {name}", "restore the file, or name another folder")
        return found

    @cached_property
    def labels(self) -> list[str]:
        """What the outputs of its head mean, where they are labels."""
        if not self.is_run:
            return list(self.foreign.labels) if self.foreign.head.task in ("classify", "tag") else []
        return [str(label) for label in self._data.get("labels") or []]

    @cached_property
    def start(self) -> int | None:
        """What its decoder begins with, where it has one and that is not the end of a text."""
        found = self._data.get("start") if self.is_run else self.foreign.start
        return found if isinstance(found, int) else None

    @cached_property
    def _data(self) -> dict[str, Any]:
        """What a run keeps of its data."""
        file = self.path / "data.json"
        try:
            known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise SeriatimError("run.damaged", f"{file} is not whole: {error}", "restore the file") from None
        if not isinstance(known, dict) or not isinstance(known.get("labels") or [], list):
            raise SeriatimError("run.damaged", f"{file} is not whole", "restore the file")
        return known

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Of texts, and of targets where there are two."""
        if not self.is_run:
            return self.foreign.tokenizer
        return Tokenizer.load(self.path) if (self.path / "tokenizer.json").is_file() else None

    @cached_property
    def source_tokenizer(self) -> Tokenizer | None:
        if not self.is_run:
            return self.foreign.source_tokenizer
        file = self.path / "source-tokenizer.json"
        return Tokenizer.load(file) if file.is_file() else self.tokenizer

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return load_tensors(self.path / "model.safetensors") if self.is_run else self.foreign.tensors

    def give(self, network: nn.Module, task: str, labels: list[str], notify: Callable[[str], None]) -> None:
        """Copies into a fresh network what it shares with this model."""
        own, same = weights(network), task == self.task and labels == self.labels
        taken, problems = {}, []
        for name, tensor in own.items():
            found = self._counterpart(name)
            head = name.startswith("head.")
            if head and not (same or _inner(name).startswith(KEPT)):
                continue
            if found is not None and found.shape == tensor.shape:
                taken[name] = found
            elif not head and found is None:
                problems.append(f"{name} is not there")
            elif not head and found is not None:
                shapes = f"{tuple(found.shape)} there, {tuple(tensor.shape)} wanted"
                problems.append(f"{name} has another shape: {shapes}")
        if problems:
            cause = f"{self.source} does not fit:\n" + "\n".join(f"  - {one}" for one in problems[: reading.SHOWN])
            remedy = f"leave the model's settings as they are there ({', '.join(SIZED)})"
            raise SeriatimError("start.unfit", cause, remedy)
        with torch.no_grad():
            for name, tensor in taken.items():
                own[name].copy_(tensor)
        fresh = [name for name in own if name not in taken]
        count = sum(own[name].numel() for name in taken)
        notify(f"began with {count:,} weights of {self.source}" + (f"; fresh: {', '.join(fresh)}" if fresh else ""))

    def _counterpart(self, name: str) -> Tensor | None:
        """Vectors of words may stand beside features of their spelling, or alone; the pooler in the head, or in one
        whose outputs are scaled."""
        others = [name, name.replace("input.words.", "input."), name.replace("input.", "input.words.", 1)]
        if _inner(name).startswith(KEPT):
            others += [f"head.{_inner(name)}", f"head.head.{_inner(name)}"]
        return next((self.tensors[one] for one in others if one in self.tensors), None)


def _inner(name: str) -> str:
    """A tensor of the head by its name there, whatever stands around."""
    return name.removeprefix("head.").removeprefix("head.")
