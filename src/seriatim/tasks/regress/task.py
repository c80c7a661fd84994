"""The task regress: network, loss, evaluation and what a report shows.

The outputs of the backbone are pooled to one vector, and a linear layer gives the values in the units of the data:

    ŷ = scale · (W pool(h) + b) + shift        scale and shift: standard deviation and mean of the training values

Trained by the squared error, each value divided by its scale, so that several values count the same. The gradient-free
model `nadaraya_watson` takes sequences of numbers of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import Diagnostics, SeriatimError
from ...core.metrics import Measured
from ...core.text import evenly_spaced, format_number
from ...data.dataset import Dataset
from ...data.kinds import NUMBER
from ...data.sequences import Sequences
from ...data.split import Stratified
from ...models.nadaraya_watson import NadarayaWatson
from ...models.nadaraya_watson import Settings as NadarayaWatsonSettings
from ...nn.backbone import Backbone, BackboneSettings
from ...nn.network import ScaledHead
from ...nn.settings import ModelSettings
from ...report.charts import Heatmap, Lines, Scatter, Series, Table, View, matrix
from ..base import Progress
from ..batching import Batch
from ..capability import Call, NoOptions, Record, capability
from ..codecs import NumberLayout, pretrained_codec
from ..inspection import ExplainedOutput, find_name
from ..metrics import mean_and_std, pearson, r_squared, regression_metrics, spearman
from ..pooled import PooledPredictor, PooledProcessor, PooledTask, Scores
from ..predictor import Predictor
from ..processor import Tokenizers, Values, check_numbers, name_mismatches
from ..spec import TaskConfig
from ..tfidf import Loss
from ..values import Evaluation, Labeled, Metrics, Output, Split, Splits
from .spec import REGRESS, SPEC, RegressSettings

MAX_POINTS = 2_000  # of a scatter plot
MAX_ERRORS = 20  # in the table of the largest errors
CURVE_POINTS = 200
MAX_DOTS = 1_000  # training rows drawn behind a curve
MAX_DIMENSIONS, MAX_ROWS = 20, 20_000  # up to which nadaraya_watson is tried by --model auto
MAX_CELLS = 100  # on a side of the heat map of weights


# Items and outputs


@dataclass(frozen=True, eq=False)
class RegressItems(Labeled):
    """Items with the values to predict."""

    train: Labeled | None = field(default=None, kw_only=True)  # those of the training split, if it is known


@dataclass(frozen=True, eq=False)
class Curve:
    """What is predicted over an input that is one number."""

    x: np.ndarray  # (n,)
    values: np.ndarray  # (n,targets)
    dots: np.ndarray  # (m,) inputs of training rows
    dot_values: np.ndarray  # (m,targets)


@dataclass(frozen=True, eq=False)
class KernelWeights:
    """The weight of training rows in some predictions (rows,columns); a column may be several training rows.

    Rows and columns are sorted by the input if that is one number, else by the first target.
    """

    rows: np.ndarray  # (rows,)
    columns: np.ndarray  # (columns,) means of training rows
    values: np.ndarray
    note: str
    feature: str
    single: bool  # whether the input is one number


@dataclass(frozen=True, eq=False)
class RegressScores(Scores):
    """The predicted values of all items (items,targets), and what else the report shows."""

    curve: Curve | None = None
    weights: KernelWeights | None = None


# Processor


@dataclass(frozen=True)
class RegressProcessor(PooledProcessor[RegressItems]):
    """Encodes inputs by their kind; knows the names, mean and standard deviation of the target values."""

    items_type: ClassVar[type[Any]] = RegressItems

    targets: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        check_numbers("mean and std", (self.mean, self.std), 2, len(self.targets))

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        values = target_values(train, diagnostics)
        diagnostics.raise_problems()
        columns = [column.name for column in train.columns["target"]]
        width = values.shape[1]
        plain = ["prediction"] if width == 1 else [f"value {number}" for number in range(1, width + 1)]
        mean, std = mean_and_std(values)
        codec = cls.fit_input(train, config, pretrained, diagnostics)
        names = tuple(columns if len(columns) == width else plain)
        return cls(codec, names, tuple(map(float, mean)), tuple(map(float, std)))

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        codec = pretrained_codec(tokenizers, max_length, config or {})
        return cls(codec, labels, (0.0,) * len(labels), (1.0,) * len(labels))

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.targets

    @property
    def numbers(self) -> NumberLayout:
        """The numbers of each element of an input, which must have some."""
        assert self.input.number_layout is not None
        return self.input.number_layout

    def encode_targets(self, dataset: Dataset, diagnostics: Diagnostics) -> np.ndarray:
        """Returns the target values (rows, targets) of float32."""
        values = target_values(dataset, diagnostics)
        if values.shape[1] == len(self.targets):
            return values
        cause = f"{dataset.name}: {values.shape[1]} numbers to predict, the model has {len(self.targets)}"
        diagnostics.report("data.target", cause, f"pass {', '.join(self.targets)}")
        return np.zeros((len(dataset), len(self.targets)), np.float32)


def target_values(dataset: Dataset, diagnostics: Diagnostics) -> np.ndarray:
    """Returns the numbers to predict (rows, targets) of float32; reports missing ones and rows of another width."""
    columns = dataset.columns["target"]
    if columns[0].kind is NUMBER:
        values = dataset.matrix("target")
    else:
        cells = zip(*(column.values for column in columns), strict=True)
        lists = [np.concatenate([np.reshape(cell, -1) for cell in row]) for row in cells]
        width = len(lists[0]) if lists else 1
        for row, numbers in enumerate(lists):
            if len(numbers) != width:
                cause = f"{dataset.locations[row]}: {len(numbers)} numbers to predict, the first row has {width}"
                diagnostics.report("data.target", cause, "give every row the same number of targets")
                lists[row] = np.zeros(width)
        values = np.stack(lists) if lists else np.zeros((0, width))
    for row, column in np.argwhere(np.isnan(values)).tolist():
        name = columns[column if len(columns) == values.shape[1] else 0].name
        cause = f'{dataset.locations[row]}: column "{name}": the number is missing'
        diagnostics.report("data.number", cause, "fill it in, or remove the row")
    return values.astype(np.float32)


class RegressPredictor(PooledPredictor):
    processor: RegressProcessor

    @capability(REGRESS)
    def regress(self, call: Call[NoOptions]) -> list[Record]:
        names = self.processor.targets if len(self.processor.targets) > 1 else ("prediction",)
        scores = self.scores(self.task.encode(call.rows, call.diagnostics))
        predictions = [dict(zip(names, map(float, values), strict=True)) for values in scores]
        return self.processor.input.add_names(call.rows, predictions)

    def scores(self, encoded: RegressItems) -> list[np.ndarray]:
        if self.task.config.model.gradient_free:
            return list(self.network.predict(self.task.points(self.network, encoded)))
        return super().scores(encoded)

    def explained(self, output: Tensor, target: str | None) -> ExplainedOutput:
        names = self.processor.outputs
        index = 0 if target is None else find_name(names, target, "there is no value")
        prediction = f"predicted: {names[index]} {format_number(float(output[0, index]))}"
        return ExplainedOutput(f"the value {names[index]}", lambda values: values[:, index], prediction)


class RegressTask(PooledTask[RegressSettings, RegressProcessor, RegressItems, RegressScores]):
    spec = SPEC
    split_policy = Stratified()
    processor_type = RegressProcessor
    predictor_type = RegressPredictor
    hub_head = "regression"

    def hub_config(self) -> Values:
        return {"problem_type": "regression"}

    def head(self, backbone: Backbone, model: BackboneSettings) -> nn.Module:
        head = ScaledHead(super().head(backbone, model), len(self.processor.targets))
        head.shift.copy_(torch.tensor(self.processor.mean))
        head.scale.copy_(torch.tensor(self.processor.std))
        return head

    def loss(self, output: Output[Tensor], batch: Batch, smoothing: float = 0.0) -> Tensor:
        return self._squared_distance(output.scores, batch.targets)

    def distillation_loss(self, output: Output[Tensor], teacher: Output[Tensor], temperature: float) -> Tensor:
        """Returns the squared distance: a number has no alternatives for a temperature to bring out."""
        return self._squared_distance(output.scores, teacher.scores)

    def _squared_distance(self, values: Tensor, references: Tensor) -> Tensor:
        scale = values.new_tensor(self.processor.std)
        return (((values - references) / scale) ** 2).mean(dim=-1).sum()

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        """Returns nothing if both predict one value, whatever the name of its column."""
        names, teacher_names = self.processor.targets, cast(RegressProcessor, teacher.processor).targets
        if len(names) == len(teacher_names) == 1:
            return []
        return name_mismatches(names, teacher_names, "value")

    def link(self, splits: Splits[RegressItems], diagnostics: Diagnostics) -> Splits[RegressItems]:
        """Returns the splits with a reference to the training items, over which curves are drawn."""
        if "train" not in splits:
            return super().link(splits, diagnostics)
        train = splits.train.items
        if self.config.model.gradient_free and self.processor.input.number_layout is not None:
            steps = usual_length(train)
            for split in splits.parts.values():
                odd = np.flatnonzero(split.items.lengths != steps)
                if len(odd):
                    raise unequal_length(split.location(int(odd[0])), int(split.items.lengths[odd[0]]), steps)
        parts = {name: replace(split, items=replace(split.items, train=train)) for name, split in splits.parts.items()}
        return super().link(Splits(parts), diagnostics)

    # Gradient-free models

    def candidates(self, train: Split[RegressItems]) -> tuple[str, ...]:
        """Nadaraya–Watson regression is for few numbers: in many dimensions all points are far from each other."""
        codec, lengths = self.processor.input, train.items.lengths
        numbers = 0 if codec.number_layout is None else len(codec.number_layout.features) * codec.longest
        few = 0 < numbers <= MAX_DIMENSIONS and len(lengths) <= MAX_ROWS and (lengths == codec.longest).all()
        return (*super().candidates(train), *(["nadaraya_watson"] if few else []))

    def network(self, model: BackboneSettings) -> nn.Module:
        return NadarayaWatson(model) if isinstance(model, NadarayaWatsonSettings) else super().network(model)

    def fit(
        self, model: ModelSettings, train: Split[RegressItems], diagnostics: Diagnostics, limit: int | None = None
    ) -> NadarayaWatson:
        if not isinstance(model, NadarayaWatsonSettings):
            raise self.unsupported_model(model)
        numbers, inputs = self.processor.input.number_layout, self.processor.input.modality.plural
        if numbers is None:
            cause = f"{model.name} needs distances between numbers, and the inputs are {inputs}"
            raise SeriatimError("nadaraya-watson.text", cause, "choose another --model: `seriatim list models`")
        steps = usual_length(train.items)
        std = np.tile(np.array(numbers.std, np.float32), steps) if self.settings.scaling == "standard" else None
        points, targets = to_points(train.items, steps)[:limit], train.items.labels[:limit]
        return NadarayaWatson.fit(points, targets, model, std, diagnostics.note)

    def resize(
        self, model: ModelSettings, train: Split[RegressItems], parameters: int, limit: int | None = None
    ) -> ModelSettings:
        return model.model_copy(update={"entries": parameters})

    def points(self, model: NadarayaWatson, items: Labeled) -> np.ndarray:
        """Returns inputs as vectors (items, steps · features), as `nadaraya_watson` reads them."""
        return to_points(items, model.points.shape[1] // len(self.processor.numbers.features))

    # Evaluation

    def evaluate(
        self, network: nn.Module, split: Split[RegressItems], progress: Progress | None = None
    ) -> Evaluation[RegressItems, RegressScores]:
        if not isinstance(network, NadarayaWatson):
            return super().evaluate(network, split, progress)
        values, targets = network.predict(self.points(network, split.items)), split.items.labels
        loss = float((((values - targets) / network.scale) ** 2).mean())
        measured = regression_metrics(values, targets)
        outputs = self.outputs_of(network, split, values)
        return Evaluation(split, {"loss": loss, **measured}, outputs, measured.examples)

    def outputs_of(self, network: nn.Module, split: Split[RegressItems], values: np.ndarray) -> RegressScores:
        weights = None
        if isinstance(network, NadarayaWatson):
            weights = self._weights(network, self.points(network, split.items), values)
        return RegressScores(values, self._curve(network, split.items.train), weights)

    def _curve(self, network: nn.Module, train: Labeled | None) -> Curve | None:
        """Returns what is predicted between the least and the largest training input; None if inputs have several
        numbers."""
        codec, layout = self.processor.input, self.processor.input.number_layout
        if layout is None or len(layout.features) != 1 or codec.longest != 1 or train is None:
            return None
        x = cast(Sequences, train.inputs).values[:, 0].astype(np.float64)
        line = np.linspace(x.min(), x.max(), CURVE_POINTS)
        items = RegressItems(Sequences.equal(line.astype(np.float32)[:, None, None]))
        dots = evenly_spaced(len(x), MAX_DOTS)
        values = np.stack(self.predictor(network).scores(items))
        return Curve(line, values, x[dots], train.labels[dots])

    def _weights(self, model: NadarayaWatson, points: np.ndarray, values: np.ndarray) -> KernelWeights:
        """Returns the weights of the training rows in evenly spaced predictions.

        Neighboring training rows share a column, their weights added, so that a row sums to 1.
        """
        single = points.shape[1] == 1
        examples = model.points if single else model.values
        train_keys, keys = examples[:, 0].cpu().numpy(), (points if single else values)[:, 0]
        order = np.argsort(keys, kind="stable")[evenly_spaced(len(keys), MAX_CELLS)]
        groups = np.array_split(np.argsort(train_keys, kind="stable"), min(MAX_CELLS, len(train_keys)))
        weights = model.weights(points[order])
        feature = self.processor.numbers.features[0] if single else self.processor.targets[0]
        bandwidth = float(model.bandwidth)
        distance = f"{bandwidth * float(model.unit[0]):.3g} in {feature}" if single else f"{bandwidth:.3g}"
        grouped = "; a column is several rows, their weights added" if len(groups) < len(train_keys) else ""
        return KernelWeights(
            keys[order],
            np.array([train_keys[group].mean() for group in groups]),
            np.stack([weights[:, group].sum(axis=1) for group in groups], axis=1),
            f"{model.settings.kernel} kernel, bandwidth {distance}{grouped}",
            feature,
            single,
        )

    def measure(self, items: RegressItems, scores: Sequence[np.ndarray]) -> Measured:
        return regression_metrics(np.stack(list(scores)), items.labels)

    def baselines(self, splits: Splits[RegressItems], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of predicting the mean of the training split, and of texts of a TF-IDF model."""
        mean, std = np.array(self.processor.mean, np.float32), np.array(self.processor.std, np.float32)
        linear = self.linear_model(splits)
        measured: dict[str, dict[str, Metrics]] = {}
        for name in names:
            targets = splits[name].items.labels
            predictions = {"mean": np.tile(mean, (len(targets), 1))}
            if linear is not None:
                values = linear.scores(splits[name].rows)
                predictions["TF-IDF with ridge regression"] = (values * std + mean).astype(np.float32)
            measured[name] = {
                method: {
                    "loss": float((((values - targets).astype(np.float64) / std) ** 2).mean()),
                    **regression_metrics(values, targets),
                }
                for method, values in predictions.items()
            }
        return measured

    def linear_targets(self, targets: np.ndarray) -> tuple[np.ndarray, Loss]:
        mean, std = (np.array(values, np.float32) for values in (self.processor.mean, self.processor.std))
        return (targets - mean) / std, "squared"

    def describe_predictions(self, values: np.ndarray) -> list[str]:
        return [format_values(row) for row in values]

    def describe_references(self, targets: np.ndarray) -> list[str]:
        return [format_values(values) for values in targets]

    # Report

    def views(self, evaluation: Evaluation[RegressItems, RegressScores]) -> list[View]:
        split, names, outputs = evaluation.split, self.processor.targets, evaluation.outputs
        values, targets = outputs.values, split.items.labels
        views: list[View] = [self._target_table(values, targets)] if len(names) > 1 else []
        if outputs.curve is not None:
            views += self._curve_charts(outputs.curve)
        if outputs.weights is not None:
            views.append(weight_chart(outputs.weights))
        sample = evenly_spaced(len(targets), MAX_POINTS)
        for k, name in enumerate(names):
            points = tuple((float(targets[item, k]), float(values[item, k])) for item in sample)
            title = name if len(names) > 1 else "References and predictions"
            views.append(Scatter(title=title, points=points, x=f"reference {name}", y="prediction", diagonal=True))
        errors = np.abs(values - targets).mean(axis=1)
        worst = np.argsort(-errors, kind="stable")[:MAX_ERRORS].tolist()
        rows = tuple(
            (
                split.location(item),
                self.input_cell(split, item),
                format_values(targets[item]),
                format_values(values[item]),
            )
            for item in worst
        )
        columns = ("location", "input", "reference", "prediction")
        views.append(Table(title="Largest errors", columns=columns, rows=rows))
        return views

    def _target_table(self, values: np.ndarray, targets: np.ndarray) -> Table:
        """Returns the metrics of each target by itself: their units may differ."""
        rows = []
        for k, name in enumerate(self.processor.targets):
            reference, value = targets[:, k].astype(np.float64), values[:, k].astype(np.float64)
            errors = value - reference
            correlations = (r_squared(reference, value), spearman(reference, value), pearson(reference, value))
            rows.append((name, float((errors**2).mean()), float(np.abs(errors).mean()), *correlations))
        columns = ("target", "mse", "mae", "r2", "spearman", "pearson")
        return Table(title="Metrics by target", columns=columns, rows=tuple(rows))

    def _curve_charts(self, curve: Curve) -> list[View]:
        """Returns the predictions over the input for each target, with training rows as dots."""
        feature = self.processor.numbers.features[0]
        return [
            Lines(
                title=f"{name} over {feature}",
                note="dots: training rows",
                x=feature,
                y=name,
                series=(Series("prediction", tuple(map(float, curve.x)), tuple(map(float, curve.values[:, k]))),),
                points=tuple(zip(map(float, curve.dots), map(float, curve.dot_values[:, k]), strict=True)),
            )
            for k, name in enumerate(self.processor.targets)
        ]


