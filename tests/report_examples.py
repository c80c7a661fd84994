"""A chart of each kind, for the tests of charts, drawings and pages."""

from __future__ import annotations

import numpy as np

from seriatim.report.charts import (
    Annotation,
    Band,
    Bars,
    BinnedMetric,
    Box,
    Confusion,
    ForecastPlot,
    Heatmap,
    HeatmapGrid,
    Histogram,
    Image,
    ImageGrid,
    ImageOverlay,
    Lines,
    PianoRoll,
    Scatter,
    Series,
    Span,
    SpanText,
    Table,
    TokenStrip,
    View,
)

PNG = Image.from_array(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).png
WEIGHTS = ((0.7, 0.1, 0.05, 0.05, 0.05, 0.05), (0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (1 / 6,) * 6)
CHARTS: dict[str, View] = {
    "lines": Lines(
        title="How far back",
        x="distance",
        y="norm",
        log_y=True,
        series=(Series("rnn", (0, 1, 2), (1.0, 0.01, 0.0)), Series("rnn, before", (0, 1), (None, 2.0), dashed=True)),
        annotations=(Annotation("clipped", y=0.5),),
        points=((0.5, 0.5),),
    ),
    "bars": Bars(
        title="Error by length",
        x="MAE",
        metric="mae",
        labels=("short", "long"),
        values=(0.25, 0.75),
        errors=(0.1, None),
    ),
    "histogram": Histogram(title="Sizes", x="value", edges=(0, 1, 2), counts=(3, 1)),
    "binned_metric": BinnedMetric(
        title="BLEU by length",
        metric="bleu",
        x="words",
        unit="sentences",
        bins=("1–4", "5–9"),
        counts=(12, 1_340),
        series={"one": (31.25, 20.0), "two": (None, 18.0)},
    ),
    "heatmap": Heatmap(
        title="Attention",
        x="source",
        y="target",
        rows=("le", "le"),
        columns=("the", "<eos>"),
        values=((0.75, 0.25), (None, 1.0)),
    ),
    "heatmap_grid": HeatmapGrid(
        title="All heads",
        x="to",
        y="from",
        rows=("a", "b"),
        columns=("c", "d"),
        panels={"head 0": ((1.0, 0.0), (0.25, 0.75)), "head 1": ((0.5, -0.5), (0.0, 0.1))},
        diverging=True,
    ),
    "scatter": Scatter(
        title="True and predicted", x="true", y="predicted", points=((0.0, 0.1), (1.0, 0.8), (2.0, 2.2)), diagonal=True
    ),
    "token_strip": TokenStrip(
        title="Surprise", label="bits", tokens=("a", " b\n", "c"), values=(None, 8.0, 2.0), hints=("1", "2", "3")
    ),
    "confusion": Confusion(
        title="Errors", labels=("neg", "pos", "neutral"), counts=((40, 9, 0), (3, 57, 0), (0, 1, 5))
    ),
    "forecast_plot": ForecastPlot(
        title="Passengers",
        history_times=("2024-01-01", "2024-01-02", "2024-01-03"),
        history=(100.0, None, 120.0),
        times=("2024-01-04", "2024-01-05"),
        forecast=(128.0, 129.0),
        actual=(130.0, 125.0),
        bands=(Band("10 % to 90 %", (120.0, 126.0), (136.0, 140.0)),),
        baseline=(120.0, 120.0),
    ),
    "piano_roll": PianoRoll(title="A piece", frames=8, notes=((0, 4, 60), (2, 8, 67))),
    "image_overlay": ImageOverlay(
        title="dog & cat.png",
        image=PNG,
        words=("a", "<dog>", "runs"),
        grid=(2, 3),
        weights=WEIGHTS,
        captions=(("a <dog> runs", -1.25), ("a cat", None)),
        boxes=(Box(1, "dog", (20, 0, 60, 40)),),
    ),
    "image_grid": ImageGrid(title="Digits", images=(Image(PNG, "seven"), Image(PNG))),
    "table": Table(
        title="Label by label",
        columns=("label", "precision", "number", "seconds"),
        rows=(
            ("pos", 0.815, 66, 12.5),
            (SpanText("Ada wrote", (Span(0, 3, "PER"),)), None, 1_204, 183.25),
            (Image(PNG), 0.5, 1, 0.5),
        ),
    ),
}
