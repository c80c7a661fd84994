"""What forecasts are by default: never worse than their anchor on validation, with calibrated intervals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from forecast_cases import Case, make_case, make_task, origins_at, waves, write_table
from seriatim import api
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.runs.average import average
from seriatim.runs.configure import configure
from seriatim.tasks.forecast import classical
from seriatim.tasks.forecast.backtest import Forecasts, forecast_metrics, plot_coverage
from seriatim.tasks.forecast.baselines import simple_forecasts
from seriatim.tasks.forecast.calibration import known_errors
from seriatim.tasks.forecast.classical import ExponentialSmoothing, Theta
from seriatim.tasks.forecast.encoded import Origins
from seriatim.tasks.forecast.findings import forecast_findings
from seriatim.tasks.forecast.forecasting import forecast_origins, make_forecasts
from seriatim.tasks.forecast.intervals import SCALES, KnownErrors, calibrate, find_bounds, local_scale
from seriatim.tasks.forecast.simple import SimpleForecast
from seriatim.tasks.processor import from_dict
from seriatim.tasks.values import Evaluation

SMALL = {"model": {"width": 4}}


def hourly(series: int, steps: int, seed: int = 0) -> pd.DataFrame:
    """Returns hourly series with daily and weekly seasons, whose levels differ by orders of magnitude."""
    generator, frames = np.random.default_rng(seed), []
    t = np.arange(steps)
    for number in range(series):
        day = np.sin(2 * np.pi * (t / 24 + generator.uniform()))
        weekend = np.where((t // 24) % 7 >= 5, -1.0, 0.0)
        y = 10 ** (1 + 3 * number / max(series - 1, 1)) * (3 + day + weekend + 0.1 * generator.normal(size=steps))
        times = pd.date_range("2024-01-01", periods=steps, freq="h")
        frames.append(pd.DataFrame({"unique_id": f"S{number}", "ds": times, "y": y}))
    return pd.concat(frames, ignore_index=True)


def prepare(data: Any, horizon: int, **settings: Any) -> Case:
    config = configure("forecast", "<DataFrame>", "gru", {"task": settings, "model": {"width": 4}}, horizon=horizon)
    return make_case(config.task_config(), data)


# The anchor


def test_the_anchor_is_the_best_on_the_validation_split() -> None:
    case = prepare(hourly(3, 24 * 7 * 6), horizon=24)
    note = next(note for note in case.diagnostics.notes if note.startswith("anchor: "))
    errors = {}
    encoded = case.items("validation")
    origins = encoded.every_origin()
    plain = replace(case.processor, anchor="none", anchor_lag=0, linear_weights="")
    classical_fits = encoded.baselines.classical
    classical_anchors = [(name, plain.with_classical(name.lower(), f)) for name, f in classical_fits.items()]
    for name, processor in [*plain.anchor_candidates(case.items("train"), 24), *classical_anchors]:
        candidate = replace(encoded, anchor=processor.anchor_of(encoded))
        forecasts = make_forecasts(case.task.with_processor(processor), None, candidate, origins)
        errors[name] = forecast_metrics(processor, candidate, origins, forecasts)["mase"]
    assert {"the value 24 steps before", "ETS", "theta"} <= errors.keys()
    assert errors["the value 168 steps before"] < errors["the value 24 steps before"]  # weekends differ
    assert note.startswith(f"anchor: {min(errors, key=lambda name: errors[name])}, ")
    forecasts = make_forecasts(case.task, None, encoded, origins)
    assert forecast_metrics(case.processor, encoded, origins, forecasts)["mase"] == min(errors.values())


def test_an_anchor_that_is_named_is_kept(tmp_path: Path) -> None:
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), anchor="last")
    assert (case.processor.anchor, case.processor.simple_forecast.lag) == ("last", 1)
    assert not any(note.startswith("anchor: ") for note in case.diagnostics.notes)


@pytest.mark.parametrize(("anchor", "name"), [("ets", "ETS"), ("theta", "theta")])
@pytest.mark.parametrize("log", [False, True])
def test_a_statistical_anchor_alone_is_that_baseline(anchor: str, name: str, log: bool, tmp_path: Path) -> None:
    columns = {"a": waves(), "b": [1000 * v for v in waves(seed=1)]}
    case, _ = make_task(write_table(tmp_path, columns), anchor=anchor, log=log)
    origins = case.origins("test")
    alone = make_forecasts(case.task, None, case.items("test"), origins).values
    assert alone == pytest.approx(simple_forecasts(case.processor, case.items("test"), origins)[name], rel=1e-5)
    stored, _ = case.processor.to_dict()
    assert from_dict(stored, tmp_path) == case.processor
    train, position = case.items("train"), origins_at(14 + 3)
    batch = case.task.collate(train, np.array([3]))  # whose last targets are relative to the same forecast
    expected = train.values[17:20, 0] - forecast_origins(case.task, None, train, position)[0, :, 0, 0]
    assert batch.targets[0][0, -1, :, 0].numpy() == pytest.approx(expected, abs=1e-5)


def test_a_statistical_anchor_of_new_series_is_fitted_on_them(tmp_path: Path) -> None:
    """A series that the run does not know is forecast as if it had been trained on."""
    values = waves(seed=5)
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), anchor="ets")
    known, _ = make_task(write_table(tmp_path, {"y": values}, "other.csv"), anchor="ets", season=7)
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=98), "name": "new", "y": values[:98]})
    dataset = case.task.read(frame, Diagnostics(), columns={"series": "name"})
    encoded = case.processor.encode_scaled(dataset, None)
    end = origins_at(98)
    new = make_forecasts(case.task, None, encoded, end).values
    assert new == pytest.approx(make_forecasts(case.task, None, known.items("train"), end).values, rel=1e-5)


@pytest.mark.parametrize("anchor", ["ets", "theta"])
def test_a_longer_neighbor_does_not_change_a_forecast(anchor: str, tmp_path: Path) -> None:
    """Of a series of less than two seasons, whose trend is then 0 at first."""
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), anchor=anchor, season=7)
    frames = [
        pd.DataFrame({"date": pd.date_range("2024-01-01", periods=count), "name": own, "y": waves(seed=5)[:count]})
        for own, count in (("new", 12), ("longer", 60))
    ]
    forecasts = []
    for frame in (frames[0], pd.concat(frames)):
        encoded = case.processor.encode_scaled(case.task.read(frame, Diagnostics(), columns={"series": "name"}), None)
        position = encoded.names.index("new")
        origins = Origins(np.array([position]), np.array([12]), np.ones((1, 3), bool))
        forecasts.append(make_forecasts(case.task, None, encoded, origins).values)
    assert np.array_equal(*forecasts)


def test_a_statistical_anchor_is_not_fed_back(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match=r"task\.anchor=ets forecasts all steps at once"):
        make_task(write_table(tmp_path, {"y": waves()}), anchor="ets", mode="recursive")
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), mode="recursive")
    assert case.processor.anchor not in ("ets", "theta")


@pytest.mark.parametrize("mode", ["direct", "recursive"])
def test_a_network_that_does_not_help_leaves_the_anchor_alone(mode: str, tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves()}), mode=mode)
    torch.nn.init.normal_(network.head.weight, std=3.0)
    origins = case.origins("test")
    anchor = make_forecasts(case.task, None, case.items("test"), origins)
    assert not np.allclose(make_forecasts(case.task, network, case.items("test"), origins).values, anchor.values)
    case = case.calibrated(network)
    assert np.array_equal(make_forecasts(case.task, network, case.items("test"), origins).values, anchor.values)
    (finding,) = case.task.findings({"test": Evaluation(case.splits["test"], {}, None)})
    assert (finding.part, finding.detail) == ("the anchor", case.processor.unused)
    assert any(finding.detail in note for note in case.diagnostics.notes)


def test_a_network_that_helps_counts(tmp_path: Path) -> None:
    values = [v + (8 if i >= 95 else 0) for i, v in enumerate(waves())]  # a new level, which the mean does not know
    case, network = make_task(write_table(tmp_path, {"y": values}), anchor="none")
    torch.nn.init.zeros_(network.head.weight)
    torch.nn.init.constant_(network.head.bias, float(8 / case.processor.scales[0][0]))
    before = case.metrics(network, "validation")["mase"]
    case = case.calibrated(network)
    assert float(network.head.bias.detach()[0]) != 0
    assert case.metrics(network, "validation")["mase"] <= before
    assert any(note.startswith("the forecast is the anchor and ") for note in case.diagnostics.notes)


@pytest.mark.parametrize(("horizon", "counts"), [(1, True), (7, False)])
def test_two_forecasts_say_little_about_a_network(horizon: int, counts: bool, tmp_path: Path) -> None:
    """Twelve of 14 forecasts are better; two long ones are better by two standard errors, which may be chance."""
    values = [v + (8 if i >= 100 else 0) for i, v in enumerate(waves())]  # the validation split starts at step 98
    case, network = make_task(write_table(tmp_path, {"y": values}), anchor="none", horizon=horizon)
    torch.nn.init.zeros_(network.head.weight)
    torch.nn.init.constant_(network.head.bias, float(8 / case.processor.scales[0][0]))
    case = case.calibrated(network)
    assert (float(network.head.bias.detach()[0]) != 0) == counts


def test_files_of_later_steps_continue_many_short_series() -> None:
    frame = hourly(120, 60)
    late = frame.groupby("unique_id").cumcount() >= 48
    config = configure(
        "forecast",
        "<DataFrame>",
        "gru",
        {"model": {"width": 4}},
        horizon=6,
        context_length=10,
        validation="<DataFrame>",
    )
    case = make_case(config.task_config(), data=frame[~late], validation=frame[late])
    assert set(case.items("validation").history.tolist()) == {48}
    assert not case.processor.pooled


# Metrics


def test_mase_is_averaged_over_series_as_in_the_m4_competition() -> None:
    """Series of any size count the same; the scale is the seasonal naive error within the training split."""
    frame = hourly(4, 24 * 20)
    case = prepare(frame, horizon=24)
    metrics, ratios = case.baselines("test")["naive"], []
    for name, group in frame.groupby("unique_id"):
        y = group.y.to_numpy()
        history = int(case.items("test").history[0])
        trained = round(len(y) * 0.7)
        scale = np.mean(np.abs(y[24:trained] - y[: trained - 24]))
        errors = []
        for origin in range(history, len(y), 24):
            origin = min(origin, len(y) - 24)
            steps = np.arange(max(origin, history + len(errors)), origin + 24)
            errors += np.abs(y[steps] - y[origin - 1]).tolist()
        assert len(errors) == len(y) - history, name
        ratios.append(np.mean(errors) / scale)
    assert metrics["mase"] == pytest.approx(np.mean(ratios), rel=1e-5)
    assert case.task.monitor == "mase"


def test_coverage_and_interval_score_by_hand(tmp_path: Path) -> None:
    case, network = make_task(write_table(tmp_path, {"y": waves()}))
    case = case.calibrated(network)
    encoded, origins = case.items("test"), case.origins("test")
    y = encoded.references(origins)
    lower, upper = np.nan_to_num(y) - 1.0, np.nan_to_num(y) + 2.0
    lower[0, 0, 0] = y[0, 0, 0] + 0.5  # one value is below its interval
    ends = np.stack([np.stack([lower, upper], -1)] * 2, -2)
    forecasts = Forecasts(np.nan_to_num(y)[..., None], (), ends, (80, 95))
    metrics = forecast_metrics(case.processor, encoded, origins, forecasts)
    count = int((~np.isnan(y)).sum())
    assert metrics["coverage_80"] == metrics["coverage_95"] == pytest.approx((count - 1) / count)
    scale = np.mean(np.abs(np.array(waves())[7:98] - np.array(waves())[:91]))
    score = (3.0 * (count - 1) + (1.5 + 2 / 0.05 * 0.5)) / count / scale
    assert metrics["msis_95"] == pytest.approx(score, rel=1e-6)
    note = plot_coverage(y, ends, (80, 95)).note
    # 28 values of the test split, three steps ahead: √(0.8 · 0.2 / (28/3))
    assert "96.4 % are within the 80 % interval (standard error 13.1 points)" in note


# Intervals


def test_the_ends_of_intervals_are_the_ranks_of_split_conformal_prediction() -> None:
    errors = np.random.default_rng(0).permutation(np.arange(1.0, 1000.0))  # 1 … 999
    assert find_bounds(errors, 80) == (100.0, 900.0)  # k = 1000 · 0.1
    assert find_bounds(errors, 95) == (25.0, 975.0)
    few = np.array([-3.0, 1.0, 2.0, -4.0, 5.0, 6.0, -7.0, 8.0, 9.0])
    assert find_bounds(few, 80) == (-8.0, 8.0)  # the ⌈10 · 0.8⌉-th of nine
    assert find_bounds(few, 95) == (-9.0, 9.0)  # the largest, since the 9.5th does not exist


def test_intervals_cover_what_they_promise_if_errors_are_exchangeable() -> None:
    generator = np.random.default_rng(1)
    for count in (15, 60, 400):
        inside = {80: [], 95: []}
        for _ in range(300):
            errors = generator.gamma(2.0, size=(count + 50, 1)) * generator.choice([-1, 2], size=(count + 50, 1))
            for interval in calibrate(errors[:count], (80, 95)):
                new = errors[count:, 0]
                inside[interval.percent].append(np.mean((new >= interval.lower[0]) & (new <= interval.upper[0])))
        assert np.mean(inside[80]) == pytest.approx(0.8, abs=0.03)
        assert np.mean(inside[95]) == pytest.approx(0.95 if count > 19 else count / (count + 1), abs=0.02)


def test_a_level_that_cannot_be_reached_is_noted(tmp_path: Path) -> None:
    values = waves(60)
    case, network = make_task(write_table(tmp_path, {"y": values}), context_length=7)
    case = case.calibrated(network)
    by_percent = {interval.percent: interval for interval in case.processor.intervals}
    assert [interval.count for interval in by_percent.values()] == [18, 18]  # three tenths of 60 steps
    assert (by_percent[80].reachable, by_percent[95].reachable) == (True, False)
    assert any("95 % interval cannot be calibrated on 18 values" in note for note in case.diagnostics.notes)
    assert not any("80 % interval cannot" in note for note in case.diagnostics.notes)


def test_the_scale_of_intervals_by_hand(tmp_path: Path) -> None:
    values = waves()
    case, _ = make_task(write_table(tmp_path, {"y": values}))
    encoded, position = case.items("test"), 80
    y = encoded.scalers[0].apply(np.array(values)[:, None])[:, 0]
    changes = np.abs(y[7:position] - y[: position - 7])
    expected = 0.25 * changes.mean() + 0.75 * changes[-20:].mean()
    assert local_scale(case.processor, encoded, origins_at(position))[0, 0] == pytest.approx(expected, rel=1e-5)
    steps = np.abs(np.diff(y[:5]))  # no season yet
    assert local_scale(case.processor, encoded, origins_at(5))[0, 0] == pytest.approx(steps.mean(), rel=1e-5)


def test_the_scale_of_intervals_over_several_steps_by_hand(tmp_path: Path) -> None:
    values = waves()
    values[30] = None
    case, _ = make_task(write_table(tmp_path, {"a": values, "y": values}))
    encoded, position = case.items("test"), 80
    y = encoded.scalers[1].apply(np.array(values, dtype=float)[:, None])[:, 0]
    changes = [np.nanmean([abs(y[t] - y[t - i]) for i in (1, 2, 3) if t >= i]) for t in range(1, position) if t != 30]
    expected = 0.5 * np.mean(changes) + 0.5 * np.mean(changes[-20:])
    origins = replace(origins_at(position), series=np.array([1]))
    processor = replace(case.processor, interval_scale="steps-50")
    assert local_scale(processor, encoded, origins)[0, 0] == pytest.approx(expected, rel=1e-5)


def test_the_scale_of_intervals_is_the_one_that_tells_errors(tmp_path: Path) -> None:
    """Noise whose size changes every hundred steps is followed by recent changes; steady noise needs no scale."""
    generator = np.random.default_rng(0)
    noise = generator.normal(size=3000)
    sizes = np.where(np.arange(3000) // 100 % 2, 10.0, 1.0)
    names = {}
    for name, values in {"steady": noise, "changing": noise * sizes}.items():
        frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=3000), "y": values})
        case = prepare(frame, horizon=1, season=1, anchor="none", context_length=5)
        case = case.calibrated(case.build())
        names[name] = case.processor.interval_scale
    assert SCALES[names["changing"]].recent > 0
    assert SCALES[names["steady"]].recent == 0


def test_intervals_do_not_depend_on_the_future(tmp_path: Path) -> None:
    values = waves()
    case, network = make_task(write_table(tmp_path, {"y": values}))
    case = case.calibrated(network)
    changed = values[:120] + [100 * v for v in values[120:]]
    other, _ = make_task(write_table(tmp_path, {"y": changed}, "changed.csv"))
    encoded = replace(other.items("test"), scalers=case.items("test").scalers)
    encoded = replace(encoded, anchor=case.processor.anchor_of(encoded))
    ends = [
        make_forecasts(case.task, network, each, origins_at(115, 120)).intervals
        for each in (case.items("test"), encoded)
    ]
    assert np.array_equal(*ends)


def test_an_interval_of_a_backtest_knows_the_errors_before_its_origin(tmp_path: Path) -> None:
    """Errors of the validation split are 1 to 200, those of the test split 1001 and more."""
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), horizon=2)
    encoded, start = case.items("test"), int(case.items("test").history[0])
    errors = np.concatenate([np.arange(1.0, 201.0), np.arange(1001.0, 1201.0)])[:, None].repeat(2, axis=1)
    steps = np.concatenate([np.full(200, -1), np.arange(200)])[:, None] + [0, 1]
    steps[:200] = -1
    known = KnownErrors(errors, 100 * errors, steps)
    offsets = known.rolling_offsets(encoded, origins_at(start, start + 3, start + 20, horizon=2), (80,))
    for row, step in enumerate((0, 3, 20)):
        for ahead in range(2):  # the value of the error `step − ahead` has come, that of the next one has not
            expected = find_bounds(errors[: 200 + max(step - ahead, 0), 0], 80)
            assert tuple(offsets[row, ahead, 0]) == expected
    few = KnownErrors(errors[:20], 2 * errors[:20], steps[:20])
    assert few.calibrate((80,)) == calibrate(2 * errors[:20], (80,))  # as wide as those of the anchor


def test_a_long_backtest_is_calibrated_now_and_then_and_never_with_the_future(tmp_path: Path) -> None:
    case, _ = make_task(write_table(tmp_path, {"y": waves(600)}))
    encoded = case.items("test")
    origins = encoded.backtest(1)
    start = int(encoded.history[0])
    rising = np.arange(100.0, 300.0)[:, None].repeat(3, axis=1)  # errors that grow with every step
    steps = np.arange(-100, 100)[:, None] + np.arange(3)
    offsets = KnownErrors(rising, rising, steps).rolling_offsets(encoded, origins, (80,))
    for origin, offset in zip(origins.positions - start, offsets[:, :, 0, 1], strict=True):
        allowed = [rising[:, 0][steps[:, ahead] < origin] for ahead in range(3)]
        assert all(offset <= [find_bounds(errors, 80)[1] for errors in allowed])
    assert 10 < len(np.unique(offsets[:, 0, 0, 1])) <= 20


def test_intervals_follow_noise_that_grows_in_the_test_split() -> None:
    """The validation split is calm: its intervals would cover half of the values of the test split."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=2000) * np.where(np.arange(2000) < 1600, 1.0, 2.5)
    frame = pd.DataFrame({"date": pd.date_range("2010-01-01", periods=2000), "y": values})
    case = prepare(frame, horizon=2, season=1, anchor="none", context_length=5)
    network = case.build()
    case = case.calibrated(network)
    encoded, origins = case.items("test"), case.origins("test")
    first = known_errors(case.task, network, encoded.held_out, until_test=False).calibrate((80, 95))
    constant = replace(case.processor, intervals=first)
    forecasts = make_forecasts(case.task.with_processor(constant), network, encoded, origins)
    before = forecast_metrics(constant, encoded, origins, forecasts)
    rolling = case.metrics(network, "test")
    assert before["coverage_80"] < 0.45
    assert rolling["coverage_80"] > before["coverage_80"] + 0.15
    assert rolling["msis_95"] < before["msis_95"]
    assert case.metrics(network, "validation")["coverage_80"] == pytest.approx(0.8, abs=0.05)
    after = case.processor.intervals[0].upper[0]  # after the end of the data, by both splits
    assert after > 1.5 * first[0].upper[0]


