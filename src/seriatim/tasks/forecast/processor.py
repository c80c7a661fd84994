"""The processor of forecasting: scaling, season and context length, fitted on training series.

`fit` uses the training split only. What the validation split decides, the anchor and the intervals, the task adds.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import plural
from ...data.dataset import Dataset
from ...data.series.calendar import Frequency, useful_cycles
from ...data.series.scaling import Scaler, Scaling, constant_columns
from ...data.series.table import SEPARATE_NAME, describe_series, start_time
from ..processor import Processor, Tokenizers, check_numbers
from ..spec import TaskConfig
from .classical import CLASSICAL, ClassicalAnchor, ClassicalForecast
from .encoded import Anchor, SeriesEncoded, encode_series
from .intervals import SCALES, Interval
from .simple import SimpleForecast, fit_linear
from .spec import ForecastSettings

WINDOWS_PER_WEIGHT = 2  # training windows for each weight that a linear anchor needs
DEFAULT_CONTEXT, MAX_CONTEXT = 48, 336  # steps of a context that is chosen
MAX_LAG = 400  # the longest season that is looked for
MAX_SEASON_SERIES = 20  # series in which a season is looked for
MIN_AUTOCORRELATION = 0.3  # of a season
Names = tuple[str, ...]


@dataclass(frozen=True)
class ForecastProcessor(Processor[SeriesEncoded]):
    """Scales series and makes the inputs of the network from them."""

    targets: Names
    past: Names
    future: Names
    frequency_text: str
    pooled: bool  # whether one scaling serves all series
    context_length: int
    horizon: int
    season: int
    anchor: str  # what outputs are added to: none, last, season, linear, ets or theta
    level: str  # fixed, or running: inputs relative to their running mean
    flags: tuple[int, ...]  # variables with an input that marks missing values
    cycles: Names  # of the calendar
    scaling: Scaling
    logs: int  # targets that are forecast as logarithms
    series: Names  # of the training split; one without a name if pooled
    shifts: tuple[tuple[float, ...], ...]  # by series
    scales: tuple[tuple[float, ...], ...]
    naive_maes: tuple[tuple[float | None, ...], ...]  # of the seasonal naive forecast in training, by series and target
    linear_weights: str = ""  # (targets, lags + 1, steps) of float32 in base64, if the anchor is linear
    anchor_lag: int = 0  # season or number of lags of the anchor; 0: `season` or `context_length`
    classical: tuple[tuple[float, ...], ...] = ()  # parameters of ETS or theta by series, if that is the anchor
    loss: str = "squared"  # absolute or squared, of a network without quantiles
    intervals: tuple[Interval, ...] = ()  # calibrated with the trained weights
    interval_scale: str = "season-75"  # scale that the intervals are expressed in, see `intervals.py`
    unused: str = ""  # why the network has no part in the forecast; "" if it has one

    version: ClassVar[int] = 2
    from_weights: ClassVar[Names] = ("intervals", "interval_scale", "unused")

    def __post_init__(self) -> None:
        if any(
            not isinstance(interval, Interval) or len(interval.lower) != self.horizon for interval in self.intervals
        ):
            raise ValueError(f"intervals are not of {self.horizon} steps")
        if self.interval_scale not in SCALES:
            raise ValueError(f"interval_scale is none of {', '.join(SCALES)}")
        check_numbers("shifts", self.shifts, len(self.series), len(self.variables))
        check_numbers("scales", self.scales, len(self.series), len(self.variables))
        if self.anchor in CLASSICAL and not self.pooled:
            count = CLASSICAL[self.anchor].count * len(self.targets)
            check_numbers("classical", self.classical, len(self.series), count)
        check_numbers("naive_maes", self.naive_maes, len(self.series), len(self.targets))

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings: ForecastSettings = config.task
        names = variable_names(train)
        check_recursive(settings, names["past"])
        frequency = Frequency.parse(train["frequency"][0])
        values = [join_variables(train, row) for row in range(len(train))]
        targets, pooled = len(names["target"]), "divided" in train
        histories = [array[:, :targets] for array in values]
        logs = targets if settings.log else 0
        if logs:
            check_positive(train, names["target"], frequency)
        season = choose_season(settings, frequency, histories, pooled, diagnostics)
        length = choose_context(settings, [len(array) for array in values], season, pooled, diagnostics)
        check_constant(train, values, names, pooled, diagnostics)
        groups = [np.concatenate(values)] if pooled else values
        scalers = [Scaler.fit(group, settings.scaling, logs) for group in groups]
        maes = [naive_mae(histories, season)] if pooled else [naive_mae([history], season) for history in histories]
        missing = np.stack([np.isnan(array).any(axis=0) for array in values]).any(axis=0)
        span = max(map(len, values)) * frequency.microseconds
        processor = cls(
            targets=names["target"],
            past=names["past"],
            future=names["future"],
            frequency_text=str(frequency),
            pooled=pooled,
            context_length=length,
            horizon=settings.horizon,
            season=season,
            anchor=settings.anchor if settings.anchor in ("last", "season") else "none",
            loss="absolute" if settings.loss == "auto" else settings.loss,
            level=settings.level if settings.level != "auto" else "fixed" if pooled else "running",
            flags=tuple(map(int, np.flatnonzero(missing))),
            cycles=useful_cycles(frequency, span) if settings.calendar else (),
            scaling=settings.scaling,
            logs=logs,
            series=("",) if pooled else tuple(train["series"]),
            shifts=tuple(tuple(scaler.shift.tolist()) for scaler in scalers),
            scales=tuple(tuple(scaler.scale.tolist()) for scaler in scalers),
            naive_maes=tuple(tuple(v if np.isfinite(v) else None for v in mae.tolist()) for mae in maes),
        )
        if settings.anchor not in ("linear", *CLASSICAL):
            return processor
        encoded = processor.encode_scaled(train, length)
        if settings.anchor == "linear":
            return processor.with_linear(encoded, length, settings.steps)
        return processor.with_classical(settings.anchor, CLASSICAL[settings.anchor].fit(encoded, season))

    def with_linear(self, train: SeriesEncoded, lags: int, steps: int) -> Self:
        """Returns the processor with a linear anchor, fitted on training series."""
        weights = base64.b64encode(fit_linear(train, lags, steps).tobytes()).decode()
        return replace(self, anchor="linear", anchor_lag=lags, linear_weights=weights)

    def with_classical(self, name: str, fitted: ClassicalForecast) -> Self:
        """Returns the processor with ETS or theta, fitted on training series, as the anchor."""
        rows = [] if self.pooled else fitted.parameters.T.reshape(len(self.series), -1).tolist()
        return replace(self, anchor=name, anchor_lag=fitted.season, classical=tuple(map(tuple, rows)))

    def classical_forecast(self, encoded: SeriesEncoded) -> ClassicalForecast:
        """Returns the anchor of these series; new ones are fitted on the steps that their scaling is fitted on."""
        kind = CLASSICAL[self.anchor]
        rows = [None if self.pooled else self._rows.get(name) for name in encoded.names]
        parameters = np.empty((len(rows), len(self.targets) * kind.count))
        if None in rows:
            y, sizes = encoded.target_matrix(encoded.scaling_steps)
            parameters[:] = np.stack([sizes, *kind.choose(y, sizes, self.anchor_lag)]).T.reshape(parameters.shape)
        for series, row in enumerate(rows):
            if row is not None:
                parameters[series] = self.classical[row]
        return kind(self.anchor_lag, parameters.reshape(-1, kind.count).T)

    def anchor_of(self, encoded: SeriesEncoded) -> Anchor:
        """Returns the anchor of these series."""
        if self.anchor not in CLASSICAL:
            return self.simple_forecast
        return ClassicalAnchor(self.classical_forecast(encoded), *encoded.target_matrix())

    def anchor_candidates(self, train: SeriesEncoded, steps: int) -> Iterator[tuple[str, Self]]:
        """Yields processors with each anchor that the series are long enough for, and its name."""
        yield "the mean", replace(self, anchor="none")
        yield "the last value", replace(self, anchor="last")
        histories = [values[:, 0] for values in train.raw]
        seasons = [self.season, self.frequency.long_season or 1, 1 if self.pooled else find_season(histories)]
        for season in sorted({season for season in seasons if 1 < season < max(train.sizes)}):
            yield f"the value {season} steps before", replace(self, anchor="season", anchor_lag=season)
        lags = self.context_length
        while lags:
            windows = int(np.maximum(train.sizes - lags - steps + 1, 0).sum())
            if windows >= WINDOWS_PER_WEIGHT * (lags + 1):
                yield f"the linear forecast from {lags} values", self.with_linear(train, lags, steps)
            lags = min(2 * lags, MAX_CONTEXT) if lags < MAX_CONTEXT and not self.pooled else 0

    @cached_property
    def frequency(self) -> Frequency:
        return Frequency.parse(self.frequency_text)

    @property
    def variables(self) -> Names:
        return (*self.targets, *self.past, *self.future)

    @cached_property
    def simple_forecast(self) -> SimpleForecast:
        """The anchor, if it is the same for all series."""
        if self.anchor == "linear":
            weights = np.frombuffer(base64.b64decode(self.linear_weights), np.float32)
            lags = self.anchor_lag or self.context_length
            return SimpleForecast(weights=weights.reshape(len(self.targets), lags + 1, -1))
        return SimpleForecast({"none": 0, "last": 1}.get(self.anchor, self.anchor_lag or self.season))

    @property
    def past_steps(self) -> int:
        """The steps before a forecast that network and anchor read."""
        return max(self.context_length, self.season, self.anchor_lag)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.series)}

    def features(self, steps: int) -> int:
        """Returns the number of inputs of a time step, if one pass forecasts `steps` steps."""
        return len(self.variables) + len(self.flags) + 2 * len(self.cycles) + len(self.future) * steps

    def scaler(self, name: str, values: np.ndarray) -> Scaler:
        """Returns the scaler of a series; that of a new series is fitted on these values (n,variables)."""
        row = 0 if self.pooled else self._rows.get(name)
        if row is None:
            return Scaler.fit(values, self.scaling, self.logs)
        return Scaler(np.array(self.shifts[row]), np.array(self.scales[row]), self.logs)

    def naive_mae(self, name: str, values: np.ndarray) -> np.ndarray:
        """Returns the seasonal naive MAE of each target in training; of a new series within these values."""
        row = None if self.pooled else self._rows.get(name)
        if row is None:
            return naive_mae([values[:, : len(self.targets)]], self.season)
        return np.array(self.naive_maes[row], dtype=np.float64)

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> SeriesEncoded:
        """Returns the series as arrays; items are the forecast origins of a backtest, in training all windows.

        New series are scaled by their first `context_length` steps. Series that are too short are reported; those of
        a split by series are left out.
        """
        if self.logs:
            check_positive(dataset, self.targets, self.frequency)
        sizes = np.array([len(values) for values in dataset["target"]])
        history = dataset["history"].astype(np.int64) if "history" in dataset else np.zeros(len(dataset), np.int64)
        required = np.where(history > 0, self.horizon, self.context_length + self.horizon)
        short = np.flatnonzero(sizes - history < required)
        if "divided" in dataset and 0 < len(short) < len(dataset):
            diagnostics.note(f"{len(short):,} series are left out, since they have fewer than {required[0]} steps")
            dataset = dataset.take(np.setdiff1d(np.arange(len(dataset)), short))
            short = short[:0]
        for row in short.tolist():
            steps = f"{sizes[row]} steps"
            need = f"a context of {self.context_length} and a horizon of {self.horizon} need {required[row]}"
            if new := int(sizes[row] - history[row]) if history[row] else 0:
                steps = f"{plural(new, 'step')} in its validation or test split"
                need = f"a horizon of {self.horizon} needs {required[row]}"
            shares = "give validation and test larger shares (--set 'data.fractions=[0.5,0.25,0.25]')"
            remedy = f"lower --horizon or --context-length, {shares}, or remove the series"
            cause = f"{describe_series(dataset, row)} is too short: {steps}, where {need}"
            diagnostics.report("data.too-short", cause, remedy)
        encoded = self.encode_scaled(dataset, self.context_length)
        if not len(short) and not len(encoded.backtest(None)):
            cause = f"{dataset.name}: a split of series has no known value of the target"
            diagnostics.report("data.empty", cause, "change data.fractions")
        return encoded

    def encode_scaled(self, dataset: Dataset, scaling_steps: int | None) -> SeriesEncoded:
        """Returns the series as arrays; new ones are scaled by their first `scaling_steps` steps, None for all."""
        for role, names in variable_names(dataset).items():
            expected = {"target": self.targets, "past": self.past, "future": self.future}[role]
            if len(names) != len(expected):
                columns = ", ".join(expected) or "none"
                cause = f"{dataset.name}: {len(names)} {role} columns, where the model was trained on {columns}"
                raise SeriatimError("data.column", cause, f"name the same: data.columns.{role}={columns}")
        values = [join_variables(dataset, row) for row in range(len(dataset))]
        scalers = [
            self.scaler(name, array[:scaling_steps]) for name, array in zip(dataset["series"], values, strict=True)
        ]
        encoded = encode_series(self, dataset, values, scalers, scaling_steps)
        return replace(encoded, anchor=self.anchor_of(encoded))


def variable_names(dataset: Dataset) -> dict[str, Names]:
    """Returns the variables of each role of a data set of series; those of separate columns are named "value"."""
    names: dict[str, Names] = {"target": (), "past": (), "future": ()}
    for role in names.keys() & dataset.columns.keys():
        column = dataset.columns[role][0]
        width = column.values[0].shape[1]
        plain = (SEPARATE_NAME,) if width == 1 else tuple(f"column {number}" for number in range(1, width + 1))
        listed = tuple(column.name.split(","))
        names[role] = listed if len(listed) == width else plain
    return names


def join_variables(dataset: Dataset, row: int) -> np.ndarray:
    """Returns the values (steps, targets + past + future) of a series."""
    steps = len(dataset["target"][row])
    parts = [dataset[role][row][:steps] for role in ("target", "past", "future") if role in dataset]
    return np.concatenate(parts, axis=1)


# Checks


def check_recursive(settings: ForecastSettings, past: Sequence[str]) -> None:
    """Raises an error if forecasts cannot be fed back."""
    if settings.mode != "recursive" or settings.horizon == 1:
        return
    if settings.anchor in CLASSICAL:
        cause = f"task.anchor={settings.anchor} forecasts all steps at once"
        raise SeriatimError("task.recursive", cause, "choose task.mode=direct, or another anchor")
    if past:
        cause = f'a recursive forecast does not know the future of the column "{past[0]}"'
        remedy = (
            "choose task.mode=direct, or name it as a target or future column, or leave it out: data.columns.past=''"
        )
        raise SeriatimError("task.recursive", cause, remedy)
    if settings.quantiles:
        cause = "the quantiles of one step do not give those of several steps"
        raise SeriatimError("task.recursive", cause, "choose task.mode=direct for quantiles")


def check_constant(
    train: Dataset, values: list[np.ndarray], names: dict[str, Names], pooled: bool, diagnostics: Diagnostics
) -> None:
    """Raises an error if a target never changes; notes other columns that never do."""
    variables = (*names["target"], *names["past"], *names["future"])
    noted: set[str] = set()
    for row, array in enumerate([np.concatenate(values)] if pooled else values):
        prefix = f"{describe_series(train, row)}: " if not pooled and train["series"][row] else ""
        for column in np.flatnonzero(constant_columns(array)):
            name = variables[column]
            if column < len(names["target"]):
                cause = f'{prefix}the target "{name}" never changes in the training split'
                raise SeriatimError("data.constant", cause, "there is nothing to learn: leave it out (--target)")
            if name not in noted:
                diagnostics.note(f'{prefix}the column "{name}" never changes in the training split')
            noted.add(name)


def check_positive(dataset: Dataset, targets: Names, frequency: Frequency) -> None:
    """Raises an error if a target has no logarithm."""
    for row, values in enumerate(dataset["target"]):
        for column, name in enumerate(targets):
            low = np.flatnonzero(values[:, column] <= 0)
            if len(low):
                time = frequency.format(frequency.after(start_time(dataset, row), low[:1])[0])
                value = f'"{name}" is {values[low[0], column]:g} at {time}'
                cause = f"{describe_series(dataset, row)}: {value}, which has no logarithm"
                raise SeriatimError("data.log", cause, "omit task.log")


# What follows from the training series


def naive_mae(histories: list[np.ndarray], season: int) -> np.ndarray:
    """Returns the in-sample MAE of the seasonal naive forecast, mean |y_t − y_{t−season}| of each column (columns,).

    Where there is no season yet, or all of them are equal, that of the naive forecast. NaN if nothing is known.
    """
    maes = np.full(histories[0].shape[1], np.nan)
    for lag in dict.fromkeys((season, 1)):
        gaps = np.concatenate([np.abs(h[lag:] - h[: max(len(h) - lag, 0)]) for h in histories])
        known = ~np.isnan(gaps)
        with np.errstate(invalid="ignore"):
            means = np.where(known, gaps, 0.0).sum(axis=0) / known.sum(axis=0)
        maes = np.where(maes > 0, maes, means)
    return np.asarray(maes)


def choose_season(
    settings: ForecastSettings,
    frequency: Frequency,
    histories: list[np.ndarray],
    pooled: bool,
    diagnostics: Diagnostics,
) -> int:
    """Returns the season in steps: as set, by the frequency, or by autocorrelation; 1 if there is none."""
    if settings.season is not None:
        return settings.season
    usual = frequency.season
    if usual is not None and max(map(len, histories)) > 2 * usual:
        diagnostics.note(f"season: {usual} steps, as usual for {frequency.name} series")
        return usual
    if pooled or usual is not None:
        return 1
    season = find_season([history[:, 0] for history in histories])
    diagnostics.note(f"season: {season} steps, by autocorrelation" if season > 1 else "season: none is apparent")
    return season


def find_season(columns: list[np.ndarray]) -> int:
    """Returns the lag with the highest autocorrelation in most series, 1 if there is none."""
    sampled = columns[:MAX_SEASON_SERIES]
    lags = [lag for column in sampled if (lag := find_peak(column)) is not None]
    return int(np.median(lags)) if 2 * len(lags) > len(sampled) else 1


def find_peak(column: np.ndarray) -> int | None:
    """Returns the lag of the highest peak of the autocorrelation of a series without its linear trend."""
    values = column[~np.isnan(column)]
    max_lag = min(len(values) // 3, MAX_LAG)
    if max_lag < 3 or values.std() == 0:
        return None
    times = np.arange(len(values))
    values = values - np.polyval(np.polyfit(times, values, 1), times)
    power = float(values @ values)
    if power <= 1e-12:
        return None
    r = [float(values[lag:] @ values[: len(values) - lag]) / power for lag in range(max_lag + 1)]
    peaks = [lag for lag in range(2, max_lag) if r[lag] > MIN_AUTOCORRELATION and r[lag] >= max(r[lag - 1], r[lag + 1])]
    return max(peaks, key=lambda lag: (round(r[lag], 2), -lag)) if peaks else None


def choose_context(
    settings: ForecastSettings, sizes: list[int], season: int, pooled: bool, diagnostics: Diagnostics
) -> int:
    """Returns the context length: as set, or two seasons, but so that the shortest series has several windows."""
    if settings.context_length is not None:
        return settings.context_length
    longest = min(sizes) - settings.horizon
    if pooled:
        length = min(longest, MAX_CONTEXT)
    else:
        preferred = max(2 * season if season > 1 else DEFAULT_CONTEXT, 2 * settings.horizon)
        length = min(preferred, max(longest // 2, min(longest, season)), MAX_CONTEXT)
    length = max(length, 1)
    diagnostics.note(f"context: {length} steps")
    return length
