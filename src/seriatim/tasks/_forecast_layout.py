"""What a forecasting run keeps of its data: columns, scaling, season and the lengths that follow from them.

All of it comes from the training part, so that nothing of what is to be forecast can show through.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..core.files import write_json
from ..core.tensors import load_tensors, save_tensors
from ..data._calendar import DAY, Frequency, phases
from ..data._series_grid import title
from ..data._series_table import Roles
from ..data.scaling import Scaler, constant
from ..data.series import Series, SeriesSet

FILE = "data.json"
WEIGHTS = "linear.safetensors"
PER_WEIGHT = 20  # training windows for each weight of a linear anchor, at least
CONTEXT = 48  # steps to look back on where no season says better
LONGEST = 336  # context that is chosen unasked
LAGS = 400  # the longest season that is looked for


@dataclass(frozen=True)
class Layout:
    roles: Roles
    base: Roles
    frequency: Frequency
    split: str  # time, or series: then one scaling serves all
    length: int
    horizon: int
    season: int
    anchor: str  # what outputs are added to: none, last, season or linear
    level: str  # inputs are fixed, or relative to their running mean
    flags: tuple[int, ...]  # columns whose missing values are marked
    phases: tuple[str, ...]
    kind: str  # of scaling
    logs: int  # targets that are learned as logarithms
    scalers: dict[str, Scaler]
    pooled: Scaler
    errors: dict[str, list[float]]  # of the seasonal naive forecast within the training part, for each target
    notes: tuple[str, ...] = ()  # what was inferred
    linear: np.ndarray | None = None  # (N,length+1,steps), the weights of a linear anchor

    def scaler(self, series: Series, end: int) -> Scaler:
        """The series' own, or for one never seen what its first `end` elements show."""
        if self.split == "series":
            return self.pooled
        if series.like in self.scalers:
            return self.scalers[series.like]
        return Scaler.fit(series.values[:end], self.kind, self.logs)

    def naive_errors(self, series: Series, end: int) -> np.ndarray:
        known = self.errors.get("" if self.split == "series" else series.like)
        if known is None:
            return naive_errors([series.values[:end, : len(self.roles.targets)]], self.season)
        return np.array(known, dtype=np.float64)

    def save(self, folder: Path) -> None:
        values = {name: value for name, value in vars(self).items() if name not in ("scalers", "pooled", "linear")}
        if self.linear is not None:
            save_tensors(folder / WEIGHTS, {"weights": torch.from_numpy(self.linear)})
        values |= {name: asdict(values[name]) for name in ("roles", "base", "frequency")}
        values["scalers"] = {name: scaler.to_json() for name, scaler in self.scalers.items()}
        write_json(folder / FILE, values | {"pooled": self.pooled.to_json()})

    @classmethod
    def load(cls, folder: Path) -> Layout:
        try:
            values: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
            for name in ("roles", "base"):
                found: dict[str, Any] = {
                    key: tuple(part) if isinstance(part, list) else part for key, part in values[name].items()
                }
                values[name] = Roles(**found)
            values["frequency"] = Frequency(**values["frequency"])
            values |= {name: tuple(values[name]) for name in ("flags", "phases", "notes")}
            values["scalers"] = {name: Scaler.from_json(one) for name, one in values["scalers"].items()}
            linear = load_tensors(folder / WEIGHTS)["weights"].numpy() if values["anchor"] == "linear" else None
            return cls(**values | {"pooled": Scaler.from_json(values["pooled"]), "linear": linear})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SeriatimError("run.damaged", f"{folder / FILE} is not whole: {error}", "restore the file") from None


