"""The native stack of Transformer blocks, held to the equations of `Block`."""

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from helpers import settings_of, shaken
from seriatim import kernels
from seriatim.kernels import stack
from seriatim.nn import transformer
from seriatim.nn.layers import readable_equations
from seriatim.nn.network import token_network
from seriatim.nn.transformer import Block, Packing, stack_outputs

pytestmark = pytest.mark.skipif(not kernels.load(), reason="no native kernels here")

DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def make_blocks(count=2, width=36, heads=3, hidden=50, dropout=0.0, activation="gelu-tanh", norm="before", seed=0):
    torch.manual_seed(seed)
    blocks = nn.ModuleList(Block(width, heads, hidden, dropout, activation, norm) for _ in range(count))
    for parameter in blocks.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return blocks


def by_equations(blocks, x, mask, causal):
    """The outputs of the blocks, without padding in the computation if there is much of it."""
    packing = None if mask is None or causal else Packing(mask)
    if packing is not None and packing.is_faster:
        x = packing.pack(x)
        for block in blocks:
            x = block.forward_packed(x, packing, mask[:, None, None])
        return packing.unpack(x)
    for block in blocks:
        x, _ = block(x, None, None if mask is None or causal else mask[:, None, None], causal, None)
    return x


def with_gradients(forward, blocks, x, gradient):
    x = x.clone().requires_grad_()
    torch.manual_seed(7)
    y = forward(x)
    return y.detach(), torch.autograd.grad(y, [x, *blocks.parameters()], gradient)


def assert_near(found, expected, tolerance, scale=0.0):
    difference = float((found - expected).norm())
    assert difference <= tolerance * max(float(expected.norm()), scale), (difference, float(expected.norm()))


