"""A recurrent layer in one direction over all time steps, by the native kernel or in plain PyTorch, with equal results.

    x           (B,T,D)    the inputs, with `inputs`: their weights (G·H,D) and a bias (G·H) or None; or, without
                           `inputs`, (B,T,G·H): already multiplied by their weights
    weight      (G·H,H)    recurrent weights; the gates in torch's order: h | i,f,c̃,o | r,z,h̃
    h0, c0      (B,H)      the state before the first step
    mask        (B,T)      True for elements; for padding (False) the state is carried over and the output is 0
    reverse                runs from the last step to the first (right padding then never enters the state)

Each returns the outputs (B,T,H) and the last state. `rnn_step`, `lstm_step` and `gru_step` define the cells; tests hold
the native kernels of recurrent.cpp equal to them. float32 and float64 on the CPU, first derivatives; with
SERIATIM_KERNELS=off also second ones.

`library_layer` runs a layer by torch's own functions: cuDNN on a GPU, oneDNN's LSTM on a CPU. cuDNN includes the
product of the inputs, has the GRU only with the reset after the product, and supports no mask: rows must be padded on
the right, and are packed. oneDNN's LSTM is faster for weights that do not fit in the caches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from . import Context, load

Inputs = tuple[Tensor, Tensor | None]  # weights and bias of the inputs


def rnn(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    mask: Tensor | None = None,
    reverse: bool = False,
    activation: Literal["tanh", "relu"] = "tanh",
    inputs: Inputs | None = None,
) -> tuple[Tensor, Tensor]:
    """H_t = φ(X_t Uᵀ + b + H_{t−1} Wᵀ). Returns (y, h)."""
    if activation not in ("tanh", "relu"):
        raise ValueError(f'activation must be "tanh" or "relu", not {activation!r}')
    x, inputs = _check(1, x, inputs, weight, mask, h0=h0)
    if _use_native(x, weight):
        y, h = torch.ops.seriatim.rnn(x, *_pair(inputs), weight, h0, mask, reverse, activation == "relu")
        return y, h
    step = functools.partial(rnn_step, weight=weight, activation=activation)
    y, (h,) = _scan(step, _projected(x, inputs), (h0,), mask, reverse)
    return y, h


def lstm(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    c0: Tensor,
    mask: Tensor | None = None,
    reverse: bool = False,
    inputs: Inputs | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """C_t = F ⊙ C_{t−1} + I ⊙ C̃, H_t = O ⊙ tanh(C_t). Returns (y, h, c)."""
    x, inputs = _check(4, x, inputs, weight, mask, h0=h0, c0=c0)
    if inputs is not None and prefers_onednn(x, weight.shape[1], mask) and _native(x):
        input_weight, input_bias = inputs
        zeros = input_weight.new_zeros(len(input_weight))
        biases = (zeros if input_bias is None else input_bias, zeros)
        y, (h, c) = library_layer("lstm", x, (input_weight, weight), biases, (h0, c0), None, reverse)
        return y, h, c
    if _use_native(x, weight):
        save = _needs_gradient(x, *_pair(inputs), weight, h0, c0)
        y, h, c, _ = torch.ops.seriatim.lstm(x, *_pair(inputs), weight, h0, c0, mask, reverse, save)
        return y, h, c
    step = functools.partial(lstm_step, weight=weight)
    y, (h, c) = _scan(step, _projected(x, inputs), (h0, c0), mask, reverse)
    return y, h, c


def gru(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    reverse: bool = False,
    reset: Literal["before", "after"] = "before",
    inputs: Inputs | None = None,
) -> tuple[Tensor, Tensor]:
    """H_t = Z ⊙ H_{t−1} + (1 − Z) ⊙ H̃, the reset before or after the product with the weights. Returns (y, h).

    `bias` (H) is that of R ⊙ (H W + bias), with reset="after" only.
    """
    if reset not in ("before", "after"):
        raise ValueError(f'reset must be "before" or "after", not {reset!r}')
    if bias is not None and reset == "before":
        raise ValueError('a bias inside the reset exists only with reset="after"')
    x, inputs = _check(3, x, inputs, weight, mask, h0=h0, bias=bias)
    if _use_native(x, weight):
        save = _needs_gradient(x, *_pair(inputs), weight, h0, bias)
        after = reset == "after"
        y, h, _ = torch.ops.seriatim.gru(x, *_pair(inputs), weight, h0, bias, mask, reverse, after, save)
        return y, h
    step = functools.partial(gru_step, weight=weight, bias=bias, reset=reset)
    y, (h,) = _scan(step, _projected(x, inputs), (h0,), mask, reverse)
    return y, h


# The cells: the equations of one step


def rnn_step(x: Tensor, h: Tensor, *, weight: Tensor, activation: str = "tanh") -> tuple[Tensor]:
    total = x + h @ weight.T
    return (torch.tanh(total) if activation == "tanh" else torch.relu(total),)


def lstm_step(x: Tensor, h: Tensor, c: Tensor, *, weight: Tensor) -> tuple[Tensor, Tensor]:
    i, f, node, o = (x + h @ weight.T).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(node)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_step(
    x: Tensor, h: Tensor, *, weight: Tensor, bias: Tensor | None = None, reset: str = "before"
) -> tuple[Tensor]:
    H = h.shape[-1]
    r, z = torch.sigmoid(x[:, : 2 * H] + h @ weight[: 2 * H].T).chunk(2, -1)
    if reset == "before":
        inner = (r * h) @ weight[2 * H :].T
    else:
        product = h @ weight[2 * H :].T
        inner = r * (product if bias is None else product + bias)
    return (z * h + (1 - z) * torch.tanh(x[:, 2 * H :] + inner),)


def _scan(
    step: Callable[..., tuple[Tensor, ...]],
    projected: Tensor,
    states: tuple[Tensor, ...],
    mask: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    T = projected.shape[1]
    outputs = {}
    for t in reversed(range(T)) if reverse else range(T):
        after = step(projected[:, t], *states)
        outputs[t] = after[0]
        if mask is not None:
            valid = mask[:, t, None]
            outputs[t] = torch.where(valid, after[0], 0)
            after = tuple(torch.where(valid, new, old) for new, old in zip(after, states, strict=True))
        states = after
    if T == 0:
        return projected.new_zeros(projected.shape[0], 0, states[0].shape[-1]), states
    return torch.stack([outputs[t] for t in range(T)], 1), states


# Shared by both implementations


def _check(
    gates: int, x: Tensor, inputs: Inputs | None, weight: Tensor, mask: Tensor | None, **others: Tensor | None
) -> tuple[Tensor, Inputs | None]:
    """Checks types and shapes, and returns x and the weights of the inputs.

    Under autocast the product of the inputs is computed in autocast's type, everything else in that of the weights.
    """
    if x.dim() != 3:
        raise ValueError(f"x must be (B, T, D), not {tuple(x.shape)}")
    if weight.dim() != 2 or weight.shape[0] != gates * weight.shape[1] or weight.shape[1] == 0:
        raise ValueError(f"weight must be ({gates}*H, H), not {tuple(weight.shape)}")
    if torch.is_autocast_enabled(x.device.type):
        x, inputs = _projected(x, inputs).to(weight.dtype), None
    (B, T, size), H = x.shape, weight.shape[1]
    input_weight, input_bias = _pair(inputs)
    if input_weight is None and size != gates * H:
        raise ValueError(f"x has {size} values a step; for weight {tuple(weight.shape)} {gates * H} are expected")
    shapes = {"input_weight": (gates * H, size), "input_bias": (gates * H,), "weight": weight.shape, "bias": (H,)}
    named = {"input_weight": input_weight, "input_bias": input_bias, "weight": weight, **others}
    for name, tensor in named.items():
        if tensor is None:
            continue
        if tensor.dtype != x.dtype:
            raise TypeError(f"{name} is {tensor.dtype}, x is {x.dtype}")
        if tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, x on {x.device}")
        shape = shapes.get(name, (B, H))
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, not {mask.dtype}")
        if mask.device != x.device:
            raise ValueError(f"mask is on {mask.device}, x on {x.device}")
        if mask.shape != (B, T):
            raise ValueError(f"mask has shape {tuple(mask.shape)}, expected {(B, T)}")
    return x, inputs


def _pair(inputs: Inputs | None) -> Inputs | tuple[None, None]:
    return (None, None) if inputs is None else inputs


def _projected(x: Tensor, inputs: Inputs | None) -> Tensor:
    return x if inputs is None else torch.nn.functional.linear(x, *inputs)


def _native(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64) and _registered()


def _use_native(x: Tensor, weight: Tensor) -> bool:
    """Returns whether the native kernel is available and faster.

    It packs the weights in every call, which takes longer than the computation of one or a few steps: as measured,
    both are equal at about 128 units per step.
    """
    return x.shape[1] * 128 >= weight.shape[1] and _native(x)


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


# Registration of the operators with torch


@functools.cache
def _register() -> bool:
    """Loads the operators, and registers their derivatives and the shapes of their results."""
    if not load():
        return False
    for name, fake in FAKES.items():
        torch.library.register_fake(f"seriatim::{name}", fake)
    for name, (setup, backward) in DERIVATIVES.items():
        torch.library.register_autograd(f"seriatim::{name}", backward, setup_context=setup)
        torch.library.register_autograd(f"seriatim::{name}_backward", _no_second_derivative)
    return True


def _registered() -> bool:
    return _register()


# torch.compile calls it while tracing and takes the result as a constant, as torch.compiler.assume_constant_result
# does, which would import the compiler.
_registered._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _no_second_derivative(ctx: Context, *gradients: Tensor) -> NoReturn:
    raise RuntimeError("the native recurrent kernels give first derivatives only; set SERIATIM_KERNELS=off for second")


def _rnn_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, ...]) -> None:
    x, input_weight, input_bias, weight, h0, mask, ctx.reverse, ctx.relu = inputs
    ctx.has_bias = input_bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, input_weight, weight, h0, mask, output[0])


def _rnn_backward(ctx: Context, dy: Tensor | None, dh: Tensor | None) -> tuple[Tensor | None, ...]:
    needs_x = ctx.needs_input_grad[0]
    gradients = torch.ops.seriatim.rnn_backward(dy, dh, *ctx.saved_tensors, ctx.reverse, ctx.relu, needs_x)
    *first, d_weight, d_h0 = gradients
    return *_input_gradients(ctx, *first), d_weight, d_h0, None, None, None


def _lstm_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, ...]) -> None:
    x, input_weight, input_bias, weight, h0, _, mask, ctx.reverse, _ = inputs
    ctx.has_bias = input_bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, input_weight, weight, h0, mask, output[0], output[3])


def _lstm_backward(
    ctx: Context, dy: Tensor | None, dh: Tensor | None, dc: Tensor | None, _: object
) -> tuple[Tensor | None, ...]:
    needs_x = ctx.needs_input_grad[0]
    gradients = torch.ops.seriatim.lstm_backward(dy, dh, dc, *ctx.saved_tensors, ctx.reverse, needs_x)
    *first, d_weight, d_h0, d_c0 = gradients
    return *_input_gradients(ctx, *first), d_weight, d_h0, d_c0, None, None, None


def _gru_setup(ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, ...]) -> None:
    x, input_weight, input_bias, weight, h0, bias, mask, ctx.reverse, ctx.after, _ = inputs
    ctx.has_bias, ctx.has_reset_bias = input_bias is not None, bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, input_weight, weight, h0, mask, output[0], output[2])


def _gru_backward(ctx: Context, dy: Tensor | None, dh: Tensor | None, _: object) -> tuple[Tensor | None, ...]:
    needs_x = ctx.needs_input_grad[0]
    gradients = torch.ops.seriatim.gru_backward(dy, dh, *ctx.saved_tensors, ctx.reverse, ctx.after, needs_x)
    *first, d_weight, d_h0, d_bias = gradients
    return (
        *_input_gradients(ctx, *first),
        d_weight,
        d_h0,
        d_bias if ctx.has_reset_bias else None,
        None,
        None,
        None,
        None,
    )


def _input_gradients(ctx: Context, d_x: Tensor, d_weight: Tensor, d_bias: Tensor) -> tuple[Tensor | None, ...]:
    """Returns the gradients of x and of the weights and bias of the inputs, None for those that do not exist."""
    projected = ctx.saved_tensors[1] is not None
    return (
        d_x if ctx.needs_input_grad[0] else None,
        d_weight if projected else None,
        d_bias if ctx.has_bias else None,
    )


DERIVATIVES: dict[str, tuple[Callable[..., None], Callable[..., tuple[Tensor | None, ...]]]] = {
    "rnn": (_rnn_setup, _rnn_backward),
    "lstm": (_lstm_setup, _lstm_backward),
    "gru": (_gru_setup, _gru_backward),
}


def _empty_layer(x: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(*x.shape[:2], h0.shape[1]), x.new_empty(h0.shape)


def _empty_saved(x: Tensor, h0: Tensor, parts: int, save: bool) -> Tensor:
    return x.new_empty(x.shape[1], x.shape[0], parts, h0.shape[1]) if save else x.new_empty(0)


def _empty_gradients(
    x: Tensor, input_weight: Tensor | None, weight: Tensor, h0: Tensor, needs_x: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape) if needs_x else x.new_empty(0),
        x.new_empty(0) if input_weight is None else input_weight.new_empty(input_weight.shape),
        x.new_empty(0) if input_weight is None else input_weight.new_empty(input_weight.shape[0]),
        weight.new_empty(weight.shape),
        h0.new_empty(h0.shape),
    )


FAKES: dict[str, Callable[..., tuple[Tensor, ...]]] = {  # results of the right shapes, for tracing
    "rnn": lambda x, wx, bx, w, h0, mask, reverse, relu: _empty_layer(x, h0),
    "rnn_backward": lambda dy, dh, x, wx, w, h0, *others: _empty_gradients(x, wx, w, h0, others[-1]),
    "lstm": lambda x, wx, bx, w, h0, c0, mask, reverse, save: (
        *_empty_layer(x, h0),
        h0.new_empty(h0.shape),
        _empty_saved(x, h0, 5, save),
    ),
    "lstm_backward": lambda dy, dh, dc, x, wx, w, h0, *others: (
        *_empty_gradients(x, wx, w, h0, others[-1]),
        h0.new_empty(h0.shape),
    ),
    "gru": lambda x, wx, bx, w, h0, b, mask, reverse, after, save: (
        *_empty_layer(x, h0),
        _empty_saved(x, h0, 4 if after else 3, save),
    ),
    "gru_backward": lambda dy, dh, x, wx, w, h0, *others: (
        *_empty_gradients(x, wx, w, h0, others[-1]),
        x.new_empty(h0.shape[1] if others[-2] else 0),
    ),
}


# A layer by torch's own functions

FUNCTIONS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "tanh": torch.rnn_tanh,
    "relu": torch.rnn_relu,
    "lstm": torch.lstm,
    "gru-after": torch.gru,
}

MIN_ONEDNN_WIDTH = 512


def supports_cudnn(x: Tensor, kind: str | None, mask: Tensor | None) -> bool:
    """Returns whether cuDNN has this cell, and the rows can be packed."""
    if x.device.type != "cuda" or kind not in FUNCTIONS or not torch.backends.cudnn.enabled or x.shape[1] == 0:
        return False
    return mask is None or bool(mask[:, 0].all() and (mask[:, 1:] <= mask[:, :-1]).all())


def prefers_onednn(x: Tensor, width: int, mask: Tensor | None) -> bool:
    """Returns whether oneDNN's LSTM is faster on the CPU: as measured, equal at 256 units, a seventh faster at 650."""
    return (
        width >= MIN_ONEDNN_WIDTH
        and mask is None
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.shape[1] > 1
    )


