"""Warm starts: the weights, the tokenizers and the settings of a trained model, for a new training.

The model is the folder of a run, a folder of `transformers`, or a name on the hub. The new network takes all weights
that it shares with it: token vectors and backbone always, the head if it has the same outputs for the same task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from ..core.config import load_yaml
from ..core.errors import SeriatimError
from ..core.files import Json, load_tensors
from ..core.text import listed
from ..data.tokenizers import Tokenizer
from ..nn.network import weights
from .reading import MAX_LISTED, SEPARATOR, HubModel, locate_model, read_model, read_settings
from .sentence import MODULES

SIZES = ("name", "width", "layers", "heads", "context_length", "embedding", "feedforward", "variant")
POOLER = "pooler."  # a part of the head that is the same in every task
LABELED_HEADS = ("classification", "token-classification")  # whose outputs are labels


@dataclass(frozen=True)
class WarmStart:
    source: str
    path: Path

    @classmethod
    def open(cls, source: str) -> WarmStart:
        path = locate_model(source)
        if not any((path / name).is_file() for name in ("config.yaml", "config.json", MODULES)):
            cause = f"{path} is neither the folder of a run nor of a model"
            raise SeriatimError("start.missing", cause, "name a folder with a config.yaml or a config.json")
        return cls(source, path)

    @property
    def is_run(self) -> bool:
        return (self.path / "config.yaml").is_file()

    @cached_property
    def hub_model(self) -> HubModel:
        return read_model(self.path)

    @cached_property
    def model(self) -> Json:
        """The settings of the model, with the size of the token vectors, which may depend on the task."""
        if not self.is_run:
            return read_settings(self.path)
        settings = dict(self._section("model"))
        table = self.tensors.get("input.weight", self.tensors.get("input.words.weight"))
        if table is not None and table.dim() == 2:
            settings["embedding"] = table.shape[1]
        return settings

    @cached_property
    def task(self) -> str | None:
        """The name of a run's task; None for a model of `transformers`: see `hub_head`."""
        return str(self._section("task")["name"]) if self.is_run else None

    @property
    def hub_head(self) -> str | None:
        """The kind of head of a model of `transformers`."""
        return None if self.is_run else self.hub_model.head.kind

    def _section(self, name: str) -> Json:
        """Returns a section of a run's config.yaml that has a name."""
        file = self.path / "config.yaml"
        section = load_yaml(file).get(name)
        if not isinstance(section, dict) or not isinstance(section.get("name"), str):
            raise SeriatimError("run.damaged", f"{file} names no {name}", "restore the file, or name another folder")
        return section

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the outputs, if they are labels."""
        if not self.is_run:
            return self.hub_model.labels if self.hub_model.head.kind in LABELED_HEADS else ()
        return tuple(str(label) for label in self._data.get("outputs") or ())

    @cached_property
    def decoder_start(self) -> int | None:
        """The token that the decoder begins with, if it is not the end of a text."""
        if not self.is_run:
            return self.hub_model.decoder_start
        processor = self._data.get("processor")
        token = processor.get("decoder_start") if isinstance(processor, dict) else None
        return token if isinstance(token, int) else None

    @cached_property
    def _data(self) -> Json:
        """The contents of a run's data.json."""
        file = self.path / "data.json"
        try:
            values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise SeriatimError("run.damaged", f"{file} is damaged: {error}", "restore the file") from None
        if not isinstance(values, dict) or not isinstance(values.get("outputs") or [], list):
            raise SeriatimError("run.damaged", f"{file} is damaged", "restore the file")
        return values

    @cached_property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers by name: "tokenizer", and "source_tokenizer" if source and target have separate ones."""
        if not self.is_run:
            return self.hub_model.tokenizers
        files = [file for file in (self.path / "tokenizer.json", self.path / "tokenizer-2.json") if file.is_file()]
        names = ("tokenizer",) if len(files) < 2 else ("source_tokenizer", "tokenizer")  # the source's is stored first
        return {name: Tokenizer.load(file) for name, file in zip(names, files, strict=False)}

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, that of the target if there are two."""
        return self.tokenizers.get("tokenizer")

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        return self.tokenizers.get("source_tokenizer", self.tokenizer)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return load_tensors(self.path / "model.safetensors", finite=True) if self.is_run else self.hub_model.tensors

    def load_into(
        self,
        network: nn.Module,
        task: str,
        hub_head: str | None,
        labels: Sequence[str],
        notify: Callable[[str], None],
    ) -> None:
        """Copies the shared weights into a new network.

        Args:
            network: The network.
            task: The name of its task.
            hub_head: The kind of head of the task (`Task.hub_head`).
            labels: The names of its outputs.
            notify: Called with a note on what was copied.
        """
        same_task = task == self.task if self.is_run else hub_head == self.hub_head
        same_head = same_task and tuple(labels) == self.labels
        own, shared, problems = weights(network), {}, []
        for name, tensor in own.items():
            counterpart, in_head = self._counterpart(name), name.startswith("head.")
            if in_head and not (same_head or _name_in_head(name).startswith(POOLER)):
                continue
            if counterpart is not None and counterpart.shape == tensor.shape:
                shared[name] = counterpart
            elif not in_head and counterpart is None:
                problems.append(f"{name} does not exist there")
            elif not in_head and counterpart is not None:
                shapes = f"{tuple(counterpart.shape)} there, {tuple(tensor.shape)} expected"
                problems.append(f"{name} has another shape: {shapes}")
        if problems:
            cause = f"{self.source} does not fit:\n  - {listed(problems, MAX_LISTED, SEPARATOR)}"
            raise SeriatimError("start.unfit", cause, f"keep the settings of that model ({', '.join(SIZES)})")
        with torch.no_grad():
            for name, tensor in shared.items():
                own[name].copy_(tensor)
        new = [name for name in own if name not in shared]
        count = sum(own[name].numel() for name in shared)
        rest = f"; new: {', '.join(new)}" if new else ""
        notify(f"starting from {count:,} weights of {self.source}{rest}")

    def _counterpart(self, name: str) -> Tensor | None:
        """Returns the stored tensor of a name.

        Word vectors may be beside character features or alone, and the pooler in a head or in one with scaled outputs.
        """
        names = [name, name.replace("input.words.", "input."), name.replace("input.", "input.words.", 1)]
        if _name_in_head(name).startswith(POOLER):
            names += [f"head.{_name_in_head(name)}", f"head.head.{_name_in_head(name)}"]
        return next((self.tensors[other] for other in names if other in self.tensors), None)


def _name_in_head(name: str) -> str:
    """Returns the name of a tensor within the innermost head."""
    return name.removeprefix("head.").removeprefix("head.")
