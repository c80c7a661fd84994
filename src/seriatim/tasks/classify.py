"""Give a sequence a label, or several: sentiment, language, digit, species.

The outputs of the backbone are pooled to one vector, and a linear layer scores the labels:

    p = softmax(W pool(h) + b)        several labels at once: each p = σ(…) by itself, and those above ½ are given

Trained by cross-entropy. Texts become words (or characters where there are no words), numbers go straight in, and
pictures come as patches, or through a residual network.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..data import examples
from ..data.sequences import Examples, Parts
from ..data.tokenizers import Tokenizer
from ..data.writing import Table
from ..nn.backbone import BackboneSettings
from ..nn.network import Network
from ..nn.soft import soft_choices_loss, soft_loss
from . import _scores
from ._coder import Coder
from ._examples import mismatch, pictured, restore
from ._predict import Predictor, short
from ._task import Batch
from ._unlike import unlike_names
from ._vector import VectorSettings, VectorTask, vector_network

__all__ = ["DataSettings", "Settings", "adopt", "mismatch", "open_run", "prepare", "reopen", "reopen_on"]

DataSettings = examples.ExampleSettings
PICTURES = True  # are among what it answers for
MISTAKES = 20  # that a report shows
MATRIX = 500  # labels whose mistakes are counted pair by pair


class Settings(VectorSettings):
    name: str = Field("classify", description="the task: see `seriatim list tasks`")


class ClassifyTask(VectorTask):
    objective = "error"
    numeric = False

    @staticmethod
    def name_outputs(coder: Coder, parts: Parts) -> Coder:
        found = _labels(parts.train)
        several = any(isinstance(one, tuple) for one in found)
        names = {label for one in found for label in one} if several else set(found)
        return replace(coder, labels=tuple(sorted(names, key=_natural)), several=several)

    @staticmethod
    def encode_targets(coder: Coder, part: Examples) -> np.ndarray:
        known = {label: index for index, label in enumerate(coder.labels)}
        targets = _labels(part)
        for index, target in enumerate(targets):
            if isinstance(target, tuple) != coder.several:
                here, there = ("one label", "lists of labels") if coder.several else ("a list of labels", "one label")
                cause = f"{part.place(index)}: {here}, where the training part has {there}"
                raise SeriatimError("data.target", cause, "write all targets in the same way")
            for label in target if coder.several else [target]:
                if label not in known:
                    few = ", ".join(coder.labels[:20]) + (" …" if len(known) > 20 else "")
                    raise SeriatimError(
                        "data.label",
                        f'{part.place(index)}: the label "{label}" does not occur in the training part',
                        f"correct it, or add examples of it; the labels are: {few}",
                    )
        if not coder.several:
            return np.array([known[target] for target in targets], dtype=np.int64)
        found = np.zeros((len(targets), len(known)), dtype=np.float32)
        for index, target in enumerate(targets):
            found[index, [known[label] for label in target]] = 1.0
        return found

    def shape(self, model: BackboneSettings) -> Network:
        return vector_network(model, self.coder, self.settings)

    def hard(self, network: nn.Module, scores: Tensor, batch: Batch, smoothing: float) -> Tensor:
        if self.coder.several:
            return F.binary_cross_entropy_with_logits(scores, batch.targets, reduction="none").mean(dim=-1).sum()
        return F.cross_entropy(scores, batch.targets, reduction="sum", label_smoothing=smoothing)

    def soft(self, network: nn.Module, scores: Tensor, taught: Tensor, temperature: float) -> Tensor:
        return (soft_choices_loss if self.coder.several else soft_loss)(scores, taught, temperature)

    def unlike(self, teacher: Any) -> list[str]:
        found = unlike_names(self.coder.labels, teacher.coder.labels, "label")
        if self.coder.several != teacher.coder.several:
            who = "this model" if self.coder.several else "the teacher"
            found.append(f"only {who} may give several labels to one example")
        return found

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        scores, rows = self.outputs(model, split, limit)
        return self._measures(scores, self.parts[split].targets[rows])

    def _measures(self, scores: np.ndarray, true: np.ndarray) -> dict[str, float]:
        if self.coder.several:
            return several_measures(scores, true)
        log_probs = scores - np.logaddexp.reduce(scores.astype(np.float64), axis=1, keepdims=True)
        loss = float(-log_probs[np.arange(len(true)), true].mean())
        hits, given, there = self._counts(true, scores.argmax(axis=1))
        accuracy = float(hits.sum() / len(true))
        return {
            "loss": loss,
            "accuracy": accuracy,
            "macro_f1": _scores.mean_f1(hits, given, there),
            "error": 1 - accuracy,
            "examples": float(len(true)),
        }

    def _counts(self, true: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
        """How often each label was right, was given and was there."""
        size = len(self.coder.labels)
        return [np.bincount(some, minlength=size) for some in (true[true == given], given, true)]

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Always the most frequent label of the training part, with the shares of all as probabilities."""
        train, true = self.parts["train"].targets, self.parts[split].targets
        if self.coder.several:
            shares = (train.mean(axis=0) * len(train) + 0.5) / (len(train) + 1)  # never quite 0 or 1
            scores = np.log(shares / (1 - shares))
        else:
            counts = np.bincount(train, minlength=len(self.coder.labels))
            scores = np.log((counts + 0.5) / (counts + 0.5).sum())
        return {"most frequent": self._measures(np.tile(scores, (len(true), 1)), true)}

    def details(self, model: Network, split: str) -> list[dict[str, Any]]:
        scores, rows = self.outputs(model, split)
        part = self.parts[split]
        if self.coder.several:
            given, true = scores > 0, part.targets[rows] > 0.5
            hits = (given & true).sum(axis=0)
            return [self._class_table(hits, given.sum(axis=0), true.sum(axis=0)), *self.reach(model, split)]
        true, given = part.targets[rows], scores.argmax(axis=1)
        return [
            *self._confusion(true, given),
            self._class_table(*self._counts(true, given)),
            *self._mistakes(scores, true, given, part.examples),
            *self.reach(model, split),
        ]

    def _confusion(self, true: np.ndarray, given: np.ndarray) -> list[dict[str, Any]]:
        labels = list(self.coder.labels)
        if len(labels) > MATRIX:
            return []
        counts = _scores.confusion(true, given, len(labels)).tolist()
        return [{"kind": "confusion", "title": "What was taken for what", "labels": labels, "counts": counts}]

    def _class_table(self, hits: np.ndarray, given: np.ndarray, true: np.ndarray) -> dict[str, Any]:
        precision, recall, f1 = _scores.precision_recall(hits, given, true)
        rows = [
            [label, *(round(float(value[index]), 4) for value in (precision, recall, f1)), int(true[index])]
            for index, label in enumerate(self.coder.labels)
        ]
        columns = ["label", "precision", "recall", "F1", "examples"]
        return {"kind": "table", "title": "Label by label", "columns": columns, "rows": rows}

    def _mistakes(
        self, scores: np.ndarray, true: np.ndarray, given: np.ndarray, came: Examples
    ) -> list[dict[str, Any]]:
        """The wrong answers that the model was surest of."""
        sure = np.exp(scores.max(axis=1) - np.logaddexp.reduce(scores, axis=1))
        wrong = np.flatnonzero(true != given)
        worst = wrong[np.argsort(-sure[wrong], kind="stable")][:MISTAKES]
        labels = self.coder.labels
        rows = [
            [
                came.place(row),
                pictured(came.inputs[row]),
                labels[true[row]],
                labels[given[row]],
                round(float(sure[row]), 3),
            ]
            for row in worst.tolist()
        ]
        columns = ["where", "input", "true", "given", "confidence"]
        title = "The mistakes it was surest of"
        return [{"kind": "table", "title": title, "columns": columns, "rows": rows}] if rows else []

    def said(self, model: nn.Module, inputs: list[Any]) -> list[str]:
        answers = ClassifyPredictor(model, self.coder).predict(inputs)
        if self.coder.several:
            return [", ".join(answer["prediction"]) or "none" for answer in answers]
        return [f"{answer['prediction']} {answer['confidence']:.2f}" for answer in answers]

    def wanted(self, split: str, row: int) -> str:
        target = _labels(self.parts[split].examples)[row]
        return ", ".join(target) if self.coder.several else target