def test_intervals_of_a_backtest_do_not_depend_on_the_future(tmp_path: Path) -> None:
    values = waves()
    case, network = make_task(write_table(tmp_path, {"y": values}))
    case = case.calibrated(network)
    changed = values[:125] + [100 * v for v in values[125:]]
    other, _ = make_task(write_table(tmp_path, {"y": changed}, "changed.csv"))
    other = replace(other, task=other.task.with_processor(case.processor))
    for position, same in ((112, True), (125, True), (129, False)):
        origin = origins_at(position)
        ends = [each.task.interval_offsets(network, each.splits["test"], origin) for each in (case, other)]
        assert np.array_equal(*ends) == same


def test_series_that_are_divided_are_calibrated_on_the_validation_split() -> None:
    case = prepare(hourly(12, 120), horizon=4, split="series", context_length=24, anchor="last")
    network = case.build()
    case = case.calibrated(network)
    errors = known_errors(case.task, network, case.items("test").held_out, until_test=False)
    assert case.processor.intervals == errors.calibrate((80, 95))


def test_validation_errors_of_every_step_are_of_every_value(tmp_path: Path) -> None:
    case, _ = make_task(write_table(tmp_path, {"y": waves()}), horizon=5)
    encoded = case.items("validation")
    origins = encoded.every_origin()
    history, size = int(encoded.history[0]), int(encoded.sizes[0])
    for step in range(5):
        values = (origins.positions + step)[origins.counted[:, step]]
        assert values.tolist() == list(range(history, size))


