"""The baselines of a forecast: naive ones, a linear one, and the statistical ones of competitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .classical import ClassicalForecast, ExponentialSmoothing, Theta
from .encoded import Origins, SeriesEncoded
from .processor import ForecastProcessor
from .simple import SimpleForecast, fit_linear


@dataclass(frozen=True, eq=False)
class Baselines:
    """Forecasts that are fitted on the training split, each when it is first asked for.

    Args:
        processor: Its season, its context and its horizon are those of the forecasts.
        train: The series of the training split.
    """

    processor: ForecastProcessor
    train: SeriesEncoded

    @cached_property
    def linear(self) -> SimpleForecast:
        """The linear forecast from the context."""
        return SimpleForecast(weights=fit_linear(self.train, self.processor.context_length, self.processor.horizon))

    @cached_property
    def classical(self) -> dict[str, ClassicalForecast]:
        """ETS and theta of each series; none if series are divided."""
        season = self.processor.season
        if self.processor.pooled:
            return {}
        return {"ETS": ExponentialSmoothing.fit(self.train, season), "theta": Theta.fit(self.train, season)}


def simple_forecasts(processor: ForecastProcessor, encoded: SeriesEncoded, origins: Origins) -> dict[str, np.ndarray]:
    """Returns the forecasts (n,horizon,N) of the baselines in the units of the data."""
    season, fitted = processor.season, encoded.baselines
    simple = {"naive": SimpleForecast(1)} | ({"seasonal naive": SimpleForecast(season)} if season > 1 else {})
    if fitted is not None:
        simple["linear"] = fitted.linear
    results, rows = {}, encoded.last_rows(origins)
    for name, baseline in simple.items():
        scaled = baseline.after(encoded, origins.series, rows, processor.horizon)[:, 0]
        results[name] = encoded.unscale(origins, scaled[..., None])[..., 0]
    if fitted is not None and encoded.names == fitted.train.names:
        results |= {name: model.forecast(encoded, origins) for name, model in fitted.classical.items()}
    return results
