"""Rendering: a chart as an Altair chart in the colors of a theme, and as .svg, .png, .html or .json files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from ..core.errors import SeriatimError
from ..core.files import atomic_file, write_text
from ..core.text import one_line
from . import cells, plots
from .charts import (
    Bars,
    BinnedMetric,
    Chart,
    Confusion,
    ForecastPlot,
    Heatmap,
    HeatmapGrid,
    Histogram,
    ImageGrid,
    ImageOverlay,
    Lines,
    PianoRoll,
    Scatter,
    Table,
    TokenStrip,
)
from .plots import Drawing
from .theme import DARK, LIGHT, THEMES, Theme, configure

WIDTH = 450  # pixels of a plot; heatmaps, strips and images may be twice as wide
SUFFIXES = (".png", ".svg", ".html", ".json")
MAX_SVG_ROWS = 8_000  # records from which on an interactive page paints a canvas: elements would be slow
DRAW: dict[type[Chart], Callable[[Any, Theme, int], Drawing]] = {
    Lines: plots.draw_lines,
    Bars: plots.draw_bars,
    Histogram: plots.draw_histogram,
    BinnedMetric: plots.draw_binned_metric,
    Scatter: plots.draw_scatter,
    ForecastPlot: plots.draw_forecast,
    PianoRoll: plots.draw_piano_roll,
    Heatmap: cells.draw_heatmap,
    HeatmapGrid: cells.draw_heatmap,
    Confusion: cells.draw_confusion,
    TokenStrip: cells.draw_token_strip,
    Table: cells.draw_table,
    ImageOverlay: cells.draw_image_overlay,
    ImageGrid: cells.draw_image_grid,
}


def render(chart: Chart | Sequence[Chart], theme: Theme = LIGHT, width: int = WIDTH) -> Any:
    """Returns the Altair chart of a chart, with its title, or of several, one below the other.

    `width` is that of a plot in pixels, axes not counted.
    """
    if isinstance(chart, Chart):
        return configure(titled(chart, theme, width), theme)
    parts = [titled(part, theme, width) for part in chart]
    own: Any = dict.fromkeys(("color", "fill", "fillOpacity", "stroke", "strokeDash", "size"), "independent")
    return configure(alt.vconcat(*parts, spacing=30).resolve_scale(**own), theme)


def titled(chart: Chart, theme: Theme, width: int) -> Any:
    """Returns the drawing of a chart with its title, its note and the hints of the drawing."""
    drawing, hints = DRAW[type(chart)](chart, theme, width)
    lines: list[str] = []
    for note in [one_line(chart.note, 240), *hints]:
        joined = f"{lines[-1]}; {note}" if lines else note
        if note:
            lines[-1:] = [joined] if len(joined) * 6 <= 2 * width or not lines else [lines[-1], note]
    title = alt.TitleParams(one_line(chart.title, 100), subtitle=lines or alt.Undefined)
    return drawing.properties(title=title)


def specification(chart: Chart | Sequence[Chart], theme: Theme = LIGHT, width: int = WIDTH) -> dict[str, Any]:
    """Returns the Vega-Lite specification of a chart."""
    with debug_mode(False):  # which would validate every part of a chart as it is made; vl-convert checks the whole
        values: dict[str, Any] = render(chart, theme, width).to_dict(validate=False)
    datasets = {name: json.loads(text) for name, text in values.pop("datasets", {}).items()}
    return values | {"datasets": datasets}


def to_svg(chart: Chart | Sequence[Chart], theme: Theme = LIGHT, width: int = WIDTH) -> str:
    """Returns the chart as SVG, the same for the same chart."""
    import vl_convert

    return compact_svg(vl_convert.vegalite_to_svg(specification(chart, theme, width)))


def compact_svg(svg: str) -> str:
    """Returns an SVG with its parts numbered from 0, two decimals, and without marks that only a pointer finds."""
    for part in ("clip", "gradient_"):
        numbers: dict[str, int] = {}
        svg = re.sub(rf"\b{part}(\d+)\b", lambda m: f"{part}{numbers.setdefault(m[1], len(numbers))}", svg)  # noqa: B023
    svg = re.sub(r'<path\b[^>]*\sopacity="0"[^>]*/>', "", svg)

    def shorten(number: re.Match[str]) -> str:
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    def shorten_tag(tag: re.Match[str]) -> str:
        parts = re.split(r'("data:[^"]*")', tag[0])  # images are left as they are
        return "".join(part if part.startswith('"data:') else re.sub(r"\d+\.\d{3,}", shorten, part) for part in parts)

    return re.sub(r"<[^>]*>", shorten_tag, svg)


def check_extension(path: str | Path) -> None:
    """Raises SeriatimError unless a chart can be saved under this name; what takes long checks first."""
    if Path(path).suffix.lower() not in SUFFIXES:
        cause = f'{path}: a chart cannot be saved as "{Path(path).suffix.lower()}"'
        raise SeriatimError("chart.format", cause, f"choose from: {', '.join(SUFFIXES)}")


def save(chart: Chart | Sequence[Chart], path: str | Path, theme: Theme = LIGHT) -> None:
    """Writes charts as .png, .svg, .html (offline, with tooltips, light and dark) or .json (Vega-Lite)."""
    import vl_convert

    path = Path(path)
    check_extension(path)
    suffix = path.suffix.lower()
    if suffix == ".png":
        with atomic_file(path) as aside:
            aside.write_bytes(vl_convert.vegalite_to_png(specification(chart, theme), scale=2))
    elif suffix == ".svg":
        write_text(path, to_svg(chart, theme))
    elif suffix == ".html":
        write_text(path, interactive_page(chart))
    else:
        write_text(path, json.dumps(specification(chart, theme), indent=1, ensure_ascii=False))


def interactive_page(chart: Chart | Sequence[Chart]) -> str:
    """Returns a page that draws charts with tooltips, offline, in the colors of the reader's screen."""
    from .pages import environment

    specifications = {theme.name: specification(chart, theme) for theme in THEMES}
    rows = sum(len(values) for values in specifications["light"]["datasets"].values())
    first = chart if isinstance(chart, Chart) else chart[0]
    return (
        environment()
        .get_template("interactive.html")
        .render(
            title=first.title,
            specifications=specifications,
            library=Markup(javascript_library()),
            renderer="canvas" if rows > MAX_SVG_ROWS else "svg",
            light=LIGHT,
            dark=DARK,
        )
    )


@cache
def javascript_library() -> str:
    """Returns Vega-Embed and all it needs as one script."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # without arguments it is cached, which its type does not allow
    return str(bundle()).replace("</script", "<\\/script")
