"""Colors and type of charts, for light and for dark screens."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..core import registry

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
    palette: tuple[str, ...]  # of everything but models, which declare their colors


LIGHT = Theme(
    "light", "#ffffff", "#1f2328", "#656d76", "#e3e6ea", "#0b66b5", "#c75700", "#f1f5fa",
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7a00", "#6a51a3", "#8c510a", "#3b7d2f", "#a50f4e", "#2b6f77"),
)  # fmt: skip
DARK = Theme(
    "dark", "#14171b", "#e6e8eb", "#9aa3ad", "#31363d", "#5eaef2", "#f28a3c", "#1b2430",
    ("#3d9be0", "#f07c2b", "#22b98d", "#de93bc", "#f0e442", "#a894dd", "#c98d4b", "#7cc46c", "#ec6a9c", "#6fc1ca"),
)  # fmt: skip
THEMES = (LIGHT, DARK)


def series_colors(names: Sequence[str], theme: Theme, references: Collection[str] = ()) -> dict[str, str]:
    """Returns the color of each name: that of a model whose name comes first in it, else the next of the palette.

    A single name has the accent; a reference has the color of its model, or else is muted, and the next ones, or one
    beside a gray model, have colors that are left.
    """
    if len(names) < 2:
        return dict.fromkeys(names, theme.accent)
    declared = model_colors(names, theme)
    colors: dict[str, str] = {}
    for name, color in declared.items():  # the first of a model has its color
        if color is not None and color not in colors.values():
            colors[name] = color
    free = [color for color in theme.palette if color not in colors.values()] or list(theme.palette)
    plain = [name for name in names if name in references and declared[name] is None]
    if not any(map(is_gray, colors.values())):
        colors |= dict.fromkeys(plain[:1], theme.muted)
    others = [name for name in names if name not in colors and (name not in references or name in plain)]
    others.sort(key=lambda name: name in references)  # stable
    colors |= {name: free[index % len(free)] for index, name in enumerate(others)}
    return {name: colors.get(name) or declared[name] or theme.muted for name in names}


def model_colors(names: Sequence[str], theme: Theme) -> dict[str, str | None]:
    """Returns the color that the model declares whose name comes first in each name; None without one."""
    models = {name: next(iter(re.findall(r"[a-z0-9_]+", name.lower())), "") for name in names}
    infos = registry.models.infos(models.values())
    pairs = {name: infos[model].color if model in infos else None for name, model in models.items()}
    return {name: None if pair is None else pair[THEMES.index(theme)] for name, pair in pairs.items()}


def is_gray(color: str) -> bool:
    """Returns whether a color "#rrggbb" is nearly without saturation, like that of muted lines."""
    channels = [int(color[first : first + 2], 16) for first in (1, 3, 5)]
    return max(channels) - min(channels) < 32


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
