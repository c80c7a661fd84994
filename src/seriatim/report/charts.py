"""Charts as values: what a task, an inspection or a report shows, without how it is drawn.

A chart is a frozen dataclass that is checked once, when it is made, and stored in JSON as it is: `evaluation.json` and
`inspection.json` are lists of them. This module imports no drawing library; `render.py` draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, cast

import numpy as np
from pydantic import Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from ..core.text import format_number, listed, text_width
from .formatting import MAX_LISTED, list_values, principal_components
from .formatting import fold as fold
from .formatting import matrix as matrix
from .formatting import row as row
from .values import STRICT, AnySequence, Image, Labels, Matrix, Png, Point, Row, format_column, is_numeric
from .values import Cell as Cell
from .values import Span as Span
from .values import SpanText as SpanText


def nonzero(sizes: Mapping[str, int]) -> dict[str, int]:
    """Returns the sizes of the parts that are not left out."""
    return {name: size for name, size in sizes.items() if size}


def check_sizes(name: str, sizes: Mapping[str, int]) -> None:
    """Raises ValueError unless all sizes are equal."""
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{size} {part}" for part, size in sizes.items())
        raise ValueError(f"“{name}” needs as many of each, and has {listed}")


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

    def sizes(self) -> dict[str, int]:
        """Returns the sizes of parts that must have the same, by name; of optional parts only if given."""
        return {}

    @model_validator(mode="after")
    def check(self) -> Self:
        """Raises ValueError if parts do not fit together."""
        check_sizes(self.title, self.sizes())
        return self

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
    def check(self) -> Self:
        check_sizes(self.name, {"x": len(self.x), "y": len(self.y)})
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
    series: AnySequence[Series]
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    markers: bool = False
    points: AnySequence[Point] = ()
    annotations: AnySequence[Annotation] = ()
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
        return f"{self.y} over {self.x}; ".lstrip() + (listed(parts, MAX_LISTED) or "no values")


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

    def sizes(self) -> dict[str, int]:
        given = {"groups": len(self.groups), "errors": len(self.errors)}
        return {"labels": len(self.labels), "values": len(self.values), **nonzero(given)}

    def summary(self) -> str:
        names = [f"{a} {b}".strip() for a, b in zip(self.labels, self.groups or [""] * len(self.labels), strict=True)]
        return f"{self.x}; " + (list_values(zip(names, self.values, strict=True)) or "no values")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Histogram(Chart):
    """Counts between edges: one count fewer than edges."""

    kind: Literal["histogram"] = "histogram"
    edges: AnySequence[float]
    counts: Row
    x: str
    y: str = "count"

    def sizes(self) -> dict[str, int]:
        return {"counts": len(self.counts), "bins": len(self.edges) - 1}

    @classmethod
    def of(cls, values: np.ndarray, *, title: str, x: str, bins: int = 30, y: str = "count", note: str = "") -> Self:
        """Returns the histogram of an array of any shape, without values that are not finite."""
        counts, edges = np.histogram(values[np.isfinite(values)], bins)
        return cls(title=title, x=x, y=y, note=note, edges=edges.tolist(), counts=counts.tolist())

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
    counts: AnySequence[int]  # in each range
    unit: str = ""  # of the counts, such as "sentences"
    series: Mapping[str, Row]  # "" for the only one

    def sizes(self) -> dict[str, int]:
        series = {f"values of “{name}”": len(values) for name, values in self.series.items()}
        return {"bins": len(self.bins), "counts": len(self.counts), **series}

    def summary(self) -> str:
        parts = [
            f"{name}: {values}".removeprefix(": ")
            for name, points in self.series.items()
            if (values := list_values(zip(self.bins, points, strict=True)))
        ]
        return f"{self.metric.replace('_', ' ')} by {self.x}; " + ("; ".join(parts) or "no values")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CellChart(Chart):
    """The base of heatmaps: panels with the same rows, columns and colors. `low` and `high` end the color scale."""

    rows: Labels
    columns: Labels
    x: str = ""
    y: str = ""
    low: float | None = None
    high: float | None = None
    diverging: bool = False  # colors on both sides of 0

    @abstractmethod
    def matrices(self) -> Mapping[str, Matrix]:
        """Returns the values of each panel by its name."""

    @abstractmethod
    def cell_texts(self) -> Mapping[str, AnySequence[Labels]]:
        """Returns what is written into the cells, by the name of the panel; empty if there is nothing."""

    @model_validator(mode="after")
    def check(self) -> Self:
        """Raises ValueError unless each panel has a value, and a text if it has texts, per row and column."""
        for name, values in [*self.matrices().items(), *self.cell_texts().items()]:
            if len(values) != len(self.rows) or any(len(line) != len(self.columns) for line in values):
                what = f"“{name}”" if name else "the matrix"
                raise ValueError(f"{what} is not of shape ({len(self.rows)}, {len(self.columns)})")
        return self

    def array(self) -> np.ndarray:
        """Returns the values of all panels (panels, rows, columns), NaN if missing."""
        return np.array(list(self.matrices().values()), float).reshape(-1, len(self.rows), len(self.columns))

    def summary(self) -> str:
        size = f"{len(self.rows)} × {len(self.columns)}"
        axes = " × ".join(axis for axis in (self.y, self.x) if axis)
        panels, texts, parts = self.matrices(), self.cell_texts(), []
        for name, values in zip(panels, self.array(), strict=True):
            if not np.isfinite(values).any():
                continue
            extremes = {"largest": np.nanargmax(values)} | (
                {"smallest": np.nanargmin(values)} if self.diverging else {}
            )
            for word, index in extremes.items():
                line, column = divmod(int(index), len(self.columns))
                at = f"{self.rows[line]} – {self.columns[column]}"
                text = f" “{texts[name][line][column]}”" if name in texts else ""
                parts.append(f"{name} {word} {format_number(float(values[line, column]))}{text} at {at}".strip())
        count = f"{len(panels)} panels of " if len(panels) > 1 else ""
        values_text = listed(parts, MAX_LISTED, "; ") or "no values"
        return f"{count}{size} cells{f' ({axes})' if axes else ''}; {values_text}"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Heatmap(CellChart):
    """Values by rows and columns as colors; `texts` are written into the cells."""

    kind: Literal["heatmap"] = "heatmap"
    values: Matrix
    texts: AnySequence[Labels] = ()

    def matrices(self) -> Mapping[str, Matrix]:
        return {"": self.values}

    def cell_texts(self) -> Mapping[str, AnySequence[Labels]]:
        return {"": self.texts} if self.texts else {}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HeatmapGrid(CellChart):
    """Several heatmaps, `per_row` beside each other; `texts` are written into the cells of each panel."""

    kind: Literal["heatmap_grid"] = "heatmap_grid"
    panels: Mapping[str, Matrix]
    per_row: int | None = Field(default=None, ge=1)
    texts: Mapping[str, AnySequence[Labels]] = Field(default_factory=dict)

    def matrices(self) -> Mapping[str, Matrix]:
        return self.panels

    def cell_texts(self) -> Mapping[str, AnySequence[Labels]]:
        return self.texts


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Scatter(Chart):
    """Points with a label, a group and a tooltip each, as far as given; groups have colors.

    `diagonal` draws the line where x equals y and gives both axes one scale. `projection` gives both axes one unit and
    no ticks. `frontier` draws the best y for at most so much x: the lowest or the highest. `metric` is the name of the
    metric whose number format y has.
    """

    kind: Literal["scatter"] = "scatter"
    points: AnySequence[Point]
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
    annotations: AnySequence[Annotation] = ()

    def sizes(self) -> dict[str, int]:
        given = {"labels": len(self.labels), "groups": len(self.groups), "hints": len(self.hints)}
        return {"points": len(self.points), **nonzero(given)}

    @classmethod
    def of_vectors(
        cls, vectors: np.ndarray, labels: Sequence[str], *, title: str, groups: Sequence[str] = (), note: str = ""
    ) -> Self:
        """Returns the projection of vectors (n,D) on their first two principal components."""
        points, shares = principal_components(vectors)
        return cls.of_projection(points, shares, labels, title=title, groups=groups, note=note)

    @classmethod
    def of_projection(
        cls,
        points: np.ndarray,
        shares: Sequence[float],
        labels: Sequence[str],
        *,
        title: str,
        groups: Sequence[str] = (),
        note: str = "",
    ) -> Self:
        """Returns points (n,2) on two principal components that have these shares of the variance."""
        x, y = (f"component {n + 1}: {100 * share:.0f} % of the variance" for n, share in enumerate(shares))
        coordinates = tuple((float(f"{a:.5g}"), float(f"{b:.5g}")) for a, b in points.tolist())
        return cls(
            title=title, note=note, points=coordinates, x=x, y=y,
            labels=labels, groups=groups, projection=True,
        )  # fmt: skip

    def summary(self) -> str:
        groups = list(dict.fromkeys(group for group in self.groups if group))
        inside = f" in {len(groups)} groups ({listed(groups, MAX_LISTED)})" if groups else ""
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

    def sizes(self) -> dict[str, int]:
        return {"tokens": len(self.tokens), "values": len(self.values), **nonzero({"hints": len(self.hints)})}

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
    counts: AnySequence[AnySequence[int]]

    def sizes(self) -> dict[str, int]:
        columns = {f"columns of row {n}": len(line) for n, line in enumerate(self.counts)}
        return {"labels": len(self.labels), "rows": len(self.counts), **columns}

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
    history_times: AnySequence[str | int | float]
    history: Row
    times: AnySequence[str | int | float]
    forecast: Row
    actual: Row = ()
    bands: AnySequence[Band] = ()
    baseline: Row = ()
    baseline_name: str = "naive forecast"
    y: str = "value"

    def sizes(self) -> dict[str, int]:
        check_sizes(self.title, {"times of the history": len(self.history_times), "values": len(self.history)})
        rows = {"values": self.forecast, "actual values": self.actual, "baseline values": self.baseline}
        for band in self.bands:
            rows |= {f"lower of “{band.label}”": band.lower, f"upper of “{band.label}”": band.upper}
        return {"times": len(self.times), **nonzero({name: len(values) for name, values in rows.items()})}

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
    notes: AnySequence[tuple[float, float, int]]
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
    captions: AnySequence[tuple[str, float | None]] = ()
    boxes: AnySequence[Box] = ()

    @model_validator(mode="after")
    def check(self) -> Self:
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
    images: AnySequence[Image]

    def summary(self) -> str:
        captions = [image.caption for image in self.images if image.caption]
        return f"{len(self.images)} images" + (f": {listed(captions, MAX_LISTED)}" if captions else "")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Table(Chart):
    """Rows of texts, numbers, texts with highlighted spans, and images. A column named like a metric has its format."""

    kind: Literal["table"] = "table"
    columns: Labels
    rows: AnySequence[AnySequence[Cell]]

    @model_validator(mode="after")
    def check(self) -> Self:
        if any(len(cells) != len(self.columns) for cells in self.rows):
            raise ValueError(f"a table of {len(self.columns)} columns needs as many cells in each row")
        return self

    def summary(self) -> str:
        return f"{len(self.rows)} rows of {', '.join(self.columns)}"

    def lines(self) -> list[str]:
        """Returns the lines of the table for a terminal: columns aligned, numbers to the right."""
        columns = []
        for n, name in enumerate(self.columns):
            cells = [line[n] for line in self.rows]
            texts = [name, *(" ".join(text.split()) for text in format_column(name, cells))]
            room = max(map(text_width, texts))
            blanks = [" " * (room - text_width(text)) for text in texts]
            pairs = zip(texts, blanks, strict=True)
            columns.append([blank + text if is_numeric(cells) else text + blank for text, blank in pairs])
        return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


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


def views_to_json(views: Sequence[Chart]) -> list[dict[str, object]]:
    """Returns charts and tables as JSON values; fields with their default are left out."""
    values = VIEWS.dump_python(cast(list[View], list(views)), mode="json", exclude_defaults=True)
    return [{"kind": cast(View, view).kind, **value} for view, value in zip(views, values, strict=True)]


def views_from_json(values: Sequence[Mapping[str, object]]) -> list[View]:
    """Returns charts and tables from JSON values; raises ValidationError if a field is missing or wrong."""
    return VIEWS.validate_python(list(values))


def embedding_charts(texts: Sequence[str], vectors: np.ndarray, title: str = "Similarity of the texts") -> list[View]:
    """Returns charts of the vectors (n,D) of texts: cosines of all pairs if they are few, and a projection."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    charts: list[View] = []
    names = [f"{number} {text}" for number, text in enumerate(texts, 1)]
    if 1 < len(texts) <= 30:
        cosines = unit @ unit.T
        written = [tuple(f"{value:.2f}".replace("-", "−") for value in line) for line in cosines]
        numbers = tuple(str(number) for number in range(1, len(texts) + 1))
        heatmap = Heatmap(title=title, note="cosine similarity", rows=names, columns=numbers,
                          values=matrix(cosines), low=-1, high=1, diverging=True,
                          texts=written if len(texts) <= 12 else ())  # fmt: skip
        charts.append(heatmap)
    if len(texts) > 2:
        charts.append(Scatter.of_vectors(unit, names if charts else list(texts), title=f"{title}: projection"))
    return charts
