"""One recurrent layer in one direction over all time steps, by the native kernel or in plain PyTorch, equal in result.

    projected   (B,T,G·H)  the inputs times their weights, plus biases, for all steps: one product, made by the caller
    weight      (G·H,H)    recurrent weights; the gates in torch's order: h | i,f,c̃,o | r,z,h̃
    h0, c0      (B,H)      the state before the first step
    mask        (B,T)      True where a real element stands; elsewhere the state is carried over and the output is 0
    reverse                runs from the last step to the first (right padding then never enters the state)

Each returns the outputs (B,T,H) and the last state. The functions `rnn_step`, `lstm_step` and `gru_step` are the
definition of the cells; the native kernels of recurrent.cpp are held equal to them by the tests. They serve float32
and float64 on the CPU and give first derivatives. With SERIATIM_KERNELS=off there are also second ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from . import load


def project(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """projected = X Wᵀ + b for all steps, (B,T,D) → (B,T,G·H): `linear`, but quicker at these shapes."""
    if (
        x.dim() != 3
        or x.shape[1] < 2
        or x.dtype != weight.dtype
        or torch.is_autocast_enabled(x.device.type)
        or not _native(x)
    ):
        return torch.nn.functional.linear(x, weight, bias)
    projected: Tensor = torch.ops.seriatim.project(x, weight, bias)
    return projected


def rnn(
    projected: Tensor,
    weight: Tensor,
    h0: Tensor,
    mask: Tensor | None = None,
    reverse: bool = False,
    activation: Literal["tanh", "relu"] = "tanh",
) -> tuple[Tensor, Tensor]:
    """H_t = φ(projected_t + H_{t−1} Wᵀ). Returns (y, h)."""
    if activation not in ("tanh", "relu"):
        raise ValueError(f'activation must be "tanh" or "relu", not {activation!r}')
    projected = _checked(1, projected, weight, mask, h0=h0)
    if _pays(projected, weight):
        y, h = torch.ops.seriatim.rnn(projected, weight, h0, mask, reverse, activation == "relu")
        return y, h
    step = functools.partial(rnn_step, weight=weight, activation=activation)
    y, (h,) = _scan(step, projected, (h0,), mask, reverse)
    return y, h


def lstm(
    projected: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, mask: Tensor | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """C_t = F ⊙ C_{t−1} + I ⊙ C̃, H_t = O ⊙ tanh(C_t). Returns (y, h, c)."""
    projected = _checked(4, projected, weight, mask, h0=h0, c0=c0)
    if _pays(projected, weight):
        keep = _needs_gradient(projected, weight, h0, c0)
        y, h, c, _ = torch.ops.seriatim.lstm(projected, weight, h0, c0, mask, reverse, keep)
        return y, h, c
    y, (h, c) = _scan(functools.partial(lstm_step, weight=weight), projected, (h0, c0), mask, reverse)
    return y, h, c


def gru(
    projected: Tensor,
    weight: Tensor,
    h0: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    reverse: bool = False,
    reset: Literal["before", "after"] = "before",
) -> tuple[Tensor, Tensor]:
    """H_t = Z ⊙ H_{t−1} + (1 − Z) ⊙ H̃, the reset before or after the product with the weights. Returns (y, h).

    `bias` (H) is the one inside the reset, R ⊙ (H W + bias): only with reset="after".
    """
    if reset not in ("before", "after"):
        raise ValueError(f'reset must be "before" or "after", not {reset!r}')
    if bias is not None and reset == "before":
        raise ValueError('a bias inside the reset exists only with reset="after"')
    projected = _checked(3, projected, weight, mask, h0=h0, bias=bias)
    if _pays(projected, weight):
        keep = _needs_gradient(projected, weight, h0, bias)
        y, h, _ = torch.ops.seriatim.gru(projected, weight, h0, bias, mask, reverse, reset == "after", keep)
        return y, h
    step = functools.partial(gru_step, weight=weight, bias=bias, reset=reset)
    y, (h,) = _scan(step, projected, (h0,), mask, reverse)
    return y, h


# ---- the cells: one step, as the equations stand in the papers --------------------------------------------------


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
            real = mask[:, t, None]
            outputs[t] = torch.where(real, after[0], 0)
            after = tuple(torch.where(real, new, old) for new, old in zip(after, states, strict=True))
        states = after
    if T == 0:
        return projected.new_zeros(projected.shape[0], 0, states[0].shape[-1]), states
    return torch.stack([outputs[t] for t in range(T)], 1), states


# ---- what both ways share ---------------------------------------------------------------------------------------


def _checked(gates: int, projected: Tensor, weight: Tensor, mask: Tensor | None, **others: Tensor | None) -> Tensor:
    """`projected`, if all fits together; under autocast in the type of the weights, as the state is best kept in it."""
    if projected.dim() != 3:
        raise ValueError(f"projected must be (B, T, {gates}*H), not {tuple(projected.shape)}")
    if weight.dim() != 2 or weight.shape[0] != gates * weight.shape[1] or weight.shape[1] == 0:
        raise ValueError(f"weight must be ({gates}*H, H), not {tuple(weight.shape)}")
    (B, T, size), H = projected.shape, weight.shape[1]
    if size != gates * H:
        raise ValueError(f"projected has {size} values a step; for weight {tuple(weight.shape)} {gates * H} are due")
    if projected.dtype != weight.dtype and torch.is_autocast_enabled(projected.device.type):
        projected = projected.to(weight.dtype)
    for name, tensor in (("weight", weight), *others.items()):
        if tensor is None:
            continue
        if tensor.dtype != projected.dtype:
            raise TypeError(f"{name} is {tensor.dtype}, projected is {projected.dtype}")
        if tensor.device != projected.device:
            raise ValueError(f"{name} is on {tensor.device}, projected on {projected.device}")
        shape = {"weight": weight.shape, "bias": (H,)}.get(name, (B, H))
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be boolean, not {mask.dtype}")
        if mask.device != projected.device:
            raise ValueError(f"mask is on {mask.device}, projected on {projected.device}")
        if mask.shape != (B, T):
            raise ValueError(f"mask has shape {tuple(mask.shape)}, expected {(B, T)}")
    return projected


def _native(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64) and _registered()


def _pays(projected: Tensor, weight: Tensor) -> bool:
    """Whether the native kernel is there and the quicker one.

    It packs the weights once a call. Over one or a few steps, as in generation, that takes longer than the work
    itself; measured, the ways meet at about 128 units a step.
    """
    return projected.shape[1] * 128 >= weight.shape[1] and _native(projected)


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


# ---- what torch must know about the native operators ------------------------------------------------------------


@functools.cache
def _register() -> bool:
    """Loads the operators and gives them their derivatives and the shapes of their results."""
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


# torch.compile shall call it while it traces, and take the answer for a constant: what the decorator
# torch.compiler.assume_constant_result does, without importing the compiler for everybody.
_registered._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _no_second_derivative(ctx: Any, *gradients: Tensor) -> NoReturn:
    raise RuntimeError("the native recurrent kernels give first derivatives only; set SERIATIM_KERNELS=off for second")


def _project_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight)


def _project_backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
    inputs = ctx.needs_input_grad[0]
    d_x, d_weight, d_bias = torch.ops.seriatim.project_backward(d, *ctx.saved_tensors, inputs)
    return d_x if inputs else None, d_weight, d_bias if ctx.biased else None


def _rnn_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, h0, mask, ctx.reverse, ctx.relu = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(weight, h0, mask, output[0])


def _rnn_backward(ctx: Any, dy: Tensor | None, dh: Tensor | None) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.seriatim.rnn_backward(dy, dh, *ctx.saved_tensors, ctx.reverse, ctx.relu)
    return *gradients, None, None, None


def _lstm_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, h0, _, mask, ctx.reverse, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(weight, h0, mask, output[0], output[3])


def _lstm_backward(
    ctx: Any, dy: Tensor | None, dh: Tensor | None, dc: Tensor | None, _: Any
) -> tuple[Tensor | None, ...]:
    gradients = torch.ops.seriatim.lstm_backward(dy, dh, dc, *ctx.saved_tensors, ctx.reverse)
    return *gradients, None, None, None


def _gru_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, h0, bias, mask, ctx.reverse, ctx.after, _ = inputs
    ctx.biased = bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(weight, h0, mask, output[0], output[2])


def _gru_backward(ctx: Any, dy: Tensor | None, dh: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    *gradients, d_bias = torch.ops.seriatim.gru_backward(dy, dh, *ctx.saved_tensors, ctx.reverse, ctx.after)
    return *gradients, d_bias if ctx.biased else None, None, None, None, None


DERIVATIVES: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "project": (_project_setup, _project_backward),
    "rnn": (_rnn_setup, _rnn_backward),
    "lstm": (_lstm_setup, _lstm_backward),
    "gru": (_gru_setup, _gru_backward),
}


def _empty_layer(projected: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    B, T, _ = projected.shape
    return projected.new_empty(B, T, h0.shape[1]), projected.new_empty(h0.shape)


def _empty_kept(projected: Tensor, h0: Tensor, parts: int, keep: bool) -> Tensor:
    B, T, _ = projected.shape
    return projected.new_empty(T, B, parts, h0.shape[1]) if keep else projected.new_empty(0)


def _project_fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], weight.shape[0])


def _project_backward_fake(d: Tensor, x: Tensor, weight: Tensor, inputs: bool) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape if inputs else 0), weight.new_empty(weight.shape), d.new_empty(d.shape[-1])


def _rnn_fake(
    projected: Tensor, weight: Tensor, h0: Tensor, mask: Tensor | None, reverse: bool, relu: bool
) -> tuple[Tensor, ...]:
    return _empty_layer(projected, h0)


def _rnn_backward_fake(
    dy: Tensor | None,
    dh: Tensor | None,
    weight: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    y: Tensor,
    reverse: bool,
    relu: bool,
) -> tuple[Tensor, ...]:
    return torch.empty_like(y), weight.new_empty(weight.shape), h0.new_empty(h0.shape)


def _lstm_fake(
    projected: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, mask: Tensor | None, reverse: bool, keep: bool
) -> tuple[Tensor, ...]:
    y, h = _empty_layer(projected, h0)
    return y, h, h0.new_empty(h0.shape), _empty_kept(projected, h0, 5, keep)


def _lstm_backward_fake(
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    weight: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    y: Tensor,
    kept: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    B, T, H = y.shape
    return y.new_empty(B, T, 4 * H), weight.new_empty(weight.shape), h0.new_empty(h0.shape), h0.new_empty(h0.shape)


def _gru_fake(
    projected: Tensor,
    weight: Tensor,
    h0: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    reverse: bool,
    after: bool,
    keep: bool,
) -> tuple[Tensor, ...]:
    return *_empty_layer(projected, h0), _empty_kept(projected, h0, 4 if after else 3, keep)


def _gru_backward_fake(
    dy: Tensor | None,
    dh: Tensor | None,
    weight: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    y: Tensor,
    kept: Tensor,
    reverse: bool,
    after: bool,
) -> tuple[Tensor, ...]:
    B, T, H = y.shape
    d_bias = y.new_empty(H if after else 0)
    return y.new_empty(B, T, 3 * H), weight.new_empty(weight.shape), h0.new_empty(h0.shape), d_bias


FAKES: dict[str, Callable[..., Any]] = {
    "project": _project_fake,
    "project_backward": _project_backward_fake,
    "rnn": _rnn_fake,
    "rnn_backward": _rnn_backward_fake,
    "lstm": _lstm_fake,
    "lstm_backward": _lstm_backward_fake,
    "gru": _gru_fake,
    "gru_backward": _gru_backward_fake,
}
