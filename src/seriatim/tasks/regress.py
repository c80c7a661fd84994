"""Give a sequence a number, or several: a rating, a stability, the sum of two marked values.

The outputs of the backbone are pooled to one vector, and a linear layer gives the values, in the units of the data:

    ŷ = scale · (W pool(h) + b) + shift        scale and shift: deviation and mean of the training values

Trained by the squared error, each value divided by its scale, so that several of them weigh the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..data import examples
from ..data.sequences import Examples, Parts
from ..data.writing import Table
from ..nn.backbone import BackboneSettings
from ..nn.heads import Scaled
from ..nn.network import Network, full
from . import _scores
from ._coder import Coder
from ._examples import mismatch, restore, shown, spread
from ._predict import Predictor, short
from ._task import Batch
from ._vector import VectorSettings, VectorTask, vector_network

__all__ = ["DataSettings", "Settings", "mismatch", "open_run", "prepare", "reopen", "reopen_on"]

DataSettings = examples.ExampleSettings
POINTS = 2_000  # of the scatter picture


class Settings(VectorSettings):
    name: str = Field("regress", description="the task: see `seriatim list tasks`")


class RegressTask(VectorTask):
    numeric = True

    @staticmethod
    def name_outputs(coder: Coder, parts: Parts) -> Coder:
        width = np.array(parts.train.targets).reshape(len(parts.train), -1).shape[1]
        named = [name for name in parts.columns.get("target", "").split(",") if name]
        plain = ["prediction"] if width == 1 else [f"value{index + 1}" for index in range(width)]
        return replace(coder, labels=tuple(named if len(named) == width else plain))

    @staticmethod
    def encode_targets(coder: Coder, part: Examples) -> np.ndarray:
        width = len(coder.labels)
        targets = part.targets if isinstance(part.targets, list) else []
        for index, target in enumerate(targets):
            if (given := len(target) if isinstance(target, tuple) else 1) != width:
                cause = f"{part.place(index)}: {given} numbers to predict, the model has {width}"
                raise SeriatimError("data.target", cause, f"give {', '.join(coder.labels)}")
        return np.array(targets, dtype=np.float32).reshape(len(part), width)

    def shape(self, model: BackboneSettings) -> Network:
        return network(model, self.coder, self.settings)

    def build(self, model: BackboneSettings) -> Network:
        network = super().build(model)
        mean, deviation = spread(self.parts["train"].targets)
        network.head.get_buffer("shift").copy_(torch.from_numpy(mean))
        network.head.get_buffer("scale").copy_(torch.from_numpy(deviation))
        return network

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        values, _ = network(batch.inputs, batch.mask)
        scale = network.get_submodule("head").get_buffer("scale")
        return (((full(values) - batch.targets) / scale) ** 2).mean(dim=-1).sum(), None

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        values, rows = self.outputs(model, split, limit)
        scale = model.get_submodule("head").get_buffer("scale").cpu().numpy()
        return self._measures(values, self.parts[split].targets[rows], scale)

    def _measures(self, values: np.ndarray, true: np.ndarray, scale: np.ndarray) -> dict[str, float]:
        """Means over the values where there are several; `loss` in units of their deviation."""
        values, true = values.astype(np.float64), true.astype(np.float64)
        wrong = values - true
        pairs = list(zip(true.T, values.T, strict=True))
        return {
            "loss": float(((wrong / scale) ** 2).mean()),
            "mse": float((wrong**2).mean()),
            "mae": float(np.abs(wrong).mean()),
            "r2": float(np.mean([_scores.r_squared(*pair) for pair in pairs])),
            "spearman": float(np.mean([_scores.spearman(*pair) for pair in pairs])),
            "examples": float(len(true)),
        }

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Always the mean of the training part."""
        true = self.parts[split].targets
        mean, deviation = spread(self.parts["train"].targets)
        return {"mean": self._measures(np.tile(mean, (len(true), 1)), true, deviation)}

    def details(self, model: Network, split: str) -> list[dict[str, Any]]:
        values, rows = self.outputs(model, split)
        part = self.parts[split]
        true = part.targets[rows]
        some = np.unique(np.linspace(0, len(rows) - 1, min(POINTS, len(rows))).astype(np.int64))
        views: list[dict[str, Any]] = [
            {
                "kind": "scatter",
                "title": name if len(self.coder.labels) > 1 else "True values and predictions",
                "x": f"true {name}",
                "y": "predicted",
                "points": [[float(t), float(v)] for t, v in zip(true[some, k], values[some, k], strict=True)],
            }
            for k, name in enumerate(self.coder.labels)
        ]
        distance = np.abs(values - true).mean(axis=1)
        worst = np.argsort(-distance, kind="stable")[:20].tolist()
        table = [
            [part.examples.place(row), shown(part.examples.inputs[row]), _numbers(true[row]), _numbers(values[row])]
            for row in worst
        ]
        columns = ["where", "input", "true", "predicted"]
        several = [self._each(values, true)] if len(self.coder.labels) > 1 else []
        farthest = {"kind": "table", "title": "Farthest off", "columns": columns, "rows": table}
        return [*several, *views, farthest, *self.reach(model, split)]

    def _each(self, values: np.ndarray, true: np.ndarray) -> dict[str, Any]:
        """The measures of every value by itself: their units may have nothing in common."""
        rows = []
        for k, name in enumerate(self.coder.labels):
            t, v = true[:, k].astype(np.float64), values[:, k].astype(np.float64)
            figures = (((v - t) ** 2).mean(), np.abs(v - t).mean(), _scores.r_squared(t, v), _scores.spearman(t, v))
            rows.append([name, *(float(f"{figure:.4g}") for figure in figures)])
        columns = ["value", "MSE", "MAE", "R²", "Spearman"]
        return {"kind": "table", "title": "Value by value", "columns": columns, "rows": rows}

    def said(self, model: nn.Module, inputs: list[Any]) -> list[str]:
        answers = RegressPredictor(model, self.coder).predict(inputs)
        return [_numbers(np.array(list(answer.values()))) for answer in answers]

    def wanted(self, split: str, row: int) -> str:
        return _numbers(self.parts[split].targets[row])


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in values.reshape(-1).tolist())


def network(model: BackboneSettings, coder: Coder, settings: Settings) -> Network:
    return vector_network(model, coder, settings, Scaled)


class RegressPredictor(Predictor):
    def answer(self, scores: Tensor) -> list[dict[str, Any]]:
        return [dict(zip(self.coder.labels, row, strict=True)) for row in scores.tolist()]

    def table(self, answers: list[dict[str, Any]]) -> Table:
        return Table(list(self.coder.labels), [[short(value) for value in answer.values()] for answer in answers])


prepare, reopen, reopen_on = RegressTask.prepare, RegressTask.reopen, RegressTask.reopen_on


def open_run(path: Path, config: Any) -> RegressPredictor:
    coder = Coder.load(path)
    return RegressPredictor(restore(network(config.model, coder, config.task), path), coder, config.data)