def learn(settings: Any, data: Any, found: SeriesSet, tell: Callable[[str], None]) -> Layout:
    """The layout of some series, by the settings of the task and of the data."""
    notes: list[str] = []

    def notify(note: str) -> None:
        notes.append(note)
        tell(note)

    targets = len(found.roles.targets)
    trained = [(one, one.values[: one.spans["train"][1]]) for one in found.series if "train" in one.spans]
    if not trained:
        raise SeriatimError("data.too-short", "no series has a training part", "give more series or longer ones")
    logs = targets if data.log else 0
    if logs:
        _check_positive(found)
    season = _season(settings, found, [values[:, :targets] for _, values in trained], notify)
    length = _length(settings, found, [len(values) for _, values in trained], season, notify)
    _check_lengths(found, length, settings.horizon)
    _check_constant(found, trained, notify)
    apart = found.split == "time"
    scalers = {one.like: Scaler.fit(values, data.scale, logs) for one, values in trained} if apart else {}
    pooled = Scaler.fit(np.concatenate([values for _, values in trained]), data.scale, logs)
    if apart:
        errors = {one.like: naive_errors([values[:, :targets]], season).tolist() for one, values in trained}
    else:
        errors = {"": naive_errors([values[:, :targets] for _, values in trained], season).tolist()}
    missing = np.stack([np.isnan(one.values).any(axis=0) for one in found.series]).any(axis=0)
    flags = tuple(int(at) for at in np.flatnonzero(missing))
    span = max(len(values) for _, values in trained) * _step(found.frequency)
    scaled = [scalers.get(one.like, pooled).apply(values)[:, :targets] for one, values in trained]
    return Layout(
        roles=found.roles,
        base=found.base,
        frequency=found.frequency,
        split=found.split,
        length=length,
        horizon=settings.horizon,
        season=season,
        anchor=_anchor(settings, scaled, season, length if apart else 0, notify),
        level=settings.level if settings.level != "auto" else "running" if apart else "fixed",
        flags=flags,
        phases=tuple(phases(found.frequency, span)) if data.calendar else (),
        kind=data.scale,
        logs=logs,
        scalers=scalers,
        pooled=pooled,
        errors=errors,
        notes=tuple(notes),
    )


def _step(frequency: Frequency) -> float:
    """Of dates, in microseconds, about."""
    return {"months": 30.4 * DAY * frequency.step, "business": 1.4 * DAY}.get(frequency.kind, frequency.step)


def naive_errors(parts: list[np.ndarray], season: int) -> np.ndarray:
    """mean |y_t − y_{t−m}| of each column, over the places where both are known; NaN where there are none."""
    gaps = np.concatenate([np.abs(part[season:] - part[: max(len(part) - season, 0)]) for part in parts])
    there = ~np.isnan(gaps)
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.where(there, gaps, 0.0).sum(axis=0) / there.sum(axis=0)
    return mean


def _season(settings: Any, found: SeriesSet, parts: list[np.ndarray], notify: Callable[[str], None]) -> int:
    if settings.season is not None:
        return int(settings.season)
    longest = max(map(len, parts))
    usual = found.frequency.season
    if usual is not None and longest > 2 * usual:
        notify(f"season: {usual} steps, as usual for {found.frequency.name} series")
        return usual
    if found.split == "series" or usual is not None:
        return 1
    season = seen_season([part[:, 0] for part in parts])
    notify(f"season: {season} steps, by autocorrelation" if season > 1 else "season: none was found")
    return season


def seen_season(columns: list[np.ndarray]) -> int:
    """The lag at which the autocorrelation of most series is highest, 1 where it is nowhere high."""
    lags = [lag for column in columns[:20] if (lag := _peak(column))]
    return int(np.median(lags)) if 2 * len(lags) > min(len(columns), 20) else 1


