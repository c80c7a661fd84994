"""Greedy decoding, draws and the rules for them by hand; and all ways of decoding through the models."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.decode.sampling import (
    Hypothesis,
    ban_repeated_ngrams,
    draw_tokens,
    penalize_repetition,
    sample,
    sampling_probs,
)
from seriatim.decode.settings import BeamSettings, GenerationSettings
from truth_table import EOS, Table, random_table


def sampled(table: Table, options: GenerationSettings, rows: int = 1, **arguments: Any) -> list[Hypothesis]:
    streams = [np.random.default_rng(row) for row in range(rows)]
    return sample(table.step, *table.start(rows), options, streams, EOS, **arguments)


def test_greedy_walks_the_garden_path() -> None:
    """After nothing, 2 is a little likelier than 1, but everything after 2 is unlikely."""
    table = Table({(): [0.1, 0.4, 0.5], (1,): [0.9, 0.05, 0.05], (2,): [0.4, 0.3, 0.3]}, 3)
    (result,) = sampled(table, GenerationSettings(temperature=0, max_tokens=5))
    assert result.tokens == [2, 0]
    assert result.finished
    assert result.score == pytest.approx(math.log(0.5 * 0.4))
    assert result.normalized_score == pytest.approx(math.log(0.5 * 0.4) / 2)


@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_p": 0.8, "repetition_penalty": 1.5}])
def test_the_rules_hold_for_draws_too(options: dict[str, Any]) -> None:
    """Also: the score is the model's own, that of a given beginning included."""
    table = random_table(3, 5, 6)
    rules = GenerationSettings(max_tokens=6, min_tokens=4, no_repeat_ngram=2, **options)
    prefix, limits = [[], [2, 2, 2], [4], [1, 3, 1, 3]] * 5, [6, 6, 2, 6] * 5
    result = sampled(table, rules, 20, prefix=prefix, limits=limits, forbidden=[4])
    for one, begins, limit in zip(result, prefix, limits, strict=True):
        assert one.tokens[: len(begins)] == begins[:limit]
        assert 4 not in one.tokens[len(begins) :]
        assert one.score == pytest.approx(table.score(one.tokens))
        assert len(one.tokens) <= limit
        assert not one.finished or len(one.tokens) > 4
        runs = list(itertools.pairwise(one.tokens))
        assert all(run not in runs[:place] for place, run in enumerate(runs) if place >= len(begins) - 1)
    assert any(one.finished for one in result)


def test_what_the_rules_leave_nothing_of_ends_as_it_stands() -> None:
    (result,) = sampled(random_table(0, 3, 6), GenerationSettings(max_tokens=6, min_tokens=6, no_repeat_ngram=1))
    assert sorted(result.tokens) == [1, 2]
    assert not result.finished
    assert math.isfinite(result.score)


def test_repeated_runs_by_hand() -> None:
    """−1 is no token: nothing is repeated across it."""
    log_probs = torch.zeros(4, 4)
    past = torch.tensor([[1, 2, 3, 1, 2], [-1, 2, 2, 2, 2], [-1, -1, -1, -1, 3], [3, 1, 2, 3, 2]])
    banned = {1: [{1, 2, 3}, {2}, {3}, {1, 2, 3}], 2: [{3}, {2}, set(), {3}], 3: [{3}, {2}, set(), set()]}
    for size, expected in banned.items():
        left = ban_repeated_ngrams(log_probs, past, size)
        assert [set((row == -math.inf).nonzero()[:, 0].tolist()) for row in left] == expected
    assert (log_probs == 0).all(), "the argument is left as it was"


def test_translating_has_defaults_of_its_own() -> None:
    plain = BeamSettings()
    assert (plain.beams, plain.length_norm, plain.temperature) == (5, "wu", 0)
    assert BeamSettings(beams=1).temperature == 0
    assert (BeamSettings(top_k=3).beams, BeamSettings(top_k=3).temperature) == (1, 1)
    assert (BeamSettings(temperature=0.5).beams, BeamSettings(temperature=0.5).temperature) == (1, 0.5)
    assert BeamSettings(**plain.model_dump()) == plain
    with pytest.raises(ValueError, match="does not sample"):
        BeamSettings(temperature=0.5, beams=5)
    with pytest.raises(ValueError, match="more than max_tokens"):
        GenerationSettings(min_tokens=5, max_tokens=4)
    assert BeamSettings(max_tokens=40, max_ratio=1.5, max_extra=10).limits([0, 3, 100]) == [10, 14, 40]


def test_filters_by_hand() -> None:
    log_probs = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    top_k = sampling_probs(log_probs, GenerationSettings(top_k=2))
    torch.testing.assert_close(top_k, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))
    top_p = sampling_probs(log_probs, GenerationSettings(top_p=0.7))
    torch.testing.assert_close(top_p, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))
    only = sampling_probs(log_probs, GenerationSettings(top_p=0.01))
    torch.testing.assert_close(only, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    cold = sampling_probs(log_probs, GenerationSettings(temperature=0.5))
    torch.testing.assert_close(cold, torch.tensor([[0.25, 0.09, 0.0225, 0.0025]]) / 0.365)
    repelled = penalize_repetition(log_probs, torch.tensor([[-1, 0]]), 2.0)
    torch.testing.assert_close(repelled[0, :2], torch.tensor([2 * math.log(0.5), math.log(0.3)]))


def test_draws_follow_the_distribution() -> None:
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.2]])
    uniforms = torch.from_numpy(np.random.default_rng(0).random(20_000))
    drawn = draw_tokens(probs.expand(len(uniforms), -1), uniforms)
    shares = torch.bincount(drawn, minlength=4) / len(uniforms)
    torch.testing.assert_close(shares, probs[0], atol=0.015, rtol=0)
    assert draw_tokens(probs, torch.tensor([1.0 - 1e-17])).item() == 3
