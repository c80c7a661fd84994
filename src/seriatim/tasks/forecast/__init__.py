"""Forecast the next values of one or more time series."""

from __future__ import annotations

from .task import ForecastTask

__all__ = ["ForecastTask"]
