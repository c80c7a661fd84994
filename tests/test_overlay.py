"""Pictures of where a captioner looked: what is drawn is what was given, in every form it is saved in."""

from __future__ import annotations

import base64
import io
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from seriatim.core.errors import SeriatimError
from seriatim.report import _pixels, looks
from seriatim.report.overlay import drawing, save
from seriatim.report.views import _parts, stacked

SVG = "{http://www.w3.org/2000/svg}"


def png(pixels: np.ndarray) -> str:
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return base64.b64encode(held.getvalue()).decode()


def image(address: str) -> np.ndarray:
    """The pixels of an address that is the picture itself."""
    head, _, data = address.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


PIXELS = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
WEIGHTS = [[0.7, 0.1, 0.05, 0.05, 0.05, 0.05], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1 / 6] * 6]
VIEW = {
    "kind": "overlay",
    "title": "dog & cat.png",
    "picture": png(PIXELS),
    "grid": [2, 3],
    "words": ["a", "<dog>", "runs"],
    "weights": WEIGHTS,
    "boxes": [[1, "dog", [20, 0, 60, 40]]],
    "captions": [["a <dog> runs", -1.25], ["a cat", -3.5]],
    "note": "people say: a dog",
}


def root_of(view: dict) -> ElementTree.Element:
    return ElementTree.fromstring(drawing(view)[0])


def test_the_light_of_a_word_is_its_weights():
    """At the centre of each cell the light is the weight over the largest of the word."""
    lights = [
        mask.find(f"{SVG}image").get("href") for mask in root_of(VIEW).iter(f"{SVG}mask") if mask.get("id") != "key"
    ]
    assert len(lights) == 3
    for address, row in zip(lights, WEIGHTS, strict=True):
        found = image(address)
        height, width = found.shape
        assert width / height == pytest.approx(60 / 40, rel=0.02)
        rows = [int((i + 0.5) * height / 2) for i in range(2)]
        columns = [int((j + 0.5) * width / 3) for j in range(3)]
        at_centres = found[np.ix_(rows, columns)].ravel() / 255
        np.testing.assert_allclose(at_centres, np.array(row) / max(row), atol=0.06)


def test_rings_and_boxes_stand_where_they_belong():
    """A ring at each peak, none where all is alike, and one in the key; the box on the panel of its word alone."""
    root = root_of(VIEW)
    panels = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    assert [panel.find(f"{SVG}title").text for panel in panels] == [
        "a: 70 % upper left",
        "<dog>: 100 % lower right",
        "runs: 17 % at several places alike",
    ]
    masks = [
        {name: float(panel.find(f"{SVG}mask").get(name)) for name in ("x", "y", "width", "height")} for panel in panels
    ]
    wanted = [(0.5 / 3, 0.25), (2.5 / 3, 0.75)]
    for panel, mask, (across, down) in zip(panels, masks, wanted, strict=False):
        ring = panel.find(f"{SVG}circle")
        assert float(ring.get("cx")) == pytest.approx(mask["x"] + across * mask["width"], abs=0.01)
        assert float(ring.get("cy")) == pytest.approx(mask["y"] + down * mask["height"], abs=0.01)
    assert panels[2].find(f"{SVG}circle") is None
    dashed = [[one for one in panel.iter(f"{SVG}rect") if one.get("stroke-dasharray")] for panel in panels]
    assert [len(some) for some in dashed] == [0, 1, 0]
    (box,) = dashed[1]
    assert float(box.get("x")) == pytest.approx(masks[1]["x"] + masks[1]["width"] / 3, abs=0.01)
    assert float(box.get("width")) == pytest.approx(masks[1]["width"] * 2 / 3, abs=0.01)
    assert float(box.get("height")) == pytest.approx(masks[1]["height"], abs=0.01)


