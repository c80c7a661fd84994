"""Drawings: what is drawn is what the chart holds, whatever its size and script, in every format."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from report_examples import CHARTS, WEIGHTS
from seriatim.core.errors import SeriatimError
from seriatim.core.text import text_width
from seriatim.report import cells, plots
from seriatim.report.charts import (
    Annotation,
    Bars,
    BinnedMetric,
    Confusion,
    Heatmap,
    HeatmapGrid,
    Histogram,
    ImageOverlay,
    Lines,
    PianoRoll,
    Scatter,
    Series,
    Table,
    TokenStrip,
    matrix,
)
from seriatim.report.render import WIDTH, save, specification, to_svg
from seriatim.report.theme import DARK, LIGHT, series_colors

HEBREW = ["התלמידים", " פתחו", " את", " הספרים", ".", " GPT"]
CHINESE = list("我们在图书馆里读书。")
COLOR = re.compile(r"#[0-9a-f]{6}|rgb\([\d, ]+\)|rgba\([\d., ]+\)|data:image[^\"]+|\b(?:black|white)\b")


def records(chart: Any, *keys: str) -> list[dict[str, Any]]:
    """Returns the data of the first layer whose records have these keys."""
    datasets = specification(chart)["datasets"].values()
    return next((rows for rows in datasets if rows and all(key in rows[0] for key in keys)), [])


@pytest.mark.parametrize("kind", CHARTS)
def test_light_and_dark_differ_in_nothing_but_colors(kind: str) -> None:
    light, dark = (to_svg(CHARTS[kind], theme) for theme in (LIGHT, DARK))
    assert light.startswith("<svg")
    assert COLOR.sub("", light) == COLOR.sub("", dark)
    found = {theme.name: set(re.findall(r"#[0-9a-f]{6}", svg)) for theme, svg in ((LIGHT, light), (DARK, dark))}
    assert not found["light"] & found["dark"]
    title = CHARTS[kind].title.replace("&", "&amp;")
    assert f">{title}<" in light
    assert not re.search(r'="[^"]*\d\.\d{4,}', re.sub(r'"data:[^"]*"', "", light))
    assert ' opacity="0"' not in light


def test_charts_without_values_are_drawn() -> None:
    empty = [
        Lines(title="t", series=(Series("a", (0,), (None,)),), x="x", y="y", log_x=True, log_y=True),
        Bars(title="t", labels=("a",), values=(None,), x="x"),
        Heatmap(title="t", rows=("a",), columns=("b",), values=((None,),)),
        TokenStrip(title="t", tokens=("a",), values=(None,), label="bits"),
        Scatter(title="t", points=(), x="x", y="y", labels=()),
        PianoRoll(title="t", notes=(), frames=4),
        Histogram(title="t", edges=(0, 1), counts=(0,), x="x"),
        BinnedMetric(title="t", metric="f1", x="x", bins=("a",), counts=(0,), series={"": (None,)}),
        Confusion(title="t", labels=("a",), counts=((0,),)),
        Table(title="t", columns=("a",), rows=()),
    ]
    assert to_svg(empty).count(">t<") == len(empty)


# Files


def test_charts_are_saved_in_every_format(tmp_path: Path) -> None:
    charts = [CHARTS[kind] for kind in ("heatmap", "lines", "token_strip", "table")]
    for suffix in (".png", ".svg", ".html", ".json"):
        save(charts, tmp_path / f"c{suffix}")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert all(f">{chart.title}<" in svg for chart in charts)
    values = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert "vega-lite" in values["$schema"]
    assert len(values["vconcat"]) == 4
    assert all("config" not in part and "background" not in part for part in values["vconcat"])
    assert set(values["resolve"]["scale"].values()) == {"independent"}
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert len(page) > 500_000  # the library is inside
    assert not re.search(r"<script[^>]*\ssrc=|<link", page)
    assert '"tooltip"' in page
    assert "<title>Attention</title>" in page
    assert 'renderer: "svg"' in page
    assert all(theme.accent in page and theme.background in page for theme in (LIGHT, DARK))
    with pytest.raises(SeriatimError, match="cannot be saved as") as caught:
        save(charts, tmp_path / "c.gif")
    assert caught.value.code == "chart.format"


def test_text_from_data_stays_text_in_an_interactive_page(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script><!--"
    save(TokenStrip(title=nasty, tokens=(nasty,), values=(1.0,), label="bits", hints=(nasty,)), tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert len(re.findall(r"<script[ >]", page.split("<main")[-1])) == 1
    assert "&lt;/script&gt;" in page.split("</title>")[0]


# Lines


def test_curves_have_the_colors_of_their_models_and_dashed_twins() -> None:
    names = ["rnn", "rnn, before", "gpt", "theory", "rnn again", "unigram"]
    colors = series_colors(names, LIGHT, {"rnn, before", "unigram"})
    assert colors["rnn"] == colors["rnn, before"] == "#56b4e9"
    assert colors["gpt"] == "#d55e00"
    assert colors["unigram"] == LIGHT.muted
    assert len({colors[name] for name in ("rnn", "gpt", "theory", "rnn again")}) == 4
    baselines = series_colors(["gru", "naive", "linear", "theta"], LIGHT, {"naive", "linear", "theta"})
    assert len(set(baselines.values())) == 4
    assert (baselines["gru"], baselines["naive"]) == ("#009e73", LIGHT.muted)
    series = tuple(Series(name, (0, 1), (1, 2), dashed=name == "rnn, before") for name in names[:3])
    svg = to_svg(Lines(title="t", series=series, x="x", y="y"))
    assert svg.count('stroke-dasharray="5,4"') == 2  # and in the legend
    assert all(f">{name}<" in svg for name in names[:3])


def test_what_a_logarithm_cannot_show_is_left_out() -> None:
    x, y = (0, 1, 10, 100, 1000, 2000), (1, 0.0, 1e-3, None, 1e3, math.nan)
    line = Lines(title="t", series=(Series("a", x, y),), x="x", y="y", log_x=True, log_y=True,
                 annotations=(Annotation("none", y=0.0), Annotation("here", x=20, y=1.0)))  # fmt: skip
    assert [(point["x"], point["y"]) for point in records(line, "series", "x")] == [(10, 1e-3), (1000, 1e3)]
    assert [(note["x"], note["y"]) for note in records(line, "text")] == [(20, 1.0)]


def test_long_curves_are_thinned_and_many_counted() -> None:
    long = Lines(title="t", series=(Series("a", tuple(range(5_000)), tuple(range(5_000))),), x="x", y="y")
    points = records(long, "series", "x")
    assert len(points) <= plots.MAX_POINTS + 1
    assert points[-1]["x"] == 4_999
    many = Lines(title="t", series=tuple(Series(f"u{n}", (0, 1), (0, n)) for n in range(80)), x="x", y="y")
    assert "20 more series are not shown" in to_svg(many)


def test_axes_of_percentages_never_repeat_a_label() -> None:
    for low, high in ((0.5, 0.9), (0.991, 0.9914), (0.0, 0.02)):
        axis = plots.value_axis("", [low, high], False, "accuracy")
        decimals = int(str(axis.format)[1:-1])
        ticks = [low + (high - low) * n / 5 for n in range(6)]
        assert len({f"{100 * tick:.{decimals}f}" for tick in ticks}) == 6
    assert plots.axis_ticks(0.05, 30) == [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
    assert plots.axis_ticks(0.05, 3e4) == [0.1, 1, 10, 100, 1000, 10000]
    assert plots.axis_ticks(3e10, 6.8e10) == [3e10, 4e10, 5e10, 6e10]
    assert plots.axis_ticks(1.9, 3.1) == [2, 2.5, 3]


# Points


def test_projections_keep_distances_and_labels_do_not_overlap() -> None:
    points = np.random.default_rng(1).normal(size=(50, 2))
    groups = tuple("verb" if n % 2 else "noun" for n in range(50))
    labels = tuple(f"word {n}" for n in range(50))
    chart = Scatter(title="t", points=tuple(map(tuple, points.tolist())), labels=labels, groups=groups, x="x", y="y",
                    projection=True)  # fmt: skip
    layer = specification(chart)["layer"][-2]
    ends = [layer["encoding"][axis]["scale"]["domain"] for axis in "xy"]
    units = [(ends[n][1] - ends[n][0]) / specification(chart)[side] for n, side in enumerate(("width", "height"))]
    assert units[0] == pytest.approx(units[1])
    size = specification(chart)["width"], specification(chart)["height"]
    placed = plots.place_labels(points, labels, ends, size, False)
    assert len(placed) > 40
    boxes = []
    for label in placed:
        wide = plots.LETTER * text_width(label["label"])
        x, y = ((label[axis] - ends[n][0]) / units[n] for n, axis in enumerate("xy"))
        left = {"left": x, "right": x - wide, "center": x - wide / 2}[label["align"]]
        boxes.append((left, y - plots.LINE / 2, left + wide, y + plots.LINE / 2))
    for one, two in combinations(boxes, 2):
        assert one[0] >= two[2] - 1e-6 or two[0] >= one[2] - 1e-6 or one[1] >= two[3] - 1e-6 or two[1] >= one[3] - 1e-6
    svg = to_svg(chart)
    assert all(f">{name}<" in svg for name in ("noun", "verb", "word 0"))


def test_the_frontier_is_the_best_for_so_much() -> None:
    points = ((1.0, 3.0), (2.0, 1.0), (3.0, 2.0), (4.0, 0.5))
    lowest = Scatter(title="t", points=points, x="x", y="y", frontier="lowest")
    steps = next(rows for rows in specification(lowest)["datasets"].values() if set(rows[0]) == {"x", "y"})
    assert [(step["x"], step["y"]) for step in steps[:-1]] == [(1.0, 3.0), (2.0, 1.0), (4.0, 0.5)]
    highest = Scatter(title="t", points=points, x="x", y="y", frontier="highest")
    steps = next(rows for rows in specification(highest)["datasets"].values() if set(rows[0]) == {"x", "y"})
    assert {step["y"] for step in steps} == {3.0}


@pytest.mark.parametrize(
    ("times", "places", "is_time"),
    [
        ((1, 2.5), [1.0, 2.5], False),
        (("1970-01-01", "1970-01-01T00:00:01"), [0.0, 1000.0], True),
        (("Q1", "Q2", "Q1"), [0.0, 1.0, 0.0], False),
    ],
)
def test_times_are_numbers_moments_or_in_order(times: Any, places: list[float], is_time: bool) -> None:
    position, moments = plots.time_positions(times)
    assert [position(time) for time in times] == places
    assert moments == is_time


# Cells


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 60), (61, 100), (500, 7)])
def test_heatmaps_of_every_size_name_their_rows(rows: int, columns: int) -> None:
    names = {letter: tuple(f"{letter}{n}" for n in range(count)) for letter, count in (("r", rows), ("c", columns))}
    chart = Heatmap(title="t", rows=names["r"], columns=names["c"], values=((1 / columns,) * columns,) * rows, high=1.0)
    svg = to_svg(chart)
    for letter, count in (("r", rows), ("c", columns)):
        written = re.findall(rf">({letter}\d+…?)<", svg)
        assert len(written) == count if max(rows, columns) <= cells.READABLE else len(written) >= min(count, 7)
    assert ("neighbors averaged" in svg) == (max(rows, columns) > cells.MAX_CELLS)


def test_cells_have_the_values_of_their_panel() -> None:
    values = np.random.default_rng(0).dirichlet(np.ones(4), size=(6, 3))  # six panels of 3 × 4
    panels = {f"head {n}": matrix(values[n]) for n in range(6)}
    chart = HeatmapGrid(title="t", rows=tuple("abc"), columns=tuple("wxyz"), panels=panels, x="to", y="from", high=1.0)
    drawn = {(cell["panel"], cell["row"], cell["column"]): cell["value"] for cell in records(chart, "panel")}
    for (n, line, column), value in np.ndenumerate(values):
        assert drawn.get((f"head {n}", line, column), 0.0) == pytest.approx(value, abs=0.011)
    svg = to_svg(chart)
    assert all(f">head {n}<" in svg for n in range(6))
    assert "down: from; across: to" in svg


@pytest.mark.parametrize(("panels", "size"), [(4, 18), (48, 24), (3, 120)])
def test_grids_of_any_size_fit(panels: int, size: int) -> None:
    names = ("␣", *(f"t{n}" for n in range(size - 2)), "␣the")
    weights = matrix(np.eye(size))
    grid = {f"layer {n // 12} head {n % 12}": weights for n in range(panels)}
    svg = to_svg(HeatmapGrid(title="t", rows=names, columns=names, panels=grid, x="", y=""))
    width = float(re.search(r'width="([\d.]+)"', svg)[1])  # type: ignore[index]
    assert width <= 2 * WIDTH + 140
    assert len(re.findall(r">layer \d+ head \d+<", svg)) == panels
    if size * panels > 100:
        assert "rows from “·” to “·the”" in svg


def test_signs_are_shown_alike_on_both_sides() -> None:
    chart = Heatmap(title="t", rows=("a", "b"), columns=("c", "d"), values=((-2, 1), (0.5, 0)), diverging=True)
    scale = specification(chart)["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [-2.0, 0, 2.0]
    assert scale["range"] == [LIGHT.contrast, LIGHT.pale, LIGHT.accent]
    scale = cells.color_scale(np.array([3.0, 9.0]), None, None, False, LIGHT)
    assert scale.domain == [3.0, 9.0]
    assert cells.color_scale(np.array([2.0]), None, None, False, LIGHT).domain == [0.0, 2.0]
    assert cells.color_scale(np.array([np.nan]), None, None, True, LIGHT).domain == [-1.0, 0, 1.0]


def test_words_are_written_into_cells() -> None:
    texts = ((" the", "<b>"), ("of", "internationally"))
    chart = Heatmap(title="t", rows=("1", "2"), columns=("a", "b"), values=((0.5, 0.25), (0.0, 1.0)), texts=texts)
    svg = to_svg(chart)
    assert all(f">{text}<" in svg for text in ("the", "&lt;b&gt;", "of", "internationally"))


def test_many_classes_are_folded_and_none_is_lost() -> None:
    size = cells.MAX_CLASSES + 20
    counts = tuple(tuple(100 + a if a == b else (a + b) % 2 for b in range(size)) for a in range(size))
    chart = Confusion(title="t", labels=tuple(f"c{n}" for n in range(size)), counts=counts)
    drawn = records(chart, "reference")
    assert len(drawn) == cells.MAX_CLASSES**2
    assert sum(cell["count"] for cell in drawn) == sum(map(sum, counts))
    svg = to_svg(chart)
    assert ">21 others<" in svg
    assert ">c21<" in svg  # the most frequent are kept
    assert ">c20<" not in svg


# Texts


@pytest.mark.parametrize(
    "tokens",
    [["a"], [" the", "\n", " WOMEN,"] * 60, CHINESE * 20, HEBREW * 20, ["", "\t", "x" * 90, "e\u0301", "\x00"]],
    ids=["one", "lines", "Chinese", "Hebrew", "odd"],
)
def test_tokens_of_a_strip_are_in_order_and_never_overlap(tokens: list[str]) -> None:
    chart = TokenStrip(title="t", tokens=tuple(tokens), values=tuple(map(float, range(len(tokens)))), label="n")
    boxes = [box for rows in specification(chart)["datasets"].values() for box in rows if "text" in box]
    boxes = sorted({box["position"]: box for box in boxes}.values(), key=lambda box: int(box["position"]))
    assert len(boxes) == len(tokens)
    right_to_left = tokens[0] == HEBREW[0]
    for one, two in pairwise(boxes):
        if one["y"] == two["y"]:
            assert (two["end"] <= one["x"]) if right_to_left else (one["end"] <= two["x"])
        else:
            assert two["y"] == one["y"] + 28
    assert all(0 <= box["x"] < box["end"] <= 2 * WIDTH + 1e-6 for box in boxes)
    for box, token in zip(boxes[1:], tokens, strict=False):
        assert box["y"] > boxes[0]["y"] or not token.endswith("\n")
    for box in boxes:
        text = box["text"].replace("\u200f", "")
        assert text
        assert not re.search(r"[ \n\t\x00]", text)
        assert box["end"] - box["x"] >= 7.8 * text_width(text)


def test_a_table_can_be_an_image_too() -> None:
    rows = (("rnn", 1_000, 0.98765), ("gpt", None, 2.0))
    table = Table(title="Exponents", note="fitted", columns=("model", "n", "share"), rows=rows)
    svg = to_svg(table)
    assert all(f">{text}<" in svg for text in ("Exponents", "fitted", "Model", "rnn", "1,000", "0.988", "2.000"))
    long = Table(title="t", columns=("a",), rows=tuple((n,) for n in range(100)))
    assert ">… 40 more rows<" in to_svg(long)


# Images


def test_the_bright_part_of_an_image_is_where_the_weights_are() -> None:
    """At the center of each cell, an image of one color is as far from gray as the weight is large."""
    red = PillowImage.new("RGB", (60, 40), (220, 20, 30))
    for weights in WEIGHTS[:2]:
        shares = np.array(weights).reshape(2, 3) / max(weights)
        pixels = np.asarray(cells.highlight(red, np.array(weights).reshape(2, 3)).convert("RGB"), float)
        centers = pixels[np.ix_([10, 30], [10, 30, 50])]
        saturation = (centers[..., 0] - centers[..., 1]) / 200
        gray = 0.3 * 0.5  # what is left of the color without weight
        np.testing.assert_allclose(saturation, gray + (1 - gray) * shares, atol=0.08)


def test_rings_and_boxes_are_where_they_belong() -> None:
    chart = CHARTS["image_overlay"]
    assert isinstance(chart, ImageOverlay)
    datasets = list(specification(chart)["datasets"].values())
    panels = next(rows for rows in datasets if "word" in rows[0])
    assert [panel["region"] for panel in panels] == ["upper left", "lower right", "several places alike"]
    rings = next(rows for rows in datasets if set(rows[0]) == {"x", "y"})
    wide = panels[1]["x"] - panels[0]["x"] - 14
    tall = wide * 40 / 60
    for ring, panel, (across, down) in zip(rings, panels, [(0.5 / 3, 0.25), (2.5 / 3, 0.75)], strict=False):
        assert ring["x"] == pytest.approx(panel["x"] + across * wide)
        assert ring["y"] == pytest.approx(panel["y"] + down * tall)
    assert len(rings) == 2  # none where all cells are alike
    boxes = next(rows for rows in datasets if "bottom" in rows[0])
    assert len(boxes) == 1
    assert boxes[0]["x"] == pytest.approx(panels[1]["x"] + wide / 3)
    assert boxes[0]["end"] == pytest.approx(panels[1]["x"] + wide)
    texts = {text["text"] for rows in datasets for text in rows if "style" in text}
    assert {"a <dog> runs", "70 %", "100 %", "17 %", "−1.25", "a cat", "<dog>"} <= texts


def test_images_keep_their_pixels_or_shrink() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    fitted = np.asarray(cells.fit_image(PillowImage.fromarray(pixels)))
    np.testing.assert_array_equal(fitted, pixels.repeat(4, axis=0).repeat(4, axis=1))
    assert cells.fit_image(PillowImage.new("L", (1200, 300))).size == (480, 120)
    url = cells.image_url(PillowImage.fromarray(pixels))
    decoded = PillowImage.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    np.testing.assert_array_equal(np.asarray(decoded), pixels)


def test_many_words_have_a_panel_each_up_to_a_number() -> None:
    words = tuple(f"w{n}" for n in range(70))
    overlay = CHARTS["image_overlay"]
    assert isinstance(overlay, ImageOverlay)
    chart = ImageOverlay(title="t", image=overlay.image, words=words, grid=(2, 3), weights=(WEIGHTS[0],) * 70)
    values = specification(chart)
    assert len(next(rows for rows in values["datasets"].values() if "word" in rows[0])) == 60
    assert "the first 60 of 70 words" in json.dumps(values["title"])
