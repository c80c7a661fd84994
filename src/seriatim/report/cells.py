"""Drawing of charts that are laid out in cells: heatmaps, confusion matrices, token strips, tables, images.

Each function returns an Altair chart without its title, and hints that stand below the title.
"""

from __future__ import annotations

import base64
import io
import math
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from ..core.text import clean_text, format_number, one_line, text_width
from .charts import CellChart, Confusion, HeatmapGrid, ImageGrid, ImageOverlay, Table, TokenStrip, region
from .formatting import fold, row
from .plots import LETTER, Drawing, Records, data, index_axis
from .theme import MONOSPACE, Theme
from .values import format_column, is_numeric

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

MAX_CELLS, MAX_PANEL_CELLS, MAX_TEXT_CELLS = 150, 60_000, 60  # of a side; of all panels; of a side with texts
MAX_PANELS, MAX_CLASSES, MAX_TOKENS, MAX_ROWS, MAX_WORDS = 400, 30, 2_000, 60, 60
READABLE = 60  # cells of a side up to which each has its label
STRONG = 0.55  # the share of a scale from which on text needs the color of the background


def color_scale(values: np.ndarray, low: float | None, high: float | None, diverging: bool, theme: Theme) -> alt.Scale:
    """Returns the color scale between the ends given, or else those of the values; around 0 if it is diverging."""
    finite_cells = values[np.isfinite(values)]
    bottom = (float(finite_cells.min()) if finite_cells.size else 0.0) if low is None else low
    top = (float(finite_cells.max()) if finite_cells.size else 1.0) if high is None else high
    if diverging:
        most = max(abs(bottom), abs(top)) or 1.0
        ends = [theme.contrast, theme.pale, theme.accent]
        return alt.Scale(domain=[-most, 0, most], range=ends, interpolate="rgb", clamp=True)
    bottom = min(bottom, 0.0) if bottom == top else bottom
    top = top if top > bottom else bottom + 1.0
    return alt.Scale(domain=[bottom, top], range=[theme.pale, theme.accent], interpolate="rgb", clamp=True)


def gradient(title: str | None = None, number_format: str = ".3~g") -> alt.Legend:
    """Returns the legend of a color scale."""
    return alt.Legend(title=title, format=number_format, gradientLength=120, gradientThickness=9, tickCount=3)


