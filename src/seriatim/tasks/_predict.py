"""A trained network that answers for inputs of its kind, many at a time, each as if it were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from ..data.examples import read_inputs
from ..data.writing import Table
from ._coder import Coder
from ._examples import through


class Predictor:
    questions = ("predict",)

    def __init__(self, network: nn.Module, coder: Coder, data: Any = None) -> None:
        self.model = network
        self.coder = coder
        self.data = data  # the settings by which a file is read

    def meaning(self, scores: Tensor) -> list[dict[str, Any]]:
        """What outputs (N,…) mean."""
        raise TypeError(f"{type(self).__name__} has no meaning")

    def table(self, answers: list[dict[str, Any]]) -> Table:
        """Answers as the columns of a file."""
        raise TypeError(f"{type(self).__name__} has no table")

    @property
    def pairs(self) -> bool | None:
        """An input is two texts; None: one or two."""
        return self.coder.pairs

    def predict(self, items: Any) -> list[dict[str, Any]]:
        """An answer for each input, in their order."""
        sequences = self.coder.encode(items)
        answers: list[dict[str, Any]] = [{}] * len(sequences)
        for rows, scores in through(self.model, sequences, np.arange(len(sequences))):
            for row, answer in zip(rows.tolist(), self.meaning(scores), strict=True):
                answers[row] = answer
        return answers

    def predict_file(self, source: str, data_dir: str | None = None) -> Table:
        """A row for each row of the file."""
        found = read_inputs(source, self.data, data_dir, **(self.coder.known | {"pairs": self.pairs}))
        table = self.table(self.predict(found.inputs))
        if self.coder.form is None:
            return table
        named = [[place, *row] for place, row in zip(found.places, table.rows, strict=True)]
        return Table(["picture", *table.columns], named, table.usual)


def short(value: float) -> float:
    """With the digits that single precision has."""
    return float(f"{value:.7g}")
