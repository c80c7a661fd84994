"""Simple forecasts of the next steps: the mean, the last value, that of a season before, and a linear forecast.

They are baselines, and what a network predicts the difference to (its anchor). A linear forecast is one of the past
values of the same target,

    ŷ_{t+j} = b_j + Σ_i w_ji y_{t−i},

the same for all series, on scaled values, fitted by least squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.text import evenly_spaced

if TYPE_CHECKING:
    from .encoded import SeriesEncoded

RIDGE = 1e-6  # of the linear forecast, for each window
MAX_WINDOWS = 20_000  # that the linear forecast is fitted on, evenly spaced


@dataclass(frozen=True)
class SimpleForecast:
    """A forecast from past values, scaled.

    Args:
        lag: 0 forecasts the mean of the training split, 1 the last value, a season the value one season before.
        weights: Of a linear forecast, (N,lags+1,steps); the last row is the constant.
    """

    lag: int = 0
    weights: np.ndarray | None = None

    def after(self, encoded: SeriesEncoded, series: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """Returns the forecasts (B,T,steps,N) of the next steps after `rows` (B,T) of `series` (B,).

        A linear forecast extends a short history by its first value; where a series has not had the season yet, the
        last value stands for it.
        """
        first = encoded.starts[series].reshape(len(series), *(1,) * rows.ndim)
        if self.weights is not None:
            context = np.maximum(rows[..., None] + np.arange(2 - self.weights.shape[1], 1), first)
            return self._apply(encoded.values[context])
        if not self.lag:
            return np.zeros((*rows.shape, steps, encoded.values.shape[1]), np.float32)
        step = np.arange(1, steps + 1)
        before = rows[..., None] + step - self.lag * -(-step // self.lag)  # whole seasons before each step
        return np.asarray(encoded.values[np.where(before >= first, before, rows[..., None])])

    def next(self, recent: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """Returns the forecast (n,N) of the step after recent values (n,steps,N), of which some do not exist."""
        if self.weights is not None:
            return self._apply(recent[:, 1 - self.weights.shape[1] :])[:, 0]
        if not self.lag:
            return np.zeros_like(recent[:, -1])
        return np.where(exists[:, [-self.lag]], recent[:, -self.lag], recent[:, -1])

    def _apply(self, context: np.ndarray) -> np.ndarray:
        """Returns linear forecasts (…,steps,N) of contexts (…,lags,N)."""
        assert self.weights is not None
        return np.stack([context[..., n] @ w[:-1] + w[-1] for n, w in enumerate(self.weights)], axis=-1)


MEAN = SimpleForecast()


def fit_linear(train: SeriesEncoded, lags: int, steps: int) -> np.ndarray:
    """Returns the weights (N,lags+1,steps) of the linear forecast of the next steps from `lags` values."""
    rows = np.concatenate(
        [s + np.arange(lags, max(n - steps + 1, lags)) for s, n in zip(train.starts, train.sizes, strict=True)]
    )
    if len(rows) > MAX_WINDOWS:
        rows = rows[evenly_spaced(len(rows), MAX_WINDOWS)]
    before, after = rows[:, None] + np.arange(-lags, 0), rows[:, None] + np.arange(steps)
    weights = []
    for target in range(train.values.shape[1]):
        complete = train.observed[after, target].all(axis=1)
        x = train.values[before[complete], target].astype(np.float64)
        y = train.values[after[complete], target].astype(np.float64)
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        penalty = RIDGE * max(len(x), 1) * np.eye(x.shape[1])
        weights.append(np.linalg.solve(x.T @ x + penalty, x.T @ y))  # (XᵀX + λnI) w = XᵀY
    return np.stack(weights).astype(np.float32)
