"""Sequence to vector: what classify and regress share, from the settings to a task and to a predictor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from ..core import config
from ..core.errors import SeriatimError
from ..data import examples, partition
from ..data.notes import Notes
from ..data.picture_files import Form
from ..data.picture_settings import PictureSettings
from ..data.sequences import Examples, Parts, Sequences
from ..data.tokenizers import Tokenizer
from ..nn.backbone import Backbone, BackboneSettings
from ..nn.heads import Pooling, VectorHead
from ..nn.network import Network, assemble, full
from ..nn.pictures import PictureInput
from ._coder import Coder, learn_coder
from ._examples import ExampleTask, Part, shown, spread_over
from ._task import Batch

Notify = Callable[[str], None]
SAMPLED = 4  # examples that a sample shows


class VectorSettings(config.Settings):
    name: str = Field(description="the task: see `seriatim list tasks`")
    pooling: Pooling = Field("mean", description="how the outputs of all steps become one vector")
    length: int | None = Field(
        None, ge=1, le=1_000_000, description="elements of a sequence at most; what stands behind is cut and told"
    )


def vector_network(
    model: BackboneSettings,
    coder: Coder,
    settings: VectorSettings,
    around: Callable[[VectorHead, int], nn.Module] = lambda head, outputs: head,
) -> Network:
    """The input of the coder, the backbone, and a head that pools, with something `around` it."""
    inputs, width = coder.network_input(model)
    outputs = len(coder.labels)

    def head(backbone: Backbone) -> nn.Module:
        if settings.pooling == "first" and backbone.causal:
            cause = f"{model.name} looks back only: its first output has seen nothing but the first element"
            raise SeriatimError("task.pooling", cause, "choose last, mean, max or attention: --pooling")
        directions = getattr(backbone, "directions", 1)
        dropout = model.dropout if settings.pooling == "first" else 0.0
        pooled = VectorHead(backbone.width, outputs, settings.pooling, directions, dropout, model.pooler)
        return around(pooled, outputs)

    length = math.prod(inputs.grid) if isinstance(inputs, PictureInput) else coder.longest
    return assemble(model, inputs, width, length, head)


def _flips(settings: PictureSettings, form: Form) -> bool:
    """Whether pictures may be mirrored: what has colours is mostly a photograph; digits and letters are not."""
    return form.channels == 3 if settings.flips is None else settings.flips


def joined(one: Sequences, other: Sequences) -> Sequences:
    ends = np.concatenate([one.ends, other.ends + len(one.values)])
    return Sequences(np.concatenate([one.values, other.values]), ends)


class VectorTask(ExampleTask):
    """A task over examples with one target each."""

    numeric: ClassVar[bool]  # targets are numbers, not labels

    @staticmethod
    def name_outputs(coder: Coder, parts: Parts) -> Coder:
        """The coder with what its outputs mean, from the training part."""
        raise TypeError("a task names its outputs")

    @staticmethod
    def encode_targets(coder: Coder, part: Examples) -> np.ndarray:
        """The targets of a part (n,…)."""
        raise TypeError("a task encodes its targets")

    def said(self, model: nn.Module, inputs: list[Any]) -> list[str]:
        """The answers for some inputs in words."""
        raise TypeError(f"{type(self).__name__} says nothing")

    def wanted(self, split: str, row: int) -> str:
        """The right answer in words."""
        raise TypeError(f"{type(self).__name__} wants nothing")

    def sample(self, model: nn.Module, step: int) -> str:
        """A few examples of the validation part, and what is said of them."""
        part = self.parts["valid"]
        rows = np.unique(np.linspace(0, len(part) - 1, min(SAMPLED, len(part))).astype(np.int64)).tolist()
        inputs = [part.examples.inputs[row] for row in rows]
        texts = zip(rows, inputs, self.said(model, inputs), strict=True)
        named = (lambda row, one: part.examples.place(row)) if self.ahead else lambda row, one: shown(one)
        return "\n".join(f"{named(row, one)} → {text} (is {self.wanted('valid', row)})" for row, one, text in texts)

    def some(self, split: str, count: int) -> list[Any]:
        """Some inputs of a part as they came, for a predictor to be asked about."""
        return spread_over(self.parts[split].examples.inputs, count)

    # Learning, also from a teacher

    def read(self, network: Any, batch: Batch, state: Any = None) -> tuple[Tensor, Tensor, None]:
        hidden, mask, _ = network.given(batch.inputs, batch.mask)
        vectors = network.head.vector(hidden, mask)
        return full(network.head.outputs(vectors)), vectors, None

    def hard(self, network: nn.Module, scores: Tensor, batch: Batch, smoothing: float) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no loss")

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _, _ = self.read(network, batch)
        return self.hard(network, scores, batch, smoothing), None

    def read_by(self, config: Any, predictor: Any) -> VectorTask:
        """The training part as another run reads it, to be asked about it."""
        limits = (predictor.coder.limit, predictor.model.backbone.context)
        coder = replace(predictor.coder, limit=min((one for one in limits if one is not None), default=None))
        part = self.parts["train"]
        read = Part(coder.encode(part.examples.inputs), part.targets, part.examples)
        return replace(self, settings=config.task, coder=coder, parts={"train": read})

    def with_unlabelled(self, source: str, config: Any, data_dir: str | None, notify: Notify) -> VectorTask:
        """With the examples of another source behind those of the training part, whatever their targets may be."""
        if self.coder.form is not None:
            raise SeriatimError("distil.unlabelled", "pictures without labels are not taken", "leave --unlabelled away")
        found = examples.read_inputs(source, config.data, data_dir, **self.coder.known)
        found, _, notes = partition.without_empty(found)
        coder = replace(self.coder, limit=self.coder.longest)  # what the network is made for
        more = coder.encode(found.inputs)
        for note in [*notes, f"{source}: {len(more):,} unlabelled examples", *self._measured_on(found)]:
            notify(note)
        part = self.parts["train"]
        targets = np.concatenate([part.targets, np.zeros((len(more), *part.targets.shape[1:]), part.targets.dtype)])
        came: Any = part.examples.inputs
        new: Any = found.inputs
        both = joined(came, new) if isinstance(new, Sequences) else [*came, *new]
        extended = Part(joined(part.inputs, more), targets, Examples(both, None))
        mark = partition.fingerprint({"unlabelled": found})
        return replace(self, parts={**self.parts, "train": extended}, fingerprint=mark)

    def _measured_on(self, found: Examples) -> list[str]:
        """What is learnt from, be it without targets, is no longer new to the model."""
        if not isinstance(found.inputs, list):
            return []
        texts = set(found.inputs)
        measured: dict[str, Any] = {split: self.parts[split].examples.inputs for split in ("valid", "test")}
        again = {split: sum(one in texts for one in inputs) for split, inputs in measured.items()}
        many = [f"{count:,} of {len(self.parts[split]):,} {split} examples" for split, count in again.items() if count]
        return [f"{' and '.join(many)} are among the unlabelled ones: measures on them flatter"] if many else []

    @classmethod
    def make(cls, config: Any, coder: Coder, parts: Parts, notes: list[str]) -> VectorTask:
        named = {"train": parts.train, "valid": parts.valid, "test": parts.test}
        encoded = {
            name: Part(coder.encode(part.inputs), cls.encode_targets(coder, part), part) for name, part in named.items()
        }
        scaled = config.data.scale == "standard"
        flips = coder.form is not None and _flips(config.data.pictures, coder.form)
        return cls(config.task, coder, encoded, config.seed, notes, parts.fingerprint, scaled, flips)

    @classmethod
    def prepare(
        cls,
        config: Any,
        data_dir: str | None = None,
        notify: Notify | None = None,
        coder: Coder | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> VectorTask:
        """Reads the data; the coder is learnt from it where none is given, with a tokenizer that may be ready."""
        notes = Notes(notify)
        shown = getattr(config.model, "pictures", False) or (coder is not None and coder.form is not None)
        parts = examples.read(config.data, data_dir, notes, cls.numeric, shown)
        if coder is None:
            settings = (config.data.tokenizer, config.task.length)
            coder = learn_coder(parts, *settings, notes, config.model, tokenizer, config.data.pictures)
            coder = cls.name_outputs(coder, parts)
        if coder.form is not None and _flips(config.data.pictures, coder.form):
            notes("training shows every other picture mirrored (data.pictures.flips)")
        return cls.make(config, coder, parts, list(notes))

    @classmethod
    def reopen(cls, path: Path, config: Any, data_dir: str | None = None, notify: Notify | None = None) -> VectorTask:
        return cls.prepare(config, data_dir, notify, Coder.load(path))

    @classmethod
    def reopen_on(
        cls, path: Path, config: Any, source: str, data_dir: str | None = None, notify: Notify | None = None
    ) -> VectorTask:
        notes = Notes(notify)
        coder = Coder.load(path)
        found = examples.read_single(source, config.data, data_dir, notes, cls.numeric, **coder.known)
        return cls.make(config, coder, Parts(train=Examples([], []), test=found), list(notes))
