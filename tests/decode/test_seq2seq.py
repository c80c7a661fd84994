"""Decoding of whole batches: scores follow the chain rule, a search continues with what `distributions` says, ensembles
average probabilities, special tokens are where they belong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from encoder_decoder_cases import Case, build_pair, tokens
from seriatim.core.errors import SeriatimError
from seriatim.core.state import select
from seriatim.decode.seq2seq import (
    DecodingStep,
    Seq2Seq,
    TargetTokens,
    encode_sources,
    mean_alignment,
    mean_probability,
)
from seriatim.decode.settings import BeamSettings
from seriatim.tasks.batching import Batch

EOS = 1
LENGTHS = (4, 2, 3)
CASES: list[Case] = [("transformer", {}), ("bahdanau", {}), ("seq2seq", {}), ("gru", {})]


def network(case: Case, seed: int = 0) -> Any:
    """Returns a network in float32, which the native step takes, too."""
    built = build_pair(case).float()
    generator = torch.Generator().manual_seed(seed)
    for parameter in built.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return built.requires_grad_(False)


def batch(rows: int = 3) -> Batch:
    """Returns sources of 4, 2 and 3 tokens, and targets of as many that end with `<eos>`."""
    inside = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    source, target = tokens(3, 4, 11), tokens(3, 4, 9).clamp(min=2)
    for row, length in enumerate(LENGTHS):
        target[row, length - 1] = EOS
    targets = torch.where(inside, target, -1)[:rows]
    shifted = torch.cat([torch.full((rows, 1), EOS), targets[:, :-1].clamp(min=0)], dim=1)
    return Batch((source[:rows], shifted, None), targets, int((targets >= 0).sum()), inside[:rows])


def decoder(*cases: Case, **special: Any) -> Seq2Seq:
    return Seq2Seq(tuple(network(case, seed) for seed, case in enumerate(cases)), TargetTokens(EOS, EOS, **special))


def one_row(whole: Batch, row: int, target: list[int] | None = None) -> Batch:
    """Returns a row of a batch without padding, by default with its own target."""
    length = LENGTHS[row]
    own = whole.targets[row, :length].tolist() if target is None else target
    inputs = whole.inputs[0][row : row + 1, :length], torch.tensor([[EOS, *own[:-1]]]), None
    return Batch(inputs, torch.tensor([own]), len(own))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scores_follow_the_chain_rule(case: Case) -> None:
    """Of a batch with padding as of each row alone, and as the distributions over all tokens say."""
    seq2seq, whole = decoder(case), batch()
    for row, scores in enumerate(seq2seq.score(whole, alignment=True)):
        alone = one_row(whole, row)
        distributions = seq2seq.distributions(alone)
        target = alone.targets[0]
        expected = distributions[torch.arange(len(target)), target]
        np.testing.assert_allclose(scores.log_probs, expected.numpy(), atol=1e-5)
        assert scores.correct.tolist() == (distributions.argmax(dim=1) == target).tolist()
        (own,) = seq2seq.score(alone, alignment=True)
        np.testing.assert_allclose(scores.log_probs, own.log_probs, atol=1e-5)
        assert (scores.weights is None) == (not seq2seq.has_alignment)
        if scores.weights is not None:
            assert scores.weights.shape == (LENGTHS[row], LENGTHS[row])
            np.testing.assert_allclose(scores.weights.sum(axis=1), 1, atol=1e-5)
            np.testing.assert_allclose(scores.weights, own.weights, atol=1e-5)
    assert seq2seq.score(whole)[0].weights is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_score_of_a_hypothesis_is_that_of_its_tokens(case: Case) -> None:
    seq2seq, whole = decoder(case), batch()
    for options in ({"beams": 3, "nbest": 2}, {"beams": 1}):
        found = seq2seq.search(whole, BeamSettings(**options), [5, 4, 6], streams=[np.random.default_rng(0)] * 3)
        for row, group in enumerate(found):
            assert len(group) == options.get("nbest", 1)
            for hypothesis in group:
                assert len(hypothesis.tokens) <= (5, 4, 6)[row]
                assert hypothesis.finished == (hypothesis.tokens[-1] == EOS)
                (scores,) = seq2seq.score(one_row(whole, row, hypothesis.tokens))
                assert hypothesis.score == pytest.approx(float(scores.log_probs.sum()), abs=1e-4)
                if options["beams"] == 1:
                    assert scores.correct.all()


def test_an_ensemble_averages_probabilities() -> None:
    first, second = network(("transformer", {})), network(("gru", {}), 1)
    special, whole = TargetTokens(EOS, EOS), batch()
    both = Seq2Seq((first, second), special)
    scores = [seq2seq.score(whole) for seq2seq in (both, Seq2Seq((first,), special), Seq2Seq((second,), special))]
    for together, one, other in zip(*scores, strict=True):
        mean = (np.exp(one.log_probs) + np.exp(other.log_probs)) / 2
        np.testing.assert_allclose(np.exp(together.log_probs), mean, atol=1e-6)
        assert together.correct.tolist() == one.correct.tolist()
    alone = one_row(whole, 0)
    parts = [Seq2Seq((one,), special).distributions(alone).exp() for one in (first, second)]
    torch.testing.assert_close(both.distributions(alone).exp(), (parts[0] + parts[1]) / 2)


def test_prefix_forbidden_tokens_and_limits() -> None:
    seq2seq, whole, limits = decoder(("bahdanau", {})), batch(), [3, 4, 5]
    streams = [np.random.default_rng(row) for row in range(3)]
    for options in (BeamSettings(beams=2), BeamSettings(temperature=1.0, beams=1)):
        found = seq2seq.search(whole, options, limits, prefix=[2, 3], forbidden=[EOS, 4], streams=streams)
        for limit, (best,) in zip(limits, found, strict=True):
            assert best.tokens[:2] == [2, 3]
            assert len(best.tokens) == limit
            assert not {EOS, 4} & set(best.tokens[2:])
            assert not best.finished


def test_the_first_token_is_certain_but_counts() -> None:
    """A model with <s> at the beginning of each target generates it, whatever its probability."""
    seq2seq, whole = decoder(("transformer", {}), bos=7), batch()
    first = seq2seq.distributions(one_row(whole, 0))[0, 7]
    for options in (BeamSettings(beams=3), BeamSettings(beams=1)):
        streams = [np.random.default_rng(0)] * 3
        best = seq2seq.search(whole, options, [6] * 3, prefix=[7], streams=streams)[0][0]
        assert best.tokens[0] == 7
        assert best.score < float(first)
        (scores,) = seq2seq.score(one_row(whole, 0, best.tokens))
        assert best.score == pytest.approx(float(scores.log_probs.sum()), abs=1e-4)


def test_forced_ends() -> None:
    for forced in (False, True):
        seq2seq, whole = decoder(("seq2seq", {}), forced_eos=forced), batch()
        for one in seq2seq.networks:
            one.head.bias.data[EOS] = -50.0
        for options in (BeamSettings(beams=2), BeamSettings(beams=1)):
            found = seq2seq.search(whole, options, [4] * 3, streams=[np.random.default_rng(0)] * 3)
            assert [len(group[0].tokens) for group in found] == [4] * 3
            assert [group[0].tokens[-1] == EOS for group in found] == [forced] * 3


def test_coverage_needs_attention() -> None:
    options = BeamSettings(beams=2, coverage_penalty=0.5)
    assert len(decoder(("bahdanau", {})).search(batch(), options, [4] * 3)) == 3
    with pytest.raises(SeriatimError) as caught:
        decoder(("seq2seq", {})).search(batch(), options, [4] * 3)
    assert caught.value.code == "model.no-attention"
    assert decoder(("seq2seq", {}), ("bahdanau", {})).has_alignment


def test_several_targets_of_a_source() -> None:
    """The memory of a source is repeated for its targets."""
    seq2seq, whole = decoder(("transformer", {})), batch()
    owners = torch.tensor([0, 0, 1])
    rows = whole.inputs[0][owners], whole.mask[owners] if whole.mask is not None else None
    repeated = seq2seq.score(Batch((rows[0], whole.inputs[1], None), whole.targets, whole.count, rows[1]))
    shared = Batch((whole.inputs[0][:2], whole.inputs[1], owners), whole.targets, whole.count, whole.mask[:2])  # type: ignore[index]
    for one, other in zip(repeated, seq2seq.score(shared), strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_is_that_of_the_network(case: Case) -> None:
    """Step by step as all at once, by the native step where there is one, and with rows selected in between."""
    seq2seq, whole = decoder(case), batch()
    targets = torch.tensor([[2, 3, 4], [3, 3, 2], [4, 2, 3]])
    order = torch.tensor([2, 0, 1, 1])
    with torch.inference_mode():
        memory = encode_sources(seq2seq.networks[0], whole)
        hidden, _ = seq2seq.networks[0].decode(targets, memory)
        expected: Tensor = seq2seq.networks[0].head(hidden).log_softmax(dim=-1)
        for alignment in (False, True):
            step = DecodingStep(seq2seq.networks, [memory], 3, alignment)
            state: Any = (torch.arange(3), [None], None)
            for position in range(3):
                log_probs, state = step.step(targets[:, position], state)
                torch.testing.assert_close(log_probs, expected[:, position], atol=1e-5, rtol=0)
            if alignment and seq2seq.has_alignment:
                assert step.last_weights(state).sum(dim=1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
            again, _ = step.step(targets[:, 0][order], select(state, order))
            straight, _ = step.step(targets[:, 0], state)
            torch.testing.assert_close(again, straight[order], atol=1e-5, rtol=0)


def test_means() -> None:
    first, second = torch.tensor([[0.2, 0.8]]).log(), torch.tensor([[0.6, 0.4]]).log()
    torch.testing.assert_close(mean_probability([first, second]).exp(), torch.tensor([[0.4, 0.6]]))
    assert mean_probability([first]) is first
    assert mean_probability([first, first])[0, 0].item() == pytest.approx(math.log(0.2))
    traces: list[Any] = [{"alignment": torch.ones(1, 1, 2)}, None, {}, {"alignment": torch.zeros(1, 1, 2)}]
    mean = mean_alignment(traces)
    assert mean is not None
    assert mean.tolist() == [[[0.5, 0.5]]]
    assert mean_alignment([None, {}]) is None
