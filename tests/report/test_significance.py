"""Tests of differences equal those of scipy and sacreBLEU, and statsmodels' definition of Holm's method."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from seriatim.core.metrics import ExampleScores
from seriatim.data.entities import score_entities
from seriatim.report.significance import (
    combine,
    format_p,
    holm,
    incomplete_beta,
    mcnemar,
    randomization,
    t_tails,
    two_shares,
    welch,
)
from seriatim.tasks.metrics import bleu, bleu_counts, mean_scores, multi_label_metrics


@pytest.mark.parametrize("degrees", [0.5, 1.0, 2.0, 2.7, 4.0, 17.3, 1e4])
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, -1.0, 2.5, 12.0, 400.0])
def test_students_distribution(t: float, degrees: float) -> None:
    assert t_tails(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), rel=1e-9, abs=1e-300)


def test_the_incomplete_beta_function() -> None:
    random = np.random.default_rng(0)
    for x, a, b in zip(random.random(200), *random.uniform(0.1, 50, (2, 200)), strict=True):
        assert incomplete_beta(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-9, abs=1e-290)
    assert [incomplete_beta(x, 2.0, 3.0) for x in (0.0, 1.0)] == [0.0, 1.0]


def test_welch() -> None:
    random = np.random.default_rng(1)
    for count, other in ((2, 2), (3, 3), (3, 10), (20, 5)):
        a, b = random.normal(0, 1, count).tolist(), random.normal(0.5, 3, other).tolist()
        assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)
        assert welch(a, [0.25]) == pytest.approx(stats.ttest_1samp(a, 0.25).pvalue, rel=1e-9)
        assert welch([0.25], b) == welch(b, [0.25])
        for scale in (2.0**600, 2.0**-600):  # whose squares are no numbers
            assert welch([scale * value for value in a], [scale * value for value in b]) == welch(a, b)


def test_what_does_not_vary_cannot_be_tested() -> None:
    assert welch([1.0, 1.0], [2.0, 2.0]) is None
    assert welch([1.0], [2.0]) is None
    assert welch([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_shares_of_examples() -> None:
    table = [[840, 160], [800, 200]]
    assert two_shares(0.84, 0.80, 1000) == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)
    assert two_shares(1.0, 1.0, 10) == two_shares(0.0, 0.0, 10) == 1.0


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 0), (1, 6), (12, 30), (30, 12), (410, 350), (7, 7)])
def test_mcnemar_is_the_binomial_test_of_what_one_has_right(first: int, second: int) -> None:
    a = mean_scores([1] * first + [0] * second + [1, 0, 1])
    b = mean_scores([0] * first + [1] * second + [1, 0, 1])
    expected = stats.binomtest(first, first + second).pvalue if first + second else 1.0
    assert mcnemar(a, b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.4])
def test_randomization_of_a_mean(shift: float) -> None:
    random = np.random.default_rng(3)
    a, b = random.gamma(2.0, size=(2, 120))
    b += shift
    expected = stats.permutation_test(
        (a, b), lambda x, y: x.mean() - y.mean(), permutation_type="samples", n_resamples=5000, rng=4
    ).pvalue
    assert randomization(mean_scores(a), mean_scores(b)) == pytest.approx(expected, abs=0.04)  # scipy doubles a tail


def translations(seed: int, noise: float) -> list[str]:
    """Returns sentences of which a share of the words is wrong."""
    random = np.random.default_rng(seed)
    words = np.array(REFERENCES[0].split())
    return [" ".join(w if random.random() > noise else random.choice(words) for w in r.split()) for r in REFERENCES]


WORDS = ["the", "a", "cat", "dog", "mat", "sat", "ran", "on", "to", "and", "big", "red"]
RANDOM_WORDS = np.random.default_rng(0).choice(WORDS, (150, 9))
REFERENCES = [" ".join(row) for row in RANDOM_WORDS]


@pytest.mark.parametrize("noise", [0.2, 0.23, 0.3])
def test_randomization_of_bleu_is_that_of_sacrebleu(noise: float) -> None:
    significance, metrics = pytest.importorskip("sacrebleu.significance"), pytest.importorskip("sacrebleu.metrics")
    systems = [("a", translations(1, 0.2)), ("b", translations(2, noise))]
    test = significance.PairedTest(
        systems, {"BLEU": metrics.BLEU(references=[REFERENCES])}, None, test_type="ar", n_samples=3000
    )
    expected = test()[1]["BLEU"][1].p_value
    scores = [ExampleScores("bleu", bleu_counts(texts, [[r] for r in REFERENCES])) for _, texts in systems]
    assert randomization(*scores) == pytest.approx(expected, abs=0.03)


def test_metrics_follow_from_the_sums_over_examples() -> None:
    references = [[text] for text in REFERENCES]
    for texts in (translations(1, 0.2), translations(1, 0.9), ["no such words"] * 150, ["the"] * 150, [""] * 150):
        sums = bleu_counts(texts, references).sum(axis=0)[None]
        assert combine("bleu", sums, 150)[0] == pytest.approx(bleu(texts, references)[0], abs=1e-4)
    random = np.random.default_rng(0)
    metrics = multi_label_metrics(random.normal(size=(40, 5)), random.integers(0, 2, (40, 5)))
    scores = metrics.examples["micro_f1"]
    assert combine(scores.kind, scores.values.sum(axis=0)[None], 40)[0] == pytest.approx(metrics["micro_f1"])
    tags = [["B-A", "O", "B-B", "I-B"], ["O", "O"]], [["B-A", "B-A", "B-B", "O"], ["O", "O"]]
    score, _ = score_entities(*tags)
    assert combine("f1", np.array([[score.correct, score.predicted, score.reference]]), 2)[0] == pytest.approx(score.f1)
    assert combine("ratio", np.array([[3.0, 4.0]]), 1)[0] == 0.75


def test_scores_have_the_width_of_their_kind() -> None:
    with pytest.raises(ValueError, match="none of a bleu"):
        ExampleScores("bleu", np.zeros((3, 1)))


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_a_value_near_the_level_is_written_on_its_side() -> None:
    assert [format_p(p) for p in (math.exp(-20), 0.0009, 0.0491, 0.0512, 0.42)] == [
        "p < 0.001", "p < 0.001", "p = 0.049", "p = 0.051", "p = 0.42",
    ]  # fmt: skip
