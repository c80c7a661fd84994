"""Metrics beside those of scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from seriatim.tasks import metrics

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