def library_layer(
    kind: str,
    x: Tensor,
    weights: tuple[Tensor, Tensor],
    biases: tuple[Tensor, Tensor],
    state: tuple[Tensor, ...],
    mask: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns the outputs (B,T,H) and the last state, in the type of the weights, also under autocast.

    Args:
        kind: A key of `FUNCTIONS`.
        x: Inputs (B,T,D).
        weights: Of the inputs and of the state.
        biases: Of the inputs and of the state.
        state: Before the first step.
        mask: True for elements, False for padding on the right.
        reverse: Whether to run from the last element to the first.
    """
    run = FUNCTIONS[kind]
    before = tuple(part[None] for part in state)
    hidden = before if len(before) > 1 else before[0]
    parameters = [*weights, *biases]
    lengths = torch.full((len(x),), x.shape[1], device=x.device) if mask is None else mask.sum(dim=1)
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(weights[0].dtype)
        if reverse:
            x = _reverse_rows(x, lengths)
        if mask is None:
            y, *after = run(x, hidden, parameters, True, 1, 0.0, False, False, True)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            longest_first, original = packed.sorted_indices, packed.unsorted_indices
            assert longest_first is not None  # because of enforce_sorted=False
            assert original is not None
            first = tuple(part.index_select(1, longest_first) for part in before)
            hidden = first if len(first) > 1 else first[0]
            data, *after = run(packed.data, packed.batch_sizes, hidden, parameters, True, 1, 0.0, False, False)
            y, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=x.shape[1])
            after = [part.index_select(1, original) for part in after]
        if reverse:
            y = _reverse_rows(y, lengths)
    return y, tuple(part[0] for part in after)


def _reverse_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverses the elements of each row; padding stays on the right."""
    positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    mirrored = torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)
    return x.gather(1, mirrored[..., None].expand_as(x))
