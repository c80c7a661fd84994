"""The task classify: network, loss, evaluation and what a report shows.

The outputs of the backbone are pooled to one vector, and a linear layer scores the labels:

    p = softmax(W pool(h) + b)        several labels: p = σ(W pool(h) + b) for each, those above ½ are predicted

Trained by cross-entropy. The input is text, two texts, numbers or an image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core import limits
from ...core.errors import Diagnostics
from ...core.metrics import Measured
from ...core.text import listed, plural
from ...data.dataset import Dataset
from ...data.kinds import LABEL, LABELS, NO, YES, Kind
from ...data.source import Source
from ...data.split import Stratified
from ...nn.loss import distillation_loss, multi_label_distillation_loss
from ...report.charts import Cell, Confusion, Table, View
from ..batching import Batch
from ..capability import Call, Record, capability
from ..codecs import pretrained_codec
from ..inspection import ExplainedOutput, explain_label, log_odds
from ..metrics import (
    Counts,
    class_counts,
    class_metrics,
    confusion,
    multi_label_counts,
    multi_label_metrics,
    precision_recall_f1,
)
from ..pooled import PooledPredictor, PooledProcessor, PooledTask, Scores
from ..predictor import Predictor
from ..processor import Tokenizers, Values, name_mismatches
from ..spec import TaskConfig
from ..tfidf import Loss
from ..values import Evaluation, Labeled, Metrics, Output, Split, Splits
from .spec import CLASSIFY, INTEGER_LABEL, SPEC, ClassifyOptions, ClassifySettings

MAX_ERRORS = 20  # in the table of the most confident errors
MAX_CONFUSION = 500  # labels of which a confusion matrix is stored
LINEAR = "TF-IDF with logistic regression"
MIN_NUMERIC = 20  # rows from which on mostly different numbers are no labels


@dataclass(frozen=True)
class ClassifyProcessor(PooledProcessor[Labeled]):
    """Encodes inputs by their kind, and labels by their number in sorted order."""

    labels: tuple[str, ...]
    multi_label: bool

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        columns = train.columns["target"]
        multi_label = len(columns) > 1 or columns[0].kind is LABELS
        counts = Counter(label for labels in row_labels(train, diagnostics) for label in labels)
        distinct = set(row_labels(train, Diagnostics())) if multi_label else counts
        if len(distinct) == 1:
            cause = f'all {len(train):,} training rows have the label "{", ".join(counts) or "none"}"'
            diagnostics.report("data.one-class", cause, "add rows with other labels, or name another --target")
        elif (
            not multi_label
            and 2 * len(counts) > len(train) >= MIN_NUMERIC
            and not any(is_word or value.is_integer() for is_word, value, _ in map(numbers_first, counts))
        ):
            cause = f"{train.name}: {len(counts):,} different numbers are to be predicted, not labels"
            diagnostics.report("data.target", cause, "use the task regress, or name another --target")
        diagnostics.raise_problems()
        limits.LABELS.check(len(counts), train.name)
        note_labels(counts, len(train), multi_label, diagnostics)
        labels = tuple(sorted(counts, key=numbers_first))
        return cls(cls.fit_input(train, config, pretrained, diagnostics), labels, multi_label)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        config = config or {}
        multi_label = config.get("problem_type") == "multi_label_classification"
        return cls(pretrained_codec(tokenizers, max_length, config), labels, multi_label)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.labels

    def encode_targets(self, dataset: Dataset, diagnostics: Diagnostics) -> np.ndarray:
        """Returns class indices (rows,), or for several labels a multi-hot matrix (rows, labels)."""
        indices = {label: index for index, label in enumerate(self.labels)}
        columns = dataset.columns["target"]
        targets = np.zeros((len(dataset), len(self.labels)) if self.multi_label else len(dataset), np.int64)
        if (len(columns) > 1 or columns[0].kind is LABELS) != self.multi_label:
            expected = "lists of labels" if self.multi_label else "one label"
            cause = f"{dataset.name}: the targets are not {expected}, as in the training data"
            diagnostics.report("data.target", cause, "write all targets in the same way")
            return targets
        unknown: dict[str, int] = {}  # label → its first row
        for row, labels in enumerate(row_labels(dataset, diagnostics)):
            for label in labels:
                index = indices.get(label)
                if index is None:
                    unknown.setdefault(label, row)
                elif self.multi_label:
                    targets[row, index] = 1
                else:
                    targets[row] = index
        known = listed(self.labels, 20)
        for label, row in unknown.items():
            cause = f'{dataset.locations[row]}: the label "{label}" does not occur in the training split'
            diagnostics.report("data.label", cause, f"correct it, or add rows with it; the labels are: {known}")
        return targets.astype(np.float32) if self.multi_label else targets


def row_labels(dataset: Dataset, diagnostics: Diagnostics) -> Iterator[tuple[str, ...]]:
    """Yields the labels of each row; several target columns are labels that apply where they hold 1."""
    columns = dataset.columns["target"]
    if len(columns) == 1:
        single = columns[0].kind is not LABELS
        for row, target in enumerate(columns[0].values):
            if single and not target:
                cause = f'{dataset.locations[row]}: column "{columns[0].name}": the label is missing'
                diagnostics.report("data.label", cause, "fill it in, or remove the row")
            yield (target,) if single else target
        return
    names = [column.name for column in columns]
    for row, cells in enumerate(zip(*(column.values for column in columns), strict=True)):
        flags = [str(cell).strip().lower() for cell in cells]
        for name, flag in zip(names, flags, strict=True):
            if flag not in YES | NO:
                cause = f'{dataset.locations[row]}: column "{name}" holds "{flag}", neither 1 nor 0'
                remedy = "several target columns hold 1 if their label applies, else 0; or name one --target"
                diagnostics.report("data.column", cause, remedy)
        yield tuple(name for name, flag in zip(names, flags, strict=True) if flag in YES)


def note_labels(counts: Counter[str], rows: int, multi_label: bool, diagnostics: Diagnostics) -> None:
    """Notes the labels, their shares, and what predicting the most frequent one would reach."""
    shares = listed([f"{label} ({100 * count / rows:.2g} %)" for label, count in counts.most_common()])
    if multi_label:
        diagnostics.note(f"{len(counts)} labels, {counts.total() / rows:.2g} per row on average: {shares}")
    else:
        share = counts.most_common(1)[0][1] / rows
        diagnostics.note(f"{len(counts)} classes: {shares}; the most frequent alone reaches accuracy {share:.2f}")
    if rare := [label for label, count in counts.items() if count == 1]:
        diagnostics.note(f"{plural(len(rare), 'label has', 'labels have')} one training row: {listed(rare)}")


def numbers_first(label: str) -> tuple[bool, float, str]:
    """Returns a sort key: whether the label is a word, its value if it is a number, and its letters."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label


