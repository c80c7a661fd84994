"""Exponential smoothing and the theta method, the statistical baselines of forecasting competitions.

Each series is filtered once, and the state after every step gives the forecast of every origin. Parameters are those of
a grid that had the smallest squared error of one step in the training split; the season starts as that of a classical
decomposition of that split by moving averages. Values are in the units of the data.

ETS(A,Ad,A), Holt and Winters with a damped trend (Gardner 1985), e_t = y_t − l − φb − s_{t−m}:

    l ← l + φb + αe        b ← φb + βe        s_t ← s_{t−m} + γe        ŷ_{t+j} = l + (φ + … + φʲ) b + s

Theta (Assimakopoulos and Nikolopoulos 2000), as Hyndman and Billah (2003) write it: simple exponential smoothing of the
seasonally adjusted values with half the slope d of their regression on time,

    ŷ_{t+j} = l + d/2 (j − 1 + (1 − (1 − α)ᵗ) / α)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from .encoded import Origins, SeriesEncoded, fill_forward

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
BETAS = (0.0, 0.01, 0.05)
GAMMAS = (0.0, 0.01, 0.05, 0.2, 0.5)
DAMPINGS = (0.9, 0.98)
THETA_ALPHAS = np.linspace(0.02, 0.98, 49)
MAX_EXPONENT, SMALLEST = 300.0, 1e-100  # the squares are numbers, too; a later value may be 0
MAX_FITTED = 10_000  # steps of a series by which parameters are chosen


def series_matrix(encoded: SeriesEncoded) -> tuple[np.ndarray, np.ndarray]:
    """Returns the targets (T,S·N) of all series, filled and aligned at their begin, and the steps (S·N,) of each."""
    targets = encoded.values.shape[1]
    matrix = np.zeros((int(encoded.sizes.max()), len(encoded.sizes), targets))
    for number, values in enumerate(encoded.raw):
        filled = fill_forward(values[:, :targets])
        matrix[: len(filled), number] = filled
        matrix[len(filled) :, number] = filled[-1]
    return matrix.reshape(len(matrix), -1), np.repeat(encoded.sizes, targets)


def pick(values: np.ndarray, encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
    """Returns states (T,S·N) after the last step before each origin, (n,N)."""
    series = values.reshape(len(values), len(encoded.sizes), -1)
    return np.asarray(series[origins.positions - 1, origins.series])


def seasonal_factors(y: np.ndarray, sizes: np.ndarray, season: int, multiplies: np.ndarray) -> np.ndarray:
    """Returns the mean ratio or difference (season,S·N) of values (T,S·N) to their moving average over a season."""
    factors = np.where(multiplies, 1.0, 0.0) * np.ones((season, 1))
    kernel = np.ones(season) / season if season % 2 else np.r_[0.5, np.ones(season - 1), 0.5] / season
    offset = len(kernel) // 2
    for column, size in enumerate(sizes.tolist()):
        if season == 1 or size < len(kernel) + season:
            continue
        trend = np.convolve(y[:size, column], kernel, "valid")
        inner = y[offset : offset + len(trend), column]
        deviations = inner / trend if multiplies[column] else inner - trend
        phases = (np.arange(len(trend)) + offset) % season
        means = np.bincount(phases, deviations, season) / np.bincount(phases, minlength=season)
        factors[:, column] = means / means.mean() if multiplies[column] else means - means.mean()
    return factors


@dataclass(frozen=True)
class ExponentialSmoothing:
    """ETS(A,Ad,A), of the logarithms of positive series where that is better; parameters (S·N,) of each series."""

    logs: np.ndarray
    seasonal: np.ndarray  # (season,S·N) before the first step
    alpha: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    damping: np.ndarray

    @classmethod
    def fit(cls, train: SeriesEncoded, season: int) -> ExponentialSmoothing:
        y, sizes = series_matrix(train)
        season = season if 2 * season <= sizes.min() else 1
        grid = np.array(list(itertools.product(ALPHAS, BETAS, GAMMAS if season > 1 else (0.0,), DAMPINGS)))  # (G,4)
        none, positive = np.zeros(y.shape[1], dtype=bool), y.min(axis=0) > 0
        fitted, errors = [], []
        for logs in (none, positive) if positive.any() else (none,):
            transformed = np.where(logs, np.log(np.where(logs, y, 1.0)), y)
            seasonal = seasonal_factors(transformed, sizes, season, none)
            candidates = cls(logs, seasonal, *(column[:, None] for column in grid.T))
            squares = candidates.filter(transformed[:MAX_FITTED, None], sizes)  # (G,S·N)
            fitted.append((seasonal, grid[np.argmin(squares, axis=0)].T))
            errors.append(squares.min(axis=0))
        logs = errors[-1] < errors[0]
        seasonal, parameters = (np.where(logs, last, first) for first, last in zip(fitted[0], fitted[-1], strict=True))
        return cls(logs, seasonal, *parameters)

    def filter(self, y: np.ndarray, sizes: np.ndarray, states: np.ndarray | None = None) -> np.ndarray:
        """Returns the sum of the squared errors of one step of y (T,…); stores level, trend and season (T,3,…)."""
        m = len(self.seasonal)
        first = y[:m].mean(axis=0)
        trend = (y[m : 2 * m].mean(axis=0) - first) / m if len(y) >= 2 * m else np.zeros_like(first)
        level = first - trend * (m + 1) / 2  # before the first step
        season = list(self.seasonal)
        total = np.zeros_like(first)
        for t in range(len(y)):
            trend = self.damping * trend
            forecast = level + trend
            error = y[t] - forecast - season[t % m]
            level = forecast + self.alpha * error
            trend = trend + self.beta * error
            season[t % m] = season[t % m] + self.gamma * error
            if t >= m:
                raw = error
                if self.logs.any():
                    value, forecast = (np.where(self.logs, x, 0.0) for x in (y[t], y[t] - error))
                    raw = np.where(self.logs, np.exp(value) - np.exp(np.minimum(forecast, MAX_EXPONENT)), error)
                total = total + np.where(t < sizes, raw * raw, 0.0)
            if states is not None:
                states[t] = level, trend, season[t % m]
        return total

    def forecast(self, encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
        """Returns the forecasts (n,horizon,N) from origins on."""
        y, sizes = series_matrix(encoded)
        y = np.where(self.logs, np.log(np.maximum(np.where(self.logs, y, 1.0), SMALLEST)), y)
        states = np.empty((len(y), 3, y.shape[1]))
        self.filter(y, sizes, states)
        level, trend, season = pick(states[:, 0], encoded, origins), pick(states[:, 1], encoded, origins), states[:, 2]
        damping = self.damping.reshape(len(encoded.sizes), -1)[origins.series]
        by_series = season.reshape(len(season), len(encoded.sizes), -1)
        forecasts, factor = [], np.zeros_like(damping)
        for step in range(1, encoded.processor.horizon + 1):
            factor = factor + damping**step
            last = origins.positions - 1 + step - len(self.seasonal) * -(-step // len(self.seasonal))
            forecasts.append(level + factor * trend + by_series[np.maximum(last, 0), origins.series])
        stacked = np.stack(forecasts, axis=1)
        logs = self.logs.reshape(len(encoded.sizes), -1)[origins.series][:, None]
        return np.asarray(np.where(logs, np.exp(np.minimum(stacked, MAX_EXPONENT)), stacked))


@dataclass(frozen=True)
class Theta:
    """The theta method; the seasonal factors (season,S·N) of positive series multiply, those of others add."""

    alpha: np.ndarray
    seasonal: np.ndarray
    multiplies: np.ndarray

    @classmethod
    def fit(cls, train: SeriesEncoded, season: int) -> Theta:
        y, sizes = series_matrix(train)
        season = season if 2 * season <= sizes.min() else 1
        positive = y.min(axis=0) > 0
        seasonal = seasonal_factors(y, sizes, season, positive)
        adjusted = cls(np.empty(0), seasonal, positive).adjust(y)
        level, total = adjusted[0] + np.zeros((len(THETA_ALPHAS), 1)), np.zeros((len(THETA_ALPHAS), y.shape[1]))
        for t in range(1, min(len(y), MAX_FITTED)):
            error = adjusted[t] - level  # (alphas,S·N)
            total += np.where(t < sizes, error * error, 0.0)
            level += THETA_ALPHAS[:, None] * error
        return cls(THETA_ALPHAS[np.argmin(total, axis=0)], seasonal, positive)

    def adjust(self, y: np.ndarray) -> np.ndarray:
        """Returns values (T,S·N) without their season."""
        factors = self.seasonal[np.arange(len(y)) % len(self.seasonal)]
        return np.where(self.multiplies, y / np.where(factors == 0, 1.0, factors), y - factors)

    def forecast(self, encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
        """Returns the forecasts (n,horizon,N) from origins on."""
        y = self.adjust(series_matrix(encoded)[0])
        time = np.arange(1, len(y) + 1)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):  # one value has no slope
            moments = np.cumsum(time * y, axis=0) - (time + 1) / 2 * np.cumsum(y, axis=0)
            slopes = np.nan_to_num(12 * moments / (time * (time**2 - 1.0)))
        level, slope = pick(smooth(y, self.alpha), encoded, origins), pick(slopes, encoded, origins)
        alpha = self.alpha.reshape(len(encoded.sizes), -1)[origins.series]
        share = (1 - (1 - alpha) ** origins.positions[:, None]) / alpha
        steps = np.arange(encoded.processor.horizon)
        forecasts = level[:, None] + 0.5 * slope[:, None] * (steps[:, None] + share[:, None])
        factors = self.seasonal.reshape(len(self.seasonal), len(encoded.sizes), -1)
        phases = (origins.positions[:, None] + steps) % len(self.seasonal)
        factors = factors[phases, origins.series[:, None]]
        multiplies = self.multiplies.reshape(len(encoded.sizes), -1)[origins.series][:, None]
        return np.asarray(np.where(multiplies, forecasts * factors, forecasts + factors))


def smooth(y: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Returns the level (T,S) of simple exponential smoothing after each step of y (T,S)."""
    levels = np.empty_like(y)
    levels[0] = y[0]
    for t in range(1, len(y)):
        levels[t] = levels[t - 1] + alpha * (y[t] - levels[t - 1])
    return levels
