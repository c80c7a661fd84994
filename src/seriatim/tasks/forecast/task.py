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

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from ...core.device import numpy_stream
from ...core.errors import Diagnostics, SeriatimError
from ...core.findings import Finding
from ...core.state import State
from ...core.text import evenly_spaced
from ...data.catalogue import remembered_folder
from ...data.dataset import Dataset
from ...data.schema import Schema
from ...data.series.calendar import Frequency
from ...data.series.schema import HISTORY
from ...data.series.split import AlongTime, BySeries, latest_series
from ...data.series.table import make_series
from ...data.source import DataInput, Source, open_source
from ...data.split import Fractions, SplitPolicy
from ...nn.backbone import BackboneSettings
from ...nn.layers import NumberInput
from ...nn.network import Network, StepHead, as_float32, assemble
from ...report.charts import View
from ..base import SAMPLED_SIZE, Batch, Evaluation, Metrics, Output, Progress, Split, Splits, Task
from ..batching import Sampler
from ..metrics import mean_scores
from ..reading import check_stored_source, layout_of, read_rows
from ..spec import TaskConfig
from .backtest import Forecasts, describe_forecasts, forecast_metrics, make_views, median_index, window_errors
from .baselines import Baselines, simple_forecasts
from .calibration import choose_share, known_errors
from .encoded import HeldOut, Origins, SeriesEncoded
from .findings import forecast_findings
from .forecasting import forecast_origins, make_forecasts, with_intervals
from .intervals import MAX_ORIGINS, choose_scale
from .predictor import ForecastPredictor
from .processor import ForecastProcessor
from .spec import SPEC, ForecastSettings

MANY_SERIES, SHORT_SERIES = 100, 200  # from this number on, series that are all shorter than this are split by series
SERIES_FRACTIONS = (0.7, 0.2, 0.1)  # of series, by default
SAMPLED_FORECASTS = 3  # that are shown during training


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


@dataclass(frozen=True, eq=False)
class Backtest:
    """The outputs of an evaluation: forecasts from origins on, in the units of the data."""

    origins: Origins
    forecasts: Forecasts


