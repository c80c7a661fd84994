"""The task forecast: network, loss, evaluation and what a report shows.

From `context_length` steps the network predicts the next `horizon` steps:

    loss = mean |y − ŷ|      or      mean max(q (y − ŷ), (q − 1)(y − ŷ)) over the quantiles q; scaled values

All steps are predicted at once (direct), or one by one, each forecast being the next input (recursive). The network
predicts the difference to an anchor: the mean, the last value, the value one season before, a linear forecast, ETS or
theta, whichever is best on the validation split; the anchor alone remains the forecast unless the network improves it.
A causal model is trained on a forecast after every step that it reads. Evaluation is a backtest: forecast origins roll
over the split, and a forecast sees only the steps before its origin. Prediction intervals are calibrated on the errors
of the validation split, and those of the test split that are known before the forecast.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from ...core.config import Settings
from ...core.device import numpy_stream
from ...core.errors import Diagnostics, SeriatimError
from ...core.findings import Finding
from ...core.metrics import MetricValues
from ...core.state import State
from ...data.catalogue import remembered_folder
from ...data.dataset import Dataset
from ...data.reader import read_dataset
from ...data.schema import Schema
from ...data.series.calendar import Frequency
from ...data.series.schema import HISTORY
from ...data.series.split import AlongTime, BySeries, latest_series
from ...data.series.table import check_future, make_series
from ...data.source import DataInput, Source, open_source
from ...data.split import Fractions, SplitPolicy
from ...nn.backbone import BackboneSettings
from ...nn.inference import MAX_ELEMENTS, device_of
from ...nn.layers import NumberInput
from ...nn.network import Network, StepHead, as_float32, assemble
from ...report.charts import View
from ...report.significance import ALPHA, format_p, t_tails
from ..batching import Batch, Sampler
from ..capability import Record, capability
from ..metrics import mean_scores
from ..old import Metrics, Output
from ..old import OldTask as Task
from ..predictor import Predictor, Usage
from ..spec import TaskConfig
from .backtest import (
    Forecasts,
    describe_forecasts,
    forecast_metrics,
    make_views,
    median_index,
    plot_forecast,
    window_errors,
)
from .classical import ClassicalForecast, ExponentialSmoothing, Theta
from .encoded import Origins, SeriesEncoded
from .findings import forecast_findings
from .intervals import MAX_ORIGINS, KnownErrors, apply_intervals, calibration_errors, choose_scale
from .processor import ForecastProcessor
from .simple import SimpleForecast, fit_linear
from .spec import FORECAST, INPUTS, SPEC, ForecastSettings

MANY_SERIES, SHORT_SERIES = 100, 200  # at least so many series, all shorter than this, are split by series
SERIES_FRACTIONS = (0.7, 0.2, 0.1)  # of series, by default
MAX_CHARTS = 12
NETWORK_SHARES = (0.25, 0.5, 0.75, 1.0)  # of the network's difference to the anchor that are compared


class WindowSampler(Sampler):
    """All windows in a random order of each epoch; a batch may span two epochs.

    Args:
        count: The number of windows.
        seed: The seed of the run.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._orders: dict[int, np.ndarray] = {}  # of the last two epochs

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(self.count // batch_size, 1)

    def items(self, step: int, batch_size: int) -> np.ndarray:
        epochs, positions = np.divmod(step * batch_size + np.arange(batch_size), self.count)
        return np.concatenate([self._order(int(epoch))[positions[epochs == epoch]] for epoch in np.unique(epochs)])

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            order = numpy_stream(self.seed, "shuffle", epoch).permutation(self.count)
            self._orders = {key: value for key, value in self._orders.items() if key == epoch - 1} | {epoch: order}
        return self._orders[epoch]


# Forecasts of a network


@torch.inference_mode()
def forecast_origins(
    network: nn.Module | None, encoded: SeriesEncoded, settings: ForecastSettings, origins: Origins
) -> np.ndarray:
    """Returns scaled forecasts (n,horizon,N,Q) from origins on, of the anchor alone if there is no network.

    Quantiles rise.
    """
    if network is not None:
        network.eval()
    size = max(MAX_ELEMENTS // encoded.processor.past_steps, 1)
    batches = [
        origins.take(np.arange(first, min(first + size, len(origins)))) for first in range(0, len(origins), size)
    ]
    return np.sort(np.concatenate([_forecast_batch(network, encoded, settings, batch) for batch in batches]), axis=-1)


def _forecast_batch(
    network: nn.Module | None, encoded: SeriesEncoded, settings: ForecastSettings, origins: Origins
) -> np.ndarray:
    rows, state = encoded.last_rows(origins), None
    anchors = encoded.anchors(origins.series, rows, settings.steps)[:, 0]  # (n,steps,N)
    first = anchors[..., None]
    if network is not None:
        device = device_of(network)
        inputs, mask, _ = encoded.contexts(origins, settings.steps)
        outputs, state = network(
            torch.from_numpy(inputs).to(device), None if mask is None else torch.from_numpy(mask).to(device)
        )
        lengths = np.minimum(origins.positions, encoded.processor.context_length)
        last = outputs[torch.arange(len(origins)), torch.from_numpy(lengths - 1)]
        first = first + _to_numpy(last, settings.steps, anchors.shape[-1])
    if settings.steps == settings.horizon:
        return np.asarray(first)
    return _feed_back(network, encoded, settings.horizon, origins.series, rows, first, state)


def _to_numpy(outputs: Tensor, steps: int, targets: int) -> np.ndarray:
    return np.asarray(as_float32(outputs).cpu().numpy().reshape(len(outputs), steps, targets, -1))


def _feed_back(
    network: nn.Module | None,
    encoded: SeriesEncoded,
    horizon: int,
    series: np.ndarray,
    rows: np.ndarray,
    first: np.ndarray,
    state: State,
) -> np.ndarray:
    """Returns forecasts (n,horizon,N,1), each step being the next input; `first` is that of the first step."""
    processor = encoded.processor
    targets, width = encoded.values.shape[1], len(processor.variables)
    starts = encoded.starts[series][:, None]
    before = rows + np.arange(1 - processor.past_steps, 1)
    recent, exists = encoded.values[np.maximum(before, starts)], before >= starts  # (n,steps,N): values, then forecasts
    forecasts = [first]
    for step in range(1, horizon):
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
    network: nn.Module | None,
    encoded: SeriesEncoded,
    settings: ForecastSettings,
    origins: Origins,
    offsets: np.ndarray | None = None,
) -> Forecasts:
    """Returns forecasts in the units of the data, with intervals if the processor has any; see `apply_intervals`."""
    scaled = forecast_origins(network, encoded, settings, origins)
    intervals = None
    if network is not None and encoded.processor.intervals:
        intervals = apply_intervals(encoded, origins, scaled[..., median_index(settings.quantiles)], offsets)
    return Forecasts(encoded.unscale(origins, scaled), () if network is None else settings.quantiles, intervals)


class ForecastPredictor(Predictor):
    """Continues the series of the run, or others."""

    task: ForecastTask
    processor: ForecastProcessor

    @capability(FORECAST)
    def forecast(self, dataset: Dataset, options: Settings) -> list[Record]:
        encoded, forecasts = self.predict_ends(dataset)
        frequency, records = encoded.frequency, []
        for row, name in enumerate(encoded.names):
            steps = encoded.sizes[row] + np.arange(self.processor.horizon)
            times = frequency.after(encoded.start_times[row], steps)
            for step, time in enumerate(times):
                for target, variable in enumerate(self.processor.targets):
                    values = forecasts.quantiles[row, step, target]
                    record = {"series": name, "time": frequency.format(time), "variable": variable}
                    record["forecast"] = float(values[median_index(forecasts.levels)])
                    for number, interval in enumerate(self.processor.intervals):
                        assert forecasts.intervals is not None
                        lower, upper = forecasts.intervals[row, step, target, number].tolist()
                        record |= {f"lower_{interval.percent}": lower, f"upper_{interval.percent}": upper}
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
        return encoded, make_forecasts(self.network, encoded, self.task.settings, self._ends(encoded))

    def _ends(self, encoded: SeriesEncoded) -> Origins:
        counted = np.ones((len(encoded.sizes), self.processor.horizon), dtype=bool)
        return Origins(np.arange(len(encoded.sizes)), encoded.sizes, counted)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return ()

    def encode_inputs(self, inputs: DataInput) -> SeriesEncoded:
        """Returns the contexts of forecasts after the end of each series."""
        encoded = self.processor.encode_scaled(self.task.read(inputs, INPUTS), None)
        return replace(encoded, items=self._ends(encoded))

    def element_names(self, encoded: SeriesEncoded, item: int) -> list[str]:
        """Returns how many steps before the forecast each element is."""
        return [str(step) for step in range(-int(encoded.lengths[item]), 0)]

    def scores(self, encoded: SeriesEncoded) -> list[np.ndarray]:
        """Returns the scaled forecasts (horizon,N,Q) of each item."""
        return list(forecast_origins(self.network, encoded, self.task.settings, encoded.items))

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        encoded, forecasts = self.predict_ends(dataset)
        origins = self._ends(encoded)
        pairs = [(row, target) for row in range(len(origins)) for target in range(len(self.processor.targets))]
        return [plot_forecast(encoded, origins, row, target, forecasts) for row, target in pairs[:MAX_CHARTS]]

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        return [
            Usage(f"seriatim forecast {run}", "print(run.forecast())"),
            Usage(f"seriatim forecast {run} --data new.csv --out next.csv", 'print(run.forecast("new.csv"))'),
        ]


# The task


class ForecastTask(Task[SeriesEncoded]):
    spec = SPEC
    split_policy = AlongTime()
    processor_type = ForecastProcessor
    predictor_type = ForecastPredictor
    default_fractions = (0.7, 0.1, 0.2)
    unit = "values"
    monitor = "mase"
    settings: ForecastSettings
    processor: ForecastProcessor

    # Data

    @classmethod
    def choose_split(cls, config: TaskConfig, dataset: Dataset) -> tuple[SplitPolicy, Fractions]:
        """Splits along time, or by series if there are many short ones."""
        settings: ForecastSettings = config.task
        many = len(dataset) >= MANY_SERIES and max(map(len, dataset["target"])) < SHORT_SERIES
        continued = config.data.validation is not None or config.data.test is not None  # by files of later steps
        if settings.split == "series" or (settings.split == "auto" and many and not continued):
            return BySeries(), config.data.fractions or SERIES_FRACTIONS
        return cls.split_policy, config.data.fractions or cls.default_fractions

    @classmethod
    def read_training_data(
        cls, source: Source, config: TaskConfig, diagnostics: Diagnostics, like: Dataset | None = None
    ) -> Dataset:
        """Returns the series of a source; those of a validation or test source have the frequency of `like`."""
        options, columns, frequency = config.data.read_options(), dict(config.data.columns), None
        trained: Mapping[str, str] | None = None
        if like is not None:
            trained, frequency = like.column_names, Frequency.parse(like["frequency"][0])
            columns = {role: "" for role in cls.schema.roles if role not in trained} | columns
        rows = read_dataset(source, cls.schema, columns, options, diagnostics, trained)
        diagnostics.raise_problems()
        return make_series(rows, config.task.multivariate, diagnostics, frequency, config.data.columns)

    def read(
        self, source: DataInput, schema: Schema | None = None, columns: Mapping[str, str] | None = None
    ) -> Dataset:
        """Returns the series of further data, with the columns and the frequency of the training data."""
        unused = {role: "" for role in self.schema.roles if role not in self.columns}
        rows = super().read(source, self.schema, unused | dict(columns or {}))
        processor, variables = self.processor, self.config.data.columns
        if not all(name.startswith("column ") for name in variables.values()) or not variables:
            # Lists of numbers that are passed have the variables in this order.
            widths = {len(v[0]) for v in rows["target"] if len(v)} if rows.kind("target") is HISTORY else set()
            if widths - {len(processor.variables)}:
                cause = f"{rows.name}: {max(widths)} numbers per step, the model reads {len(processor.variables)}"
                raise SeriatimError("predict.input", cause, f"pass {', '.join(processor.variables)}")
            numbers = itertools.count(1)
            roles = {"target": processor.targets, "past": processor.past, "future": processor.future}
            variables = {role: ",".join(f"column {next(numbers)}" for _ in names) for role, names in roles.items()}
        return make_series(rows, self.settings.multivariate, Diagnostics(), processor.frequency, variables)

    def read_own_data(self, data_dir: str | None = None) -> Dataset:
        """Returns the series the run was trained on, with those of the validation and test files that continue them."""
        self.check_stored_source()
        config, diagnostics = self.config, Diagnostics()
        with remembered_folder(self.data_dir, data_dir) as folder:
            source = open_source(config.data.source, folder)
            specs = (config.data.validation, config.data.test)
            named = [open_source(spec, folder) for spec in specs if spec is not None]
        named = named or [source.splits[name] for name in ("validation", "test") if name in source.splits]
        series = self.read_training_data(source.splits.get("train", source), config, diagnostics)
        parts = {"train": series}
        for name, part in zip(("validation", "test"), named, strict=False):
            parts[name] = self.read_training_data(part, config, diagnostics, series)
        return latest_series(list(AlongTime().separate(parts, diagnostics).values()))

    # Network

    def network(self, model: BackboneSettings) -> Network:
        settings, processor = self.settings, self.processor
        if settings.mode == "recursive" and not model.traits.causal:
            cause = "a bidirectional model cannot read its own forecasts one by one"
            raise SeriatimError("task.not-causal", cause, "omit model.bidirectional, or choose task.mode=direct")
        inputs = NumberInput(processor.features(settings.steps), model.embedding)
        outputs = settings.steps * len(processor.targets) * max(len(settings.quantiles), 1)
        fed_back = settings.horizon - 1 if settings.mode == "recursive" else 0  # forecasts read after the context
        length = processor.context_length + fed_back
        return assemble(model, inputs, inputs.width, length, lambda backbone: StepHead(backbone.width, outputs))

    @property
    def every_step(self) -> bool:
        """Whether the loss has a forecast after every step; a bidirectional model has read the later ones."""
        return self.settings.every_step and self.config.model.traits.causal

    # Training

    def make_sampler(self, train: SeriesEncoded) -> Sampler:
        return WindowSampler(len(train), self.config.seed)

    def collate(self, encoded: SeriesEncoded, items: np.ndarray) -> Batch:
        """Returns contexts (B,T,F), and targets (B,T,steps,N) relative to their anchors, with a mask of known ones."""
        origins, steps = encoded.items.take(items), self.settings.steps
        inputs, mask, rows = encoded.contexts(origins, steps)
        asked = rows if self.every_step else encoded.last_rows(origins)
        targets, known = encoded.targets_after(origins.series, asked, steps)
        if self.every_step and mask is not None:
            known = known & mask[:, :, None, None]
        parts = (targets - encoded.anchors(origins.series, asked, steps), known)
        tensors = tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        batch_mask = None if mask is None else torch.from_numpy(mask)
        return Batch(torch.from_numpy(inputs), tensors, max(int(known.sum()), 1), batch_mask)

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output:
        """Returns scores (B,T,steps,N,Q), relative to the anchors."""
        targets, _ = batch.targets
        scores, _ = network(batch.inputs, batch.mask)
        return Output(as_float32(scores)[:, -targets.shape[1] :].unflatten(-1, (*targets.shape[2:], -1)))

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        targets, known = batch.targets
        return torch.where(known, self._value_losses(output.scores, targets), 0.0).sum()

    def _value_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        return value_losses(scores, targets, self.settings.quantiles, self.processor.loss == "squared")

    # What the validation split decides

    def select(self) -> None:
        """Chooses the anchor that forecasts the validation split best without a network, from every origin in it."""
        if self.settings.anchor != "auto" or "validation" not in self.encoded:
            return
        encoded = self.encoded["validation"]
        origins = encoded.every_origin().sample(MAX_ORIGINS)
        errors: dict[str, float] = {}
        best = self.processor
        candidates = list(self.processor.anchor_candidates(self.encoded["train"], self.settings.steps))
        if self.settings.steps == self.settings.horizon:  # otherwise forecasts are fed back
            for name, fitted in self.classical_forecasts.items():
                candidates.append((name, self.processor.with_classical(name.lower(), fitted)))
        for name, processor in candidates:
            candidate = replace(encoded, processor=processor)
            forecasts = make_forecasts(None, candidate, self.settings, origins)
            error = forecast_metrics(candidate, origins, forecasts).get(self.monitor, np.inf)
            if error < min(errors.values(), default=np.inf):
                best = processor
            errors[name] = error
        chosen, *others = sorted(errors, key=lambda name: errors[name])
        listed = ", ".join(f"{name} {errors[name]:.3g}" for name in others)
        self.diagnostics.note(
            f"anchor: {chosen}, with the lowest MASE on the validation split: {errors[chosen]:.3g} ({listed})"
        )
        self._use(best)

    def _use(self, processor: ForecastProcessor) -> None:
        self.processor = processor
        self.encoded = {name: replace(encoded, processor=processor) for name, encoded in self.encoded.items()}

    def finish(self, network: Network) -> bool:
        """Weights the network against its anchor on the validation split, and calibrates intervals on all known errors.

        The share of the network that has the lowest MASE counts if a t-test over the forecasts finds it better than the
        anchor; else the anchor alone is the forecast.
        """
        self._use(replace(self.processor, intervals=(), unused=""))
        if not self.settings.quantiles:
            share, unused, text = self._choose_share(network)
            self._use(replace(self.processor, unused=unused))
            self.diagnostics.note(text)
            with torch.no_grad():
                for parameter in network.head.parameters():
                    parameter.mul_(share)
        if not self.settings.intervals:
            return True
        encoded = self.encoded["validation"]
        origins = encoded.every_origin().sample(MAX_ORIGINS)
        scaled = forecast_origins(network, encoded, self.settings, origins)[..., median_index(self.settings.quantiles)]
        name = choose_scale(encoded, origins, scaled, self.settings.intervals)
        self._use(replace(self.processor, interval_scale=name))
        intervals = self.known_errors(network, "test").calibrate(self.settings.intervals)
        for interval in intervals:
            if not interval.reachable:
                self.diagnostics.note(
                    f"the {interval.percent} % interval cannot be calibrated on {interval.count} values per step: it "
                    f"is as wide as the largest error, for at least {100 * interval.count // (interval.count + 1)} %"
                )
        self._use(replace(self.processor, intervals=intervals))
        return True

    def known_errors(self, network: nn.Module, split: str) -> KnownErrors:
        """Returns the errors of all values that were forecast until the end of a split, from the validation split on.

        Of a split by series it is the validation split: when an error of another series became known is not told.
        """
        names = ["validation"]
        if split == "test" and split in self.encoded and not self.processor.pooled:
            names.append(split)
        parts, middle = [], median_index(self.settings.quantiles)
        for name in names:
            encoded = self.encoded[name]
            origins = encoded.every_origin().sample(MAX_ORIGINS)
            forecasts = forecast_origins(network, encoded, self.settings, origins)[..., middle]
            anchors = forecast_origins(None, encoded, self.settings, origins)[..., 0]
            errors = [calibration_errors(encoded, origins, scaled) for scaled in (forecasts, anchors)]
            first = origins.positions - encoded.history[origins.series]
            steps = first[:, None] + np.arange(self.settings.horizon)
            if name == "validation":
                steps[:] = -1
            parts.append((*errors, np.repeat(steps, len(self.processor.targets), axis=0)))
        return KnownErrors(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _interval_offsets(self, network: nn.Module, split: str, origins: Origins) -> np.ndarray | None:
        """Returns the ends (n,horizon,I,2) of the intervals of a split; None for those of the processor."""
        if not self.processor.intervals or "validation" not in self.encoded:  # other data
            return None
        percents = [interval.percent for interval in self.processor.intervals]
        return self.known_errors(network, split).rolling_offsets(self.encoded[split], origins, percents)

    def _choose_share(self, network: Network) -> tuple[float, str, str]:
        """Returns the factor of the network beside its anchor, why that is 0 ("" if it is not), and a note on both."""
        encoded = self.require_split("validation")
        origins = encoded.backtest(None)  # forecasts that do not overlap, for the test
        anchor, full = (forecast_origins(n, encoded, self.settings, origins) for n in (None, network))
        # A recursive forecast is no linear function of the outputs: all or nothing.
        shares = (0.0, *(NETWORK_SHARES if self.settings.mode == "direct" else NETWORK_SHARES[-1:]))
        mase, windows = {}, {}
        for share in shares:
            forecasts = Forecasts(encoded.unscale(origins, anchor + share * (full - anchor)))
            mase[share] = forecast_metrics(encoded, origins, forecasts).get("mase", np.inf)
            windows[share] = window_errors(encoded, origins, forecasts)
        best = min(shares[1:], key=lambda share: mase[share])
        gains = windows[0.0] - windows[best]
        gains = gains[~np.isnan(gains)]
        chance = 1.0  # a standard error of two or three forecasts is hardly known: Student's t, one-sided
        if len(gains) > 1 and gains.mean() > 0:
            standard_error = max(float(gains.std(ddof=1) / np.sqrt(len(gains))), np.finfo(float).tiny)
            chance = t_tails(float(gains.mean()) / standard_error, len(gains) - 1) / 2
        on_validation = "on the validation split"
        if mase[best] >= mase[0.0] or chance >= ALPHA:
            figures = f"MASE {mase[best]:.3g} with the network, {mase[0.0]:.3g} without"
            if mase[best] < mase[0.0]:
                figures += f"; {format_p(chance)} over {len(gains)} forecasts" if len(gains) > 1 else "; one forecast"
            unused = f"{on_validation} the network does not improve the anchor by more than chance ({figures})"
            return 0.0, unused, f"the anchor alone is the forecast: {unused}"
        part = "the network" if best == 1.0 else f"{100 * best:.0f} % of the network's difference"
        return (
            best,
            "",
            f"the forecast is the anchor and {part}: MASE {mase[best]:.3g}, without {mase[0.0]:.3g}, {on_validation}",
        )

    # Evaluation

    def origins(self, split: str, limit: int | None = None) -> Origins:
        """Returns the forecast origins of a split; at most so many that about `limit` values are forecast."""
        origins = self.require_split(split).backtest(self.settings.stride)
        return origins.sample(None if limit is None else max(limit // self.settings.horizon, 1))

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        """Returns the loss and the metrics on a split; those of intervals only on a whole split, after training."""
        origins = self.origins(split, limit)
        encoded, settings = self.encoded[split], self.settings
        scaled = forecast_origins(network, encoded, settings, origins)  # (n,horizon,N,Q)
        rows = encoded.last_rows(origins)
        targets = encoded.targets_after(origins.series, rows, settings.horizon)[0][:, 0]
        losses = self._value_losses(torch.from_numpy(scaled).double(), torch.from_numpy(targets))
        known = ~np.isnan(encoded.references(origins))
        loss = float(torch.where(torch.from_numpy(known), losses, 0.0).sum()) / max(int(known.sum()), 1)
        forecasts = Forecasts(encoded.unscale(origins, scaled), settings.quantiles)
        if limit is None and self.processor.intervals:
            offsets = self._interval_offsets(network, split, origins)
            ends = apply_intervals(encoded, origins, scaled[..., median_index(settings.quantiles)], offsets)
            forecasts = replace(forecasts, intervals=ends)
        values = {"loss": loss, **forecast_metrics(encoded, origins, forecasts), "values": float(known.sum())}
        if limit is not None:
            return values
        errors = window_errors(encoded, origins, forecasts)
        return MetricValues(values, examples={"mase": mean_scores(errors[~np.isnan(errors)])})

    @cached_property
    def linear_forecast(self) -> SimpleForecast | None:
        """The linear forecast from the context, fitted on the training split; None without one."""
        train, processor = self.encoded.get("train"), self.processor
        if train is None:
            return None
        return SimpleForecast(weights=fit_linear(train, processor.context_length, processor.horizon))

    @cached_property
    def classical_forecasts(self) -> dict[str, ClassicalForecast]:
        """ETS and theta, fitted on each series of the training split; none without one, or if series are divided."""
        train, season = self.encoded.get("train"), self.processor.season
        if train is None or self.processor.pooled:
            return {}
        return {"ETS": ExponentialSmoothing.fit(train, season), "theta": Theta.fit(train, season)}

    def simple_forecasts(self, split: str, origins: Origins) -> dict[str, np.ndarray]:
        """Returns the forecasts (n,horizon,N) of the baselines in the units of the data."""
        encoded, season = self.encoded[split], self.processor.season
        simple = {"naive": SimpleForecast(1)} | ({"seasonal naive": SimpleForecast(season)} if season > 1 else {})
        if self.linear_forecast is not None:
            simple["linear"] = self.linear_forecast
        results, rows = {}, encoded.last_rows(origins)
        for name, baseline in simple.items():
            scaled = baseline.after(encoded, origins.series, rows, self.processor.horizon)[:, 0]
            results[name] = encoded.unscale(origins, scaled[..., None])[..., 0]
        if "train" in self.encoded and encoded.names == self.encoded["train"].names:
            results |= {name: model.forecast(encoded, origins) for name, model in self.classical_forecasts.items()}
        return results

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of naive, linear and statistical forecasts."""
        encoded, origins = self.encoded[split], self.origins(split)
        return {
            name: forecast_metrics(encoded, origins, Forecasts(values[..., None]))
            for name, values in self.simple_forecasts(split, origins).items()
        }

    def views(self, predictor: Predictor, split: str) -> list[View]:
        encoded, origins = self.encoded[split], self.origins(split)
        offsets = self._interval_offsets(predictor.network, split, origins)
        forecasts = make_forecasts(predictor.network, encoded, self.settings, origins, offsets)
        return make_views(encoded, origins, forecasts, self.simple_forecasts(split, origins))

    def findings(self, metrics: Mapping[str, Mapping[str, float]]) -> list[Finding]:
        last = list(metrics.values())[-1] if metrics else {}
        return forecast_findings(last, self.settings.quantiles, self.settings.horizon, self.processor.unused)

    def sample(self, network: nn.Module) -> str:
        """Returns up to three forecasts of the validation split beside what came."""
        encoded, origins = self.encoded["validation"], self.origins("validation").sample(3)
        forecasts = make_forecasts(network, encoded, self.settings, origins)
        return describe_forecasts(encoded, replace(origins, counted=np.ones_like(origins.counted)), forecasts.values)


def value_losses(scores: Tensor, targets: Tensor, quantiles: tuple[float, ...], squared: bool = False) -> Tensor:
    """Returns the loss of every value (…,N) for scores (…,N,Q): its error, or the pinball loss of the quantiles."""
    errors = targets[..., None] - scores
    if not quantiles:
        return (errors.square() if squared else errors.abs()).squeeze(-1)
    levels = torch.tensor(quantiles, dtype=errors.dtype, device=errors.device)
    return torch.maximum(levels * errors, (levels - 1) * errors).mean(dim=-1)
