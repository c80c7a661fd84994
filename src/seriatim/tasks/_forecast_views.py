"""Pictures and tables of a backtest, for the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _forecast_measures as measures
from ._forecast_predict import forecasts

SHOWN = 6  # series or columns with a picture
ROWS = 20  # of a table
HISTORY = 120  # values before a forecast, at most


def views(task: Any, model: Any, split: str) -> list[dict[str, Any]]:
    at = task._asked(split)
    scaled = forecasts(model, task.arrays, task.settings, at.rows, at.places)
    true = measures.actual(task.arrays, at)
    guess = task._point(at, scaled)
    simple = task.simple(at)
    found = _pictures(task, at, scaled)
    found.append(_by_step(true, {"model": guess, **simple}))
    if task.layout.split != "series" and len(measures.by_series(task.arrays, at, true, guess)) > 1:
        found.append(_by_series(task, at, true, guess, simple))
    if task.settings.quantiles:
        found.append(_calibration(task, at, true, scaled))
    return found


def _pictures(task: Any, at: measures.Origins, scaled: np.ndarray) -> list[dict[str, Any]]:
    """The last whole forecast of some series, beside what came and the simple forecast."""
    arrays, layout = task.arrays, task.layout
    pairs = [(row, target) for row in np.unique(at.rows).tolist() for target in range(len(layout.roles.targets))]
    chosen = [pairs[i] for i in np.unique(np.linspace(0, len(pairs) - 1, min(SHOWN, len(pairs))).astype(int))]
    found = []
    for row, target in chosen:
        last = int(np.flatnonzero(at.rows == row)[-1])
        one = measures.Origins(at.rows[[last]], at.places[[last]], np.ones((1, layout.horizon), dtype=bool))
        place, series = int(one.places[0]), arrays.series[row]
        steps = np.arange(layout.horizon)
        start = max(place - min(max(layout.length, 2 * layout.horizon), HISTORY), 0)
        text = lambda step, series=series: layout.frequency.text(  # noqa: E731
            float(layout.frequency.after(series.start, int(step)))
        )
        past, coming = [text(step) for step in range(start, place)], [text(place + step) for step in steps]
        values = series.values[:, target]
        mine = scaled[[last]]
        name = layout.roles.targets[target]
        view = {
            "kind": "forecast",
            "title": " · ".join(part for part in (series.name, name) if part),
            "name": name,
            "history": _points(past, values[start:place]),
            "actual": _points(coming, values[place : place + layout.horizon]),
            "forecast": _points(coming, task._point(one, mine)[0, :, target]),
        }
        band = task._band(one, mine)
        if band is not None:
            view |= {"low": _points(coming, band[0][0, :, target]), "high": _points(coming, band[1][0, :, target])}
        simple = task.simple(one)
        name = "seasonal naive" if "seasonal naive" in simple else "naive"
        found.append(view | {"baseline": _points(coming, simple[name][0, :, target]), "baseline_name": name})
    return found


def _points(times: list[Any], values: np.ndarray) -> list[list[Any]]:
    return [[t, None if np.isnan(v) else float(v)] for t, v in zip(times, values, strict=True)]


def _by_step(true: np.ndarray, guesses: dict[str, np.ndarray]) -> dict[str, Any]:
    steps = true.shape[1]
    some = np.unique(np.linspace(0, steps - 1, min(steps, ROWS)).astype(int)).tolist()
    rows = [[step + 1, *(_mae(true[:, step], guess[:, step]) for guess in guesses.values())] for step in some]
    note = "mean absolute error of the forecast so many steps ahead"
    columns = ["step", *guesses]
    return {"kind": "table", "title": "Error by step of the horizon", "columns": columns, "rows": rows, "note": note}


def _mae(true: np.ndarray, guess: np.ndarray) -> float | None:
    off = np.abs(true - guess)
    there = ~np.isnan(off)
    return float(off[there].mean()) if there.any() else None


def _by_series(
    task: Any, at: measures.Origins, true: np.ndarray, guess: np.ndarray, simple: dict[str, np.ndarray]
) -> dict[str, Any]:
    name = "seasonal naive" if "seasonal naive" in simple else "naive"
    beside = {(row, target): mae for row, target, mae, _ in measures.by_series(task.arrays, at, true, simple[name])}
    found = measures.by_series(task.arrays, at, true, guess)
    found.sort(key=lambda one: -one[3] if np.isfinite(one[3]) else np.inf)
    names = task.layout.roles.targets
    rows = [
        [task.arrays.series[row].name, names[target], mae, beside[row, target], mase if np.isfinite(mase) else None]
        for row, target, mae, mase in found[:ROWS]
    ]
    columns = ["series", "target", "MAE", f"MAE of {name}", "MASE"]
    return {"kind": "table", "title": "Hardest series first", "columns": columns, "rows": rows}


def _calibration(task: Any, at: measures.Origins, true: np.ndarray, scaled: np.ndarray) -> dict[str, Any]:
    quantiles = task.settings.quantiles
    values = [measures.unscaled(task.arrays, at, scaled[..., index]) for index in range(len(quantiles))]
    rows = [[quantile, share] for quantile, share in measures.shares_below(true, np.stack(values, axis=-1), quantiles)]
    note = f"the band from {quantiles[0]:g} to {quantiles[-1]:g} should hold {quantiles[-1] - quantiles[0]:.0%}"
    columns = ["quantile", "share of values below"]
    return {"kind": "table", "title": "Quantiles", "columns": columns, "rows": rows, "note": note}


def spoken(task: Any, model: Any) -> str:
    """Up to three forecasts of the validation part in words."""
    at = task._asked("valid")
    some = at.some(3)
    scaled = forecasts(model, task.arrays, task.settings, some.rows, some.places)
    guess = task._point(some, scaled)
    lines = []
    for index, (row, place) in enumerate(zip(some.rows.tolist(), some.places.tolist(), strict=True)):
        series = task.arrays.series[row]
        name = " · ".join(part for part in (series.name, task.layout.roles.targets[0]) if part)
        steps = min(task.layout.horizon, 8)
        true = series.values[place : place + steps, 0]
        before = series.values[max(place - 6, 0) : place, 0]
        lines.append(f"{name}: … {_said(before)} → {_said(guess[index, :steps, 0])} (came {_said(true)})")
    return "\n".join(lines)


def _said(values: np.ndarray) -> str:
    return " ".join("?" if np.isnan(value) else f"{value:.4g}" for value in values)