def test_a_run_keeps_its_intervals(tmp_path: Path) -> None:
    path = write_table(tmp_path, {"y": waves()})
    options = {"horizon": 3, "context_length": 14, "steps": 4, "batch_size": 4, "report": False}
    runs = [
        api.train("forecast", str(path), "gru", out=tmp_path / f"run{seed}", seed=seed, settings=SMALL, **options)
        for seed in (0, 1)
    ]
    predictions = api.load(runs[0].path).forecast()
    assert {"lower_80", "upper_80", "lower_95", "upper_95"} <= predictions[0].keys()
    metrics = runs[0].summary["metrics"]["test"]
    assert metrics == pytest.approx(api.evaluate(runs[0].path))
    assert {"mase", "coverage_80", "coverage_95", "msis_95"} <= metrics.keys()
    assert any("the anchor" in note for note in runs[0].results.notes)
    unused = api.load(runs[0].path).task.processor.unused
    assert runs[0].findings() == forecast_findings(metrics, (), 3, unused)
    merged = average([run.path for run in runs], out=tmp_path / "average")  # whose intervals are calibrated again
    assert merged.forecast()[0].keys() == predictions[0].keys()
    resumed = api.resume(runs[0].path, steps=6, report=False)
    assert resumed.summary["step"] == 6