def _peak(column: np.ndarray) -> int | None:
    x = column[~np.isnan(column)]
    most = min(len(x) // 3, LAGS)
    if most < 3 or x.std() == 0:
        return None
    t = np.arange(len(x))
    x = x - np.polyval(np.polyfit(t, x, 1), t)
    power = float(x @ x)
    if power <= 1e-12:
        return None
    lags = [float(x[lag:] @ x[: len(x) - lag]) / power for lag in range(most + 1)]
    peaks = [lag for lag in range(2, most) if lags[lag] > 0.3 and lags[lag] >= max(lags[lag - 1], lags[lag + 1])]
    return max(peaks, key=lambda lag: (round(lags[lag], 2), -lag)) if peaks else None


def _length(settings: Any, found: SeriesSet, sizes: list[int], season: int, notify: Callable[[str], None]) -> int:
    if settings.length is not None:
        return int(settings.length)
    if found.split == "series":
        most = min(map(len, found.series)) - settings.horizon
        length = min(most, LONGEST)
    else:
        wanted = max(2 * season if season > 1 else CONTEXT, 2 * settings.horizon)
        # Half of the shortest training part stays for windows that begin elsewhere.
        most = min(sizes) - settings.horizon
        length = min(wanted, max(most // 2, min(most, season)), LONGEST)
    length = max(length, 1)
    notify(f"context: {length} steps")
    return length


def _check_lengths(found: SeriesSet, length: int, horizon: int) -> None:
    need = f"a context of {length} and a horizon of {horizon}"
    for one in found.series:
        for part, (begin, end) in one.spans.items():
            joined = part != "train" and begin > 0
            size, least = end - begin, horizon if joined else length + horizon
            if size < least:
                what = f"a horizon of {horizon}" if joined else need
                cause = f"{title(one)} is too short: {len(one)} steps, {size} of them in the {part} part, "
                remedy = "lower --horizon or --length, move data.fractions, or leave the series out"
                raise SeriatimError("data.too-short", f"{cause}where {what} need{'s' * joined} {least}", remedy)


def _check_constant(found: SeriesSet, trained: list[tuple[Series, np.ndarray]], notify: Callable[[str], None]) -> None:
    names, targets = found.roles.numbers, len(found.roles.targets)
    together = [(None, np.concatenate([values for _, values in trained]))]
    told: set[str] = set()
    for one, values in together if found.split == "series" else trained:
        where = f"{title(one)}: " if one is not None and one.name else ""
        for at in np.flatnonzero(constant(values)):
            if at < targets:
                cause = f'{where}the target "{names[at]}" never changes in the training part'
                raise SeriatimError("data.constant", cause, "there is nothing to learn: leave it out (data.target)")
            if names[at] not in told:
                notify(f'{where}the column "{names[at]}" never changes in the training part')
            told.add(names[at])


def _check_positive(found: SeriesSet) -> None:
    for one in found.series:
        for at, name in enumerate(found.roles.targets):
            low = np.flatnonzero(one.values[:, at] <= 0)
            if len(low):
                when = found.frequency.text(float(found.frequency.after(one.start, int(low[0]))))
                cause = f'{title(one)}: "{name}" is {one.values[low[0], at]:g} at {when}, which has no logarithm'
                raise SeriatimError("data.log", cause, "leave data.log off")


def check_ahead(series: Series, layout: Layout) -> None:
    """The future columns of the horizon, which nobody else can know."""
    for at, name in enumerate(layout.roles.future):
        for step in range(layout.horizon):
            if step >= len(series.ahead) or np.isnan(series.ahead[step, at]):
                when = layout.frequency.text(float(layout.frequency.after(series.start, len(series) + step)))
                cause = f'{title(series)}: the future column "{name}" has no value at {when}'
                remedy = f"add {layout.horizon} rows behind the end with {name} filled and the target empty"
                raise SeriatimError("data.future", cause, remedy)


def _anchor(settings: Any, parts: list[np.ndarray], season: int, length: int, notify: Callable[[str], None]) -> str:
    """What the network learns the difference to: the linear forecast where there is enough to fit one, else
    whichever simple forecast is nearest within the training part."""
    if settings.anchor != "auto":
        return str(settings.anchor)
    found = {"none": _mean(np.abs(part) for part in parts)}
    steps = settings.outputs
    some = np.unique(np.linspace(1, steps, min(steps, 24)).astype(int)).tolist()
    gaps = {"last": some} | ({"season": [season * -(-step // season) for step in some]} if season > 1 else {})
    for name, lags in gaps.items():
        found[name] = _mean(np.abs(part[lag:] - part[:-lag]) for lag in lags for part in parts if len(part) > lag)
    best = min(found, key=lambda name: found[name])
    if length and sum(len(part) - length - steps for part in parts) >= PER_WEIGHT * (length + 1):
        best = "linear"
    words = {
        "none": "the mean",
        "last": "the last value",
        "season": "the value one season before",
        "linear": "the linear forecast",
    }
    notify(f"the network learns the difference to {words[best]}")
    return best


def _mean(gaps: Iterator[np.ndarray]) -> float:
    joined = [gap[~np.isnan(gap)] for gap in gaps]
    count = sum(map(len, joined))
    return sum(float(gap.sum()) for gap in joined) / count if count else np.inf
