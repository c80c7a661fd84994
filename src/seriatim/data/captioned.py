"""Pictures and what is said about them: the examples of the task caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .pictures import Pictures
from .sequences import Examples, Parts


class Named(NamedTuple):
    """A noun of a caption, and where in the picture that stands which it names."""

    place: int  # of the noun among the words of the caption, from 0
    noun: str
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom are outside


@dataclass(frozen=True)
class CaptionExamples(Examples):
    """A row for each caption; several rows may show one picture."""

    inputs: Any  # pictures
    boxes: list[list[Named]] | None = None  # for each row; None: not known
    mirrored: np.ndarray | None = None  # (n,) whether a caption stays true of the mirrored picture

    @property
    def pictures(self) -> Pictures:
        found: Pictures = self.inputs
        return found

    def take(self, rows: Sequence[int] | np.ndarray) -> CaptionExamples:
        rows = np.asarray(rows, dtype=np.int64)
        chosen = rows.tolist()
        return replace(
            self,
            inputs=self.inputs.take(rows),
            targets=None if self.targets is None else [self.targets[row] for row in chosen],
            places=[self.places[row] for row in chosen] if len(self.places) else (),
            boxes=None if self.boxes is None else [self.boxes[row] for row in chosen],
            mirrored=None if self.mirrored is None else self.mirrored[rows],
        )


@dataclass(frozen=True)
class CaptionParts(Parts):
    """Parts of which no picture is in two."""

    train: CaptionExamples
    valid: CaptionExamples
    test: CaptionExamples

    def part(self, name: str) -> CaptionExamples:
        found: CaptionExamples = getattr(self, name)
        return found
