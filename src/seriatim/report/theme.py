"""Colors and type of charts, for light and for dark screens."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import altair as alt

    AnyChart = TypeVar("AnyChart", alt.LayerChart, alt.VConcatChart, alt.Chart, alt.FacetChart)

FONT = "Liberation Sans, Helvetica, Arial, sans-serif"
MONOSPACE = "Liberation Mono, Menlo, Consolas, DejaVu Sans Mono, Noto Sans Mono CJK SC, monospace"


@dataclass(frozen=True)
class Theme:
    """Colors. Those of series are the palette of Okabe and Ito, which people with color blindness can tell apart."""

    name: str
    background: str
    text: str
    muted: str
    grid: str
    accent: str  # what a chart is about, and the highest value of a scale
    contrast: str  # what it is compared with, and the lowest value of a diverging scale
    pale: str  # the lowest value of a scale, and zero of a diverging one
    model_colors: dict[str, str]  # of architectures: the same in every chart
    palette: tuple[str, ...]  # of everything else


LIGHT = Theme(
    "light", "#ffffff", "#1f2328", "#656d76", "#e3e6ea", "#0b66b5", "#c75700", "#f1f5fa",
    {
        "ngram": "#50565e", "mlp": "#e69f00", "rnn": "#56b4e9", "lstm": "#0072b2", "gru": "#009e73", "tcn": "#cc79a7",
        "gpt": "#d55e00", "seq2seq": "#56b4e9", "bahdanau": "#009e73", "transformer": "#d55e00",
        "t5": "#cc79a7",
    },
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7a00", "#6a51a3", "#8c510a", "#3b7d2f", "#a50f4e", "#2b6f77"),
)  # fmt: skip
DARK = Theme(
    "dark", "#14171b", "#e6e8eb", "#9aa3ad", "#31363d", "#5eaef2", "#f28a3c", "#1b2430",
    {
        "ngram": "#c3c9d1", "mlp": "#f0b437", "rnn": "#9ad6f7", "lstm": "#3d9be0", "gru": "#22b98d", "tcn": "#de93bc",
        "gpt": "#f07c2b", "seq2seq": "#9ad6f7", "bahdanau": "#22b98d", "transformer": "#f07c2b",
        "t5": "#de93bc",
    },
    ("#3d9be0", "#f07c2b", "#22b98d", "#de93bc", "#f0e442", "#a894dd", "#c98d4b", "#7cc46c", "#ec6a9c", "#6fc1ca"),
)  # fmt: skip
THEMES = (LIGHT, DARK)


def series_colors(names: Sequence[str], theme: Theme, references: Collection[str] = ()) -> dict[str, str]:
    """Returns the color of each name: that of a model whose name comes first in it, else the next of the palette.

    A single name has the accent; a reference has the color of its model, or else is muted, and the next ones, or one
    beside the gray of an n-gram, have colors that are left.
    """
    if len(names) < 2:
        return dict.fromkeys(names, theme.accent)
    models = {name: next(iter(re.findall(r"[a-z0-9_]+", name.lower())), "") for name in names}
    colors: dict[str, str] = {}
    for name in names:  # the first of a model has its color
        color = theme.model_colors.get(models[name])
        if color is not None and color not in colors.values():
            colors[name] = color
    free = [color for color in theme.palette if color not in colors.values()] or list(theme.palette)
    plain = [name for name in names if name in references and models[name] not in theme.model_colors]
    if theme.model_colors["ngram"] not in colors.values():
        colors |= dict.fromkeys(plain[:1], theme.muted)
    others = [name for name in names if name not in colors and (name not in references or name in plain)]
    others.sort(key=lambda name: name in references)  # stable
    colors |= {name: free[index % len(free)] for index, name in enumerate(others)}
    return {name: colors.get(name) or theme.model_colors[models[name]] for name in names}


def configure(chart: AnyChart, theme: Theme) -> AnyChart:
    """Returns a chart in the type and colors of a theme."""
    config = {
        "font": FONT,
        "aria": False,
        "view": {"stroke": None},
        "axis": {
            "labelColor": theme.muted,
            "titleColor": theme.muted,
            "titleFontWeight": "normal",
            "titleFontSize": 12,
            "titlePadding": 8,
            "labelFontSize": 11.5,
            "labelPadding": 5,
            "gridColor": theme.grid,
            "domainColor": theme.grid,
            "tickColor": theme.grid,
        },
        "axisY": {"domain": False, "ticks": False},
        "title": {
            "anchor": "start",
            "frame": "group",
            "color": theme.text,
            "fontSize": 13,
            "fontWeight": 600,
            "subtitleColor": theme.muted,
            "subtitleFontSize": 11.5,
            "subtitlePadding": 4,
            "offset": 12,
        },
        "legend": {
            "orient": "bottom",
            "title": None,
            "labelColor": theme.text,
            "labelFontSize": 12,
            "labelLimit": 240,
            "titleColor": theme.muted,
            "titleFontWeight": "normal",
            "titleFontSize": 11.5,
            "symbolStrokeWidth": 2.5,
            "columnPadding": 18,
            "offset": 8,
        },
        "header": {"labelColor": theme.text, "labelFontSize": 11.5, "labelAnchor": "start", "title": None},
        "text": {"fontSize": 11.5, "color": theme.text},
    }
    return chart.properties(background=theme.background, padding=8, config=config)  # one copy, not one for each part
