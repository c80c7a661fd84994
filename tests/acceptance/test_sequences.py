"""The tasks over sequences on real data, each against the value it must reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import seriatim
from seriatim.lab.reproduce import reproduce

DATA = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="SERIATIM_REAL_DATA names no local copy of the data sets"),
]


def train_and_test(task: str, data: str, model: str, steps: int, out: Path) -> dict[str, float]:
    """Returns the metrics on the test split after a training."""
    run = seriatim.train(task, data, model, data_dir=str(DATA), out=out, steps=steps, report=False)
    return run.metrics["test"]


def test_sentiment_from_scratch(tmp_path: Path) -> None:
    assert train_and_test("classify", "rt-polarity", "gru", 600, tmp_path / "run")["accuracy"] >= 0.74


def test_word_classes_by_a_bidirectional_lstm(tmp_path: Path) -> None:
    assert train_and_test("tag", "ud-ewt", "lstm", 1000, tmp_path / "run")["accuracy"] >= 0.90


@pytest.mark.parametrize(("data", "horizon"), [("airline-passengers", 12), ("etth1", 24)])
def test_a_forecast_beats_the_season_before(data: str, horizon: int, tmp_path: Path) -> None:
    run = seriatim.train(
        "forecast", data, "gru", data_dir=str(DATA), out=tmp_path / "run", horizon=horizon, steps=400, report=False
    )
    assert run.metrics["test"]["mse"] < run.summary["baselines"]["test"]["seasonal naive"]["mse"]


def test_the_table_of_forecasts(tmp_path: Path) -> None:
    reproduction = reproduce("forecasting", models=["dense", "deep rnn", "gru"], out=tmp_path, data_dir=str(DATA))
    values = {result.label: result.value for result in reproduction.results}
    assert values["dense"] <= 0.0028
    assert values["deep rnn"] <= 0.0024
    assert values["gru"] <= 0.0014


def test_chorales(tmp_path: Path) -> None:
    reproduction = reproduce("bai2018", ["jsb"], ["lstm", "tcn"], out=tmp_path, data_dir=str(DATA))
    values = {result.label: result.value for result in reproduction.results}
    assert values["lstm"] <= 8.5
    assert values["tcn"] <= 8.2
