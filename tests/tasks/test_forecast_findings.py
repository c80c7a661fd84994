"""Findings of a forecast follow from its metrics."""

from __future__ import annotations

import pytest

from seriatim.tasks.forecast.findings import coverage_tolerance, farthest_coverage, forecast_findings

QUANTILES = (0.1, 0.5, 0.9)


@pytest.mark.parametrize(("coverage", "claim"), [(0.6, "too narrow"), (0.78, ""), (0.95, "too wide")])
def test_an_interval_that_does_not_cover_is_named(coverage: float, claim: str) -> None:
    findings = forecast_findings({"loss": 0.1, "coverage": coverage}, QUANTILES, 1)
    assert bool(findings) == bool(claim)
    for finding in findings:
        assert claim in finding.claim
        assert finding.detail.startswith(f"{100 * coverage:.1f} %")
        assert "80 %" in finding.detail


@pytest.mark.parametrize(("horizon", "found"), [(1, True), (40, False)])
def test_the_values_of_one_forecast_are_not_many(horizon: int, found: bool) -> None:
    """Of 400 values 88 % are within an 80 % interval: too many for chance, unless they are ten forecasts."""
    findings = forecast_findings({"coverage": 0.88, "values": 400.0}, QUANTILES, horizon)
    assert bool(findings) == found
    assert coverage_tolerance(0.8, 400.0, 40) == pytest.approx(2 * (0.16 / 10) ** 0.5)
    assert coverage_tolerance(0.8, 10**6, 1) == coverage_tolerance(0.8, None, 1) == 0.05


def test_of_several_intervals_the_one_that_is_farthest_off_counts() -> None:
    metrics = {"coverage_50": 0.48, "coverage_80": 0.31, "coverage_95": None, "coverage_x": 1.0, "coverage": 0.3}
    assert farthest_coverage(metrics, ()) == (0.31, 0.8)
    assert farthest_coverage(metrics, QUANTILES) == (0.3, pytest.approx(0.8))
    assert farthest_coverage({"loss": 1.0}, QUANTILES) is None


def test_a_network_without_a_part_is_named_with_its_reason() -> None:
    (finding,) = forecast_findings({}, (), 4, "MASE 1.2 with the network, 1.1 without")
    assert (finding.detail, finding.part) == ("MASE 1.2 with the network, 1.1 without", "the anchor")
    assert forecast_findings({}, (), 4) == []
