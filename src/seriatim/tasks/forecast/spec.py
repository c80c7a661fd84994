"""The declaration of the task forecast."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field as Setting
from pydantic import field_validator

from ...core.config import Settings, Short
from ...data.kinds import LABEL, NUMBER
from ...data.series.schema import SCHEMA, TIME
from ...data.settings import Scaling
from ..capability import Capability
from ..spec import CONTEXT_LENGTH, TaskSpec

ENDS = ("lower_80", "upper_80", "lower_95", "upper_95")  # of the default intervals
# A forecast reads the past targets; on the command line they are its only required input.
INPUTS = replace(
    SCHEMA, fields=tuple(replace(f, required=True, target=False) if f.target else f for f in SCHEMA.fields)
)
Quantile = Annotated[float, Setting(gt=0, lt=1)]
Percent = Annotated[int, Setting(ge=1, le=99)]


class ForecastSettings(Settings):
    name: str = Setting("forecast", description="the task: see `seriatim list tasks`")
    context_length: Annotated[int | None, CONTEXT_LENGTH] = Setting(
        None, ge=1, le=100_000, description="steps a forecast is made from (default: two seasons, or what series allow)"
    )
    horizon: Annotated[int, Short()] = Setting(1, ge=1, le=10_000, description="steps to forecast")
    mode: Literal["direct", "recursive"] = Setting(
        "direct", description="all steps of the horizon at once, or one by one, each forecast being the next input"
    )
    quantiles: tuple[Quantile, ...] = Setting(
        (), description="quantiles to forecast, such as 0.1, 0.5, 0.9, instead of one value"
    )
    intervals: tuple[Percent, ...] = Setting(
        (80, 95), description="percentages of the values that prediction intervals are to cover"
    )
    loss: Literal["auto", "absolute", "squared"] = Setting(
        "auto", description="error that is minimized without quantiles (auto: absolute, as MASE does)"
    )
    season: int | None = Setting(None, ge=1, le=1_000_000, description="period in steps (default: by the frequency)")
    anchor: Literal["auto", "none", "last", "season", "linear", "ets", "theta"] = Setting(
        "auto",
        description="what the network predicts the difference to: the mean, the last value, the value one season "
        "before, the linear forecast, ETS or theta (auto: the best of them on the validation split)",
    )
    level: Literal["auto", "fixed", "running"] = Setting(
        "auto", description="inputs as scaled, or relative to their running mean (auto: that, if split along time)"
    )
    every_step: bool = Setting(True, description="train on a forecast after every step, not only after the last")
    stride: int | None = Setting(
        None, ge=1, le=1_000_000, description="steps between forecast origins (default: the horizon)"
    )
    multivariate: bool = Setting(
        False, description="several target columns: one series of several variables, instead of a series each"
    )
    split: Literal["auto", "time", "series"] = Setting(
        "auto", description="along time, or by series (auto: by series if there are many short ones)"
    )
    scaling: Scaling = Setting("standard", description="of each variable, by the training split of its series")
    log: bool = Setting(False, description="forecast the logarithm of the targets, which must be above 0")
    calendar: bool = Setting(False, description="inputs for the hour, the weekday and the time of the year")

    @field_validator("quantiles")
    @classmethod
    def _check_order(cls, quantiles: tuple[float, ...]) -> tuple[float, ...]:
        if any(low >= high for low, high in pairwise(quantiles)):
            raise ValueError("rising numbers between 0 and 1, such as 0.1, 0.5, 0.9")
        return quantiles

    @field_validator("intervals")
    @classmethod
    def _check_intervals(cls, intervals: tuple[int, ...]) -> tuple[int, ...]:
        if any(low >= high for low, high in pairwise(intervals)):
            raise ValueError("rising percentages, such as 80, 95")
        return intervals

    @property
    def steps(self) -> int:
        """The steps of the horizon that one pass through the network forecasts."""
        return 1 if self.mode == "recursive" else self.horizon


FORECAST = Capability(
    "forecast",
    "Forecast the values after the end of each series, with the ends of intervals and a column per quantile.",
    INPUTS,
    {"forecast": NUMBER, "time": TIME, "series": LABEL, "variable": LABEL, **dict.fromkeys(ENDS, NUMBER)},
    per_row=False,
    own_data=True,
    presentation="series",
)
SPEC = TaskSpec(
    "forecast",
    "Forecast the next values of one or more time series",
    SCHEMA,
    ForecastSettings,
    (FORECAST,),
    default_model="gru",
    default_model_reason="a recurrent network forecasts well from few series and is fast on a CPU",
)
