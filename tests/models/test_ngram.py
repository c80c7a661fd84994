"""The n-gram model against a readable reference of its formulas, against KenLM's lmplz, and against itself."""

from __future__ import annotations

import copy
import gzip
import math
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from seriatim.core.errors import SeriatimError
from seriatim.models._ngram import arpa, counting
from seriatim.models.ngram import NGram, Settings
from seriatim.nn.network import count_parameters, load_weights, weights, weights_without_memory

GOLDEN = Path(__file__).parents[1] / "golden" / "ngram"
SMOOTHINGS = ["none", "add-k", "kneser-ney", "modified-kneser-ney"]
SMOOTHED = SMOOTHINGS[1:]


def fit(tokens, vocab_size, boundary=None, chunk=1 << 20, **settings):
    return NGram.fit(np.array(tokens), vocab_size, Settings(name="ngram", **settings), boundary, chunk=chunk)


def loaded(tensors, settings, vocab_size):
    model = NGram(settings, vocab_size)
    load_weights(model, tensors)
    return model


def random_text(length=3000, vocab_size=12, seed=0):
    """Skewed, and with repetitions, so that every order has frequent and rare n-grams."""
    draw = np.random.default_rng(seed)
    text = (vocab_size * draw.random(length) ** 2).astype(np.int64)
    return np.concatenate([text, text[: length // 3]])


# ── the two troubles, and the cures ───────────────────────────────────────────────────────────────────────────

WORDS = ["students", "opened", "their", "books", "exams", "minds", "teacher"]


def worked_example() -> list[int]:
    """ "students opened their" 1000 times: 400 times books, 100 times exams, 500 times minds."""
    return [0, 1, 2, 3] * 400 + [0, 1, 2, 4] * 100 + [0, 1, 2, 5] * 500 + [6]


def test_worked_example_of_the_specification():
    model = fit(worked_example(), len(WORDS), order=4, smoothing="none")
    p = np.exp(model.scorer.next_log_probs(np.array([[0, 1, 2]])))[0]
    assert p[3] == pytest.approx(0.4, abs=1e-7)
    assert p[4] == pytest.approx(0.1, abs=1e-7)


def test_sparsity_shows_without_smoothing():
    model = fit(worked_example(), len(WORDS), order=4, smoothing="none")
    seen, unseen = np.array([[0, 1, 2]]), np.array([[6, 1, 2]])
    assert model.scorer.next_log_probs(seen)[0, 6] == -np.inf
    assert model.scorer.next_log_probs(unseen)[0].max() == -np.inf
    assert model.scorer.has_distribution(np.concatenate([seen, unseen])).tolist() == [True, False]
    assert model.scorer.log_probs(np.array([0, 1, 2, 6]))[-1] == -np.inf


@pytest.mark.parametrize("smoothing", SMOOTHED)
def test_every_smoother_cures_sparsity(smoothing):
    model = fit(worked_example(), len(WORDS), order=4, smoothing=smoothing)
    for context in ([0, 1, 2], [6, 1, 2], [6, 6, 6]):
        p = np.exp(model.scorer.next_log_probs(np.array([context])).astype(float))[0]
        assert p.min() > 0
        assert p.sum() == pytest.approx(1, abs=1e-5)
        assert model.scorer.has_distribution(np.array([context])).all()


def test_add_k_is_the_formula_of_the_textbook():
    model = fit(worked_example(), len(WORDS), order=4, smoothing="add-k", k=0.5)
    p = np.exp(model.scorer.next_log_probs(np.array([[0, 1, 2], [6, 6, 6]])))
    assert p[0, 3] == pytest.approx((400 + 0.5) / (1000 + 0.5 * 7), rel=1e-6)
    assert p[0, 6] == pytest.approx(0.5 / (1000 + 0.5 * 7), rel=1e-6)
    assert p[1] == pytest.approx(1 / 7, rel=1e-6)


def test_storage_grows_with_the_order():
    sizes = [fit(random_text(), 12, order=n).entries for n in range(1, 6)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 10 * sizes[1]


# ── the reference: dictionaries and the formulas of Chen & Goodman, one n-gram at a time ──────────────────────


class Reference:
    """Interpolated Kneser–Ney as one would write it on a blackboard. START stands before the text."""

    START = -7

    def __init__(self, tokens, vocab_size, order, boundary, modified, prune=()):
        self.vocab_size, self.order, self.boundary = vocab_size, order, boundary
        raw = [Counter() for _ in range(order + 1)]
        line = [self.START if boundary is None else boundary, *tokens]
        for t in range(1, len(line)):
            for m in range(1, order + 1):
                gram = self.cut(line[: t + 1], m)
                if len(gram) == m and self.START not in gram:
                    raw[m][gram] += 1
        before = defaultdict(set)
        for t in range(1, len(line)):
            for m in range(2, order + 1):
                gram = self.cut(line[: t + 1], m)
                if len(gram) == m:
                    before[gram[1:]].add(gram[0])
        self.counts = [Counter() for _ in range(order + 1)]
        for m in range(1, order + 1):
            for gram, count in raw[m].items():
                plain = m == order or (m > 1 and gram[0] == boundary)
                self.counts[m][gram] = count if plain else len(before[gram])
        thresholds = [0, *prune, *[prune[-1] if prune else 0] * (order - len(prune))]
        self.dropped = {gram for m in range(2, order + 1) for gram, n in raw[m].items() if n <= thresholds[m]}
        self.discounts = [None, *(self.discount(counter, modified) for counter in self.counts[1:])]
        self.after = defaultdict(list)
        for counter in self.counts[1:]:
            for gram, count in counter.items():
                self.after[gram[:-1]].append((count, gram in self.dropped))

    def cut(self, line, m):
        """The last m elements, from the last boundary (or START) before the last_output one on."""
        for length in range(2, m + 1):
            if length <= len(line) and line[-length] in (self.boundary, self.START):
                return tuple(line[-length:])
        return tuple(line[-m:])

    @staticmethod
    def discount(counter, modified):
        n = [sum(count == j for count in counter.values()) for j in range(5)]
        fallback = {1: 0.5, 2: 1.0, 3: 1.5} if modified else {1: 0.5, 2: 0.5, 3: 0.5}
        if n[1] == 0 or n[2] == 0 or (modified and n[3] == 0):
            return fallback
        y = n[1] / (n[1] + 2 * n[2])
        if not modified:
            return {1: y, 2: y, 3: y}
        found = {j: j - (j + 1) * y * n[j + 1] / n[j] for j in (1, 2, 3)}
        return found if all(0 < found[j] <= j for j in found) else fallback

    def p(self, token, context):
        if token is None:
            return 1 / self.vocab_size
        m = len(context) + 1
        lower = self.p(token, context[1:]) if context else 1 / self.vocab_size
        counts = self.after[context]
        if not counts:
            return lower
        D = self.discounts[m]
        total = sum(count for count, _ in counts)
        gamma = sum(count if dropped else D[min(count, 3)] for count, dropped in counts) / total
        count = 0 if (*context, token) in self.dropped else self.counts[m][(*context, token)]
        own = (count - D[min(count, 3)]) / total if count else 0.0
        return own + gamma * lower

    def log_probs(self, tokens):
        line = [self.START if self.boundary is None else self.boundary, *tokens]
        scores = []
        for t in range(1, len(line)):
            context = self.cut(line[: t + 1], self.order)[:-1]
            scores.append(math.log(self.p(line[t], tuple(token for token in context if token != self.START))))
        return scores


@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified-kneser-ney"])
@pytest.mark.parametrize("boundary", [None, 0])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_equals_the_reference(order, boundary, smoothing):
    text = random_text(700, 9)
    model = fit(text, 10, boundary, order=order, smoothing=smoothing)
    reference = Reference(text.tolist(), 10, order, boundary, smoothing.startswith("modified"))
    expected = [list(discount.values()) for discount in reference.discounts[1:]]
    np.testing.assert_allclose(model.discounts, expected, rtol=1e-12)
    held_out = np.append(random_text(300, 10, seed=1), [9, 9, 0, 0, 1])
    for tokens in (text, held_out):
        np.testing.assert_allclose(model.scorer.log_probs(tokens), reference.log_probs(tokens.tolist()), atol=3e-6)


@effort(max_examples=60, deadline=None)
@given(
    text=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    boundary=st.sampled_from([None, 0]),
    order=st.integers(1, 4),
    modified=st.booleans(),
)
def test_equals_the_reference_on_any_small_text(text, boundary, order, modified):
    smoothing = "modified-kneser-ney" if modified else "kneser-ney"
    model = fit(text, 6, boundary, order=order, smoothing=smoothing)
    reference = Reference(text, 6, order, boundary, modified)
    other = [*text[::-1], 5, *text]
    np.testing.assert_allclose(model.scorer.log_probs(np.array(other)), reference.log_probs(other), atol=3e-6)


@pytest.mark.parametrize("prune", [(0, 1), (0, 0, 1), (0, 1, 3), (0, 0, 0, 2)])
@pytest.mark.parametrize("boundary", [None, 0])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified-kneser-ney"])
def test_pruned_counts_equal_the_reference(prune, boundary, smoothing):
    text = random_text(700, 9)
    model = fit(text, 10, boundary, order=4, smoothing=smoothing, prune=prune)
    reference = Reference(text.tolist(), 10, 4, boundary, smoothing.startswith("modified"), prune)
    assert sum(model.scorer.describe()["ngrams"][1:]) == sum(map(len, reference.counts[2:])) - len(reference.dropped)
    held_out = np.append(random_text(300, 10, seed=1), [9, 9, 0, 0, 1])
    for tokens in (text, held_out):
        np.testing.assert_allclose(model.scorer.log_probs(tokens), reference.log_probs(tokens.tolist()), atol=3e-6)
    contexts = np.array([[0, 1, 2], [-1, -1, 3], [9, 9, 9], [1, 0, 2]])
    np.testing.assert_allclose(np.exp(model.scorer.next_log_probs(contexts)).sum(1), 1, atol=1e-6)


def test_pruning_and_a_budget():
    text = random_text(700, 9)
    pruned = fit(text, 10, order=4, prune=(0, 0, 1))
    both = fit(text, 10, order=4, prune=(0, 0, 1), entries=pruned.entries // 2)
    assert 0.9 * (pruned.entries // 2) < both.entries <= pruned.entries // 2
    again = loaded(weights(both), both.settings, 10)
    np.testing.assert_array_equal(again.scorer.log_probs(text), both.scorer.log_probs(text))
    for prune in ((1,), (0, 2, 1), ()):
        with pytest.raises(ValueError, match="prune"):
            Settings(name="ngram", prune=prune)


def test_a_threshold_needs_its_order():
    text = random_text(700, 9)
    assert fit(text, 10, order=3, prune=(0, 0, 1)).pruned
    with pytest.raises(SeriatimError, match="4 thresholds, but n-grams have up to 3 tokens") as caught:
        fit(text, 10, order=3, prune=(0, 0, 0, 1))
    assert (caught.value.code, caught.value.remedy) == ("ngram.prune", "name 3 or fewer, or raise model.order")
    for prune, order in (((0, 1), 2), ((0, 0, 0, 1), 4), ((0,) * 9, 9)):  # bigrams alone fill the budget
        assert Settings(name="ngram", prune=prune).within_budget(60, text, 10, None).order == order


def test_orders_beyond_seven():
    text = random_text(300, 6)
    model = fit(text, 7, order=12)
    reference = Reference(text.tolist(), 7, 12, None, True)
    np.testing.assert_allclose(model.scorer.log_probs(text), reference.log_probs(text.tolist()), atol=3e-6)


# ── interpolation ─────────────────────────────────────────────────────────────────────────────────────────────


def test_weights_maximize_the_likelihood():
    """Of two models the likelihood is a concave function of one number, whose maximum is found by halving."""
    text, held_out = random_text(900, 9), random_text(400, 9, seed=1)
    models = [fit(text, 10, order=2), fit(text[:200], 10, order=3, smoothing="add-k")]
    mixture = NGram.mix(models, held_out[1:], held_out[:1])
    p = np.exp([model.scorer.log_probs(held_out[1:], held_out[:1]) for model in models])
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        slope = ((p[0] - p[1]) / (middle * p[0] + (1 - middle) * p[1])).sum()
        low, high = (middle, high) if slope > 0 else (low, middle)
    assert 0.01 < low < 0.99
    assert mixture.weights == pytest.approx([low, 1 - low], abs=1e-3)
    expected = np.log(low * p[0] + (1 - low) * p[1])
    np.testing.assert_allclose(mixture.scorer.log_probs(held_out[1:], held_out[:1]), expected, atol=1e-3)
    assert mixture.scorer.log_probs(held_out[1:], held_out[:1]).mean() == pytest.approx(expected.mean(), abs=1e-7)
    assert expected.mean() >= max(np.log(p).mean(axis=1))


def test_a_mixture_is_a_distribution_and_can_be_stored():
    text, held_out = random_text(900, 9), random_text(400, 9, seed=1)
    models = [fit(text, 10, 0, order=3), fit(text, 10, 0, order=2, smoothing="none"), fit(text[:99], 10, 0, order=5)]
    mixture = NGram.mix(models, held_out)
    assert mixture.weights.sum() == pytest.approx(1)
    windows = np.stack([held_out[i : i + 4] for i in range(50)])
    following = mixture.scorer.next_log_probs(windows)
    np.testing.assert_allclose(np.exp(following).sum(1), 1, atol=1e-6)
    scored = [mixture.scorer.log_probs(held_out[: i + 5])[-1] for i in range(50)]
    np.testing.assert_allclose(following[np.arange(50), held_out[4:54]], scored, atol=1e-6)
    np.testing.assert_allclose(mixture.scorer.shares(held_out[:60]).sum(1), 1, atol=1e-5)
    again = loaded(weights(mixture), models[0].settings, 10)
    np.testing.assert_array_equal(again.scorer.log_probs(held_out), mixture.scorer.log_probs(held_out))
    nested = NGram.mix([mixture, models[0]], held_out)
    assert len(nested.scorer.tables) == 4
    with pytest.raises(SeriatimError, match="interpolates several"):
        mixture.write_arpa("none.arpa", [])
    with pytest.raises(SeriatimError, match="not the tensors"):
        loaded({"weights": torch.ones(1)}, models[0].settings, 10)


# ── KenLM ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "order", "prune"),
    [("words", 4, None), ("characters", 5, None), ("words", 4, (0, 0, 1, 2)), ("characters", 5, (0, 1))],
)
def test_equals_lmplz(name, order, prune, tmp_path):
    path = tmp_path / "golden.arpa"
    file = f"{name}.arpa.gz" if prune is None else f"{name}_pruned.arpa.gz"
    path.write_bytes(gzip.decompress((GOLDEN / file).read_bytes()))
    golden, names = NGram.read_arpa(path)
    lines = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    text = [names.index(word) for line in lines for word in [*map(arpa.unescape, line.split()), "</s>"]]
    model = fit(text, len(names), names.index("</s>"), order=order, prune=prune)
    assert (" " in names) == (name == "characters")
    for ours, theirs in zip(model.scorer.levels, golden.scorer.levels, strict=True):
        np.testing.assert_array_equal(ours.keys, theirs.keys)
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=2e-6)
        np.testing.assert_allclose(ours.back_off, theirs.back_off, atol=2e-6)


# ── all sums to one ───────────────────────────────────────────────────────────────────────────────────────────


def contexts_of(text, order, vocab_size, boundary):
    """All contexts of a text, short ones at its begin, and as many drawn at random."""
    padded = np.concatenate([np.full(order - 1, -1), text])
    seen = np.lib.stride_tricks.sliding_window_view(padded, order - 1) if order > 1 else np.zeros((1, 0), np.int64)
    drawn = np.random.default_rng(3).integers(0, vocab_size, seen.shape)
    return np.concatenate([seen, drawn])


@effort(max_examples=80, deadline=None)
@given(
    text=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    boundary=st.sampled_from([None, 2]),
    order=st.integers(1, 5),
    smoothing=st.sampled_from(SMOOTHINGS),
    share=st.sampled_from([None, 0.3, 0.6, 0.9]),
)
def test_every_context_sums_to_one(text, boundary, order, smoothing, share):
    text = np.array(text)
    settings = {"order": order, "smoothing": smoothing}
    model = fit(text, 7, boundary, **settings)
    if share is not None:
        model = fit(text, 7, boundary, entries=max(1, int(share * model.entries)), **settings)
    contexts = contexts_of(text, order, 7, boundary)
    sums = np.exp(model.scorer.next_log_probs(contexts).astype(float)).sum(1)
    known = model.scorer.has_distribution(contexts)
    np.testing.assert_allclose(sums[known], 1, atol=2e-6)
    np.testing.assert_array_equal(sums[~known], 0)
    assert known.all() or (smoothing == "none" and share is None) or not bool(model.pruned)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("boundary", [None, 0])
@pytest.mark.parametrize("entries", [None, 400])
def test_next_equals_score(smoothing, boundary, entries):
    text, held_out = random_text(), random_text(400, 13, seed=5)
    model = fit(text, 13, boundary, order=4, smoothing=smoothing, entries=entries)
    padded = np.concatenate([np.full(3, -1), held_out])
    table = model.scorer.next_log_probs(np.lib.stride_tricks.sliding_window_view(padded, 3)[:-1])
    np.testing.assert_allclose(
        table[np.arange(len(held_out)), held_out], model.scorer.log_probs(held_out), atol=3e-6, equal_nan=False
    )


# ── counting and scoring in pieces ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("boundary", [None, 0])
@pytest.mark.parametrize("chunk", [1, 3, 64, 1000])
def test_counting_in_chunks_equals_counting_at_once(boundary, chunk):
    text = random_text(200 if chunk < 10 else 2000)
    told = []
    whole = fit(text, 12, boundary, order=4)
    pieces = NGram.fit(text, 12, Settings(name="ngram", order=4), boundary, told.append, chunk)
    assert_same_tensors(whole, pieces)
    assert told[-1] == f"counted {len(text):,} of {len(text):,} tokens"


def test_counts_a_file_that_is_not_in_memory(tmp_path):
    text = random_text()
    text.astype(np.uint16).tofile(tmp_path / "tokens.bin")
    mapped = np.memmap(tmp_path / "tokens.bin", np.uint16, "r")
    model = NGram.fit(mapped, 12, Settings(name="ngram", order=3), chunk=500)
    assert_same_tensors(model, fit(text, 12, order=3))
    np.testing.assert_array_equal(model.scorer.log_probs(mapped), model.scorer.log_probs(text))


@pytest.mark.parametrize("boundary", [None, 0])
def test_scoring_in_chunks_equals_scoring_at_once(boundary, monkeypatch):
    text = random_text()
    model = fit(text, 12, boundary, order=4)
    whole, orders = model.scorer.log_probs(text), model.scorer.order_used(text)
    monkeypatch.setattr("seriatim.models._ngram.table.QUERY", 7)
    np.testing.assert_array_equal(model.scorer.log_probs(text), whole)
    np.testing.assert_array_equal(model.scorer.order_used(text), orders)
    for cut in (1, 2, 50):
        np.testing.assert_array_equal(model.scorer.log_probs(text[cut:], context=text[:cut]), whole[cut:])


def test_many_searches_at_once_find_what_few_find():
    text = random_text(20_000, 40)  # above the size where the searches are sorted first
    model = fit(text, 40, order=3)
    parts = np.concatenate(
        [model.scorer.log_probs(text[t : t + 1000], context=text[:t]) for t in range(0, len(text), 1000)]
    )
    np.testing.assert_array_equal(model.scorer.log_probs(text), parts)


@pytest.mark.parametrize("largest", [3, 1 << 20, (1 << 62) - 1])
@pytest.mark.parametrize("length", [0, 1, 2, 5000])
def test_ranking_is_a_stable_sort(length, largest):
    """Places go along in lower bits, and where there is no room for them they are found apart."""
    values = np.random.default_rng(0).integers(-min(largest, 100), largest, length)
    ascending, order = counting.sort_with_indices(values)
    np.testing.assert_array_equal(order, np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(ascending, np.sort(values))


@pytest.mark.parametrize("boundary", [None, 0])
def test_a_vocabulary_without_room_for_places_changes_nothing(boundary, monkeypatch):
    text, held_out = random_text(6000), random_text(6000, 13, seed=5)
    packed = fit(text, 13, boundary, order=4)
    scores = packed.scorer.log_probs(held_out)

    def apart(values):
        order = np.argsort(values, kind="stable")
        return values[order], order

    monkeypatch.setattr(counting, "sort_with_indices", apart)
    assert_same_tensors(packed, fit(text, 13, boundary, order=4))
    np.testing.assert_array_equal(packed.scorer.log_probs(held_out), scores)


def test_no_ngram_reaches_across_the_boundary():
    model = fit([1, 2, 0, 3, 4, 0, 1, 2, 0], 6, 0, order=3)
    after = model.scorer.next_log_probs(np.array([[2, 0], [4, 0], [-1, -1], [0, 0]]))
    for row in after[1:]:
        np.testing.assert_array_equal(row, after[0])


def test_order_used_shows_backing_off():
    model = fit([0, 1, 2, 0, 1, 3], 5, order=3)
    assert model.scorer.order_used(np.array([0, 1, 2, 4, 1, 3])).tolist() == [1, 2, 3, 1, 1, 2]


@pytest.mark.parametrize("boundary", [None, 0])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_advance_whole_chunked_one_by_one(order, boundary):
    model = fit(random_text(), 12, boundary, order=order)
    tokens = torch.from_numpy(random_text(60, 12, seed=2)).view(2, -1)
    whole, state = model(tokens)
    assert whole.shape == (*tokens.shape, 12)
    assert state.shape == (2, order - 1)
    for sizes in ([1] * tokens.shape[1], [7, 1, 20, tokens.shape[1] - 28]):
        carried, parts = None, []
        for part in tokens.split(sizes, dim=1):
            y, carried = model(part, None, carried)
            parts.append(y)
        assert torch.equal(torch.cat(parts, 1), whole)
        assert torch.equal(carried, state)
    ahead = whole[0, :-1].gather(1, tokens[0, 1:, None])[:, 0]
    np.testing.assert_allclose(ahead.numpy(), model.scorer.log_probs(tokens[0].numpy())[1:], atol=3e-6)


def test_advance_ragged():
    model = fit(random_text(), 12, order=4)
    tokens = torch.from_numpy(random_text(15, 12, seed=4)).view(2, -1)
    lengths = [3, tokens.shape[1]]
    mask = torch.arange(tokens.shape[1])[None] < torch.tensor(lengths)[:, None]
    y, state = model(tokens.masked_fill(~mask, 999), mask=mask)
    for row, length in enumerate(lengths):
        alone, end = model(tokens[row : row + 1, :length])
        assert torch.equal(y[row, :length], alone[0])
        assert torch.equal(state[row], end[0])
    _, state2 = model(tokens, torch.zeros_like(mask), state)
    assert torch.equal(state2, state)


# ── the budget ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8, 0.99])
def test_budget_is_met_from_below(smoothing, share):
    text = random_text()
    full = fit(text, 12, order=5, smoothing=smoothing)
    budget = int(full.entries * share)
    model = fit(text, 12, order=5, smoothing=smoothing, entries=budget)
    assert budget * 0.98 <= model.entries <= budget
    assert bool(model.pruned)
    numbers = sum(len(level.log_probs) - 1 + level.context.sum() for level in model.scorer.levels)
    assert model.entries == numbers


def test_the_rarest_of_the_highest_order_go_first():
    text = [0, 1, 2] * 5 + [3, 4, 5] * 2 + [6, 7, 8]
    full = fit(text, 9, order=3, smoothing="none")
    model = fit(text, 9, order=3, smoothing="none", entries=full.entries - 8)
    assert model.scorer.describe()["ngrams"][:2] == full.scorer.describe()["ngrams"][:2]
    assert model.scorer.order_used(np.array([0, 1, 2]))[-1] == 3
    assert model.scorer.order_used(np.array([6, 7, 8]))[-1] == 2


def test_a_budget_below_the_unigrams_keeps_them():
    model = fit(random_text(), 12, order=3, entries=5)
    assert model.scorer.describe()["ngrams"] == [12, 0, 0]
    assert np.exp(model.scorer.next_log_probs(np.array([[3, 4]])).astype(float)).sum() == pytest.approx(1, abs=1e-6)


def test_a_budget_above_the_table_changes_nothing():
    full = fit(random_text(), 12, order=3)
    assert_same_tensors(full, fit(random_text(), 12, order=3, entries="1M"))


# ── storing ───────────────────────────────────────────────────────────────────────────────────────────────────


def assert_same_tensors(one: NGram, other: NGram, but: tuple[str, ...] = ()) -> None:
    mine, theirs = weights(one), weights(other)
    assert mine.keys() - set(but) == theirs.keys() - set(but)
    for name in mine.keys() - set(but):
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)
        assert mine[name].dtype == theirs[name].dtype


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize(("entries", "boundary"), [(None, None), (None, 0), (300, 0)])
def test_tensors_round_trip(smoothing, entries, boundary):
    from safetensors.torch import load, save

    settings = Settings(name="ngram", order=4, smoothing=smoothing, entries=entries)
    model = NGram.fit(random_text(), 12, settings, boundary)
    again = loaded(load(save(weights(model))), settings, 12)
    assert again.scorer.boundary == boundary
    assert_same_tensors(model, again)
    assert again.scorer.describe() == model.scorer.describe()
    held_out = random_text(200, seed=7)
    np.testing.assert_array_equal(again.scorer.log_probs(held_out), model.scorer.log_probs(held_out))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_model_is_a_module(mixed):
    """It is copied, moved, pickled and counted like a network, and computes with the memory of its buffers."""
    model = fit(random_text(), 12, order=3)
    held_out = random_text(200, seed=7)
    if mixed:
        model = NGram.mix([model, fit(random_text(seed=3), 12, order=2)], held_out)
    expected = model.scorer.log_probs(held_out)
    assert isinstance(model.eval(), torch.nn.Module)
    assert count_parameters(model) == model.entries
    assert weights_without_memory(lambda: NGram(model.settings, 12)) is None  # of any size
    for again in (copy.deepcopy(model), copy.deepcopy(model).to("cpu").double()):
        np.testing.assert_allclose(again.scorer.log_probs(held_out), expected, atol=1e-6)
        assert again.state_dict().keys() == model.state_dict().keys()
    name = "0.log_probs.1" if mixed else "log_probs.1"
    again = copy.deepcopy(model)
    with torch.no_grad():
        again.get_buffer(name).fill_(-3.0)
    np.testing.assert_array_equal(again.scorer.tables[0].levels[0].log_probs[:-1], -3.0)
    np.testing.assert_array_equal(model.scorer.log_probs(held_out), expected)
    again.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(again.scorer.log_probs(held_out), expected)


def test_tensors_of_another_model_are_refused():
    tensors = weights(fit(random_text(), 12, order=2))
    for settings, vocab_size in (({"order": 3}, 12), ({"order": 2}, 13)):
        with pytest.raises(SeriatimError) as caught:
            loaded(tensors, Settings(name="ngram", **settings), vocab_size)
        assert caught.value.code == "ngram.tensors"


ODD = ["a", " ", "\n", "\\", "\\s", "", "<s>", "\\</s>", "\u2028", "\u00a0", "é", "<UNK>"]


@pytest.mark.parametrize("boundary", [None, 3])
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("entries", [None, 300])
def test_arpa_round_trip(boundary, order, entries, tmp_path):
    model = fit(random_text(), 12, boundary, order=order, entries=entries)
    names = [*ODD]
    if boundary is not None:
        names[boundary] = "</s>"
    model.write_arpa(tmp_path / "model.arpa", names)
    again, read = NGram.read_arpa(tmp_path / "model.arpa")
    assert read == names
    assert again.scorer.boundary == boundary
    empty = {
        f"{kind}.{m}" for m in range(again.scorer.order + 1, order + 1) for kind in ("keys", "log_probs", "back_off")
    }
    assert_same_tensors(model, again, but=("discounts", "pruned", *empty))
    held_out = random_text(200, seed=7)
    np.testing.assert_array_equal(again.scorer.log_probs(held_out), model.scorer.log_probs(held_out))


def test_arpa_read_with_a_vocabulary_of_another_sequence(tmp_path):
    model = fit(random_text(), 4 * 3, 0, order=3)
    names = ["<eos>", *(f"word{i}" for i in range(1, 12))]
    model.write_arpa(tmp_path / "model.arpa", names)
    order = np.random.default_rng(0).permutation(12)
    shuffled = [names[i] for i in order]
    again, read = NGram.read_arpa(tmp_path / "model.arpa", shuffled, boundary=shuffled.index("<eos>"))
    assert read == shuffled
    held_out = random_text(200, seed=7)
    np.testing.assert_array_equal(again.scorer.log_probs(np.argsort(order)[held_out]), model.scorer.log_probs(held_out))
    with pytest.raises(SeriatimError) as caught:
        NGram.read_arpa(tmp_path / "model.arpa", [*shuffled[:-1], "other"], boundary=shuffled.index("<eos>"))
    assert caught.value.code == "arpa.vocabulary"


def test_numbers_of_arpa_files_have_nine_digits():
    draw = np.random.default_rng(0)
    values = np.concatenate([-(10.0 ** draw.uniform(-13, 2, 5000)), [0.0, -99.0, -0.5, -1.0, -1e-14, -9.999999999]])
    written = pyarrow.array(arpa._nine_digits(values)).cast(pyarrow.string()).to_pylist()
    assert [float(one) for one in written] == [float(f"{value:.9g}") for value in values]


@given(st.text())
def test_escaping_is_reversible(token):
    word = arpa.escape(token)
    assert arpa.unescape(word) == token
    assert word not in ("", "<s>", "</s>")
    assert not any(c.isspace() for c in word)


def test_words_of_other_programs_are_taken_as_they_stand():
    for word in ("C:\\dir", "\\", "\\frac", "\\u41;"):
        assert arpa.unescape(word) == word


ARPA = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.3
-0.5\t</s>\t0
-0.4\ta\t-0.2
-0.9\t<unk>\t0

\\2-grams:
-0.2\t<s> a
-0.3\ta </s>

\\end\\
"""


def test_arpa_by_hand(tmp_path):
    (tmp_path / "hand.arpa").write_text(ARPA)
    model, names = NGram.read_arpa(tmp_path / "hand.arpa")
    assert names == ["</s>", "a", "<unk>"]
    got = model.scorer.log_probs(np.array([1, 1, 0, 2])) / math.log(10)
    np.testing.assert_allclose(got, [-0.2, -0.2 - 0.4, -0.3, -0.3 - 0.9], atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("\\data\\", "data", 1),
        ("ngram 2=2", "ngram 3=2", 3),
        ("ngram 1=4", "ngram 1=x", 2),
        ("-0.4\ta", "-0.4x\ta", 8),
        ("-0.4\ta", "nan\ta", 8),
        ("-0.4\ta", "-0.4\ta b c", 8),
        ("-0.9\t<unk>", "-0.9\ta", 9),
        ("ngram 1=4", "ngram 1=3", 9),
        ("-0.2\t<s> a", "-0.2\t<s> b", 12),
        ("-0.2\t<s> a", "-0.2\ta <s>", 12),
        ("-0.2\t<s> a", "-0.2\t</s> a", 12),
        ("-0.2\t<s> a", "-0.3\ta </s>", 13),
        ("-0.2\t<s> a", "-0.2\t<s>", 12),
        ("\\end\\", "-0.1\ta a", 15),
        ("\n\\end\\\n", "", 13),
        ("-0.4\ta", "-0.4\ta\udcff", 8),
    ],
)
def test_malformed_arpa_names_the_line(old, new, line, tmp_path):
    path = tmp_path / "bad.arpa"
    assert old in ARPA
    path.write_bytes(ARPA.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(SeriatimError) as caught:
        NGram.read_arpa(path)
    assert caught.value.code == "arpa.malformed"
    found = re.search(r"bad\.arpa, line (\d+)", caught.value.cause)
    assert found is not None
    assert new.count("\udcff") or int(found[1]) == line  # a decoder reads ahead, so it knows the place only nearly


def test_prefixes_must_be_there(tmp_path):
    text = ARPA.replace("ngram 2=2", "ngram 2=2\nngram 3=1").replace("\\end\\", "\\3-grams:\n-0.1\ta a a\n\n\\end\\")
    (tmp_path / "bad.arpa").write_text(text)
    with pytest.raises(SeriatimError, match="line 17"):
        NGram.read_arpa(tmp_path / "bad.arpa")


def test_mistakes_of_the_user(tmp_path):
    model = fit(random_text(), 12, order=3)
    cases = {
        "ngram.empty": lambda: fit(np.zeros(0, np.int64), 12),
        "ngram.token": lambda: fit([1, 12], 12),
        "ngram.context": lambda: model.scorer.next_log_probs(np.array([[1, -1]])),
        "arpa.missing": lambda: NGram.read_arpa(tmp_path / "none.arpa"),
        "arpa.vocabulary": lambda: model.write_arpa(tmp_path / "x.arpa", ["a"] * 12),
        "arpa.smoothing": lambda: fit([1, 2], 3, smoothing="none").write_arpa(tmp_path / "x.arpa", ["a", "b", "c"]),
    }
    for code, act in cases.items():
        with pytest.raises(SeriatimError) as caught:
            act()
        assert caught.value.code == code
    outside = [
        lambda: fit([1, 2], 12, boundary=12),
        lambda: model.scorer.log_probs(np.array([12])),
        lambda: model.scorer.next_log_probs(np.array([[-2, 1]])),
    ]
    for act in outside:
        with pytest.raises(SeriatimError, match="outside"):
            act()
    assert not (tmp_path / "x.arpa").exists()
