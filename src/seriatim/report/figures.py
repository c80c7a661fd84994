"""The figures of a run, read once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core import measures
from ..core.errors import SeriatimError
from ..core.measures import finite
from ..runs import Run


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

    # Quality

    def measures(self, split: str) -> dict[str, Any]:
        return _mapping(_mapping(self.summary.get("measures")).get(split))

    def baselines(self, split: str) -> dict[str, dict[str, Any]]:
        """What simple methods reach on a split, by their names."""
        found = _mapping(_mapping(self.summary.get("baselines")).get(split))
        return {str(name): values for name, values in found.items() if isinstance(values, dict)}

    @property
    def splits(self) -> list[str]:
        """The parts that were evaluated at the end."""
        return [split for split in ("valid", "test") if self.measures(split)]

    @cached_property
    def objective(self) -> str:
        """The measure by which the weights were chosen: the lower, the better."""
        name = str(self.summary.get("objective", "loss"))
        return name if name in self._values else "loss"

    @cached_property
    def main(self) -> str:
        """The measure to show first, and in pictures."""
        return measures.main(self._values, self.objective)

    @property
    def columns(self) -> list[str]:
        """The measures worth showing, the main one first."""
        return measures.telling(self._values, self.objective)

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Every measure there is, with a value of it."""
        last = [_mapping(event.get("measures")) for event in self.events("evaluated")[-1:]]
        return measures.first_of([self.measures("valid"), self.measures("test"), *last])

    @property
    def score(self) -> float | int | None:
        """What models are ranked by: the main measure on the validation data, of the weights kept, as a figure of which
        less is better; so the objective itself, but where that is not what people ask for."""
        if self.objective == "loss" and measures.measure(self.main).better == "higher":
            reached = self.reached()
            return None if reached is None else -reached
        return finite(self.measures("valid").get(self.objective))

    def reached(self, split: str = "valid") -> float | int | None:
        """The main measure on a split."""
        return finite(self.measures(split).get(self.main))

    @property
    def unit(self) -> str:
        """Of the loss: nats where it is the logarithm of a perplexity."""
        return "nats" if "perplexity" in self._values else ""

    @property
    def signatures(self) -> dict[str, str]:
        """How measures were taken, where their figures depend on it."""
        return {str(name): str(text) for name, text in _mapping(self.summary.get("signatures")).items()}

    @property
    def speaks(self) -> bool:
        """Whether it is a language model."""
        return self.task == "language"

    @property
    def element(self) -> str:
        """What it was fed with, for many."""
        told = next((str(event["unit"]) for event in self.events("started") if "unit" in event), "")
        return told or ("tokens" if self.speaks or "tokens" in self._values else "elements")

    # Curves

    @cached_property
    def training(self) -> list[Point]:
        """The loss of the steps."""
        return _points(self.events("stepped"), lambda event: event.get("loss"))

    @cached_property
    def validation(self) -> list[Point]:
        """The loss of the evaluations along the way."""
        return self.evaluations("loss")

    def evaluations(self, name: str) -> list[Point]:
        return _points(self.events("evaluated"), lambda event: _mapping(event.get("measures")).get(name))

    # Views

    @cached_property
    def views(self) -> tuple[str, list[dict[str, Any]]]:
        """What the task found worth looking at, and the part it is about: the test part where there is one."""
        try:
            found = _mapping(self.run.evaluation())
        except ValueError as error:
            file = self.run.path / "evaluation.json"
            raise SeriatimError("run.damaged", f"{file} is not whole: {error}", "remove the file") from None
        for split in ("test", "valid"):
            if isinstance(found.get(split), list) and found[split]:
                return split, [view for view in found[split] if isinstance(view, dict)]
        return "", []

    @cached_property
    def inside(self) -> list[dict[str, Any]]:
        """What was seen inside the model at the end of its training."""
        file = self.run.path / "inspection.json"
        if not file.is_file():
            return []
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SeriatimError("run.damaged", f"{file} is not whole: {error}", "remove the file") from None
        return [view for view in found if isinstance(view, dict)] if isinstance(found, list) else []


@dataclass(frozen=True)
class Point:
    """A measure, and what had been spent up to it."""

    step: int
    seconds: float
    tokens: float
    value: float


def _points(events: list[dict[str, Any]], measure: Any) -> list[Point]:
    points = []
    for event in events:
        value, seconds, tokens = finite(measure(event)), finite(event.get("seconds")), finite(event.get("tokens"))
        if value is not None and seconds is not None and tokens is not None:
            points.append(Point(event["step"], seconds, tokens, value))
    return points


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def read(runs: Sequence[Run] | Sequence[Figures]) -> list[Figures]:
    """Each run under the name of its model; where two have the same, under that of its folder too. Figures that bear
    a name already keep it."""
    known = [one for one in runs if isinstance(one, Figures)]
    return known or _named([one for one in runs if isinstance(one, Run)])


def _named(runs: Sequence[Run]) -> list[Figures]:
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
    """Best on the validation data first; those without a figure at the end."""
    return sorted(figures, key=lambda one: (one.score is None, one.score if one.score is not None else 0.0))


def shared(figures: Sequence[Figures]) -> list[str]:
    """The measures of a comparison, the main one first."""
    return list(dict.fromkeys(name for one in figures for name in one.columns))


def baselines_of(figures: Sequence[Figures], split: str) -> dict[str, dict[str, Any]]:
    """The baselines of a comparison: each once, since all models saw the same data."""
    found: dict[str, dict[str, Any]] = {}
    for one in figures:
        for name, values in one.baselines(split).items():
            found.setdefault(name, values)
    return found
