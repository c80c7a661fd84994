"""Forecasts of a network at forecast origins, and the predictor that continues series after their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.config import Settings
from ...core.errors import SeriatimError
from ...data.dataset import Dataset
from ...data.kinds import LABEL, NUMBER
from ...data.series.calendar import Frequency
from ...data.series.schema import SCHEMA, TIME
from ...data.series.table import check_future
from ...nn.network import as_float32
from ...report.charts import View
from ..batching import MAX_ELEMENTS
from ..predictor import Predictor, Usage, capability
from .encoded import Origins, SeriesEncoded, apply_linear
from .metrics import median_index
from .views import plot_forecast

if TYPE_CHECKING:
    from .processor import ForecastProcessor, ForecastSettings
    from .task import ForecastTask

MAX_CHARTS = 12
# A forecast reads the past targets; on the command line they are its only required input.
INPUTS = replace(
    SCHEMA, fields=tuple(replace(f, required=True, target=False) if f.target else f for f in SCHEMA.fields)
)


def read_context(
    encoded: SeriesEncoded, origins: Origins, steps: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Returns the contexts before origins.

    Returns:
        Inputs (B,T,F), zero where padded; a mask (B,T), None if nothing is padded; and their rows (B,T).
    """
    lengths = np.minimum(origins.positions, encoded.processor.context_length)
    first = encoded.starts[origins.series] + origins.positions - lengths
    steps_back = np.arange(int(lengths.max()))
    mask = steps_back < lengths[:, None]
    rows = np.where(mask, first[:, None] + steps_back, first[:, None])
    inputs = encoded.window(origins.series, rows, steps)
    if mask.all():
        return inputs, None, rows
    return np.where(mask[:, :, None], inputs, np.float32(0)), mask, rows


