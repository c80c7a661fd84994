"""Small tables, tasks and origins for the tests of forecasting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import Diagnostics
from seriatim.nn.network import load_weights, weights
from seriatim.runs.configure import configure
from seriatim.tasks.base import Batch
from seriatim.tasks.forecast.encoded import Origins, SeriesEncoded
from seriatim.tasks.forecast.processor import ForecastProcessor
from seriatim.tasks.forecast.task import ForecastTask
from seriatim.tasks.reading import prepare
from seriatim.tasks.values import Splits
from seriatim.training.objective import TaskObjective

DAY = np.datetime64("2024-01-01")


def write_table(folder: Path, columns: dict[str, Any], name: str = "data.csv") -> Path:
    """Writes a daily table; None is an empty cell."""
    count = len(next(iter(columns.values())))
    rows = [
        ",".join([str(DAY + i), *("" if column[i] is None else str(column[i]) for column in columns.values())])
        for i in range(count)
    ]
    path = folder / name
    path.write_text("\n".join([",".join(["date", *columns]), *rows]) + "\n", encoding="utf-8")
    return path


def waves(count: int = 140, seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    t = np.arange(count)
    return (10 + 3 * np.sin(2 * np.pi * t / 7) + 0.02 * t + generator.normal(size=count)).round(4).tolist()


@dataclass(frozen=True)
class Case:
    """A task with its splits, and the notes of their preparation."""

    task: ForecastTask
    splits: Splits[SeriesEncoded]
    diagnostics: Diagnostics

    @property
    def processor(self) -> ForecastProcessor:
        return self.task.processor

    def items(self, split: str) -> SeriesEncoded:
        return self.splits[split].items

    def origins(self, split: str) -> Origins:
        """Returns the forecast origins of the backtest of a split."""
        return self.items(split).backtest(self.task.settings.stride)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        return TaskObjective.of(self.task, self.splits).batch(step, first, last, batch_size)

    def metrics(self, network: Any, split: str) -> dict[str, float]:
        return dict(self.task.evaluate(network, self.splits[split]).metrics)

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        return self.task.baselines(self.splits, [split])[split]

    def calibrated(self, network: Any) -> Case:
        """Returns the case after training: with calibrated intervals, and the weights of the network adapted."""
        task, adapted = self.task.calibrate(network, self.splits["validation"], self.diagnostics)
        load_weights(network, {**weights(network), **adapted})
        return replace(self, task=task)

    def build(self) -> Any:
        return self.task.build(self.splits.train)


def make_case(config: Any, data: Any = None, validation: Any = None) -> Case:
    """Returns a prepared task."""
    diagnostics = Diagnostics()
    return Case(*prepare(ForecastTask, config, data, validation, diagnostics=diagnostics), diagnostics)


def make_task(path: Path | str, model: Any = None, columns: Any = None, **settings: Any) -> tuple[Case, Any]:
    """Returns a prepared task and a network with random weights."""
    values = {
        "task": {"context_length": 14, "horizon": 3} | settings,
        "data": {"columns": columns or {}},
        "model": {"name": "gru", "width": 5} | (model or {}),
    }
    case = make_case(configure("forecast", str(path), None, values).task_config())
    return case, case.build()


def origins_at(*positions: int, horizon: int = 3) -> Origins:
    count = len(positions)
    return Origins(np.zeros(count, np.int64), np.array(positions), np.ones((count, horizon), dtype=bool))
