"""Charts as values: what a task, an inspection or a report shows, without how it is drawn.

A chart is a frozen dataclass that is checked once, when it is made, and stored in JSON as it is: `evaluation.json` and
`inspection.json` are lists of them. This module imports no drawing library; `render.py` draws.
"""

from __future__ import annotations

import base64
import binascii
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from ..core.metrics import METRICS, finite, format_metric
from .formatting import MAX_LISTED, list_values, principal_components, text_width
from .formatting import clean_text as clean_text
from .formatting import fold as fold
from .formatting import format_number as format_number
from .formatting import matrix as matrix
from .formatting import one_line as one_line
from .formatting import row as row

STRICT = ConfigDict(extra="forbid")


# Values of charts


def finite_or_none(value: object) -> object:
    """Returns None for a float that JSON cannot hold, everything else unchanged; numpy scalars become plain."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def finite_values(values: object) -> object:
    """Returns a sequence with None for values that are not finite."""
    return tuple(map(finite_or_none, values)) if isinstance(values, Iterable) else values


def png_base64(text: str) -> str:
    """Returns the text if it is base64 of a PNG; raises ValueError otherwise."""
    try:
        is_png = base64.b64decode(text, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    except binascii.Error:
        is_png = False
    if not is_png:
        raise ValueError("the image is not base64 of a PNG")
    return text


Row = Annotated[tuple[float | None, ...], BeforeValidator(finite_values)]  # None for a missing value
Matrix = tuple[Row, ...]
Labels = tuple[str, ...]
Point = tuple[float, float]
Png = Annotated[str, AfterValidator(png_base64)]


@dataclass(frozen=True, config=STRICT)
class Image:
    """An image as base64 of a PNG, with a caption: a cell of a table or a part of an `ImageGrid`."""

    png: Png
    caption: str = ""

    @classmethod
    def from_array(cls, pixels: np.ndarray, caption: str = "") -> Self:
        """Returns the image of an array (height, width) or (height, width, 1 or 3) of uint8."""
        import io

        from PIL import Image as PillowImage

        file = io.BytesIO()
        PillowImage.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(file, "PNG")
        return cls(base64.b64encode(file.getvalue()).decode("ascii"), caption)


@dataclass(frozen=True, config=STRICT)
class Span:
    """Characters from `start` to before `end` of a text, such as an entity or an answer; `wrong` marks an error."""

    start: int
    end: int
    label: str = ""
    wrong: bool = False


@dataclass(frozen=True, config=STRICT)
class SpanText:
    """A text with highlighted spans, which are in order and do not overlap."""

    text: str
    spans: tuple[Span, ...] = ()

    @model_validator(mode="after")
    def check_spans(self) -> Self:
        """Raises ValueError if spans overlap or leave the text."""
        ends = [0, *(bound for span in self.spans for bound in (span.start, span.end)), len(self.text)]
        if ends != sorted(ends):
            raise ValueError(f"spans of a text of {len(self.text)} characters overlap or leave it")
        return self

    def pieces(self) -> list[tuple[str, Span | None]]:
        """Returns the text in pieces, each with its span or None."""
        pieces: list[tuple[str, Span | None]] = []
        end = 0
        for span in self.spans:
            pieces += [(self.text[end : span.start], None), (self.text[span.start : span.end], span)]
            end = span.end
        return [(text, span) for text, span in [*pieces, (self.text[end:], None)] if text]

    def __str__(self) -> str:
        """The text with its spans in brackets: "[Ada: PER] wrote"."""
        return "".join(
            text if span is None else f"[{text}{f': {span.label}' if span.label else ''}]"
            for text, span in self.pieces()
        )


Cell = Annotated[str | bool | int | float | SpanText | Image | None, BeforeValidator(finite_or_none)]


# Tables as text


def format_column(name: str, cells: Sequence[object]) -> list[str]:
    """Returns the cells of a column as texts.

    A column named like a metric, by its name or its label, has that metric's format; other numbers of a column have
    the same decimals: none if all are integers, else as many as give the largest four digits.
    """
    metric = next((key for key, known in METRICS.items() if name.lower() in (key, known.label.lower())), "")
    numbers = [abs(number) for cell in cells if (number := finite(cell)) is not None]
    largest, smallest = max(numbers, default=0.0), min((number for number in numbers if number), default=0.0)
    fractions = any(not float(number).is_integer() for number in numbers)
    decimals = max(0, 3 - max(0, math.floor(math.log10(largest)))) if fractions else 0
    uniform = largest < 1e6 and (not fractions or smallest >= 10**-decimals)

    def text(cell: object) -> str:
        if cell is None or isinstance(cell, str | bool | SpanText):
            return "" if cell is None and not numbers else format_number(cell)
        if isinstance(cell, Image):
            return cell.caption or "(image)"
        if metric:
            return format_metric(metric, cell)
        if finite(cell) is None or not uniform:
            return format_number(cell, 4)
        return f"{cell:,.{decimals}f}".replace("-", "−")

    return [text(cell) for cell in cells]


def format_rows(table: Table) -> list[str]:
    """Returns the lines of a table for a terminal: columns aligned, numbers to the right."""
    columns = []
    for n, name in enumerate(table.columns):
        cells = [line[n] for line in table.rows]
        texts = [name, *(" ".join(text.split()) for text in format_column(name, cells))]
        right = bool(cells) and all(cell is None or finite(cell) is not None for cell in cells)
        width = max(map(text_width, texts))
        columns.append([
            " " * (width - text_width(text)) + text if right else text + " " * (width - text_width(text))
            for text in texts
        ])  # fmt: skip
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def check_lengths(chart: str, **sizes: int) -> None:
    """Raises ValueError unless all sizes are equal."""
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ValueError(f"{chart} needs as many of each, and has {listed}")


# Charts


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Chart(ABC):
    """The base of charts. `note` stands below the title.

    `join` is the name under which a comparison puts the charts of several runs in one (lines and binned metrics).
    """

    title: str
    note: str = ""
    join: str = ""

    @abstractmethod
    def summary(self) -> str:
        """Returns what the chart shows, in a sentence without title and period."""

    @property
    def alt_text(self) -> str:
        """The text for readers who do not see the chart."""
        return f"{self.title}: {self.summary()}."

    def save(self, path: str | Path) -> None:
        """Writes the chart as .svg, .png, .html (offline, with tooltips) or .json."""
        from .render import save

        save(self, path)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Returns the chart for a notebook: a drawing that needs no network, and its alt text."""
        from .render import to_svg

        return {"image/svg+xml": to_svg(self), "text/plain": self.alt_text}


