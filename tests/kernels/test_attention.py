"""The kernels of attention, over short and longer sequences, and of dropout, held to their definitions."""

import pytest
import torch
from torch.nn import functional as F

from seriatim import kernels
from seriatim.kernels import attention, layers
from seriatim.nn.attention import attention_with_weights
from seriatim.nn.layers import Dropout
from seriatim.nn.transformer import CrossAttention, SelfAttention

pytestmark = pytest.mark.skipif(not kernels.load(), reason="no native kernels here")


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def readable_attention(query, key, value, heads, mask, causal):
    mask = None if mask is None else mask[:, None, None]
    mixed, _ = attention_with_weights(*(heads_of(x, heads) for x in (query, key, value)), mask, causal)
    return mixed.transpose(1, 2).flatten(2)


def ragged(rows, keys):
    """Rows of every length, the first without any key."""
    return torch.arange(keys) < (torch.arange(rows) % (keys + 1))[:, None]


# The kernels take heads of 8 numbers where a register holds 8 (AVX2), not where it holds 16 (AVX-512).
SMALL_HEADS = [(2, 33, 3, 8)] if attention.is_faster(torch.zeros(1), 33, 8) else []


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("rows", "steps", "heads", "size"),
    [(1, 1, 1, 64), (7, 5, 3, 16), (4, 17, 2, 32), (3, 40, 1, 64), *SMALL_HEADS, (60, 61, 2, 16), (3, 130, 2, 32)],
)
def test_self_attention_is_that_of_the_equations(rows, steps, heads, size, causal, masked):
    torch.manual_seed(0)
    assert attention.is_faster(torch.zeros(1), steps, size)
    inputs = torch.randn(rows, steps, 3 * heads * size, requires_grad=True)
    mask = ragged(rows, steps) if masked else None
    gradient = torch.randn(rows, steps, heads * size)
    ours = attention.self_attention(inputs, heads, mask, causal)
    (own,) = torch.autograd.grad(ours, inputs, gradient)
    true = readable_attention(*inputs.chunk(3, dim=-1), heads, mask, causal)
    (expected,) = torch.autograd.grad(true, inputs, gradient)
    torch.testing.assert_close(ours, true, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(own, expected.nan_to_num(), rtol=1e-4, atol=1e-5)
    if mask is not None:  # nobody to look at: zeros, and nothing to learn from
        assert not ours[0].any()
        assert own.isfinite().all()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(6, 9), (1, 33), (70, 41), (5, 100)])
