"""Default forecasts against simple ones: MASE, coverage of intervals, several seeds.

    python -m benchmarks.forecasts --minutes 0.2 --seeds 0,1,2

Sets are four of the catalogue and 138 hourly series that are made here like those of the M4 competition: daily and
weekly seasons, trends, autocorrelated noise, and levels that differ by four orders of magnitude. `--sets` takes files,
too, each with its horizon: `--sets sunspots,macrodata.csv=8`. Minutes are of processor time, so that other work on the
machine does not count. Beside the coverage of the intervals is that of the same forecasts with intervals that are
calibrated on the validation split alone, and its standard error if the values of one forecast count as one.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from seriatim import api
from seriatim.runs.evaluate import reopen_task
from seriatim.runs.run import Run
from seriatim.tasks.forecast.backtest import forecast_metrics
from seriatim.tasks.forecast.calibration import known_errors
from seriatim.tasks.forecast.forecasting import make_forecasts
from seriatim.tasks.forecast.task import ForecastTask

SETS = {"etth1": 24, "airline-passengers": 12, "sunspots": 12, "min-temperatures": 14, "hourly": 48}  # horizons
BASELINES = ("seasonal naive", "linear", "ETS", "theta")


def hourly_series(count: int = 138, seed: int = 0) -> pd.DataFrame:
    """Returns series of 700 or 960 hours in the long layout."""
    generator, frames = np.random.default_rng(seed), []
    for number in range(count):
        steps = int(generator.choice([700, 960]))
        t = np.arange(steps)
        level = 10 ** generator.uniform(1, 5)
        day = generator.normal(size=24)
        day = np.convolve(np.r_[day, day, day], np.ones(5) / 5, "same")[24:48]
        day = (day - day.mean()) / day.std()
        week = generator.normal(size=7) * generator.uniform(0, 0.5)
        height = generator.uniform(0.05, 0.5)
        weekday = week[(t // 24) % 7]
        season = height * day[t % 24] * (1 + weekday) + 0.3 * height * weekday
        trend = generator.normal() * 0.3 * t / steps
        noise, decay, size = np.zeros(steps), generator.uniform(0, 0.9), generator.uniform(0.01, 0.12)
        shocks = generator.normal(size=steps)
        for step in range(1, steps):
            noise[step] = decay * noise[step - 1] + size * shocks[step]
        values = (level * np.maximum(1 + season + trend + noise, 0.01)).round(3)
        times = pd.date_range("2015-07-01", periods=steps, freq="h")
        frames.append(pd.DataFrame({"unique_id": f"H{number + 1}", "ds": times, "y": values}))
    return pd.concat(frames)


def calibrated_once(run: Run) -> dict[str, float]:
    """Returns the metrics on the test split with intervals that are calibrated on the validation split alone."""
    task, splits = reopen_task(run, run.memory)
    assert isinstance(task, ForecastTask)
    encoded = splits["test"].items
    assert encoded.held_out is not None
    errors = known_errors(task, run.network, encoded.held_out, until_test=False)
    once = task.with_processor(replace(task.processor, intervals=errors.calibrate(task.settings.intervals)))
    origins = encoded.backtest(task.settings.stride)
    return forecast_metrics(once.processor, encoded, origins, make_forecasts(once, run.network, encoded, origins))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.2)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--sets", default=",".join(SETS))
    arguments = parser.parse_args()
    print("| set | MASE |", *(f" {name} |" for name in BASELINES), end="")
    print(" within 80 %, calibrated once | rolling | within 95 %, calibrated once | rolling | standard errors |")
    print("|---" * (7 + len(BASELINES)) + "|")
    for text in arguments.sets.split(","):
        name, _, horizon = text.partition("=")
        data = hourly_series() if name == "hourly" else name
        options = {"horizon": int(horizon or SETS[name]), "minutes": arguments.minutes}
        options |= {"settings": {"train": {"clock": "cpu"}}, "report": False}
        metrics, once, baselines = [], [], {}
        with tempfile.TemporaryDirectory() as folder:
            for seed in map(int, arguments.seeds.split(",")):
                run = api.train("forecast", data, out=Path(folder, str(seed)), seed=seed, **options)
                metrics.append(run.summary["metrics"]["test"])
                once.append(calibrated_once(run))
                baselines = run.summary["baselines"]["test"]
        cells = [Path(name).stem, ", ".join(f"{each['mase']:.3f}" for each in metrics)]
        cells += [f"{baselines[each]['mase']:.3f}" if each in baselines else "–" for each in BASELINES]
        for percent in (80, 95):
            shares = [np.mean([each[f"coverage_{percent}"] for each in rows]) for rows in (once, metrics)]
            cells += [f"{100 * share:.1f} %" for share in shares]
        forecasts = metrics[0]["values"] / options["horizon"]
        cells.append(" and ".join(f"{np.sqrt(p * (100 - p) / forecasts):.1f}" for p in (80, 95)))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
