"""Pictures with captions as pairs: what is shown, and the tokens of what is said of it, closed by `<eos>`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..core.files import write_json
from ..data.captioned import CaptionExamples
from ..data.picture_files import Form
from ..data.pictures import Pictures
from ..data.sequences import Sequences
from ..data.tokenizers import Tokenizer
from ._pairs import ABOUT, PairPart, closed, end_of
from ._task import Batch


@dataclass(frozen=True)
class CaptionCoder:
    """From captions to tokens and back, and the size of the pictures. A run keeps it."""

    target: Tokenizer
    longest: int  # tokens of a caption in training
    form: Form  # of the pictures

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a picture."""
        return self.form.shape

    @property
    def begin(self) -> int:
        return end_of(self.target)

    def targets(self, texts: Sequence[str]) -> Sequences:
        return closed(self.target, texts)

    def part(self, examples: CaptionExamples) -> CaptionPart:
        texts: Any = examples.targets
        pictures: Any = examples.inputs
        return CaptionPart(pictures, self.targets(texts), examples)

    def save(self, folder: Path) -> None:
        self.target.save(folder / "tokenizer.json")
        write_json(folder / ABOUT, {"kind": "captions", "longest": self.longest, "form": asdict(self.form)})

    @classmethod
    def load(cls, folder: Path) -> CaptionCoder:
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            longest, form = int(about["longest"]), Form(**about["form"])
        except (OSError, ValueError, KeyError, TypeError):
            cause = f"{folder / ABOUT} does not say how large the pictures are"
            raise SeriatimError("run.damaged", cause, "restore the file") from None
        return cls(Tokenizer.load(folder / "tokenizer.json"), longest, form)


@dataclass(frozen=True)
class CaptionPart(PairPart):
    """A row for each caption: several may show one picture."""

    inputs: Pictures  # type: ignore[assignment]
    examples: CaptionExamples

    def drawn(self, pictures: np.ndarray, some: slice, begin: int, draw: np.random.Generator, flips: bool) -> Batch:
        """For training: `some` of the pictures of a step, by their number in `groups`, each shown once with all its
        captions, moved a little and, where `flips`, mirrored, but never one whose captions tell left from right. The
        inputs are pictures, the tokens before each target, and which of the pictures each caption belongs to."""
        groups = [self.groups[one] for one in pictures.tolist()]
        true = self.examples.mirrored  # of which captions, mirrored
        may = np.array([flips and true is not None and bool(true[rows].all()) for rows in groups])
        shown = self.inputs.drawn(np.array([rows[0] for rows in groups]), draw, may, some)
        batch = self.told(np.concatenate(groups[some]), begin)
        owners = np.repeat(np.arange(len(shown)), [len(rows) for rows in groups[some]])
        return replace(batch, inputs=(torch.from_numpy(shown), batch.inputs, torch.from_numpy(owners)))

    def take(self, rows: np.ndarray) -> CaptionPart:
        return CaptionPart(self.inputs.take(rows), self.targets.take(rows), self.examples.take(rows))

    @cached_property
    def groups(self) -> list[np.ndarray]:
        """The rows of each picture, in the order of the data."""
        _, first, of = np.unique(self.inputs.rows, return_index=True, return_inverse=True)
        order = np.argsort(of, kind="stable")
        found = np.split(order, np.cumsum(np.bincount(of))[:-1])
        return [found[place] for place in np.argsort(first, kind="stable")]