class ClassifyPredictor(PooledPredictor):
    processor: ClassifyProcessor

    @capability(CLASSIFY)
    def classify(self, call: Call[ClassifyOptions]) -> list[Record]:
        labels, multi_label = self.processor.labels, self.processor.multi_label
        integers = self.task.layout.kinds.get("target") is INTEGER_LABEL
        predictions = []
        for logits in map(torch.from_numpy, self.scores(self.task.encode(call.rows, call.diagnostics))):
            probabilities = (logits.sigmoid() if multi_label else logits.softmax(dim=-1)).tolist()
            best = max(range(len(labels)), key=probabilities.__getitem__)
            prediction = int(labels[best]) if integers else labels[best]
            record: Record = {"prediction": prediction, "confidence": probabilities[best]}
            if multi_label:
                pairs = zip(labels, probabilities, strict=True)
                record["prediction"] = [label for label, probability in pairs if probability > 0.5]
            if call.options.probabilities:
                record["probabilities"] = dict(zip(labels, probabilities, strict=True))
            predictions.append(record)
        return self.processor.input.add_names(call.rows, predictions)

    def explained(self, output: Tensor, target: str | None) -> ExplainedOutput:
        labels, multi_label = self.processor.labels, self.processor.multi_label
        probabilities = output[0].sigmoid() if multi_label else output[0].softmax(dim=-1)
        index, prediction = explain_label(labels, probabilities, target)
        single = multi_label or len(labels) == 1  # a sigmoid: the score is the log-odds
        return ExplainedOutput(
            f"the log-odds of {labels[index]}",
            lambda scores: scores[:, index] if single else log_odds(scores, index),
            prediction,
        )


