"""Metrics of generated text equal those of sacreBLEU and pycocoevalcap; pointing equals what one counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from sacrebleu.metrics import BLEU

from seriatim.core.metrics import main_metric
from seriatim.tasks.caption.rows import Region, parse_regions, point, pointing_metrics
from seriatim.tasks.text_metrics import (
    Scoring,
    bleu,
    caption_metrics,
    caption_words,
    cider,
    coco_bleu,
    exact_matches,
    sentence_chrf,
    translation_metrics,
)
from seriatim.tasks.translate.pairs import TranslationMemory

# Translations

HYPOTHESES = ["the cat sat on the mat .", "he reads a book", "", "we go home now , together"]
FIRST = ["the cat sat on a mat .", "she reads the book", "nothing", "we go home now , together"]
SECOND = ["a cat sat on the mat .", None, "nothing at all", None]
REFERENCES = [[a] if b is None else [a, b] for a, b in zip(FIRST, SECOND, strict=True)]


def test_translation_metrics_are_those_of_sacrebleu() -> None:
    metrics = translation_metrics(HYPOTHESES, REFERENCES, Scoring())
    assert metrics["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [FIRST]).score
    assert metrics["bleu_all"] == sacrebleu.corpus_bleu(HYPOTHESES, [FIRST, SECOND]).score
    assert metrics["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [FIRST]).score
    assert metrics["exact_match"] == 0.25
    version = f"version:{sacrebleu.__version__}"
    assert metrics.signatures == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}",
        "bleu_all": f"nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}",
    }
    assert "bleu_all" not in translation_metrics(HYPOTHESES, [[a] for a in FIRST], Scoring())
    expected = [sacrebleu.sentence_chrf(a, b).score for a, b in zip(HYPOTHESES, REFERENCES, strict=True)]
    assert sentence_chrf(HYPOTHESES, REFERENCES) == expected
    assert exact_matches(["3", "1", "4"], [["1", "3"], ["2"], ["4"]]) == [True, False, True]


def test_bleu_by_hand() -> None:
    """Of 5 words 4 are right, of 4 pairs 3, of 3 triples 2, of 2 fours 1; one word longer than the reference."""
    value, _ = bleu(["a b c d e"], [["a b c d"]])
    assert value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


@pytest.mark.parametrize(
    ("targets", "characters", "scoring"),
    [
        (["Je ne sais pas.", "Où est-il ?", "Elle dort."], False, Scoring("13a", False)),
        (["我不知道。", "他在哪里?", "她在睡觉。"], False, Scoring("char", False)),
        (["HH AH L OW", "OW L AH HH"] * 100, False, Scoring("13a", True)),  # phonemes
        (["bonjour", "merci", "maison"], False, Scoring("char", True)),  # single words
        (["1999-01-31", "2003-11-02"], True, Scoring("char", True)),  # dates, character by character
        (["a", "b", "a"] * 30, False, Scoring("13a", True)),  # single symbols
        ([], False, Scoring("13a", False)),
    ],
)
def test_scoring_follows_from_the_targets(targets: list[str], characters: bool, scoring: Scoring) -> None:
    assert Scoring.of(targets, characters) == scoring


def test_scripts_without_spaces_are_split_into_characters() -> None:
    hypotheses, references = ["我不知道他"], ["我不知道她"]
    metrics = translation_metrics(hypotheses, [references], Scoring("char", False))
    assert metrics["bleu"] == sacrebleu.corpus_bleu(hypotheses, [references], tokenize="char").score > 0
    assert "tok:char" in metrics.signatures["bleu"]


def test_the_first_metric_of_a_closed_vocabulary_is_the_exact_match() -> None:
    closed = translation_metrics(HYPOTHESES, REFERENCES, Scoring("13a", True))
    assert next(iter(closed)) == main_metric(closed | {"loss": 1.0}, "loss") == "exact_match"
    assert main_metric(translation_metrics(HYPOTHESES, REFERENCES, Scoring()) | {"loss": 1.0}, "loss") == "bleu"


def test_a_translation_memory_finds_the_most_similar_source() -> None:
    memory = TranslationMemory(["the cat sleeps", "the dog sleeps", "the cat sleeps", "no one"], ["A", "B", "C", "D"])
    targets = {"The dog!": "B", "a cat": "A", "xyz": "xyz", "": ""}
    assert {text: memory.nearest_target(text) for text in targets} == targets
    assert TranslationMemory(["我睡觉", "他走路"], ["I sleep", "he walks"]).nearest_target("她走路") == "he walks"


# Captions

SENTENCES = st.lists(st.sampled_from(["a", "dog", "cat", "red", "runs"]), max_size=9)
IMAGES = st.lists(st.tuples(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=4)), min_size=1, max_size=6)


def assert_equal_to_coco(captions: list[list[str]], references: list[list[list[str]]]) -> None:
    bleu_scorer, cider_scorer = BleuScorer(n=4), CiderScorer(n=4)
    for caption, group in zip(captions, references, strict=True):
        texts = [" ".join(reference) for reference in group]
        bleu_scorer += (" ".join(caption), texts)
        cider_scorer += (" ".join(caption), texts)
    expected_bleu = bleu_scorer.compute_score(option="closest")[0]
    np.testing.assert_allclose(coco_bleu(captions, references), expected_bleu, rtol=1e-12, atol=0)
    np.testing.assert_allclose(cider(captions, references), cider_scorer.compute_score()[1], rtol=0, atol=1e-9)


@settings(max_examples=150, deadline=None)
@given(IMAGES)
def test_bleu_and_cider_are_those_of_coco(images: list[tuple[list[str], list[list[str]]]]) -> None:
    captions, references = [caption for caption, _ in images], [group for _, group in images]
    if not any(word for group in references for words in group for word in words):
        references[0][0] = ["dog"]  # pycocoevalcap needs a word
    assert_equal_to_coco(captions, references)


def test_bleu_and_cider_of_many_captions_are_those_of_coco() -> None:
    """Words of realistic frequencies, captions close to their references."""
    generator = np.random.default_rng(3)

    def sentence() -> list[str]:
        return [f"w{min(int(n), 299)}" for n in generator.zipf(1.5, int(generator.integers(1, 15)))]

    references = [[sentence() for _ in range(generator.integers(1, 6))] for _ in range(300)]
    captions = [list(group[0][: generator.integers(0, 15)]) + sentence()[:3] for group in references]
    assert_equal_to_coco(captions, references)


@pytest.mark.parametrize(
    ("captions", "references"),
    [
        (["dog"], [["dog"]]),  # every word is in every image: CIDEr is 0
        (["", "a dog"], [["a cat"], ["a dog", ""]]),
        (["a a a a a a a", "b"], [["a a", "a"], ["b b b b"]]),
        (["one two three", "x"], [["one two", "one two three four"], ["x"]]),  # two references equally close
    ],
)
def test_unusual_captions(captions: list[str], references: list[list[str]]) -> None:
    assert_equal_to_coco(
        [text.split() for text in captions], [[text.split() for text in group] for group in references]
    )


def test_bleu_4_is_that_of_sacrebleu() -> None:
    references = [["a red circle above a blue square", "a circle over a square"], ["two green stars", "stars"]]
    captions = ["a red circle above a square", "two green stars and one"]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    expected = metric.corpus_score(captions, [[group[n] for group in references] for n in range(2)]).score
    assert expected > 10
    assert caption_metrics(captions, references)["bleu4"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
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
def test_caption_words(text: str, words: str) -> None:
    assert caption_words(text) == words.split()


def test_caption_metrics_with_their_signatures() -> None:
    captions = ["A red circle.", "a blue square", "a star"]
    references = [["a red circle", "A red circle."], ["a green square"], ["a star", "one star"]]
    metrics = caption_metrics(captions, references, closed=True)
    assert list(metrics) == ["exact_match", "cider", "bleu4", "bleu3", "bleu2", "bleu1", "captions"]
    assert (metrics["exact_match"], metrics["captions"]) == (pytest.approx(2 / 3), 3)
    assert metrics["bleu1"] == pytest.approx(100 * 7 / 8)
    assert metrics.signatures["bleu4"] == "coco|refs:all|case:lc|punctuation:off|words:seriatim|len:closest"
    assert next(iter(caption_metrics(captions, references))) == "cider"


# Pointing: a grid of 2 × 3 cells over an image 40 high and 60 wide, so cells of 20 × 20 pixels.

GRID, SIZE = (2, 3), (40, 60)
TOP_LEFT = (5.0, 5.0, 15.0, 15.0)


def test_the_largest_weight_lies_in_the_box_or_not() -> None:
    weights = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]])
    nouns = point(weights, [[0], [1]], GRID, SIZE, [Region(0, "dog", TOP_LEFT), Region(1, "cat", TOP_LEFT)])
    assert [noun.hit for noun in nouns] == [1.0, 0.0]
    assert [noun.mass for noun in nouns] == pytest.approx([0.5 / 4, 0.1 / 4])  # a quarter of the cell
    assert nouns[0].chance == 1 / 6
    assert pointing_metrics(nouns) == {"pointing": 0.5, "pointing_mass": pytest.approx(0.075), "nouns": 2.0}
    assert pointing_metrics([]) == {}


@pytest.mark.parametrize(
    ("box", "hit"),
    [
        ((10, 10, 11, 11), 1),  # the center of the first cell is (10, 10)
        ((0, 0, 10, 20), 0),
        ((0, 0, 20, 10), 0),
        ((10.1, 0, 20, 20), 0),
        ((-5, -5, 100, 100), 1),
    ],
)
def test_edges_of_a_box(box: tuple[float, float, float, float], hit: float) -> None:
    weights = np.array([[1.0, 0, 0, 0, 0, 0]])
    assert point(weights, [[0]], GRID, SIZE, [Region(0, "dog", box)])[0].hit == hit


def test_the_tokens_of_a_noun_attend_together() -> None:
    """The first token attends to cell 0, the second and the second word to cell 2: with their mean it is that."""
    weights = np.eye(6)[[4, 0, 2, 2]]
    regions = [Region(1, "traffic light", (40, 0, 60, 20)), Region(0, "a", TOP_LEFT)]
    nouns = point(weights, [[0], [1, 2], [3]], GRID, SIZE, regions)
    assert [noun.hit for noun in nouns] == [1.0, 0.0]
    assert nouns[0].mass == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="2 × 3 cells"):
        point(np.ones((1, 5)), [[0]], GRID, SIZE, [])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.floats(0, 70), min_size=2, max_size=2, unique=True),
    st.lists(st.floats(0, 50), min_size=2, max_size=2, unique=True),
)
def test_uniform_weights_reach_chance(height: int, width: int, across: list[float], down: list[float]) -> None:
    (left, right), (top, bottom) = sorted(across), sorted(down)
    weights = np.full((1, height * width), 1 / (height * width))
    (noun,) = point(weights, [[0]], (height, width), SIZE, [Region(0, "dog", (left, top, right, bottom))])
    assert noun.hit == pytest.approx(noun.chance)
    area = (min(right, 60) - min(left, 60)) * (min(bottom, 40) - min(top, 40)) / 2400
    assert noun.mass == pytest.approx(area, abs=1e-12)


def test_regions_of_a_cell() -> None:
    expected = (Region(1, "dog", (4.0, 8.0, 30.0, 20.0)),)
    assert parse_regions([{"noun": "dog", "position": 1, "box": [4, 8, 30, 20]}]) == expected
    assert parse_regions([{"noun": "dog", "place": 1, "box": [4, 8, 30, 20]}]) == expected
    assert parse_regions([(1, "dog", (4, 8, 30, 20))]) == expected
    for wrong in ([{"noun": "dog"}], [{"noun": "dog", "position": 1, "box": [1, 2]}], 3):
        with pytest.raises((KeyError, ValueError, TypeError)):
            parse_regions(wrong)