def several_measures(scores: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Labels that do not exclude each other. The error is what is missing to a micro F1 of 1."""
    loss = float((np.logaddexp(0.0, scores) - true * scores).mean())
    given, there = scores > 0, true > 0.5
    hits, predicted, real = (given & there).sum(axis=0), given.sum(axis=0), there.sum(axis=0)
    micro = float(2 * hits.sum() / max(predicted.sum() + real.sum(), 1))
    return {
        "loss": loss,
        "accuracy": float((given == there).all(axis=1).mean()),
        "micro_f1": micro,
        "macro_f1": _scores.mean_f1(hits, predicted, real),
        "error": 1 - micro,
        "examples": float(len(true)),
    }


class ClassifyPredictor(Predictor):
    def meaning(self, scores: Tensor) -> list[dict[str, Any]]:
        labels = self.coder.labels
        if self.coder.several:
            found = scores.sigmoid().tolist()
            return [
                {
                    "prediction": [label for label, p in zip(labels, row, strict=True) if p > 0.5],
                    "probabilities": dict(zip(labels, row, strict=True)),
                }
                for row in found
            ]
        answers = []
        for row in scores.softmax(dim=-1).tolist():
            best = max(range(len(row)), key=row.__getitem__)
            probabilities = dict(zip(labels, row, strict=True))
            answers.append({"prediction": labels[best], "confidence": row[best], "probabilities": probabilities})
        return answers

    def table(self, answers: list[dict[str, Any]]) -> Table:
        if self.coder.several:
            return Table(
                ["prediction", *(f"p({label})" for label in self.coder.labels)],
                [["|".join(one["prediction"]), *map(short, one["probabilities"].values())] for one in answers],
            )
        return Table(["prediction", "confidence"], [[one["prediction"], short(one["confidence"])] for one in answers])


prepare, reopen, reopen_on = ClassifyTask.prepare, ClassifyTask.reopen, ClassifyTask.reopen_on


def adopt(
    folder: Path,
    tokenizer: Tokenizer | None,
    labels: tuple[str, ...],
    longest: int,
    several: bool,
    picture: dict[str, Any] | None = None,
) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere; `picture` is the form of what it reads,
    where that is no text."""
    if picture is not None:
        Coder("pictures", 1, labels, several, picture=picture).save(folder)
        return
    Coder("text", longest, labels, several, tokenizer=tokenizer, limit=longest, pairs=None).save(folder)


def open_run(path: Path, config: Any) -> ClassifyPredictor:
    coder = Coder.load(path)
    return ClassifyPredictor(restore(vector_network(config.model, coder, config.task), path), coder, config.data)


def _natural(label: str) -> tuple[int, float, str]:
    """Numbers by size, before words by letters."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _labels(part: Examples) -> list[Any]:
    return part.targets if isinstance(part.targets, list) else []
