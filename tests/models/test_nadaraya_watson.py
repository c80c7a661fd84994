"""Nadaraya–Watson regression: predictions and leave-one-out errors by brute force, and special cases."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.models import nadaraya_watson
from seriatim.models.nadaraya_watson import NadarayaWatson, Settings
from seriatim.nn.attention import KERNELS
from seriatim.nn.network import count_parameters, load_weights, weights

K: dict[str, Any] = {
    "gaussian": lambda u: math.exp(-0.5 * u * u),
    "boxcar": lambda u: 1.0 if u <= 1 else 0.0,
    "epanechnikov": lambda u: max(0.0, 1 - u),
}


def of(name: str = "gaussian", **more: Any) -> Settings:
    return Settings(name="nadaraya_watson", kernel=name, **more)  # type: ignore[arg-type]


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


# the model


@pytest.mark.parametrize("name", KERNELS)
def test_answers_are_weighted_means(name: str, some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    unit = np.array([1.0, 2.0, 0.5], np.float32)
    asked = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    asked[0] = 100.0  # far from everything
    model = NadarayaWatson.fit(points, values, of(name, bandwidth=1.3), unit)
    expected = np.stack([by_hand(name, 1.3, points, values, x, unit) for x in asked])
    np.testing.assert_allclose(model.predict(asked), expected, rtol=1e-6, atol=1e-6)
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
    model = NadarayaWatson.fit(points, values, of(name))
    unit, scale = np.ones(3), values.std(axis=0)
    for h in (0.1, 0.8, 3.0):
        wrong = []
        for row in range(len(points)):
            others = np.arange(len(points)) != row
            said = by_hand(name, h, points[others], values[others], points[row], unit)
            wrong.append(float((((said - values[row]) / scale) ** 2).mean()))
        assert model.leave_one_out_errors(np.array([h]))[0] == pytest.approx(np.mean(wrong), rel=1e-5)
    grid = np.geomspace(0.05, 8, 400)
    assert model.leave_one_out_errors(model.bandwidth.numpy())[0] <= model.leave_one_out_errors(grid).min() * 1.02


def test_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch, some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    whole = NadarayaWatson.fit(points, values, of())
    monkeypatch.setattr(nadaraya_watson, "BLOCK", 50)
    parts = NadarayaWatson.fit(points, values, of())
    assert float(parts.bandwidth) == pytest.approx(float(whole.bandwidth), rel=1e-12)
    np.testing.assert_allclose(parts.predict(points), whole.predict(points), rtol=1e-12)
    monkeypatch.setattr(nadaraya_watson, "MAX_DIRECT", 0)  # distances from a product
    np.testing.assert_allclose(parts.predict(points), whole.predict(points), rtol=1e-5, atol=1e-6)


def test_out_of_reach_the_nearest_answers_and_equals_share() -> None:
    points, values = np.array([[0.0], [1.0], [3.0]], np.float32), np.array([[5.0], [7.0], [1.0]], np.float32)
    asked = np.array([[9.0], [0.5], [2.0]], np.float32)
    for name in ("boxcar", "epanechnikov"):
        model = NadarayaWatson.fit(points, values, of(name, bandwidth=0.1))
        assert model.predict(asked).tolist() == [[1.0], [6.0], [4.0]]
    assert NadarayaWatson.fit(points, values, of(bandwidth=0.01)).predict(asked).tolist() == [[1.0], [6.0], [4.0]]


def test_one_example_and_the_same_example_again() -> None:
    alone = NadarayaWatson.fit(np.zeros((1, 2), np.float32), np.array([[4.0]], np.float32), of())
    assert alone.predict(np.ones((2, 2), np.float32)).tolist() == [[4.0], [4.0]]
    same = NadarayaWatson.fit(
        np.zeros((4, 1), np.float32), np.array([[1.0], [2.0], [3.0], [6.0]], np.float32), of("boxcar")
    )
    assert same.predict(np.array([[0.0], [50.0]], np.float32)).tolist() == [[3.0], [3.0]]
    assert same.predict(np.zeros((0, 1), np.float32)).shape == (0, 1)


def test_a_budget_of_numbers(some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    assert NadarayaWatson.fit(points, values, of()).entries == 23 * 5
    model = NadarayaWatson.fit(points, values, of(entries=37))
    assert model.entries == 35
    np.testing.assert_array_equal(model.points[[0, -1]], points[[0, -1]])
    with pytest.raises(SeriatimError) as caught:
        NadarayaWatson.fit(points, values, of(entries=4))
    assert caught.value.code == "nadaraya_watson.empty"


def test_stored_and_back(some: tuple[np.ndarray, np.ndarray]) -> None:
    points, values = some
    model = NadarayaWatson.fit(points, values, of(), np.array([1.0, 2.0, 3.0], np.float32))
    assert count_parameters(model) == model.entries
    again = NadarayaWatson(of())
    load_weights(again, weights(model))
    for same in (again, copy.deepcopy(model), copy.deepcopy(model).to("cpu")):
        np.testing.assert_array_equal(same.predict(points), model.predict(points))
    for broken in ({"points": torch.zeros(3, 3)}, {"unit": torch.ones(2)}, {"bandwidth": torch.zeros(0)}):
        with pytest.raises(SeriatimError) as caught:
            load_weights(again, weights(model) | broken)
        assert caught.value.code == "nadaraya_watson.tensors"
