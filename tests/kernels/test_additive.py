"""The kernel of additive scores equals its equation, in values and gradients, whatever the shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.kernels import attention, load
from seriatim.nn.attention import SharedKeyScores, additive_scores, make_score

pytestmark = pytest.mark.skipif(not load(), reason="no native kernels here")

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def drawn(rows: int, steps: int, places: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = [(rows, steps, size), (rows, places, size), (size,)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def equation(query: torch.Tensor, key: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(query[:, :, None] + key[:, None]) @ weight


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.integers(1, 40),
    st.sampled_from([torch.float32, torch.float64]), st.integers(1, 2),
)  # fmt: skip
def test_equals_its_equation(rows: int, steps: int, places: int, size: int, dtype: torch.dtype, threads: int) -> None:
    torch.manual_seed(rows + 10 * steps + 100 * places + 1000 * size)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        given_ = drawn(rows, steps, places, size, dtype)
        result, expected = additive_scores(*given_), equation(*given_)
        gradient = torch.randn_like(result)
        ours, theirs = torch.autograd.grad(result, given_, gradient), torch.autograd.grad(expected, given_, gradient)
    finally:
        torch.set_num_threads(before)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_gradients_by_differences() -> None:
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(additive_scores, drawn(2, 2, 4, 5, torch.float64))


def test_steps_share_one_gradient_of_the_keys() -> None:
    torch.manual_seed(0)
    query, key, weight = drawn(3, 4, 6, 19, torch.float64)
    over = SharedKeyScores(key, weight)
    stepped = torch.cat([over(query[:, step : step + 1]) for step in range(4)], dim=1)
    gradient = torch.randn_like(stepped)
    ours = torch.autograd.grad(stepped, (query, key, weight), gradient, retain_graph=True)
    theirs = torch.autograd.grad(equation(query, key, weight), (query, key, weight), gradient)
    again = torch.autograd.grad(stepped, (query, key, weight), gradient)
    for one, other, twice in zip(ours, theirs, again, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one, twice)


def test_does_not_mind_how_tensors_lie() -> None:
    torch.manual_seed(0)
    query, key, weight = drawn(4, 3, 5, 16, torch.float32)
    lying = key.detach().transpose(0, 1).contiguous().transpose(0, 1)
    assert not lying.is_contiguous()
    torch.testing.assert_close(
        additive_scores(query, lying, weight), equation(query, key, weight), rtol=2e-5, atol=2e-5
    )


def test_a_not_a_number_stays_one() -> None:
    query, key, weight = drawn(1, 1, 3, 8, torch.float32)
    key = key.detach()
    key[0, 1, 2] = torch.nan
    assert additive_scores(query, key, weight)[0, 0].isnan().tolist() == [False, True, False]


def test_wrong_sizes_and_types_are_refused() -> None:
    query, key, weight = (one.detach() for one in drawn(2, 1, 3, 8, torch.float32))
    with pytest.raises(RuntimeError, match="sizes differ"):
        attention.additive_scores(query, key[..., :5], weight)
    with pytest.raises(RuntimeError, match="as many queries as keys"):
        attention.additive_scores(query, key[:1], weight)
    with pytest.raises(RuntimeError, match="one type"):
        attention.additive_scores(query, key.double(), weight)
    assert not attention.has_additive_scores(query, key.double(), weight)


def test_a_score_over_its_keys_is_the_score() -> None:
    torch.manual_seed(0)
    for name in ("additive", "concat", "general", "distance"):
        score = make_score(name, 6, 6, 7)
        query, keys = torch.randn(2, 1, 6), score.prepare(torch.randn(2, 4, 6))
        torch.testing.assert_close(score.bind(keys)(query), score(query, keys))