def check(blocks, x, lengths, causal):
    """Outputs and all gradients are those of the equations; so are the random numbers that were drawn."""
    mask = None if lengths is None else torch.arange(x.shape[1]) < torch.tensor(lengths)[:, None]
    weight = 1 if mask is None else mask[:, :, None]
    gradient = torch.randn_like(x) * weight
    ours = with_gradients(lambda x: stack_outputs(blocks, x, mask, causal, packs=not causal), blocks, x, gradient)
    drawn = torch.get_rng_state()
    theirs = with_gradients(lambda x: by_equations(blocks, x, mask, causal), blocks, x, gradient)
    assert torch.equal(drawn, torch.get_rng_state())
    tolerance = DTYPES[x.dtype]
    assert_near(ours[0] * weight, theirs[0] * weight, tolerance)
    assert mask is None or not ours[0][~mask].any()
    scale = 0.1 * max(float(expected.norm()) for expected in theirs[1])  # some gradients are 0 but for rounding
    for found, expected in zip(ours[1], theirs[1], strict=True):
        assert found.isfinite().all()
        factor = weight if found.shape == x.shape else 1
        assert_near(found * factor, expected * factor, tolerance, scale)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(2, 6),
    steps=st.integers(1, 70),
    heads=st.integers(1, 4),
    size=st.sampled_from([5, 8, 16, 33]),
    hidden=st.sampled_from([1, 17, 64, 300]),
    dropout=st.sampled_from([0.0, 0.0, 0.3]),
    activation=st.sampled_from(["gelu-tanh", "gelu", "relu", "silu"]),
    norm=st.sampled_from(["before", "after"]),
    causal=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
    data=st.data(),
)
def test_it_is_the_equations(rows, steps, heads, size, hidden, dropout, activation, norm, causal, dtype, data):
    lengths = data.draw(st.none() | st.lists(st.integers(1, steps), min_size=rows, max_size=rows))
    blocks = make_blocks(2, heads * size, heads, hidden, dropout, activation, norm).to(dtype)
    if dtype == torch.float32 and activation == "relu":
        dtype = torch.float64  # where a number rounds to the other side of 0, its gradient differs
        blocks = blocks.to(dtype)
    check(blocks, torch.randn(rows, steps, heads * size, dtype=dtype), lengths, causal)


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize(("rows", "steps", "width", "heads"), [(3, 130, 64, 2), (13, 64, 128, 4), (40, 9, 48, 3)])
def test_also_in_tiles_of_several_sizes(threads, rows, steps, width, heads, norm):
    blocks = make_blocks(3, width, heads, 4 * width, 0.1, norm=norm)
    lengths = [1 + (7 * row) % steps for row in range(rows)]
    x = torch.randn(rows, steps, width)
    for causal in (False, True):
        check(blocks, x, None, causal)
        check(blocks, x, lengths, causal)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(2, 5),
    steps=st.integers(1, 40),
    sources=st.integers(1, 70),
    heads=st.integers(1, 3),
    size=st.sampled_from([5, 16, 32]),
    dropout=st.sampled_from([0.0, 0.3]),
    norm=st.sampled_from(["before", "after"]),
    dtype=st.sampled_from(list(DTYPES)),
    data=st.data(),
)
def test_cross_attention_is_the_equations(rows, steps, sources, heads, size, dropout, norm, dtype, data):
    lengths = data.draw(st.none() | st.lists(st.integers(1, sources), min_size=rows, max_size=rows))
    width = heads * size
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block(width, heads, 50, dropout, "gelu", norm, cross=True) for _ in range(2)).to(dtype)
    shaken(blocks).train()
    memory = torch.randn(rows, sources, width, dtype=dtype, requires_grad=True)
    mask = None if lengths is None else torch.arange(sources) < torch.tensor(lengths)[:, None]
    x, gradient = torch.randn(2, rows, steps, width, dtype=dtype)

    def run(native):
        torch.manual_seed(7)
        y = x.clone().requires_grad_()
        leaves = [y, memory, *blocks.parameters()]
        keys_values = [block.cross.keys_values(memory) for block in blocks]
        if native:
            y = stack_outputs(blocks, y, None, True, memory=keys_values, memory_mask=mask)
        else:
            for block, part in zip(blocks, keys_values, strict=True):
                y, _ = block(y, None, None, True, None, part, None if mask is None else mask[:, None, None])
        return [y.detach(), *torch.autograd.grad(y, leaves, gradient)]

    theirs = run(native=False)
    scale = 0.1 * max(float(expected.norm()) for expected in theirs[1:])
    for found, expected in zip(run(native=True), theirs, strict=True):
        assert_near(found, expected, DTYPES[dtype], scale)


def test_sequences_may_be_empty():
    blocks = make_blocks()
    mask = torch.arange(5) < torch.tensor([0, 3, 0, 5])[:, None]
    x = torch.randn(4, 5, 36, requires_grad=True)
    y = stack_outputs(blocks, x, mask, False)
    y.sum().backward()
    assert y[mask].all()
    assert not y[~mask].any()
    assert not x.grad[~mask].any()
    blocks.zero_grad()
    stack_outputs(blocks, x, torch.zeros_like(mask), False).sum().backward()
    assert not any(parameter.grad.any() for parameter in blocks.parameters())
    assert stack_outputs(blocks, x[:, :0], None, False) is None


@pytest.mark.parametrize("norm", ["before", "after"])
def test_derivatives_agree_with_differences(norm):
    blocks = make_blocks(1, 6, 2, 5, norm=norm).double()
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    parameters = tuple(block_parameters(blocks))
    form = stack.BlockForm(2, "gelu", norm == "before", 1e-5, 0.2)
    bias = parameters[3].detach().chunk(3)  # that of the keys has no gradient

    def outputs(x, *tensors):
        fixed = torch.cat([tensors[3][:6], bias[1], tensors[3][12:]])
        return stack.block_stack(x, (*tensors[:3], fixed, *tensors[4:]), form, True, (3, 4), [4, 2])

    assert torch.autograd.gradcheck(outputs, (x, *parameters))


def block_parameters(blocks):
    return [tensor for block in blocks for tensor in block.own_parameters()]


