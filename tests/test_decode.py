"""Greedy decoding, draws and the rules for them by hand; and all ways of decoding through the models."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers import backbones, label, settings_of
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.decode.constraints import no_repeat, repel
from seriatim.decode.options import DecodeSettings, TranslateSettings
from seriatim.decode.sampling import Hypothesis, draw, filtered, sample
from seriatim.nn.network import token_network
from seriatim.tasks._engine import Neural
from seriatim.tasks._speak import Speaker
from truth_table import EOS, Table, random_table


def sampled(table: Table, options: DecodeSettings, rows: int = 1, **arguments: Any) -> list[Hypothesis]:
    streams = [np.random.default_rng(row) for row in range(rows)]
    return sample(table.step, *table.start(rows), options, streams, EOS, **arguments)


def test_greedy_walks_the_garden_path() -> None:
    """After nothing, 2 is a little likelier than 1, but everything after 2 is unlikely."""
    table = Table({(): [0.1, 0.4, 0.5], (1,): [0.9, 0.05, 0.05], (2,): [0.4, 0.3, 0.3]}, 3)
    (found,) = sampled(table, DecodeSettings(temperature=0, max_tokens=5))
    assert found.tokens == [2, 0]
    assert found.finished
    assert found.score == pytest.approx(math.log(0.5 * 0.4))
    assert found.value == pytest.approx(math.log(0.5 * 0.4) / 2)


@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_p": 0.8, "repetition_penalty": 1.5}])
def test_the_rules_hold_for_draws_too(options: dict[str, Any]) -> None:
    """Also: the score is the model's own, that of a given beginning included."""
    table = random_table(3, 5, 6)
    rules = DecodeSettings(max_tokens=6, min_tokens=4, no_repeat_ngram=2, **options)
    prefix, limits = [[], [2, 2, 2], [4], [1, 3, 1, 3]] * 5, [6, 6, 2, 6] * 5
    found = sampled(table, rules, 20, prefix=prefix, limits=limits, forbidden=[4])
    for one, begins, limit in zip(found, prefix, limits, strict=True):
        assert one.tokens[: len(begins)] == begins[:limit]
        assert 4 not in one.tokens[len(begins) :]
        assert one.score == pytest.approx(table.score(one.tokens))
        assert len(one.tokens) <= limit
        assert not one.finished or len(one.tokens) > 4
        runs = list(itertools.pairwise(one.tokens))
        assert all(run not in runs[:place] for place, run in enumerate(runs) if place >= len(begins) - 1)
    assert any(one.finished for one in found)


def test_what_the_rules_leave_nothing_of_ends_as_it_stands() -> None:
    (found,) = sampled(random_table(0, 3, 6), DecodeSettings(max_tokens=6, min_tokens=6, no_repeat_ngram=1))
    assert sorted(found.tokens) == [1, 2]
    assert not found.finished
    assert math.isfinite(found.score)


def test_repeated_runs_by_hand() -> None:
    """−1 is no token: nothing is repeated across it."""
    log_probs = torch.zeros(4, 4)
    past = torch.tensor([[1, 2, 3, 1, 2], [-1, 2, 2, 2, 2], [-1, -1, -1, -1, 3], [3, 1, 2, 3, 2]])
    banned = {1: [{1, 2, 3}, {2}, {3}, {1, 2, 3}], 2: [{3}, {2}, set(), {3}], 3: [{3}, {2}, set(), set()]}
    for size, expected in banned.items():
        left = no_repeat(log_probs, past, size)
        assert [set((row == -math.inf).nonzero()[:, 0].tolist()) for row in left] == expected
    assert (log_probs == 0).all(), "the argument is left as it was"


def test_translating_has_defaults_of_its_own() -> None:
    plain = TranslateSettings()
    assert (plain.beams, plain.length_norm, plain.temperature) == (5, "wu", 0)
    assert TranslateSettings(beams=1).temperature == 0
    assert (TranslateSettings(top_k=3).beams, TranslateSettings(top_k=3).temperature) == (1, 1)
    assert (TranslateSettings(temperature=0.5).beams, TranslateSettings(temperature=0.5).temperature) == (1, 0.5)
    assert TranslateSettings(**plain.model_dump()) == plain
    with pytest.raises(ValueError, match="draws nothing"):
        TranslateSettings(temperature=0.5, beams=5)
    with pytest.raises(ValueError, match="more than max_tokens"):
        DecodeSettings(min_tokens=5, max_tokens=4)
    assert TranslateSettings(max_tokens=40, max_ratio=1.5, max_extra=10).limits([0, 3, 100]) == [10, 14, 40]


