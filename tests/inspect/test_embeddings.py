"""Vectors of tokens and positions: equal to what others compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers import SENTENCE, settings_of
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.report.charts import Scatter

TEXTS = ["a fine film", "full of fine light", "fine humour"]


def test_neighbors_are_nearest_by_cosine(make_subject: Any) -> None:
    subject = make_subject("words")
    result = Inspector(subject).neighbors("film light zebra light", top=4)
    table, tokenizer = subject.network.input.weight.detach(), subject.predictor.tokenizer
    names, cosines = result.arrays["neighbors"], result.arrays["cosines"].values
    assert list(names.axes["token"]) == ["film", "light", "<unk>"], "each once"
    for row, token in enumerate(names.axes["token"]):
        index = tokenizer.names.index(token)
        similarity = torch.cosine_similarity(table, table[index : index + 1])
        similarity[index] = -2
        expected = similarity.topk(4)
        assert names.values[row].tolist() == [tokenizer.token(other) for other in expected.indices.tolist()]
        assert cosines[row] == pytest.approx(expected.values.numpy(), abs=1e-6)
    assert result.to_json()["arrays"]["neighbors"]["values"] == names.values.tolist()


def test_neighbors_of_both_sides_of_a_translator(make_subject: Any) -> None:
    subject = make_subject("seq2seq")
    tables = subject.predictor.embedding_tables()
    result = Inspector(subject).neighbors("a film", target="mlif", top=2)
    assert list(result.arrays) == ["source neighbors", "source cosines", "target neighbors", "target cosines"]
    assert np.array_equal(tables[0].vectors, subject.network.source.weight.detach().numpy())
    assert [table.side for table in tables] == ["source", "target"][: len(tables)]


def test_a_projection_has_the_largest_variances(make_subject: Any) -> None:
    subject = make_subject("words")
    known = [word for word in SENTENCE if word in subject.predictor.tokenizer.names]
    assert len(known) > 12, "more than are drawn among their neighbors"
    text = " ".join(known)
    result = Inspector(subject).projection(text)
    points, names = result.arrays["points"].values, list(result.arrays["points"].axes["token"])
    assert names == known
    ids = [subject.predictor.tokenizer.names.index(name) for name in names]
    vectors = subject.network.input.weight.detach().double().numpy()[ids]
    largest = np.sort(np.linalg.eigvalsh(np.cov(vectors.T, bias=True)))[::-1][:2]
    assert points.var(axis=0) == pytest.approx(largest, rel=1e-5)
    assert np.cov(points.T)[0, 1] == pytest.approx(0, abs=1e-6)
    assert f"{100 * largest.sum() / vectors.var(axis=0).sum():.0f} %" in result.notes[0]


def test_few_tokens_are_drawn_among_their_neighbors(make_subject: Any) -> None:
    inspector = Inspector(make_subject("words"))
    near = inspector.neighbors("film", top=6).arrays["neighbors"].values[0].tolist()
    chart = inspector.projection("film").charts[0]
    assert isinstance(chart, Scatter)
    assert list(chart.labels) == ["film", *near]
    assert list(chart.groups) == ["of the text"] + ["nearest to them"] * 6


def test_words_of_the_vocabulary_without_a_text(make_subject: Any) -> None:
    labels = Inspector(make_subject("words")).projection(top=5).charts[0].labels
    assert len(labels) == 5
    assert all(name.isalpha() and len(name) > 1 for name in labels)


def test_a_word_in_its_contexts(make_subject: Any) -> None:
    subject = make_subject("words")
    result = Inspector(subject).context(*TEXTS, word="fine")
    expected = subject.predictor.word_vectors("fine", TEXTS)
    assert np.array_equal(result.arrays["contextual"].values, expected.contextual)
    cosines = result.arrays["contextual cosines"].values
    assert cosines == pytest.approx(expected.contextual @ expected.contextual.T, abs=1e-6)
    assert result.arrays["static cosines"].values == pytest.approx(np.ones((3, 3)), abs=1e-6)
    assert list(result.arrays["static"].axes["occurrence"]) == TEXTS
    assert "on average 1 without context" in result.charts[2].note
    with pytest.raises(SeriatimError, match="none is named"):
        Inspector(subject).context(*TEXTS)


def test_models_without_vectors(make_subject: Any) -> None:
    for name in ("neighbors", "projection", "context"):
        with pytest.raises(SeriatimError, match="lstm is not trained"):
            Inspector("lstm").show(name, "a text")
        with pytest.raises(SeriatimError, match="ngram is not a network"):
            Inspector("ngram").show(name, "a text")
    inspector = Inspector(make_subject("words"))
    for view, options, code in (
        ("neighbors", {"top": 0}, "inspect.top"),
        ("neighbors", {"target": "x"}, "inspect.target"),
        ("projection", {"target": "x"}, "inspect.target"),
    ):
        with pytest.raises(SeriatimError) as caught:
            inspector.show(view, "film", **options)
        assert caught.value.code == code
    with pytest.raises(SeriatimError, match="no text"):
        inspector.neighbors()


# Positions


def test_sinusoids_are_similar_by_distance_alone() -> None:
    subject = Subject("transformer", settings_of(("transformer", {"width": 16, "heads": 2})))
    result = Inspector(subject).positions()
    positions, numbers = np.arange(512), np.arange(8)
    angles = positions[:, None] / 10_000 ** (2 * numbers / 16)
    expected = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(512, 16)
    assert result.arrays["vectors"].values == pytest.approx(expected, abs=1e-6)
    for row in result.arrays["by distance"].values:  # mean and quantiles: all pairs are alike
        assert row == pytest.approx(np.cos(angles).mean(axis=1), abs=1e-5)


def test_learned_positions(make_subject: Any) -> None:
    subject = make_subject("gpt")
    result = Inspector(subject).positions()
    table = subject.backbone.positions.weight.detach()
    assert np.array_equal(result.arrays["vectors"].values, table.numpy())
    cosines = torch.cosine_similarity(table[:, None], table[None], dim=2).numpy()
    assert result.arrays["cosines"].values == pytest.approx(cosines, abs=1e-6)
    pairs = [cosines[i, j] for i in range(24) for j in range(24) if j - i == 3]
    assert result.arrays["by distance"].values[0, 3] == pytest.approx(np.mean(pairs), abs=1e-6)
    assert result.title.endswith("learned")
    assert Inspector("gpt").positions().title.endswith("before training")
    for name in ("lstm", "tcn", "mlp", "seq2seq"):
        with pytest.raises(SeriatimError, match=f"{name} has no position vectors"):
            Inspector(name).positions()
