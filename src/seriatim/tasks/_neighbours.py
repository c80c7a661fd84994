"""The nearest of many vectors by their cosine, found part by part, so that no more than a part is ever looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..data.vector_files import Vectors
from ._vectors import Embedder

TEXTS = 2_048  # that are embedded together: enough to put like lengths together
PART = 1 << 22  # similarities that are held at once

Parts = Iterable[tuple[Sequence[str], np.ndarray]]  # some texts at a time, with their vectors


@dataclass(frozen=True)
class Neighbour:
    row: int  # among those that were looked through, from 0
    similarity: float  # the cosine
    text: str


class Nearest:
    """The `top` nearest to each of some questions (q,D) among all vectors that are shown."""

    def __init__(self, questions: np.ndarray, top: int) -> None:
        self.questions = unit(questions)
        self.top = top
        self.rows = np.zeros((len(questions), 0), np.int64)
        self.values = np.zeros((len(questions), 0), np.float32)

    def show(self, vectors: np.ndarray, first: int, without: np.ndarray | None = None) -> None:
        """Vectors (n,D) that have the rows `first`, …; `without` (q,) names a row for each question to leave out."""
        size = max(PART // max(len(self.questions), 1), 1)
        for start in range(0, len(vectors), size):
            values = self.questions @ unit(vectors[start : start + size]).T  # (q,n)
            rows = first + start + np.arange(values.shape[1])
            if without is not None:
                values[rows == without[:, None]] = -np.inf
            self._keep(np.broadcast_to(rows, values.shape), values)

    def _keep(self, rows: np.ndarray, values: np.ndarray) -> None:
        kept = min(self.top, values.shape[1])
        best = np.argpartition(-values, kept - 1, axis=1)[:, :kept]
        rows = np.concatenate([self.rows, np.take_along_axis(rows, best, 1)], axis=1)
        values = np.concatenate([self.values, np.take_along_axis(values, best, 1)], axis=1)
        order = np.lexsort((rows, -values))[:, : self.top]  # of equally near ones the first
        self.rows, self.values = np.take_along_axis(rows, order, 1), np.take_along_axis(values, order, 1)

    def found(self) -> list[list[tuple[int, float]]]:
        """For each question rows and cosines, the nearest first."""
        pairs = zip(self.rows.tolist(), self.values.tolist(), strict=True)
        return [[(row, value) for row, value in zip(*pair, strict=True) if value > -np.inf] for pair in pairs]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1, but for those of length 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


def search(
    make: Callable[[str], Embedder],
    text: str | Sequence[str] | None,
    among: Iterable[str] | Vectors,
    top: int,
    pooling: str | None,
    notify: Callable[[str], None] | None,
    model: Callable[[], str],
) -> Any:
    """The nearest to a text, to each of several, or (None) to each of those it is looked for among. Their vectors are
    made now, by what `make` gives for a pooling, or were before by the same `model`."""
    if isinstance(among, Vectors):
        parts: Parts = among
        embedder = make(among.checked(model(), pooling))
    else:
        embedder = make(pooling or "mean")
        parts = ((some, embedder(some)) for some in _some(among))
    asked = [text] if isinstance(text, str) else text
    found: Any = each(parts, top) if asked is None else nearest(embedder(asked), parts, top)
    if notify is not None and embedder.told:
        notify(embedder.told)
    return found[0] if isinstance(text, str) else found


def _some(texts: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(texts)
    while some := list(islice(waiting, TEXTS)):
        yield some


def nearest(questions: np.ndarray, parts: Parts, top: int) -> list[list[Neighbour]]:
    """The nearest to each question; none but the nearest are remembered."""
    nearest = Nearest(questions, top)
    texts: dict[int, str] = {}
    seen = 0
    for some, vectors in parts:
        nearest.show(vectors, seen)
        new = {seen + index: text for index, text in enumerate(some)}
        texts = {row: new[row] if row in new else texts[row] for row in np.unique(nearest.rows).tolist()}
        seen += len(some)
    return [[Neighbour(row, value, texts[row]) for row, value in one] for one in nearest.found()]


def each(parts: Parts, top: int) -> list[tuple[str, list[Neighbour]]]:
    """Every text with the nearest to it among the others: here the vectors are held together."""
    held = list(parts)
    texts = [text for some, _ in held for text in some]
    vectors = unit(np.concatenate([vectors for _, vectors in held])) if held else np.zeros((0, 1))
    size = int(PART**0.5)
    found: list[list[Neighbour]] = []
    for start in range(0, len(vectors), size):
        nearest = Nearest(vectors[start : start + size], top)
        nearest.show(vectors, 0, without=np.arange(start, start + len(nearest.questions)))
        found += [[Neighbour(row, value, texts[row]) for row, value in one] for one in nearest.found()]
    return list(zip(texts, found, strict=True))
