"""`python -m seriatim.kernels.self_test LIBRARY`: runs every operator of a library against its equations.

A library that was just built is tested in a process of its own, because wrong machine code may also crash. Results and
gradients are compared at sizes that are no multiples of a register.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from . import attention, layers, load_library, recurrent, stack

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
Function = Callable[..., Tensor | tuple[Tensor, ...]]


def check(name: str, found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    """Exits with a message unless tensors are equal, up to a share of the largest number."""
    for ours, theirs in zip(found, expected, strict=True):
        difference = float((ours - theirs).abs().max())
        if not difference <= tolerance * max(1.0, float(theirs.abs().max())):
            sys.exit(f"{name} differs from its equations by {difference:.3g}")


def compare(
    name: str, native: Function, reference: Function, shapes: Sequence[tuple[int, ...]], gradients: bool = True
) -> None:
    """Checks values and gradients of two functions of random tensors."""
    for dtype, tolerance in TOLERANCE.items():
        torch.manual_seed(0)
        tensors = [torch.randn(shape, dtype=dtype).div_(math.sqrt(shape[-1])) for shape in shapes]
        results: list[list[Tensor]] = []
        for function in (native, reference):
            leaves = [tensor.clone().requires_grad_(gradients) for tensor in tensors]
            outputs = function(*leaves)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            factors = [torch.linspace(1, 2, output.numel(), dtype=dtype).view_as(output) for output in outputs]
            found = torch.autograd.grad(outputs, leaves, factors) if gradients else ()
            results.append([tensor.detach() for tensor in (*outputs, *found)])
        check(f"{name} in {dtype}", results[0], results[1], tolerance)


def check_recurrent(
    name: str, gates: int, states: int, step: Callable[..., tuple[Tensor, ...]], **options: str
) -> None:
    B, T, D, H = 5, 7, 3, 19
    mask = torch.arange(T) < torch.tensor([7, 1, 4, 6, 7])[:, None]

    def native(x: Tensor, u: Tensor, b: Tensor, weight: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        layer: Callable[..., tuple[Tensor, ...]] = getattr(recurrent, name)
        return layer(x, weight, *state, mask=mask, reverse=True, inputs=(u, b), **options)

    def reference(x: Tensor, u: Tensor, b: Tensor, weight: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        cell = functools.partial(step, weight=weight, **options)
        y, last = recurrent._scan(cell, F.linear(x, u, b), state, mask, True)
        return y, *last

    compare(name, native, reference, [(B, T, D), (gates * H, D), (gates * H,), (gates * H, H), *[(B, H)] * states])


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Returns attention (B,T,H·d) of heads (B,T,H,d)."""
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    mask = None if mask is None else mask[:, None, None]
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal).transpose(1, 2).flatten(2)


def check_attention(queries: int, keys: int) -> None:
    B, heads = 4, 3
    size = next(size for size in attention.SIZES if attention.is_faster(torch.empty(0), 1, size))
    mask = torch.arange(keys) < torch.tensor([keys, 1, 5, keys - 1])[:, None]

    def self_attention(inputs: Tensor) -> Tensor:
        query, key, value = inputs.unflatten(-1, (3, heads, size)).unbind(2)
        return attend(query, key, value, None, True)

    def cross_attention(query: Tensor, memory: Tensor) -> Tensor:
        key, value = memory.unflatten(-1, (2, heads, size)).unbind(2)
        return attend(query.unflatten(-1, (heads, size)), key, value, mask, False)

    compare(
        f"self-attention over {keys}",
        lambda inputs: attention.self_attention(inputs, heads, None, True),
        self_attention,
        [(B, keys, 3 * heads * size)],
    )
    compare(
        f"cross-attention over {keys}",
        lambda query, memory: attention.cross_attention(query, memory, heads, mask),
        cross_attention,
        [(B, queries, heads * size), (B, keys, 2 * heads * size)],
    )


