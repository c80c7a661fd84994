"""Charts are values: checked when made, stored as they are, told in words."""

from __future__ import annotations

import base64
import io
import json
import math
import subprocess
import sys
import typing
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage
from pydantic import ValidationError

from report_examples import CHARTS, WEIGHTS
from seriatim.report.charts import (
    Bars,
    Confusion,
    Heatmap,
    Histogram,
    Image,
    Lines,
    PianoRoll,
    Scatter,
    Series,
    Span,
    SpanText,
    Table,
    TokenStrip,
    View,
    embedding_charts,
    format_column,
    matrix,
    row,
    views_from_json,
    views_to_json,
)
from seriatim.report.formatting import fold, principal_components

ALT_TEXTS = {
    "lines": "norm over distance; rnn from 1 to 0, rnn, before from 2 to 2",
    "bars": "MAE; short 0.25, long 0.75",
    "histogram": "4 values of value from 0 to 2; most are between 0 to 1",
    "binned_metric": "bleu by words; one: 1–4 31.2, 5–9 20; two: 5–9 18",
    "heatmap": "2 × 2 cells (target × source); largest 1 at le – <eos>",
    "heatmap_grid": "head 0 largest 1 at a – c; head 0 smallest 0 at a – d; head 1 largest 0.5",
    "scatter": "3 points, predicted over true; mean distance from the diagonal 0.167",
    "token_strip": "bits of 3 tokens; largest “ b\n” 8, “c” 2",
    "confusion": "102 of 115 predictions are correct; most often confused: neg as pos 9×, pos as neg 3×, neutral as",
    "forecast_plot": "2 steps, mean absolute error 3, that of the naive forecast 7.5, 1 of 2 values within 10 % to",
    "piano_roll": "2 notes in 8 frames, from C4 to G4",
    "image_overlay": "a – upper left (70 %); <dog> – lower right (100 %); runs – several places alike (17 %)",
    "image_grid": "2 images: seven",
    "table": "3 rows of label, precision, number, seconds",
}


def test_every_kind_is_tried() -> None:
    assert set(CHARTS) == set(ALT_TEXTS) == {cls.kind for cls in typing.get_args(typing.get_args(View)[0])}


@pytest.mark.parametrize("kind", CHARTS)
def test_charts_are_stored_and_told_in_words(kind: str) -> None:
    chart = CHARTS[kind]
    text = json.dumps(views_to_json([chart]), allow_nan=False)
    assert views_from_json(json.loads(text)) == [chart]
    assert f'"kind": "{kind}"' in text
    assert chart.alt_text.startswith(f"{chart.title}: ")
    assert ALT_TEXTS[kind] in chart.alt_text


def without_values(**fields: Any) -> list[View]:
    return [
        Lines(series=(), x="x", y="y", **fields),
        Bars(labels=(), values=(), x="x", **fields),
        Heatmap(rows=("a",), columns=("b",), values=((None,),), **fields),
        TokenStrip(tokens=(), values=(), label="bits", **fields),
        Scatter(points=(), x="x", y="y", **fields),
        PianoRoll(notes=(), frames=4, **fields),
        Histogram.of(np.array([math.nan]), x="x", **fields),
        Confusion(labels=("a",), counts=((0,),), **fields),
    ]


def test_a_chart_without_values_has_an_alt_text_too() -> None:
    for chart in without_values(title="t"):
        assert chart.alt_text.startswith("t: ")


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("bars", {"values": (1.0,)}, "2 labels, 1 values"),
        ("histogram", {"counts": (1, 2, 3)}, "3 counts, 2 bins"),
        ("binned_metric", {"series": {"": (1.0,)}}, "as many of each"),
        ("heatmap", {"values": ((1.0,),)}, r"not of shape \(2, 2\)"),
        ("heatmap_grid", {"panels": {"x": ((1.0,),)}}, "“x” is not of shape"),
        ("scatter", {"labels": ("a",)}, "3 points, 1 labels"),
        ("token_strip", {"values": (1.0,)}, "3 tokens, 1 values"),
        ("confusion", {"counts": ((1, 2), (3, 4))}, "as many of each"),
        ("forecast_plot", {"actual": (1.0,)}, "1 actual values"),
        ("forecast_plot", {"bands": ({"label": "b", "lower": (1.0,), "upper": (1.0, 2.0)},)}, "1 lower of “b”"),
        ("image_overlay", {"image": "bm8="}, "not base64 of a PNG"),
        ("image_overlay", {"image": "not base64!"}, "not base64 of a PNG"),
        ("image_overlay", {"weights": ((1.0,),) * 3}, "every cell"),
        ("image_overlay", {"weights": WEIGHTS[:2]}, "every word"),
        ("image_overlay", {"grid": (0, 6)}, "every cell"),
        ("image_overlay", {"boxes": ({"word": 0, "noun": "dog", "edges": (1, 2, 3)},)}, "edges"),
        ("table", {"rows": (("pos", 1),)}, "as many cells"),
        ("lines", {"colour": "red"}, "nexpected keyword argument"),
        ("lines", {"series": 7}, "valid tuple"),
    ],
)
def test_wrong_charts_are_refused_when_made(kind: str, changes: dict[str, Any], message: str) -> None:
    values = views_to_json([CHARTS[kind]])[0] | changes
    with pytest.raises(ValidationError, match=message):
        views_from_json([values])


