"""Small tables, tasks and origins for the tests of forecasting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seriatim.core.errors import Diagnostics
from seriatim.runs.configure import configure
from seriatim.tasks.forecast.encoded import Origins
from seriatim.tasks.forecast.task import ForecastTask

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


def make_task(path: Path | str, model: Any = None, columns: Any = None, **settings: Any) -> tuple[ForecastTask, Any]:
    """Returns a task and a network with random weights."""
    values = {
        "task": {"context_length": 14, "horizon": 3} | settings,
        "data": {"columns": columns or {}},
        "model": {"name": "gru", "width": 5} | (model or {}),
    }
    config = configure("forecast", str(path), None, values)
    task = ForecastTask.prepare(config.task_config(), diagnostics=Diagnostics())
    return task, task.build()


def origins_at(*positions: int, horizon: int = 3) -> Origins:
    count = len(positions)
    return Origins(np.zeros(count, np.int64), np.array(positions), np.ones((count, horizon), dtype=bool))
