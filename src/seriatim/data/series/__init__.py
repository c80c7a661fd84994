"""Time series: their schema and table, calendar, scaling and splits."""

from __future__ import annotations

from .calendar import Frequency, TimeError, cycle_features, infer_frequency, parse_times, useful_cycles
from .scaling import Scaler, Scaling, constant_columns
from .schema import HISTORY, SCHEMA, VALUE, SeriesSchema
from .split import AlongTime, BySeries, latest_series
from .table import describe_series, make_series

__all__ = [
    "HISTORY",
    "SCHEMA",
    "VALUE",
    "AlongTime",
    "BySeries",
    "Frequency",
    "Scaler",
    "Scaling",
    "SeriesSchema",
    "TimeError",
    "constant_columns",
    "cycle_features",
    "describe_series",
    "infer_frequency",
    "latest_series",
    "make_series",
    "parse_times",
    "useful_cycles",
]
