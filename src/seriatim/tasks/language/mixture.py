"""Linear interpolation of n-gram models over one vocabulary, with weights that suit a held-out text.

    p(w | h) = Σ_i λ_i p_i(w | h),    λ_i ≥ 0, Σ_i λ_i = 1                                  Jelinek & Mercer 1980

Expectation maximization finds the λ of the highest likelihood, which is concave in them: the new λ_i is the mean share
of model i in the probability of each token, λ_i p_i / Σ_j λ_j p_j. SRILM's `compute-best-mix` does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...core.errors import SeriatimError
from ...core.files import Json
from ...models.ngram import DIRECT, Array, NGram, Settings

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


class NGramMixture(NGram):
    """Several n-gram models and their weights."""

    def __init__(self, models: Sequence[NGram], weights: Array) -> None:
        largest = max(models, key=lambda model: model.order)
        self.models, self.weights = list(models), np.asarray(weights, np.float64)
        self.settings, self.order = largest.settings, largest.order
        self.vocab_size, self.boundary = largest.vocab_size, largest.boundary
        self.pruned, self.discounts, self.levels = False, None, []

    @classmethod
    def fit_to(cls, models: Sequence[NGram], tokens: Array, context: Array | None = None) -> NGramMixture:
        """Returns the mixture of models with the weights that suit a text best."""
        flat = [part for model in models for part in (model.models if isinstance(model, NGramMixture) else [model])]
        return cls(flat, fit_weights(np.stack([model.log_probs(tokens, context) for model in flat])))

    def log_probs(self, tokens: Array, context: Array | None = None) -> Array:
        return self._mix([model.log_probs(tokens, context) for model in self.models])

    def next_log_probs(self, contexts: Array) -> Array:
        contexts = np.asarray(contexts)
        own = [contexts[:, contexts.shape[1] - (model.order - 1) :] for model in self.models]
        return self._mix([model.next_log_probs(part) for model, part in zip(self.models, own, strict=True)])

    def order_used(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the highest order that any of the models used for each token."""
        return np.max([model.order_used(tokens, context) for model in self.models], axis=0)

    def shares(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the share of each order in the probability of each token (T,order)."""
        total = np.zeros((len(tokens), self.order))
        mixed = self.log_probs(tokens, context)
        for weight, model in zip(self.weights, self.models, strict=True):
            own = weight * np.exp(model.log_probs(tokens, context) - mixed)  # share of the model
            if model.settings.smoothing in DIRECT:  # one order has all of it
                total[np.arange(len(tokens)), model.order_used(tokens, context) - 1] += own
            else:
                total[:, : model.order] += own[:, None] * model.shares(tokens, context)
        return total

    def has_distribution(self, contexts: Array) -> Array:
        contexts = np.asarray(contexts)
        own = [contexts[:, contexts.shape[1] - (model.order - 1) :] for model in self.models]
        known = [model.has_distribution(part) for model, part in zip(self.models, own, strict=True)]
        return np.any([rows for rows, weight in zip(known, self.weights, strict=True) if weight > 0], axis=0)

    def _mix(self, log_probs: Sequence[Array]) -> Array:
        with np.errstate(divide="ignore"):
            weighted = [
                np.log(weight) + part.astype(np.float64) for weight, part in zip(self.weights, log_probs, strict=True)
            ]
        mixed: Array = np.logaddexp.reduce(weighted, axis=0)
        return mixed

    # Storage

    @property
    def entries(self) -> int:
        return sum(model.entries for model in self.models)

    def describe(self) -> Json:
        return {"weights": self.weights.tolist(), "models": [model.describe() for model in self.models]}

    def tensors(self) -> dict[str, Array]:
        tensors = {
            "weights": self.weights,
            "orders": np.array([model.order for model in self.models]),
            "smoothings": np.array([SMOOTHINGS.index(model.settings.smoothing) for model in self.models]),
        }
        for number, model in enumerate(self.models):
            tensors |= {f"{number}.{name}": array for name, array in model.tensors().items()}
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], settings: Settings, vocab_size: int) -> NGramMixture:
        models = []
        try:
            weights, orders, kinds = (tensors[name] for name in ("weights", "orders", "smoothings"))
            for number, (order, kind) in enumerate(zip(orders.tolist(), kinds.tolist(), strict=True)):
                own = settings.model_copy(update={"order": order, "smoothing": SMOOTHINGS[kind]})
                prefix = f"{number}."
                parts = {name[len(prefix) :]: part for name, part in tensors.items() if name.startswith(prefix)}
                models.append(NGram.from_tensors(parts, own, vocab_size))
            if len(weights) != len(models) or not models:
                raise ValueError("not as many weights as models")
        except (KeyError, IndexError, ValueError) as error:
            cause = f"these are not the tensors of interpolated n-gram models: {error}"
            raise SeriatimError("ngram.tensors", cause, "copy the whole folder") from None
        return cls(models, weights)

    def write_arpa(self, path: str | Path, tokens: Sequence[str]) -> None:
        cause = "an ARPA file holds one n-gram model, and this one interpolates several"
        raise SeriatimError("arpa.mixture", cause, "export the runs that were interpolated")