@torch.inference_mode()
def forecast_origins(
    network: nn.Module, encoded: SeriesEncoded, settings: ForecastSettings, origins: Origins
) -> np.ndarray:
    """Returns scaled forecasts (n,horizon,N,Q) from origins on; quantiles rise."""
    network.eval()
    size = max(MAX_ELEMENTS // encoded.processor.context_length, 1)
    batches = [
        origins.take(np.arange(first, min(first + size, len(origins)))) for first in range(0, len(origins), size)
    ]
    return np.sort(np.concatenate([_forecast_batch(network, encoded, settings, batch) for batch in batches]), axis=-1)


def _forecast_batch(
    network: nn.Module, encoded: SeriesEncoded, settings: ForecastSettings, origins: Origins
) -> np.ndarray:
    device = next(network.parameters()).device
    inputs, mask, _ = read_context(encoded, origins, settings.steps)
    outputs, state = network(
        torch.from_numpy(inputs).to(device), None if mask is None else torch.from_numpy(mask).to(device)
    )
    lengths = np.minimum(origins.positions, encoded.processor.context_length)
    last = outputs[torch.arange(len(origins)), torch.from_numpy(lengths - 1)]
    rows = (encoded.starts[origins.series] + origins.positions - 1)[:, None]
    targets = encoded.values.shape[1]
    anchors = encoded.anchors(origins.series, rows, settings.steps)[:, 0]  # (n,steps,N)
    first = _to_numpy(last, settings.steps, targets) + anchors[..., None]
    if settings.steps == settings.horizon:
        return first
    return _feed_back(network, encoded, settings.horizon, origins.series, rows, first, state)


def _to_numpy(outputs: Tensor, steps: int, targets: int) -> np.ndarray:
    return np.asarray(as_float32(outputs).cpu().numpy().reshape(len(outputs), steps, targets, -1))


def _feed_back(
    network: nn.Module,
    encoded: SeriesEncoded,
    horizon: int,
    series: np.ndarray,
    rows: np.ndarray,
    first: np.ndarray,
    state: Any,
) -> np.ndarray:
    """Returns forecasts (n,horizon,N,1), each step being the next input; `first` is that of the first step."""
    device, processor = next(network.parameters()).device, encoded.processor
    targets, width = encoded.values.shape[1], len(processor.variables)
    starts = encoded.starts[series][:, None]
    before = rows + np.arange(1 - max(processor.context_length, processor.season), 1)
    recent, exists = encoded.values[np.maximum(before, starts)], before >= starts  # (n,steps,N): values, then forecasts
    forecasts = [first]
    for step in range(1, horizon):
        recent = np.concatenate([recent[:, 1:], forecasts[-1][..., 0]], axis=1)
        exists = np.concatenate([exists[:, 1:], np.ones((len(rows), 1), dtype=bool)], axis=1)
        inputs = encoded.window(series, rows + step, 1).copy()
        inputs[:, 0, :targets] = recent[:, -1] - _running_level(processor, recent, exists)
        inputs[:, 0, width : width + len(processor.flags)] = 0.0  # a forecast is not missing
        outputs, state = network(torch.from_numpy(inputs).to(device), None, state)
        anchor = _anchor_of(processor, recent, exists)[:, None, :, None]
        forecasts.append(_to_numpy(outputs[:, -1], 1, targets) + anchor)
    return np.concatenate(forecasts, axis=1)


def _running_level(processor: ForecastProcessor, recent: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Returns the running mean (n,N) at the end of recent values (n,steps,N)."""
    if processor.level != "running":
        return np.zeros_like(recent[:, -1])
    inside = exists[:, -processor.context_length :, None]
    return np.asarray(np.where(inside, recent[:, -processor.context_length :], 0.0).sum(axis=1) / inside.sum(axis=1))


def _anchor_of(processor: ForecastProcessor, recent: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Returns the anchor (n,N) of the step after recent values (n,steps,N)."""
    if processor.anchor == "none":
        return np.zeros_like(recent[:, -1])
    if processor.linear is not None:
        return apply_linear(processor.linear, recent[:, -processor.context_length :])[:, 0]
    back = -1 if processor.anchor == "last" else -processor.season
    return np.where(exists[:, [back]], recent[:, back], recent[:, -1])


class ForecastPredictor(Predictor):
    """Continues the series of the run, or others."""

    task: ForecastTask
    processor: ForecastProcessor

    @capability(
        outputs={"forecast": NUMBER, "time": TIME, "series": LABEL, "variable": LABEL},
        inputs=INPUTS,
        per_row=False,
        own_data=True,
    )
    def forecast(self, dataset: Dataset, options: Settings) -> list[dict[str, Any]]:
        """Forecast the values after the end of each series, with a column per quantile if there are any."""
        encoded, quantiles = self.predict_ends(dataset)
        levels, frequency = self.task.settings.quantiles, encoded.frequency
        middle, records = median_index(levels), []
        for row, name in enumerate(encoded.names):
            steps = encoded.sizes[row] + np.arange(self.processor.horizon)
            times = frequency.after(encoded.start_times[row], steps)
            for step, time in enumerate(times):
                for target, variable in enumerate(self.processor.targets):
                    values = quantiles[row, step, target]
                    record = {"series": name, "time": frequency.format(time), "variable": variable}
                    record["forecast"] = float(values[middle])
                    record |= {f"q{level:g}": float(value) for level, value in zip(levels, values, strict=False)}
                    records.append(record)
        return records

    def predict_ends(self, dataset: Dataset) -> tuple[SeriesEncoded, np.ndarray]:
        """Returns the encoded series and the forecasts (series,horizon,N,Q) after their ends, in the data's units."""
        if self.processor.cycles and "time" not in dataset:
            cause = "the model reads the calendar, so series need times"
            remedy = "pass a file with its time column (--data), or train with task.calendar=false"
            raise SeriatimError("predict.times", cause, remedy)
        check_future(dataset, Frequency.parse(dataset["frequency"][0]), self.processor.horizon)
        encoded = self.processor.encode_scaled(dataset, None)
        origins = self._ends(encoded)
        scaled = forecast_origins(self.network, encoded, self.task.settings, origins)
        values = [encoded.unscale(origins, scaled[..., quantile]) for quantile in range(scaled.shape[-1])]
        return encoded, np.stack(values, axis=-1)

    def _ends(self, encoded: SeriesEncoded) -> Origins:
        counted = np.ones((len(encoded.sizes), self.processor.horizon), dtype=bool)
        return Origins(np.arange(len(encoded.sizes)), encoded.sizes, counted)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return ()

    def encode_inputs(self, inputs: Any) -> SeriesEncoded:
        """Returns the contexts of forecasts after the end of each series."""
        encoded = self.processor.encode_scaled(self.task.read(inputs, INPUTS), None)
        return replace(encoded, items=self._ends(encoded))

    def element_names(self, encoded: SeriesEncoded, item: int) -> list[str]:
        """Returns how many steps before the forecast each element is."""
        return [str(step) for step in range(-int(encoded.lengths[item]), 0)]

    def scores(self, encoded: SeriesEncoded) -> list[Any]:
        """Returns the scaled forecasts (horizon,N,Q) of each item."""
        return list(forecast_origins(self.network, encoded, self.task.settings, encoded.items))

    def charts(
        self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Mapping[str, Any]]
    ) -> list[View]:
        encoded, quantiles = self.predict_ends(dataset)
        origins, levels = self._ends(encoded), self.task.settings.quantiles
        pairs = [(row, target) for row in range(len(origins)) for target in range(len(self.processor.targets))]
        return [plot_forecast(encoded, origins, row, target, quantiles, levels) for row, target in pairs[:MAX_CHARTS]]

    def usage(self, run: str) -> list[Usage]:
        return [
            Usage(f"seriatim forecast {run}", "print(run.forecast())"),
            Usage(f"seriatim forecast {run} --data new.csv --out next.csv", 'print(run.forecast("new.csv"))'),
        ]
