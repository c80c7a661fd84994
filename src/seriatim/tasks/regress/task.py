"""The task regress: network, loss, evaluation and what a report shows.

The outputs of the backbone are pooled to one vector, and a linear layer gives the values in the units of the data:

    ŷ = scale · (W pool(h) + b) + shift        scale and shift: standard deviation and mean of the training values

Trained by the squared error, each value divided by its scale, so that several values count the same. The gradient-free
model `nadaraya_watson` takes sequences of numbers of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core.config import Settings
from ...core.errors import Diagnostics, SeriatimError
from ...core.text import evenly_spaced, format_number
from ...data.dataset import Dataset
from ...data.kinds import NUMBER
from ...data.split import Stratified
from ...models.nadaraya_watson import NadarayaWatson
from ...models.nadaraya_watson import Settings as NadarayaWatsonSettings
from ...nn.backbone import Backbone, BackboneSettings
from ...nn.network import ScaledHead
from ...report.charts import Heatmap, Lines, Scatter, Series, Table, View, matrix
from ..batching import Batch
from ..capability import Record, capability
from ..codecs import NumberLayout, pretrained_codec
from ..inspection import ExplainedOutput, find_name
from ..metrics import mean_and_std, pearson, r_squared, regression_metrics, spearman
from ..old import Metrics, Output
from ..predictor import Predictor
from ..processor import Encoded, TaskConfig, Tokenizers, Values, check_numbers, name_mismatches
from ..sequence import SequencePredictor, SequenceProcessor, SequenceTask
from ..tfidf import Loss
from .spec import REGRESS, SPEC

MAX_POINTS = 2_000  # of a scatter plot
MAX_ERRORS = 20  # in the table of the largest errors
CURVE_POINTS = 200
MAX_DOTS = 1_000  # training rows drawn behind a curve
MAX_DIMENSIONS, MAX_ROWS = 20, 20_000  # up to which nadaraya_watson is tried by --model auto
MAX_CELLS = 100  # on a side of the heat map of weights


@dataclass(frozen=True)
class RegressProcessor(SequenceProcessor):
    """Encodes inputs by their kind; knows the names, mean and standard deviation of the target values."""

    targets: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        check_numbers("mean and std", (self.mean, self.std), 2, len(self.targets))

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
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


class RegressPredictor(SequencePredictor):
    processor: RegressProcessor

    @capability(REGRESS)
    def regress(self, dataset: Dataset, options: Settings) -> list[Record]:
        names = self.processor.targets if len(self.processor.targets) > 1 else ("prediction",)
        scores = self.scores(self.task.encode(dataset))
        predictions = [dict(zip(names, map(float, values), strict=True)) for values in scores]
        return self.processor.input.add_names(dataset, predictions)

    def scores(self, encoded: Encoded) -> list[np.ndarray]:
        if self.task.config.model.gradient_free:
            return list(self.network.predict(self.points(encoded)))
        return super().scores(encoded)

    def points(self, encoded: Encoded) -> np.ndarray:
        """Returns the inputs as vectors (items, steps · features), as `nadaraya_watson` reads them."""
        return to_points(encoded, self.network.points.shape[1] // len(self.processor.numbers.features))

    def explained(self, output: Tensor, target: str | None) -> ExplainedOutput:
        names = self.processor.outputs
        index = 0 if target is None else find_name(names, target, "there is no value")
        prediction = f"predicted: {names[index]} {format_number(float(output[0, index]))}"
        return ExplainedOutput(f"the value {names[index]}", lambda values: values[:, index], prediction)


class RegressTask(SequenceTask):
    spec = SPEC
    split_policy = Stratified()
    processor_type = RegressProcessor
    predictor_type = RegressPredictor
    hub_head = "regression"
    processor: RegressProcessor

    def hub_config(self) -> Values:
        return {"problem_type": "regression"}

    def head(self, backbone: Backbone, model: BackboneSettings) -> nn.Module:
        head = ScaledHead(super().head(backbone, model), len(self.processor.targets))
        head.shift.copy_(torch.tensor(self.processor.mean))
        head.scale.copy_(torch.tensor(self.processor.std))
        return head

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        return self._squared_distance(output.scores, batch.targets)

    def distillation_loss(self, output: Output, teacher: Output, temperature: float) -> Tensor:
        """Returns the squared distance: a number has no alternatives for a temperature to bring out."""
        return self._squared_distance(output.scores, teacher.scores)

    def _squared_distance(self, values: Tensor, references: Tensor) -> Tensor:
        scale = values.new_tensor(self.processor.std)
        return (((values - references) / scale) ** 2).mean(dim=-1).sum()

    def teacher_mismatches(self, teacher: Predictor) -> list[str]:
        """Returns nothing if both predict one value, whatever the name of its column."""
        names, teacher_names = self.processor.targets, cast(RegressProcessor, teacher.processor).targets
        if len(names) == len(teacher_names) == 1:
            return []
        return name_mismatches(names, teacher_names, "value")

    # Gradient-free models

    def candidates(self) -> tuple[str, ...]:
        """Nadaraya–Watson regression is for few numbers: in many dimensions all points are far from each other."""
        codec, lengths = self.processor.input, self.encoded["train"].lengths
        numbers = 0 if codec.number_layout is None else len(codec.number_layout.features) * codec.longest
        few = 0 < numbers <= MAX_DIMENSIONS and len(lengths) <= MAX_ROWS and (lengths == codec.longest).all()
        return (*super().candidates(), *(["nadaraya_watson"] if few else []))

    def network(self, model: BackboneSettings) -> nn.Module:
        return NadarayaWatson(model) if isinstance(model, NadarayaWatsonSettings) else super().network(model)

    def fit(self, model: BackboneSettings, limit: int | None = None) -> NadarayaWatson:
        if not isinstance(model, NadarayaWatsonSettings):
            return super().fit(model, limit)
        numbers, inputs = self.processor.input.number_layout, self.processor.input.modality.plural
        if numbers is None:
            cause = f"{model.name} needs distances between numbers, and the inputs are {inputs}"
            raise SeriatimError("nadaraya-watson.text", cause, "choose another --model: `seriatim list models`")
        steps = int(np.bincount(self.encoded["train"].lengths).argmax())  # of most rows, so that the odd one is named
        for split, encoded in self.encoded.items():
            odd = np.flatnonzero(encoded.lengths != steps)
            if len(odd):
                location = self.datasets[split].locations[int(odd[0])]
                raise unequal_length(str(location), int(encoded.lengths[odd[0]]), steps)
        std = np.tile(np.array(numbers.std, np.float32), steps) if self.settings.scaling == "standard" else None
        train = self.encoded["train"]
        points, targets = to_points(train, steps)[:limit], train.targets[:limit]
        return NadarayaWatson.fit(points, targets, model, std, self.diagnostics.note)

    def resize(self, model: BackboneSettings, parameters: int, limit: int | None = None) -> BackboneSettings:
        return model.model_copy(update={"entries": parameters})

    # Evaluation

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        if not isinstance(network, NadarayaWatson):
            return super().evaluate(network, split, limit)
        encoded = self.encoded[split]
        values = np.stack(self.predictor(network).scores(encoded))
        loss = float((((values - encoded.targets) / network.scale) ** 2).mean())
        return {"loss": loss} | regression_metrics(values, encoded.targets)

    def metrics(self, network: nn.Module, split: str, items: np.ndarray, scores: Sequence[np.ndarray]) -> Metrics:
        return regression_metrics(np.stack(list(scores)), self.encoded[split].targets[items])

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of predicting the mean of the training split, and of texts of a TF-IDF model."""
        targets = self.encoded[split].targets
        mean, std = np.array(self.processor.mean, np.float32), np.array(self.processor.std, np.float32)
        predictions = {"mean": np.tile(mean, (len(targets), 1))}
        if self.tfidf is not None:
            values = self.tfidf.scores(self.datasets[split])
            predictions["TF-IDF with ridge regression"] = (values * std + mean).astype(np.float32)
        return {
            name: {"loss": float((((values - targets).astype(np.float64) / std) ** 2).mean())}
            | regression_metrics(values, targets)
            for name, values in predictions.items()
        }

    def linear_targets(self, split: str) -> tuple[np.ndarray, Loss]:
        processor = self.processor
        mean, std = (np.array(values, np.float32) for values in (processor.mean, processor.std))
        return (self.encoded[split].targets - mean) / std, "squared"

    def describe_predictions(self, scores: Sequence[np.ndarray]) -> list[str]:
        return [format_values(values) for values in scores]

    def describe_references(self, targets: np.ndarray) -> list[str]:
        return [format_values(values) for values in targets]

    # Report

    def views(self, predictor: Predictor, split: str) -> list[View]:
        encoded, names = self.encoded[split], self.processor.targets
        values, targets = np.stack(predictor.scores(encoded)), encoded.targets
        views: list[View] = [self._target_table(values, targets)] if len(names) > 1 else []
        views += self._curves(predictor)
        if self.config.model.gradient_free:
            views.append(self._weights(cast(RegressPredictor, predictor), encoded, values))
        sample = evenly_spaced(len(targets), MAX_POINTS)
        for k, name in enumerate(names):
            points = tuple((float(targets[item, k]), float(values[item, k])) for item in sample)
            title = name if len(names) > 1 else "References and predictions"
            views.append(Scatter(title=title, points=points, x=f"reference {name}", y="prediction", diagonal=True))
        errors = np.abs(values - targets).mean(axis=1)
        worst = np.argsort(-errors, kind="stable")[:MAX_ERRORS].tolist()
        rows = tuple(
            (
                self.location(split, item),
                self.input_cell(split, item),
                format_values(targets[item]),
                format_values(values[item]),
            )
            for item in worst
        )
        columns = ("location", "input", "reference", "prediction")
        views.append(Table(title="Largest errors", columns=columns, rows=rows))
        if not self.config.model.gradient_free:
            views += self.gradient_reach(predictor.network, split)
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

    def _curves(self, predictor: Predictor) -> list[View]:
        """Returns the predictions over the input if that is one number, with the training rows as dots."""
        codec, train = self.processor.input, self.encoded.get("train")
        layout = codec.number_layout
        if layout is None or len(layout.features) != 1 or codec.longest != 1 or train is None:
            return []
        x = train.inputs.values[:, 0].astype(np.float64)
        line = np.linspace(x.min(), x.max(), CURVE_POINTS)
        inputs = type(train.inputs).equal(line.astype(np.float32)[:, None, None])
        values = np.stack(predictor.scores(Encoded(inputs)))
        dots = evenly_spaced(len(x), MAX_DOTS)
        return [
            Lines(
                title=f"{name} over {layout.features[0]}",
                note="dots: training rows",
                x=layout.features[0],
                y=name,
                series=(Series("prediction", tuple(map(float, line)), tuple(map(float, values[:, k]))),),
                points=tuple((float(x[row]), float(train.targets[row, k])) for row in dots),
            )
            for k, name in enumerate(self.processor.targets)
        ]

    def _weights(self, predictor: RegressPredictor, encoded: Encoded, values: np.ndarray) -> Heatmap:
        """Returns the weight of each training row in the predictions as a heat map.

        Both axes are sorted, by the input if that is one number, else by the first target; neighboring training rows
        share a column, their weights added, so that a row of the map sums to 1.
        """
        model: NadarayaWatson = predictor.network
        points = predictor.points(encoded)
        single = points.shape[1] == 1
        examples = model.points if single else model.values
        train_keys, keys = examples[:, 0].cpu().numpy(), (points if single else values)[:, 0]
        order = np.argsort(keys, kind="stable")[evenly_spaced(len(keys), MAX_CELLS)]
        groups = np.array_split(np.argsort(train_keys, kind="stable"), min(MAX_CELLS, len(train_keys)))
        weights = model.weights(points[order])
        cells = np.stack([weights[:, group].sum(axis=1) for group in groups], axis=1)
        feature = self.processor.numbers.features[0] if single else self.processor.targets[0]
        bandwidth = float(model.bandwidth)
        distance = f"{bandwidth * float(model.unit[0]):.3g} in {feature}" if single else f"{bandwidth:.3g}"
        grouped = "; a column is several rows, their weights added" if len(groups) < len(train_keys) else ""
        return Heatmap(
            title="Weights of the training rows",
            note=f"{model.settings.kernel} kernel, bandwidth {distance}{grouped}",
            x=f"training rows by {feature}",
            y=f"inputs by {feature if single else 'prediction'}",
            columns=tuple(f"{float(train_keys[group].mean()):.3g}" for group in groups),
            rows=tuple(f"{float(key):.3g}" for key in keys[order]),
            values=matrix(cells),
        )


def to_points(encoded: Encoded, steps: int) -> np.ndarray:
    """Returns sequences of `steps` elements as vectors (items, steps · features)."""
    odd = np.flatnonzero(encoded.lengths != steps)
    if len(odd):
        raise unequal_length(f"row {int(odd[0]) + 1}", int(encoded.lengths[odd[0]]), steps)
    return encoded.inputs.values.reshape(len(encoded), -1).astype(np.float32)


def unequal_length(location: str, length: int, steps: int) -> SeriatimError:
    cause = f"{location}: {length} steps, other rows have {steps}; distances need sequences of one length"
    return SeriatimError("nadaraya-watson.length", cause, "pass sequences of one length, or choose another --model")


def format_values(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in np.reshape(values, -1).tolist())
