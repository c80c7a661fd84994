"""How people read numbers: three digits and a unit."""

from __future__ import annotations

import math
from typing import Any

from ..core.measures import NONE, finite, plain

__all__ = ["NONE", "finite", "percent", "plain", "points", "scaled", "seconds", "whole"]

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


def scaled(value: Any, unit: str = "") -> str:
    """1_020_000 → "1.02 M"; with a unit "3.4 TFLOP"."""
    if finite(value) is None:
        return plain(value)
    size, index = abs(float(value)), 0
    while size >= 999.5 and index + 1 < len(PREFIXES):
        size, index = size / 1000, index + 1
    sign = "−" if value < 0 else ""
    behind = PREFIXES[index] + unit
    return f"{sign}{_three(size)}{' ' if behind else ''}{behind}"


def seconds(value: Any) -> str:
    """0.042 → "42 ms", 35.2 → "35.2 s", 750 → "12 min 30 s"."""
    if finite(value) is None:
        return plain(value)
    if value < 1:
        return f"{_three(value * 1000)} ms" if value else "0 s"
    if value < 119.5:
        return f"{_three(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def whole(value: Any) -> str:
    return f"{value:,.0f}" if finite(value) is not None else plain(value)


def percent(share: Any) -> str:
    """A difference: 0.031 → "+3.1 %"."""
    if finite(share) is None:
        return plain(share)
    text = f"{100 * share:+.1f} %".replace("-", "−")
    return "±0.0 %" if text in ("+0.0 %", "−0.0 %") else text


def points(share: float) -> str:
    """The distance of two percentages: 0.0312 → "3.1 points"."""
    size = abs(100 * share)
    return f"{size:.{1 if size >= 0.95 else 2}f} points"


def _three(value: float) -> str:
    """Three significant digits, without zeros at the end of a fraction."""
    if value == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(value)), 0)
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
