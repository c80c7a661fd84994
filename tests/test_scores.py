"""Our measures beside those of scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from seriatim.tasks import _scores
from seriatim.tasks.classify import several_measures

labels = st.integers(2, 5).flatmap(
    lambda size: st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=1, max_size=40).map(
        lambda pairs: (size, np.array(pairs))
    )
)
values = st.lists(st.tuples(st.integers(-3, 3), st.floats(-1e3, 1e3, width=32)), min_size=3, max_size=40)


@settings(max_examples=150, deadline=None)
@given(labels)
def test_confusion_and_f1(case: tuple[int, np.ndarray]) -> None:
    size, pairs = case
    true, given_ = pairs[:, 0], pairs[:, 1]
    counts = _scores.confusion(true, given_, size)
    assert np.array_equal(counts, metrics.confusion_matrix(true, given_, labels=range(size)))
    hits, predicted, real = np.diagonal(counts), counts.sum(axis=0), counts.sum(axis=1)
    ours = _scores.precision_recall(hits, predicted, real)
    theirs = metrics.precision_recall_fscore_support(true, given_, labels=range(size), zero_division=0)
    for one, other in zip(ours, theirs, strict=False):
        np.testing.assert_allclose(one, other, atol=1e-12)
    wanted = metrics.f1_score(true, given_, average="macro", zero_division=0)
    assert _scores.mean_f1(hits, predicted, real) == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(values)
def test_spearman_and_r_squared(pairs: list[tuple[int, float]]) -> None:
    first = np.array([one for one, _ in pairs], dtype=np.float64)  # many equal ones
    second = np.array([other for _, other in pairs], dtype=np.float64)
    np.testing.assert_allclose(_scores.ranks(first), stats.rankdata(first))
    if len(set(first)) > 1 and len(set(second)) > 1:
        wanted = stats.spearmanr(first, second).statistic
        assert _scores.spearman(first, second) == pytest.approx(wanted, abs=1e-9)
        assert _scores.r_squared(second, first) == pytest.approx(metrics.r2_score(second, first), rel=1e-9, abs=1e-9)
    else:
        assert _scores.spearman(first, second) == 0.0


def test_several_labels_at_once() -> None:
    draw = np.random.default_rng(0)
    scores, true = draw.normal(size=(50, 4)), (draw.random((50, 4)) < 0.4).astype(np.float32)
    found = several_measures(scores, true)
    given_ = scores > 0
    assert found["micro_f1"] == pytest.approx(metrics.f1_score(true, given_, average="micro"))
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(true, given_, average="macro"))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(true, given_))
    p = 1 / (1 + np.exp(-scores))
    assert found["loss"] == pytest.approx(np.mean([metrics.log_loss(true[:, k], p[:, k]) for k in range(4)]), rel=1e-6)
