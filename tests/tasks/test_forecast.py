"""Forecasting: forecasts do not depend on the future, the metrics are those of the books, and runs continue series."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forecast_cases import DAY, Case, make_case, make_task, origins_at, waves, write_table
from seriatim import api
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.runs.configure import configure
from seriatim.tasks.base import Batch
from seriatim.tasks.forecast.backtest import Forecasts, forecast_metrics, shares_below
from seriatim.tasks.forecast.baselines import simple_forecasts
from seriatim.tasks.forecast.encoded import Origins, SeriesEncoded, fill_forward, running_mean
from seriatim.tasks.forecast.forecasting import forecast_origins
from seriatim.tasks.forecast.processor import find_season, naive_mae
from seriatim.tasks.forecast.simple import RIDGE
from seriatim.tasks.forecast.task import WindowSampler, value_losses
from seriatim.tasks.reading import read_split

TRAINED = 98  # steps of 140 in the training split


def error(path: Path, **settings: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        make_task(path, **settings)
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    return caught.value


def tensors(batch: Batch) -> list[torch.Tensor]:
    return [batch.inputs, *batch.targets]


MODES = [
    {"anchor": anchor, "mode": mode, "level": level}
    for anchor, level in (("none", "fixed"), ("last", "running"), ("season", "running"), ("linear", "fixed"))
    for mode in ("direct", "recursive")
]
CLASSICAL = [{"anchor": anchor, "mode": "direct", "level": "running"} for anchor in ("ets", "theta")]


# Nothing of the future


@pytest.mark.parametrize("how", MODES + CLASSICAL, ids=lambda how: "-".join(how.values()))
def test_forecasts_do_not_depend_on_the_future(how: dict[str, str], tmp_path: Path) -> None:
    """Values behind an origin are shuffled and removed: every forecast up to it stays, bit by bit."""
    values = waves()
    values[50] = None
    case, network = make_task(write_table(tmp_path, {"y": values}), **how)
    begin = int(case.items("test").history[0])
    order = np.random.default_rng(1).permutation(np.arange(begin, len(values)))
    changed = values[:begin] + [None if i % 5 == 0 else 100 * values[i] for i in order[:-1]] + [3.0]
    other, _ = make_task(write_table(tmp_path, {"y": changed}, "changed.csv"), **how)
    assert other.processor == case.processor

    def forecasts(of: Case, *positions: int) -> np.ndarray:
        return forecast_origins(of.task, network, of.items("test"), origins_at(*positions))

    early = (15, 51, 100, begin)
    assert np.array_equal(forecasts(case, *early), forecasts(other, *early))
    assert not np.array_equal(forecasts(case, begin + 20), forecasts(other, begin + 20))


def test_scaling_and_windows_come_from_the_training_split(tmp_path: Path) -> None:
    values = waves()
    hidden = values[:TRAINED] + [1e6 * (1 + i) for i in range(len(values) - TRAINED)]
    case, _ = make_task(write_table(tmp_path, {"y": values}), anchor="linear")
    other, _ = make_task(write_table(tmp_path, {"y": hidden}, "hidden.csv"), anchor="linear")
    assert case.processor.shifts[0][0] == pytest.approx(np.mean(values[:TRAINED]), rel=1e-12)
    assert case.processor.scales[0][0] == pytest.approx(np.std(values[:TRAINED]), rel=1e-12)
    for step in range(8):
        batches = (tensors(each.batch(step, 0, 16, 16)) for each in (case, other))
        assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def test_every_step_of_the_loss_depends_only_on_steps_before_it(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves()}))
    inputs = case.batch(0, 0, 2, 2).inputs
    changed = inputs.clone()
    changed[:, 7:] += 1
    assert torch.equal(network(inputs)[0][:, :7], network(changed)[0][:, :7])


def test_filling_uses_the_last_value_and_never_a_later_one() -> None:
    values = np.array([[np.nan, 1.0], [2.0, np.nan], [np.nan, np.nan], [4.0, 5.0]])
    assert fill_forward(values).tolist() == [[0.0, 1.0], [2.0, 1.0], [2.0, 1.0], [4.0, 5.0]]
    assert np.allclose(running_mean(np.array([[1.0], [3.0], [5.0], [7.0]]), 2)[:, 0], [1, 2, 4, 6])


# Batches and losses


def test_targets_are_what_comes_next(tmp_path: Path) -> None:
    values = [float(i * i % 101) for i in range(140)]
    case, _ = make_task(write_table(tmp_path, {"y": values}), anchor="none", level="fixed", scaling="none")
    batch = case.batch(0, 0, 6, 6)
    targets, known = batch.targets
    assert bool(known.all())
    assert batch.count == 6 * 14 * 3
    for row in range(6):
        start = next(s for s in range(TRAINED) if values[s : s + 14] == batch.inputs[row, :, 0].tolist())
        for step in range(14):
            assert targets[row, step, :, 0].tolist() == values[start + step + 1 : start + step + 4]


def test_a_missing_value_has_no_part_in_the_loss(tmp_path: Path) -> None:
    values = waves()
    values[40] = None
    case, network = make_task(write_table(tmp_path, {"y": values}))
    batch = case.batch(0, 0, 32, 64)
    targets, known = batch.targets
    assert not bool(known.all())
    assert batch.count == int(known.sum())
    spoiled = replace(batch, targets=(torch.where(known, targets, torch.nan), known))
    losses = [case.task.loss(case.task.forward(network, each), each) for each in (batch, spoiled)]
    assert torch.equal(*losses)
    assert bool(torch.isfinite(losses[0]))
    assert case.processor.flags == (0,)  # an input marks missing values


def test_the_sampler_visits_every_window_once_per_epoch() -> None:
    sampler = WindowSampler(10, seed=3)
    drawn = np.concatenate([sampler.items(step, 4) for step in range(5)])
    assert sorted(drawn[:10].tolist()) == sorted(drawn[10:].tolist()) == list(range(10))
    assert np.array_equal(WindowSampler(10, seed=3).items(2, 4), drawn[8:12])


def test_pinball_by_hand() -> None:
    scores = torch.tensor([[1.0, 2.0, 4.0]])
    losses = value_losses(scores, torch.tensor([3.0]), (0.1, 0.5, 0.9))
    assert losses.item() == pytest.approx((0.1 * 2 + 0.5 * 1 + 0.1 * 1) / 3)
    assert value_losses(scores[:, :1], torch.tensor([3.0]), ()).item() == 2.0
    assert value_losses(scores[:, :1], torch.tensor([3.0]), (), squared=True).item() == 4.0


def test_quantiles_rise(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves()}), quantiles=(0.1, 0.5, 0.9))
    origins = case.origins("test")
    scaled = forecast_origins(case.task, network, case.items("test"), origins)
    assert scaled.shape == (len(origins), 3, 1, 3)
    assert (np.diff(scaled, axis=-1) >= 0).all()
    assert {"loss", "mse", "mae", "mase", "pinball", "coverage"} <= case.metrics(network, "test").keys()


@pytest.mark.parametrize("anchor", ["none", "last", "season", "linear"])
def test_recursive_with_horizon_1_is_direct(anchor: str, tmp_path: Path) -> None:
    path = write_table(tmp_path, {"y": waves()})
    direct, network = make_task(path, horizon=1, anchor=anchor)
    recursive, other = make_task(path, horizon=1, anchor=anchor, mode="recursive")
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    assert direct.metrics(network, "test") == recursive.metrics(other, "test")


@pytest.mark.parametrize("how", MODES[1::2], ids=lambda how: how["anchor"])
def test_recursive_is_one_step_fed_with_its_own_forecasts(how: dict[str, str], tmp_path: Path) -> None:
    """Carrying the state equals reading the whole history with the forecasts appended."""
    values = waves()
    case, network = make_task(write_table(tmp_path, {"y": values}), horizon=9, **how)
    encoded, position = case.items("test"), 60
    origin = origins_at(position, horizon=9)
    scaled = forecast_origins(case.task, network, encoded, origin)[0, :, 0, 0]
    series = case.splits["test"].rows.without("history")
    for step in range(9):
        appended = encoded.scalers[0].invert(scaled[:step, None].astype(float))
        grown = np.concatenate([encoded.raw[0][:position], appended])
        extended = case.processor.encode(
            series.with_column("target", series.kind("target"), _cell(grown)), Diagnostics()
        )
        length = case.processor.context_length + step  # a state forgets nothing: the context grows
        assert _forecast_one(network, extended, length) == pytest.approx(float(scaled[step]), abs=2e-5)


def _cell(array: np.ndarray) -> np.ndarray:
    cells = np.empty(1, dtype=object)
    cells[0] = array
    return cells


def _forecast_one(network: Any, encoded: SeriesEncoded, length: int) -> float:
    size = int(encoded.sizes[0])
    rows = np.arange(size - length, size)[None]
    with torch.inference_mode():
        scores, _ = network(torch.from_numpy(encoded.window(np.array([0]), rows, 1)))
    return float(scores[0, -1, 0]) + float(encoded.anchors(np.array([0]), rows[:, -1:], 1)[0, 0, 0, 0])


def test_a_short_history_is_padded_and_neighbors_do_not_matter(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves()}))
    origins, encoded = origins_at(3, 14, 40, 7, 90), case.items("test")
    together = forecast_origins(case.task, network, encoded, origins)
    for item in range(5):
        alone = forecast_origins(case.task, network, encoded, origins.take(np.array([item])))
        assert np.allclose(alone[0], together[item], atol=1e-6)


def test_future_columns_are_read_for_every_step_of_the_horizon(tmp_path: Path) -> None:
    price = [i % 4 for i in range(140)]
    columns = {"target": "y", "future": "price"}
    case, network = make_task(write_table(tmp_path, {"y": waves(), "price": price}), columns=columns)
    assert case.processor.features(3) == 1 + 1 + 3
    begin, step = 120, 2
    changed = [p + (i == begin + step) for i, p in enumerate(price)]
    path = write_table(tmp_path, {"y": waves(), "price": changed}, "other.csv")
    other, _ = make_task(path, columns=columns)
    first, second = (
        forecast_origins(case.task, network, each.items("test"), origins_at(begin, begin - 1)) for each in (case, other)
    )
    assert not np.array_equal(first[0], second[0])  # within its horizon
    assert np.array_equal(first[1], second[1])  # one step too early


def test_long_trains_as_wide(tmp_path: Path) -> None:
    a, b = waves(seed=0), waves(seed=1)
    wide = write_table(tmp_path, {"a": a, "b": b})
    rows = [f"{name},{DAY + i},{column[i]}" for name, column in (("a", a), ("b", b)) for i in range(len(a))]
    long = tmp_path / "long.csv"
    long.write_text("\n".join(["id,date,value", *rows]), encoding="utf-8")
    (case, network), (other, _) = make_task(wide), make_task(long)
    assert case.metrics(network, "test") == other.metrics(network, "test")
    batches = (tensors(each.batch(3, 0, 8, 8)) for each in (case, other))
    assert all(torch.equal(x, y) for x, y in zip(*batches, strict=True))


def test_bidirectional_models_train_on_the_last_step_only(tmp_path: Path) -> None:
    path = write_table(tmp_path, {"y": waves()})
    case, network = make_task(path, context_length=10, horizon=1, model={"width": 4, "bidirectional": True})
    batch = case.batch(0, 0, 4, 4)
    targets, known = batch.targets
    assert targets.shape[1] == 1  # the other answers are among its inputs
    assert batch.count == int(known.sum()) == 4
    assert np.isfinite(case.metrics(network, "validation")["loss"])


# Metrics


def test_origins_by_series() -> None:
    origins = Origins(np.array([4, 0, 4, 2, 0]), np.arange(5), np.ones((5, 1), dtype=bool))
    assert [(series, rows.tolist()) for series, rows in origins.by_series()] == [(0, [1, 4]), (2, [3]), (4, [0, 2])]
    assert list(origins.take(np.arange(0)).by_series()) == []


def test_origins_cover_every_value_of_a_split_once(tmp_path: Path) -> None:
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), horizon=5)
    begin = int(case.items("test").history[0])
    origins = case.origins("test")
    pairs = zip(origins.positions, origins.counted, strict=True)
    covered = [position + step for position, counted in pairs for step in np.flatnonzero(counted)]
    assert sorted(covered) == list(range(begin, 140))
    every, _ = make_task(write_table(tmp_path, {"y": waves()}), horizon=5, stride=1)
    assert every.origins("test").positions.tolist() == list(range(begin, 136))


def test_metrics_by_hand(tmp_path: Path) -> None:
    values = waves()
    case, _ = make_task(write_table(tmp_path, {"y": values}), horizon=4)
    origins, begin = case.origins("test"), int(case.items("test").history[0])
    y, seasonal, last = np.array(values), [], []
    for position, counted in zip(origins.positions, origins.counted, strict=True):
        seasonal += [y[position + step] - y[position + step - 7] for step in range(4) if counted[step]]
        last += [y[position + step] - y[position - 1] for step in range(4) if counted[step]]
    assert len(last) == 140 - begin
    scale = np.mean(np.abs(y[7:TRAINED] - y[: TRAINED - 7]))
    metrics = case.baselines("test")
    assert metrics["seasonal naive"]["mase"] == pytest.approx(np.mean(np.abs(seasonal)) / scale, rel=1e-5)
    assert metrics["naive"]["mse"] == pytest.approx(np.mean(np.square(last)), rel=1e-5)
    assert metrics["naive"]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(last))), rel=1e-5)
    assert metrics["naive"]["mae"] == pytest.approx(np.mean(np.abs(last)), rel=1e-5)
    assert metrics["naive"]["r2"] == pytest.approx(1 - np.mean(np.square(last)) / np.var(y[begin:]), rel=1e-5)


def test_naive_mae_by_hand() -> None:
    parts = [np.array([[1.0], [4.0], [np.nan], [7.0]]), np.array([[0.0], [1.0]])]
    assert naive_mae(parts, 1)[0] == pytest.approx((3 + 1) / 2)
    assert naive_mae(parts, 2)[0] == pytest.approx(3.0)


def test_the_linear_forecast_is_that_of_least_squares(tmp_path: Path) -> None:
    values = waves(200)
    case, _ = make_task(write_table(tmp_path, {"y": values}), context_length=6, horizon=2)
    origins, encoded, end = case.origins("test"), case.items("test"), 140
    y = encoded.scalers[0].apply(np.array(values)[:, None])[:, 0]
    x = np.array([np.append(y[t - 6 : t], 1.0) for t in range(6, end - 1)])
    targets = np.array([y[t : t + 2] for t in range(6, end - 1)])
    ridge = np.sqrt(RIDGE * len(x)) * np.eye(7)
    weights = np.linalg.lstsq(np.concatenate([x, ridge]), np.concatenate([targets, np.zeros((7, 2))]), rcond=None)[0]
    expected = np.array([np.append(y[p - 6 : p], 1.0) @ weights for p in origins.positions])
    forecasts = simple_forecasts(case.processor, case.items("test"), origins)["linear"][:, :, 0]
    assert np.allclose(forecasts, encoded.scalers[0].invert(expected[..., None])[..., 0], rtol=1e-5)


def test_calibration_of_a_known_gaussian() -> None:
    references = np.random.default_rng(0).normal(size=(20_000, 1, 1))
    quantiles = np.broadcast_to(np.array([-1.2815516, 0.0, 1.2815516]), (20_000, 1, 1, 3))
    assert shares_below(references, quantiles) == pytest.approx([0.1, 0.5, 0.9], abs=0.01)


def test_coverage_counts_values_inside_the_band(tmp_path: Path) -> None:
    case, _ = make_task(write_table(tmp_path, {"y": waves()}))
    origins, encoded = case.origins("test"), case.items("test")
    references = encoded.references(origins)
    low, high = (np.full(references.shape, np.nanquantile(references, share)) for share in (0.25, 0.75))
    quantiles = np.stack([low, np.nan_to_num(references), high], axis=-1)
    metrics = forecast_metrics(case.processor, encoded, origins, Forecasts(quantiles, (0.25, 0.5, 0.75)))
    assert metrics["coverage"] == pytest.approx(0.5, abs=0.05)
    assert (metrics["mse"], metrics["mase"], metrics["r2"]) == (0.0, 0.0, 1.0)


def test_the_season_is_found_by_autocorrelation() -> None:
    t = np.arange(200)
    assert find_season([np.sin(2 * np.pi * t / 13) + 0.01 * t]) == 13
    assert find_season([np.random.default_rng(0).normal(size=200)]) == 1


def test_missing_values_are_not_evaluated(tmp_path: Path) -> None:
    values = waves()
    values[120] = None
    case, network = make_task(write_table(tmp_path, {"y": values}))
    metrics = case.metrics(network, "test")
    assert metrics["values"] == 27.0
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_split_without_known_values_is_an_error(tmp_path: Path) -> None:
    values = [None if 90 <= i < 115 else value for i, value in enumerate(waves())]
    assert "no known value of the target" in error(write_table(tmp_path, {"y": values})).cause


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves()}))
    with pytest.raises(SeriatimError, match="there is no dev split") as caught:
        case.metrics(network, "dev")
    assert caught.value.code == "data.no-split"
    assert "train, validation, test" in caught.value.remedy


# Errors


def test_series_that_are_too_short_are_named(tmp_path: Path) -> None:
    rows = [f"{name},{DAY + i},{i * 7 % 5}" for name, count in (("A", 90), ("B", 20)) for i in range(count)]
    path = tmp_path / "short.csv"
    path.write_text("\n".join(["id,date,y", *rows]), encoding="utf-8")
    assert error(path).cause.startswith("2 problems")
    need = "series B is too short: 14 steps, where a context of 14 and a horizon of 3 need 17"
    assert need in error(path).cause
    case, _ = make_task(path, context_length=None, horizon=2)
    assert case.processor.context_length == 7  # chosen so that it fits
    need = "series B is too short: 2 steps in its validation or test split, where a horizon of 3 needs 3"
    assert error(path, context_length=4).cause == need


def test_a_constant_target_is_an_error_and_another_column_a_note(tmp_path: Path) -> None:
    flat = [1.0] * 100 + [2.0] * 40
    path = write_table(tmp_path, {"y": waves(), "z": flat})
    assert error(path).cause == 'series z: the target "value" never changes in the training split'
    case, network = make_task(path, columns={"target": "y"})
    assert 'the column "z" never changes in the training split' in case.diagnostics.notes
    assert case.processor.scales[0][1] == 1.0
    assert np.isfinite(case.metrics(network, "test")["loss"])


def test_what_cannot_be_forecast_recursively(tmp_path: Path) -> None:
    path = write_table(tmp_path, {"y": waves(), "z": waves(seed=2)})
    assert 'the future of the column "z"' in error(path, mode="recursive", columns={"target": "y"}).cause
    assert "quantiles" in error(path, mode="recursive", quantiles=(0.1, 0.9)).cause
    assert "bidirectional" in error(path, mode="recursive", model={"bidirectional": True}).cause
    assert "rising" in error(path, quantiles=(0.9, 0.1)).cause
    negative = write_table(tmp_path, {"y": [-1.0, *waves(139)]})
    assert error(negative, log=True).cause == 'the series: "y" is -1 at 2024-01-01, which has no logarithm'


# Data sets


def test_sine_predicts_the_last_value_from_the_fifty_before() -> None:
    case, _ = make_task("sine", context_length=None, horizon=1, model={"width": 4})
    assert (case.processor.context_length, case.processor.pooled) == (50, True)
    assert case.origins("test").positions.tolist() == [50] * 1000
    assert 0.0026 < case.baselines("test")["linear"]["mse"] < 0.0032  # what least squares reaches on such series


@pytest.mark.parametrize("settings", [{}, {"multivariate": True, "calendar": True}, {"log": True, "scaling": "minmax"}])
def test_every_option_trains(settings: dict[str, Any], tmp_path: Path) -> None:
    path = write_table(tmp_path, {"a": [abs(v) + 1 for v in waves()], "b": [abs(v) + 1 for v in waves(seed=1)]})
    case, network = make_task(path, **settings)
    batch = case.batch(0, 0, 4, 4)
    case.task.loss(case.task.forward(network, batch), batch).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert ("day" in case.processor.cycles) is False
    assert ("week" in case.processor.cycles) == settings.get("calendar", False)


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("forecast")
    price = [i % 4 for i in range(143)]
    path = write_table(folder, {"y": [*waves(), None, None, None], "price": price})
    settings = {
        "task": {"quantiles": [0.1, 0.5, 0.9]},
        "data": {"columns": {"target": "y", "future": "price"}},
        "model": {"width": 5},
    }
    options = {"horizon": 3, "context_length": 14, "steps": 4, "batch_size": 4}
    return api.train("forecast", str(path), "gru", settings=settings, out=folder / "run", report=False, **options)


def test_a_run_continues_its_own_data(run: Any) -> None:
    predictions = run.forecast()
    ends = ["lower_80", "upper_80", "lower_95", "upper_95"]
    assert list(predictions[0]) == ["series", "time", "variable", "forecast", *ends, "q0.1", "q0.5", "q0.9"]
    assert all(r["lower_95"] < r["lower_80"] < r["forecast"] < r["upper_80"] < r["upper_95"] for r in predictions)
    assert [row["time"] for row in predictions] == ["2024-05-20", "2024-05-21", "2024-05-22"]
    assert all(row["q0.1"] <= row["forecast"] == row["q0.5"] <= row["q0.9"] for row in predictions)
    assert api.load(run.path).forecast() == predictions
    frame = predictions.to_frame()
    assert frame.shape == (3, 11)


def test_a_future_value_that_is_missing_in_the_horizon_is_an_error(run: Any, tmp_path: Path) -> None:
    path = write_table(tmp_path, {"y": [*waves(60), None, None], "price": [i % 4 for i in range(62)]})
    with pytest.raises(SeriatimError) as caught:
        run.forecast(open_path(path))
    assert caught.value.cause == 'the series: the future column "price" has no value at 2024-03-03'


def open_path(path: Path) -> Any:
    from seriatim.data.source import open_source

    return open_source(path)


def test_the_report_has_plots_and_tables(run: Any) -> None:
    views = json.loads((run.path / "evaluation.json").read_text())["test"]
    assert [view["kind"] for view in views] == ["forecast_plot", "lines", "lines", "scatter"]
    plot = views[0]
    assert len(plot["actual"]) == len(plot["forecast"]) == len(plot["baseline"]) == 3
    assert [len(band["lower"]) for band in plot["bands"]] == [3]
    assert (plot["history_times"][-1], plot["history"][-1]) == ("2024-05-16", pytest.approx(waves()[136], rel=1e-3))
    assert set(run.summary["baselines"]["test"]) == {"naive", "seasonal naive", "linear", "ETS", "theta"}
    assert run.summary["metrics"]["test"]["coverage"] >= 0
    assert "seriatim forecast" in run.summary["usage"][0]["shell"]
    assert "→" in run.summary["sample"]


def test_charts_and_inputs_for_inspection(run: Any) -> None:
    dataset = run.task.read_own_data(Diagnostics())
    [chart] = run.predictor.charts("forecast", dataset, None, [])
    assert (len(chart.history), len(chart.forecast), chart.bands[0].label) == (14, 3, "0.1 to 0.9")
    path = run.config.data.source
    prepared = run.predictor.model_input(open_path(Path(path)))
    assert prepared.batch.inputs.shape == (1, 14, 5)
    assert prepared.sequences[0]["element"][-1] == "-1"


def test_histories_without_times(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("y\n" + "\n".join(map(str, waves())), encoding="utf-8")
    options = {"horizon": 2, "context_length": 10, "steps": 2, "batch_size": 4}
    settings = {"model": {"width": 4}}
    trained = api.train("forecast", str(path), "gru", settings=settings, out=tmp_path / "run", report=False, **options)
    predictions = trained.forecast([waves()[:30], "9 10 11 12"])
    assert [row["time"] for row in predictions] == [30, 31, 4, 5]
    assert [row["series"] for row in predictions] == ["input 0", "input 0", "input 1", "input 1"]
    with pytest.raises(SeriatimError):
        trained.forecast(["one two"])


def test_another_file_is_evaluated_with_the_scaling_of_its_namesake(tmp_path: Path) -> None:
    path = write_table(tmp_path, {"a": waves(), "b": waves(seed=1)})
    settings = {"model": {"width": 4}, "train": {"steps": 2, "batch_size": 4}}
    options = {"horizon": 2, "context_length": 7, "report": False}
    trained = api.train("forecast", str(path), "gru", settings=settings, out=tmp_path / "run", **options)
    fresh = write_table(tmp_path, {"a": waves(40, seed=3), "b": [1000 * v for v in waves(40, seed=4)]}, "fresh.csv")
    read = read_split(trained.task, str(fresh))
    shifts = [scaler.shift.tolist() for scaler in read.items.scalers]
    assert shifts == [list(shift) for shift in trained.task.processor.shifts]
    assert api.evaluate(trained.path, data=str(fresh))["values"] == 2 * 33
    resumed = api.resume(trained.path, steps=3, report=False)
    assert resumed.summary["step"] == 3


def test_a_validation_file_that_continues_the_training_file(tmp_path: Path) -> None:
    values = waves()
    head, *rows = write_table(tmp_path, {"y": values}).read_text().splitlines()
    train, later = tmp_path / "train.csv", tmp_path / "later.csv"
    train.write_text("\n".join([head, *rows[:100]]), encoding="utf-8")
    later.write_text("\n".join([head, *rows[100:]]), encoding="utf-8")
    config = configure("forecast", str(train), "gru", {"model": {"width": 4}}, validation=str(later), horizon=3)
    case = make_case(config.task_config())
    assert (int(case.items("validation").history[0]), int(case.items("validation").sizes[0])) == (100, 140)
    predictions = case.task.predictor(case.build()).call("forecast", None)
    assert predictions[0]["time"] == "2024-05-20"  # after the end of both


def test_series_that_only_the_training_file_has_are_continued_too(tmp_path: Path) -> None:
    rows = [f"{name},{DAY + i},{value}" for name in "AB" for i, value in enumerate(waves(60))]
    later = [f"A,{DAY + 60 + i},{value}" for i, value in enumerate(waves(20, seed=1))]
    for name, lines in (("train.csv", rows), ("later.csv", later)):
        (tmp_path / name).write_text("\n".join(["id,date,y", *lines]), encoding="utf-8")
    train, validation = str(tmp_path / "train.csv"), str(tmp_path / "later.csv")
    config = configure("forecast", train, "gru", {"model": {"width": 4}}, validation=validation)
    case = make_case(config.task_config())
    predictions = case.task.predictor(case.build()).call("forecast", None)
    assert {row["series"]: row["time"] for row in predictions} == {"A": "2024-03-21", "B": "2024-03-01"}


def test_a_file_without_a_past_column_of_the_model_is_refused(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves(), "z": waves(seed=1)}), columns={"target": "y"})
    other = write_table(tmp_path, {"y": waves(60)}, "other.csv")
    with pytest.raises(SeriatimError, match="0 past columns, where the model was trained on z"):
        case.task.predictor(network).call("forecast", other)


def test_lists_have_the_variables_of_the_model_in_order(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    lines = [f"{z},{y}" for y, z in zip(waves(), waves(seed=1), strict=True)]
    path.write_text("\n".join(["z,y", *lines]), encoding="utf-8")
    case, network = make_task(path, columns={"target": "y"})
    steps = np.stack([waves(), waves(seed=1)], axis=1)  # the target, then the past column
    predictor = case.task.predictor(network)
    listed, from_file = predictor.call("forecast", [steps.tolist()]), predictor.call("forecast", str(path))
    assert [row["time"] for row in listed] == [row["time"] for row in from_file] == [140, 141, 142]
    assert {row["variable"] for row in listed} == {"y"}
    with pytest.raises(SeriatimError, match="3 numbers per step, the model reads 2"):
        predictor.call("forecast", [np.ones((20, 3))])


def test_a_model_of_one_named_column_reads_lists(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves(), "z": waves()}), columns={"target": "y", "past": ""})
    assert len(case.task.predictor(network).call("forecast", ["9 10 11 12"])) == 3


GOLDEN = [  # settings, losses of six steps, and metrics of the test split, recorded with version 0.1
    (
        {"quantiles": (0.1, 0.5, 0.9), "anchor": "season"},
        [0.2131194, 0.2091468, 0.210615, 0.1987983, 0.2229356, 0.2102796],
        {"loss": 0.180139, "mse": 2.417279, "mae": 1.267853, "mase": 1.067794, "smape": 0.10609, "coverage": 0.357143},
    ),
    (
        {"mode": "recursive", "anchor": "linear", "loss": "squared"},
        [0.3553586, 0.2578657, 0.3652916, 0.2722795, 0.3234154, 0.3634217],
        {"loss": 0.350497, "mse": 1.968061, "mae": 1.036185, "mase": 0.872682, "smape": 0.08687},
    ),
]


@pytest.mark.parametrize(("settings", "losses", "metrics"), GOLDEN, ids=["quantiles", "recursive"])
def test_training_gives_the_recorded_losses_and_metrics(
    settings: dict[str, Any], losses: list[float], metrics: dict[str, float], tmp_path: Path
) -> None:
    values = waves()
    values[50] = None
    case, network = make_task(write_table(tmp_path, {"y": values}), **settings)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    trained = []
    for step in range(6):
        batch = case.batch(37 * step, 0, 8, 8)
        loss = case.task.loss(case.task.forward(network.train(), batch), batch) / batch.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trained.append(loss.item())
    assert trained == pytest.approx(losses, abs=1e-6)
    evaluated = case.metrics(network, "test")
    assert {name: evaluated[name] for name in metrics} == pytest.approx(metrics, abs=1e-5)
