"""The native recurrent kernels against the plain definition of the cells, torch's own layers, and misuse.

Tolerances. float64: 1e-12 of the largest value. float32: 2e-5 of it, since sums of up to a few thousand products
are added in another order. The kernels' own sigmoid and tanh: 4 units in the last place.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seriatim import kernels
from seriatim.kernels import recurrent

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
CELLS = ("rnn", "relu", "lstm", "gru", "gru-after")
GATES = {"rnn": 1, "relu": 1, "lstm": 4, "gru": 3, "gru-after": 3}

needs_kernels = pytest.mark.skipif(not kernels.load(), reason=f"no native kernels: {kernels.status()['reason']}")


@pytest.fixture(autouse=True)
def _one_thread():
    """Small work on several threads is slow on a busy machine; the test of threads asks for them itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def layer(cell: str, x: Tensor, weight: Tensor, *rest: Tensor, **options) -> tuple[Tensor, ...]:
    """One interface for all cells; `rest` is h0, then c0 or the bias where the cell has one."""
    if cell == "lstm":
        return recurrent.lstm(x, weight, *rest, **options)
    if cell.startswith("gru"):
        return recurrent.gru(x, weight, *rest, **options, reset="after" if cell == "gru-after" else "before")
    return recurrent.rnn(x, weight, *rest, **options, activation="relu" if cell == "relu" else "tanh")


def whole_layer(cell: str, x: Tensor, inner: Tensor, outer: Tensor, *rest: Tensor, **options) -> tuple[Tensor, ...]:
    """The same from the inputs, with their weights and bias."""
    return layer(cell, x, *rest, **options, inputs=(inner, outer))


def inputs(cell: str, B: int, T: int, H: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed)
    shapes = [(B, T, GATES[cell] * H), (GATES[cell] * H, H), (B, H)]
    shapes += {"lstm": [(B, H)], "gru-after": [(H,)]}.get(cell, [])
    tensors = [torch.randn(shape, generator=stream, dtype=torch.float64) for shape in shapes]
    tensors[1] /= H**0.5
    return [tensor.to(dtype).requires_grad_() for tensor in tensors]


