"""Decoding against hand-made probability tables and exhaustive search."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import backbones, label, settings_of
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.decode.beam import beam
from seriatim.decode.constraints import repel
from seriatim.decode.options import DecodeSettings
from seriatim.decode.sampling import Hypothesis, draw, filtered, sample
from seriatim.nn.network import token_network
from seriatim.tasks._speak import Neural, Speaker

EOS = 0


class Table:
    """A truth table: the probabilities of the next token after each prefix; unlisted prefixes end."""

    def __init__(self, table: dict[tuple[int, ...], list[float]], vocabulary: int) -> None:
        self.table, self.vocabulary = table, vocabulary

    def _of(self, prefix: tuple[int, ...]) -> list[float]:
        return self.table.get(prefix, [1.0] + [0.0] * (self.vocabulary - 1))

    def start(self, rows: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([self._of(())] * rows, dtype=torch.float64).log(), torch.empty(rows, 0, dtype=torch.long)

    def step(self, tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.cat([state, tokens[:, None]], dim=1)
        return torch.tensor([self._of(tuple(row)) for row in state.tolist()], dtype=torch.float64).log(), state


# After nothing: b is a little likelier than a, but everything after b is unlikely.
GARDEN_PATH = Table({(): [0.1, 0.4, 0.5], (1,): [0.9, 0.05, 0.05], (2,): [0.4, 0.3, 0.3]}, 3)


def test_greedy_walks_the_garden_path() -> None:
    options = DecodeSettings(temperature=0, max_tokens=5)
    (found,) = sample(GARDEN_PATH.step, *GARDEN_PATH.start(), options, [np.random.default_rng(0)], EOS)
    assert found.tokens == [2, 0]
    assert found.finished
    assert found.score == pytest.approx(math.log(0.5 * 0.4))


def test_beam_two_finds_the_better_way() -> None:
    options = DecodeSettings(beams=2, nbest=2, max_tokens=5, length_penalty=0)
    (found,) = beam(GARDEN_PATH.step, *GARDEN_PATH.start(), options, EOS)
    assert [h.tokens for h in found] == [[1, 0], [2, 0]]
    assert [h.score for h in found] == pytest.approx([math.log(0.36), math.log(0.2)])


def test_length_penalty_prefers_longer_answers() -> None:
    table = Table({(): [0.4, 0.6], (1,): [0.0, 1.0], (1, 1): [0.0, 1.0], (1, 1, 1): [1.0, 0.0]}, 2)
    short = Table({(): [0.6, 0.4], (1,): [0.3, 0.7], (1, 1): [1.0, 0.0]}, 2)
    plain = DecodeSettings(beams=3, max_tokens=4, length_penalty=0)
    normed = DecodeSettings(beams=3, max_tokens=4, length_penalty=2)
    assert beam(table.step, *table.start(), plain, EOS)[0][0].tokens == [1, 1, 1, 0]
    assert beam(short.step, *short.start(), plain, EOS)[0][0].tokens == [0]
    assert beam(short.step, *short.start(), normed, EOS)[0][0].tokens == [1, 1, 0]


def test_beam_with_nothing_finished_returns_the_best_unfinished() -> None:
    endless = Table({p: [0.0, 0.7, 0.3] for n in range(6) for p in itertools.product((1, 2), repeat=n)}, 3)
    (found,) = beam(endless.step, *endless.start(), DecodeSettings(beams=3, max_tokens=4), EOS)
    assert found[0].tokens == [1, 1, 1, 1]
    assert not found[0].finished


def random_table(seed: int, vocabulary: int, depth: int) -> Table:
    generator = np.random.default_rng(seed)
    prefixes = [p for n in range(depth) for p in itertools.product(range(1, vocabulary), repeat=n)]
    return Table({p: generator.dirichlet(np.full(vocabulary, 0.5)).tolist() for p in prefixes}, vocabulary)


def exhaustive(table: Table, depth: int, options: DecodeSettings) -> Hypothesis:
    """Every hypothesis of at most `depth` tokens: finished ones, and unfinished ones of full length."""
    found = []
    for length in range(1, depth + 1):
        for body in itertools.product(range(1, table.vocabulary), repeat=length):
            for tokens in ([*body[:-1], EOS], list(body) if length == depth else None):
                if tokens is None:
                    continue
                score = sum(math.log(max(table._of(tuple(tokens[:i]))[t], 1e-300)) for i, t in enumerate(tokens))
                found.append(Hypothesis(tokens, score, tokens[-1] == EOS, score))
    return max(found, key=lambda h: h.score / len(h.tokens) ** options.length_penalty)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), vocabulary=st.integers(2, 4), penalty=st.sampled_from([0.0, 0.6, 1.0]))
def test_wide_beam_equals_exhaustive_search(seed: int, vocabulary: int, penalty: float) -> None:
    depth = 4
    table = random_table(seed, vocabulary, depth)
    options = DecodeSettings(beams=vocabulary**depth, max_tokens=depth, length_penalty=penalty)
    (found,) = beam(table.step, *table.start(), options, EOS)
    best = exhaustive(table, depth, options)
    assert found[0].score / len(found[0].tokens) ** penalty == pytest.approx(best.score / len(best.tokens) ** penalty)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_beam_of_one_is_greedy(seed: int) -> None:
    table = random_table(seed, 4, 5)
    (one,) = beam(table.step, *table.start(), DecodeSettings(beams=1, max_tokens=5, length_penalty=0), EOS)
    options = DecodeSettings(temperature=0, max_tokens=5)
    (greedy,) = sample(table.step, *table.start(), options, [np.random.default_rng(0)], EOS)
    assert one[0].tokens == greedy.tokens
    assert one[0].score == pytest.approx(greedy.score)


def test_batched_beams_equal_single_ones() -> None:
    tables = [random_table(seed, 4, 4) for seed in (1, 2, 3)]
    options = DecodeSettings(beams=3, nbest=2, max_tokens=4)

    def step(tokens: torch.Tensor, state: Any) -> Any:
        which, prefix = state
        prefix = torch.cat([prefix, tokens[:, None]], dim=1)
        rows = [tables[w]._of(tuple(p)) for w, p in zip(which.tolist(), prefix.tolist(), strict=True)]
        return torch.tensor(rows).log(), (which, prefix)

    start = torch.tensor([table._of(()) for table in tables]).log()
    batched = beam(step, start, (torch.arange(3), torch.empty(3, 0, dtype=torch.long)), options, EOS)
    for table, found in zip(tables, batched, strict=True):
        (single,) = beam(table.step, *table.start(), options, EOS)
        assert [h.tokens for h in found] == [h.tokens for h in single]


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
    network.head.bias.data[tokenizer.eos] = -30.0  # texts end by their length
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
