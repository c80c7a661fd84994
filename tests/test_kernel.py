"""Kernel regression: answers and leave-one-out errors by brute force, the odd cases, and the way through a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.core.errors import SeriatimError
from seriatim.data import generated
from seriatim.models import kernel
from seriatim.models.kernel import Kernel, Settings
from seriatim.nn.attention import KERNELS

K: dict[str, Any] = {
    "gaussian": lambda u: math.exp(-0.5 * u * u),
    "boxcar": lambda u: 1.0 if u <= 1 else 0.0,
    "epanechnikov": lambda u: max(0.0, 1 - u),
}


def of(name: str = "gaussian", **more: Any) -> Settings:
    return Settings(name="kernel", kernel=name, **more)  # type: ignore[arg-type]


def by_hand(name: str, h: float, points: np.ndarray, values: np.ndarray, x: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """One answer, written out; where nothing is near enough, that of the nearest."""
    distances = [math.sqrt(sum(((a - b) / u) ** 2 for a, b, u in zip(x, p, unit, strict=True))) for p in points]
    weights = [K[name](distance / h) for distance in distances]
    if sum(weights) == 0:
        weights = [1.0 if distance == min(distances) else 0.0 for distance in distances]
    answer: np.ndarray = sum(w * v for w, v in zip(weights, values.astype(float), strict=True)) / sum(weights)
    return answer


@pytest.fixture(name="some")
def _some() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    points = draw.normal(size=(23, 3)).astype(np.float32)
    return points, np.stack([points.sum(1), draw.normal(size=23)], axis=1).astype(np.float32)


# ── the model ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", KERNELS)
def test_answers_are_weighted_means(name: str, some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    unit = np.array([1.0, 2.0, 0.5], np.float32)
    asked = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    asked[0] = 100.0  # far from everything
    model = Kernel.fit(points, values, of(name, bandwidth=1.3), unit)
    wanted = np.stack([by_hand(name, 1.3, points, values, x, unit) for x in asked])
    np.testing.assert_allclose(model.predict(asked), wanted, rtol=1e-6, atol=1e-6)
    weights = model.weights(asked)
    assert weights.shape == (9, 23)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(weights @ values.astype(float), model.predict(asked), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_the_left_out_error_is_that_of_a_model_without_the_example(
    name: str, some: tuple[np.ndarray, np.ndarray]
) -> None:
    points, values = some
    model = Kernel.fit(points, values, of(name))
    unit, scale = np.ones(3), values.std(axis=0)
    for h in (0.1, 0.8, 3.0):
        wrong = []
        for row in range(len(points)):
            others = np.arange(len(points)) != row
            said = by_hand(name, h, points[others], values[others], points[row], unit)
            wrong.append(float((((said - values[row]) / scale) ** 2).mean()))
        assert model.left_out(np.array([h]))[0] == pytest.approx(np.mean(wrong), rel=1e-5)
    grid = np.geomspace(0.05, 8, 400)
    assert model.left_out(np.array([model.bandwidth]))[0] <= model.left_out(grid).min() * 1.02


def test_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch, some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    whole = Kernel.fit(points, values, of())
    monkeypatch.setattr(kernel, "PART", 50)
    parts = Kernel.fit(points, values, of())
    assert parts.bandwidth == pytest.approx(whole.bandwidth, rel=1e-12)
    np.testing.assert_allclose(parts.predict(points), whole.predict(points), rtol=1e-12)
    monkeypatch.setattr(kernel, "DIRECT", 0)  # distances from a product
    np.testing.assert_allclose(parts.predict(points), whole.predict(points), rtol=1e-5, atol=1e-6)


def test_out_of_reach_the_nearest_answers_and_equals_share() -> None:
    points, values = np.array([[0.0], [1.0], [3.0]], np.float32), np.array([[5.0], [7.0], [1.0]], np.float32)
    asked = np.array([[9.0], [0.5], [2.0]], np.float32)
    for name in ("boxcar", "epanechnikov"):
        model = Kernel.fit(points, values, of(name, bandwidth=0.1))
        assert model.predict(asked).tolist() == [[1.0], [6.0], [4.0]]
    assert Kernel.fit(points, values, of(bandwidth=0.01)).predict(asked).tolist() == [[1.0], [6.0], [4.0]]


def test_one_example_and_the_same_example_again() -> None:
    alone = Kernel.fit(np.zeros((1, 2), np.float32), np.array([[4.0]], np.float32), of())
    assert alone.predict(np.ones((2, 2), np.float32)).tolist() == [[4.0], [4.0]]
    same = Kernel.fit(np.zeros((4, 1), np.float32), np.array([[1.0], [2.0], [3.0], [6.0]], np.float32), of("boxcar"))
    assert same.predict(np.array([[0.0], [50.0]], np.float32)).tolist() == [[3.0], [3.0]]
    assert same.predict(np.zeros((0, 1), np.float32)).shape == (0, 1)


def test_a_budget_of_numbers(some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    assert Kernel.fit(points, values, of()).entries == 23 * 5
    model = Kernel.fit(points, values, of(entries=37))
    assert model.entries == 35
    np.testing.assert_array_equal(model.points[[0, -1]], points[[0, -1]])
    with pytest.raises(SeriatimError) as caught:
        Kernel.fit(points, values, of(entries=4))
    assert caught.value.code == "kernel.empty"


def test_stored_and_back(some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    model = Kernel.fit(points, values, of(), np.array([1.0, 2.0, 3.0], np.float32))
    again = Kernel.from_tensors(model.tensors(), of())
    np.testing.assert_array_equal(again.predict(points), model.predict(points))
    for broken in ({"points": points[:3]}, {"unit": np.ones(2)}, {"bandwidth": np.zeros(0)}):
        with pytest.raises(SeriatimError) as caught:
            Kernel.from_tensors(model.tensors() | broken, of())
        assert caught.value.code == "kernel.tensors"


# ── the data ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_curve_is_its_formula_with_noise() -> None:
    made = generated.parts("curve:2000")
    assert made is not None
    assert (len(made.train), len(made.valid), len(made.test)) == (2000, 100, 200)
    assert (made.features, made.columns) == (("x",), {"column": "x", "target": "y"})
    x, y = made.train.inputs.values[:, 0].astype(float), np.array(made.train.targets)  # type: ignore[union-attr]
    noise = y - 2 * np.sin(x) - x**0.8
    assert 0 <= x.min() < 0.01
    assert 4.99 < x.max() < 5
    assert abs(noise.mean()) < 0.05
    assert noise.std() == pytest.approx(0.5, abs=0.03)
    with pytest.raises(SeriatimError) as caught:
        generated.parts("curve:1")
    assert caught.value.code == "data.length"


# ── the way through a run ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return seriatim.train("regress", "curve:120", "kernel", out=tmp_path_factory.mktemp("runs") / "kernel")


def test_a_run_answers_as_it_was_measured(run: Any, tmp_path: Path) -> None:
    measures = run.summary["measures"]["test"]
    assert 0.2 < measures["mse"] < 0.4  # the noise alone is 0.25
    assert seriatim.evaluate(run.path) == pytest.approx(measures)
    assert run.summary["parameters"] == 240
    assert run.summary["flops"] is None
    model = run.model
    assert run.predict([[1.5]])[0]["y"] == pytest.approx(model.predict(np.array([[1.5]]))[0, 0], rel=1e-6)
    file = tmp_path / "new.csv"
    file.write_text("name,x\na,0.5\nb,4.25\n", encoding="utf-8")
    answers = run.predict_file(file)
    assert answers.columns == ["y"]
    np.testing.assert_allclose(
        [row[0] for row in answers.rows], model.predict(np.array([[0.5], [4.25]]))[:, 0], rtol=1e-5
    )


def test_the_report_shows_the_curve_and_its_weights(run: Any) -> None:
    views = json.loads((run.path / "evaluation.json").read_text(encoding="utf-8"))["test"]
    assert [view["kind"] for view in views] == ["lines", "heat", "scatter", "table"]
    curve, heat = views[:2]
    assert len(curve["points"]) == 120
    (_, line), *_ = curve["series"]
    x, y = line[77]
    assert y == pytest.approx(run.model.predict(np.array([[x]]))[0, 0], rel=1e-5)
    assert (len(heat["rows"]), len(heat["columns"])) == (100, 100)
    np.testing.assert_allclose(np.array(heat["values"]).sum(axis=1), 1.0, atol=1e-2)
    assert [float(row) for row in heat["rows"]] == sorted(map(float, heat["rows"]))
    assert [float(column) for column in heat["columns"]] == sorted(map(float, heat["columns"]))
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "What the answers are made of" in page
    assert "cannot be drawn" not in page
    assert "What it writes" not in page


def table(tmp_path: Path, header: str, rows: list[str]) -> str:
    file = tmp_path / "table.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(file)


def test_columns_of_a_table_with_other_models_beside_it(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    block = draw.normal(size=(60, 2))
    rows = [f"{a:.4f},{b:.4f},{a * b:.4f},{a + b:.4f}" for a, b in block]
    source = table(tmp_path, "a,b,product,sum", rows)
    settings = {
        "data": {"column": "a,b", "target": "product,sum"},
        "train": {"steps": 2, "batch": 4},
        "params": 60,
    }
    both = seriatim.compare("regress", source, ["kernel", "mlp"], settings=settings, out=tmp_path / "both")
    assert both.failed == {}
    kept, learned = both.runs
    assert kept.summary["parameters"] == 60
    assert kept.predict(["0.1 0.2"])[0].keys() == {"product", "sum"}
    assert learned.summary["parameters"] <= 60
    views = kept.evaluation()["test"]
    assert "heat" in [view["kind"] for view in views]
    assert "kernel" in (tmp_path / "both" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["boxcar", "epanechnikov"])
def test_the_other_kernels_and_a_bandwidth_in_units_of_the_data(name: str, tmp_path: Path) -> None:
    settings = {"model": {"name": "kernel", "kernel": name, "bandwidth": 0.4}, "data": {"scale": "none"}}
    run = seriatim.train("regress", "curve:50", settings=settings, out=tmp_path / "run")
    assert run.predict([]) == []
    made = generated.parts("curve:50")
    assert made is not None
    points, values = made.train.inputs.values, np.array(made.train.targets)[:, None]  # type: ignore[union-attr]
    wanted = by_hand(name, 0.4, points, values, np.array([2.5]), np.ones(1))
    assert run.predict([[2.5]])[0]["y"] == pytest.approx(float(wanted[0]), rel=1e-5)


def refused(task: str, source: str, tmp_path: Path, code: str, *words: str, model: str = "kernel", **more: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.train(task, source, model, settings=more or None, out=tmp_path / "refused")
    assert caught.value.code == code
    for word in words:
        assert word in caught.value.cause
    assert not (tmp_path / "refused").exists()


def test_what_it_cannot_do_is_told(tmp_path: Path) -> None:
    letters = tmp_path / "letters.txt"
    letters.write_text("abc def ghi\n" * 40, encoding="utf-8")
    refused("language", str(letters), tmp_path, "task.counts", "kernel", "language")
    refused("regress", "curve:20", tmp_path, "task.counts", "ngram", "regress", model="ngram")
    texts = table(tmp_path, "text,y", [f"so many words {n},{n}" for n in range(40)])
    refused("regress", texts, tmp_path, "kernel.text", "texts")
    labels = table(tmp_path, "text,label", [f"so many words,{n % 2}" for n in range(40)])
    refused("classify", labels, tmp_path, "task.counts", "kernel", "classify")


def test_sequences_of_unequal_length_are_named(tmp_path: Path, run: Any) -> None:
    rows = [f"0.{n} 0.5,{n}" for n in range(1, 40)]
    rows[17] = "0.1 0.2 0.3,5"
    source = table(tmp_path, "values,y", rows)
    refused("regress", source, tmp_path, "kernel.length", "line 19", "3 steps", data={"kind": "numbers"})
    with pytest.raises(SeriatimError) as caught:
        run.predict([[0.5], [0.5, 0.25]])
    assert caught.value.code == "kernel.length"
    assert "input 2" in caught.value.cause


def test_resuming_is_refused(run: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.resume(run.path)
    assert caught.value.code == "run.counts"
