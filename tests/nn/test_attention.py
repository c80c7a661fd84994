"""Attention: special cases, every score against its formula, and the fused path against the readable one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from seriatim.core.errors import SeriatimError
from seriatim.nn import attention as family
from seriatim.nn.attention import (
    SCORES,
    Additive,
    Concat,
    Distance,
    General,
    Kernel,
    Score,
    additive_scores,
    attention,
    attention_pool,
    attention_with_weights,
    causal_mask,
    make_score,
    masked_softmax,
)
from seriatim.nn.layers import readable_equations

B, T, S, D = 2, 3, 5, 4


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make(name: str, query: int = D, key: int = D) -> Score:
    return make_score(name, query, key, 6, bandwidth=2.5).double()


def close(result: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


# the special cases


@pytest.mark.parametrize("name", SCORES)
def test_weights_are_shares_and_outputs_stay_in_the_hull(name: str) -> None:
    score, value = make(name), draw(B, S, 3)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])[:, None]
    scores = score(draw(B, T, D) * 0.5, score.prepare(draw(B, S, D) * 0.5))
    output, weights = attention_pool(scores, value, mask)
    assert (weights >= 0).all()
    close(weights.sum(dim=-1), torch.ones(B, T, dtype=torch.float64))
    assert (weights[1, :, 3:] == 0).all()
    for row, keys in ((0, 5), (1, 3)):
        real = value[row, :keys]
        assert (output[row] <= real.amax(dim=0) + 1e-12).all()
        assert (output[row] >= real.amin(dim=0) - 1e-12).all()


def test_one_weight_of_one_is_a_look_up() -> None:
    value = draw(1, 3, 2)
    output, weights = attention_pool(torch.tensor([[[0.0, 1e4, -1e4]]], dtype=torch.float64), value)
    assert weights.tolist() == [[[0.0, 1.0, 0.0]]]
    assert torch.equal(output[0, 0], value[0, 1])
    boxcar = Kernel("boxcar", 0.5)
    keys = torch.tensor([[[1.0], [2.0], [3.0]]], dtype=torch.float64)
    output, weights = attention_pool(boxcar(torch.tensor([[[2.3]]], dtype=torch.float64), keys), value)
    assert weights.tolist() == [[[0.0, 1.0, 0.0]]]
    assert torch.equal(output[0, 0], value[0, 1])


def test_equal_weights_are_the_average() -> None:
    value = draw(B, S, 3)
    output, weights = attention_pool(torch.full((B, T, S), 7.0, dtype=torch.float64), value)
    close(weights, torch.full_like(weights, 1 / S))
    close(output, value.mean(dim=1, keepdim=True).expand(B, T, 3))


@pytest.mark.parametrize("name", SCORES)
def test_what_stands_in_the_padding_has_no_part(name: str) -> None:
    score, query, key, value = make(name), draw(B, T, D), draw(B, S, D) * 0.5, draw(B, S, 3)
    mask = torch.tensor([[[True] * 3 + [False] * 2]]).expand(B, 1, S)
    wild = [torch.where(mask.transpose(1, 2), one, 1e6) for one in (key, value)]
    output, weights = attention_pool(score(query, score.prepare(wild[0])), wild[1], mask)
    alone, its_weights = attention_pool(score(query, score.prepare(key[:, :3])), value[:, :3])
    close(output, alone)
    close(weights[..., :3], its_weights)
    assert (weights[..., 3:] == 0).all()


@pytest.mark.parametrize("name", SCORES)
def test_without_a_real_key_all_is_zero_and_gradients_are_finite(name: str) -> None:
    score = make(name)
    query, key, value = (one.requires_grad_() for one in (draw(B, T, D), draw(B, S, D), draw(B, S, 3)))
    mask = torch.tensor([[[True] * S], [[False] * S]])
    output, weights = attention_pool(score(query, score.prepare(key)), value, mask)
    assert (output[1] == 0).all()
    assert (weights[1] == 0).all()
    output.square().sum().backward()
    for one in (query, key, value):
        assert one.grad is None or (one.grad.isfinite().all() and (one.grad[1] == 0).all())
    assert value.grad is not None
    assert value.grad[0].abs().sum() > 0
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in score.parameters())


def test_a_kernel_that_reaches_no_key_gives_zeros() -> None:
    far = torch.full((1, 1, 1), 9.0, dtype=torch.float64, requires_grad=True)
    keys = torch.zeros(1, 3, 1, dtype=torch.float64)
    for name in ("boxcar", "epanechnikov"):
        output, weights = attention_pool(Kernel(name)(far, keys), draw(1, 3, 2).requires_grad_())  # type: ignore[arg-type]
        assert output.tolist() == [[[0.0, 0.0]]]
        assert weights.tolist() == [[[0.0, 0.0, 0.0]]]
        far.grad = None
        output.sum().backward()
        assert far.grad is None or far.grad.item() == 0


def test_the_worked_example() -> None:
    """Scores 112 and 96 over √64 are 14 and 12: shares of 0.88 and 0.12."""
    query = torch.ones(1, 1, 64)
    key = torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])[None]
    score = make_score("scaled_dot", 64, 64, 1)
    scores = score(query, key)
    assert scores.tolist() == [[[14.0, 12.0]]]
    _, weights = attention_pool(scores, torch.eye(2)[None])
    assert [round(weight, 2) for weight in weights[0, 0].tolist()] == [0.88, 0.12]
    assert weights[0, 0, 0].item() == pytest.approx(1 / (1 + math.exp(-2)), rel=1e-6)
    assert [round(one, 2) for one in attention(query, key, torch.eye(2)[None])[0, 0].tolist()] == [0.88, 0.12]


# every score by its formula


def by_hand(name: str, score: Score, q: Tensor, k: Tensor) -> float:
    """The score of one query and one key, written out."""
    far = (q - k).norm().item() / 2.5 if len(q) == len(k) else 0.0
    if name == "general":
        assert isinstance(score, General)
        return float(q @ score.key.weight @ k)
    if name == "additive":
        assert isinstance(score, Additive)
        return float(score.weight @ torch.tanh(score.query.weight @ q + score.key.weight @ k))
    if name == "concat":
        assert isinstance(score, Concat)
        return float(score.weight @ torch.tanh(score.both.weight @ torch.cat([q, k])))
    if name == "epanechnikov":
        return math.log(1 - far) if far < 1 else -math.inf
    plain = {
        "dot": float(q @ k),
        "scaled_dot": float(q @ k) / math.sqrt(len(k)),
        "distance": -0.5 * float(((q - k) ** 2).sum()),
        "gaussian": -0.5 * far**2,
        "boxcar": 0.0 if far <= 1 else -math.inf,
    }
    return plain[name]


@torch.no_grad()
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("key_size", [D, 7])
def test_each_score_is_its_formula(name: str, key_size: int) -> None:
    if key_size != D and name not in ("general", "additive", "concat"):
        with pytest.raises(SeriatimError) as caught:
            make(name, key=key_size)
        assert caught.value.code == "score.lengths"
        return
    score = make(name, key=key_size)
    query, key = draw(B, T, D), draw(B, S, key_size)
    result = score(query, score.prepare(key))
    assert result.shape == (B, T, S)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                assert result[b, t, s].item() == pytest.approx(by_hand(name, score, query[b, t], key[b, s]), abs=1e-10)


@pytest.mark.parametrize("name", SCORES)
def test_keys_prepared_once_serve_every_step(name: str) -> None:
    score, query, key = make(name), draw(B, T, D), draw(B, S, D)
    prepared = score.prepare(key)
    assert prepared.shape[:2] == (B, S)
    steps = torch.cat([score(query[:, t : t + 1], prepared) for t in range(T)], dim=1)
    close(steps, score(query, prepared))
    rows = torch.tensor([1, 1, 0])  # as a beam search takes rows again
    close(score(query[rows], prepared[rows]), score(query, prepared)[rows])


@pytest.mark.parametrize("name", SCORES)
def test_gradients(name: str) -> None:
    score, value = make(name), draw(B, S, 2)
    mask = torch.tensor([[True] * S, [True, True, False, False, False]])[:, None].expand(B, T, S).clone()
    mask[0, 1] = False

    def weighed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention_pool(score(query, score.prepare(key)), value, mask)[0]

    arguments = [one.requires_grad_() for one in (draw(B, T, D), draw(B, S, D), value)]
    assert torch.autograd.gradcheck(weighed, arguments)


def test_an_unknown_score_is_told() -> None:
    with pytest.raises(SeriatimError) as caught:
        make_score("adition", 4, 4, 4)
    assert caught.value.code == "score.unknown"
    assert "additive" in caught.value.remedy


# how the scores belong together


def test_distance_is_dot_where_keys_have_one_norm() -> None:
    query, key = draw(B, T, D), F.normalize(draw(B, S, D), dim=-1) * 3
    dot, distance = make_score("dot", D, D, 1), Distance()
    value = draw(B, S, 2)
    close(attention_pool(distance(query, distance.prepare(key)), value)[1], attention_pool(dot(query, key), value)[1])
    close(attention_pool(Kernel("gaussian")(query, key), value)[1], attention_pool(dot(query, key), value)[1])


def test_additive_is_concat_with_its_matrices_side_by_side() -> None:
    additive, concat = Additive(3, 5, 6).double(), Concat(3, 5, 6).double()
    with torch.no_grad():
        concat.both.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
        concat.weight.copy_(additive.weight)
    query, key = draw(B, T, 3), draw(B, S, 5)
    close(concat(query, concat.prepare(key)), additive(query, additive.prepare(key)))


def test_general_with_the_identity_is_dot() -> None:
    general, query, key = General(D, D).double(), draw(B, T, D), draw(B, S, D)
    with torch.no_grad():
        general.key.weight.copy_(torch.eye(D))
    close(general(query, general.prepare(key)), make_score("dot", D, D, 1)(query, key))


def test_scaled_dot_is_torchs() -> None:
    query, key, value = draw(B, T, D), draw(B, S, D), draw(B, S, 3)
    output, _ = attention_pool(make_score("scaled_dot", D, D, 1)(query, key), value)
    close(output, F.scaled_dot_product_attention(query, key, value))


def test_kernels_by_hand() -> None:
    keys = torch.tensor([[[0.0], [1.0], [1.5], [3.0]]], dtype=torch.float64)
    query = torch.tensor([[[0.5]]], dtype=torch.float64)  # ½, ½, 1 and 2½ away
    eye = torch.eye(4, dtype=torch.float64)[None]
    e = math.exp
    raw = {
        "boxcar": [1, 1, 1, 0],
        "epanechnikov": [0.5, 0.5, 0, 0],
        "gaussian": [e(-0.125), e(-0.125), e(-0.5), e(-3.125)],
    }
    for name, kernel in raw.items():
        result = attention_pool(Kernel(name)(query, keys), eye)[0][0, 0].tolist()  # type: ignore[arg-type]
        assert result == pytest.approx([one / sum(kernel) for one in kernel], abs=1e-12), name


# many keys at once


@pytest.fixture(params=[1, 40, 150, 10**6])
def _in_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "MAX_SAVED", 0)
    monkeypatch.setattr(family, "BLOCK", request.param)


@pytest.mark.usefixtures("_in_parts")
def test_tanh_in_parts_is_tanh_at_once() -> None:
    arguments = [one.requires_grad_() for one in (draw(3, 4, 6), draw(3, 5, 6), draw(6))]
    assert torch.autograd.gradcheck(additive_scores, arguments)
    outer = draw(3, 4, 5)
    result = additive_scores(*arguments)
    gradients = torch.autograd.grad(result, arguments, outer)
    with readable_equations():
        plain = additive_scores(*arguments)
    close(result, plain)
    for mine, expected in zip(gradients, torch.autograd.grad(plain, arguments, outer), strict=True):
        close(mine, expected)


@pytest.mark.usefixtures("_in_parts")
def test_nothing_to_look_at_in_parts() -> None:
    assert additive_scores(draw(2, 3, 4), draw(2, 0, 4), draw(4)).shape == (2, 3, 0)
    assert additive_scores(draw(0, 3, 4), draw(0, 2, 4), draw(4)).shape == (0, 3, 2)


def test_many_keys_keep_little_for_the_backward_pass() -> None:
    """The (B,T,S,H) numbers are not among what the graph holds."""
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    query, key, weight = (torch.randn(*shape, requires_grad=True) for shape in ((4, 40, 64), (4, 120, 64), (64,)))
    assert family.MAX_SAVED < 4 * 40 * 120 * 64
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        additive_scores(query, key, weight).sum().backward()
    assert max(kept) == key.numel()


# the fast path and the mask one


@given(
    queries=st.integers(1, 6),
    keys=st.integers(1, 6),
    shape=st.sampled_from([None, (), (1, 1), (2, 1), (1, 3), (2, 3)]),
    rows=st.booleans(),
    causal=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=200, deadline=None)
def test_fused_equals_readable(
    queries: int, keys: int, shape: tuple[int, ...] | None, rows: bool, causal: bool, seed: int
) -> None:
    """Whatever the mask, rows that see nothing among them, in the outputs and in the gradients."""
    torch.manual_seed(seed)
    arguments = [draw(2, 3, n, d).requires_grad_() for n, d in ((queries, 4), (keys, 4), (keys, 5))]
    mask = None if shape is None else torch.rand(*shape, queries if rows else 1, keys) < 0.6
    fast = attention(*arguments, mask, causal)
    readable, weights = attention_with_weights(*arguments, mask, causal)
    close(fast, readable)
    outer = draw(*fast.shape)
    gradients = torch.autograd.grad(fast, arguments, outer)
    for mine, expected in zip(gradients, torch.autograd.grad(readable, arguments, outer), strict=True):
        assert mine.isfinite().all()
        close(mine, expected)
    total = weights.sum(dim=-1)
    close(total, (total > 0.5).double())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_fast_path_gives_zeros_where_nothing_is_seen(kind: torch.dtype) -> None:
    query, key, value = (torch.randn(2, 3, 20, 16).to(kind).requires_grad_() for _ in range(3))
    mask = torch.rand(2, 1, 20, 20) < 0.5
    mask[0, 0, 7], mask[1] = False, False
    output = attention(query, key, value, mask)
    assert (output[0, :, 7] == 0).all()
    assert (output[1] == 0).all()
    output.float().square().sum().backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in (query, key, value))


def test_the_last_query_stands_at_the_last_key() -> None:
    """A decoder that goes on from stored keys sees what it would have readable had it read all at once."""
    query, key, value = (draw(1, 2, 6, 4) for _ in range(3))
    whole = attention(query, key, value, causal=True)
    close(attention(query[:, :, 4:], key, value, causal=True), whole[:, :, 4:])
    close(attention_with_weights(query[:, :, 4:], key, value, causal=True)[0], whole[:, :, 4:])
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]


def test_nothing_later_is_seen() -> None:
    query, key, value = (draw(1, 1, 6, 4) for _ in range(3))
    before = attention(query, key, value, causal=True)
    key[..., 4:, :], value[..., 4:, :] = 1e3, 1e3
    after = attention(query, key, value, causal=True)
    assert torch.equal(before[..., :4, :], after[..., :4, :])
    assert not torch.allclose(before[..., 4:, :], after[..., 4:, :])
    _, weights = attention_with_weights(query, key, value, causal=True)
    assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize("name", SCORES)
def test_self_attention_knows_no_order(name: str) -> None:
    """Elements in another order give the same outputs in that order."""
    score, x, order = make(name), draw(B, S, D), torch.tensor([3, 0, 4, 1, 2])
    whole = attention_pool(score(x, score.prepare(x)), x)[0]
    close(attention_pool(score(x[:, order], score.prepare(x[:, order])), x[:, order])[0], whole[:, order])
    if name == "scaled_dot":
        close(attention(x[:, order], x[:, order], x[:, order]), attention(x, x, x)[:, order])
        assert not torch.allclose(attention(x, x, x, causal=True)[:, order], attention(*[x[:, order]] * 3, causal=True))


def test_masked_softmax_by_hand() -> None:
    scores = torch.tensor([[1.0, 2.0, 9.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    share = 1 / (1 + math.e)
    close(masked_softmax(scores, mask), torch.tensor([[share, 1 - share, 0], [0, 0, 0]], dtype=torch.float64))