def train(network, steps, accumulate, equations=False):
    """Several updates with dropout, from two forward passes before one backward pass or one after the other."""
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    with readable_equations() if equations else nullcontext():
        for _ in range(steps):
            optimizer.zero_grad()
            losses = []
            for _ in range(2):
                tokens = torch.randint(0, 23, (6, 11))
                scores = network.head(network.outputs(tokens))
                losses.append(F.cross_entropy(scores.flatten(0, 1), tokens.flatten().roll(-1)))
                if not accumulate:
                    losses.pop().backward()
            if losses:
                sum(losses).backward()
            optimizer.step()
    return network


ELECTRA = {"variant": "electra", "embedding": 16, "position_offset": 2}


@pytest.mark.parametrize("case", [("gpt", {}), ("bert", {}), ("bert", ELECTRA)])
def test_training_gives_the_same_weights(case, threads):
    name, extra = case
    settings_ = settings_of((name, {"width": 32, "layers": 2, "heads": 2, "dropout": 0.1} | extra))
    start = token_network(settings_, 23, 11)
    ours, bitwise, accumulated, theirs = (copy.deepcopy(start) for _ in range(4))
    train(ours, 5, False)
    train(bitwise, 5, False)
    train(accumulated, 5, True)
    train(theirs, 5, False, equations=True)
    for (key, own), same, other, expected in zip(
        ours.named_parameters(), *(n.parameters() for n in (bitwise, accumulated, theirs)), strict=True
    ):
        assert torch.equal(own, same), key
        torch.testing.assert_close(own, other, rtol=0, atol=2e-4, msg=key)
        torch.testing.assert_close(own, expected, rtol=0, atol=2e-4, msg=key)


