"""Forecast series of numbers: the next value, or the next many.

A network reads `length` values and says the `horizon` values behind them, all at once (direct) or one at a time, fed
with its own (recursive); as numbers (squared error) or as quantiles (pinball loss). One that sees only the past is
asked after every value it reads, not only after the last. Every column is scaled by what its training part shows,
and the network learns what is missing to a simple forecast: the last value, that of a season ago, or a linear one.

    loss = mean (y − ŷ)²      or      mean max(q·(y − ŷ), (q − 1)·(y − ŷ)) over the quantiles q; scaled values

Measured is the backtest: origins roll over the part, and the data before each is all that a forecast sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from ..core import config
from ..core.errors import SeriatimError
from ..core.random import derive, numpy_stream
from ..data import series as series_data
from ..data.series import Series, SeriesSet, SeriesSettings
from ..nn.backbone import BackboneSettings
from ..nn.network import Network, full
from . import _forecast_arrays as arrays_of
from . import _forecast_measures as measures
from ._examples import mismatch, refuse_counting, restore
from ._forecast_arrays import Arrays
from ._forecast_layout import Layout, learn
from ._forecast_network import middle, network, pointwise
from ._forecast_predict import Forecaster, forecasts
from ._task import Batch

__all__ = ["DataSettings", "Settings", "mismatch", "open_run", "prepare", "reopen", "reopen_on"]

DataSettings = SeriesSettings
Share = Annotated[float, Field(gt=0, lt=1)]


class Settings(config.Settings):
    name: str = Field("forecast", description="the task: see `seriatim list tasks`")
    length: int | None = Field(
        None, ge=1, le=100_000, description="values to look back on (default: two seasons, or what the series allow)"
    )
    horizon: int = Field(1, ge=1, le=10_000, description="values to forecast")
    mode: Literal["direct", "recursive"] = Field(
        "direct", description="all values of the horizon at once, or one by one, fed with its own"
    )
    quantiles: tuple[Share, ...] = Field((), description="quantiles to forecast, such as 0.1, 0.5, 0.9, instead of one")
    season: int | None = Field(None, ge=1, description="steps after which things repeat (default: by the frequency)")
    anchor: Literal["auto", "none", "last", "season", "linear"] = Field(
        "auto",
        description="what the network learns the difference to: the mean, the last value, a season before, or the "
        "linear forecast",
    )
    level: Literal["auto", "fixed", "running"] = Field(
        "auto", description="inputs as scaled, or relative to their mean over the context (auto: that, along time)"
    )
    every_step: bool = Field(True, description="learn a forecast after every value read, not only after the last")
    stride: int | None = Field(None, ge=1, description="values between origins of the backtest (default: the horizon)")

    @field_validator("quantiles")
    @classmethod
    def _rising(cls, quantiles: tuple[float, ...]) -> tuple[float, ...]:
        if any(a >= b for a, b in pairwise(quantiles)):
            raise ValueError("rising shares between 0 and 1, such as 0.1, 0.5, 0.9")
        return quantiles

    @property
    def outputs(self) -> int:
        """Steps of the horizon that one pass through the network gives."""
        return 1 if self.mode == "recursive" else self.horizon


@dataclass
class ForecastTask:
    settings: Settings
    layout: Layout
    arrays: Arrays
    seed: int
    notes: list[str] = field(default_factory=list)
    fingerprint: str = ""

    unit = "values"
    objective = "loss"

    def __post_init__(self) -> None:
        self.every_step = self.settings.every_step
        self._orders: dict[int, np.ndarray] = {}
        spans = [one.spans.get("train", (0, 0)) for one in self.arrays.series]
        free = [end - self.layout.length - self.settings.horizon + 1 for _, end in spans]
        self._windows = np.cumsum(np.maximum(free, 0))  # how many training windows end with each series

    # What the loop and the run folder ask

    @property
    def size(self) -> int:
        """Values of the training part."""
        ends = [one.spans["train"][1] for one in self.arrays.series if "train" in one.spans]
        return sum(ends) * len(self.layout.roles.targets)

    def has(self, split: str) -> bool:
        return len(self._origins(split)) > 0

    def save(self, folder: Path) -> None:
        self.layout.save(folder)

    def build(self, model: BackboneSettings) -> Network:
        """The network with fresh weights, the same for the same seed."""
        refuse_counting(model, self.settings.name)
        torch.manual_seed(derive(self.seed, "init"))
        built = self.shape(model)
        # What reads backwards has seen the answers of all steps but the last.
        self.every_step = self.settings.every_step and built.backbone.causal
        if self.settings.mode == "recursive" and not built.backbone.causal:
            raise SeriatimError(
                "task.not-causal",
                "a bidirectional model cannot be fed with its own forecasts one by one",
                "leave model.bidirectional off, or choose task.mode=direct",
            )
        return built

    def shape(self, model: BackboneSettings) -> Network:
        return network(model, self.layout, self.settings, self.arrays.features(self.settings.outputs))

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        """Windows anywhere in the training part; an epoch visits each once, in an order made from its number."""
        total = int(self._windows[-1])
        epochs, inside = np.divmod(step * rows + np.arange(first, last), total)
        wanted = np.array([self._order(int(e))[i] for e, i in zip(epochs, inside, strict=True)], dtype=np.int64)
        series = np.searchsorted(self._windows, wanted, side="right")
        begin = wanted - np.concatenate([[0], self._windows])[series]
        places = (self.arrays.starts[series] + begin)[:, None] + np.arange(self.layout.length)
        steps = self.settings.outputs
        inputs = self.arrays.window(series, places, steps)
        asked = places if self.every_step else places[:, -1:]
        targets, real = self.arrays.targets(series, asked, steps)
        anchors = self.arrays.anchors(series, asked, steps)
        parts = (targets - anchors, real)
        return Batch(
            torch.from_numpy(inputs),
            tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in parts),
            count=max(int(real.sum()), 1),
        )

    def steps_per_epoch(self, rows: int) -> int:
        return max(int(self._windows[-1]) // rows, 1)

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            kept = {number: order for number, order in self._orders.items() if number == epoch - 1}
            order = numpy_stream(self.seed, "shuffle", epoch).permutation(int(self._windows[-1]))
            self._orders = kept | {epoch: order}
        return self._orders[epoch]

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        found, _ = network(batch.inputs, batch.mask)
        wanted, real = batch.targets
        found = full(found)[:, -wanted.shape[1] :].unflatten(-1, (*wanted.shape[2:], -1))  # (B,T,horizon,N,Q)
        losses = pointwise(found, wanted, self.settings.quantiles)
        return torch.where(real, losses, 0.0).sum(), None

    # Evaluation

    def _origins(self, split: str) -> measures.Origins:
        return measures.origins(self.arrays, split, self.settings.stride)

    def _asked(self, split: str, limit: int | None = None) -> measures.Origins:
        at = self._origins(split)
        if not len(at):
            there = [name for name in ("train", "valid", "test") if self.has(name)]
            raise SeriatimError(
                "data.no-split", f"there is no {split} part to evaluate on", f"there is: {', '.join(there) or 'none'}"
            )
        return at.some(None if limit is None else max(limit // (self.settings.horizon), 1))

    def evaluate(self, model: Any, split: str, limit: int | None = None) -> dict[str, float]:
        at = self._asked(split, limit)
        scaled = forecasts(model, self.arrays, self.settings, at.rows, at.places)  # (n,horizon,N,Q)
        true = measures.actual(self.arrays, at)
        places = (self.arrays.starts[at.rows] + at.places - 1)[:, None]
        wanted = self.arrays.targets(at.rows, places, self.settings.horizon)[0][:, 0]
        losses = pointwise(torch.from_numpy(scaled).double(), torch.from_numpy(wanted), self.settings.quantiles)
        real = ~np.isnan(true)
        count = max(int(real.sum()), 1)
        loss = float(torch.where(torch.from_numpy(real), losses, 0.0).sum()) / count
        found = measures.measure(self.arrays, at, true, self._point(at, scaled), self._band(at, scaled))
        return {"loss": loss, **found, "examples": float(real.sum())}

    def _point(self, at: measures.Origins, scaled: np.ndarray) -> np.ndarray:
        return measures.unscaled(self.arrays, at, scaled[..., middle(self.settings.quantiles)])

    def _band(self, at: measures.Origins, scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        if len(self.settings.quantiles) < 2:
            return None
        low, high = (measures.unscaled(self.arrays, at, scaled[..., side]) for side in (0, -1))
        return low, high

    @cached_property
    def _linear(self) -> measures.Linear | None:
        trained = self._windows[-1] > 0
        return measures.Linear(self.arrays, self.layout.length, self.layout.horizon) if trained else None

    def simple(self, at: measures.Origins) -> dict[str, np.ndarray]:
        """The simple forecasts in the units of the data."""
        scaled = {"naive": measures.naive(self.arrays, at)}
        if self.layout.season > 1:
            scaled["seasonal naive"] = measures.naive(self.arrays, at, self.layout.season)
        if self._linear is not None:
            scaled["linear"] = self._linear.forecast(self.arrays, at)
        return {name: measures.unscaled(self.arrays, at, values) for name, values in scaled.items()}

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        at = self._asked(split)
        true = measures.actual(self.arrays, at)
        return {name: measures.measure(self.arrays, at, true, guess) for name, guess in self.simple(at).items()}

    def details(self, model: Any, split: str) -> list[dict[str, Any]]:
        from ._forecast_views import views

        return views(self, model, split)

    def sample(self, model: Any, step: int) -> str:
        """The last values before an origin, what is forecast and what came."""
        from ._forecast_views import spoken

        return spoken(self, model)


def _check(settings: Settings, found: SeriesSet) -> None:
    if settings.mode != "recursive" or settings.horizon == 1:
        return
    if found.roles.past:
        raise SeriatimError(
            "task.recursive",
            f'fed with its own forecasts, a network knows no future "{found.roles.past[0]}"',
            "choose task.mode=direct, or make the column a target or a future column, or leave it out: data.past=[]",
        )
    if settings.quantiles:
        raise SeriatimError(
            "task.recursive",
            "the quantiles of one step say nothing about several steps",
            "choose task.mode=direct for quantiles",
        )


def prepare(
    config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None, layout: Layout | None = None
) -> ForecastTask:
    found = series_data.prepare(config.data, data_dir, notify)
    _check(config.task, found)
    if layout is not None:
        return _task(config, layout, found, [*found.notes, *layout.notes])
    layout = learn(config.task, config.data, found, notify or (lambda note: None))
    task = _task(config, layout, found, [*found.notes, *layout.notes])
    return _with_linear(task) if task.layout.anchor == "linear" else task


def _with_linear(task: ForecastTask) -> ForecastTask:
    """The weights of the linear forecast become a part of the layout."""
    fitted = measures.Linear(task.arrays, task.layout.length, task.settings.outputs)
    layout = replace(task.layout, linear=np.stack(fitted.weights))
    return replace(task, layout=layout, arrays=replace(task.arrays, layout=layout))


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> ForecastTask:
    return prepare(config, data_dir, notify, Layout.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> ForecastTask:
    """Another file, all of which is the test part: origins begin where the first context ends."""
    layout = Layout.load(path)
    found = series_data.prepare_single(source, config.data, layout.base, layout.frequency, data_dir, notify)
    least = layout.length + layout.horizon
    for one in found.series:
        if len(one) < least:
            raise SeriatimError(
                "data.too-short",
                f"series {one.name} has {len(one)} steps, a context of {layout.length} and a horizon of "
                f"{layout.horizon} need {least}",
                "give longer series",
            )
    return _task(config, layout, found, found.notes)


def _task(config: Any, layout: Layout, found: SeriesSet, notes: list[str]) -> ForecastTask:
    def fitted(one: Series) -> int:
        return one.spans["train"][1] if "train" in one.spans else layout.length

    arrays = arrays_of.make(layout, found.series, fitted)
    return ForecastTask(config.task, layout, arrays, config.seed, notes, found.fingerprint)


def open_run(path: Path, config: Any) -> Forecaster:
    layout = Layout.load(path)
    features = arrays_of.features(layout, config.task.outputs)
    built = network(config.model, layout, config.task, features)
    return Forecaster(restore(built, path), layout, config.task, config.data, middle(config.task.quantiles))
