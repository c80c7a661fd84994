"""How pictures look: colours for light and dark, type, and the way from an Altair chart to a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import SeriatimError
from ..core.files import atomic_file, write_text
from .figures import Figures
from .interactive import interactive

if TYPE_CHECKING:
    import altair as alt

    Panel = alt.LayerChart | alt.FacetChart
    Drawn = tuple[alt.HConcatChart, str]  # a picture, and a sentence for those who listen

HALF, WHOLE = 460, 980  # pixels of a panel of a view: two side by side, or one alone
ENDINGS = (".png", ".svg", ".html", ".json")
FONT = "Liberation Sans, Helvetica, Arial, sans-serif"

# Light and dark. The hues of Okabe and Ito (2008), which the colour-blind tell apart; those that would be faint on
# a dark ground are lighter there.
INK = ("#1f2328", "#e6e8eb")
FAINT = ("#656d76", "#9aa3ad")
GRID = ("#e3e6ea", "#31363d")
GROUND = ("#ffffff", "#14171b")
ACCENT = ("#0b66b5", "#5eaef2")  # what a picture is about
SECOND = ("#c75700", "#f28a3c")  # what it is set against
PALE = ("#f1f5fa", "#1b2430")  # the low end of a scale that ends in the accent
OWN = {
    "ngram": ("#50565e", "#c3c9d1"),
    "mlp": ("#e69f00", "#f0b437"),
    "rnn": ("#56b4e9", "#9ad6f7"),
    "lstm": ("#0072b2", "#3d9be0"),
    "gru": ("#009e73", "#22b98d"),
    "tcn": ("#cc79a7", "#de93bc"),
    "gpt": ("#d55e00", "#f07c2b"),
    "seq2seq": ("#56b4e9", "#9ad6f7"),
    "bahdanau": ("#009e73", "#22b98d"),
    "transformer": ("#d55e00", "#f07c2b"),
}
SPARE = (
    ("#8a7a00", "#f0e442"),
    ("#6a51a3", "#a894dd"),
    ("#8c510a", "#c98d4b"),
    ("#3b7d2f", "#7cc46c"),
    ("#a50f4e", "#ec6a9c"),
    ("#2b6f77", "#6fc1ca"),
)
PAIRS = dict([INK, FAINT, GRID, GROUND, ACCENT, SECOND, PALE, *OWN.values(), *SPARE])  # light: dark


def colours(figures: Sequence[Figures]) -> dict[str, tuple[str, str]]:
    """Light and dark colour of each run. The first of a known model gets its own, all others one that is left."""
    free = list(SPARE)
    used: set[str] = set()
    found: dict[str, tuple[str, str]] = {}
    for index, one in enumerate(figures):
        if one.model in OWN and one.model not in used:
            used.add(one.model)
            found[one.label] = OWN[one.model]
        else:
            found[one.label] = free.pop(0) if free else SPARE[index % len(SPARE)]
    return found


def svg(chart: alt.TopLevelMixin, dark: bool = False, ground: bool = False) -> str:
    """The picture as SVG, with or without a ground of its own."""
    import vl_convert

    spec = _dressed(chart, dark) | ({} if ground else {"background": None})
    return _compact(vl_convert.vegalite_to_svg(spec))


def _compact(text: str) -> str:
    """Without what only a pointer would find, and with no more decimals than an eye can see. The renderer numbers its
    clipping paths through all its pictures; a picture made again should be the same."""
    numbers: dict[str, int] = {}
    text = re.sub(r"\bclip(\d+)\b", lambda match: f"clip{numbers.setdefault(match[1], len(numbers))}", text)
    text = re.sub(r'<path\b[^>]*\sopacity="0"[^>]*/>', "", text)
    return re.sub(r"<[^>]*>", lambda tag: re.sub(r"\d+\.\d{3,}", _rounded, tag[0]), text)


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def check_ending(path: Path) -> None:
    """Whether a picture can be written there: what takes long asks first."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise SeriatimError(
            "chart.format", f'{path}: a chart cannot be saved as "{ending}"', f"choose from: {', '.join(ENDINGS)}"
        )


