"""Measures of captions: BLEU and CIDEr are those of pycocoevalcap, pointing is what one counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer

from seriatim.core.measures import main, shown
from seriatim.tasks import _pointing
from seriatim.tasks._caption_scores import Grams, bleus, ciders, judged, words
from seriatim.tasks._pointing import placed, pointed, pointing

SENTENCES = st.lists(st.sampled_from(["a", "dog", "cat", "red", "runs"]), max_size=9)
PARTS = st.lists(st.tuples(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=4)), min_size=1, max_size=6)


def coco(said: list[list[str]], references: list[list[list[str]]]) -> tuple[list[float], np.ndarray]:
    """What COCO's evaluation says."""
    bleu, cider = BleuScorer(n=4), CiderScorer(n=4)
    for one, some in zip(said, references, strict=True):
        texts = [" ".join(reference) for reference in some]
        bleu += (" ".join(one), texts)
        cider += (" ".join(one), texts)
    return bleu.compute_score(option="closest")[0], cider.compute_score()[1]


def equal(said: list[list[str]], references: list[list[list[str]]]) -> None:
    table = Grams.of(said, references)
    their_bleu, their_cider = coco(said, references)
    np.testing.assert_allclose(bleus(table), their_bleu, rtol=1e-12, atol=0)
    np.testing.assert_allclose(ciders(table), their_cider, rtol=0, atol=1e-9)


@settings(max_examples=300, deadline=None)
@given(PARTS)
def test_bleu_and_cider_are_those_of_coco(part):
    said, references = [one for one, _ in part], [some for _, some in part]
    if not any(word for some in references for one in some for word in one):
        references[0][0] = ["dog"]  # pycocoevalcap cannot do without a single word
    equal(said, references)


def test_bleu_and_cider_of_many_captions_are_those_of_coco():
    """Words as unevenly common as in life, captions that are close to their references."""
    draw = np.random.default_rng(3)
    vocabulary = [f"w{n}" for n in range(300)]

    def sentence() -> list[str]:
        return [vocabulary[min(int(n), 299)] for n in draw.zipf(1.5, int(draw.integers(1, 15)))]

    references = [[sentence() for _ in range(draw.integers(1, 6))] for _ in range(300)]
    said = [list(some[0][: draw.integers(0, 15)]) + sentence()[:3] for some in references]
    equal(said, references)


@pytest.mark.parametrize(
    ("said", "references"),
    [
        (["dog"], [["dog"]]),  # alone, every word is in every picture: CIDEr is 0
        (["", "a dog"], [["a cat"], ["a dog", ""]]),
        (["a a a a a a a", "b"], [["a a", "a"], ["b b b b"]]),
        (["the cat sat", "the dog ran"], [["the cat sat"], ["the dog ran"]]),
        (["one two three", "x"], [["one two", "one two three four"], ["x"]]),  # two references equally close
    ],
)
def test_odd_captions(said, references):
    equal([one.split() for one in said], [[one.split() for one in some] for some in references])


def test_bleu_4_is_that_of_sacrebleu():
    from sacrebleu.metrics import BLEU

    references = [["a red circle above a blue square", "a circle over a square"], ["two green stars", "stars"]]
    said = ["a red circle above a square", "two green stars and one"]
    measure = BLEU(tokenize="none", smooth_method="none", force=True)
    streams = [[some[place] for some in references] for place in range(2)]
    theirs = measure.corpus_score(said, streams).score
    assert theirs > 10
    assert judged(said, references)["bleu4"] == pytest.approx(theirs, abs=1e-6)


def test_each_picture_needs_a_reference():
    with pytest.raises(ValueError, match="at least one reference"):
        Grams.of([["a"], ["b"]], [[["a"]], []])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A dog, running.", "a dog running"),
        ("The man's T-shirt -- it's 3.5 m (wide)!", "the man's t-shirt it's 3.5 m wide"),
        ("'quoted' “words” … and/or 10:30, a,b", "quoted words and or 10:30 a b"),
        ("Zwei Vögel; ein Café\n", "zwei vögel ein café"),
        ("Cafe\u0301", "café"),
        ("हिन्दी शब्द।", "हिन्दी शब्द"),
        ("两只狗。", "两 只 狗"),
        ("  ", ""),
    ],
)
def test_words(text, found):
    assert words(text) == found.split()


