"""Scaling of the variables of a series: fitted on the training split, stored with a run, and exactly invertible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..settings import Scaling

MAX_EXPONENT = 700.0  # e to a higher power is not a number
FLAT = 1e-12  # a standard deviation of less, relative to the mean, is that of a constant


@dataclass(frozen=True)
class Scaler:
    """x → (f(x) − shift) / scale for each variable; f is the logarithm for the first `logs` variables."""

    shift: np.ndarray  # (variables,)
    scale: np.ndarray
    logs: int = 0

    @classmethod
    def fit(cls, values: np.ndarray, kind: Scaling, logs: int = 0) -> Scaler:
        """Returns the scaler of values (n,variables); missing ones are left out, and constants keep scale 1."""
        values = apply_log(values, logs)
        known = ~np.isnan(values)
        count = np.maximum(known.sum(axis=0), 1)
        if kind == "none":
            return cls(np.zeros(values.shape[1]), np.ones(values.shape[1]), logs)
        if kind == "minmax":
            low = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
            high = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
            shift, scale = np.where(np.isfinite(low), low, 0.0), np.where(high > low, high - low, 1.0)
        else:
            shift = np.where(known, values, 0.0).sum(axis=0) / count
            scale = np.sqrt(np.where(known, (values - shift) ** 2, 0.0).sum(axis=0) / count)
        flat = scale <= FLAT * np.maximum(np.abs(shift), 1e-300)
        return cls(shift, np.where(flat, 1.0, scale), logs)

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Returns scaled values (…,n) of the first n variables."""
        count = values.shape[-1]
        return np.asarray((apply_log(values, self.logs) - self.shift[:count]) / self.scale[:count])

    def invert(self, scaled: np.ndarray) -> np.ndarray:
        """Returns values (…,n) in the units of the data, of the first n variables."""
        count = scaled.shape[-1]
        values = scaled * self.scale[:count] + self.shift[:count]
        exponentials = np.exp(np.minimum(values[..., : self.logs], MAX_EXPONENT))
        return np.concatenate([exponentials, values[..., self.logs :]], axis=-1)


def apply_log(values: np.ndarray, logs: int) -> np.ndarray:
    """Returns values (…,variables) with the logarithms of the first `logs` variables."""
    return np.concatenate([np.log(values[..., :logs]), values[..., logs:]], axis=-1) if logs else values


def constant_columns(values: np.ndarray) -> np.ndarray:
    """Returns which variables (variables,) of values (n,variables) have at most one value."""
    known = ~np.isnan(values)
    low = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
    return np.asarray(~(high > low))
