"""Beam search against hypotheses worked out by hand, and against every hypothesis there is."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seriatim.decode import beam as beam_module
from seriatim.decode.beam import Coverage, beam_search
from seriatim.decode.sampling import Hypothesis, sample
from seriatim.decode.settings import GenerationSettings
from truth_table import EOS, Table, Tables, random_table

# By hand: after nothing, 2 is a little likelier than 1, but everything after 2 is unlikely.
GARDEN_PATH = Table({(): [0.1, 0.4, 0.5], (1,): [0.9, 0.05, 0.05], (2,): [0.4, 0.3, 0.3]}, 3)
SHORT_OR_LONG = Table({(): [0.6, 0.4], (1,): [0.3, 0.7], (1, 1): [1.0, 0.0]}, 2)
ENDLESS = Table({p: [0.0, 0.7, 0.3] for n in range(6) for p in itertools.product((1, 2), repeat=n)}, 3)


def search(table: Table, eos: int | None = EOS, **options: Any) -> list[Hypothesis]:
    return beam_search(table.step, *table.start(), GenerationSettings(**options), eos)[0]


def greedy(table: Table, arguments: dict[str, Any], **options: Any) -> Hypothesis:
    streams = [np.random.default_rng(0)]
    return sample(table.step, *table.start(), GenerationSettings(temperature=0, **options), streams, EOS, **arguments)[
        0
    ]


def test_beam_two_finds_the_better_way() -> None:
    assert greedy(GARDEN_PATH, {}).tokens == [2, 0]
    result = search(GARDEN_PATH, beams=2, nbest=2, max_tokens=5, length_penalty=0)
    assert [h.tokens for h in result] == [[1, 0], [2, 0]]
    assert [h.score for h in result] == pytest.approx([math.log(0.36), math.log(0.2)])
    assert [h.normalized_score for h in result] == [h.score for h in result]


def test_length_penalty_prefers_longer_answers() -> None:
    """[0] has the probability 0.6, [1, 1, 0] has 0.4 · 0.7 = 0.28."""
    cases: list[tuple[dict[str, Any], list[int], float]] = [
        ({"length_penalty": 0}, [0], math.log(0.6)),
        ({"length_penalty": 1}, [1, 1, 0], math.log(0.28) / 3),
        ({"length_penalty": 2}, [1, 1, 0], math.log(0.28) / 9),
        ({"length_penalty": 1, "length_norm": "wu"}, [0], math.log(0.6) / (6 / 6)),
        ({"length_penalty": 4, "length_norm": "wu"}, [1, 1, 0], math.log(0.28) / (8 / 6) ** 4),
    ]
    for options, tokens, value in cases:
        best = search(SHORT_OR_LONG, beams=3, max_tokens=4, **options)[0]
        assert best.tokens == tokens
        assert best.normalized_score == pytest.approx(value)
        assert best.score == pytest.approx(SHORT_OR_LONG.score(tokens))


# Every hypothesis begins by reading the first of two words (the third place is padding); 2 reads the second word next.
READS = {(): [0.9, 0.1, 0.0], (1,): [0.9, 0.1, 0.0], (2,): [0.1, 0.9, 0.0]}


def reading(state: Tensor) -> Tensor:
    return torch.tensor([READS.get(tuple(prefix), [1.0, 0.0, 0.0]) for prefix in state.tolist()])


@pytest.mark.parametrize(("weight", "tokens"), [(0.2, [1, 0]), (0.5, [2, 0])])
def test_coverage_penalty_prefers_what_read_all(weight: float, tokens: list[int]) -> None:
    """[1, 0] (0.54) read 0.2 of the second word, [2, 0] (0.36) all: they meet at weight log(0.54 / 0.36) / log 5."""
    table = Table({(): [0.0, 0.6, 0.4], (1,): [0.9, 0.05, 0.05], (2,): [0.9, 0.05, 0.05]}, 3)
    coverage = Coverage(weight, reading, torch.tensor([[True, True, False]]))
    options = GenerationSettings(beams=2, nbest=2, length_penalty=0, max_tokens=4)
    (result,) = beam_search(table.step, *table.start(), options, EOS, coverage=coverage)
    assert result[0].tokens == tokens
    by_tokens = {tuple(h.tokens): h for h in result}
    assert by_tokens[1, 0].normalized_score == pytest.approx(math.log(0.54) + weight * math.log(0.2))
    assert by_tokens[2, 0].normalized_score == pytest.approx(math.log(0.36))
    assert by_tokens[1, 0].score == pytest.approx(math.log(0.54)), "the score is the model's"


def test_an_unread_position_costs_much_but_not_infinitely_much() -> None:
    coverage = Coverage(0.1, lambda state: torch.tensor([[1.0, 0.0]]).expand(len(state), 2))
    (result,) = beam_search(GARDEN_PATH.step, *GARDEN_PATH.start(), GenerationSettings(beams=2), EOS, coverage=coverage)
    assert result[0].tokens == [1, 0]
    assert -20 < result[0].normalized_score < -10


def test_early_stop_may_miss_what_the_full_search_finds() -> None:
    """The end at once has 0.51; the rest of the way, once begun, is certain: log(0.49) / 4 is the better mean."""
    sure = [0.0, 1.0]
    table = Table({(): [0.51, 0.49], (1,): sure, (1, 1): sure, (1, 1, 1): [1.0, 0.0]}, 2)
    assert search(table, beams=2, early_stop=True)[0].tokens == [0]
    full = search(table, beams=2)[0]
    assert full.tokens == [1, 1, 1, 0]
    assert full.normalized_score == pytest.approx(math.log(0.49) / 4)


def test_nothing_finished_returns_the_best_unfinished() -> None:
    result = search(ENDLESS, beams=3, nbest=3, max_tokens=4)
    assert result[0].tokens == [1, 1, 1, 1]
    assert not any(h.finished for h in result)
    assert result[0].score == pytest.approx(4 * math.log(0.7))
    assert search(ENDLESS, eos=None, beams=3, max_tokens=2)[0].tokens == [1, 1]


def test_at_the_limit_the_end_may_be_forced() -> None:
    """Running hypotheses end there at no cost; their last token but the end is one earlier."""
    options = GenerationSettings(beams=2, nbest=2, max_tokens=3, length_penalty=1)
    start = ENDLESS.start()
    result = beam_search(ENDLESS.step, *start, options, EOS, forced_eos=True)[0]
    assert [(h.tokens, h.finished) for h in result] == [([1, 1, EOS], False), ([1, 2, EOS], False)]
    assert [h.score for h in result] == pytest.approx([math.log(0.49), math.log(0.21)])
    assert [h.normalized_score for h in result] == pytest.approx([h.score / 3 for h in result])
    ended = beam_search(GARDEN_PATH.step, *GARDEN_PATH.start(), options, EOS, forced_eos=True)[0]
    assert [h.tokens for h in ended] == [h.tokens for h in search(GARDEN_PATH, **options.model_dump())]


def test_where_nothing_can_follow_a_row_ends_as_it_stands() -> None:
    """An n-gram model without smoothing knows nothing about a context_length that it never saw."""
    nothing = [0.0, 0.0, 0.0]
    start_only = Table({(): nothing}, 3)
    (empty,) = search(start_only, beams=2, nbest=2)
    assert (empty.tokens, empty.score, empty.finished) == ([], 0.0, False)
    stuck = Table({(): [0.0, 0.6, 0.4], (1,): nothing, (2,): nothing}, 3)
    result = search(stuck, beams=2, nbest=2)
    assert [h.tokens for h in result] == [[1], [2]]
    assert [h.score for h in result] == pytest.approx([math.log(0.6), math.log(0.4)])
    one_way = Table({(): [0.0, 0.6, 0.4], (1,): nothing}, 3)
    assert [h.tokens for h in search(one_way, beams=2, nbest=2)] == [[2, 0]]


def everything(
    table: Table, limit: int, options: GenerationSettings, forbidden: tuple[int, ...] = (), prefix: tuple[int, ...] = ()
) -> list[Hypothesis]:
    """Every hypothesis that the rules allow: finished ones, and unfinished ones of full length; best first."""
    result = []
    for length in range(1, limit + 1):
        for body in itertools.product(range(1, table.vocab_size), repeat=length - 1):
            for tokens in ([*body, token] for token in range(table.vocab_size)):
                finished = tokens[-1] == EOS
                if not finished and length < limit:
                    continue
                free = tokens[len(prefix) :]
                size = options.no_repeat_ngram
                runs = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)] if size else []
                new = runs[max(len(prefix) - size + 1, 0) :]  # runs that the prefix does not force
                old = runs[: max(len(prefix) - size + 1, 0)]
                repeats = len(set(new)) < len(new) or bool(set(new) & set(old))
                too_short = finished and length <= options.min_tokens
                if repeats or too_short or set(free) & set(forbidden) or tuple(tokens[: len(prefix)]) != prefix:
                    continue
                score = table.score(tokens)
                if score > -math.inf:
                    result.append(Hypothesis(tokens, score, finished, score / options.divisor(length)))
    return sorted(result, key=lambda one: -one.normalized_score)


RULES = {
    "penalty": st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    "norm": st.sampled_from(["power", "wu"]),
    "least": st.integers(0, 3),
    "repeat": st.integers(0, 2),
    "prefix": st.lists(st.integers(1, 2), max_size=2),
    "forbidden": st.sampled_from([(), (1,), (2,)]),
}


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 10**6), vocab_size=st.integers(3, 4), **RULES)
def test_a_wide_beam_equals_exhaustive_search(
    seed: int, vocab_size: int, penalty: float, norm: str, least: int, repeat: int, prefix: Any, forbidden: Any
) -> None:
    """All of the n best, in their order, under all the rules."""
    depth = 4
    table = random_table(seed, vocab_size, depth)
    options = GenerationSettings(
        beams=vocab_size**depth,
        nbest=5,
        max_tokens=depth,
        length_penalty=penalty,
        length_norm=norm,
        min_tokens=least,
        no_repeat_ngram=repeat,
    )
    (result,) = beam_search(table.step, *table.start(), options, EOS, forbidden=forbidden, prefix=[prefix])
    best = everything(table, depth, options, forbidden, tuple(prefix))[:5]
    if best:
        assert [h.tokens for h in result] == [h.tokens for h in best]
        assert [h.score for h in result] == pytest.approx([h.score for h in best])
        assert [h.normalized_score for h in result] == pytest.approx([h.normalized_score for h in best])
        assert [h.finished for h in result] == [h.finished for h in best]
    else:  # the rules leave nothing of full length: what there was, unfinished
        assert result
        assert not any(h.finished or math.isnan(h.score) for h in result)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), **RULES)
def test_beam_of_one_is_greedy(
    seed: int, penalty: float, norm: str, least: int, repeat: int, prefix: Any, forbidden: Any
) -> None:
    table = random_table(seed, 4, 5)
    rules = {"max_tokens": 5, "length_penalty": penalty, "length_norm": norm, "min_tokens": least}
    rules |= {"no_repeat_ngram": repeat}
    arguments = {"forbidden": forbidden, "prefix": [prefix]}
    (one,) = beam_search(table.step, *table.start(), GenerationSettings(beams=1, **rules), EOS, **arguments)[0]
    alone = greedy(table, arguments, **rules)
    assert one.tokens == alone.tokens
    assert one.score == pytest.approx(alone.score)
    assert one.normalized_score == pytest.approx(alone.normalized_score)
    assert one.finished == alone.finished


@pytest.mark.parametrize("early", [False, True])
def test_neighbours_never_change_a_row(early: bool) -> None:
    """Tables of different lengths with limits and beginnings of their own, together and each alone."""
    tables = [random_table(seed, 4, depth) for seed, depth in [(1, 1), (2, 6), (3, 3), (4, 5), (5, 6), (6, 2)]]
    limits, prefix = [3, 6, 1, 4, 6, 6], [[], [3, 1], [2], [], [1], []]
    reads = torch.rand(len(tables), 6, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([6, 2, 3, 4, 1, 5])[:, None]
    options = GenerationSettings(beams=3, nbest=3, max_tokens=8, no_repeat_ngram=2, early_stop=early)

    def coverage(rows: list[int]) -> Coverage:
        places = torch.tensor(rows)
        return Coverage(0.3, lambda state: reads[places[state[0]]] * (1 + state[1].shape[1]) / 8, mask[places])

    batch = Tables(tables)
    together = beam_search(
        batch.step, *batch.start(), options, EOS, prefix=prefix, limits=limits, coverage=coverage([0, 1, 2, 3, 4, 5])
    )
    assert batch.sizes[0] > batch.sizes[-1], "rows that are done leave the batch"
    for row, (table, result) in enumerate(zip(tables, together, strict=True)):
        single = Tables([table])
        (alone,) = beam_search(
            single.step,
            *single.start(),
            options,
            EOS,
            prefix=[prefix[row]],
            limits=[limits[row]],
            coverage=coverage([row]),
        )
        assert result == alone
        assert all(len(h.tokens) <= limits[row] for h in result)
        assert all(h.tokens[: len(prefix[row])] == prefix[row][: limits[row]] for h in result)
        assert [h.score for h in result] == pytest.approx([table.score(h.tokens) for h in result])
        assert [h.normalized_score for h in result] == sorted((h.normalized_score for h in result), reverse=True)
        assert len({tuple(h.tokens) for h in result}) == len(result), "no hypothesis twice"


def test_the_state_is_reordered_only_when_the_order_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[int]] = []

    def select(state: Tensor, rows: Tensor) -> Tensor:
        orders.append(rows.tolist())
        return state.index_select(0, rows)

    monkeypatch.setattr(beam_module, "select", select)
    # 1 and 2 each go on with themselves, 1 always ahead; 0 never comes before the fourth place
    lines = {(token,) * n: [0.0, *([0.9, 0.1] if token == 1 else [0.1, 0.9])] for token in (1, 2) for n in (1, 2, 3)}
    table = Table({(): [0.0, 0.6, 0.4]} | lines, 3)
    result = search(table, beams=2, nbest=2, max_tokens=5)
    assert [h.tokens for h in result] == [[1, 1, 1, 1, 0], [2, 2, 2, 2, 0]]
    assert orders == [[0, 0]], "once: one hypothesis became two"


def test_an_empty_batch() -> None:
    options = GenerationSettings(beams=2)
    assert beam_search(GARDEN_PATH.step, torch.empty(0, 3), torch.empty(0, 0, dtype=torch.long), options, EOS) == []


def test_a_row_may_be_stopped() -> None:
    """[2, 1] has 0.3 · 0.7 = 0.21, more than 0.7⁶; the second row is not stopped."""
    options = GenerationSettings(beams=3, max_tokens=6, length_penalty=0)
    first, second = beam_search(
        ENDLESS.step, *ENDLESS.start(2), options, EOS, lambda row, tokens: row == 0 and tokens[-2:] == [2, 1]
    )
    assert (first[0].tokens, first[0].finished) == ([2, 1], True)
    assert first[0].score == pytest.approx(math.log(0.21))
    assert (second[0].tokens, second[0].finished) == ([1] * 6, False)