class ClassifyTask(PooledTask[ClassifySettings, ClassifyProcessor, Labeled, Scores]):
    spec = SPEC
    split_policy = Stratified("target")
    processor_type = ClassifyProcessor
    predictor_type = ClassifyPredictor
    monitor = "error"
    hub_head = "classification"

    @classmethod
    def stored_kinds(cls, rows: Dataset, source: Source) -> dict[str, Kind]:
        """Returns the kinds by role; a column of integers in memory is of a kind of its own."""
        kinds, column = super().stored_kinds(rows, source), rows.columns["target"][0]
        cells = (source.columns or {}).get(column.name, ())
        whole = all(isinstance(cell, (int, np.integer)) and not isinstance(cell, bool) for cell in cells)
        return kinds | {"target": INTEGER_LABEL} if kinds["target"] is LABEL and len(cells) and whole else kinds

    def hub_config(self) -> Values:
        kind = "multi" if self.processor.multi_label else "single"
        return {"problem_type": f"{kind}_label_classification"}

    def loss(self, output: Output[Tensor], batch: Batch, smoothing: float = 0.0) -> Tensor:
        if self.processor.multi_label:
            losses = F.binary_cross_entropy_with_logits(output.scores, batch.targets, reduction="none")
            return losses.mean(dim=-1).sum()
        return F.cross_entropy(output.scores, batch.targets, reduction="sum", label_smoothing=smoothing)

    def distillation_loss(self, output: Output[Tensor], teacher: Output[Tensor], temperature: float) -> Tensor:
        distance = multi_label_distillation_loss if self.processor.multi_label else distillation_loss
        return distance(output.scores, teacher.scores, temperature)

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        processor = cast(ClassifyProcessor, teacher.processor)
        mismatches = name_mismatches(self.processor.labels, processor.labels, "label")
        if self.processor.multi_label != processor.multi_label:
            model = "this model" if self.processor.multi_label else "the teacher"
            mismatches.append(f"only {model} may predict several labels for one input")
        return mismatches

    # Evaluation

    def outputs_of(self, network: nn.Module, split: Split[Labeled], values: np.ndarray) -> Scores:
        return Scores(values)

    def measure(self, items: Labeled, scores: Sequence[np.ndarray]) -> Measured:
        return (multi_label_metrics if self.processor.multi_label else class_metrics)(scores, items.labels)

    def baselines(self, splits: Splits[Labeled], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of the training frequencies of the labels, and of texts of a TF-IDF model."""
        train = splits.train.items.labels
        if self.processor.multi_label:
            frequencies = (train.mean(axis=0) * len(train) + 0.5) / (len(train) + 1)  # never 0 or 1
            frequent = np.log(frequencies / (1 - frequencies))
        else:
            counts = np.bincount(train, minlength=len(self.processor.labels)) + 0.5
            frequent = np.log(counts / counts.sum())
        linear = self.linear_model(splits)
        measured = {}
        for name in names:
            split = splits[name]
            scores = {"most frequent": np.tile(frequent, (len(split.items), 1))}
            if linear is not None:
                logits = linear.scores(split.rows)
                if logits.shape[1] < len(frequent):  # two classes have one logit, that of the second
                    logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
                scores[LINEAR] = logits
            measured[name] = {method: self._measure_logits(z, split.items.labels) for method, z in scores.items()}
        return measured

    def _measure_logits(self, logits: np.ndarray, targets: np.ndarray) -> Metrics:
        if self.processor.multi_label:
            losses = np.logaddexp(0.0, logits) - targets * logits
            return {"loss": float(losses.mean()), **multi_label_metrics(logits, targets)}
        losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(targets)), targets]
        return {"loss": float(losses.mean()), **class_metrics(logits, targets)}

    def linear_targets(self, targets: np.ndarray) -> tuple[np.ndarray, Loss]:
        if self.processor.multi_label:
            return targets, "sigmoid"
        return (targets[:, None], "sigmoid") if len(self.processor.labels) == 2 else (targets, "softmax")

    def describe_predictions(self, values: np.ndarray) -> list[str]:
        labels, texts = self.processor.labels, []
        for logits in map(torch.from_numpy, values):
            if self.processor.multi_label:
                texts.append(", ".join(labels[index] for index in (logits > 0).nonzero().flatten()) or "none")
            else:
                confidence, best = logits.softmax(dim=-1).max(dim=-1)
                texts.append(f"{labels[int(best)]} {float(confidence):.2f}")
        return texts

    def describe_references(self, targets: np.ndarray) -> list[str]:
        labels = self.processor.labels
        if self.processor.multi_label:
            return [", ".join(labels[index] for index in np.flatnonzero(row)) or "none" for row in targets]
        return [labels[target] for target in targets]

    # Report

    def views(self, evaluation: Evaluation[Labeled, Scores]) -> list[View]:
        scores, targets = evaluation.outputs.values, evaluation.split.items.labels
        if self.processor.multi_label:
            counts, _, _ = multi_label_counts(scores, targets)
            return [self._label_table(counts)]
        labels, predictions = self.processor.labels, scores.argmax(axis=1)
        views: list[View] = []
        if len(labels) <= MAX_CONFUSION:
            matrix = confusion(targets, predictions, len(labels))
            views.append(Confusion(title="Confusion matrix", labels=labels, counts=matrix.tolist()))
        views.append(self._label_table(class_counts(predictions, targets, len(labels))))
        return [*views, *self._confident_errors(evaluation.split, scores)]

    def _label_table(self, counts: Counts) -> Table:
        measures = precision_recall_f1(*counts)
        rows: list[tuple[Cell, ...]] = [
            (label, *(float(values[index]) for values in measures), int(counts[2][index]))
            for index, label in enumerate(self.processor.labels)
        ]
        return Table(
            title="Metrics by label", columns=("label", "precision", "recall", "f1", "examples"), rows=tuple(rows)
        )

    def _confident_errors(self, split: Split[Labeled], scores: np.ndarray) -> list[View]:
        """Returns a table of the wrong predictions with the highest probability."""
        targets, predictions, labels = split.items.labels, scores.argmax(axis=1), self.processor.labels
        confidence = np.exp(scores.max(axis=1) - np.logaddexp.reduce(scores, axis=1))
        wrong = np.flatnonzero(targets != predictions)
        worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:MAX_ERRORS].tolist()
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (
                split.location(item),
                self.input_cell(split, item),
                labels[targets[item]],
                labels[predictions[item]],
                round(float(confidence[item]), 3),
            )
            for item in worst
        )
        columns = ("location", "input", "reference", "prediction", "confidence")
        return [Table(title="Most confident errors", columns=columns, rows=rows)] if rows else []
