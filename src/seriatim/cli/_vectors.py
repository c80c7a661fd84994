"""Vectors and what follows from them, on the screen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._output import one_line, print_table

if TYPE_CHECKING:
    import numpy as np

    from ..data.writing import Table

LETTERS = 40  # of a text in a table


class Kept:
    """At most so many texts with their vectors, evenly spread over all that come."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.every = 1
        self.seen = 0
        self.texts: list[str] = []
        self.vectors: list[np.ndarray] = []

    def add(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        first = -self.seen % self.every
        self.texts += texts[first :: self.every]
        self.vectors += list(vectors[first :: self.every])
        self.seen += len(texts)
        while len(self.texts) > self.most:
            self.every *= 2
            self.texts, self.vectors = self.texts[::2], self.vectors[::2]


def lines(texts: Sequence[str], vectors: np.ndarray) -> None:
    """A JSON object for each text."""
    for text, vector in zip(texts, vectors, strict=True):
        print(json.dumps({"text": text, "vector": _numbers(vector)}, ensure_ascii=False))


def alike(texts: Sequence[str], vectors: Sequence[np.ndarray]) -> None:
    """The cosines of all pairs; of a single text its vector."""
    import numpy as np

    if len(texts) == 1:
        print(" ".join(f"{value:.7g}" for value in vectors[0].tolist()))
        return
    names = [f"{number} {_short(text)}" for number, text in enumerate(texts, 1)]
    _matrix(names, _cosines(np.stack(vectors)))


def word(found: Any) -> None:
    """A word in its sentences: the cosines of its vectors there, and those it has by itself."""
    names = [f"{number} {fragment}" for number, fragment in enumerate(found.fragments(), 1)]
    if len(names) > 1:
        print(f"{found.word} in its sentences")
        _matrix(names, _cosines(found.contextual))
        print(f"\n{found.word} by itself")
        _matrix(names, _cosines(found.plain))
    else:
        alike(names, found.contextual)


def word_records(found: Any) -> None:
    columns = zip(found.sentences, found.spans, found.pieces, found.contextual, found.plain, strict=True)
    for text, span, pieces, contextual, plain in columns:
        record = {"text": text, "span": span, "pieces": pieces}
        vectors = {"contextual": _numbers(contextual), "context_free": _numbers(plain)}
        print(json.dumps(record | vectors, ensure_ascii=False))


def neighbours(pairs: Sequence[tuple[str, Sequence[Any]]]) -> None:
    """A line for each: similarity, row and text; under the text that was asked about, where there are several."""
    for text, found in pairs:
        indent = ""
        if len(pairs) > 1:
            print(one_line(text))
            indent = "  "
        for one in found:
            print(f"{indent}{one.similarity:7.4f}  {one.row + 1:>6}  {one_line(one.text)}")


def records(pairs: Sequence[tuple[str, Sequence[Any]]]) -> None:
    for text, found in pairs:
        near = [{"row": one.row + 1, "similarity": _short_number(one.similarity), "text": one.text} for one in found]
        print(json.dumps({"text": text, "nearest": near}, ensure_ascii=False))


def table(pairs: Sequence[tuple[str, Sequence[Any]]]) -> Table:
    from ..data.writing import Table

    rows = [
        [text, rank, _short_number(one.similarity), one.row + 1, one.text]
        for text, found in pairs
        for rank, one in enumerate(found, 1)
    ]
    return Table(["text", "rank", "similarity", "row", "neighbour"], rows)


def _matrix(names: Sequence[str], cosines: np.ndarray) -> None:
    rows = [[name, *(f"{value:.4f}" for value in row)] for name, row in zip(names, cosines.tolist(), strict=True)]
    print_table(["cosine", *(str(number) for number in range(1, len(names) + 1))], rows)


def _cosines(vectors: np.ndarray) -> np.ndarray:
    import numpy as np

    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: np.ndarray = unit @ unit.T
    return found


def _numbers(vector: np.ndarray) -> list[float]:
    return [_short_number(value) for value in vector.tolist()]


def _short_number(value: float) -> float:
    """With the digits that single precision has."""
    return float(f"{value:.7g}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LETTERS else line[: LETTERS - 1] + "…"
