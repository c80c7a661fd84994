"""TF-IDF with a linear model: the baseline of tasks that read texts.

    x_g = (1 + ln tf_g) · (1 + ln((1 + n) / (1 + df_g)))       for each n-gram g of a text, then x ← x / ‖x‖
    min  1/n Σ loss(W x + b, y) + ‖W‖² / (2 C n)               by L-BFGS

tf is how often an n-gram occurs in the text, df in how many of the n training texts. N-grams are those of one and two
lowercase words, or of one to four characters if the texts have no words. C is chosen by the validation split. It is
what `TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))` and `LogisticRegression` of scikit-learn compute.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.text import evenly_spaced
from ..data.dataset import Dataset

Loss = Literal["softmax", "sigmoid", "squared"]
WORD = re.compile(r"\w\w+")  # as scikit-learn: two letters or more
WORD_ORDER, CHARACTER_ORDER = 2, 4  # longest n-grams
STRENGTHS = (1.0, 10.0, 100.0)  # values of C to choose from
MAX_CHARACTERS = 1 << 25  # of the training texts; of larger data evenly spaced rows are used
MAX_WEIGHTS = 1 << 22  # of the linear model: beyond it, rare n-grams are left out
MAX_ITERATIONS = 100
SAMPLED_TEXTS = 1000  # by which words or characters are chosen
BLOCK_CHARACTERS = 1 << 22  # of texts that are scored at once


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of the training texts, and their inverse document frequencies.

    An n-gram of elements a, b, … (numbers from 1 on) has the key (a · base + b) · base + …, which is unique over all
    lengths.
    """

    elements: dict[str, int]  # words or characters → numbers; of a second text they start with a tab
    words: bool
    keys: np.ndarray  # (F,) sorted
    idf: np.ndarray  # (F,)

    @classmethod
    def fit(cls, train: Dataset, max_features: int) -> Ngrams:
        texts = list(train.columns["input"][0].values[:SAMPLED_TEXTS])
        words = sum(len(WORD.findall(text)) for text in texts) >= 2 * len(texts)
        elements: dict[str, int] = {}
        for side, column in enumerate(train.columns["input"]):
            for text in column.values:
                for element in split_text(text, side, words):
                    elements.setdefault(element, len(elements) + 1)
        empty = cls(elements, words, np.zeros(0, np.int64), np.zeros(0))
        keys, rows = empty.occurrences(train)
        keys, numbers = np.unique(keys, return_inverse=True)
        pairs = np.unique(numbers * len(train) + rows)  # each text counts once
        documents = np.bincount(pairs // len(train), minlength=len(keys))
        kept = np.sort(np.argsort(-documents, kind="stable")[:max_features])
        idf = 1 + np.log((1 + len(train)) / (1 + documents[kept]))
        return cls(elements, words, keys[kept], idf)

    def occurrences(self, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys of all n-grams of known elements, (N,), and the rows where they occur, (N,)."""
        columns = dataset.columns["input"]
        numbers: list[int] = []
        lengths: list[int] = []
        for side, column in enumerate(columns):
            for text in column.values:
                before = len(numbers)
                numbers += [self.elements.get(element, 0) for element in split_text(text, side, self.words)]
                lengths.append(len(numbers) - before)
        ids, texts = np.array(numbers, np.int64), np.repeat(np.arange(len(lengths)), lengths)
        keys, valid, base = ids, ids > 0, len(self.elements) + 1
        found = [(keys[valid], texts[valid])]
        for n in range(2, 1 + (WORD_ORDER if self.words or base**CHARACTER_ORDER >= 2**63 else CHARACTER_ORDER)):
            valid = valid[:-1] & (ids[n - 1 :] > 0) & (texts[: 1 - n] == texts[n - 1 :])
            keys = keys[:-1] * base + ids[n - 1 :]
            found.append((keys[valid], texts[: 1 - n][valid]))
        return np.concatenate([k for k, _ in found]), np.concatenate([t for _, t in found]) % max(len(dataset), 1)

    def transform(self, dataset: Dataset) -> Tensor:
        """Returns the TF-IDF vectors of the rows as a sparse matrix (rows, features) of float64."""
        size = len(self.keys)
        keys, rows = self.occurrences(dataset)
        features = np.searchsorted(self.keys, keys)
        known = self.keys[np.minimum(features, size - 1)] == keys if size else np.zeros(len(keys), bool)
        pairs, counts = np.unique(rows[known] * size + features[known], return_counts=True)
        rows, features = pairs // max(size, 1), pairs % max(size, 1)
        values = (1 + np.log(counts)) * self.idf[features]
        norms = np.sqrt(np.bincount(rows, values**2, len(dataset)))
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dataset)))])
        indices, cells = (torch.from_numpy(starts), torch.from_numpy(features)), torch.from_numpy(values / norms[rows])
        with warnings.catch_warnings():  # that they are new in torch
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(*indices, cells, (len(dataset), size), check_invariants=False)


def split_text(text: str, side: int, words: bool) -> list[str]:
    """Returns the lowercase words or characters of a text; those of a second text are other ones than of the first."""
    elements = WORD.findall(text.lower()) if words else list(text.lower())
    return [f"\t{element}" for element in elements] if side else elements


@dataclass(frozen=True)
class TfidfModel:
    """A linear model of TF-IDF vectors. Scores are logits, or for the loss `squared` the values themselves."""

    ngrams: Ngrams
    weight: Tensor  # (F,outputs)
    bias: Tensor  # (outputs,)

    @classmethod
    def fit(
        cls, train: Dataset, targets: np.ndarray, loss: Loss, validation: tuple[Dataset, np.ndarray] | None = None
    ) -> TfidfModel:
        """Returns the model of the training rows that has the lowest validation loss over the values of C.

        Args:
            train: The training split; its input is text.
            targets: softmax: class indices (rows,), of three or more classes; sigmoid: zeros and ones (rows, outputs);
                squared: numbers (rows, outputs).
            loss: Of the scores and the targets.
            validation: Rows and targets of the validation split; without it, C is 1.
        """
        outputs = int(targets.max()) + 1 if loss == "softmax" else targets.shape[1]
        characters = sum(int(column.lengths.sum()) for column in train.columns["input"])
        if characters > MAX_CHARACTERS:
            rows = evenly_spaced(len(train), max(len(train) * MAX_CHARACTERS // characters, 1))
            train, targets = train.take(rows), targets[rows]
        ngrams = Ngrams.fit(train, max(MAX_WEIGHTS // outputs, 1))
        matrix, references = ngrams.transform(train), torch.from_numpy(targets)
        weight = torch.zeros(matrix.shape[1], outputs, dtype=torch.float64)
        bias = torch.zeros(outputs, dtype=torch.float64)
        if loss == "squared":
            bias = references.double().mean(dim=0)
        best: tuple[float, TfidfModel] | None = None
        for strength in STRENGTHS[: None if validation else 1]:
            weight, bias = minimize(matrix, references, loss, strength, weight, bias)  # from the solution before
            model = cls(ngrams, weight, bias)
            if validation is None:
                return model
            value = float(mean_loss(torch.from_numpy(model.scores(validation[0])), validation[1], loss))
            if best is not None and value >= best[0]:
                break
            best = value, model
        assert best is not None
        return best[1]

    def scores(self, dataset: Dataset) -> np.ndarray:
        """Returns the scores of the rows (rows, outputs), computed block by block."""
        return np.concatenate(
            [(self.ngrams.transform(block) @ self.weight + self.bias).numpy() for block in blocks(dataset)]
        )


def blocks(dataset: Dataset) -> Iterator[Dataset]:
    """Yields the rows in blocks of about `BLOCK_CHARACTERS`."""
    lengths = np.sum([column.lengths for column in dataset.columns["input"]], axis=0)
    numbers = np.cumsum(lengths) // BLOCK_CHARACTERS
    for rows in np.split(np.arange(len(dataset)), np.flatnonzero(np.diff(numbers)) + 1):
        yield dataset.take(rows)


def mean_loss(scores: Tensor, targets: np.ndarray | Tensor, loss: Loss) -> Tensor:
    """Returns the loss, summed over the outputs and averaged over the rows."""
    references = torch.as_tensor(targets)
    if loss == "softmax":
        return F.cross_entropy(scores, references)
    if loss == "sigmoid":
        return F.binary_cross_entropy_with_logits(scores, references.double(), reduction="sum") / len(scores)
    return (scores - references).square().sum() / 2 / len(scores)


def minimize(
    matrix: Tensor, targets: Tensor, loss: Loss, strength: float, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the weights and biases of the lowest regularized loss.

    Args:
        matrix: Sparse (rows, F).
        targets: See `TfidfModel.fit`.
        loss: Of the scores.
        strength: C, the inverse strength of the regularization, as in scikit-learn.
        weight: To start from, (F,outputs).
        bias: To start from, (outputs,).
    """
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    transposed = matrix.to_sparse_csc().t() if matrix._nnz() else matrix.t()
    decay = 1 / (strength * len(targets))
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=MAX_ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        scores = (matrix @ weight.detach() + bias.detach()).requires_grad_()
        value = mean_loss(scores, targets, loss)
        (gradient,) = torch.autograd.grad(value, scores)
        weight.grad, bias.grad = transposed @ gradient + decay * weight.detach(), gradient.sum(dim=0)
        return value.detach() + decay / 2 * weight.detach().square().sum()

    step: Callable[[Callable[[], Tensor]], object] = optimizer.step
    step(closure)
    return weight.detach(), bias.detach()