def test_values_that_json_cannot_hold_become_none() -> None:
    nan = math.nan
    table = Table(title="t", columns=("a", "b"), rows=((nan, np.float32(0.5)), (np.int64(3), math.inf)))
    assert table.rows == ((None, 0.5), (3, None))
    assert Series("s", (0, 1), (nan, 1.0)).y == (None, 1.0)
    assert row(np.array([1.23456, nan])) == (1.235, None)
    assert matrix(np.array([[1.0, nan]])) == ((1.0, None),)


def test_spans_are_in_order_and_inside() -> None:
    text = SpanText("Ada met Bob", (Span(0, 3, "PER"), Span(8, 11, "PER", wrong=True)))
    assert str(text) == "[Ada: PER] met [Bob: PER]"
    assert [piece for piece, _ in text.pieces()] == ["Ada", " met ", "Bob"]
    for spans in ((Span(0, 30),), (Span(4, 6), Span(0, 3)), (Span(0, 5), Span(3, 6))):
        with pytest.raises(ValidationError, match="overlap or leave"):
            SpanText("Ada met Bob", spans)


def test_images_are_png_of_the_same_pixels() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 6)
    for array in (pixels, pixels[:, :, None]):
        decoded = PillowImage.open(io.BytesIO(base64.b64decode(Image.from_array(array).png)))
        np.testing.assert_array_equal(np.asarray(decoded), pixels)


def test_columns_have_one_format() -> None:
    assert format_column("F1", [0.815, 0.5, None]) == ["81.5 %", "50.0 %", "–"]
    assert format_column("n", [1_204, 66.0]) == ["1,204", "66"]
    assert format_column("seconds", [12.5, 183.25]) == ["12.5", "183.2"]
    assert format_column("tiny", [1e-6, 2.0]) == ["1·10^−6", "2"]
    assert format_column("x", [None, "a"]) == ["", "a"]
    assert CHARTS["table"].lines()[1:3] == [  # type: ignore[union-attr]
        "pos                  81.5 %      66     12.5",
        "[Ada: PER] wrote          –   1,204    183.2",
    ]  # fmt: skip


# Arrays


def test_folding_keeps_means_and_counts() -> None:
    values = np.arange(10, dtype=float)[None]
    folded, labels = fold(values, [str(n) for n in range(10)], 4, axis=1)
    assert folded.tolist() == [[1.0, 4.0, 6.5, 8.5]]
    assert labels == ["0…", "3…", "6…", "8…"]
    folded, labels = fold(values, [str(n) for n in range(10)], 4, axis=1, keep_first=True)
    assert folded.tolist() == [[0.0, 1.0, 2.0, 42.0]]
    assert labels == ["0", "1", "2", "7 others"]
    assert np.isnan(fold(np.full((1, 4), np.nan), list("abcd"), 2, axis=1)[0]).all()
    same, labels = fold(values, list("abcdefghij"), 10, axis=1)
    assert same is values
    assert labels == list("abcdefghij")


def test_principal_components_keep_distances_and_signs() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(20, 2)) * (3, 1)
    vectors = plane @ np.linalg.qr(rng.normal(size=(8, 8)))[0][:2]
    points, shares = principal_components(vectors)
    apart = np.linalg.norm(vectors[1:] - vectors[0], axis=1)
    np.testing.assert_allclose(np.linalg.norm(points[1:] - points[0], axis=1), apart, rtol=1e-6)
    assert sum(shares) == pytest.approx(1)
    assert (points[np.abs(points).argmax(axis=0), [0, 1]] > 0).all()
    assert principal_components(np.ones((3, 4)))[1] == (0.0, 0.0)


def test_embeddings_have_cosines_and_a_projection() -> None:
    vectors = np.eye(4) + 0.1
    heatmap, scatter = embedding_charts(["a", "b", "c", "d"], vectors)
    assert isinstance(heatmap, Heatmap)
    assert isinstance(scatter, Scatter)
    assert heatmap.values[0][0] == 1.0
    assert heatmap.texts[0][0] == "1.00"
    assert scatter.labels == ("1 a", "2 b", "3 c", "4 d")
    assert scatter.projection
    assert [chart.kind for chart in embedding_charts(["a", "b"], vectors[:2])] == ["heatmap"]
    assert [chart.kind for chart in embedding_charts([str(n) for n in range(40)], np.eye(40))] == ["scatter"]


def test_importing_charts_imports_no_drawing_library() -> None:
    heavy = "{'torch', 'altair', 'jinja2', 'pandas', 'PIL'} & set(sys.modules)"
    code = f"import sys, seriatim.report, seriatim.report.charts; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
