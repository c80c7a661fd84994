"""Tests of differences equal those of scipy and of statsmodels' definition of Holm's method."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from seriatim.report.significance import format_p, holm, incomplete_beta, t_tails, two_shares, welch


@pytest.mark.parametrize("degrees", [0.5, 1.0, 2.0, 2.7, 4.0, 17.3, 1e4])
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, -1.0, 2.5, 12.0, 400.0])
def test_students_distribution(t: float, degrees: float) -> None:
    assert t_tails(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), rel=1e-9, abs=1e-300)


def test_the_incomplete_beta_function() -> None:
    random = np.random.default_rng(0)
    for x, a, b in zip(random.random(200), *random.uniform(0.1, 50, (2, 200)), strict=True):
        assert incomplete_beta(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-9, abs=1e-290)
    assert [incomplete_beta(x, 2.0, 3.0) for x in (0.0, 1.0)] == [0.0, 1.0]


def test_welch() -> None:
    random = np.random.default_rng(1)
    for count, other in ((2, 2), (3, 3), (3, 10), (20, 5)):
        a, b = random.normal(0, 1, count).tolist(), random.normal(0.5, 3, other).tolist()
        assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)
        assert welch(a, [0.25]) == pytest.approx(stats.ttest_1samp(a, 0.25).pvalue, rel=1e-9)
        assert welch([0.25], b) == welch(b, [0.25])
        for scale in (2.0**600, 2.0**-600):  # whose squares are no numbers
            assert welch([scale * value for value in a], [scale * value for value in b]) == welch(a, b)


def test_what_does_not_vary_cannot_be_tested() -> None:
    assert welch([1.0, 1.0], [2.0, 2.0]) is None
    assert welch([1.0], [2.0]) is None
    assert welch([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_shares_of_examples() -> None:
    table = [[840, 160], [800, 200]]
    assert two_shares(0.84, 0.80, 1000) == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)
    assert two_shares(1.0, 1.0, 10) == two_shares(0.0, 0.0, 10) == 1.0


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_a_value_near_the_level_is_written_on_its_side() -> None:
    assert [format_p(p) for p in (math.exp(-20), 0.0009, 0.0491, 0.0512, 0.42)] == [
        "p < 0.001", "p < 0.001", "p = 0.049", "p = 0.051", "p = 0.42",
    ]  # fmt: skip
