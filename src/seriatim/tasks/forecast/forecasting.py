"""Forecasts of a network, or of the anchor alone, from origins on: all steps at once, or each being the next input."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ...core.state import State
from ...nn.inference import MAX_ELEMENTS, device_of
from ...nn.network import as_float32
from .backtest import Forecasts, median_index
from .encoded import Origins, SeriesEncoded
from .intervals import apply_intervals
from .processor import ForecastProcessor

if TYPE_CHECKING:
    from .task import ForecastTask


@torch.inference_mode()
def forecast_origins(
    task: ForecastTask, network: nn.Module | None, encoded: SeriesEncoded, origins: Origins
) -> np.ndarray:
    """Returns scaled forecasts (n,horizon,N,Q) from origins on, of the anchor alone if there is no network.

    Quantiles rise.
    """
    if network is not None:
        network.eval()
    size = max(MAX_ELEMENTS // task.processor.past_steps, 1)
    batches = [
        origins.take(np.arange(first, min(first + size, len(origins)))) for first in range(0, len(origins), size)
    ]
    return np.sort(np.concatenate([_forecast_batch(task, network, encoded, batch) for batch in batches]), axis=-1)


def _forecast_batch(
    task: ForecastTask, network: nn.Module | None, encoded: SeriesEncoded, origins: Origins
) -> np.ndarray:
    settings, rows, state = task.settings, encoded.last_rows(origins), None
    anchors = encoded.anchors(origins.series, rows, settings.steps)[:, 0]  # (n,steps,N)
    first = anchors[..., None]
    if network is not None:
        device = device_of(network)
        inputs, mask, _ = encoded.contexts(origins, settings.steps)
        outputs, state = network(
            torch.from_numpy(inputs).to(device), None if mask is None else torch.from_numpy(mask).to(device)
        )
        lengths = np.minimum(origins.positions, encoded.context_length)
        last = outputs[torch.arange(len(origins)), torch.from_numpy(lengths - 1)]
        first = first + _to_numpy(last, settings.steps, anchors.shape[-1])
    if settings.steps == settings.horizon:
        return np.asarray(first)
    return _feed_back(task.processor, network, encoded, origins.series, rows, first, state)


def _to_numpy(outputs: Tensor, steps: int, targets: int) -> np.ndarray:
    return np.asarray(as_float32(outputs).cpu().numpy().reshape(len(outputs), steps, targets, -1))


def _feed_back(
    processor: ForecastProcessor,
    network: nn.Module | None,
    encoded: SeriesEncoded,
    series: np.ndarray,
    rows: np.ndarray,
    first: np.ndarray,
    state: State,
) -> np.ndarray:
    """Returns forecasts (n,horizon,N,1), each step being the next input; `first` is that of the first step."""
    targets, width = encoded.values.shape[1], len(processor.variables)
    starts = encoded.starts[series][:, None]
    before = rows + np.arange(1 - processor.past_steps, 1)
    recent, exists = encoded.values[np.maximum(before, starts)], before >= starts  # (n,steps,N): values, then forecasts
    forecasts = [first]
    for step in range(1, processor.horizon):
        recent = np.concatenate([recent[:, 1:], forecasts[-1][..., 0]], axis=1)
        exists = np.concatenate([exists[:, 1:], np.ones((len(rows), 1), dtype=bool)], axis=1)
        following = processor.simple_forecast.next(recent, exists)[:, None, :, None]
        if network is not None:
            inputs = encoded.window(series, rows + step, 1).copy()
            inputs[:, 0, :targets] = recent[:, -1] - _running_level(processor, recent, exists)
            inputs[:, 0, width : width + len(processor.flags)] = 0.0  # a forecast is not missing
            outputs, state = network(torch.from_numpy(inputs).to(device_of(network)), None, state)
            following = following + _to_numpy(outputs[:, -1], 1, targets)
        forecasts.append(following)
    return np.concatenate(forecasts, axis=1)


def _running_level(processor: ForecastProcessor, recent: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Returns the running mean (n,N) at the end of recent values (n,steps,N)."""
    if processor.level != "running":
        return np.zeros_like(recent[:, -1])
    inside = exists[:, -processor.context_length :, None]
    return np.asarray(np.where(inside, recent[:, -processor.context_length :], 0.0).sum(axis=1) / inside.sum(axis=1))


def make_forecasts(
    task: ForecastTask,
    network: nn.Module | None,
    encoded: SeriesEncoded,
    origins: Origins,
    offsets: np.ndarray | None = None,
) -> Forecasts:
    """Returns forecasts in the units of the data, with intervals if the processor has any; see `with_intervals`."""
    scaled = forecast_origins(task, network, encoded, origins)
    levels = () if network is None else task.settings.quantiles
    forecasts = Forecasts(encoded.unscale(origins, scaled), levels)
    if network is None or not task.processor.intervals:
        return forecasts
    return with_intervals(task.processor, encoded, origins, forecasts, scaled, offsets)


def with_intervals(
    processor: ForecastProcessor,
    encoded: SeriesEncoded,
    origins: Origins,
    forecasts: Forecasts,
    scaled: np.ndarray,
    offsets: np.ndarray | None = None,
) -> Forecasts:
    """Returns forecasts with the intervals of the processor; see `apply_intervals`.

    Args:
        processor: It has intervals.
        encoded: The series.
        origins: Where the forecasts begin.
        forecasts: Those in the units of the data.
        scaled: The same forecasts (n,horizon,N,Q) as they are scaled.
        offsets: The ends (n,horizon,I,2) of the intervals of a backtest.
    """
    ends = apply_intervals(processor, encoded, origins, scaled[..., median_index(forecasts.levels)], offsets)
    return replace(forecasts, intervals=ends, percents=tuple(interval.percent for interval in processor.intervals))