# Statistical baselines


def one_series(values: np.ndarray, horizon: int = 8, **settings: Any) -> Case:
    times = pd.date_range("2000-01-01", periods=len(values), freq="MS")
    return prepare(pd.DataFrame({"ds": times, "y": values}), horizon, context_length=24, **settings)


def test_smoothing_forecasts_a_trend_with_a_season_exactly() -> None:
    t = np.arange(160)
    case = one_series(50 + 3 * np.sin(2 * np.pi * t / 12))
    origins = case.origins("test")
    for fit in (ExponentialSmoothing.fit, Theta.fit):
        forecasts = fit(case.items("train"), 12).forecast(case.items("test"), origins)
        assert np.nanmax(np.abs(forecasts - case.items("test").references(origins))) < 0.02


def test_exponential_smoothing_follows_its_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    y = 20 + np.cumsum(generator.normal(size=120)) + 4 * np.cos(2 * np.pi * np.arange(120) / 12)
    case = one_series(y)
    encoded = case.items("test")
    seasonal = generator.normal(size=(12, 1))
    model = ExponentialSmoothing(12, np.array([[84.0], [0.0], [0.3], [0.1], [0.2], [0.9]]))
    monkeypatch.setattr(classical, "seasonal_factors", lambda *arguments: seasonal)
    forecasts = model.forecast(encoded, origins_at(100, horizon=8))[0, :, 0]
    first, second = y[:12].mean(), y[12:24].mean()
    b = (second - first) / 12
    level, season = first - 6.5 * b, seasonal[:, 0].tolist()
    for t in range(100):
        e = y[t] - (level + 0.9 * b + season[t])
        level, b = level + 0.9 * b + 0.3 * e, 0.9 * b + 0.1 * e
        season.append(season[t] + 0.2 * e)
    expected = [level + sum(0.9**i for i in range(1, j + 1)) * b + season[100 + j - 1] for j in range(1, 9)]
    assert forecasts == pytest.approx(expected, rel=1e-9)