def check_additive() -> None:
    assert attention.has_additive_scores(*[torch.empty(0)] * 3)
    compare(
        "additive attention",
        attention.additive_scores,
        lambda query, key, weight: torch.tanh(query[:, :, None] + key[:, None]) @ weight,
        [(4, 5, 19), (4, 7, 19), (19,)],
    )


def check_linear(name: str | None, activation: Callable[[Tensor], Tensor]) -> None:
    assert layers.is_available(torch.empty(0))
    compare(
        f"linear layer and {name}",
        lambda x, weight, bias: layers.packed_linear(x, layers.pack(weight), len(weight), bias, name),
        lambda x, weight, bias: activation(F.linear(x, weight, bias)),
        [(13, 21), (37, 21), (37,)],
        gradients=False,
    )
    compare(
        f"bias and {name}",
        lambda x, bias: layers.bias_activation(x, bias, name),
        lambda x, bias: activation(x + bias),
        [(5, 1021, 19), (19,)],
    )


def check_convolution() -> None:
    compare(
        "convolution",
        lambda x, weight, bias: layers.convolution(x, weight, bias, 2),
        lambda x, weight, bias: F.conv1d(x.transpose(1, 2), weight, bias, dilation=2).transpose(1, 2),
        [(3, 23, 5), (19, 5, 3), (19,)],
    )


def check_dropout() -> None:
    keep = layers.dropout(torch.ones(300, 300), 0.25, 7) != 0
    compare("dropout", lambda x: layers.dropout(x, 0.25, 7), lambda x: torch.where(keep, x / 0.75, 0), [(300, 300)])
    check("dropout's share", [keep.float().mean()], [torch.tensor(0.75)], 0.02)