def test_a_graph_can_be_used_twice():
    blocks = make_blocks(dropout=0.2)
    x = torch.randn(3, 5, 36, requires_grad=True)
    y = stack_outputs(blocks, x, None, True)
    first = torch.autograd.grad(y.sum(), [x, *blocks.parameters()], retain_graph=True)
    stack_outputs(blocks, 2 * x, None, True).sum().backward()  # another pass uses other memory
    second = torch.autograd.grad(y.sum(), [x, *blocks.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_weights_must_not_change_before_the_backward_pass():
    blocks = make_blocks()
    y = stack_outputs(blocks, torch.randn(3, 5, 36), None, True)
    with torch.no_grad():
        blocks[0].attention.output.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


class Other(nn.LayerNorm):
    pass


def replace_norm(blocks):
    blocks[1].attention_norm = Other(36)


def freeze_bias(blocks):
    blocks[0].feedforward.output.bias.requires_grad_(False)


def set_dropout(blocks):
    blocks[1].attention.dropout.p = 0.5


CHANGES = {
    "a hook": lambda blocks: blocks[0].feedforward.register_forward_hook(lambda *arguments: None),
    "evaluation": lambda blocks: blocks.eval(),
    "another layer": replace_norm,
    "a frozen parameter": freeze_bias,
    "different blocks": set_dropout,
    "another type": lambda blocks: blocks.double(),
    "half precision": lambda blocks: blocks.bfloat16(),
    "cross-attention": lambda blocks: blocks.append(Block(36, 3, 50, 0.0, cross=True)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_does_not_compute_is_left_to_the_equations(change):
    blocks, x = make_blocks(), torch.randn(3, 5, 36)
    assert stack_outputs(blocks, x, None, True) is not None
    CHANGES[change](blocks)
    assert stack_outputs(blocks, x, None, True) is None


def test_so_are_few_rows_and_passes_without_gradients(monkeypatch):
    blocks, x = make_blocks(), torch.randn(3, 5, 36)
    with torch.no_grad():
        assert stack_outputs(blocks, x, None, True) is None
    with readable_equations():
        assert stack_outputs(blocks, x, None, True) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert stack_outputs(blocks, x, None, True) is None
    assert stack_outputs(blocks, x.to("meta"), None, True) is None
    assert stack_outputs([], x, None, True) is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert stack_outputs(blocks, x, None, True) is None


@pytest.mark.parametrize("name", ["gpt", "bert", "vit", "transformer"])
def test_models_use_it_in_training(name, monkeypatch):
    calls = []
    original = transformer.stack.block_stack
    monkeypatch.setattr(transformer.stack, "block_stack", lambda *a, **k: calls.append(name) or original(*a, **k))
    backbone = settings_of((name, {"width": 32, "layers": 2, "heads": 2})).build(32, 9)
    x = torch.randn(4, 9, 32)

    def outputs():
        torch.manual_seed(0)
        if name == "transformer":
            return backbone.decoder_outputs(x, backbone.encode(x))
        return backbone.outputs(x)

    uses = [name, name] if name == "transformer" else [name]
    trained = outputs()
    assert calls == uses
    with readable_equations():
        torch.testing.assert_close(outputs(), trained, rtol=1e-4, atol=1e-4)
    backbone.eval()
    outputs()
    assert calls == uses


def test_what_does_not_fit_is_refused():
    parameters = block_parameters(make_blocks(1))
    x, rows = torch.randn(10, 36), ([0, 5], [5, 5], [0, 5])
    rest = [], 3, 2, True, True, 1e-5, 0.0, [0, 0], 2
    crossed = block_parameters([Block(36, 3, 50, 0.0, cross=True)])
    memory, cross = torch.randn(2, 4, 72), (*rest[1:7], [0, 0, 0], 2)
    forward, backward = torch.ops.seriatim.block_stack, torch.ops.seriatim.block_stack_backward
    y, saved = forward(x, [], parameters, *rows, *rest)
    for call, words in [
        (lambda: forward(x[None], [], parameters, *rows, *rest), r"expected \(N,D\)"),
        (lambda: forward(x, [], parameters[:-1], *rows, *rest), "12 tensors a block"),
        (lambda: forward(x, [], [], *rows, *rest), "12 tensors a block"),
        (lambda: forward(x, [], [p.double() for p in parameters], *rows, *rest), "another type"),
        (lambda: forward(x[:, :33], [], parameters, *rows, *rest), "has shape"),
        (lambda: forward(x, [], [*parameters[:4], parameters[4].T, *parameters[5:]], *rows, *rest), "contiguous"),
        (lambda: forward(x, [], parameters, *rows, [], 5, *rest[2:]), "5 heads"),
        (lambda: forward(x, [], parameters, *rows, [], 0, *rest[2:]), "0 heads"),
        (lambda: forward(x, [], parameters, *rows, [], 3, 4, *rest[3:]), "activation 4"),
        (lambda: forward(x, [], parameters, *rows, *rest[:6], 1.0, *rest[7:]), "cannot be dropped"),
        (lambda: forward(x, [], parameters, *rows, *rest[:7], [0], 2), "a seed for each part"),
        (lambda: forward(x, [], parameters, *rows, *rest[:8], 0), "0 threads"),
        (lambda: forward(x, [], parameters, [0, 6], [5, 5], [0, 5], *rest), "not within the rows"),
        (lambda: forward(x, [], parameters, [0, 5], [5, -1], [0, 5], *rest), "not within the rows"),
        (lambda: forward(x, [], parameters, [0], *rows[1:], *rest), "do not fit"),
        (lambda: forward(x, [], parameters, *rows, [5, 5], *rest[1:]), "sources do not fit"),
        (lambda: forward(x, [memory], crossed, *rows, *rest), "each part"),
        (lambda: forward(x, [memory], crossed, *rows, [4, 5], *cross), "source 1 has 5 elements of 4"),
        (lambda: forward(x, [memory], crossed, *rows, [0, 4], *cross), "source 0 has 0 elements"),
        (lambda: forward(x, [memory[:1]], crossed, *rows, [4, 4], *cross), "a memory has shape"),
        (lambda: forward(x, [memory.double()], crossed, *rows, [4, 4], *cross), "a memory has shape"),
        (lambda: backward(y, saved[:-1], [], parameters, *rows, *rest), "not that of this forward pass"),
        (lambda: backward(y[:, :33], saved, [], parameters, *rows, *rest), "has shape"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()