def save(chart: alt.TopLevelMixin, path: str | Path) -> None:
    """Writes .png, .svg, .html (with all that it needs to work offline) or .json (Vega-Lite)."""
    import vl_convert

    path = Path(path)
    check_ending(path)
    ending = path.suffix.lower()
    spec = _dressed(chart, dark=False)
    if ending == ".png":
        with atomic_file(path) as aside:
            aside.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    elif ending == ".svg":
        write_text(path, _compact(vl_convert.vegalite_to_svg(spec)))
    elif ending == ".html":
        write_text(path, interactive(spec, PAIRS, GROUND, INK))
    else:
        write_text(path, json.dumps(spec, indent=1, ensure_ascii=False))


def data(rows: list[dict[str, Any]]) -> alt.Chart:
    import altair as alt

    # as text: Altair copies its data again and again, and a text costs nothing to copy
    return alt.Chart(alt.InlineData(values=json.dumps(rows), format=alt.JsonDataFormat(type="json")))


def title(text: str, hint: str = "") -> alt.TitleParams:
    import altair as alt

    return alt.TitleParams(text, subtitle=[hint] if hint else [])


def nothing(text: str, width: int = 400, height: int = 270) -> Panel:
    """A panel that says why there is nothing in it."""
    import altair as alt

    mark = data([{"text": text}]).mark_text(fontSize=13, color=FAINT[0]).encode(text="text:N")
    return alt.layer(mark).properties(width=width, height=height)


def row(panels: Sequence[Panel]) -> alt.HConcatChart:
    """Panels side by side, in the type and the light colours of all pictures."""
    import altair as alt

    chart: alt.HConcatChart = _typed(alt.hconcat(*panels, spacing=36, background=GROUND[0]))
    return chart


def stack(rows: Sequence[alt.HConcatChart]) -> alt.VConcatChart:
    """Pictures one below the other, each with its own scales, as one picture that can be saved."""
    import altair as alt

    inner = []
    for one in rows:
        part = one.copy(deep=False)
        part.config = part.background = alt.Undefined  # they belong to the outermost only
        inner.append(part)
    own: Any = dict.fromkeys(("color", "fill", "fillOpacity", "stroke", "strokeDash", "size"), "independent")
    whole = alt.vconcat(*inner, spacing=30, background=GROUND[0]).resolve_scale(**own)
    chart: alt.VConcatChart = _typed(whole)
    return chart


def _typed(chart: Any) -> Any:
    return (
        chart.configure(font=FONT, padding=6, aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=FAINT[0],
            titleColor=FAINT[0],
            labelFontSize=11.5,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
            gridColor=GRID[0],
            domainColor=GRID[0],
            tickColor=GRID[0],
            labelPadding=5,
        )
        .configure_axisY(domain=False, ticks=False, minExtent=30)
        .configure_title(
            anchor="start",
            frame="group",
            color=INK[0],
            fontSize=13,
            fontWeight=600,
            subtitleColor=FAINT[0],
            subtitleFontSize=11.5,
            subtitlePadding=4,
            offset=12,
        )
        .configure_legend(
            orient="bottom",
            labelColor=INK[0],
            labelFontSize=12,
            title=None,
            symbolStrokeWidth=2,
            columnPadding=18,
            offset=6,
        )
        .configure_text(fontSize=11.5)
    )


def _dressed(chart: alt.TopLevelMixin, dark: bool) -> dict[str, Any]:
    """The specification in the colours of a ground."""
    pairs = PAIRS if dark else {}
    spec: dict[str, Any] = chart.to_dict()
    rows = {name: json.loads(text) for name, text in spec.pop("datasets", {}).items()}
    return {**_swapped(spec, pairs), "datasets": rows}


def _swapped(value: Any, pairs: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _swapped(inner, pairs) for key, inner in value.items()}
    if isinstance(value, list):
        return [_swapped(inner, pairs) for inner in value]
    return pairs.get(value, value) if isinstance(value, str) else value