class ForecastTask(Task[ForecastSettings, ForecastProcessor, SeriesEncoded, Backtest]):
    spec = SPEC
    split_policy = AlongTime()
    processor_type = ForecastProcessor
    predictor_type = ForecastPredictor
    default_fractions = (0.7, 0.1, 0.2)
    unit = "values"
    monitor = "mase"

    # Data

    @classmethod
    def choose_split(cls, config: TaskConfig[ForecastSettings], rows: Dataset) -> tuple[SplitPolicy, Fractions]:
        """Splits along time, or by series if there are many short ones."""
        settings = config.task
        many = len(rows) >= MANY_SERIES and max(map(len, rows["target"])) < SHORT_SERIES
        continued = config.data.validation is not None or config.data.test is not None  # by files of later steps
        if settings.split == "series" or (settings.split == "auto" and many and not continued):
            return BySeries(), config.data.fractions or SERIES_FRACTIONS
        return cls.split_policy, config.data.fractions or cls.default_fractions

    @classmethod
    def clean(
        cls,
        rows: Dataset,
        source: Source,
        config: TaskConfig[ForecastSettings],
        diagnostics: Diagnostics,
        predicting: bool,
        train: Dataset | None = None,
    ) -> Dataset:
        """Returns the series of a table; those of a validation or test file have the frequency of the training data.

        Rows of a prediction stay as they are: see `read`.
        """
        if predicting:
            return rows
        frequency = None if train is None else Frequency.parse(train["frequency"][0])
        return make_series(rows, config.task.multivariate, diagnostics, frequency, config.data.columns)

    def read(
        self,
        source: DataInput,
        diagnostics: Diagnostics,
        schema: Schema | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Dataset:
        """Returns the series of further data, with the columns and the frequency of the training data.

        They are read alike at evaluation and at prediction: a forecast needs the past targets.
        """
        rows = super().read(source, diagnostics, self.schema, columns or {})
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

    def read_own_data(self, diagnostics: Diagnostics, data_dir: str | None = None) -> Dataset:
        """Returns the series the run was trained on, with those of the validation and test files that continue them."""
        config, silent = self.config, Diagnostics()  # the run has the notes
        check_stored_source(config)
        with remembered_folder(self.layout.data_dir, data_dir) as folder:
            source = open_source(config.data.source, folder)
            specs = (config.data.validation, config.data.test)
            named = [open_source(spec, folder) for spec in specs if spec is not None]
        named = named or [source.splits[name] for name in ("validation", "test") if name in source.splits]
        train = read_rows(type(self), config, source.splits.get("train", source), silent)
        parts, like = {"train": train}, layout_of(type(self), train)
        for name, part in zip(("validation", "test"), named, strict=False):
            parts[name] = read_rows(type(self), config, part, silent, like, None, config.data.columns, train)
        return latest_series(list(AlongTime().separate(parts, silent).values()))

    def link(self, splits: Splits[SeriesEncoded], diagnostics: Diagnostics) -> Splits[SeriesEncoded]:
        """Returns splits that know the baselines of the training split, and the splits that calibrate intervals."""
        items = {name: split.items for name, split in splits.parts.items()}
        baselines = Baselines(self.processor, items["train"]) if "train" in items else None
        return self._connect(splits, items, baselines)

    def _connect(
        self, splits: Splits[SeriesEncoded], items: Mapping[str, SeriesEncoded], baselines: Baselines | None
    ) -> Splits[SeriesEncoded]:
        test = None if self.processor.pooled else items.get("test")
        held_out = HeldOut(items["validation"], test) if "validation" in items else None
        return Splits(
            {
                name: replace(split, items=replace(items[name], held_out=held_out, baselines=baselines))
                for name, split in splits.parts.items()
            }
        )

    def select(self, splits: Splits[SeriesEncoded], diagnostics: Diagnostics) -> tuple[Self, Splits[SeriesEncoded]]:
        """Chooses the anchor that forecasts the validation split best without a network, from every origin in it."""
        if self.settings.anchor != "auto" or "validation" not in splits:
            return self, splits
        train, validation = splits.train.items, splits["validation"].items
        origins = validation.every_origin().sample(MAX_ORIGINS)
        candidates = list(self.processor.anchor_candidates(train, self.settings.steps))
        if self.settings.steps == self.settings.horizon and validation.baselines is not None:  # else they are fed back
            for name, fitted in validation.baselines.classical.items():
                candidates.append((name, self.processor.with_classical(name.lower(), fitted)))
        errors: dict[str, float] = {}
        best = self.processor
        for name, processor in candidates:
            anchored = replace(validation, anchor=processor.anchor_of(validation))
            forecasts = make_forecasts(self.with_processor(processor), None, anchored, origins)
            error = forecast_metrics(processor, anchored, origins, forecasts).get(self.monitor, np.inf)
            if error < min(errors.values(), default=np.inf):
                best = processor
            errors[name] = error
        chosen, *others = sorted(errors, key=lambda name: errors[name])
        listed = ", ".join(f"{name} {errors[name]:.3g}" for name in others)
        diagnostics.note(
            f"anchor: {chosen}, with the lowest MASE on the validation split: {errors[chosen]:.3g} ({listed})"
        )
        items = {
            name: replace(split.items, anchor=best.anchor_of(split.items), held_out=None)
            for name, split in splits.parts.items()
        }
        task = self.with_processor(best)
        return task, task._connect(splits, items, train.baselines)

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

    def sampler(self, train: SeriesEncoded, diagnostics: Diagnostics) -> Sampler:
        return WindowSampler(len(train), self.config.seed)

    def collate(self, items: SeriesEncoded, chosen: np.ndarray) -> Batch:
        """Returns contexts (B,T,F), and targets (B,T,steps,N) relative to their anchors, with a mask of known ones."""
        origins, steps = items.items.take(chosen), self.settings.steps
        inputs, mask, rows = items.contexts(origins, steps)
        asked = rows if self.every_step else items.last_rows(origins)
        targets, known = items.targets_after(origins.series, asked, steps)
        if self.every_step and mask is not None:
            known = known & mask[:, :, None, None]
        parts = (targets - items.anchors(origins.series, asked, steps), known)
        tensors = tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        batch_mask = None if mask is None else torch.from_numpy(mask)
        return Batch(torch.from_numpy(inputs), tensors, max(int(known.sum()), 1), batch_mask)

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[Tensor]:
        """Returns scores (B,T,steps,N,Q), relative to the anchors."""
        targets, _ = batch.targets
        scores, _ = network(batch.inputs, batch.mask)
        return Output(as_float32(scores)[:, -targets.shape[1] :].unflatten(-1, (*targets.shape[2:], -1)))

    def loss(self, output: Output[Tensor], batch: Batch, smoothing: float = 0.0) -> Tensor:
        targets, known = batch.targets
        return torch.where(known, self._value_losses(output.scores, targets), 0.0).sum()

    def _value_losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        return value_losses(scores, targets, self.settings.quantiles, self.processor.loss == "squared")

    # Calibration

    def calibrate(
        self, network: Network, validation: Split[SeriesEncoded], diagnostics: Diagnostics
    ) -> tuple[Self, Mapping[str, Tensor]]:
        """Weights the network against its anchor on the validation split, and calibrates intervals on all known errors.

        The anchor alone is the forecast unless the network improves it; its share is a factor of the head.
        """
        items, settings = validation.items, self.settings
        adapted: dict[str, Tensor] = {}
        processor = replace(self.processor, intervals=(), unused="")
        if not settings.quantiles:
            share, unused, text = choose_share(self.with_processor(processor), network, items)
            processor = replace(processor, unused=unused)
            diagnostics.note(text)
            network, adapted = scale_head(network, share)
        if not settings.intervals or items.held_out is None:
            return self.with_processor(processor), adapted
        task, origins = self.with_processor(processor), items.every_origin().sample(MAX_ORIGINS)
        scaled = forecast_origins(task, network, items, origins)[..., median_index(settings.quantiles)]
        scale = choose_scale(processor, items, origins, scaled, settings.intervals)
        processor = replace(processor, interval_scale=scale)
        errors = known_errors(self.with_processor(processor), network, items.held_out, until_test=True)
        intervals = errors.calibrate(settings.intervals)
        for interval in intervals:
            if not interval.reachable:
                diagnostics.note(
                    f"the {interval.percent} % interval cannot be calibrated on {interval.count} values per step: it "
                    f"is as wide as the largest error, for at least {100 * interval.count // (interval.count + 1)} %"
                )
        return self.with_processor(replace(processor, intervals=intervals)), adapted

    def interval_offsets(self, network: nn.Module, split: Split[SeriesEncoded], origins: Origins) -> np.ndarray | None:
        """Returns the ends (n,horizon,I,2) of the intervals of a split; None for those of the processor."""
        if split.items.held_out is None:  # other data
            return None
        percents = [interval.percent for interval in self.processor.intervals]
        errors = known_errors(self, network, split.items.held_out, until_test=split.name == "test")
        return errors.rolling_offsets(split.items, origins, percents)

    # Evaluation

    def row_sizes(self, rows: Dataset) -> np.ndarray:
        """Returns the number of steps of each series."""
        return np.fromiter(map(len, rows["target"]), np.int64, len(rows))

    def sample_split(self, split: Split[SeriesEncoded], limit: int | None = None) -> Split[SeriesEncoded]:
        """Returns the split with evenly spaced forecast origins, from which about `limit` values are forecast."""
        limit = SAMPLED_SIZE if limit is None else limit
        sampled = split.items.backtest(self.settings.stride).sample(max(limit // self.settings.horizon, 1))
        return replace(split, items=replace(split.items, sampled=sampled))

    def evaluate(
        self, network: nn.Module, split: Split[SeriesEncoded], progress: Progress | None = None
    ) -> Evaluation[SeriesEncoded, Backtest]:
        """Returns metrics and forecasts of a backtest; those of intervals on a whole split, after training."""
        items, settings = split.items, self.settings
        origins = items.backtest(settings.stride) if items.sampled is None else items.sampled
        scaled = forecast_origins(self, network, items, origins)  # (n,horizon,N,Q)
        rows = items.last_rows(origins)
        targets = items.targets_after(origins.series, rows, settings.horizon)[0][:, 0]
        losses = self._value_losses(torch.from_numpy(scaled).double(), torch.from_numpy(targets))
        known = ~np.isnan(items.references(origins))
        loss = float(torch.where(torch.from_numpy(known), losses, 0.0).sum()) / max(int(known.sum()), 1)
        forecasts = Forecasts(items.unscale(origins, scaled), settings.quantiles)
        if items.sampled is None and self.processor.intervals:
            offsets = self.interval_offsets(network, split, origins)
            forecasts = with_intervals(self.processor, items, origins, forecasts, scaled, offsets)
        measured = forecast_metrics(self.processor, items, origins, forecasts)
        errors = window_errors(self.processor, items, origins, forecasts)
        metrics = {"loss": loss, **measured, "values": float(known.sum())}
        examples = {"mase": mean_scores(errors[~np.isnan(errors)])}
        return Evaluation(split, metrics, Backtest(origins, forecasts), examples)

    def baselines(self, splits: Splits[SeriesEncoded], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of naive, linear and statistical forecasts."""
        results: dict[str, dict[str, Metrics]] = {}
        for split in names:
            items = splits[split].items
            origins = items.backtest(self.settings.stride)
            results[split] = {
                name: forecast_metrics(self.processor, items, origins, Forecasts(values[..., None]))
                for name, values in simple_forecasts(self.processor, items, origins).items()
            }
        return results

    # Report

    def views(self, evaluation: Evaluation[SeriesEncoded, Backtest]) -> list[View]:
        items, result = evaluation.split.items, evaluation.outputs
        simple = simple_forecasts(self.processor, items, result.origins)
        return make_views(self.processor, items, result.origins, result.forecasts, simple)

    def findings(self, evaluations: Mapping[str, Evaluation[SeriesEncoded, Backtest]]) -> list[Finding]:
        last = list(evaluations.values())[-1].metrics if evaluations else {}
        return forecast_findings(last, self.settings.quantiles, self.settings.horizon, self.processor.unused)

    def sample(self, evaluation: Evaluation[SeriesEncoded, Backtest]) -> str:
        """Returns up to three forecasts beside what came."""
        origins, forecasts = evaluation.outputs.origins, evaluation.outputs.forecasts.values
        shown = (
            np.arange(len(origins))
            if len(origins) <= SAMPLED_FORECASTS
            else evenly_spaced(len(origins), SAMPLED_FORECASTS)
        )
        chosen = origins.take(shown)
        whole = replace(chosen, counted=np.ones_like(chosen.counted))
        return describe_forecasts(self.processor, evaluation.split.items, whole, forecasts[shown])


def scale_head(network: Network, share: float) -> tuple[Network, dict[str, Tensor]]:
    """Returns a copy of a network whose head is multiplied by a factor, and the weights of that head by name."""
    scaled = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in scaled.head.parameters():
            parameter.mul_(share)
    return scaled, {f"head.{name}": parameter.detach() for name, parameter in scaled.head.named_parameters()}


def value_losses(scores: Tensor, targets: Tensor, quantiles: tuple[float, ...], squared: bool = False) -> Tensor:
    """Returns the loss of every value (…,N) for scores (…,N,Q): its error, or the pinball loss of the quantiles."""
    errors = targets[..., None] - scores
    if not quantiles:
        return (errors.square() if squared else errors.abs()).squeeze(-1)
    levels = torch.tensor(quantiles, dtype=errors.dtype, device=errors.device)
    return torch.maximum(levels * errors, (levels - 1) * errors).mean(dim=-1)
