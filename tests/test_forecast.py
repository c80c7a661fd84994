"""Forecasting: nothing of the future shows through, the measures are those of the books, and runs go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import seriatim
from seriatim import api
from seriatim.core.errors import SeriatimError
from seriatim.data.series import Series
from seriatim.tasks import _forecast_measures as measures
from seriatim.tasks import forecast
from seriatim.tasks._forecast_arrays import fill, make, running_mean
from seriatim.tasks._forecast_layout import Layout, naive_errors, seen_season
from seriatim.tasks._forecast_network import pointwise
from seriatim.tasks._forecast_predict import forecasts

DAY = np.datetime64("2024-01-01")


def table(folder: Path, columns: dict[str, Any], name: str = "data.csv") -> Path:
    """A daily table; None is an empty cell."""
    count = len(next(iter(columns.values())))
    rows = [
        ",".join([str(DAY + i), *("" if column[i] is None else str(column[i]) for column in columns.values())])
        for i in range(count)
    ]
    path = folder / name
    path.write_text("\n".join([",".join(["date", *columns]), *rows]) + "\n", encoding="utf-8")
    return path


def waves(count: int = 140, seed: int = 0) -> list[Any]:
    draw = np.random.default_rng(seed)
    t = np.arange(count)
    return (10 + 3 * np.sin(2 * np.pi * t / 7) + 0.02 * t + draw.normal(size=count)).round(4).tolist()


def task_of(path: Path, model: str = "gru", **settings: Any) -> tuple[forecast.ForecastTask, Any]:
    """A task and a network with fresh weights."""
    data = settings.pop("data", {})
    own = {"task": {"length": 14, "horizon": 3} | settings, "data": data, "model": {"name": model, "width": 5}}
    config = api.configure("forecast", str(path), None, own)
    task = forecast.prepare(config)
    return task, task.build(config.model)


def error(path: Path, **settings: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        task_of(path, **settings)
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    return caught.value


MODES = [
    {"anchor": anchor, "mode": mode, "level": level}
    for anchor, level in (("none", "fixed"), ("last", "running"), ("season", "running"), ("linear", "fixed"))
    for mode in ("direct", "recursive")
]


# Nothing of the future


@pytest.mark.parametrize("how", MODES, ids=lambda how: "-".join(how.values()))
def test_forecasts_do_not_change_with_the_future(how: dict[str, str], tmp_path: Path) -> None:
    """Values behind an origin are shuffled, some lost: every forecast up to it stays, bit by bit."""
    values = waves()
    values[50] = None
    task, network = task_of(table(tmp_path, {"y": values}), **how)
    begin = task.arrays.series[0].spans["test"][0]
    order = np.random.default_rng(1).permutation(np.arange(begin, len(values)))
    changed = values[:begin] + [None if i % 5 == 0 else 100 * values[i] for i in order[:-1]] + [3.0]
    other, _ = task_of(table(tmp_path, {"y": changed}, "changed.csv"), **how)
    rows, places = np.zeros(4, np.int64), np.array([15, 51, 100, begin])
    first = forecasts(network, task.arrays, task.settings, rows, places)
    assert np.array_equal(first, forecasts(network, other.arrays, other.settings, rows, places))
    assert other.layout.scalers[""].to_json() == task.layout.scalers[""].to_json()
    late = forecasts(network, other.arrays, other.settings, rows, places + 20)
    assert not np.array_equal(late[-1], forecasts(network, task.arrays, task.settings, rows, places + 20)[-1])


def test_scaling_comes_from_the_training_part(tmp_path: Path) -> None:
    values = waves()
    task, _ = task_of(table(tmp_path, {"y": values}))
    end = task.arrays.series[0].spans["train"][1]
    assert end == 98
    scaler = task.layout.scalers[""]
    assert scaler.shift[0] == pytest.approx(np.mean(values[:end]), rel=1e-12)
    assert scaler.scale[0] == pytest.approx(np.std(values[:end]), rel=1e-12)


def test_training_windows_stay_within_the_training_part(tmp_path: Path) -> None:
    values = waves()
    end = 98
    hidden = values[:end] + [1e6 * (1 + i) for i in range(len(values) - end)]
    task, _ = task_of(table(tmp_path, {"y": values}))
    other, _ = task_of(table(tmp_path, {"y": hidden}, "hidden.csv"))
    for step in range(8):
        for mine, theirs in zip(_parts(task.batch(step, 0, 16, 16)), _parts(other.batch(step, 0, 16, 16)), strict=True):
            assert torch.equal(mine, theirs)


def _parts(batch: Any) -> list[torch.Tensor]:
    return [batch.inputs, *batch.targets]


def test_every_step_of_the_loss_sees_only_what_came_before_it(tmp_path: Path) -> None:
    task, network = task_of(table(tmp_path, {"y": waves()}))
    inputs = task.batch(0, 0, 2, 2).inputs
    changed = inputs.clone()
    changed[:, 7:] += 1
    assert torch.equal(network(inputs)[0][:, :7], network(changed)[0][:, :7])


def test_filling_takes_the_last_value_and_never_a_later_one() -> None:
    values = np.array([[np.nan, 1.0], [2.0, np.nan], [np.nan, np.nan], [4.0, 5.0]])
    assert fill(values).tolist() == [[0.0, 1.0], [2.0, 1.0], [2.0, 1.0], [4.0, 5.0]]
    assert np.allclose(running_mean(np.array([[1.0], [3.0], [5.0], [7.0]]), 2)[:, 0], [1, 2, 4, 6])


# What is learned


def test_targets_are_what_comes_next(tmp_path: Path) -> None:
    values = [float(i * i % 101) for i in range(140)]
    task, _ = task_of(table(tmp_path, {"y": values}), anchor="none", level="fixed", data={"scale": "none"})
    batch = task.batch(0, 0, 6, 6)
    wanted, real = batch.targets
    assert bool(real.all())
    assert batch.count == 6 * 14 * 3
    for row in range(6):
        start = next(s for s in range(98) if values[s : s + 14] == batch.inputs[row, :, 0].tolist())
        for step in range(14):
            assert wanted[row, step, :, 0].tolist() == values[start + step + 1 : start + step + 4]


def test_a_missing_value_has_no_part_in_the_loss(tmp_path: Path) -> None:
    values = waves()
    values[40] = None
    task, network = task_of(table(tmp_path, {"y": values}))
    batch = task.batch(0, 0, 32, 64)
    wanted, real = batch.targets
    assert not bool(real.all())
    assert batch.count == int(real.sum())
    before, _ = task.loss(network, batch, None, 0.0)
    spoiled = replace(batch, targets=(torch.where(real, wanted, torch.nan), real))
    after, _ = task.loss(network, spoiled, None, 0.0)
    assert torch.equal(before, after)
    assert bool(torch.isfinite(torch.as_tensor(network(batch.inputs)[0])).all())
    assert task.layout.flags == (0,)  # the network is told which values were missing


def test_pinball_by_hand() -> None:
    found = torch.tensor([[1.0, 2.0, 4.0]])
    losses = pointwise(found, torch.tensor([3.0]), (0.1, 0.5, 0.9))
    assert losses.item() == pytest.approx((0.1 * 2 + 0.5 * 1 + 0.1 * 1) / 3)
    assert pointwise(found[:, :1], torch.tensor([3.0]), ()).item() == 4.0


def test_quantiles_rise_and_the_median_is_the_forecast(tmp_path: Path) -> None:
    task, network = task_of(table(tmp_path, {"y": waves()}), quantiles=(0.1, 0.5, 0.9))
    at = task._asked("test")
    scaled = forecasts(network, task.arrays, task.settings, at.rows, at.places)
    assert scaled.shape == (len(at), 3, 1, 3)
    assert (np.diff(scaled, axis=-1) >= 0).all()
    assert {"loss", "mse", "mae", "mase", "coverage"} <= task.evaluate(network, "test").keys()


@pytest.mark.parametrize("anchor", ["none", "last", "season", "linear"])
def test_recursive_with_horizon_1_is_direct(anchor: str, tmp_path: Path) -> None:
    path = table(tmp_path, {"y": waves()})
    direct, network = task_of(path, horizon=1, anchor=anchor)
    recursive, other = task_of(path, horizon=1, anchor=anchor, mode="recursive")
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    assert direct.evaluate(network, "test") == recursive.evaluate(other, "test")


@pytest.mark.parametrize("how", MODES[1::2], ids=lambda how: how["anchor"])
def test_recursive_is_one_step_fed_with_its_own_forecasts(how: dict[str, str], tmp_path: Path) -> None:
    """The state gives what the whole history, forecasts appended as if they had come, gives."""
    values = waves()
    task, network = task_of(table(tmp_path, {"y": values}), horizon=9, **how)
    place = 60
    said = forecasts(network, task.arrays, task.settings, np.array([0]), np.array([place]))[0, :, 0, 0]
    series, scaler = task.arrays.series[0], task.arrays.scalers[0]
    for step in range(9):
        known = np.concatenate([series.values[:place, 0], scaler.invert(said[:step, None].astype(float))[:, 0]])
        grown = make(task.layout, [Series("", series.start, known[:, None])], len)
        again = _one_step(network, grown, task.layout.length + step)  # a state forgets nothing: the context grows
        assert again == pytest.approx(float(said[step]), abs=2e-5)


def _one_step(network: Any, grown: Any, length: int) -> float:
    size = int(grown.sizes[0])
    places = np.arange(size - length, size)[None]
    with torch.inference_mode():
        out, _ = network(torch.from_numpy(grown.window(np.array([0]), places, 1)))
    return float(out[0, -1, 0]) + float(grown.anchors(np.array([0]), places[:, -1:], 1)[0, 0, 0, 0])


def test_a_short_history_is_padded_and_neighbours_do_not_matter(tmp_path: Path) -> None:
    task, network = task_of(table(tmp_path, {"y": waves()}))
    rows, places = np.zeros(5, np.int64), np.array([3, 14, 40, 7, 90])
    together = forecasts(network, task.arrays, task.settings, rows, places)
    for index in range(5):
        alone = forecasts(network, task.arrays, task.settings, rows[[index]], places[[index]])
        assert np.allclose(alone[0], together[index], atol=1e-6)


def test_known_future_columns_are_read_for_every_step_of_the_horizon(tmp_path: Path) -> None:
    price = [i % 4 for i in range(140)]
    path = table(tmp_path, {"y": waves(), "price": price})
    task, network = task_of(path, data={"target": "y", "future": "price"})
    assert task.arrays.features(3) == 1 + 1 + 3
    begin, step = 60, 2
    changed = [p + (i == begin + step) for i, p in enumerate(price)]
    other, _ = task_of(
        table(tmp_path, {"y": waves(), "price": changed}, "other.csv"), data={"target": "y", "future": "price"}
    )
    arrays = make(task.layout, other.arrays.series, len)
    rows, places = np.zeros(2, np.int64), np.array([begin, begin - 1])
    first = forecasts(network, task.arrays, task.settings, rows, places)
    second = forecasts(network, arrays, task.settings, rows, places)
    assert not np.array_equal(first[0], second[0])  # within its horizon
    assert np.array_equal(first[1], second[1])  # one step too early to see it


def test_long_learns_as_wide(tmp_path: Path) -> None:
    a, b = waves(seed=0), waves(seed=1)
    wide = table(tmp_path, {"a": a, "b": b})
    rows = [f"{name},{DAY + i},{column[i]}" for name, column in (("a", a), ("b", b)) for i in range(len(a))]
    long = tmp_path / "long.csv"
    long.write_text("\n".join(["id,date,value", *rows]), encoding="utf-8")
    (one, network), (other, _) = task_of(wide), task_of(long)
    assert one.evaluate(network, "test") == other.evaluate(network, "test")
    assert all(
        torch.equal(x, y) for x, y in zip(_parts(one.batch(3, 0, 8, 8)), _parts(other.batch(3, 0, 8, 8)), strict=True)
    )


# Measures


def test_origins_cover_every_value_of_a_part_once(tmp_path: Path) -> None:
    task, _ = task_of(table(tmp_path, {"y": waves()}), horizon=5)
    begin, end = task.arrays.series[0].spans["test"]
    at = task._origins("test")
    covered = [
        place + step for place, counts in zip(at.places, at.counted, strict=True) for step in np.flatnonzero(counts)
    ]
    assert sorted(covered) == list(range(begin, end))
    every, _ = task_of(table(tmp_path, {"y": waves()}), horizon=5, stride=1)
    assert every._origins("test").places.tolist() == list(range(begin, end - 4))


def test_measures_by_hand(tmp_path: Path) -> None:
    values = waves()
    task, _ = task_of(table(tmp_path, {"y": values}), horizon=4)
    at = task._asked("test")
    begin, end = task.arrays.series[0].spans["test"]
    found = task.baselines("test")
    y = np.array(values)
    season = [
        abs(y[place + step] - y[place + step - 7]) for place in at.places for step in range(4) if place + step < end
    ][: end - begin]
    scale = np.mean(np.abs(y[7:98] - y[:91]))
    last = []
    for place, counts in zip(at.places, at.counted, strict=True):
        last += [y[place + step] - y[place - 1] for step in range(4) if counts[step]]
    assert found["seasonal naive"]["mase"] == pytest.approx(np.mean(season) / scale, rel=1e-5)
    assert found["naive"]["mse"] == pytest.approx(np.mean(np.square(last)), rel=1e-5)
    assert found["naive"]["mae"] == pytest.approx(np.mean(np.abs(last)), rel=1e-5)


def test_naive_errors_by_hand() -> None:
    parts = [np.array([[1.0], [4.0], [np.nan], [7.0]]), np.array([[0.0], [1.0]])]
    assert naive_errors(parts, 1)[0] == pytest.approx((3 + 1) / 2)
    assert naive_errors(parts, 2)[0] == pytest.approx(3.0)


def test_the_linear_forecast_is_that_of_least_squares(tmp_path: Path) -> None:
    values = waves(200)
    task, _ = task_of(table(tmp_path, {"y": values}), length=6, horizon=2)
    at = task._asked("test")
    scaler, end = task.layout.scalers[""], task.arrays.series[0].spans["train"][1]
    y = scaler.apply(np.array(values)[:, None])[:, 0]
    x = np.array([np.append(y[t - 6 : t], 1.0) for t in range(6, end - 1)])
    wanted = np.array([y[t : t + 2] for t in range(6, end - 1)])
    ridge = np.sqrt(measures.RIDGE * len(x)) * np.eye(7)
    weights = np.linalg.lstsq(np.concatenate([x, ridge]), np.concatenate([wanted, np.zeros((7, 2))]), rcond=None)[0]
    expected = np.array([np.append(y[p - 6 : p], 1.0) @ weights for p in at.places])
    guess = task.simple(at)["linear"][:, :, 0]
    assert np.allclose(guess, scaler.invert(expected[..., None])[..., 0], rtol=1e-5)


def test_coverage_of_a_known_gaussian() -> None:
    draw = np.random.default_rng(0)
    true = draw.normal(size=(20_000, 1, 1))
    quantiles = (0.1, 0.5, 0.9)
    guesses = np.broadcast_to(np.array([-1.2815516, 0.0, 1.2815516]), (20_000, 1, 1, 3))
    for quantile, share in measures.shares_below(true, guesses, quantiles):
        assert share == pytest.approx(quantile, abs=0.01)


def test_coverage_counts_what_is_inside_the_band(tmp_path: Path) -> None:
    task, _ = task_of(table(tmp_path, {"y": waves()}))
    at = task._asked("test")
    true = measures.actual(task.arrays, at)
    low, high = (np.full(true.shape, np.nanquantile(true, share)) for share in (0.25, 0.75))
    found = measures.measure(task.arrays, at, true, true, (low, high))
    assert found["coverage"] == pytest.approx(0.5, abs=0.05)
    assert (found["mse"], found["mase"]) == (0.0, 0.0)


def test_the_season_is_seen_where_the_frequency_says_nothing() -> None:
    t = np.arange(200)
    assert seen_season([np.sin(2 * np.pi * t / 13) + 0.01 * t]) == 13
    assert seen_season([np.random.default_rng(0).normal(size=200)]) == 1


def test_missing_values_of_the_test_part_are_not_measured(tmp_path: Path) -> None:
    values = waves()
    values[120] = None
    task, network = task_of(table(tmp_path, {"y": values}))
    found = task.evaluate(network, "test")
    assert found["examples"] == 27.0
    assert all(np.isfinite(value) for value in found.values())


def test_a_part_without_known_values_is_no_part(tmp_path: Path) -> None:
    values = [None if 90 <= i < 115 else value for i, value in enumerate(waves())]
    task, network = task_of(table(tmp_path, {"y": values}))
    assert not task.has("valid")
    with pytest.raises(SeriatimError, match="there is no valid part"):
        task.evaluate(network, "valid")


# Errors


def test_a_series_that_is_too_short_is_named(tmp_path: Path) -> None:
    rows = [f"{name},{DAY + i},{i * 7 % 5}" for name, count in (("A", 90), ("B", 20)) for i in range(count)]
    path = tmp_path / "short.csv"
    path.write_text("\n".join(["id,date,y", *rows]), encoding="utf-8")
    assert error(path).cause == (
        "series B is too short: 20 steps, 14 of them in the train part, "
        "where a context of 14 and a horizon of 3 need 17"
    )
    task, _ = task_of(path, length=None, horizon=2)
    assert task.layout.length == 7  # chosen so that it fits
    assert "a horizon of 3 needs 3" in error(path, length=4).cause


def test_a_constant_target_is_an_error_and_another_column_is_told(tmp_path: Path) -> None:
    flat = [1.0] * 100 + [2.0] * 40
    path = table(tmp_path, {"y": waves(), "z": flat})
    assert error(path).cause == 'series z: the target "value" never changes in the training part'
    task, network = task_of(path, data={"target": "y"})
    assert 'the column "z" never changes in the training part' in task.notes
    assert task.layout.scalers[""].scale[1] == 1.0
    assert np.isfinite(task.evaluate(network, "test")["loss"])


def test_what_cannot_be_fed_with_its_own_forecasts(tmp_path: Path) -> None:
    path = table(tmp_path, {"y": waves(), "z": waves(seed=2)})
    assert "no future" in error(path, mode="recursive", data={"target": "y"}).cause
    assert "quantiles" in error(path, mode="recursive", quantiles=(0.1, 0.9)).cause
    assert error(table(tmp_path, {"y": [-1.0, *waves(139)]}), data={"log": True}).cause == (
        'the series: "y" is -1 at 2024-01-01, which has no logarithm'
    )
    both = {"task": {"mode": "recursive"}, "model": {"bidirectional": True}}
    config = api.configure("forecast", str(path), "gru", both)
    task = forecast.prepare(config)
    with pytest.raises(SeriatimError, match="bidirectional"):
        task.build(config.model)
    with pytest.raises(SeriatimError, match="rising"):
        api.configure("forecast", str(path), "gru", {"task": {"quantiles": [0.9, 0.1]}})


def test_both_directions_learn_from_the_last_step_only(tmp_path: Path) -> None:
    path = table(tmp_path, {"y": waves()})
    config = api.configure("forecast", str(path), "gru", {"model": {"bidirectional": True, "width": 4}}, length=10)
    task = forecast.prepare(config)
    network = task.build(config.model)
    batch = task.batch(0, 0, 4, 4)
    wanted, real = batch.targets
    assert wanted.shape[1] == 1  # else it would be told the answers
    assert batch.count == int(real.sum()) == 4
    assert np.isfinite(task.evaluate(network, "valid")["loss"])


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("forecast")
    price = [i % 4 for i in range(143)]
    values = [*waves(), None, None, None]
    path = table(folder, {"y": values, "price": price})
    settings = {
        "task": {"horizon": 3, "length": 14, "quantiles": [0.1, 0.5, 0.9]},
        "data": {"target": "y", "future": "price"},
        "model": {"width": 5},
        "train": {"steps": 4, "batch": 4},
    }
    return seriatim.train("forecast", str(path), "gru", settings=settings, out=folder / "run")


def test_a_run_forecasts_beyond_the_end_of_its_data(run: Any) -> None:
    found = run.predict_file("")
    assert list(found.columns) == ["series", "time", "target", "forecast", "low", "high"]
    assert [row[:3] for row in found.rows] == [["", f"2024-05-{day}", "y"] for day in (20, 21, 22)]
    assert all(low <= middle <= high for *_, middle, low, high in found.rows)
    assert Layout.load(run.path).scalers[""].to_json()["shift"][0] == pytest.approx(np.mean(waves()[:98]))


def test_a_future_that_lacks_in_the_horizon_is_an_error(run: Any, tmp_path: Path) -> None:
    path = table(tmp_path, {"y": [*waves(60), None, None], "price": [i % 4 for i in range(62)]})
    with pytest.raises(SeriatimError) as caught:
        run.predict_file(str(path))
    assert caught.value.cause == 'the series: the future column "price" has no value at 2024-03-03'


def test_the_report_has_forecasts_and_tables(run: Any) -> None:
    import json

    views = json.loads((run.path / "evaluation.json").read_text())["test"]
    assert [view["kind"] for view in views] == ["forecast", "table", "table"]
    picture = views[0]
    assert len(picture["actual"]) == len(picture["forecast"]) == len(picture["low"]) == len(picture["baseline"]) == 3
    assert picture["history"][-1] == ["2024-05-16", waves()[136]]
    assert [row[0] for row in views[1]["rows"]] == [1, 2, 3]
    assert set(run.summary["baselines"]["test"]) == {"naive", "seasonal naive", "linear"}
    assert run.summary["measures"]["test"]["coverage"] >= 0


def test_histories_without_times(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("y\n" + "\n".join(map(str, waves())), encoding="utf-8")
    settings = {"task": {"horizon": 2}, "model": {"width": 4}, "train": {"steps": 2, "batch": 4}}
    trained = seriatim.train("forecast", str(path), "gru", settings=settings, out=tmp_path / "run", length=10)
    [one, other] = trained.predict([waves()[:30], "9 10 11 12"])
    assert len(one["y"]["forecast"]) == len(other["y"]["forecast"]) == 2
    assert one["time"] == [30, 31]
    with pytest.raises(SeriatimError, match="not a list of numbers"):
        trained.predict(["one two"])


def test_another_file_is_evaluated_with_the_scaling_of_its_namesake(tmp_path: Path) -> None:
    path = table(tmp_path, {"a": waves(), "b": waves(seed=1)})
    settings = {"task": {"horizon": 2, "length": 7}, "model": {"width": 4}, "train": {"steps": 2, "batch": 4}}
    trained = seriatim.train("forecast", str(path), "gru", settings=settings, out=tmp_path / "run")
    fresh = table(tmp_path, {"a": waves(40, seed=3), "b": [1000 * v for v in waves(40, seed=4)]}, "fresh.csv")
    task = forecast.reopen_on(trained.path, trained.config, str(fresh))
    assert [one.shift.tolist() for one in task.arrays.scalers] == [
        task.layout.scalers[name].shift.tolist() for name in ("a", "b")
    ]
    assert seriatim.evaluate(trained.path, data=str(fresh))["examples"] == 2 * 33


def test_the_command_line_from_file_to_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seriatim.cli import app

    monkeypatch.chdir(tmp_path)
    path = table(tmp_path, {"y": waves()})
    arguments = f"train forecast --data {path} --model gru --horizon 3 --steps 3 --batch 4 --set model.width=4 --out r"
    shown = CliRunner().invoke(app, arguments.split())
    assert shown.exit_code == 0, shown.output
    assert CliRunner().invoke(app, ["evaluate", "r"]).exit_code == 0
    assert CliRunner().invoke(app, ["predict", "r", "--out", "ahead.csv"]).exit_code == 0
    lines = (tmp_path / "ahead.csv").read_text().splitlines()
    assert lines[0] == "series,time,target,forecast"
    assert [line.split(",")[1] for line in lines[1:]] == ["2024-05-20", "2024-05-21", "2024-05-22"]


def test_sine_predicts_the_last_value_from_the_fifty_before() -> None:
    config = api.configure("forecast", "sine", "gru", {"model": {"width": 4}})
    task = forecast.prepare(config)
    assert (task.layout.length, task.layout.horizon, len(task._origins("test"))) == (50, 1, 1000)
    assert task._origins("test").places.tolist() == [50] * 1000
    linear = task.baselines("test")["linear"]["mse"]
    assert 0.0026 < linear < 0.0032  # what least squares reaches on such series