def weight_chart(weights: KernelWeights) -> Heatmap:
    """Returns a heat map of the weight of each training row in the predictions."""
    return Heatmap(
        title="Weights of the training rows",
        note=weights.note,
        x=f"training rows by {weights.feature}",
        y=f"inputs by {weights.feature if weights.single else 'prediction'}",
        columns=tuple(f"{float(key):.3g}" for key in weights.columns),
        rows=tuple(f"{float(key):.3g}" for key in weights.rows),
        values=matrix(weights.values),
    )


def usual_length(items: Labeled) -> int:
    """Returns the number of elements that most items have."""
    return int(np.bincount(items.lengths).argmax())


def to_points(items: Labeled, steps: int) -> np.ndarray:
    """Returns sequences of `steps` elements as vectors (items, steps · features)."""
    odd = np.flatnonzero(items.lengths != steps)
    if len(odd):
        raise unequal_length(f"row {int(odd[0]) + 1}", int(items.lengths[odd[0]]), steps)
    block, _ = items.inputs.padded(np.arange(len(items)))  # (items,steps,features)
    return block.reshape(len(items), -1).astype(np.float32)


def unequal_length(location: str, length: int, steps: int) -> SeriatimError:
    cause = f"{location}: {length} steps, other rows have {steps}; distances need sequences of one length"
    return SeriatimError("nadaraya-watson.length", cause, "pass sequences of one length, or choose another --model")


def format_values(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in np.reshape(values, -1).tolist())
