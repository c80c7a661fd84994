"""What a reader should notice in a forecast: a network without a part in it, and intervals that miss their share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...core.findings import Finding
from ...core.metrics import finite

MISSED = 0.05  # so far from its nominal share may the coverage of an interval be, however many values it has


def forecast_findings(
    metrics: Mapping[str, float | None], quantiles: Sequence[float], horizon: int, unused: str = ""
) -> list[Finding]:
    """Returns what to notice in a forecast.

    Args:
        metrics: On the split that was evaluated last.
        quantiles: Those that the model forecasts, in ascending order.
        horizon: The number of steps of a forecast.
        unused: Why the network has no part in the forecast; "" if it has one.
    """
    findings = []
    if unused:
        advice = "The metrics and charts are those of the anchor, the training curve is that of the network."
        findings.append(Finding("contributed nothing to the forecast", unused, advice, part="the anchor"))
    missed = farthest_coverage(metrics, quantiles)
    if missed is not None:
        share, nominal = missed
        tolerance = coverage_tolerance(nominal, metrics.get("values"), horizon)
        detail = f"{100 * share:.1f} % of the values are within the {100 * nominal:.0f} % interval"
        if share < nominal - tolerance:
            advice = "Do not rely on them as they are."
            findings.append(Finding("gave intervals that are too narrow", detail, advice))
        elif share > nominal + tolerance:
            findings.append(Finding("gave intervals that are too wide", detail))
    return findings


def farthest_coverage(metrics: Mapping[str, float | None], quantiles: Sequence[float]) -> tuple[float, float] | None:
    """Returns the coverage and the nominal share of the interval where these differ most; None without intervals.

    The metric `coverage` is that of the interval between the outermost quantiles, `coverage_80` that of 80 %.
    """
    nominal = {"coverage": quantiles[-1] - quantiles[0]} if len(quantiles) > 1 else {}
    percents = {name: name.removeprefix("coverage_") for name in metrics if name.startswith("coverage_")}
    nominal |= {name: int(text) / 100 for name, text in percents.items() if text.isdecimal()}
    shares = [(float(share), nominal[name]) for name in nominal if (share := finite(metrics.get(name))) is not None]
    return max(shares, key=lambda pair: abs(pair[0] - pair[1]), default=None)


def coverage_tolerance(nominal: float, values: object, horizon: int) -> float:
    """Returns how far a coverage may be from its nominal share: two standard errors, at least `MISSED`.

    The values of one forecast are too high or too low together, so they count as one.

    Args:
        nominal: The nominal share.
        values: The number of values evaluated, None if it is not known.
        horizon: The number of values of a forecast.
    """
    count = finite(values)
    if not count:
        return MISSED
    forecasts = max(count / max(horizon, 1), 1)
    return max(MISSED, 2 * math.sqrt(nominal * (1 - nominal) / forecasts))
