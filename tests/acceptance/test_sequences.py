"""The tasks over sequences on real data, each against what it must reach; minutes, so behind a marker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.reproduce import reproduce

DATA = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="SERIATIM_REAL_DATA names no local copy of the data sets"),
]


def measures_of(task: str, data: str, out: Path, **options: Any) -> dict[str, float]:
    run = seriatim.train(task, data, data_dir=str(DATA), out=out, **options)
    measures: dict[str, float] = run.summary["measures"]["test"]
    return measures


def test_sentiment_from_scratch(tmp_path: Path) -> None:
    found = measures_of("classify", "rt-polarity", tmp_path / "run", model="gru", steps=600)
    assert found["accuracy"] >= 0.74


def test_word_classes_by_a_bidirectional_lstm(tmp_path: Path) -> None:
    found = measures_of("tag", "ud-ewt", tmp_path / "run", model="lstm", steps=1000)
    assert found["accuracy"] >= 0.90


def test_a_forecast_beats_the_season_before(tmp_path: Path) -> None:
    for data, horizon in (("airline-passengers", 12), ("etth1", 24)):
        run = seriatim.train(
            "forecast", data, "gru", data_dir=str(DATA), out=tmp_path / data, horizon=horizon, steps=400
        )
        naive = run.summary["baselines"]["test"]["seasonal naive"]
        assert run.summary["measures"]["test"]["mse"] < naive["mse"], data


def test_the_table_of_forecasts(tmp_path: Path) -> None:
    outcome = reproduce("forecasting", models=["dense", "deep rnn", "gru"], out=tmp_path, data_dir=str(DATA))
    reached = {one.label: one.value for one in outcome.reached}
    assert reached["dense"] <= 0.0028
    assert reached["deep rnn"] <= 0.0024
    assert reached["gru"] <= 0.0014


def test_chorales(tmp_path: Path) -> None:
    outcome = reproduce("bai2018", ["jsb"], ["lstm", "tcn"], out=tmp_path, data_dir=str(DATA))
    reached = {one.label: one.value for one in outcome.reached}
    assert reached["lstm"] <= 8.5
    assert reached["tcn"] <= 8.2
