"""Recurrent layers, forward and backward: Seriatim's beside torch's, a compiled scan of jax and Keras on jax.

All have the same weights and inputs, and take turns in one process. The share of the machine's limit counts matmuls
only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import Competitors, interleaved, parse_options, report
from seriatim import kernels
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.kernels import recurrent

SIZES = ((64, 50, 128, 1), (32, 100, 256, 2), (20, 35, 650, 2), (128, 600, 70, 1))  # B, T, H, layers
CELLS = {"rnn": (nn.RNN, 1), "lstm": (nn.LSTM, 4), "gru": (nn.GRU, 3), "gru-after": (nn.GRU, 3)}
TITLES = {
    "rnn": "RNN",
    "lstm": "LSTM",
    "gru": "GRU, reset before the matmul",
    "gru-after": "GRU, reset after the matmul",
}
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
CASES = {
    f"recurrent-{cell}-{'-'.join(map(str, size))}": f"{TITLES[cell]}, (B,T,H,layers) = {size}: forward and backward"
    for size in SIZES
    for cell in CELLS
}
QUICK_SIZE = (4, 8, 16, 1)


def forward(cell: str, peer: nn.RNNBase, x: Tensor) -> Tensor:
    """Returns the output of Seriatim's layers with the weights of torch's."""
    H = peer.hidden_size
    zeros = x.new_zeros(x.shape[0], H)
    for layer in range(peer.num_layers):
        inner, outer, bias, other = (getattr(peer, f"{name}_l{layer}") for name in WEIGHTS)
        if cell == "rnn":
            x, _ = recurrent.rnn(x, outer, zeros, inputs=(inner, bias + other))
        elif cell == "lstm":
            x, _, _ = recurrent.lstm(x, outer, zeros, zeros, inputs=(inner, bias + other))
        elif cell == "gru":
            x, _ = recurrent.gru(x, outer, zeros, inputs=(inner, bias + other))
        else:
            bias = bias + torch.cat([other[: 2 * H], zeros[0]])
            x, _ = recurrent.gru(x, outer, zeros, other[2 * H :], reset="after", inputs=(inner, bias))
    return x


def forward_backward(run: Callable[[Tensor], Tensor], peer: nn.RNNBase, x: Tensor, d: Tensor) -> Callable[[], None]:
    def step() -> None:
        x.grad = None
        peer.zero_grad()
        run(x).backward(d)

    return step


def jax_scan(cell: str, peer: nn.RNNBase, x: Tensor, d: Tensor) -> Callable[[], Any]:
    """Returns the same layers as a compiled scan over time."""
    import jax
    from jax import numpy as jnp

    H = peer.hidden_size
    weights = [
        [jnp.asarray(getattr(peer, f"{name}_l{i}").detach().numpy()) for name in WEIGHTS]
        for i in range(peer.num_layers)
    ]
    inputs, gradient = jnp.asarray(x.detach().numpy().swapaxes(0, 1)), jnp.asarray(d.numpy().swapaxes(0, 1))

    def advance(state: Any, projected: Any, outer: Any, other: Any) -> Any:
        h, c = state
        if cell == "rnn":
            h = jnp.tanh(projected + h @ outer.T + other)
        elif cell == "lstm":
            i, f, node, o = jnp.split(projected + h @ outer.T + other, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(node)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        elif cell == "gru":
            gates = jax.nn.sigmoid(projected[:, : 2 * H] + h @ outer[: 2 * H].T + other[: 2 * H])
            r, z = jnp.split(gates, 2, -1)
            h = z * h + (1 - z) * jnp.tanh(projected[:, 2 * H :] + (r * h) @ outer[2 * H :].T + other[2 * H :])
        else:
            total = h @ outer.T + other
            r, z = jnp.split(jax.nn.sigmoid(projected[:, : 2 * H] + total[:, : 2 * H]), 2, -1)
            h = z * h + (1 - z) * jnp.tanh(projected[:, 2 * H :] + r * total[:, 2 * H :])
        return (h, c), h

    def loss(parameters: Any, values: Any) -> Any:
        for inner, outer, bias, other in parameters:
            start = (jnp.zeros((values.shape[1], H)),) * 2
            _, values = jax.lax.scan(lambda s, p, w=outer, b=other: advance(s, p, w, b), start, values @ inner.T + bias)
        return (values * gradient).sum()

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1)))
    return lambda: jax.block_until_ready(compiled(weights, inputs))


def keras_layers(cell: str, peer: nn.RNNBase, x: Tensor, d: Tensor) -> Callable[[], Any]:
    """Returns layers of the same kind and size, with other weights: the time does not depend on them."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras
    from jax import numpy as jnp

    H = peer.hidden_size
    makers = {
        "rnn": lambda: keras.layers.SimpleRNN(H, return_sequences=True),
        "lstm": lambda: keras.layers.LSTM(H, return_sequences=True),
        "gru": lambda: keras.layers.GRU(H, return_sequences=True, reset_after=False),
        "gru-after": lambda: keras.layers.GRU(H, return_sequences=True),
    }
    model = keras.Sequential([keras.Input(x.shape[1:]), *(makers[cell]() for _ in range(peer.num_layers))])
    inputs, gradient = jnp.asarray(x.detach().numpy()), jnp.asarray(d.numpy())
    others = [variable.value for variable in model.non_trainable_variables]

    def loss(parameters: Any, values: Any) -> Any:
        return (model.stateless_call(parameters, others, values)[0] * gradient).sum()

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1)))
    weights = [variable.value for variable in model.trainable_variables]
    return lambda: jax.block_until_ready(compiled(weights, inputs))


def make_competitors(cell: str, size: tuple[int, ...]) -> Competitors:
    B, T, H, layers = size
    torch.manual_seed(0)
    peer = CELLS[cell][0](H, H, layers, batch_first=True)
    x, d = torch.randn(B, T, H, requires_grad=True), torch.randn(B, T, H)
    if cell != "gru":  # torch has no reset before the matmul
        torch.testing.assert_close(forward(cell, peer, x), peer(x)[0], rtol=1e-4, atol=1e-5)
    competitors = Competitors(
        {
            "seriatim": forward_backward(lambda inputs: forward(cell, peer, inputs), peer, x, d),
            "torch.nn": forward_backward(lambda inputs: peer(inputs)[0], peer, x, d),
        }
    )
    competitors.add("jax scan", lambda: jax_scan(cell, peer, x, d))
    competitors.add("Keras on jax", lambda: keras_layers(cell, peer, x, d))
    return competitors


def main() -> None:
    options = parse_options(__doc__, CASES, quick=list(CASES)[: len(CELLS)])
    flush_denormals()
    retain_freed_memory()  # as in every training of ours; it also applies to torch.nn, in the same process
    if not kernels.load():
        print(f"the native kernels are not in use: {kernels.status()}")
    for name in options.cases:
        cell, *numbers = name.removeprefix("recurrent-").rsplit("-", 4)
        B, T, H, layers = size = QUICK_SIZE if options.quick else tuple(int(number) for number in numbers)
        flops = 6 * 2 * B * T * CELLS[cell][1] * H * H * layers  # x W, h W, and two gradients of each
        report(name, interleaved(make_competitors(cell, size), options, rest=True), options, flops=flops)


if __name__ == "__main__":
    main()
