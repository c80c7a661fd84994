"""Exponential smoothing and the theta method, the statistical forecasts of competitions: baselines and anchors.

Each series is filtered once, and the state after every step gives the forecast of every origin. Parameters are those of
a grid that had the smallest squared error of one step in the training split; the season starts as that of a classical
decomposition of that split by moving averages. Values are in the units of the data, (T,S·N): all targets of all series.

ETS(A,Ad,A), Holt and Winters with a damped trend (Gardner 1985), e_t = y_t − l − φb − s_{t−m}:

    l ← l + φb + αe        b ← φb + βe        s_t ← s_{t−m} + γe        ŷ_{t+j} = l + (φ + … + φʲ) b + s

Theta (Assimakopoulos and Nikolopoulos 2000), as Hyndman and Billah (2003) write it: simple exponential smoothing of the
seasonally adjusted values with half the slope d of their regression on time,

    ŷ_{t+j} = l + d/2 (j − 1 + (1 − (1 − α)ᵗ) / α)
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from .encoded import Origins, SeriesEncoded

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
BETAS = (0.0, 0.01, 0.05)
GAMMAS = (0.0, 0.01, 0.05, 0.2, 0.5)
DAMPINGS = (0.9, 0.98)
THETA_ALPHAS = np.linspace(0.02, 0.98, 49)
MAX_EXPONENT, SMALLEST = 300.0, 1e-100  # the squares are numbers, too; a later value may be 0
MAX_FITTED = 10_000  # steps of a series by which parameters are chosen


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


class States(NamedTuple):
    """The states after each step, of which ŷ_{t+j} = level_t + weight_j trend_t, combined with the season."""

    level: np.ndarray  # (T,S·N)
    trend: np.ndarray  # (T,S·N)
    season: np.ndarray  # (season+T,S·N), from one season before the first step on


@dataclass(frozen=True)
class ClassicalForecast(ABC):
    """A forecast of each target of each series by its states.

    Args:
        season: In steps.
        parameters: (P,S·N); the first is the number of steps that a target was fitted on.
    """

    season: int
    parameters: np.ndarray
    count: ClassVar[int]  # P

    @classmethod
    def fit(cls, train: SeriesEncoded, season: int) -> Self:
        """Returns the forecast that fits these series best; without a season if one of them has not two of it."""
        y, sizes = train.target_matrix()
        season = season if 2 * season <= sizes.min() else 1
        return cls(season, np.stack([sizes, *cls.choose(y, sizes, season)]).astype(np.float64))

    @classmethod
    @abstractmethod
    def choose(cls, y: np.ndarray, sizes: np.ndarray, season: int) -> np.ndarray:
        """Returns the parameters (P−1,S·N) that fit values (T,S·N) of these sizes best."""

    @abstractmethod
    def filter(self, y: np.ndarray, sizes: np.ndarray) -> States:
        """Returns the states of values (T,S·N) of these sizes."""

    @abstractmethod
    def trend_weights(self, parameters: np.ndarray, positions: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Returns the weights (n,steps,N) of the trends, of parameters (P,n,1,N), positions (n,1,1), step (steps,1)."""

    @abstractmethod
    def combine(self, parameters: np.ndarray, line: np.ndarray, season: np.ndarray) -> np.ndarray:
        """Returns forecasts (n,steps,N) from lines and seasons."""

    def after(self, states: States, columns: np.ndarray, positions: np.ndarray, steps: int) -> np.ndarray:
        """Returns the next forecasts (n,steps,N) of the targets in `columns` (n,N) after `positions` (n,) steps."""
        step, rows, columns = np.arange(1, steps + 1)[:, None], positions[:, None, None] - 1, columns[:, None]
        parameters = self.parameters[:, columns]  # (P,n,1,N)
        weights = self.trend_weights(parameters, positions[:, None, None], step)
        before = rows + step - self.season * -(-step // self.season)  # whole seasons before each step
        line = states.level[rows, columns] + weights * states.trend[rows, columns]
        return self.combine(parameters, line, states.season[before + self.season, columns])

    def forecast(self, encoded: SeriesEncoded, origins: Origins) -> np.ndarray:
        """Returns the forecasts (n,horizon,N) from origins on."""
        states = self.filter(*encoded.target_matrix())
        columns = np.arange(self.parameters.shape[1]).reshape(len(encoded.sizes), -1)[origins.series]
        return self.after(states, columns, origins.positions, encoded.horizon)


@dataclass(frozen=True, eq=False)
class ClassicalAnchor:
    """A statistical forecast as the anchor of some series, scaled.

    Args:
        model: The forecast.
        values: The targets (T,S·N) of these series; see `SeriesEncoded.target_matrix`.
        sizes: The number of steps (S·N,) of each.
    """

    model: ClassicalForecast
    values: np.ndarray
    sizes: np.ndarray

    @cached_property
    def states(self) -> States:
        """The states after each step: series are filtered when the first forecast of them is made."""
        return self.model.filter(self.values, self.sizes)

    def after(self, encoded: SeriesEncoded, series: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """Returns the forecasts (B,T,steps,N) of the next steps after `rows` (B,T) of `series` (B,)."""
        targets = encoded.values.shape[1]
        positions = rows - encoded.starts[series][:, None] + 1
        columns = np.repeat(series[:, None] * targets + np.arange(targets), rows.shape[1], axis=0)  # (B·T,N)
        values = self.model.after(self.states, columns, positions.reshape(-1), steps)
        values = values.reshape(*rows.shape, steps, targets)
        scalers = [encoded.scalers[number] for number in series.tolist()]
        scaled = [
            scaler.apply(np.maximum(value, SMALLEST) if scaler.logs else value)
            for scaler, value in zip(scalers, values, strict=True)
        ]
        return np.stack(scaled).astype(np.float32)


class ExponentialSmoothing(ClassicalForecast):
    """ETS(A,Ad,A), of the logarithms of positive series where that is better.

    Parameters are the fitted steps, whether logarithms are smoothed, α, β, γ and φ.
    """

    count = 6

    @classmethod
    def choose(cls, y: np.ndarray, sizes: np.ndarray, season: int) -> np.ndarray:
        grid = np.array(list(itertools.product(ALPHAS, BETAS, GAMMAS if season > 1 else (0.0,), DAMPINGS)))  # (G,4)
        none, positive = np.zeros(y.shape[1], dtype=bool), y.min(axis=0) > 0
        best, errors = [], []
        for logs in (none, positive) if positive.any() else (none,):
            values = to_logs(y, logs)
            seasonal = seasonal_factors(values, sizes, season, none)
            squares = smooth_all(values[:MAX_FITTED, None], seasonal, logs, sizes, *grid.T[:, :, None])  # (G,S·N)
            best.append(grid[np.argmin(squares, axis=0)].T)
            errors.append(squares.min(axis=0))
        logs = errors[-1] < errors[0]
        return np.stack([logs, *np.where(logs, best[-1], best[0])])

    def filter(self, y: np.ndarray, sizes: np.ndarray) -> States:
        fitted, logs, alpha, beta, gamma, damping = self.parameters
        values = to_logs(y, logs > 0)
        seasonal = seasonal_factors(values, np.minimum(fitted, sizes).astype(int), self.season, np.zeros_like(logs))
        states = States(*(np.empty((len(y) + extra, y.shape[1])) for extra in (0, 0, self.season)))
        states.season[: self.season] = seasonal
        smooth_all(values, seasonal, logs > 0, sizes, alpha, beta, gamma, damping, states)
        return states

    def trend_weights(self, parameters: np.ndarray, positions: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.cumsum(parameters[5] ** step, axis=1)

    def combine(self, parameters: np.ndarray, line: np.ndarray, season: np.ndarray) -> np.ndarray:
        return np.where(parameters[1] > 0, np.exp(np.minimum(line + season, MAX_EXPONENT)), line + season)


def to_logs(y: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Returns values (T,S·N) with the logarithms of some targets; of a later 0 that of the smallest value before."""
    positive = np.where(y > 0, y, np.inf)
    smallest = np.minimum.accumulate(positive)
    values = np.where(np.isfinite(positive), positive, np.where(np.isfinite(smallest), smallest, SMALLEST))
    return np.where(logs, np.log(values), y)


def smooth_all(
    y: np.ndarray,
    seasonal: np.ndarray,
    logs: np.ndarray,
    sizes: np.ndarray,
    alpha: np.ndarray,
    beta: np.ndarray,
    gamma: np.ndarray,
    damping: np.ndarray,
    states: States | None = None,
) -> np.ndarray:
    """Returns the sum (…,S·N) of the squared errors of one step of y (T,…,S·N) by ETS; stores its states.

    What is behind the end of a series, whose neighbors are longer, counts for nothing.
    """
    m = len(seasonal)
    inside = (np.arange(len(y)) < sizes[:, None]).T.reshape(len(y), *[1] * (y.ndim - 2), -1)  # (T,…,S·N)
    first = np.where(inside[:m], y[:m], 0.0).sum(axis=0) / np.minimum(sizes, m)
    trend = np.zeros_like(first)
    if len(y) >= 2 * m:
        trend = np.where(sizes >= 2 * m, (y[m : 2 * m].mean(axis=0) - first) / m, 0.0)
    level = first - trend * (m + 1) / 2  # before the first step
    season = list(seasonal)
    total = np.zeros_like(first)
    for t in range(len(y)):
        trend = damping * trend
        forecast = level + trend
        error = y[t] - forecast - season[t % m]
        level = forecast + alpha * error
        trend = trend + beta * error
        season[t % m] = season[t % m] + gamma * error
        if states is not None:
            states.level[t], states.trend[t], states.season[t + m] = level, trend, season[t % m]
        elif t >= m:
            raw = error
            if logs.any():
                value, forecast = (np.where(logs, x, 0.0) for x in (y[t], y[t] - error))
                raw = np.where(logs, np.exp(value) - np.exp(np.minimum(forecast, MAX_EXPONENT)), error)
            total = total + np.where(inside[t], raw * raw, 0.0)
    return total


class Theta(ClassicalForecast):
    """The theta method; the seasonal factors of positive series multiply, those of others add.

    Parameters are the fitted steps, whether factors multiply, and α.
    """

    count = 3

    @classmethod
    def choose(cls, y: np.ndarray, sizes: np.ndarray, season: int) -> np.ndarray:
        positive = y.min(axis=0) > 0
        factors = seasonal_factors(y, sizes, season, positive)
        adjusted = adjust(y, factors, positive)
        level, total = adjusted[0] + np.zeros((len(THETA_ALPHAS), 1)), np.zeros((len(THETA_ALPHAS), y.shape[1]))
        for t in range(1, min(len(y), MAX_FITTED)):
            error = adjusted[t] - level  # (alphas,S·N)
            total += np.where(t < sizes, error * error, 0.0)
            level += THETA_ALPHAS[:, None] * error
        return np.stack([positive, THETA_ALPHAS[np.argmin(total, axis=0)]])

    def filter(self, y: np.ndarray, sizes: np.ndarray) -> States:
        fitted, multiplies, alpha = self.parameters
        factors = seasonal_factors(y, np.minimum(fitted, sizes).astype(int), self.season, multiplies > 0)
        y = adjust(y, factors, multiplies > 0)
        level = np.empty_like(y)
        level[0] = y[0]
        for t in range(1, len(y)):
            level[t] = level[t - 1] + alpha * (y[t] - level[t - 1])
        time = np.arange(1, len(y) + 1)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):  # one value has no slope
            moments = np.cumsum(time * y, axis=0) - (time + 1) / 2 * np.cumsum(y, axis=0)
            slopes = np.nan_to_num(12 * moments / (time * (time**2 - 1.0)))
        return States(level, slopes, factors[np.arange(self.season + len(y)) % self.season])

    def trend_weights(self, parameters: np.ndarray, positions: np.ndarray, step: np.ndarray) -> np.ndarray:
        alpha = parameters[2]
        return np.asarray(0.5 * (step - 1 + (1 - (1 - alpha) ** positions) / alpha))

    def combine(self, parameters: np.ndarray, line: np.ndarray, season: np.ndarray) -> np.ndarray:
        return np.where(parameters[1] > 0, line * season, line + season)


def adjust(y: np.ndarray, factors: np.ndarray, multiplies: np.ndarray) -> np.ndarray:
    """Returns values (T,S·N) without their season."""
    repeated = factors[np.arange(len(y)) % len(factors)]
    return np.where(multiplies, y / np.where(repeated == 0, 1.0, repeated), y - repeated)


CLASSICAL: dict[str, type[ClassicalForecast]] = {"ets": ExponentialSmoothing, "theta": Theta}