def pixel_axes(width: float, height: float, fields: tuple[str, str] = ("x", "y")) -> tuple[alt.X, alt.Y]:
    """Returns encodings of two fields as pixels from the upper left corner."""
    x = alt.X(f"{fields[0]}:Q", axis=None, scale=alt.Scale(domain=[0, width], nice=False))
    return x, alt.Y(f"{fields[1]}:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False))


def labels_width(labels: Sequence[str]) -> float:
    """Returns the pixels of the longest label."""
    return max((text_width(one_line(label, 28)) for label in labels), default=1) * LETTER


def draw_heatmap(chart: CellChart, theme: Theme, width: int) -> Drawing:
    panels, cell_texts, room = list(chart.matrices()), chart.cell_texts(), 2 * width
    names = panels[:MAX_PANELS]
    single = len(names) == 1
    hints = [f"{len(panels) - MAX_PANELS} more panels are not shown"] if len(panels) > MAX_PANELS else []
    values = chart.array()[: len(names)]
    if cell_texts:
        values, limit = values[:, :MAX_TEXT_CELLS, :MAX_TEXT_CELLS], MAX_TEXT_CELLS
        rows, columns = list(chart.rows[:limit]), list(chart.columns[:limit])
        what = "the first cells of {} × {}"
    else:
        limit = MAX_CELLS if single else max(8, int(math.sqrt(MAX_PANEL_CELLS / max(len(names), 1))))
        values, rows = fold(values, chart.rows, limit, axis=1)
        values, columns = fold(values, chart.columns, limit, axis=2)  # (panels,rows,columns)
        what = "{} × {} cells, neighbors averaged"
    if (len(rows), len(columns)) != (len(chart.rows), len(chart.columns)):
        hints.append(what.format(format_number(len(chart.rows)), format_number(len(chart.columns))))
    across = chart.per_row if isinstance(chart, HeatmapGrid) else None
    across = across or max(1, round(math.sqrt(1.6 * len(names) * len(rows) / max(len(columns), 1))))
    across = min(across, len(names) or 1)
    texts = [[[clean_text(text, 18) for text in line[:limit]] for line in cell_texts[name][:limit]] for name in names
             if name in cell_texts]  # fmt: skip
    wide, tall = cell_sizes(rows, columns, room, across, texts)
    start = 0.0 if chart.low is None and not (values < 0).any() else chart.low
    scale = color_scale(values, start, chart.high, chart.diverging, theme)
    low, high = float(scale.domain[0]), float(scale.domain[-1])
    faint = 0.0 if texts or (values[0].size <= 400 and single) else 0.01
    zero = 0.0 if chart.diverging else low
    records = []
    for panel, cells in enumerate(values):
        for line, cells_of_row in enumerate(cells):
            for column, value in enumerate(row(cells_of_row)):
                share = None if value is None else abs(value - zero) / (high - zero)
                first = line == column == 0  # without a cell, a panel would not be drawn
                if share is not None and (share >= faint or first):  # the others have the color of the background
                    record = {"panel": names[panel], "row": line, "column": column, "value": value}
                    record |= {"row_label": rows[line], "column_label": columns[column]} if single else {}
                    if texts:
                        record |= {"text": texts[panel][line][column], "strong": share > STRONG}
                    records.append(record)
    small = min(wide, tall) < 10
    titles = [one_line(chart.x, 60), one_line(chart.y, 60)]
    if not single:
        hints += [f"{way}: {title}" for way, title in (("down", titles[1]), ("across", titles[0])) if title]
        titles = ["", ""]
    if small and not single:
        ends = [one_line(labels[place]).replace("␣", "·") for labels in (rows, columns) for place in (0, -1)]
        hints.append("rows from “{}” to “{}”, columns from “{}” to “{}”".format(*ends))
    angle = 0 if labels_width(columns) <= wide else -45 if wide > 30 else -90
    sparse = {"labelOverlap": True} if max(len(rows), len(columns)) > READABLE else {"labelOverlap": False}
    hide = {"labels": False} if small and not single else {}
    options: dict[str, Any] = {"domain": False, "labelLimit": 170, **sparse, **hide}
    x = alt.X(
        "column:O",
        scale=alt.Scale(domain=list(range(len(columns))), padding=0),
        axis=index_axis(columns, titles[0], orient="top", labelAngle=angle, **options),
    )
    y = alt.Y(
        "row:O",
        scale=alt.Scale(domain=list(range(len(rows))), padding=0),
        axis=index_axis(rows, titles[1], **options),
    )
    names_of = ("row_label:N", "column_label:N") if single else ("panel:N", "row:O", "column:O")
    tooltip = [alt.Tooltip(name, title=name.partition(":")[0].removesuffix("_label")) for name in names_of]
    tooltip += [alt.Tooltip("value:Q", format=".4~g"), *([alt.Tooltip("text:N")] if texts else [])]
    grid_lines: dict[str, Any] = (
        {"stroke": theme.background, "strokeWidth": 1} if min(wide, tall) >= 14 and single else {}
    )
    cells_mark = (
        alt.Chart()
        .mark_rect(**grid_lines)
        .encode(x, y, alt.Color("value:Q", scale=scale, legend=gradient()), tooltip=tooltip)
    )
    layers = [cells_mark]
    if texts:
        strong = alt.condition("datum.strong", alt.value(theme.background), alt.value(theme.text))
        layers.append(alt.Chart().mark_text(fontSize=11).encode(x, y, text="text:N", color=strong))
    drawing = alt.layer(*layers, data=data(records).data).properties(
        width=wide * len(columns),
        height=tall * len(rows),
        view=alt.ViewBackground(fill=theme.pale, stroke=None),
    )
    if single:
        return drawing, hints
    return drawing.facet(facet=alt.Facet("panel:N", title=None, sort=names), columns=across, spacing=14), hints


def cell_sizes(
    rows: Sequence[str], columns: Sequence[str], room: float, across: int, texts: Sequence[Sequence[Sequence[str]]]
) -> tuple[float, float]:
    """Returns width and height of a cell in pixels: what fits, and what labels and texts need."""
    room = max((room - min(labels_width(rows), 170) - 20 * across) / across, 60.0)
    smallest = 2.0 if across > 1 else 15.0 if len(columns) <= READABLE else 5.0
    wide = max(smallest, min(44.0, room / len(columns)))
    tall = max(smallest, min(44.0, (560 if across == 1 else 260) / len(rows)))
    if texts:
        longest = max(text_width(text) for panel in texts for line in panel for text in line)
        return max((max(longest, 3) + 1.4) * LETTER, min(wide, tall)), 24.0
    flat = labels_width(columns) + 8  # the width with which labels need not be turned
    square = min(wide, tall) if across > 1 or len(columns) <= READABLE else wide
    wide = flat if square < flat <= room / len(columns) else square
    return (math.floor(wide), math.floor(square)) if square >= 4 else (wide, square)


def draw_confusion(chart: Confusion, theme: Theme, width: int) -> Drawing:
    counts = np.array(chart.counts, float).reshape(len(chart.labels), len(chart.labels))
    names = list(chart.labels)
    if len(names) > MAX_CLASSES:  # the most frequent classes, in their order, then all others
        frequent = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[: MAX_CLASSES - 1])
        order = np.concatenate([frequent, np.setdiff1d(np.arange(len(names)), frequent)])
        counts, names = counts[order][:, order], [names[n] for n in order]
    labels = fold(counts, names, MAX_CLASSES, axis=0, keep_first=True)[1]
    for axis in (0, 1):
        counts, _ = fold(counts, names, MAX_CLASSES, axis=axis, keep_first=True)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    cell = int(max(18, min(52 + 8 * max(6 - len(labels), 0), 640 // max(len(labels), 1))))

    def text(count: float) -> str:
        if count == 0:
            return ""
        return f"{count:,.0f}" if count < 1_000 or cell >= 40 else f"{count / 1000:.{1 if count < 9_950 else 0}f}k"

    records = [
        {
            "reference": a,
            "prediction": b,
            "share": float(shares[a, b]),
            "text": text(float(counts[a, b])),
            "count": int(counts[a, b]),
            "pair": f"{one_line(labels[a])} → {one_line(labels[b])}",
        }
        for a, b in np.ndindex(*counts.shape)
    ]
    angle = 0 if labels_width(labels) <= cell else -45 if cell > 30 else -90
    options: dict[str, Any] = {"domain": False, "labelOverlap": False, "labelLimit": 170}
    scale = alt.Scale(padding=0, domain=list(range(len(labels))))
    x = alt.X(
        "prediction:O", scale=scale, axis=index_axis(labels, "prediction", orient="top", labelAngle=angle, **options)
    )
    y = alt.Y("reference:O", scale=scale, axis=index_axis(labels, "reference", **options))
    color = alt.Color(
        "share:Q",
        scale=alt.Scale(domain=[0, 1], range=[theme.pale, theme.accent], interpolate="rgb"),
        legend=gradient("share of the reference class", ".0%"),
    )
    strong = alt.condition(f"datum.share > {STRONG}", alt.value(theme.background), alt.value(theme.text))
    tooltip = [
        alt.Tooltip("pair:N", title="reference → prediction"),
        alt.Tooltip("count:Q", format=","),
        alt.Tooltip("share:Q", format=".1%"),
    ]
    base = data(records).encode(x, y)
    cells = base.mark_rect(stroke=theme.background, strokeWidth=1).encode(color=color, tooltip=tooltip)
    texts = base.mark_text(fontSize=max(8, min(13, int(0.42 * cell)))).encode(text="text:N", color=strong)
    return alt.layer(cells, texts).properties(width=cell * len(labels), height=cell * len(labels)), []


# Texts

TOKEN_SYMBOLS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"})


def draw_token_strip(chart: TokenStrip, theme: Theme, width: int) -> Drawing:
    """Tokens in lines, from the left, or from the right for scripts that are read so; a line break ends a line."""
    room, line_height, box_height, letter = 2 * width, 28, 22, 7.8
    tokens = chart.tokens[:MAX_TOKENS]
    directions = [unicodedata.bidirectional(char) for token in tokens for char in token]
    right_to_left = sum(way in ("R", "AL") for way in directions) > sum(way == "L" for way in directions)
    values = np.array(chart.values[:MAX_TOKENS], float)
    scale = color_scale(values, chart.low, chart.high, chart.diverging, theme)
    low, high = float(scale.domain[0]), float(scale.domain[-1])
    hints_of = chart.hints or ("",) * len(chart.tokens)
    left, top = 0.0, 0.0
    records: Records = []
    for n, token in enumerate(tokens):
        text = clean_text(token.translate(TOKEN_SYMBOLS)) or "∅"
        text = text if len(text) <= 32 else f"{text[:31]}…"
        size = max(text_width(text), 1) * letter + 8
        if left and left + size > room:
            left, top = 0.0, top + line_height
        value = None if math.isnan(values[n]) else float(f"{values[n]:.4g}")
        share = 0.0 if value is None else abs(value) / high if chart.diverging else (value - low) / (high - low)
        start = room - left - size if right_to_left else left
        mark = "\u200f" if right_to_left else ""
        records.append(
            {"x": start, "end": start + size, "middle": start + size / 2, "y": top, "bottom": top + box_height,
             "center": top + box_height / 2, "text": f"{mark}{text}{mark}", "value": value, "position": n,
             "strong": share > STRONG, "hint": one_line(hints_of[n], 400)}
        )  # fmt: skip
        left, top = (0.0, top + line_height) if token.endswith("\n") else (left + size + 2, top)
    height = (records[-1]["bottom"] if records else box_height) + 2
    extent = room if right_to_left else max((record["end"] for record in records), default=1.0)
    x, y = pixel_axes(extent, height)
    tooltip = [
        alt.Tooltip("text:N", title="token"),
        alt.Tooltip("position:Q"),
        alt.Tooltip("value:Q", title=chart.label, format=".4~g"),
        *([alt.Tooltip("hint:N")] if chart.hints else []),
    ]
    color = alt.Color("value:Q", scale=scale, legend=gradient(one_line(chart.label, 60)))
    known, unknown = ([r for r in records if (r["value"] is None) == missing] for missing in (False, True))
    layers = [data(known).mark_rect(cornerRadius=2).encode(x, y, color, x2="end:Q", y2="bottom:Q", tooltip=tooltip)]
    if unknown:
        boxes = data(unknown).mark_rect(cornerRadius=2, color=theme.pale, fillOpacity=0, stroke=theme.grid)
        layers.append(boxes.encode(x, y, x2="end:Q", y2="bottom:Q", tooltip=tooltip))
    strong = alt.condition("datum.strong", alt.value(theme.background), alt.value(theme.text))
    texts = data(records).mark_text(font=MONOSPACE, fontSize=13, baseline="middle")
    center = pixel_axes(extent, height, ("middle", "center"))
    layers.append(texts.encode(*center, text="text:N", color=strong, tooltip=tooltip))
    cut = len(chart.tokens) - len(tokens)
    hints = [f"the first {format_number(len(tokens))} of {format_number(len(chart.tokens))} tokens"] if cut else []
    return alt.layer(*layers).properties(width=extent, height=height), hints


def draw_table(chart: Table, theme: Theme, width: int) -> Drawing:
    """A table as an image, for files that hold nothing but images; pages have real tables."""
    line_height, gap = 22, 22
    count = min(len(chart.rows), MAX_ROWS)
    texts, rules, left = [], [], 0.0
    for n, name in enumerate(chart.columns):
        cells = [line[n] for line in chart.rows]
        words = [one_line(name[:1].upper() + name[1:], 60).replace("_", " ")]
        words += [one_line(text, 60) for text in format_column(name, cells)[:count]]
        size = max(map(text_width, words)) * 6.4
        right = is_numeric(cells)
        for place, word in enumerate(words):
            at = {"x": left + size if right else left, "y": (place + 0.5) * line_height}
            texts.append({**at, "text": word, "right": right, "head": place == 0})
        left += size + gap
    if count < len(chart.rows):
        more = f"… {format_number(len(chart.rows) - count)} more rows"
        texts.append({"x": 0, "y": (count + 1.5) * line_height, "text": more, "right": False, "head": True})
        count += 1
    end, height = max(left - gap, 1.0), (count + 1) * line_height
    rules = [{"x": 0, "end": end, "y": place * line_height, "head": place == 1} for place in range(1, count + 2)]
    x, y = pixel_axes(end, height)
    line_color = alt.condition("datum.head", alt.value(theme.muted), alt.value(theme.grid))
    text_color = alt.condition("datum.head", alt.value(theme.muted), alt.value(theme.text))
    layers = [data(rules).mark_rule().encode(x, y, x2="end:Q", color=line_color)]
    for right in (False, True):
        own = [record for record in texts if record["right"] == right]
        if own:
            mark = data(own).mark_text(align="right" if right else "left", baseline="middle", fontSize=12)
            layers.append(mark.encode(x, y, text="text:N", color=text_color))
    return alt.layer(*layers).properties(width=end, height=height), []


# Images


def open_png(png: str) -> PillowImage:
    """Returns the image of base64 of a PNG in RGB; images beyond 50 megapixels are refused."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png)), formats=["PNG"]) as image:
        if image.width * image.height > 50_000_000:
            raise ValueError(f"an image of {image.width} × {image.height} pixels is too large to be drawn")
        return image.convert("RGB")


def fit_image(image: PillowImage, smallest: int = 192, largest: int = 480) -> PillowImage:
    """Returns the image with a longer side between two sizes; small ones are enlarged by whole factors."""
    from PIL import Image

    longer = max(image.size)
    if longer > largest:
        size = [max(round(side * largest / longer), 1) for side in image.size]
        return image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    factor = -(-smallest // longer)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def image_url(image: PillowImage) -> str:
    """Returns a data URL of the image as PNG."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def highlight(image: PillowImage, weights: np.ndarray) -> PillowImage:
    """Returns the image bright where weights (rows, columns) are largest, and gray where they are 0."""
    from PIL import Image

    largest = float(weights.max())
    shares = (weights / largest if largest > 0 else weights).astype(np.float32)
    light = Image.fromarray(shares).resize(image.size, Image.Resampling.BICUBIC)
    mask = (np.asarray(light) * 31).clip(0, 31).round()[:, :, None] / 31  # few steps make small files
    clear = np.asarray(image, np.float32)
    gray = np.asarray(Image.blend(image, image.convert("L").convert("RGB"), 0.5), np.float32)
    mixed = clear * mask + (0.3 * gray + 0.7 * 128) * (1 - mask)
    return Image.fromarray(mixed.astype(np.uint8)).quantize(128).convert("P")


def wrap(text: str, letters: float) -> list[str]:
    """Returns the lines of a text, at most `letters` letters each; a longer word has a line of its own."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        lines[-1:] = [joined] if text_width(joined) <= letters or not lines[-1] else [lines[-1], word]
    return lines


def draw_image_overlay(chart: ImageOverlay, theme: Theme, width: int) -> Drawing:
    """The image with its captions, and below it a panel per word, bright where the model attended to.

    After the figures of Xu et al., "Show, Attend and Tell" (2015). Each panel has a scale of its own, from no weight
    to the largest of its word, whose share is written beside it. A ring marks the peak, dashed boxes what is named.
    """
    room, image = 2 * width, open_png(chart.image)
    fitted, ratio = fit_image(image), image.width / image.height
    wide, tall = min(240, 240 * ratio), min(240, 240 / ratio)
    texts: Records = []
    images = [{"x": 0, "y": 0, "url": image_url(fitted)}]
    x, y = wide + 26, 16.0
    for line in wrap(clean_text(chart.caption, 400), (room - x) / 9.4):
        texts.append({"x": x, "y": y, "text": line, "style": "caption"})
        y += 25
    if any(score is not None for _, score in chart.captions):
        texts.append({"x": x, "y": y, "text": "log-probability", "style": "muted"})
        for caption, score in chart.captions[:9]:
            y += 18
            texts.append(
                {
                    "x": x + 46,
                    "y": y,
                    "text": "–" if score is None else f"{score:.2f}".replace("-", "−"),
                    "style": "number",
                }
            )
            texts.append({"x": x + 58, "y": y, "text": one_line(caption, int((room - x - 58) / 6.2)), "style": "text"})
        y += 18
    height, panels, rings, boxes = max(tall, y - 18) + 18, [], [], []
    count = min(len(chart.weights), MAX_WORDS)
    panel_wide = panel_tall = 1.0
    if count:
        lines = -(-count // (6 if count <= 12 else 7))
        across = -(-count // lines)
        panel_wide = min(190, (room - (across - 1) * 14) / across, 210 * ratio)
        panel_tall, step = panel_wide / ratio, max(panel_wide + 14, 92)
        maps, shown_image = chart.maps(), fit_image(image, 96, 200)
        for n in range(count):
            left, top = n % across * step, height + n // across * (panel_tall + 32) + 20
            url = image_url(highlight(shown_image, maps[n]))
            panels.append({"x": left, "y": top, "url": url, "word": chart.words[n], "region": region(maps[n])})
            share = f"{maps[n].max():.0%}".replace("%", " %")
            letters = max(int((step - 14 - 6.5 * len(share)) / 7), 3)
            texts.append({"x": left, "y": top - 8, "text": one_line(chart.words[n], letters), "style": "word"})
            texts.append({"x": left + step - 14, "y": top - 8, "text": share, "style": "number"})
            peaks = np.argwhere(maps[n] == maps[n].max())
            if len(peaks) == 1:
                a, b = (peaks[0] + 0.5) / maps[n].shape
                rings.append({"x": left + b * panel_wide, "y": top + a * panel_tall})
            for box in chart.boxes:
                if box.word <= n < box.word + max(len(box.noun.split()), 1):
                    a, b, c, d = (
                        min(max(edge / side, 0.0), 1.0) for edge, side in zip(box.edges, image.size * 2, strict=True)
                    )
                    boxes.append({"x": left + a * panel_wide, "end": left + c * panel_wide,
                                  "y": top + b * panel_tall, "bottom": top + d * panel_tall})  # fmt: skip
        height += lines * (panel_tall + 32)
    x_axis, y_axis = pixel_axes(room, height)
    layers: list[alt.Chart] = []
    for records, size in ((images, (wide, tall)), (panels, (panel_wide, panel_tall))):
        if records:
            mark = data(records).mark_image(width=size[0], height=size[1], align="left", baseline="top", aspect=False)
            layers.append(mark.encode(x_axis, y_axis, url="url:N", tooltip=["word:N", "region:N"]))
    if boxes:
        for color, stroke, dash in ((theme.background, 3, [1, 0]), (theme.accent, 1.5, [4, 2])):
            outline = data(boxes).mark_rect(
                filled=False, fillOpacity=0, stroke=color, strokeWidth=stroke, strokeDash=dash
            )
            layers.append(outline.encode(x_axis, y_axis, x2="end:Q", y2="bottom:Q"))
    if rings:
        for color, stroke in ((theme.background, 4), (theme.contrast, 2)):
            layers.append(
                data(rings)
                .mark_point(size=70, filled=False, opacity=1, color=color, strokeWidth=stroke)
                .encode(x_axis, y_axis)
            )
    styles: dict[str, dict[str, Any]] = {
        "caption": {"fontSize": 18, "fontWeight": 600},
        "word": {"fontSize": 12.5, "fontWeight": 600},
        "text": {"fontSize": 12},
        "muted": {"color": theme.muted},
        "number": {"color": theme.muted, "align": "right"},
    }
    for style, options in styles.items():
        own = [record for record in texts if record["style"] == style]
        if own:
            mark = data(own).mark_text(**{"align": "left", "baseline": "middle", "color": theme.text, **options})
            layers.append(mark.encode(x_axis, y_axis, text="text:N"))
    hints = []
    if count:
        cells = math.prod(chart.grid or (1, 1))
        hints.append(f"bright: attended to; ring: the cell with most weight, its share beside the word "
                     f"(1 of {format_number(cells)} cells, {100 / cells:.0f} % if all are alike)")  # fmt: skip
    hints += ["dashed: the box of what is named"] if boxes else []
    hints += [f"the first {MAX_WORDS} of {len(chart.words)} words"] if count < len(chart.weights) else []
    return alt.layer(*layers).properties(width=room, height=height), hints


def draw_image_grid(chart: ImageGrid, theme: Theme, width: int) -> Drawing:
    size, across = 150, max(1, 2 * width // 166)
    images, texts = [], []
    for n, part in enumerate(chart.images):
        left, top = n % across * 166, n // across * (size + 34)
        images.append({"x": left, "y": top, "url": image_url(fit_image(open_png(part.png), 128, 300))})
        texts.append({"x": left, "y": top + size + 12, "text": one_line(part.caption, 24)})
    lines = -(-len(images) // across) or 1
    room, height = min(len(images) or 1, across) * 166 - 16, lines * (size + 34)
    x, y = pixel_axes(room, height)
    mark = data(images).mark_image(width=size, height=size, align="left", baseline="top")
    captions = data(texts).mark_text(align="left", baseline="middle").encode(x, y, text="text:N")
    drawing = alt.layer(mark.encode(x, y, url="url:N"), captions)
    return drawing.properties(width=room, height=height), []