def test_a_later_zero_does_not_end_a_series_of_logarithms() -> None:
    """A shop that is closed for a day: the forecasts after it are not 0."""
    time = np.arange(120)
    y = ((50 + 30 * np.sin(time * np.pi / 6)) * np.exp(0.02 * time))[:, None]
    parameters = np.array([[100], [1], [0.2], [0.0], [0.0], [0.98]])  # of logarithms
    model, size, column = ExponentialSmoothing(12, parameters), np.array([120]), np.array([[0]])
    closed = y.copy()
    closed[105] = 0
    usual, after = (model.after(model.filter(values, size), column, np.array([110]), 3) for values in (y, closed))
    assert (after > usual / 3).all()


def test_theta_is_smoothing_with_half_the_slope() -> None:
    generator = np.random.default_rng(0)
    y = 20 + 0.5 * np.arange(90) + generator.normal(size=90)
    case = one_series(y, season=1)
    theta = Theta(1, np.array([[63.0], [0.0], [0.4]]))
    forecasts = theta.forecast(case.items("test"), origins_at(80, horizon=8))
    slope = np.polyfit(np.arange(80), y[:80], 1)[0]
    level = y[0]
    for value in y[1:80]:
        level += 0.4 * (value - level)
    drift = slope / 2 * (np.arange(8) + (1 - 0.6**80) / 0.4)
    assert forecasts[0, :, 0] == pytest.approx(level + drift, rel=1e-9)


