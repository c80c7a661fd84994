"""Sequence to vector: what classify and regress share, from the settings to a task and to a predictor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..data import examples
from ..data.sequences import Examples, Parts
from ._examples import Coder, ExampleTask, Notes, Part, learn_coder

Notify = Callable[[str], None]


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

    @classmethod
    def make(cls, config: Any, coder: Coder, parts: Parts, notes: list[str]) -> VectorTask:
        named = {"train": parts.train, "valid": parts.valid, "test": parts.test}
        encoded = {
            name: Part(coder.encode(part.inputs), cls.encode_targets(coder, part), part) for name, part in named.items()
        }
        scaled = config.data.scale == "standard"
        return cls(config.task, coder, encoded, config.seed, notes, parts.fingerprint, scaled)

    @classmethod
    def prepare(
        cls, config: Any, data_dir: str | None = None, notify: Notify | None = None, coder: Coder | None = None
    ) -> VectorTask:
        notes = Notes(notify)
        parts = examples.read(config.data, data_dir, notes, cls.numeric)
        if coder is None:
            coder = learn_coder(parts, config.data.tokenizer, config.task.length, notes)
            coder = cls.name_outputs(coder, parts)
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
        numbers = coder.kind == "numbers"
        found = examples.read_single(source, config.data, data_dir, notes, cls.numeric, numbers, coder.columns)
        return cls.make(config, coder, Parts(train=Examples([], []), test=found), list(notes))
