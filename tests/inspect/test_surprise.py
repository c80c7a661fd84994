"""Surprise is what the model's own `score` says of a text; orders of n-grams equal those counted by hand."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector


def close(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ["gpt", "plain", "lstm", "ngram", "letters"])
@pytest.mark.parametrize("times", [1, 12])
def test_the_surprise_of_a_text_is_its_score(name: str, times: int, make_subject: Any) -> None:
    subject = make_subject(name)
    text = "\n".join(["a fine film", "dull people"] * times)  # 12 times: longer than the context of the GPT
    surprise = Inspector(subject).surprise(text, top=3).arrays["surprise"]
    scored = subject.predictor.call("score", [text])[0]
    assert list(surprise.axes["token"]) == [token for token, _ in scored["token_log_probabilities"]]
    assert (surprise.values == [-value / math.log(2) for _, value in scored["token_log_probabilities"]]).all()
    assert surprise.values.sum() * math.log(2) == pytest.approx(-scored["log_probability"])


@pytest.mark.parametrize("name", ["gpt", "lstm", "ngram", "letters"])
def test_alternatives_are_the_next_tokens(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    tokenizer = subject.predictor.tokenizer
    text = "a fine film full of light\ndull people will not see"
    ids = subject.predictor.encode_scored(text)[1:]
    for position in (0, 1, len(ids) // 2, len(ids) - 1):
        before = tokenizer.decode(ids[:position]) + (" " if name == "ngram" else "")
        expected = subject.predictor.call("next", [before], top=tokenizer.vocab_size, unit="token")
        probabilities = {one["text"]: one["probability"] for one in expected}
        result = Inspector(subject).surprise(text, position=position, top=4)
        alternatives = result.arrays["alternatives"]
        names = list(alternatives.axes["token"])
        close(alternatives.values, [probabilities[name] for name in names], rtol=1e-4)
        close(alternatives.values[:4], [one["probability"] for one in expected[:4]], rtol=1e-4)
        assert tokenizer.token(int(ids[position])) in names
        assert len(names) in (4, 5)
        p = np.array(list(probabilities.values()))
        close(result.arrays["expected surprise"].values[position], -(p * np.log2(p)).sum(), rtol=1e-4)


@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_a_target_given_its_source(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    source, target = "fine film full", "enif mlif lluf"
    result = Inspector(subject).surprise(source, target=target, position=1, top=5)
    scored = subject.predictor.call("score", [(source, target)])[0]["token_log_probabilities"]
    assert (result.arrays["surprise"].values == [-value / math.log(2) for _, value in scored]).all()
    reading = subject.read(source, target=target)
    with torch.inference_mode():
        probabilities = subject.network(reading.inputs[0], reading.inputs[1][:, :2])[0, -1].softmax(dim=-1)
    close(result.arrays["alternatives"].values[:5], probabilities.topk(5).values, rtol=1e-4)
    own = Inspector(subject).surprise(source).arrays["surprise"]
    assert list(own.axes["token"]) == subject.read(source).predicted


def test_masked_tokens_one_by_one(make_subject: Any) -> None:
    subject = make_subject("pretrain")
    text = "a fine film full of light ."
    result = Inspector(subject).surprise(text, position=2, top=5)
    assert list(result.arrays["surprise"].axes["token"]) == text.split()
    masks = subject.predictor.call("fill", ["a fine [MASK] full of light ."])[0]["masks"][0]
    alternatives = result.arrays["alternatives"]
    assert list(alternatives.axes["token"])[:5] == [one["token"] for one in masks]
    close(alternatives.values[:5], [one["probability"] for one in masks])
    tokens, expected = subject.read(text).inputs, []
    with torch.inference_mode():
        for position in range(1, tokens.shape[1] - 1):
            masked = tokens.clone()
            masked[0, position] = subject.predictor.tokenizer.mask
            scores = subject.network(masked)[0][0][0, position].log_softmax(dim=-1)
            expected.append(-float(scores[tokens[0, position]]))
    close(result.arrays["surprise"].values * math.log(2), expected)
    masked_text = Inspector(subject).surprise("a [MASK] film").arrays["surprise"]
    assert list(masked_text.axes["token"]) == ["a", "film"]
    with pytest.raises(SeriatimError) as caught:
        Inspector(subject).surprise("a fine " * 40)
    assert caught.value.code == "inspect.length"


def test_impossible_and_unknown_tokens_are_noted(make_subject: Any, tmp_path: Path) -> None:
    result = Inspector(make_subject("unsmoothed")).surprise("a fine fine film")
    assert np.isinf(result.arrays["surprise"].values).any()
    assert any("probability 0" in note for note in result.notes)
    result.save(tmp_path / "x.json")
    assert None in json.loads((tmp_path / "x.json").read_text("utf-8"))["arrays"]["surprise"]["values"]
    result.save(tmp_path / "x.svg")
    inspector = Inspector(make_subject("ngram"))
    assert any("not in the vocabulary" in note for note in inspector.surprise("a zebra").notes)
    assert len(inspector.surprise().arrays["surprise"].values) > 20, "its own text"
    assert "Most surprising tokens" in inspector.surprise("a zebra").text


@pytest.mark.parametrize(
    ("name", "texts", "options", "code"),
    [
        ("lstm", ("a fine",), {"position": 6}, "inspect.position"),
        ("lstm", ("a fine",), {"top": 0}, "inspect.top"),
        ("lstm", ("",), {}, "inspect.text"),
        ("lstm", ("a fine",), {"target": "x"}, "inspect.target"),
        ("transformer", (), {}, "inspect.text"),
        ("classify", ("a fine",), {}, "inspect.unavailable"),
    ],
)
def test_what_cannot_be_rated(name: str, texts: Any, options: Any, code: str, make_subject: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector(make_subject(name)).surprise(*texts, **options)
    assert caught.value.code == code


# Orders of n-grams


def training_counts(subject: Any) -> Counter[tuple[int, ...]]:
    tokens = subject.task.stream(subject.data[1].train.items).tolist()
    return Counter(tuple(tokens[start : start + n]) for n in (1, 2, 3) for start in range(len(tokens) - n + 1))


def test_the_order_is_that_of_the_longest_known_ngram(make_subject: Any) -> None:
    subject = make_subject("ngram")
    counts = training_counts(subject)
    text = "a fine film dull light\nfull of people and and warm humour zebra twice"
    ids = subject.predictor.encode_scored(text).tolist()
    boundary, expected = subject.predictor.network.boundary, []
    for position in range(1, len(ids)):
        longest = 1
        for n in (2, 3):
            ngram = ids[position - n + 1 : position + 1]
            if position >= n - 1 and counts[tuple(ngram)] and boundary not in ngram[1:-1]:
                longest = n
        expected.append(longest)
    result = Inspector(subject).backoff(text)
    assert result.arrays["order"].values.tolist() == expected
    assert set(expected) == {1, 2, 3}
    shares = result.arrays["share"].values
    close(shares.sum(axis=1), 1.0)
    assert all((row[order:] == 0).all() for row, order in zip(shares, expected, strict=True))
    assert len(Inspector(subject).backoff().arrays["order"].values) > 20


def test_the_share_of_an_order_by_hand(make_subject: Any) -> None:
    """Kneser and Ney for pairs of letters: (count − D) / count of the first, of the probability of the second."""
    subject = make_subject("letters")
    counts = training_counts(subject)
    ids = subject.predictor.encode_scored("fine film").tolist()
    discount = subject.predictor.network.discounts[1][0]
    followed = Counter(pair[0] for pair in counts.elements() if len(pair) == 2)
    shares = Inspector(subject).backoff("fine film").arrays["share"].values
    for position, (first, second) in enumerate(pairwise(ids)):
        own = max(counts[first, second] - discount, 0) / followed[first]
        total = math.exp(subject.predictor.engine.score(np.array(ids))[position])
        close(shares[position, 1], own / total, rtol=1e-4, atol=1e-6)


def test_smoothing_without_backing_off(make_subject: Any) -> None:
    result = Inspector(make_subject("add-k")).backoff("a fine zebra")
    assert "share" not in result.arrays
    assert "add-k uses the longest known context" in result.notes[0]
    with pytest.raises(SeriatimError, match="not an n-gram model"):
        Inspector(make_subject("lstm")).backoff("a fine")
