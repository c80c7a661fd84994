"""Predictions of the task forecast: the values after the end of each series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...core.config import Settings
from ...core.errors import Diagnostics, SeriatimError
from ...data.dataset import Dataset
from ...data.series.calendar import Frequency
from ...data.series.table import check_future
from ...data.source import DataInput
from ...report.charts import View
from ..capability import Call, Record, capability
from ..predictor import Predictor, Usage
from .backtest import Forecasts, median_index, plot_forecast
from .encoded import Origins, SeriesEncoded
from .forecasting import forecast_origins, make_forecasts
from .processor import ForecastProcessor
from .spec import FORECAST, INPUTS

if TYPE_CHECKING:
    from .task import ForecastTask

MAX_CHARTS = 12


class ForecastPredictor(Predictor["ForecastTask"]):
    """Continues the series of the run, or others."""

    task: ForecastTask
    processor: ForecastProcessor

    @capability(FORECAST)
    def forecast(self, call: Call[Settings]) -> list[Record]:
        encoded, forecasts = self.predict_ends(call.rows)
        frequency, records = encoded.frequency, []
        for row, name in enumerate(encoded.names):
            steps = encoded.sizes[row] + np.arange(self.processor.horizon)
            times = frequency.after(encoded.start_times[row], steps)
            for step, time in enumerate(times):
                for target, variable in enumerate(self.processor.targets):
                    values = forecasts.quantiles[row, step, target]
                    record = {"series": name, "time": frequency.format(time), "variable": variable}
                    record["forecast"] = float(values[median_index(forecasts.levels)])
                    for number, percent in enumerate(forecasts.percents):
                        assert forecasts.intervals is not None
                        lower, upper = forecasts.intervals[row, step, target, number].tolist()
                        record |= {f"lower_{percent}": lower, f"upper_{percent}": upper}
                    record |= {f"q{q:g}": float(value) for q, value in zip(forecasts.levels, values, strict=False)}
                    records.append(record)
        return records

    def predict_ends(self, dataset: Dataset) -> tuple[SeriesEncoded, Forecasts]:
        """Returns the encoded series and the forecasts after their ends."""
        if self.processor.cycles and "time" not in dataset:
            cause = "the model reads the calendar, so series need times"
            remedy = "pass a file with its time column (--data), or train with task.calendar=false"
            raise SeriatimError("predict.times", cause, remedy)
        check_future(dataset, Frequency.parse(dataset["frequency"][0]), self.processor.horizon)
        encoded = self.processor.encode_scaled(dataset, None)
        return encoded, make_forecasts(self.task, self.network, encoded, self._ends(encoded))

    def _ends(self, encoded: SeriesEncoded) -> Origins:
        counted = np.ones((len(encoded.sizes), self.processor.horizon), dtype=bool)
        return Origins(np.arange(len(encoded.sizes)), encoded.sizes, counted)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return ()

    def encode_inputs(self, inputs: DataInput) -> SeriesEncoded:
        """Returns the contexts of forecasts after the end of each series."""
        encoded = self.processor.encode_scaled(self.task.read(inputs, Diagnostics(), INPUTS), None)
        return replace(encoded, items=self._ends(encoded))

    def element_names(self, encoded: SeriesEncoded, item: int) -> list[str]:
        """Returns how many steps before the forecast each element is."""
        return [str(step) for step in range(-int(encoded.lengths[item]), 0)]

    def scores(self, encoded: SeriesEncoded) -> list[np.ndarray]:
        """Returns the scaled forecasts (horizon,N,Q) of each item."""
        return list(forecast_origins(self.task, self.network, encoded, encoded.items))

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        encoded, forecasts = self.predict_ends(dataset)
        origins = self._ends(encoded)
        pairs = [(row, target) for row in range(len(origins)) for target in range(len(self.processor.targets))]
        return [
            plot_forecast(self.processor, encoded, origins, row, target, forecasts)
            for row, target in pairs[:MAX_CHARTS]
        ]

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        return [
            Usage(f"seriatim forecast {run}", "print(run.forecast())"),
            Usage(f"seriatim forecast {run} --data new.csv --out next.csv", 'print(run.forecast("new.csv"))'),
        ]
