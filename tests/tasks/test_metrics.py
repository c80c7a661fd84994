"""Metrics beside those of scikit-learn, scipy, sacreBLEU and pycocoevalcap."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from sacrebleu.metrics import BLEU
from scipy import stats
from sklearn import metrics as sklearn_metrics

from seriatim.core.metrics import main_metric
from seriatim.tasks import metrics
from seriatim.tasks.metrics import (
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

LABEL_PAIRS = st.integers(2, 5).flatmap(
    lambda classes: st.lists(
        st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=40
    ).map(lambda pairs: (classes, np.array(pairs)))
)
NUMBER_PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.floats(-1e3, 1e3, width=32)), min_size=3, max_size=40)


@settings(max_examples=100, deadline=None)
@given(LABEL_PAIRS)
def test_confusion_and_f1(case: tuple[int, np.ndarray]) -> None:
    classes, pairs = case
    references, predictions = pairs[:, 0], pairs[:, 1]
    counts = metrics.confusion(references, predictions, classes)
    assert np.array_equal(counts, sklearn_metrics.confusion_matrix(references, predictions, labels=range(classes)))
    of_classes = metrics.class_counts(predictions, references, classes)
    peer = sklearn_metrics.precision_recall_fscore_support(
        references, predictions, labels=range(classes), zero_division=0
    )
    for ours, theirs in zip(metrics.precision_recall_f1(*of_classes), peer, strict=False):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    values = metrics.class_metrics(np.eye(classes)[predictions], references)
    f1 = sklearn_metrics.f1_score(references, predictions, average="macro", zero_division=0)
    assert values["macro_f1"] == pytest.approx(f1, abs=1e-12)
    assert values["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(references, predictions))
    assert values["error"] == pytest.approx(1 - values["accuracy"])


@settings(max_examples=100, deadline=None)
@given(NUMBER_PAIRS)
def test_correlations_and_r_squared(pairs: list[tuple[int, float]]) -> None:
    first = np.array([pair[0] for pair in pairs], dtype=np.float64)  # many equal ones
    second = np.array([pair[1] for pair in pairs], dtype=np.float64)
    np.testing.assert_allclose(metrics.ranks(first), stats.rankdata(first))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert metrics.spearman(first, second) == 0.0
        return
    assert metrics.spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-9)
    assert metrics.r_squared(second, first) == pytest.approx(
        sklearn_metrics.r2_score(second, first), rel=1e-9, abs=1e-9
    )
    if first.std() > 1e-6 and second.std() > 1e-6:
        assert metrics.pearson(first, second) == pytest.approx(stats.pearsonr(first, second).statistic, abs=1e-6)


def test_regression_metrics_are_means_over_the_targets() -> None:
    generator = np.random.default_rng(0)
    references, predictions = generator.normal(size=(2, 30, 2))
    values = metrics.regression_metrics(predictions, references)
    assert values["mse"] == pytest.approx(sklearn_metrics.mean_squared_error(references, predictions))
    assert values["mae"] == pytest.approx(sklearn_metrics.mean_absolute_error(references, predictions))
    assert values["r2"] == pytest.approx(sklearn_metrics.r2_score(references, predictions))
    assert values["examples"] == 30


def test_multi_label_metrics() -> None:
    generator = np.random.default_rng(0)
    logits, references = generator.normal(size=(50, 4)), (generator.random((50, 4)) < 0.4).astype(np.float32)
    values, predicted = metrics.multi_label_metrics(logits, references), logits > 0
    assert values["micro_f1"] == pytest.approx(sklearn_metrics.f1_score(references, predicted, average="micro"))
    assert values["macro_f1"] == pytest.approx(sklearn_metrics.f1_score(references, predicted, average="macro"))
    assert values["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(references, predicted))
    assert values["error"] == pytest.approx(1 - values["micro_f1"])


def test_classes_that_never_occur_do_not_count() -> None:
    predictions, references = np.array([0, 1, 2, 500]), np.array([0, 1, 1, 500])
    counts = metrics.class_counts(predictions, references, 501)
    assert metrics.mean_f1(*counts) == pytest.approx((1 + 2 / 3 + 0 + 1) / 4)


def test_mean_and_std_of_constant_columns() -> None:
    mean, std = metrics.mean_and_std(np.array([[1.0, 3.0], [1.0, 5.0]]))
    assert (mean.tolist(), std.tolist()) == ([1.0, 4.0], [1.0, 1.0])
    assert mean.dtype == std.dtype == np.float32


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
    assert next(iter(closed)) == main_metric({**closed, "loss": 1.0}, "loss") == "exact_match"
    assert main_metric({**translation_metrics(HYPOTHESES, REFERENCES, Scoring()), "loss": 1.0}, "loss") == "bleu"


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