def whole_inputs(
    cell: str, B: int, T: int, D: int, H: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed + 1)
    shapes = [(B, T, D), (GATES[cell] * H, D), (GATES[cell] * H,)]
    first = [torch.randn(shape, generator=stream, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]
    return [*first, *inputs(cell, B, T, H, dtype, seed)[1:]]


def ragged(B: int, T: int, seed: int = 0) -> Tensor:
    lengths = torch.randint(0, T + 1, (B, 1), generator=torch.Generator().manual_seed(seed))
    return torch.arange(T) < lengths


def holes(B: int, T: int, seed: int = 0) -> Tensor:
    return torch.rand(B, T, generator=torch.Generator().manual_seed(seed)) < 0.6


def outputs_and_gradients(cell: str, tensors: list[Tensor], run=layer, **options) -> list[Tensor]:
    outputs = run(cell, *tensors, **options)
    stream = torch.Generator().manual_seed(7)
    total = sum((output * torch.randn(output.shape, generator=stream, dtype=output.dtype)).sum() for output in outputs)
    return [*outputs, *torch.autograd.grad(total, tensors, materialize_grads=True)]


@contextlib.contextmanager
def plain():
    """Where the layers use the plain definition."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent, "_registered", lambda: False)
        yield


def plain_outputs_and_gradients(cell: str, tensors: list[Tensor], **options) -> list[Tensor]:
    with plain():
        return outputs_and_gradients(cell, tensors, **options)


def assert_equal(result: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(result, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        if other.numel():
            scale = max(1.0, other.abs().max().item())
            torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[other.dtype] * scale)


# ---- equal to the definition ------------------------------------------------------------------------------------


SHAPES = [(1, 1, 1), (1, 9, 16), (5, 1, 33), (3, 4, 7), (33, 6, 70), (64, 5, 40), (2, 3, 128), (120, 3, 9)]


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cell", CELLS)
def test_native_equals_plain(cell, dtype, reverse):
    for B, T, H in SHAPES:
        tensors = inputs(cell, B, T, H, dtype)
        for mask in (None, ragged(B, T), holes(B, T), torch.zeros(B, T, dtype=torch.bool)):
            options = {"mask": mask, "reverse": reverse}
            assert_equal(
                outputs_and_gradients(cell, tensors, **options), plain_outputs_and_gradients(cell, tensors, **options)
            )


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_threads_change_nothing(cell):
    tensors = inputs(cell, 37, 5, 70, torch.float32)
    options = {"mask": ragged(37, 5), "reverse": True}
    alone = outputs_and_gradients(cell, tensors, **options)
    torch.set_num_threads(2)
    assert_equal(outputs_and_gradients(cell, tensors, **options), alone)


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    cell=st.sampled_from(CELLS),
    B=st.integers(0, 40),
    T=st.integers(0, 12),
    H=st.integers(1, 50),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    reverse=st.booleans(),
    masked=st.sampled_from([None, ragged, holes]),
    seed=st.integers(0, 99),
)
def test_any_shape(cell, B, T, H, dtype, reverse, masked, seed):
    tensors = inputs(cell, B, T, H, dtype, seed)
    options = {"mask": masked(B, T, seed) if masked else None, "reverse": reverse}
    assert_equal(outputs_and_gradients(cell, tensors, **options), plain_outputs_and_gradients(cell, tensors, **options))


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_derivatives(cell, reverse):
    tensors = inputs(cell, 3, 4, 5)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0]], dtype=torch.bool)
    for chosen in (None, mask):
        assert torch.autograd.gradcheck(
            lambda *given, chosen=chosen: layer(cell, *given, mask=chosen, reverse=reverse), tensors
        )


@pytest.mark.parametrize("cell", CELLS)
def test_derivatives_of_the_plain_definition(cell, monkeypatch):
    monkeypatch.setattr(recurrent, "_registered", lambda: False)
    tensors = inputs(cell, 2, 3, 2)
    assert torch.autograd.gradcheck(lambda *given: layer(cell, *given, mask=holes(2, 3)), tensors)
    assert torch.autograd.gradgradcheck(lambda *given: layer(cell, *given), tensors)


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cell", CELLS)
def test_from_the_inputs(cell, dtype, reverse):
    """With the products of the inputs made within: some steps at a time, also where these do not go into the whole."""
    for B, T, D, H in ((1, 1, 1, 1), (3, 7, 5, 4), (33, 70, 9, 20), (2, 50, 40, 70), (14, 11, 33, 130)):
        tensors = whole_inputs(cell, B, T, D, H, dtype)
        for mask in (None, ragged(B, T), holes(B, T)):
            options = {"mask": mask, "reverse": reverse, "run": whole_layer}
            assert_equal(
                outputs_and_gradients(cell, tensors, **options), plain_outputs_and_gradients(cell, tensors, **options)
            )


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_derivatives_from_the_inputs(cell):
    tensors = whole_inputs(cell, 2, 4, 3, 5)
    assert torch.autograd.gradcheck(lambda *given: whole_layer(cell, *given, mask=holes(2, 4)), tensors)


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_padding_may_be_anything(cell):
    tensors = whole_inputs(cell, 4, 6, 3, 5)
    mask = ragged(4, 6, seed=2)
    expected = outputs_and_gradients(cell, tensors, whole_layer, mask=mask)
    tensors[0] = torch.where(mask[..., None], tensors[0], float("nan")).detach().requires_grad_()
    assert_equal(outputs_and_gradients(cell, tensors, whole_layer, mask=mask), expected)


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_inputs_without_gradient_or_bias(cell):
    x, inner, _, *rest = whole_inputs(cell, 3, 5, 4, 6)
    leaves = [inner, *rest]
    result, expected = [], []
    for store, context_length in ((result, contextlib.nullcontext()), (expected, plain())):
        with context_length:
            y, *_ = layer(cell, x.detach(), *rest, inputs=(inner, None))
            store += [y, *torch.autograd.grad(y.sum(), leaves, materialize_grads=True)]
    assert_equal(result, expected)


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_only_some_outputs_are_used(cell):
    tensors = inputs(cell, 3, 5, 6)
    for use in (
        lambda y, h, *_: h.sum(),
        lambda y, *_: y[:, -1].sum(),
        lambda y, *_: y.sum(),
        lambda *all: all[-1].sum(),
    ):
        result = torch.autograd.grad(use(*layer(cell, *tensors)), tensors)
        with plain():
            expected = torch.autograd.grad(use(*layer(cell, *tensors)), tensors)
        assert_equal(list(result), list(expected))


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_not_contiguous(cell):
    tensors = inputs(cell, 6, 5, 20, torch.float32)
    expected = layer(cell, *tensors, mask=ragged(6, 5))
    strided = [tensor.detach().t().contiguous().t() if tensor.dim() == 2 else tensor.detach() for tensor in tensors]
    strided[0] = tensors[0].detach().transpose(0, 1).contiguous().transpose(0, 1)
    mask = ragged(6, 5).t().contiguous().t()
    assert not mask.is_contiguous()
    assert_equal(list(layer(cell, *strided, mask=mask)), list(expected))


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_without_gradients_the_result_is_the_same_bit_for_bit(cell):
    tensors = inputs(cell, 5, 7, 30, torch.float32)
    with torch.no_grad():
        without = layer(cell, *tensors)
    for one, other in zip(without, layer(cell, *tensors), strict=True):
        assert not one.requires_grad
        assert torch.equal(one, other)


@needs_kernels
def test_inference_mode_on_two_threads():
    torch.set_num_threads(2)
    tensors = whole_inputs("gru", 40, 30, 16, 16, torch.float32)
    with torch.inference_mode():
        y, _ = whole_layer("gru", *tensors)
    assert torch.equal(y, whole_layer("gru", *tensors)[0])


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_one_step_equals_many(cell):
    """Wide layers take a single step the plain way, and more steps the native one."""
    tensors = [tensor.detach() for tensor in inputs(cell, 3, 4, 200)]
    projected, weight, *rest = tensors
    whole, *_ = layer(cell, *tensors)
    count = 2 if cell == "lstm" else 1
    states = rest[:count]
    for t in range(4):
        y, *states = layer(cell, projected[:, t : t + 1], weight, *states, *rest[count:])
        assert_equal([y[:, 0]], [whole[:, t]])


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_neighbours_and_padding_change_nothing(cell):
    tensors = [tensor.detach() for tensor in inputs(cell, 7, 9, 24)]
    mask = ragged(7, 9, seed=3)
    for reverse in (False, True):
        y, h, *_ = layer(cell, *tensors, mask=mask, reverse=reverse)
        assert torch.all(y[~mask] == 0)
        for row, length in enumerate(mask.sum(1).tolist()):
            alone = [tensors[0][row : row + 1, :length], tensors[1]]
            alone += [tensor[row : row + 1] if tensor.dim() == 2 else tensor for tensor in tensors[2:]]
            y_alone, h_alone, *_ = layer(cell, *alone, reverse=reverse)
            assert_equal([y[row : row + 1, :length], h[row : row + 1]], [y_alone, h_alone])


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_chunks_give_the_whole(cell):
    tensors = [tensor.detach() for tensor in inputs(cell, 4, 8, 17)]
    projected, weight, *rest = tensors
    whole, *_ = layer(cell, *tensors)
    parts, states = [], rest[:2] if cell == "lstm" else rest[:1]
    for piece in projected.split(3, dim=1):
        y, *states = layer(cell, piece.contiguous(), weight, *states, *rest[len(states) :])
        parts.append(y)
    assert_equal([torch.cat(parts, 1)], [whole])


@needs_kernels
@pytest.mark.parametrize(("dtype", "ulp"), [(torch.float32, 4), (torch.float64, 4)])
def test_sigmoid_and_tanh_to_a_few_units_in_the_last_place(dtype, ulp):
    size = torch.logspace(-30, 2.5, 20_001, dtype=torch.float64)
    x = torch.cat([-size, torch.zeros(1), size, torch.linspace(-20, 20, 20_001, dtype=torch.float64)]).to(dtype)
    zero = torch.zeros(1, 1, dtype=dtype)

    def distance(result: Tensor, exact: Tensor) -> float:
        exact = exact.to(torch.float64)
        unit = torch.finfo(dtype).eps * exact.abs().clamp(min=torch.finfo(dtype).tiny)
        return ((result.to(torch.float64) - exact).abs() / unit).max().item()

    tanh, _ = recurrent.rnn(x[None, :, None], zero, zero)  # no recurrence: H_t = tanh(x_t)
    wide = x.to(torch.float64)
    assert distance(tanh[0, :, 0], torch.tanh(wide)) <= ulp
    # The LSTM's first step with F = 0 and C̃ = 1 gives C = σ(i).
    x = x[(x > -87) | (dtype == torch.float64)]
    gates = torch.stack([x, torch.full_like(x, -1e4), torch.full_like(x, 1e4), x], -1)
    _, _, cell = recurrent.lstm(gates[:, None], zero.expand(4, 1), *(torch.zeros(len(x), 1, dtype=dtype),) * 2)
    assert distance(cell[:, 0], torch.sigmoid(x.to(torch.float64))) <= ulp


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_extreme_values(cell):
    tensors = [tensor.detach() for tensor in inputs(cell, 2, 3, 5, torch.float32)]
    tensors[0] = tensors[0].sign() * 1e30
    if cell != "relu":
        assert all(torch.isfinite(output).all() for output in layer(cell, *tensors))
    tensors[0][0, 1, 0] = float("nan")
    y, *_ = layer(cell, *tensors)
    assert torch.isnan(y[0, 1:]).any()
    assert cell == "relu" or torch.isfinite(y[1]).all()


# ---- equal to torch's layers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_kernels), False])
@pytest.mark.parametrize("cell", ["rnn", "relu", "lstm", "gru-after"])
def test_equals_torch(cell, native, monkeypatch):
    if not native:
        monkeypatch.setattr(recurrent, "_registered", lambda: False)
    B, T, D, H = 5, 6, 4, 11
    torch.manual_seed(0)
    kind = {"lstm": nn.LSTM, "gru-after": nn.GRU}.get(cell, nn.RNN)
    options = {"nonlinearity": "relu"} if cell == "relu" else {}
    peer = kind(D, H, batch_first=True, bidirectional=True, dtype=torch.float64, **options)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([6, 5, 3, 3, 1])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    expected, state = peer(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    states = list(state) if cell == "lstm" else [state]

    result, last = [], []
    zeros = x.new_zeros(B, H)
    mask = torch.arange(T) < lengths[:, None]
    for suffix in ("", "_reverse"):
        weights = [getattr(peer, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        inner, outer, bias, recurrent_bias = weights
        rest = [zeros, zeros] if cell == "lstm" else [zeros]
        if cell == "gru-after":  # the last third of torch's second bias stands inside the reset
            rest.append(recurrent_bias[2 * H :])
            recurrent_bias = torch.cat([recurrent_bias[: 2 * H], zeros[0]])
        projected = x @ inner.T + bias + recurrent_bias
        y, *end = layer(cell, projected, outer, *rest, mask=mask, reverse=suffix != "")
        result.append(y)
        last.append(end)
    ours = [torch.cat(result, -1), *(torch.stack(pair) for pair in zip(*last, strict=True))]
    assert_equal(ours, [expected, *states])

    leaves = [x, *peer.parameters()]
    factor = torch.randn_like(expected)
    assert_equal(
        list(torch.autograd.grad((ours[0] * factor).sum(), leaves)),
        list(torch.autograd.grad((expected * factor).sum(), leaves)),
    )


# ---- a good citizen of torch ------------------------------------------------------------------------------------


@needs_kernels
@pytest.mark.parametrize("cell", CELLS)
def test_opcheck(cell):
    recurrent._registered()
    for mask in (None, ragged(3, 4)):
        for x, *first in ([inputs(cell, 3, 4, 5)[0], None, None], whole_inputs(cell, 3, 4, 2, 5)[:3]):
            _, weight, h0, *rest = inputs(cell, 3, 4, 5)
            arguments = (x, *first, weight, h0)
            if cell == "lstm":
                operator, arguments = torch.ops.seriatim.lstm.default, (*arguments, *rest, mask, True, True)
            elif cell.startswith("gru"):
                operator, after = torch.ops.seriatim.gru.default, cell == "gru-after"
                arguments = (*arguments, rest[0] if after else None, mask, False, after, True)
            else:
                operator, arguments = torch.ops.seriatim.rnn.default, (*arguments, mask, False, cell == "relu")
            torch.library.opcheck(operator, arguments)


@needs_kernels
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_compiled_without_a_break(cell):
    tensors = inputs(cell, 3, 4, 5)
    compiled = torch.compile(lambda *given: layer(cell, *given), backend="aot_eager", fullgraph=True)
    result = compiled(*tensors)
    assert_equal(list(result), list(layer(cell, *tensors)))
    leaves = list(torch.autograd.grad(result[0].sum(), tensors))
    assert_equal(leaves, list(torch.autograd.grad(layer(cell, *tensors)[0].sum(), tensors)))


@needs_kernels
def test_second_derivatives_are_refused():
    projected, weight, h0 = inputs("rnn", 2, 3, 4)
    (first,) = torch.autograd.grad(recurrent.rnn(projected, weight, h0)[0].sum(), projected, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        first.sum().backward()


def test_autocast():
    projected, weight, h0 = (tensor.detach() for tensor in inputs("rnn", 2, 3, 4, torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        y, h = recurrent.rnn(projected.bfloat16(), weight, h0)
    assert y.dtype == h.dtype == torch.float32


@pytest.mark.parametrize("cell", CELLS)
def test_half_precision_takes_the_plain_way(cell):
    tensors = inputs(cell, 2, 3, 4, torch.bfloat16)
    y, *_ = layer(cell, *tensors)
    assert y.dtype == torch.bfloat16
    y.sum().backward()


# ---- misuse -----------------------------------------------------------------------------------------------------


def test_wrong_shapes_types_and_words():
    projected, weight, h0, c0 = inputs("lstm", 2, 3, 4)
    wrong = [
        (ValueError, "x must be", (projected[0], weight, h0, c0), {}),
        (ValueError, "values a step", (projected[..., :-1], weight, h0, c0), {}),
        (ValueError, "weight must be", (projected, weight[:-1], h0, c0), {}),
        (ValueError, "h0 has shape", (projected, weight, h0[:1], c0), {}),
        (ValueError, "c0 has shape", (projected, weight, h0, c0[:, :2]), {}),
        (TypeError, "c0 is torch.float32", (projected, weight, h0, c0.float()), {}),
        (TypeError, "weight is torch.float32", (projected, weight.float(), h0, c0), {}),
        (TypeError, "boolean", (projected, weight, h0, c0), {"mask": torch.ones(2, 3)}),
        (ValueError, "mask has shape", (projected, weight, h0, c0), {"mask": torch.ones(3, 2, dtype=torch.bool)}),
        (ValueError, "h0 is on meta", (projected, weight, h0.to("meta"), c0), {}),
    ]
    for kind, message, arguments, options in wrong:
        with pytest.raises(kind, match=message):
            recurrent.lstm(*arguments, **options)
    x, inner, outer, *rest = whole_inputs("lstm", 2, 3, 5, 4)
    for kind, message, weights in (
        (ValueError, "input_weight has shape", (inner[:, :-1], outer)),
        (ValueError, "input_bias has shape", (inner, outer[:-1])),
        (TypeError, "input_bias is torch.float32", (inner, outer.float())),
    ):
        with pytest.raises(kind, match=message):
            recurrent.lstm(x, *rest, inputs=weights)
    with pytest.raises(ValueError, match="activation"):
        recurrent.rnn(projected[..., :4], weight[:4], h0, activation="gelu")
    with pytest.raises(ValueError, match="reset must be"):
        recurrent.gru(projected[..., :12], weight[:12], h0, reset="never")
    with pytest.raises(ValueError, match="bias inside the reset"):
        recurrent.gru(projected[..., :12], weight[:12], h0, bias=h0[0])


@needs_kernels
def test_wrong_sizes_given_to_the_operators_themselves():
    recurrent._registered()
    projected, weight, h0, c0 = (tensor.detach() for tensor in inputs("lstm", 2, 3, 4))
    operators = torch.ops.seriatim
    lstm, given = operators.lstm, (projected, None, None, weight)
    y, h, c, kept = lstm(*given, h0, c0, None, False, True)
    with pytest.raises(ValueError, match="h0 has shape"):
        lstm(*given, h0[:1], c0, None, False, True)
    with pytest.raises(TypeError, match="c0 is Float"):
        lstm(*given, h0, c0.float(), None, False, True)
    with pytest.raises(ValueError, match="without weights"):
        lstm(projected, None, weight[:, 0], weight, h0, c0, None, False, True)
    with pytest.raises(ValueError, match="input_weight has shape"):
        lstm(projected, weight, None, weight, h0, c0, None, False, True)
    with pytest.raises(TypeError, match="float32 or float64"):
        operators.rnn(projected[..., :4].half(), None, None, weight[:4].half(), h0.half(), None, False, False)
    back = operators.lstm_backward
    with pytest.raises(ValueError, match="kept has shape"):
        back(y, h, c, projected, None, weight, h0, None, y, kept[:, :1], False, True)
    with pytest.raises(ValueError, match="gradient of y has shape"):
        back(y[:, :1], h, c, projected, None, weight, h0, None, y, kept, False, True)
    with pytest.raises(ValueError, match="y has shape"):
        back(None, h, c, projected, None, weight, h0, None, y[:, :1], kept, False, True)
    with pytest.raises(ValueError, match="bias has shape"):
        operators.gru(projected[..., :12], None, None, weight[:12], h0, h0, None, False, True, True)
