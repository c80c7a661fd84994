"""A text that is typed is read token by token, with the same numbers as at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.live import LiveSubject, TextState

VIEWS = {
    "gpt": ["attention", "entropy", "activations", "lens"],
    "lstm": ["gates", "activations"],
    "gru": ["gates"],
    "rnn": ["gates"],
    "tcn": ["activations"],
    "words": ["attention"],
}
TYPED = ["a", "a fine", "a fine film", "a fine filt", "a fine", "a fine film of light"]  # typed, deleted, typed again


def count_tokens(network: nn.Module) -> list[int]:
    """Returns a list to which the number of tokens of each pass is added."""
    counts: list[int] = []
    network.register_forward_pre_hook(lambda module, inputs: counts.append(inputs[0].shape[1]))
    return counts


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_a_growing_text_equal_those_of_the_whole(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    live = Inspector(subject).live()
    for text in TYPED:
        for view in VIEWS[name]:
            arrays, whole = live.arrays(view, text), Inspector(subject).arrays(view, text)
            assert (arrays.title, arrays.notes, arrays.keys()) == (whole.title, whole.notes, whole.keys())
            for key, array in whole.items():
                assert arrays[key].axes == array.axes
                if not array.is_text:
                    np.testing.assert_allclose(arrays[key].values, array.values, rtol=1e-4, atol=1e-5, err_msg=key)
    assert [chart.title for chart in live.show(VIEWS[name][0], TYPED[-1]).charts]


def test_only_new_tokens_are_read(make_subject: Any) -> None:
    subject = LiveSubject(make_subject("lstm"))
    lengths = [len(subject.read(text).names) for text in TYPED]
    counts = count_tokens(subject.network)
    for text in TYPED:
        subject.next_log_probs(text)
    assert sum(counts) < sum(lengths)
    counts.clear()
    subject.next_log_probs(TYPED[-1])
    assert counts == [], "nothing is new"
    subject.next_log_probs(f"{TYPED[-1]} and")
    assert sum(counts) == len(subject.read(f"{TYPED[-1]} and").names) - lengths[-1]


@pytest.mark.parametrize("name", ["gpt", "plain", "lstm", "gru", "tcn", "words"])
def test_next_tokens_are_those_of_the_predictor(name: str, make_subject: Any) -> None:
    subject = LiveSubject(make_subject(name))
    for text in TYPED:
        log_probs = subject.next_log_probs(text)
        expected = subject.predictor.call("next", [text], unit="token", top=5)
        tokens = {subject.predictor.tokenizer.token(n): value for n, value in enumerate(np.exp(log_probs).tolist())}
        values = {row["text"]: row["probability"] for row in expected}
        assert values == pytest.approx({text: tokens[text] for text in values}, rel=1e-4, abs=1e-6)


def test_a_state_is_a_value_that_two_texts_continue(make_subject: Any) -> None:
    network = make_subject("gpt").network
    ids = list(range(3, 9))
    start = TextState().advance(network, ids[:3])
    one, other = start.advance(network, ids[3:]), start.advance(network, ids[:1:-1])
    again = start.advance(network, ids[3:])
    torch.testing.assert_close(one.output, again.output, rtol=0, atol=0)
    assert start.tokens == tuple(ids[:3])
    assert not torch.equal(one.output[:, 3], other.output[:, 3])
    whole = TextState().advance(network, ids)
    torch.testing.assert_close(one.output, whole.output, rtol=1e-4, atol=1e-5)
    names = one.trace(["attention"])
    assert {name.rpartition(".")[2] for name in names} == {"attention"}
    assert names["layer0.attention"].shape[2:] == (6, 6)


@pytest.mark.parametrize("name", ["classify", "ngram", "transformer"])
def test_other_models_read_every_text_at_once(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    live = Inspector(subject).live()
    view = "surprise" if name == "ngram" else "attention"
    expected = Inspector(subject).arrays(view, "a fine film")
    for key, array in live.arrays(view, "a fine film").items():
        np.testing.assert_array_equal(array.values, expected[key].values)
    with pytest.raises(SeriatimError) as caught:
        live.subjects[0].next_log_probs("a fine")  # type: ignore[attr-defined]
    assert caught.value.code == "inspect.unavailable"
