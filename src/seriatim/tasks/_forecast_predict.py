"""Forecasts of a network at given origins, and the answers of a trained run beyond the end of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..data import series as series_data
from ..data.series import Series, SeriesSettings
from ..data.writing import Table
from ..nn.network import full
from . import _forecast_arrays as arrays_of
from ._forecast_arrays import Arrays
from ._forecast_layout import Layout, check_ahead

ELEMENTS = 32_768  # that go through a network at once


@torch.inference_mode()
def forecasts(model: nn.Module, arrays: Arrays, settings: Any, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Scaled forecasts (n,horizon,N,Q) of the series `rows` from the element `places` on; quantiles rise."""
    model.eval()
    size = max(ELEMENTS // arrays.layout.length, 1)
    found = [
        _some(model, arrays, settings, rows[first : first + size], places[first : first + size])
        for first in range(0, len(rows), size)
    ]
    return np.sort(np.concatenate(found), axis=-1)


def _some(model: nn.Module, arrays: Arrays, settings: Any, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    device = next(model.parameters()).device
    context = np.minimum(places, arrays.layout.length)
    steps = np.arange(int(context.max()))
    first = arrays.starts[rows] + places - context
    real = steps < context[:, None]
    flat = np.where(real, first[:, None] + steps, first[:, None])
    mask = None if real.all() else torch.from_numpy(real).to(device)
    inputs = torch.from_numpy(arrays.window(rows, flat, settings.outputs)).to(device)
    inputs = inputs if mask is None else torch.where(mask[:, :, None], inputs, 0.0)
    outputs, state = model(inputs, mask)
    last = outputs[torch.arange(len(rows)), torch.from_numpy(context - 1)]
    ends = (arrays.starts[rows] + places - 1)[:, None]
    targets = arrays.values.shape[1]
    anchors = arrays.anchors(rows, ends, settings.outputs)[:, 0]  # (n,steps,N)
    direct = _shaped(last, settings.outputs, targets) + anchors[..., None]
    if settings.outputs == settings.horizon:
        return direct
    return _fed(model, arrays, settings, rows, ends, direct, state)


def _shaped(outputs: Tensor, steps: int, targets: int) -> np.ndarray:
    found: np.ndarray = full(outputs).cpu().numpy().reshape(len(outputs), steps, targets, -1)
    return found


def _fed(
    model: nn.Module, arrays: Arrays, settings: Any, rows: np.ndarray, ends: np.ndarray, said: np.ndarray, state: Any
) -> np.ndarray:
    """One step after the other: each forecast becomes the next input, and nothing else of what came is read."""
    device = next(model.parameters()).device
    layout, targets = arrays.layout, arrays.values.shape[1]
    first = arrays.starts[rows][:, None]
    back = ends + np.arange(1 - max(layout.length, layout.season), 1)
    tail, real = arrays.values[np.maximum(back, first)], back >= first  # (n,before,N): what is known, then what is said
    found = [said]
    for step in range(1, settings.horizon):
        tail = np.concatenate([tail[:, 1:], found[-1][..., 0]], axis=1)
        real = np.concatenate([real[:, 1:], np.ones((len(rows), 1), dtype=bool)], axis=1)
        inputs = arrays.window(rows, ends + step, 1).copy()
        inputs[:, 0, :targets] = tail[:, -1] - _level(layout, tail, real)
        width = len(layout.roles.numbers)
        inputs[:, 0, width : width + len(layout.flags)] = 0.0  # a forecast is not missing
        outputs, state = model(torch.from_numpy(inputs).to(device), None, state)
        found.append(_shaped(outputs[:, -1], 1, targets) + _anchor(layout, tail, real)[:, None, :, None])
    return np.concatenate(found, axis=1)


def _level(layout: Layout, tail: np.ndarray, real: np.ndarray) -> np.ndarray:
    """As `running_mean` at the end of the tail: (n,N)."""
    if layout.level != "running":
        return np.zeros_like(tail[:, -1])
    there = real[:, -layout.length :, None]
    mean: np.ndarray = np.where(there, tail[:, -layout.length :], 0.0).sum(axis=1) / there.sum(axis=1)
    return mean


def _anchor(layout: Layout, tail: np.ndarray, real: np.ndarray) -> np.ndarray:
    """As `Arrays.anchors` at the end of the tail, for one step: (n,N)."""
    if layout.anchor == "none":
        return np.zeros_like(tail[:, -1])
    if layout.linear is not None:
        return arrays_of.linear(layout.linear, tail[:, -layout.length :])[:, 0]
    place = -1 if layout.anchor == "last" else -layout.season
    return np.where(real[:, [place]], tail[:, place], tail[:, -1])


@dataclass
class Forecaster:
    """A trained run, ready to go on beyond the end of its own series or of others."""

    model: nn.Module
    layout: Layout
    settings: Any
    data: SeriesSettings
    middle: int

    questions = ("predict", "predict_file")

    def beyond(self, found: list[Series]) -> list[dict[str, Any]]:
        """A forecast for each series: times, and for each target the values and the band."""
        for one in found:
            if not len(one):
                raise SeriatimError("data.empty", f"series {one.name} has no values", "give some to go on from")
            check_ahead(one, self.layout)
        arrays = arrays_of.make(self.layout, found, len)
        rows = np.arange(len(found))
        scaled = forecasts(self.model, arrays, self.settings, rows, arrays.sizes)
        answers = []
        for one, scaler, guess in zip(found, arrays.scalers, scaled, strict=True):
            steps = len(one) + np.arange(self.layout.horizon)
            times = [self.layout.frequency.text(float(t)) for t in self.layout.frequency.after(one.start, steps)]
            values = [scaler.invert(guess[..., at].astype(np.float64)) for at in range(guess.shape[-1])]
            answer: dict[str, Any] = {"series": one.name, "time": times}
            for at, target in enumerate(self.layout.roles.targets):
                said = {"forecast": values[self.middle][:, at].tolist()}
                if len(values) > 1:
                    said |= {"low": values[0][:, at].tolist(), "high": values[-1][:, at].tolist()}
                answer[target] = said
            answers.append(answer)
        return answers

    def predict(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Forecasts for histories: lists of numbers, of rows of numbers, or texts such as "1 2 3"."""
        if self.layout.phases:
            raise SeriatimError(
                "predict.times",
                "the model was told the calendar, so that it needs times",
                "give a file with its time column (--data), or train with data.calendar=false",
            )
        return self.beyond([self._history(number, item) for number, item in enumerate(items, 1)])

    def _history(self, number: int, item: Any) -> Series:
        names = self.layout.roles.numbers
        try:
            cells = item.replace(",", " ").split() if isinstance(item, str) else item
            values = np.array(cells, dtype=np.float64)
            values = values.reshape(len(values), -1)
        except (ValueError, TypeError):
            raise SeriatimError(
                "predict.input", f"input {number} is not a list of numbers", 'such as "1 2 3"'
            ) from None
        if values.shape[1] != len(names) or np.isinf(values).any():
            cause = f"input {number} has {values.shape[1]} finite numbers a step, the model reads {len(names)}"
            raise SeriatimError("predict.input", cause, f"give {', '.join(names)}")
        return Series(str(number), 0.0, values, like=f"\0{number}")

    def predict_file(self, source: str = "", data_dir: str | None = None) -> Table:
        """Beyond the end of every series of a file; without one, of those the model was trained on."""
        if source:
            found = series_data.prepare_single(source, self.data, self.layout.base, self.layout.frequency, data_dir)
        else:
            found = series_data.prepare(self.data, data_dir)
        return self.table(self.beyond(found.series))

    def table(self, answers: list[dict[str, Any]]) -> Table:
        band = ["low", "high"] if len(self.settings.quantiles) > 1 else []
        rows = [
            [answer["series"], time, target, *(answer[target][name][step] for name in ("forecast", *band))]
            for answer in answers
            for step, time in enumerate(answer["time"])
            for target in self.layout.roles.targets
        ]
        return Table(["series", "time", "target", "forecast", *band], rows)
