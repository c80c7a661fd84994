"""Scaling of columns: fitted on a training part, stored with a run, and undone exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Scaler:
    """x → (f(x) − shift) / scale for each column, f the logarithm for the first `logs` columns, else nothing."""

    shift: np.ndarray  # (columns,)
    scale: np.ndarray
    logs: int = 0

    @classmethod
    def fit(cls, values: np.ndarray, kind: str, logs: int = 0) -> Scaler:
        """By the columns (n,columns) of a training part; NaN is left out, and what never varies keeps scale 1."""
        moved = _log(values, logs)
        there = ~np.isnan(moved)
        count = np.maximum(there.sum(axis=0), 1)
        if kind == "none":
            return cls(np.zeros(values.shape[1]), np.ones(values.shape[1]), logs)
        if kind == "minmax":
            low = np.where(there, moved, np.inf).min(axis=0, initial=np.inf)
            high = np.where(there, moved, -np.inf).max(axis=0, initial=-np.inf)
            shift, scale = np.where(np.isfinite(low), low, 0.0), np.where(high > low, high - low, 1.0)
        else:
            shift = np.where(there, moved, 0.0).sum(axis=0) / count
            scale = np.sqrt(np.where(there, (moved - shift) ** 2, 0.0).sum(axis=0) / count)
        flat = scale <= 1e-12 * np.maximum(np.abs(shift), 1e-300)
        return cls(shift, np.where(flat, 1.0, scale), logs)

    def apply(self, values: np.ndarray) -> np.ndarray:
        result: np.ndarray = (_log(values, self.logs) - self.shift) / self.scale
        return result

    def invert(self, scaled: np.ndarray, first: int = 0) -> np.ndarray:
        """Of the columns from `first` on; the last axis is that of the columns."""
        part = slice(first, first + scaled.shape[-1])
        values: np.ndarray = scaled * self.scale[part] + self.shift[part]
        logs = max(self.logs - first, 0)
        # What a network says may be too large for a number: the largest is far beyond any use already.
        return np.concatenate([np.exp(np.minimum(values[..., :logs], 700.0)), values[..., logs:]], axis=-1)

    def to_json(self) -> dict[str, Any]:
        return {"shift": self.shift.tolist(), "scale": self.scale.tolist(), "logs": self.logs}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Scaler:
        return cls(np.array(values["shift"], float), np.array(values["scale"], float), int(values["logs"]))


def constant(values: np.ndarray) -> np.ndarray:
    """Which columns hold one value only (or none)."""
    there = ~np.isnan(values)
    low = np.where(there, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(there, values, -np.inf).max(axis=0, initial=-np.inf)
    result: np.ndarray = ~(high > low)
    return result


def _log(values: np.ndarray, logs: int) -> np.ndarray:
    if not logs:
        return values
    return np.concatenate([np.log(values[:, :logs]), values[:, logs:]], axis=1)
