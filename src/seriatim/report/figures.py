"""The figures of a run, read once, and how people read numbers: three digits and a unit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..runs import Run

NONE = "–"
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


@dataclass(frozen=True)
class Figures:
    """One run under the name that it bears among others."""

    run: Run
    label: str

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.run.summary

    @cached_property
    def settings(self) -> dict[str, Any]:
        return self.run.settings

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        return self.run.history()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.history if event["event"] == kind]

    @property
    def model(self) -> str:
        return str(self.summary.get("model") or self.setting("model", "name") or self.run.path.name)

    @property
    def task(self) -> str:
        return str(self.summary.get("task") or self.setting("task", "name") or "unknown")

    @property
    def reason(self) -> str:
        return str(self.summary.get("reason", "not finished"))

    @property
    def interrupted(self) -> bool:
        return self.reason.startswith("SIG") or self.reason == "not finished"

    @property
    def counts(self) -> bool:
        """Whether the model counted instead of learning: then nothing was multiplied."""
        return any(event.get("flops") is None for event in self.events("started"))

    @property
    def budget(self) -> int | None:
        budget = self.settings.get("params")
        return budget if isinstance(budget, int) and budget > 0 else None

    @property
    def off_budget(self) -> float | None:
        """How far the parameters are from the budget, as a share of it."""
        size = self.number("parameters")
        return None if self.budget is None or size is None else size / self.budget - 1

    def setting(self, *path: str) -> Any:
        value: Any = self.settings
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def number(self, name: str) -> float | int | None:
        """A figure of the summary, where it is there and finite."""
        return finite(self.summary.get(name))

    def measures(self, split: str) -> dict[str, Any]:
        found = self.summary.get("measures", {}).get(split, {})
        return found if isinstance(found, dict) else {}

    @property
    def loss(self) -> float | int | None:
        """The validation loss of the weights that were kept."""
        return finite(self.measures("valid").get("loss"))

    @cached_property
    def training(self) -> list[Point]:
        return _points(self.events("stepped"), lambda event: event.get("loss"))

    @cached_property
    def validation(self) -> list[Point]:
        return _points(self.events("evaluated"), lambda event: event.get("measures", {}).get("loss"))

    @property
    def unit(self) -> str:
        """Of the loss: nats where it is the logarithm of a perplexity."""
        measures = [self.measures("valid"), *(event.get("measures", {}) for event in self.events("evaluated")[:1])]
        return "nats" if any("perplexity" in found for found in measures) else ""


@dataclass(frozen=True)
class Point:
    """A loss, and what had been spent up to it."""

    step: int
    seconds: float
    tokens: float
    loss: float


def _points(events: list[dict[str, Any]], loss: Any) -> list[Point]:
    points = []
    for event in events:
        value, seconds, tokens = finite(loss(event)), finite(event.get("seconds")), finite(event.get("tokens"))
        if value is not None and seconds is not None and tokens is not None:
            points.append(Point(event["step"], seconds, tokens, value))
    return points


def read(runs: Sequence[Run]) -> list[Figures]:
    """Each run under the name of its model; where two have the same, under that of its folder too."""
    names = [Figures(run, "").model for run in runs]
    often = Counter(names)
    taken: Counter[str] = Counter()
    found = []
    for run, name in zip(runs, names, strict=True):
        label = name if often[name] == 1 else f"{name} ({run.path.name})"
        taken[label] += 1
        found.append(Figures(run, label if taken[label] == 1 else f"{label} #{taken[label]}"))
    return found


def ranked(figures: Sequence[Figures]) -> list[Figures]:
    """Best validation loss first; those without one at the end."""
    return sorted(figures, key=lambda one: (one.loss is None, one.loss if one.loss is not None else 0.0))


def finite(value: Any) -> float | int | None:
    number = isinstance(value, float | int) and not isinstance(value, bool)
    return value if number and math.isfinite(value) else None


# Numbers for people


def scaled(value: Any, unit: str = "") -> str:
    """1_020_000 → "1.02 M"; with a unit "3.4 TFLOP"."""
    if not _readable(value):
        return _unreadable(value)
    size, index = abs(float(value)), 0
    while size >= 999.5 and index + 1 < len(PREFIXES):
        size, index = size / 1000, index + 1
    sign = "−" if value < 0 else ""
    behind = PREFIXES[index] + unit
    return f"{sign}{_three(size)}{' ' if behind else ''}{behind}"


def seconds(value: Any) -> str:
    """0.042 → "42 ms", 35.2 → "35.2 s", 750 → "12 min 30 s"."""
    if not _readable(value):
        return _unreadable(value)
    if value < 1:
        return f"{_three(value * 1000)} ms" if value else "0 s"
    if value < 119.5:
        return f"{_three(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def plain(value: Any, digits: int = 3) -> str:
    """A loss or the like; very large values as powers of ten."""
    if not _readable(value):
        return _unreadable(value)
    if abs(value) >= 10_000:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}·10^{int(exponent)}"
    return f"{value:,.{digits}f}".replace("-", "−")


def whole(value: Any) -> str:
    return f"{value:,.0f}" if _readable(value) else _unreadable(value)


def percent(share: Any) -> str:
    if not _readable(share):
        return _unreadable(share)
    text = f"{100 * share:+.1f} %".replace("-", "−")
    return "±0.0 %" if text in ("+0.0 %", "−0.0 %") else text


def _three(value: float) -> str:
    """Three significant digits, without zeros at the end of a fraction."""
    if value == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(value)), 0)
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _readable(value: Any) -> bool:
    return finite(value) is not None


def _unreadable(value: Any) -> str:
    """A figure that is missing is a dash; one that is not finite is told."""
    if isinstance(value, float):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return NONE