def test_all_measures_with_their_signatures():
    said = ["A red circle.", "a blue square", "a star"]
    references = [["a red circle", "A red circle."], ["a green square"], ["a star", "one star"]]
    found = judged(said, references, closed=True)
    assert list(found) == ["exact_match", "cider", "bleu4", "bleu3", "bleu2", "bleu1", "captions"]
    assert found["exact_match"] == pytest.approx(2 / 3)
    assert found["captions"] == 3
    assert found["bleu1"] == pytest.approx(100 * 7 / 8)
    assert found.signatures["bleu4"] == "coco|refs:all|case:lc|punctuation:off|words:seriatim|len:closest"
    assert main(found) == "exact_match"
    assert main(judged(said, references)) == "cider"
    assert shown("bleu4", 41.23) == "41.2"
    assert shown("pointing_mass", 0.5) == "50.0 %"


# Pointing: a grid of 2 × 3 cells over a picture 40 high and 60 wide, so cells of 20 × 20 pixels.

GRID, SIZE = (2, 3), (40, 60)
LEFT_ABOVE = (5.0, 5.0, 15.0, 15.0)


def test_the_peak_lies_in_the_box_or_not():
    weights = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]])
    boxes = [(0, "dog", LEFT_ABOVE), (1, "cat", LEFT_ABOVE)]
    dog, cat = pointed(weights, [[0], [1]], GRID, SIZE, boxes)
    assert (dog.hit, cat.hit) == (1.0, 0.0)
    assert dog.mass == pytest.approx(0.5 / 4)  # a quarter of its cell
    assert cat.mass == pytest.approx(0.1 / 4)
    assert dog.area == pytest.approx(100 / 2400)
    assert dog.chance == 1 / 6
    assert pointing([dog, cat]) == {
        "pointing": 0.5,
        "pointing_mass": pytest.approx(0.075),
        "nouns": 2.0,
    }


def test_edges_of_a_box():
    """The centre of the cell at the left above is (10, 10)."""
    weights = np.array([[1.0, 0, 0, 0, 0, 0]])

    def hit(box):
        return pointed(weights, [[0]], GRID, SIZE, [(0, "dog", box)])[0].hit

    assert hit((10, 10, 11, 11)) == 1
    assert hit((0, 0, 10, 20)) == 0
    assert hit((0, 0, 20, 10)) == 0
    assert hit((10.1, 0, 20, 20)) == 0
    assert hit((-5, -5, 100, 100)) == 1


def test_pieces_and_words_of_a_noun_look_together():
    """The first piece looks at cell 0, the second and the second word at cell 2: with their mean it is that."""
    weights = np.eye(6)[[4, 0, 2, 2]]
    groups = [[0], [1, 2], [3]]
    found = pointed(weights, groups, GRID, SIZE, [(1, "traffic light", (40, 0, 60, 20)), (0, "a", LEFT_ABOVE)])
    assert [one.hit for one in found] == [1.0, 0.0]
    assert found[0].mass == pytest.approx(2 / 3)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.floats(0, 70), min_size=2, max_size=2, unique=True),
    st.lists(st.floats(0, 50), min_size=2, max_size=2, unique=True),
)
def test_weights_that_tell_nothing_reach_chance(height, width, across, down):
    (left, right), (top, bottom) = sorted(across), sorted(down)
    weights = np.full((1, height * width), 1 / (height * width))
    (one,) = pointed(weights, [[0]], (height, width), SIZE, [(0, "dog", (left, top, right, bottom))])
    assert one.hit == pytest.approx(one.chance)
    assert one.mass == pytest.approx(one.area)
    area = (min(right, 60) - min(left, 60)) * (min(bottom, 40) - min(top, 40)) / 2400
    assert one.area == pytest.approx(area, abs=1e-12)


def test_baselines_of_pointing():
    weights = np.eye(6)
    boxes = [(0, "dog", (0, 0, 40, 20)), (1, "cat", (20, 0, 60, 20)), (2, "bird", (0, 0, 5, 5))]
    found = pointed(weights, [[0], [1], [2]], GRID, SIZE, boxes)
    assert _pointing.baselines(found) == {
        "any cell": {"pointing": pytest.approx(4 / 18), "pointing_mass": pytest.approx((800 + 800 + 25) / 2400 / 3)},
        "one cell for all": {"pointing": pytest.approx(2 / 3)},
    }
    assert _pointing.reachable(found) == pytest.approx(2 / 3)  # no centre lies in the box of the bird
    assert pointing([]) == _pointing.baselines([]) == {}


def test_weights_must_fit_the_grid():
    with pytest.raises(ValueError, match=r"2 × 3 cells"):
        pointed(np.ones((1, 5)), [[0]], GRID, SIZE, [])


def test_nouns_are_found_in_order():
    said = words("A circle above a Circle and a traffic light")
    named = [
        ("circle", (0, 0, 1, 1)),
        ("circle", (1, 1, 2, 2)),
        ("traffic light", (2, 2, 3, 3)),
        ("star", (3, 3, 4, 4)),
    ]
    assert [(place, box[0]) for place, _, box in placed(said, named)] == [(1, 0), (4, 1), (7, 2)]
