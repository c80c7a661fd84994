"""Forecasting of time series: see `task`."""

from __future__ import annotations

from .task import ForecastTask

__all__ = ["ForecastTask"]