@dataclass(frozen=True, config=STRICT)
class Series:
    """A named line through points (x,y); a dashed one is a reference or the state before training.

    Series of one `group` share a color and an entry of the legend; by default each is its own group.
    """

    name: str
    x: Row
    y: Row
    dashed: bool = False
    thin: bool = False
    group: str = ""

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        check_lengths(f'series "{self.name}"', x=len(self.x), y=len(self.y))
        return self


@dataclass(frozen=True, config=STRICT)
class Annotation:
    """A text at a point, or at a line across the plot if only x or only y is given."""

    text: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Lines(Chart):
    """Curves over one axis. `points` are dots behind them; `markers` puts a dot at each value.

    `metric` is the name of the metric whose number format y has; curves are clipped at `low` and `high`.
    """

    kind: Literal["lines"] = "lines"
    series: tuple[Series, ...]
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    markers: bool = False
    points: tuple[Point, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    metric: str = ""
    low: float | None = None
    high: float | None = None

    def summary(self) -> str:
        parts = []
        for series in self.series:
            values = [value for value in series.y if value is not None]
            if values:
                name = f"{series.name} " if series.name else ""
                parts.append(f"{name}from {format_number(values[0])} to {format_number(values[-1])}")
        more = f" and {len(parts) - MAX_LISTED} more" if len(parts) > MAX_LISTED else ""
        return f"{self.y} over {self.x}; ".lstrip() + (", ".join(parts[:MAX_LISTED]) + more if parts else "no values")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Bars(Chart):
    """A bar per label, with error bars (plus and minus `errors`) and colors by group if they are given.

    Bars of one label and several groups stand together: labels repeat, each with another group. `metric` is the name
    of the metric whose number format the values have.
    """

    kind: Literal["bars"] = "bars"
    labels: Labels
    values: Row
    x: str  # what the values are
    groups: Labels = ()
    errors: Row = ()
    metric: str = ""

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        sizes = {name: len(part) for name, part in (("groups", self.groups), ("errors", self.errors)) if part}
        check_lengths("a bar chart", labels=len(self.labels), values=len(self.values), **sizes)
        return self

    def summary(self) -> str:
        names = [f"{a} {b}".strip() for a, b in zip(self.labels, self.groups or [""] * len(self.labels), strict=True)]
        return f"{self.x}; " + (list_values(zip(names, self.values, strict=True)) or "no values")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Histogram(Chart):
    """Counts between edges: one count fewer than edges."""

    kind: Literal["histogram"] = "histogram"
    edges: tuple[float, ...]
    counts: Row
    x: str
    y: str = "count"

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        check_lengths("a histogram", counts=len(self.counts), bins=len(self.edges) - 1)
        return self

    @classmethod
    def of(cls, values: np.ndarray, *, title: str, x: str, bins: int = 30, y: str = "count", note: str = "") -> Self:
        """Returns the histogram of an array of any shape, without values that are not finite."""
        counts, edges = np.histogram(values[np.isfinite(values)], bins)
        return cls(title=title, x=x, y=y, note=note, edges=tuple(edges.tolist()), counts=tuple(counts.tolist()))

    def summary(self) -> str:
        counts = [count or 0 for count in self.counts]
        if not any(counts):
            return f"{self.y} of {self.x}; no values"
        most = counts.index(max(counts))
        ends = f"from {format_number(self.edges[0])} to {format_number(self.edges[-1])}"
        mode = f"{format_number(self.edges[most])} to {format_number(self.edges[most + 1])}"
        return f"{format_number(sum(counts))} values of {self.x} {ends}; most are between {mode}"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BinnedMetric(Chart):
    """A metric over ranges of something, such as BLEU by length of the source: a line per series, a point per range."""

    kind: Literal["binned_metric"] = "binned_metric"
    metric: str  # its name in core.metrics
    x: str
    bins: Labels
    counts: tuple[int, ...]  # in each range
    unit: str = ""  # of the counts, such as "sentences"
    series: dict[str, Row]  # "" for the only one

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        sizes = {f"values of “{name}”": len(values) for name, values in self.series.items()}
        check_lengths("a binned metric", bins=len(self.bins), counts=len(self.counts), **sizes)
        return self

    def summary(self) -> str:
        parts = [
            f"{name}: {values}".removeprefix(": ")
            for name, points in self.series.items()
            if (values := list_values(zip(self.bins, points, strict=True)))
        ]
        return f"{self.metric.replace('_', ' ')} by {self.x}; " + ("; ".join(parts) or "no values")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HeatmapGrid(Chart):
    """Heatmaps with the same rows, columns and colors. `low` and `high` end the color scale.

    `per_row` is the number of panels beside each other; `texts` are written into the cells of each panel.
    """

    kind: Literal["heatmap_grid"] = "heatmap_grid"
    rows: Labels
    columns: Labels
    panels: dict[str, Matrix]
    x: str
    y: str
    low: float | None = None
    high: float | None = None
    diverging: bool = False  # colors on both sides of 0
    per_row: int | None = Field(default=None, ge=1)
    texts: dict[str, tuple[Labels, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def check_shapes(self) -> Self:
        """Raises ValueError unless each panel has a value, and a text if it has texts, per row and column."""
        for name, values in [*self.panels.items(), *self.texts.items()]:
            if len(values) != len(self.rows) or any(len(line) != len(self.columns) for line in values):
                what = f"“{name}”" if name else "the matrix"
                raise ValueError(f"{what} is not of shape ({len(self.rows)}, {len(self.columns)})")
        return self

    def array(self) -> np.ndarray:
        """Returns the values of all panels (panels, rows, columns), NaN if missing."""
        return np.array(list(self.panels.values()), float).reshape(-1, len(self.rows), len(self.columns))

    def summary(self) -> str:
        size = f"{len(self.rows)} × {len(self.columns)}"
        axes = " × ".join(axis for axis in (self.y, self.x) if axis)
        parts = []
        for (name, _), values in zip(self.panels.items(), self.array(), strict=True):
            if not np.isfinite(values).any():
                continue
            for word, index in (("largest", np.nanargmax(values)), ("smallest", np.nanargmin(values))):
                if word == "smallest" and not self.diverging:
                    continue
                line, column = np.unravel_index(index, values.shape)
                at = f"{self.rows[line]} – {self.columns[column]}"
                text = f" “{self.texts[name][line][column]}”" if name in self.texts else ""
                parts.append(f"{name} {word} {format_number(float(values[line, column]))}{text} at {at}".strip())
        more = f" and {len(parts) - MAX_LISTED} more" if len(parts) > MAX_LISTED else ""
        panels = f"{len(self.panels)} panels of " if len(self.panels) > 1 else ""
        values_text = "; ".join(parts[:MAX_LISTED]) + more if parts else "no values"
        return f"{panels}{size} cells{f' ({axes})' if axes else ''}; {values_text}"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Heatmap(Chart):
    """Values by rows and columns as colors; `texts` are written into the cells."""

    kind: Literal["heatmap"] = "heatmap"
    rows: Labels
    columns: Labels
    values: Matrix
    x: str = ""
    y: str = ""
    low: float | None = None
    high: float | None = None
    diverging: bool = False
    texts: tuple[Labels, ...] = ()

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        self.as_grid()
        return self

    def as_grid(self) -> HeatmapGrid:
        """Returns the same as a grid of one panel, which is how it is drawn."""
        return HeatmapGrid(
            title=self.title,
            note=self.note,
            rows=self.rows,
            columns=self.columns,
            panels={"": self.values},
            x=self.x,
            y=self.y,
            low=self.low,
            high=self.high,
            diverging=self.diverging,
            texts={"": self.texts} if self.texts else {},
        )

    def summary(self) -> str:
        return self.as_grid().summary()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Scatter(Chart):
    """Points with a label, a group and a tooltip each, as far as given; groups have colors.

    `diagonal` draws the line where x equals y and gives both axes one scale. `projection` gives both axes one unit and
    no ticks. `frontier` draws the best y for at most so much x: the lowest or the highest. `metric` is the name of the
    metric whose number format y has.
    """

    kind: Literal["scatter"] = "scatter"
    points: tuple[Point, ...]
    x: str
    y: str
    labels: Labels = ()
    groups: Labels = ()
    hints: Labels = ()
    log_x: bool = False
    diagonal: bool = False
    projection: bool = False
    frontier: Literal["", "lowest", "highest"] = ""
    metric: str = ""
    annotations: tuple[Annotation, ...] = ()

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        sizes = {name: len(getattr(self, name)) for name in ("labels", "groups", "hints") if getattr(self, name)}
        check_lengths("a scatter plot", points=len(self.points), **sizes)
        return self

    @classmethod
    def of_vectors(
        cls, vectors: np.ndarray, labels: Sequence[str], *, title: str, groups: Sequence[str] = (), note: str = ""
    ) -> Self:
        """Returns the projection of vectors (n,D) on their first two principal components."""
        points, shares = principal_components(vectors)
        x, y = (f"component {n + 1}: {100 * share:.0f} % of the variance" for n, share in enumerate(shares))
        coordinates = tuple((float(f"{a:.5g}"), float(f"{b:.5g}")) for a, b in points.tolist())
        return cls(
            title=title, note=note, points=coordinates, x=x, y=y,
            labels=tuple(labels), groups=tuple(groups), projection=True,
        )  # fmt: skip

    def summary(self) -> str:
        groups = list(dict.fromkeys(group for group in self.groups if group))
        inside = f" in {len(groups)} groups ({', '.join(groups[:MAX_LISTED])})" if groups else ""
        text = f"{format_number(len(self.points))} points{inside}, {f'{self.y} over {self.x}'.lstrip()}"
        if self.diagonal and self.points:
            error = math.fsum(abs(y - x) for x, y in self.points) / len(self.points)
            return f"{text}; mean distance from the diagonal {format_number(error)}"
        if not self.labels or len(self.points) < 2:
            return text
        if not self.projection:
            pairs = zip(self.labels[:MAX_LISTED], self.points, strict=False)
            return f"{text}; " + ", ".join(f"{name} {format_number(y)} at {format_number(x)}" for name, (x, y) in pairs)
        points, nearest = np.array(self.points), []
        for index in range(min(MAX_LISTED, len(points))):
            distances = ((points - points[index]) ** 2).sum(axis=1)
            distances[index] = np.inf
            nearest.append(f"{self.labels[index]} – {self.labels[int(distances.argmin())]}")
        return f"{text}; nearest neighbors {', '.join(nearest)}"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TokenStrip(Chart):
    """A text whose tokens are colored by a value each; `hints` are the tooltips of the tokens."""

    kind: Literal["token_strip"] = "token_strip"
    tokens: Labels
    values: Row
    label: str  # what the values are
    low: float | None = None
    high: float | None = None
    diverging: bool = False
    hints: Labels = ()

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        hints = {"hints": len(self.hints)} if self.hints else {}
        check_lengths("a token strip", tokens=len(self.tokens), values=len(self.values), **hints)
        return self

    def summary(self) -> str:
        pairs = [(token, value) for token, value in zip(self.tokens, self.values, strict=True) if value is not None]
        pairs.sort(key=lambda pair: -abs(pair[1]) if self.diverging else -pair[1])
        listed = list_values([(f"“{token}”", value) for token, value in pairs[:8]])
        return f"{self.label} of {len(self.tokens)} tokens; " + (f"largest {listed}" if listed else "no values")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Confusion(Chart):
    """Counts of references (rows) by predictions (columns), in the order of `labels`."""

    kind: Literal["confusion"] = "confusion"
    labels: Labels
    counts: tuple[tuple[int, ...], ...]

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        check_lengths("a confusion matrix", labels=len(self.labels), rows=len(self.counts), **{
            f"columns of row {n}": len(line) for n, line in enumerate(self.counts)
        })  # fmt: skip
        return self

    def summary(self) -> str:
        counts = np.array(self.counts, int).reshape(len(self.labels), len(self.labels))
        correct, total = format_number(int(np.trace(counts))), format_number(int(counts.sum()))
        wrong = np.where(np.eye(len(counts), dtype=bool), 0, counts)
        pairs = [divmod(int(index), len(counts)) for index in np.argsort(-wrong, axis=None, kind="stable")[:3]]
        errors = [
            f"{self.labels[a]} as {self.labels[b]} {format_number(int(wrong[a, b]))}×" for a, b in pairs if wrong[a, b]
        ]
        text = f"{correct} of {total} predictions are correct"
        return f"{text}; most often confused: {', '.join(errors)}" if errors else text


@dataclass(frozen=True, config=STRICT)
class Band:
    """An interval around a forecast, such as that between two quantiles."""

    label: str
    lower: Row
    upper: Row


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ForecastPlot(Chart):
    """A forecast after its history, with intervals, what came and a simple forecast if they are known.

    Times are ISO 8601, numbers, or any text (then in the order given); widest band first.
    """

    kind: Literal["forecast_plot"] = "forecast_plot"
    history_times: tuple[str | int | float, ...]
    history: Row
    times: tuple[str | int | float, ...]
    forecast: Row
    actual: Row = ()
    bands: tuple[Band, ...] = ()
    baseline: Row = ()
    baseline_name: str = "naive forecast"
    y: str = "value"

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        check_lengths("the history of a forecast", times=len(self.history_times), values=len(self.history))
        rows = {"values": self.forecast, "actual values": self.actual, "baseline values": self.baseline}
        rows |= {f"{name} of “{band.label}”": getattr(band, name) for band in self.bands for name in ("lower", "upper")}
        sizes = {name: len(values) for name, values in rows.items() if values}
        check_lengths("a forecast", times=len(self.times), **sizes)
        return self

    def summary(self) -> str:
        def error(forecast: Row) -> float | None:
            pairs = zip(forecast, self.actual, strict=True) if forecast and self.actual else ()
            gaps = [abs(a - b) for a, b in pairs if a is not None and b is not None]
            return math.fsum(gaps) / len(gaps) if gaps else None

        parts = [f"{len(self.forecast)} steps"]
        if (mean := error(self.forecast)) is not None:
            parts.append(f"mean absolute error {format_number(mean)}")
        if (mean := error(self.baseline)) is not None:
            parts.append(f"that of the {self.baseline_name} {format_number(mean)}")
        for band in self.bands:
            if self.actual:
                triples = list(zip(band.lower, self.actual, band.upper, strict=True))
                inside = sum(None not in line and line[0] <= line[1] <= line[2] for line in triples)  # type: ignore[operator]
                parts.append(f"{inside} of {len(triples)} values within {band.label}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PianoRoll(Chart):
    """Notes as (first frame, frame after the last, MIDI pitch)."""

    kind: Literal["piano_roll"] = "piano_roll"
    notes: tuple[tuple[float, float, int], ...]
    frames: int

    def summary(self) -> str:
        if not self.notes:
            return f"no notes in {format_number(self.frames)} frames"
        names = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")
        pitches = [note[2] for note in self.notes]
        low, high = (f"{names[pitch % 12]}{pitch // 12 - 1}" for pitch in (min(pitches), max(pitches)))
        return f"{format_number(len(self.notes))} notes in {format_number(self.frames)} frames, from {low} to {high}"


@dataclass(frozen=True, config=STRICT)
class Box:
    """A box (left, top, right, bottom) in pixels of the image, of the noun that begins at a word of the caption."""

    word: int
    noun: str
    edges: tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageOverlay(Chart):
    """An image and its captions; with `weights`, for each word where the model attended to.

    `weights` has for each word a value for every cell of a `grid` of rows and columns; `captions` are texts with their
    log-probabilities, the best first (by default the words).
    """

    kind: Literal["image_overlay"] = "image_overlay"
    image: Png
    words: Labels = ()
    grid: tuple[int, int] | None = None
    weights: Matrix = ()
    captions: tuple[tuple[str, float | None], ...] = ()
    boxes: tuple[Box, ...] = ()

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        if self.weights:
            rows, columns = self.grid or (0, 0)
            right = len(self.weights) == len(self.words) and rows * columns > 0
            if not right or any(len(line) != rows * columns for line in self.weights):
                raise ValueError("an image overlay needs a weight for every word and every cell of its grid")
        return self

    @property
    def caption(self) -> str:
        """The best caption."""
        return self.captions[0][0] if self.captions else " ".join(self.words)

    def maps(self) -> np.ndarray:
        """Returns the weights (words, rows, columns), 0 where they are missing or negative."""
        values = np.nan_to_num(np.array(self.weights, float)).clip(min=0)
        return values.reshape(len(self.weights), *(self.grid or (0, 0)))

    def summary(self) -> str:
        text = f"an image with the caption “{self.caption}”"
        if not self.weights:
            return text
        parts = [
            f"{word} – {region(weights)} ({100 * weights.max():.0f} %)"
            for word, weights in zip(self.words[:40], self.maps(), strict=False)
        ]
        return f"{text}; where each word attends most: {'; '.join(parts)}"


def region(weights: np.ndarray) -> str:
    """Returns in words where the largest of weights (rows, columns) is, such as "upper left"."""
    rows, columns = np.nonzero(weights == weights.max())
    if len(rows) > 1:
        return "several places alike"
    vertical = ("upper", "", "lower")[int(3 * (rows[0] + 0.5) / weights.shape[0])]
    return f"{vertical} {('left', 'middle', 'right')[int(3 * (columns[0] + 0.5) / weights.shape[1])]}".strip()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImageGrid(Chart):
    """Images with captions, side by side."""

    kind: Literal["image_grid"] = "image_grid"
    images: tuple[Image, ...]

    def summary(self) -> str:
        captions = [image.caption for image in self.images if image.caption]
        return f"{len(self.images)} images" + (f": {', '.join(captions[:MAX_LISTED])}" if captions else "")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Table(Chart):
    """Rows of texts, numbers, texts with highlighted spans, and images. A column named like a metric has its format."""

    kind: Literal["table"] = "table"
    columns: Labels
    rows: tuple[tuple[Cell, ...], ...]

    @model_validator(mode="after")
    def check_shape(self) -> Self:
        if any(len(cells) != len(self.columns) for cells in self.rows):
            raise ValueError(f"a table of {len(self.columns)} columns needs as many cells in each row")
        return self

    def summary(self) -> str:
        return f"{len(self.rows)} rows of {', '.join(self.columns)}"


View = Annotated[
    Lines
    | Bars
    | Histogram
    | BinnedMetric
    | Heatmap
    | HeatmapGrid
    | Scatter
    | TokenStrip
    | Confusion
    | ForecastPlot
    | PianoRoll
    | ImageOverlay
    | ImageGrid
    | Table,
    Field(discriminator="kind"),
]
VIEWS: TypeAdapter[list[View]] = TypeAdapter(list[View])


def views_to_json(views: Sequence[Chart]) -> list[dict[str, Any]]:
    """Returns charts and tables as JSON values; fields with their default are left out."""
    values = VIEWS.dump_python(cast(list[View], list(views)), mode="json", exclude_defaults=True)
    return [{"kind": cast(View, view).kind, **value} for view, value in zip(views, values, strict=True)]


def views_from_json(values: Sequence[Mapping[str, Any]]) -> list[View]:
    """Returns charts and tables from JSON values; raises ValidationError if a field is missing or wrong."""
    return VIEWS.validate_python(list(values))


def embedding_charts(texts: Sequence[str], vectors: np.ndarray, title: str = "Similarity of the texts") -> list[View]:
    """Returns charts of the vectors (n,D) of texts: cosines of all pairs if they are few, and a projection."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    charts: list[View] = []
    names = [f"{number} {text}" for number, text in enumerate(texts, 1)]
    if 1 < len(texts) <= 30:
        cosines = unit @ unit.T
        charts.append(
            Heatmap(
                title=title,
                note="cosine similarity",
                rows=tuple(names),
                columns=tuple(str(number) for number in range(1, len(texts) + 1)),
                values=matrix(cosines),
                low=-1,
                high=1,
                diverging=True,
                texts=tuple(tuple(f"{value:.2f}".replace("-", "−") for value in line) for line in cosines)
                if len(texts) <= 12
                else (),
            )
        )
    if len(texts) > 2:
        charts.append(Scatter.of_vectors(unit, names if charts else list(texts), title=f"{title}: projection"))
    return charts