def check_stack(pre_norm: bool) -> None:
    B, T, D, F_, heads, lengths = 4, 19, 36, 50, 3, [19, 1, 7, 18]
    seeds, p = [3, 1 << 40, 5, 7], 0.25
    form = stack.BlockForm(heads, "gelu-tanh", pre_norm, 1e-5, p)
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    shapes = [(D,), (D,), (3 * D, D), (3 * D,), (D, D), (D,), (D,), (D,), (F_, D), (F_,), (D, F_), (D,)]

    def add_part(x: Tensor, norm: Sequence[Tensor], part: Callable[[Tensor], Tensor], seed: int) -> Tensor:
        scale, shift = norm
        y = x + layers.dropout(part(F.layer_norm(x, (D,), 1 + scale, shift) if pre_norm else x), p, seed)
        return y if pre_norm else F.layer_norm(y, (D,), 1 + scale, shift)

    def reference(x: Tensor, *tensors: Tensor) -> Tensor:
        for first in (0, 12):
            inputs, output, hidden, back = (tensors[first + index : first + index + 2] for index in (2, 4, 8, 10))

            def attention_part(
                x: Tensor, inputs: Sequence[Tensor] = inputs, output: Sequence[Tensor] = output
            ) -> Tensor:
                query, key, value = F.linear(x, *inputs).unflatten(-1, (3, heads, -1)).unbind(2)
                return F.linear(attend(query, key, value, mask, False), *output)

            def hidden_part(x: Tensor, hidden: Sequence[Tensor] = hidden, back: Sequence[Tensor] = back) -> Tensor:
                return F.linear(F.gelu(F.linear(x, *hidden), approximate="tanh"), *back)

            x = add_part(x, tensors[first : first + 2], attention_part, seeds[first // 6])
            x = add_part(x, tensors[first + 6 : first + 8], hidden_part, seeds[first // 6 + 1])
        return torch.where(mask[:, :, None], x, 0)

    def native(x: Tensor, *tensors: Tensor) -> Tensor:
        moved = [1 + tensor if index % 12 in (0, 6) else tensor for index, tensor in enumerate(tensors)]
        return stack.block_stack(x, moved, form, False, seeds, lengths)

    compare(f"blocks, norm before: {pre_norm}", native, reference, [(B, T, D), *shapes, *shapes])


def check_generation(
    kind: str,
    reference: Callable[[Tensor], Tensor],
    tensors: Sequence[Tensor],
    sizes: Sequence[int],
    numbers: Sequence[float] = (),
) -> None:
    """Checks the log-probabilities after prompts and the tokens that follow them."""
    tokens = torch.randint(len(tensors[0]), (3, 4))
    for int8, tolerance in ((False, 1e-4), (True, 0.02)):
        generator = torch.classes.seriatim.Generator(kind, list(tensors), list(sizes), list(numbers), int8)
        log_probs, state = generator.prefill(tokens)
        check(f"generation ({kind}, int8: {int8})", [log_probs], [reference(tokens)], tolerance)
        if not int8:
            for _ in range(4):
                tokens = torch.cat([tokens, reference(tokens).argmax(-1)[:, None]], dim=1)
            limits = torch.full((3,), 3)
            generated, _, _ = generator.generate(tokens[:, -4], state, 3, limits, -1, 0, [], None, 0.0, 0, 1.0)
            check(f"generated tokens ({kind})", [generated], [tokens[:, -3:]], 0)


def check_networks() -> None:
    """Generates with a Transformer of one block and with a recurrent network."""
    V, D, heads = 23, 24, 2
    torch.manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape) / math.sqrt(shape[-1])

    tokens, positions, head, head_bias = draw(V, D), draw(16, D), draw(V, D), draw(V)
    begin, first, second, last = ((1 + draw(D), draw(D)) for _ in range(4))
    inputs, output, hidden, back = ([draw(n, k), draw(n)] for n, k in ((3 * D, D), (D, D), (40, D), (D, 40)))

    def transformer(rows: Tensor) -> Tensor:
        x = F.layer_norm(tokens[rows] + positions[: rows.shape[1]], (D,), *begin)
        query, key, value = F.linear(F.layer_norm(x, (D,), *first), *inputs).unflatten(-1, (3, heads, -1)).unbind(2)
        mixed = attend(query, key, value, None, True)
        x = x + F.linear(mixed, *output)
        x = x + F.linear(F.silu(F.linear(F.layer_norm(x, (D,), *second), *hidden)), *back)
        return F.linear(F.layer_norm(x, (D,), *last), head, head_bias)[:, -1].log_softmax(-1)

    tensors = [tokens, positions, *begin, *last, head, head_bias, *first, *inputs, *output, *second, *hidden, *back]
    sizes = [1, heads, 1, 0, layers.NAMES.index("silu")]  # see blocks.h
    check_generation("transformer", transformer, tensors, sizes, [1e-5, 1.0])

    input_weight, bias, weight = draw(D, D), draw(D), draw(D, D)

    def rnn(rows: Tensor) -> Tensor:
        h = torch.zeros(len(rows), D)
        for token in rows.unbind(1):
            (h,) = recurrent.rnn_step(F.linear(tokens[token], input_weight, bias), h, weight=weight)
        return F.linear(h, head, head_bias).log_softmax(-1)

    check_generation("recurrent", rnn, [tokens, head, head_bias, input_weight, bias, weight, torch.empty(0)], [1, 0])


if __name__ == "__main__":
    load_library(Path(sys.argv[1]))
    torch.set_num_threads(2)
    for kind in ("tanh", "relu"):
        check_recurrent("rnn", 1, 1, recurrent.rnn_step, activation=kind)
    check_recurrent("lstm", 4, 2, recurrent.lstm_step)
    for kind in ("before", "after"):
        check_recurrent("gru", 3, 1, recurrent.gru_step, reset=kind)
    check_attention(7, 9)  # with saved weights
    check_attention(35, 41)  # in tiles
    check_additive()
    for item in ACTIVATIONS.items():
        check_linear(*item)
    check_convolution()
    check_dropout()
    for before in (True, False):
        check_stack(before)
    check_networks()
