"""The TF-IDF baseline, against scikit-learn."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from seriatim.core.errors import Diagnostics
from seriatim.core.text import evenly_spaced
from seriatim.data.dataset import Column, Dataset
from seriatim.data.kinds import TEXT
from seriatim.tasks import tfidf
from seriatim.tasks.tfidf import Ngrams, TfidfModel
from task_helpers import prepare_splits

SENTENCE = "the a film plot actor was is not very good bad fine dull long short great poor Été I x"
LINEAR = "TF-IDF with logistic regression"


def make_texts(count: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(SENTENCE.split(), generator.integers(2, 12))) for _ in range(count)]


def dataset(*columns: list[str]) -> Dataset:
    inputs = tuple(Column(f"text {n}", TEXT, np.array(texts, object)) for n, texts in enumerate(columns))
    return Dataset("texts", {"input": inputs}, np.arange(len(columns[0])))


def vectorizer(**options: Any) -> TfidfVectorizer:
    return TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), **options)


def test_vectors_are_those_of_scikit_learn() -> None:
    train, other = make_texts(60), [*make_texts(20, 1), "", "unknown words only", "the unknown film"]
    reference = vectorizer().fit(train)
    ngrams = Ngrams.fit(dataset(train), 10**6)
    assert len(ngrams.keys) == len(reference.vocabulary_)
    for texts in (train, other):
        ours, theirs = ngrams.transform(dataset(texts)).to_dense().numpy(), reference.transform(texts).toarray()
        # the features stand in another order: the scalar products of all texts are the same
        np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-12)


def test_the_most_frequent_ngrams_are_kept() -> None:
    texts = ["aa bb", "aa bb", "aa cc", "dd ee"]
    ngrams = Ngrams.fit(dataset(texts), 3)  # aa, bb, aa bb
    vectors = ngrams.transform(dataset(["aa", "bb", "aa bb", "cc dd"])).to_dense()
    assert (vectors > 0).sum(dim=1).tolist() == [1, 1, 3, 0]


def test_characters_of_texts_without_words() -> None:
    ngrams = Ngrams.fit(dataset(["abc", "abd", "a"]), 100)
    assert not ngrams.words
    grams = {"a", "b", "c", "d", "ab", "bc", "bd", "abc", "abd"}
    assert len(ngrams.keys) == len(grams)


def test_two_texts_have_features_of_their_own() -> None:
    first, second = ["red car", "red bus", "blue car"], ["blue car", "red car", "red bus"]
    train = dataset(first, second)
    ours = Ngrams.fit(train, 100).transform(train).to_dense().numpy()
    theirs = np.concatenate([vectorizer(norm=None).fit_transform(side).toarray() for side in (first, second)], axis=1)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-12)


@pytest.mark.parametrize("outputs", [2, 3])
def test_one_label_is_that_of_scikit_learn(outputs: int) -> None:
    texts, held_out = make_texts(150), make_texts(40, 1)
    classes = np.array([(text.count("good") + 2 * text.count("bad")) % outputs for text in texts])
    targets, loss = (classes[:, None], "sigmoid") if outputs == 2 else (classes, "softmax")
    scores = TfidfModel.fit(dataset(texts), targets, loss).scores(dataset(held_out))
    reference = vectorizer()
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(reference.fit_transform(texts), classes)
    expected = model.decision_function(reference.transform(held_out)).reshape(len(held_out), -1)
    shift = 0.0 if outputs == 2 else 1.0  # softmax scores are the same up to a constant
    ours, theirs = (values - shift * values.mean(axis=1, keepdims=True) for values in (scores, expected))
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_several_labels_and_numbers_are_those_of_scikit_learn() -> None:
    texts, held_out = make_texts(150), make_texts(40, 1)
    labels = np.array([["good" in text, "bad" in text] for text in texts]).astype(np.float32)
    reference = vectorizer()
    train, other = reference.fit_transform(texts), reference.transform(held_out)
    scores = TfidfModel.fit(dataset(texts), labels, "sigmoid").scores(dataset(held_out))
    several = OneVsRestClassifier(LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)).fit(train, labels)
    np.testing.assert_allclose(scores, several.decision_function(other), atol=2e-3)
    numbers = np.array([[text.count("good") - 3.0, 10.0 * text.count("bad")] for text in texts], np.float32)
    values = TfidfModel.fit(dataset(texts), numbers, "squared").scores(dataset(held_out))
    np.testing.assert_allclose(values, Ridge(alpha=1.0).fit(train, numbers).predict(other), atol=1e-2)


def test_the_regularization_is_chosen_by_the_validation_split() -> None:
    texts, other = make_texts(300), make_texts(100, 1)
    targets, references = (np.array([["good" in t] for t in rows], np.float32) for rows in (texts, other))
    fixed = TfidfModel.fit(dataset(texts), targets, "sigmoid")
    chosen = TfidfModel.fit(dataset(texts), targets, "sigmoid", (dataset(other), references))
    losses = [
        float(tfidf.mean_loss(torch.from_numpy(model.scores(dataset(other))), references, "sigmoid"))
        for model in (fixed, chosen)
    ]
    assert losses[1] < 0.5 * losses[0]  # the word alone decides: little regularization is best


def test_large_data_is_sampled_and_scored_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = make_texts(200)
    targets = np.array([["good" in text] for text in texts], np.float32)
    whole = TfidfModel.fit(dataset(texts), targets, "sigmoid")
    monkeypatch.setattr(tfidf, "BLOCK_CHARACTERS", 100)
    assert len(list(tfidf.blocks(dataset(texts)))) > 20
    blockwise = whole.scores(dataset(texts))
    monkeypatch.undo()
    np.testing.assert_allclose(blockwise, whole.scores(dataset(texts)))
    monkeypatch.setattr(tfidf, "MAX_CHARACTERS", sum(map(len, texts)) // 4)
    sampled = TfidfModel.fit(dataset(texts), targets, "sigmoid")
    assert len(sampled.ngrams.keys) < len(whole.ngrams.keys)
    monkeypatch.undo()
    rows = evenly_spaced(len(texts), 49)  # the greatest number with at most a quarter of the characters
    expected = TfidfModel.fit(dataset([texts[row] for row in rows]), targets[rows], "sigmoid")
    np.testing.assert_allclose(sampled.scores(dataset(texts)), expected.scores(dataset(texts)))


def test_classify_and_regress_have_it_as_a_baseline() -> None:
    texts = make_texts(600)
    for names in (["no", "yes"], ["no", "yes", "both"]):
        kinds = [("good" in text) + ("bad" in text and len(names) > 2) for text in texts]
        task, splits = prepare_splits(
            "classify", pd.DataFrame({"text": texts, "label": [names[kind] for kind in kinds]})
        )
        for split in ("validation", "test"):
            baselines = task.baselines(splits, [split])[split]
            assert baselines[LINEAR]["accuracy"] > 0.8 > baselines["most frequent"]["accuracy"]
            assert baselines[LINEAR]["loss"] < baselines["most frequent"]["loss"]
            assert baselines[LINEAR].keys() == baselines["most frequent"].keys()
    several = [[word for word in ("good", "bad") if word in text] for text in texts]
    task, splits = prepare_splits("classify", pd.DataFrame({"text": texts, "label": several}))
    assert task.baselines(splits, ["test"])["test"][LINEAR]["micro_f1"] > 0.9
    amounts = [10.0 + 5.0 * text.count("good") for text in texts]
    task, splits = prepare_splits("regress", pd.DataFrame({"text": texts, "label": amounts}))
    assert task.baselines(splits, ["test"])["test"]["TF-IDF with ridge regression"]["r2"] > 0.6


def test_unusual_texts_do_no_harm() -> None:
    diagnostics = Diagnostics()
    frame = pd.DataFrame({"text": ["!", "?", "。", "!!"] * 10, "label": ["a", "b", "a", "b"] * 10})
    task, splits = prepare_splits("classify", frame, diagnostics=diagnostics)
    assert np.isfinite(task.baselines(splits, ["test"])["test"][LINEAR]["loss"])


def test_numbers_have_none() -> None:
    rows = [{"sequence": [float(n % 3), 1.0], "label": "ab"[n % 2]} for n in range(40)]
    task, splits = prepare_splits("classify", rows)
    assert set(task.baselines(splits, ["test"])["test"]) == {"most frequent"}
