"""Drawn scenes: what is said is so, what is boxed is there, and it is the same everywhere."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

from seriatim.data import scene_digits, scenes
from seriatim.data._scene_draws import QUARTER, SIDE
from seriatim.data._scene_words import COLOURS, SHAPES, SIZES, Object
from seriatim.data.pictures import Pictures
from seriatim.data.sequences import Examples, Parts
from seriatim.data.sided import sided

NAMES = tuple(COLOURS)
MIRROR = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))


@pytest.fixture(scope="module")
def drawn():
    return scenes.drawn()


@pytest.fixture(scope="module")
def parts():
    return scenes.parts()


def thing(size: str, colour: str, shape: str, x: int, y: int) -> Object:
    radius = {"small": 22, "large": 40}[size]
    return Object(
        SHAPES.index(shape), NAMES.index(colour), SIZES.index(size), radius, 4 * x, 4 * y, list(COLOURS[colour])
    )


def texts(*objects: Object) -> set[str]:
    return {text for text, _ in scenes.said(objects)}


def test_captions_are_what_a_person_says() -> None:
    circle, star = thing("large", "red", "circle", 32, 45), thing("small", "blue", "star", 30, 15)
    ring = thing("small", "orange", "ring", 54, 14)
    assert texts(circle) == {"a large red circle"}
    assert texts(circle, star) == {
        "a large red circle below a small blue star",
        "a small blue star above a large red circle",
    }
    assert texts(star, ring) == {
        "a small blue star to the left of a small orange ring",
        "a small orange ring to the right of a small blue star",
    }
    assert texts(star, ring, circle) == {
        "a small blue star to the left of a small orange ring and above a large red circle",
        "a small blue star above a large red circle and to the left of a small orange ring",
        "a small orange ring to the right of a small blue star and above a large red circle",
        "a small orange ring above a large red circle and to the right of a small blue star",
        "a large red circle below a small blue star and a small orange ring",
        "a large red circle below a small orange ring and a small blue star",
    }


def test_an_article_before_a_vowel() -> None:
    from seriatim.data._scene_words import captions

    assert captions([["orange", "ring"]], [(0, 0)]) == [("an orange ring", [2])]


def test_boxes_hold_exactly_what_is_drawn(drawn) -> None:
    """Each object drawn alone: the pixels that changed reach to every side of its box, and none is outside."""
    for scene, boxes in zip(drawn["test"].scenes[:300], drawn["test"].boxes, strict=False):
        for one, box in zip(scene, boxes, strict=True):
            for paper in (0, 255):  # an object as light as the paper would hide on one of them
                picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
                assert scenes.draw_on(picture, (one,)) == [box]
                rows, columns = np.nonzero((picture != paper).any(axis=2))
                found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
                if paper == 0 and min(one.shade) < 8:  # a sixteenth of it is not seen
                    continue
                assert found == box


def test_the_colour_in_a_box_is_that_of_its_noun(drawn) -> None:
    """The pixels near an object's colour are in its box, and the box has many of them."""
    part = drawn["valid"]
    for scene, picture, boxes in zip(part.scenes[:200], part.pictures, part.boxes, strict=False):
        for one, (left, top, right, bottom) in zip(scene, boxes, strict=True):
            near = (np.abs(picture.astype(int) - one.shade) <= 1).all(axis=2)
            inside = near[top:bottom, left:right]
            assert inside.mean() > 0.1
            assert inside.sum() == near.sum() or any(o != one and o.colour == one.colour for o in scene)


def test_objects_do_not_touch_and_relations_are_clear(drawn) -> None:
    for part in drawn.values():
        for scene, boxes in zip(part.scenes, part.boxes, strict=True):
            assert len({(one.shape, one.colour, one.size) for one in scene}) == len(scene)
            for left, top, right, bottom in boxes:
                assert 0 <= left < right <= SIDE
                assert 0 <= top < bottom <= SIDE
            for i, one in enumerate(scene):
                for j, other in enumerate(scene[:i]):
                    across, down = abs(one.x - other.x), abs(one.y - other.y)
                    assert max(across, down) >= 2 * min(across, down)
                    axis = 0 if across > down else 1
                    first, second = sorted([boxes[i], boxes[j]], key=lambda box: box[axis])
                    assert first[axis + 2] < second[axis]


def test_relations_and_boxes_agree(parts) -> None:
    """A caption read back: the first noun's box lies where the words say, seen from each of the others."""
    said = re.compile(r"(to the left of|to the right of|above|below)")
    test = parts.test
    for text, named in zip(test.targets, test.boxes, strict=True):
        words = text.split()
        assert all(words[one.place] == one.noun for one in named)
        order = sorted(named)
        first, rest = order[0].box, order[1:]
        how = ""
        for before, one in zip(order, rest, strict=False):
            between = " ".join(words[before.place + 1 : one.place])
            how = found[0] if (found := said.findall(between)) else how
            left, top, right, bottom = one.box
            assert {
                "to the left of": first[2] < left, "to the right of": first[0] > right,
                "above": first[3] < top, "below": first[1] > bottom,
            }[how]  # fmt: skip