def test_statistical_baselines_agree_with_statsforecast() -> None:
    models = pytest.importorskip("statsforecast.models")
    generator = np.random.default_rng(3)
    t = np.arange(200)
    y = (100 + 0.4 * t) * (1 + 0.2 * np.sin(2 * np.pi * t / 12)) + 2 * generator.normal(size=200)
    case = one_series(y, horizon=12)
    origin = origins_at(180, horizon=12)
    expected = models.Theta(12).forecast(y=y[:180], h=12)["mean"]
    theta = Theta.fit(case.items("train"), 12).forecast(case.items("test"), origin)[0, :, 0]
    assert theta == pytest.approx(expected, rel=0.03)
    expected = models.AutoETS(season_length=12).forecast(y=y[:180], h=12)["mean"]
    ets = ExponentialSmoothing.fit(case.items("train"), 12).forecast(case.items("test"), origin)[0, :, 0]
    assert ets == pytest.approx(expected, rel=0.05)


def test_simple_forecasts_by_hand(tmp_path: Path) -> None:
    case, _ = make_task(write_table(tmp_path, {"y": waves()}))
    encoded, rows = case.items("test"), np.array([[49]])
    values = encoded.values[:, 0]
    series = np.array([0])
    assert SimpleForecast(1).after(encoded, series, rows, 3)[0, 0, :, 0].tolist() == [values[49]] * 3
    seasonal = SimpleForecast(2).after(encoded, series, rows, 3)[0, 0, :, 0]
    assert seasonal.tolist() == [values[48], values[49], values[48]]
    weights = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    linear = SimpleForecast(weights=weights).after(encoded, series, rows, 2)[0, 0, :, 0]
    assert linear == pytest.approx(values[47:50] @ weights[0, :3] + weights[0, 3], rel=1e-5)


# Reading


def count_calls(function: Callable[[], object]) -> int:
    """Returns the number of calls of functions, in Python and in C, that a function makes."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("layout", ["long", "interleaved", "wide", "one series"])
def test_reading_takes_a_linear_number_of_operations(layout: str, tmp_path: Path) -> None:
    counts = []
    for number in (20, 40, 80):
        frame = hourly(1, 60 * number) if layout == "one series" else hourly(number, 60)
        if layout == "interleaved":
            frame = frame.sort_values("ds", kind="stable")
        if layout == "wide":
            frame = frame.pivot(index="ds", columns="unique_id", values="y").reset_index()
        path = tmp_path / f"{number}.csv"
        frame.to_csv(path, index=False)
        config = configure("forecast", str(path), "gru", {"task": {"anchor": "last"}}, horizon=4, context_length=8)
        prepared = lambda config=config: make_case(config.task_config())  # noqa: E731
        prepared()  # what is imported and cached once
        counts.append(count_calls(prepared))
    assert counts[2] - counts[1] < 2.3 * (counts[1] - counts[0])  # twice as many rows: twice as many more calls
