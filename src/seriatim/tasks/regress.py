"""Give a sequence a number, or several: a rating, a stability, the sum of two marked values.

The outputs of the backbone are pooled to one vector, and a linear layer gives the values, in the units of the data:

    ŷ = scale · (W pool(h) + b) + shift        scale and shift: deviation and mean of the training values

Trained by the squared error, each value divided by its scale, so that several of them weigh the same. A model that
keeps its examples instead (`kernel`) takes sequences of numbers of one length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..core import registry
from ..core.errors import SeriatimError
from ..core.tensors import load_tensors
from ..data import examples
from ..data.sequences import Examples, Parts
from ..data.tokenizers import Tokenizer
from ..data.writing import Table
from ..nn.backbone import BackboneSettings
from ..nn.heads import Scaled
from ..nn.network import Network
from . import _kernel, _scores
from ._coder import Coder
from ._examples import mismatch, pictured, restore, spread
from ._predict import Predictor, short
from ._task import Batch
from ._unlike import unlike_names
from ._vector import Notify, VectorSettings, VectorTask, vector_network

__all__ = ["DataSettings", "Settings", "adopt", "mismatch", "open_run", "prepare", "reopen", "reopen_on"]

DataSettings = examples.ExampleSettings
PICTURES = True  # are among what it answers for
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

    def hard(self, network: nn.Module, scores: Tensor, batch: Batch, smoothing: float) -> Tensor:
        return self.soft(network, scores, batch.targets, 1.0)

    def soft(self, network: nn.Module, scores: Tensor, taught: Tensor, temperature: float) -> Tensor:
        """A value has no wrong alternatives for a temperature to bring out: the distance is squared as ever."""
        scale = network.get_submodule("head").get_buffer("scale")
        return (((scores - taught) / scale) ** 2).mean(dim=-1).sum()

    def unlike(self, teacher: Any) -> list[str]:
        """One value is that value, whatever its column is called."""
        ours, theirs = self.coder.labels, teacher.coder.labels
        return [] if len(ours) == len(theirs) == 1 else unlike_names(ours, theirs, "value")

    def count(self, model: Any, progress: Callable[[str], None]) -> Any:
        """A model that keeps its examples, made from the training part."""
        train = self.parts["train"]
        deviation = spread(train.inputs.values)[1] if self.standardise else None
        return _kernel.fitted(model, train, deviation, progress)

    def within(self, model: Any, entries: int) -> Any:
        """Its settings for a budget of numbers to store."""
        return model.model_copy(update={"entries": entries})

    def outputs(self, network: Any, split: str, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(network, nn.Module):
            return super().outputs(network, split, limit)
        rows = self.chosen(split, limit)
        return network.predict(self._asked(network, split, rows)), rows

    def _asked(self, model: Any, split: str, rows: np.ndarray) -> np.ndarray:
        return _kernel.asked(model, self.coder, self.parts[split].inputs, rows, self.parts[split].examples)

    def evaluate(self, model: Any, split: str, limit: int | None = None) -> dict[str, float]:
        values, rows = self.outputs(model, split, limit)
        learned = isinstance(model, nn.Module)
        scale = model.get_submodule("head").get_buffer("scale").cpu().numpy() if learned else model.scale
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

    def details(self, model: Any, split: str) -> list[dict[str, Any]]:
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
            [part.examples.place(row), pictured(part.examples.inputs[row]), _numbers(true[row]), _numbers(values[row])]
            for row in worst
        ]
        columns = ["where", "input", "true", "predicted"]
        several = [self._each(values, true)] if len(self.coder.labels) > 1 else []
        farthest = {"kind": "table", "title": "Farthest off", "columns": columns, "rows": table}
        predictor = RegressPredictor(model, self.coder)
        curves = _kernel.curves(predictor.values, self.coder, self.parts["train"])
        if isinstance(model, Network):
            return [*several, *curves, *views, farthest, *self.reach(model, split)]
        weights = _kernel.weights(model, self.coder, self._asked(model, split, rows), values)
        return [*several, *curves, weights, *views, farthest]

    def _each(self, values: np.ndarray, true: np.ndarray) -> dict[str, Any]:
        """The measures of every value by itself: their units may have nothing in common."""
        rows = []
        for k, name in enumerate(self.coder.labels):
            t, v = true[:, k].astype(np.float64), values[:, k].astype(np.float64)
            figures = (((v - t) ** 2).mean(), np.abs(v - t).mean(), _scores.r_squared(t, v), _scores.spearman(t, v))
            rows.append([name, *(float(f"{figure:.4g}") for figure in figures)])
        columns = ["value", "MSE", "MAE", "R²", "Spearman"]
        return {"kind": "table", "title": "Value by value", "columns": columns, "rows": rows}

    def said(self, model: Any, inputs: list[Any]) -> list[str]:
        answers = RegressPredictor(model, self.coder).predict(inputs)
        return [_numbers(np.array(list(answer.values()))) for answer in answers]

    def wanted(self, split: str, row: int) -> str:
        return _numbers(self.parts[split].targets[row])


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in values.reshape(-1).tolist())


def network(model: BackboneSettings, coder: Coder, settings: Settings) -> Network:
    return vector_network(model, coder, settings, Scaled)


class RegressPredictor(Predictor):
    def values(self, items: Any) -> np.ndarray:
        """The answers for some inputs as an array (n,outputs)."""
        return np.array([list(answer.values()) for answer in self.predict(items)])

    def predict(self, items: Any) -> list[dict[str, Any]]:
        if isinstance(self.model, nn.Module):
            return super().predict(items)
        sequences = self.coder.encode(items)
        points = _kernel.asked(self.model, self.coder, sequences, np.arange(len(sequences)), None)
        return self.meaning(torch.from_numpy(self.model.predict(points)))

    def meaning(self, scores: Tensor) -> list[dict[str, Any]]:
        return [dict(zip(self.coder.labels, row, strict=True)) for row in scores.tolist()]

    def table(self, answers: list[dict[str, Any]]) -> Table:
        return Table(list(self.coder.labels), [[short(value) for value in answer.values()] for answer in answers])


reopen, reopen_on = RegressTask.reopen, RegressTask.reopen_on


def prepare(
    config: Any, data_dir: str | None = None, notify: Notify | None = None, tokenizer: Tokenizer | None = None
) -> VectorTask:
    _kernel.refuse_others(config.model, config.task.name)
    task = RegressTask.prepare(config, data_dir, notify, tokenizer=tokenizer)
    if config.model.counts:
        _kernel.check(config.model, task.coder, task.parts)
    return task


def adopt(folder: Path, tokenizer: Tokenizer, labels: tuple[str, ...], longest: int, several: bool) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere."""
    Coder("text", longest, labels, tokenizer=tokenizer, limit=longest, pairs=None).save(folder)


def open_run(path: Path, config: Any) -> RegressPredictor:
    coder = Coder.load(path)
    if not config.model.counts:
        return RegressPredictor(restore(network(config.model, coder, config.task), path), coder, config.data)
    if not (path / "model.safetensors").exists():
        raise SeriatimError("run.unfinished", f"{path} was stopped before it was made", "train it again")
    stored = {name: tensor.numpy() for name, tensor in load_tensors(path / "model.safetensors").items()}
    try:
        model = registry.models.load(config.model.name).Kernel.from_tensors(stored, config.model)
    except SeriatimError as error:
        raise mismatch(path, error) from None
    return RegressPredictor(model, coder, config.data)