def test_sizes_differ_clearly(parts) -> None:
    sizes = {"small": [], "large": []}
    for text, named in zip(parts.valid.targets, parts.valid.boxes, strict=True):
        for one in named:
            left, top, right, bottom = one.box
            sizes[text.split()[one.place - 2]].append(max(right - left, bottom - top))
    assert max(sizes["small"]) * 4 < min(sizes["large"]) * 3.5


def test_no_caption_of_several_objects_is_in_two_parts(parts) -> None:
    known = {name: set(parts.part(name).targets) for name in scenes.COUNTS}
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert all(len(text.split()) == 4 for text in known[one] & known[other])
    pictures = {name: {picture.tobytes() for picture in parts.part(name).pictures.values} for name in known}
    assert not pictures["train"] & (pictures["test"] | pictures["valid"])
    assert {name: len(some) for name, some in pictures.items()} == scenes.COUNTS


def test_captions_with_sides_are_not_mirrored(parts) -> None:
    some = parts.valid
    assert [not sided(text) for text in some.targets] == some.mirrored.tolist()
    assert 0.2 < some.mirrored.mean() < 0.8


def test_every_word_is_learnt_from(parts) -> None:
    words = {word for text in parts.train.targets for word in text.split()}
    assert words == {"a", "above", "below", "to", "the", "left", "right", "of", *SHAPES, *NAMES, *SIZES}


def test_the_same_bytes_everywhere(drawn) -> None:
    """What a run was trained on must be made again by another machine, and by another version of NumPy."""
    found = hashlib.sha256()
    for part in drawn.values():
        found.update(part.pictures.tobytes())
        found.update(repr(part.scenes).encode())
    assert found.hexdigest() == "ebf46fde0e0293612ba1b745484a6cc44f31373cd8c21b6fc7e042a6eae8abae"


def test_places_are_quarters_of_pixels(drawn) -> None:
    """Objects stand anywhere, not on a grid that a model could count on."""
    places = {(one.x % QUARTER, one.y % QUARTER) for scene in drawn["valid"].scenes for one in scene}
    assert len(places) == QUARTER**2


# ── digits ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch):
    """Scenes of little "hands" instead of MNIST's: a digit is a block of its own height, so that it is known again."""

    def hands(offset: int) -> Examples:
        values = np.zeros((100, 28, 28), np.uint8)
        for row in range(100):
            values[row, 3 : 8 + row % 10, 5 : 11 + offset] = 255
        return Examples(Pictures.of(values), [str(row % 10) for row in range(100)])

    source = Parts(hands(0), hands(1), hands(2), fingerprint="x")
    monkeypatch.setattr(scene_digits.arrays, "parts", lambda *_: source)
    monkeypatch.setattr(scene_digits, "COUNTS", {"train": 40, "valid": 30, "test": 30})
    return scene_digits.parts()


def test_digits_are_told_by_colour_and_stand_in_their_boxes(digits) -> None:
    for offset, name in enumerate(("train", "valid", "test")):
        part = digits.part(name)
        assert len(set(part.pictures.rows.tolist())) == len(np.unique(part.pictures.rows))
        for row, (text, named) in enumerate(zip(part.targets, part.boxes, strict=True)):
            words = text.split()
            for one in named:
                left, top, right, bottom = one.box
                assert words[one.place] == one.noun
                assert bottom - top == 5 + scene_digits.WORDS.index(one.noun)  # as tall as its hand wrote it
                assert right - left == 6 + offset  # by the hand of this part
                inside = part.pictures[row][top:bottom, left:right].astype(int)
                assert len(np.unique(inside.reshape(-1, 3), axis=0)) == 1  # ink covers it
                assert np.abs(inside[0, 0] - COLOURS[words[one.place - 1]]).max() <= 10
    assert any(text.startswith("an orange ") for text in digits.train.targets)
    assert not any("a orange" in text for text in digits.train.targets)


def test_digits_of_mnist() -> None:
    if not (MIRROR / "mnist").is_dir():
        pytest.skip("needs the files of MNIST")
    parts = scene_digits.parts(str(MIRROR))
    found = hashlib.sha256()
    for name in scenes.COUNTS:
        found.update(parts.part(name).pictures.values.tobytes())
        found.update("\n".join(parts.part(name).targets).encode())
    assert found.hexdigest() == "08795c8dd3ca9ce06938ed447eeefa7a2d42b1764c53e71a6275c15aa46e7130"