def test_the_picture_is_there_once_and_whole():
    """A small one is enlarged by whole numbers: each of its pixels is a square of the same colour."""
    kept = {one.get("id"): image(one.get("href")) for one in root_of(VIEW).iter(f"{SVG}image") if one.get("id")}
    assert list(kept) == ["clear", "faded"]
    times = -(-_pixels.SMALLEST // 60)
    np.testing.assert_array_equal(kept["clear"], PIXELS.repeat(times, axis=0).repeat(times, axis=1))
    assert kept["faded"].astype(float).std() < 0.3 * PIXELS.astype(float).std()


def test_a_large_picture_is_made_smaller():
    large = png(np.zeros((300, 1200), np.uint8))
    view = {"kind": "overlay", "title": "t", "picture": large, "captions": [["nothing", -1.0]]}
    root = root_of(view)
    assert image(next(root.iter(f"{SVG}image")).get("href")).shape == (120, 480, 3)
    assert not list(root.iter(f"{SVG}mask"))  # a model that does not tell where it looked
    assert drawing(view)[1] == "t: a picture with the caption “nothing”."


def test_listeners_hear_where_each_word_looked():
    svg, spoken = drawing(VIEW)
    assert spoken == (
        "dog & cat.png: a picture with the caption “a <dog> runs”; where each word looked most: "
        "a – upper left (70 %); <dog> – lower right (100 %); runs – at several places alike (17 %)."
    )
    assert ElementTree.fromstring(svg).get("aria-label") == spoken


def test_every_form_is_saved(tmp_path):
    for ending in ("html", "svg", "png", "json"):
        save(VIEW, tmp_path / f"x.{ending}")
    page = (tmp_path / "x.html").read_text()
    assert not re.search(r"(?:src|href)=\"(?!data:image/png;base64,|#)|https?://|<script|url\((?!#)", page)
    assert "img-src data:" in page
    assert "a &lt;dog&gt; runs" in page
    names = re.findall(r'\bid="([^"]*)"', page)
    assert len(set(names)) == len(names)
    assert set(re.findall(r'href="#([^"]*)"', page)) | set(re.findall(r"url\(#([^)]*)\)", page)) <= set(names)
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    picture = Image.open(tmp_path / "x.png").convert("RGB")
    assert picture.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
    about = json.loads((tmp_path / "x.json").read_text())
    assert about["weights"] == WEIGHTS
    assert "picture" not in about
    with pytest.raises(SeriatimError, match=r"\.pdf"):
        save(VIEW, tmp_path / "x.pdf")


def test_the_peak_is_bright_and_the_rest_grey(tmp_path):
    """As it is painted: of a red picture, the lower right is red in the panel of a word that looked there alone."""
    red = np.full((40, 60, 3), (220, 20, 30), np.uint8)
    view = {k: v for k, v in VIEW.items() if k != "boxes"} | {"picture": png(red)}
    save(view, tmp_path / "x.png")
    save(view, tmp_path / "x.svg")
    painted = np.asarray(Image.open(tmp_path / "x.png").convert("RGB")).astype(int)
    masks = [
        one for one in ElementTree.parse(tmp_path / "x.svg").getroot().iter(f"{SVG}mask") if one.get("id") == "light1"
    ]
    x, y, width, height = (float(masks[0].get(name)) for name in ("x", "y", "width", "height"))

    def at(across: float, down: float) -> np.ndarray:
        return painted[int(2 * (12 + y + down * height)), int(2 * (12 + x + across * width))]

    # beside the ring at the centre of the cell
    assert np.abs(at(2.5 / 3 + 0.06, 0.75) - (220, 20, 30)).max() < 25
    faded = at(0.5 / 3, 0.25)
    assert faded.max() - faded.min() < 60


def test_parts_of_reports_and_charts(tmp_path):
    """In a report it is a part of the page, and it stands below other pictures where those are asked for."""
    (part,) = _parts([VIEW], "evaluation.json")
    assert part.startswith('<figure class="wide"')
    assert "dog &amp; cat.png" in part
    heat = {"kind": "heat", "title": "Weights", "rows": ["a"], "columns": ["b"], "values": [[3.0]]}
    looks.save(stacked([heat, VIEW]), tmp_path / "both.svg")
    assert "data:image/svg+xml;base64," in (tmp_path / "both.svg").read_text()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"picture": "bm8="}, "no PNG"),
        ({"picture": "not base64!"}, "no PNG"),
        ({"weights": [[1.0]] * 3}, "every cell"),
        ({"weights": WEIGHTS[:2]}, "every word"),
        ({"grid": [0, 6]}, "every cell"),
        ({"boxes": [[0, "dog", [1, 2, 3]]]}, "a left"),
    ],
)
def test_what_cannot_be_drawn_is_told(change, told):
    (part,) = _parts([VIEW | change], "evaluation.json")
    assert "cannot be drawn" in part
    assert told in part


def test_many_words():
    """Each has a panel, up to a number; the picture is still there once."""
    many = VIEW | {"words": [f"w{n}" for n in range(70)], "weights": [WEIGHTS[0]] * 70, "boxes": []}
    svg, _ = drawing(many)
    assert svg.count("<mask") == 60 + 1
    assert "the first 60 of 70 words" in svg
    assert svg.count(image_of(svg)) == 1


def image_of(svg: str) -> str:
    return re.search(r'id="clear"[^>]*href="([^"]*)"', svg)[1]