def test_filters_by_hand() -> None:
    log_probs = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    top_k = filtered(log_probs, DecodeSettings(top_k=2))
    torch.testing.assert_close(top_k, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))
    top_p = filtered(log_probs, DecodeSettings(top_p=0.7))
    torch.testing.assert_close(top_p, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))
    only = filtered(log_probs, DecodeSettings(top_p=0.01))
    torch.testing.assert_close(only, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    cold = filtered(log_probs, DecodeSettings(temperature=0.5))
    torch.testing.assert_close(cold, torch.tensor([[0.25, 0.09, 0.0225, 0.0025]]) / 0.365)
    repelled = repel(log_probs, torch.tensor([[-1, 0]]), 2.0)
    torch.testing.assert_close(repelled[0, :2], torch.tensor([2 * math.log(0.5), math.log(0.3)]))


def test_draws_follow_the_distribution() -> None:
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.2]])
    uniforms = torch.from_numpy(np.random.default_rng(0).random(20_000))
    drawn = draw(probs.expand(len(uniforms), -1), uniforms)
    shares = torch.bincount(drawn, minlength=4) / len(uniforms)
    torch.testing.assert_close(shares, probs[0], atol=0.015, rtol=0)
    assert draw(probs, torch.tensor([1.0 - 1e-17])).item() == 3


# Through the models


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="char"), ["abcdefgh \n"])


def speaker_of(case: Any, tokenizer: Tokenizer) -> Speaker:
    torch.manual_seed(1)
    network = token_network(settings_of(case), tokenizer.size, 12).double()
    for parameter in network.parameters():
        parameter.data.normal_(std=0.5)
    bias = torch.randn(tokenizer.size).double()
    bias[tokenizer.eos] = -30.0  # texts end by their length
    network.head.bias = nn.Parameter(bias)
    return Speaker(Neural(network, length=12), tokenizer)


@pytest.mark.parametrize("case", backbones(), ids=label)
def test_neighbours_never_change_a_text(case: Any, tokenizer: Tokenizer) -> None:
    """Ragged prompts in a batch against each alone, beyond the context of those that have one."""
    speaker = speaker_of(case, tokenizer)
    prompts = ["abc", "", "a" * 20, "hgfedcba", "abc"]
    for options in (
        DecodeSettings(max_tokens=30, seed=5),
        DecodeSettings(max_tokens=30, temperature=0),
        DecodeSettings(max_tokens=10, top_k=3, top_p=0.9, repetition_penalty=1.3),
        DecodeSettings(max_tokens=6, beams=3, nbest=2),
        DecodeSettings(max_tokens=6, beams=3, min_tokens=4, no_repeat_ngram=2),
    ):
        together = speaker.generate(prompts, options)
        for prompt, found in list(zip(prompts, together, strict=True))[:4]:
            alone = speaker.generate([prompt], options)[0]
            assert [one.text for one in found] == [one.text for one in alone]
            assert [one.score for one in found] == pytest.approx([one.score for one in alone])


@pytest.mark.parametrize("case", backbones(), ids=label)
def test_score_is_what_generation_reports(case: Any, tokenizer: Tokenizer) -> None:
    """Also for texts longer than the model's context."""
    speaker = speaker_of(case, tokenizer)
    for prompt, options in [
        ("ab", DecodeSettings(max_tokens=40, seed=2)),
        ("a" * 30, DecodeSettings(max_tokens=9, temperature=0)),
        ("", DecodeSettings(max_tokens=8, beams=3)),
    ]:
        (found,) = speaker.generate([prompt], options)[0]
        whole = speaker.score(prompt + found.text)
        assert sum(value for _, value in whole.pieces[len(prompt) :]) == pytest.approx(found.score, rel=1e-4)


@pytest.mark.parametrize("case", backbones(), ids=label)
def test_next_is_a_distribution(case: Any, tokenizer: Tokenizer) -> None:
    speaker = speaker_of(case, tokenizer)
    found = speaker.next("abc", top=1000)
    assert len(found) == tokenizer.size
    assert sum(one.probability for one in found) == pytest.approx(1)
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)


def test_stop_strings_end_a_text(tokenizer: Tokenizer) -> None:
    speaker = speaker_of(("lstm", {}), tokenizer)
    (free,) = speaker.generate(["ab"], DecodeSettings(max_tokens=60, seed=1))[0]
    stop = free.text[20:22]
    (cut,) = speaker.generate(["ab"], DecodeSettings(max_tokens=60, seed=1, stop=[stop]))[0]
    assert cut.text == free.text[: free.text.index(stop)]
    assert stop not in cut.text


def test_seeds_and_copies(tokenizer: Tokenizer) -> None:
    speaker = speaker_of(("gru", {}), tokenizer)
    first = speaker.generate(["ab"], DecodeSettings(nbest=3, max_tokens=20))[0]
    assert len({one.text for one in first}) == 3
    again = speaker.generate(["ab"], DecodeSettings(nbest=3, max_tokens=20))[0]
    other = speaker.generate(["ab"], DecodeSettings(nbest=3, max_tokens=20, seed=1))[0]
    assert first == again
    assert first != other
    twice = speaker.generate(["ab", "ab"], DecodeSettings(max_tokens=20))
    assert twice[0][0].text != twice[1][0].text, "the same prompt twice gives two draws"


def test_an_empty_list_of_prompts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert speaker_of(("gru", {}), tokenizer).generate([], DecodeSettings()) == []