def test_cross_attention_is_that_of_the_equations(queries, keys, masked):
    torch.manual_seed(1)
    query = torch.randn(5, queries, 96, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(5, keys, 192, dtype=torch.float64, requires_grad=True)
    mask = ragged(5, keys) if masked else None
    gradient = torch.randn(5, queries, 96, dtype=torch.float64)
    ours = attention.cross_attention(query, memory, 3, mask)
    own = torch.autograd.grad(ours, (query, memory), gradient)
    true = readable_attention(query, *memory.chunk(2, dim=-1), 3, mask, causal=False)
    expected = torch.autograd.grad(true, (query, memory), gradient)
    torch.testing.assert_close(ours, true, rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(own, expected, strict=True):
        torch.testing.assert_close(mine, theirs.nan_to_num(), rtol=1e-10, atol=1e-12)


def test_derivatives_agree_with_differences():
    torch.manual_seed(2)
    inputs = torch.randn(2, 3, 48, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert torch.autograd.gradcheck(lambda x: attention.self_attention(x, 2, mask, True), (inputs,))
    inputs = torch.randn(1, attention.SHORT + 1, 24, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(attention.SHORT + 1)[None] > 1
    assert torch.autograd.gradcheck(lambda x: attention.self_attention(x, 1, mask, True), (inputs,), fast_mode=True)


@pytest.mark.parametrize("causal", [False, True])
def test_both_kernels_agree_where_scores_are_large(causal):
    """Weights that round to zero, and rows in which one key is all that counts."""
    torch.manual_seed(4)
    inputs = 30 * torch.randn(2, 20, 96, dtype=torch.float64)
    short, _ = torch.ops.seriatim.self_attend(inputs, 2, None, causal)
    tiled, _ = torch.ops.seriatim.self_attend_tiled(inputs, 2, None, causal)
    torch.testing.assert_close(short, tiled, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tiled", [False, True])
def test_what_does_not_fit_is_refused(tiled):
    """Wrong sizes and types are errors with a reason; nothing is read or written where it should not be."""
    attention.is_faster(torch.zeros(1), 1, 16)
    names = ("self_attend", "cross_attend")
    forward, cross = (getattr(torch.ops.seriatim, f"{name}_tiled" if tiled else name) for name in names)
    back, cross_back = (
        getattr(torch.ops.seriatim, f"{name}_tiled_backward" if tiled else f"{name}_backward") for name in names
    )
    inputs, memory = torch.randn(2, 5, 96), torch.randn(2, 4, 64)
    y, saved = forward(inputs, 2, None, False)
    crossed, cross_saved = cross(y, memory, 2, None)
    rest, masked = ((None, False), (None,)) if tiled else ((), ())
    for call, words in [
        (lambda: forward(inputs, 0, None, False), "0 heads"),
        (lambda: forward(inputs, 3, None, False), "3 heads"),
        (lambda: forward(inputs, 8, None, False), "not among the sizes"),
        (lambda: forward(inputs[..., :95], 2, None, False), r"expected \(B,T,3\*D\)"),
        (lambda: forward(inputs[0], 2, None, False), "expected"),
        (lambda: forward(inputs.transpose(1, 2).contiguous().transpose(1, 2), 2, None, False), "contiguous"),
        (lambda: forward(inputs, 2, torch.ones(2, 4, dtype=torch.bool), False), "mask"),
        (lambda: forward(inputs, 2, torch.ones(2, 5), False), "(?i)bool"),
        (lambda: cross(y, memory[:1], 2, None), "does not fit"),
        (lambda: cross(y, memory.double(), 2, None), "another type"),
        (lambda: back(y[:, :4], inputs, saved, 2, *rest), "dy has shape"),
        (lambda: back(y.double(), inputs, saved, 2, *rest), "dy has shape"),
        (lambda: back(y, inputs, saved[:1], 2, *rest), "what was saved"),
        (lambda: back(y, inputs, saved.double(), 2, *rest), "what was saved"),
        (lambda: back(y, inputs, saved, 0, *rest), "0 heads"),
        (lambda: cross_back(crossed, y, memory, cross_saved[:, :1], 2, *masked), "what was saved"),
        (lambda: cross_back(crossed, y, memory[:1], cross_saved, 2, *masked), "does not fit"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()


def test_the_layers_use_it_and_a_trace_changes_nothing():
    torch.manual_seed(3)
    layer, cross = SelfAttention(64, 2, 0.0), CrossAttention(64, 2, 0.0)
    x, memory = torch.randn(3, 7, 64), torch.randn(3, 5, 64)
    mask = ragged(3, 7)[:, None, None] | torch.tensor([True] + 6 * [False])
    fast, _ = layer(x, None, mask, False, None)
    trace = {}
    slow, _ = layer(x, None, mask, False, trace)
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
    assert trace["attention"].shape == (3, 2, 7, 7)
    kept = cross.keys_values(memory)
    torch.testing.assert_close(cross(x, kept, None, None), cross(x, kept, None, {}), rtol=1e-5, atol=1e-6)


def test_sizes_and_lengths_that_it_does_not_serve_are_left_to_torch():
    assert not attention.is_faster(torch.zeros(1), attention.LONGEST + 1, 64)
    assert not attention.is_faster(torch.zeros(1), 8, 20)
    assert not attention.is_faster(torch.zeros(1, dtype=torch.bfloat16), 8, 64)
    layer, x = SelfAttention(60, 3, 0.0), torch.randn(2, 4, 60)
    plain, _ = layer(x, None, None, True, {})
    torch.testing.assert_close(layer(x, None, None, True, None)[0], plain, rtol=1e-5, atol=1e-6)


def test_dropout_keeps_the_mean_and_its_gradient_has_the_same_mask():
    torch.manual_seed(4)
    x = torch.randn(1_000, 1_000, requires_grad=True)
    y = Dropout(0.3)(x)
    kept = y != 0
    assert abs(1 - kept.float().mean().item() - 0.3) < 0.002  # four deviations of a million draws
    torch.testing.assert_close(y[kept], x[kept] / 0.7)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(x))
    torch.testing.assert_close(gradient, kept / 0.7)
    # no pattern along rows or columns
    assert (kept.float().mean(dim=0) - 0.7).abs().max() < 0.08
    assert (kept.float().mean(dim=1) - 0.7).abs().max() < 0.08


def test_dropout_follows_the_seed():
    x, layer = torch.ones(100, 100), Dropout(0.5)
    torch.manual_seed(5)
    first, second = layer(x), layer(x)
    torch.manual_seed(5)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)
    assert abs((first * second != 0).float().mean().item() - 0.25) < 0.03
    assert torch.equal(layer.eval()(x), x)


def test_without_kernels_dropout_is_that_of_torch(monkeypatch):
    monkeypatch.setattr(layers, "has_dropout", lambda x: False)
    x = torch.ones(1_000)
    torch.manual_seed(6)
    ours = Dropout(0.2)(x)
    torch.manual_seed(6)
    assert torch.equal(ours, F.dropout(x, 0.2))


def test_everything_may_be_dropped():
    x = torch.ones(3, 5, requires_grad=True)
    y = layers.dropout(x, 1.0, 7)
    assert torch.equal(y, torch.zeros(3, 5))
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros(3, 5))
    with pytest.raises(ValueError, match="share"):
        layers.dropout(x, 1.5, 7)
