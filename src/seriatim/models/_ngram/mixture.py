"""Linear interpolation of n-gram models over one vocabulary, with weights that suit a held-out text.

    p(w | h) = Σ_i λ_i p_i(w | h),    λ_i ≥ 0, Σ_i λ_i = 1                                  Jelinek & Mercer 1980

Expectation maximization finds the λ of the highest likelihood, which is concave in them: the new λ_i is the mean share
of model i in the probability of each token, λ_i p_i / Σ_j λ_j p_j. SRILM's `compute-best-mix` does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...core.files import Json
from .table import Array, Table

TOLERANCE = 1e-10  # nats per token that a further iteration has to gain
MAX_ITERATIONS = 10_000
SMOOTHINGS = ("none", "add-k", "kneser-ney", "modified-kneser-ney")  # in the order of the stored numbers


def fit_weights(log_probs: Array) -> Array:
    """Returns the weights (K,) of K models that maximize the likelihood of a text.

    Args:
        log_probs: The log p of each token by each model (K,T).
    """
    possible = np.isfinite(log_probs).any(axis=0)  # what every model excludes says nothing about them
    highest = log_probs[:, possible].max(axis=0)
    relative = np.exp(log_probs[:, possible] - highest)  # (K,T), at most 1
    weights = np.full(len(log_probs), 1 / len(log_probs))
    before = -np.inf
    for _ in range(MAX_ITERATIONS if relative.shape[1] else 0):
        mixed = weights @ relative
        likelihood = float(np.log(mixed).mean())
        if likelihood - before < TOLERANCE:
            break
        weights, before = weights * (relative @ (1 / mixed)) / len(mixed), likelihood
    return weights


@dataclass(frozen=True, eq=False)
class Mixture:
    """Several n-gram models over one vocabulary and their weights (K,)."""

    tables: Sequence[Table]
    weights: Array

    @classmethod
    def fit(cls, tables: Sequence[Table], tokens: Array, context: Array | None = None) -> Mixture:
        """Returns the mixture of models with the weights that suit a text best."""
        return cls(tables, fit_weights(np.stack([table.log_probs(tokens, context) for table in tables])))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], vocab_size: int) -> Mixture:
        """Returns the mixture of stored arrays: the inverse of `arrays`."""
        weights, orders, kinds = (arrays[name] for name in ("weights", "orders", "smoothings"))
        tables = []
        for number, (order, kind) in enumerate(zip(orders.tolist(), kinds.tolist(), strict=True)):
            prefix = f"{number}."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            tables.append(Table.from_arrays(own, order, SMOOTHINGS[kind], vocab_size))
        if len(weights) != len(tables) or not tables:
            raise ValueError("not as many weights as models")
        return cls(tables, np.array(weights, np.float64))

    def arrays(self) -> dict[str, Array]:
        arrays = {
            "weights": self.weights,
            "orders": np.array([table.order for table in self.tables]),
            "smoothings": np.array([SMOOTHINGS.index(table.smoothing) for table in self.tables]),
        }
        for number, table in enumerate(self.tables):
            arrays |= {f"{number}.{name}": array for name, array in table.arrays().items()}
        return arrays

    @property
    def order(self) -> int:
        return self._largest.order

    @property
    def smoothing(self) -> str:
        return self._largest.smoothing

    @property
    def direct(self) -> bool:
        return self._largest.direct

    @property
    def _largest(self) -> Table:
        return max(self.tables, key=lambda table: table.order)

    @property
    def entries(self) -> int:
        return sum(table.entries for table in self.tables)

    def describe(self) -> Json:
        return {"weights": self.weights.tolist(), "models": [table.describe() for table in self.tables]}

    def log_probs(self, tokens: Array, context: Array | None = None) -> Array:
        return self._mix([table.log_probs(tokens, context) for table in self.tables])

    def next_log_probs(self, contexts: Array) -> Array:
        contexts = np.asarray(contexts)
        own = [contexts[:, contexts.shape[1] - (table.order - 1) :] for table in self.tables]
        return self._mix([table.next_log_probs(part) for table, part in zip(self.tables, own, strict=True)])

    def order_used(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the highest order that any of the models used for each token."""
        return np.max([table.order_used(tokens, context) for table in self.tables], axis=0)

    def shares(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the share of each order in the probability of each token (T,order)."""
        total = np.zeros((len(tokens), self.order))
        mixed = self.log_probs(tokens, context)
        for weight, table in zip(self.weights, self.tables, strict=True):
            own = weight * np.exp(table.log_probs(tokens, context) - mixed)  # share of the table
            if table.direct:  # one order has all of it
                total[np.arange(len(tokens)), table.order_used(tokens, context) - 1] += own
            else:
                total[:, : table.order] += own[:, None] * table.shares(tokens, context)
        return total

    def has_distribution(self, contexts: Array) -> Array:
        contexts = np.asarray(contexts)
        own = [contexts[:, contexts.shape[1] - (table.order - 1) :] for table in self.tables]
        known = [table.has_distribution(part) for table, part in zip(self.tables, own, strict=True)]
        return np.any([rows for rows, weight in zip(known, self.weights, strict=True) if weight > 0], axis=0)

    def _mix(self, log_probs: Sequence[Array]) -> Array:
        with np.errstate(divide="ignore"):
            weighted = [
                np.log(weight) + part.astype(np.float64) for weight, part in zip(self.weights, log_probs, strict=True)
            ]
        mixed: Array = np.logaddexp.reduce(weighted, axis=0)
        return mixed
