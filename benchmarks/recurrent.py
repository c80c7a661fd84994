"""Recurrent layers, forward and backward: Seriatim's beside torch's, and a jax scan where jax can be imported.

    python -m benchmarks.recurrent [--threads 2] [--repeats 15] [--sizes 64,50,128,1 …] [--cells lstm …]

The peers take turns in one process. Shown are medians, how many times longer torch takes, and which share of the
machine's speed at large float32 products (measured in the same turns) ours reaches, counting products only.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seriatim import kernels
from seriatim.kernels import recurrent

RESULTS = Path(__file__).parent / "results"
SIZES = ((64, 50, 128, 1), (32, 100, 256, 2), (20, 35, 650, 2), (128, 600, 70, 1))  # B, T, H, layers
CELLS = {"rnn": (nn.RNN, 1), "lstm": (nn.LSTM, 4), "gru": (nn.GRU, 3), "gru-after": (nn.GRU, 3)}
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
LARGE = 1024  # the side of the matrices that stand for the machine's limit


def forward(cell: str, peer: nn.RNNBase, x: Tensor) -> Tensor:
    """Seriatim's layers with the weights of torch's."""
    H = peer.hidden_size
    zeros = x.new_zeros(x.shape[0], H)
    for layer in range(peer.num_layers):
        inner, outer, bias, other = (getattr(peer, f"{name}_l{layer}") for name in WEIGHTS)
        if cell == "rnn":
            x, _ = recurrent.rnn(recurrent.project(x, inner, bias + other), outer, zeros)
        elif cell == "lstm":
            x, _, _ = recurrent.lstm(recurrent.project(x, inner, bias + other), outer, zeros, zeros)
        elif cell == "gru":
            x, _ = recurrent.gru(recurrent.project(x, inner, bias + other), outer, zeros)
        else:
            bias = bias + torch.cat([other[: 2 * H], zeros[0]])
            x, _ = recurrent.gru(recurrent.project(x, inner, bias), outer, zeros, other[2 * H :], reset="after")
    return x


def step(run: Callable[[Tensor], Tensor], peer: nn.RNNBase, x: Tensor, d: Tensor) -> Callable[[], None]:
    def both_ways() -> None:
        x.grad = None
        peer.zero_grad()
        run(x).backward(d)

    return both_ways


def jax_step(cell: str, peer: nn.RNNBase, x: Tensor, d: Tensor) -> Callable[[], Any] | None:
    """The same layers as a compiled jax scan, where jax is installed; of the GRU only the form it has in torch."""
    try:
        import jax
        from jax import numpy as jnp
    except ImportError:
        return None
    if cell == "gru":
        return None
    H = peer.hidden_size
    weights = [
        [jnp.asarray(getattr(peer, f"{name}_l{i}").detach().numpy()) for name in WEIGHTS]
        for i in range(peer.num_layers)
    ]
    inputs, gradient = jnp.asarray(x.detach().numpy().swapaxes(0, 1)), jnp.asarray(d.numpy().swapaxes(0, 1))

    def advance(state: Any, projected: Any, outer: Any, other: Any) -> Any:
        h, c = state
        total = h @ outer.T + other
        if cell == "rnn":
            h = jnp.tanh(projected + total)
        elif cell == "lstm":
            i, f, node, o = jnp.split(projected + total, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(node)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
        else:
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


def measure(cell: str, size: tuple[int, int, int, int], repeats: int) -> dict[str, Any]:
    B, T, H, layers = size
    torch.manual_seed(0)
    kind, gates = CELLS[cell]
    peer = kind(H, H, layers, batch_first=True)
    x, d = torch.randn(B, T, H, requires_grad=True), torch.randn(B, T, H)
    if cell != "gru":  # torch has no reset before the product
        torch.testing.assert_close(forward(cell, peer, x), peer(x)[0], rtol=1e-4, atol=1e-5)
    large = torch.randn(LARGE, LARGE)
    competitors = {
        "seriatim": step(lambda given: forward(cell, peer, given), peer, x, d),
        "torch": step(lambda given: peer(given)[0], peer, x, d),
        "product": lambda: large @ large,
    }
    if (run := jax_step(cell, peer, x, d)) is not None:
        competitors["jax"] = run
    times: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(repeats + 2):  # the first two warm up
        for name, run in competitors.items():
            began = time.perf_counter()
            run()
            if turn > 1:
                times[name].append(time.perf_counter() - began)
    median = {name: statistics.median(values) for name, values in times.items()}
    best = {name: min(values) for name, values in times.items()}
    products = 6 * 2 * B * T * gates * H * H * layers  # x W, h W, and two gradients of each
    limit = 2 * LARGE**3 / best["product"]
    return {
        "cell": cell,
        "size": size,
        "median_ms": {name: round(value * 1e3, 2) for name, value in median.items()},
        "best_ms": {name: round(value * 1e3, 2) for name, value in best.items()},
        "torch_over_seriatim": round(median["torch"] / median["seriatim"], 2),
        "torch_over_seriatim_best": round(best["torch"] / best["seriatim"], 2),
        "share_of_limit": round(products / best["seriatim"] / limit, 2),
        "limit_gflops": round(limit / 1e9),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--sizes", nargs="+", default=[",".join(map(str, size)) for size in SIZES], help="B,T,H,layers")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if not kernels.load():
        print(f"the native kernels are not in use: {kernels.state()}")
    titles = ("seriatim", "torch", "ratio", "best", "of limit")
    print(f"{'B,T,H,layers':<14} {'cell':<10} {'{:>9} {:>9} {:>6} {:>6} {:>9}'.format(*titles)}   (ms)")
    rows = []
    for text in chosen.sizes:
        B, T, H, layers = (int(part) for part in text.split(","))
        for cell in chosen.cells:
            row = measure(cell, (B, T, H, layers), chosen.repeats)
            rows.append(row)
            ours, theirs = row["median_ms"]["seriatim"], row["median_ms"]["torch"]
            extra = f"  jax {row['median_ms']['jax']}" if "jax" in row["median_ms"] else ""
            print(
                f"{text:<14} {cell:<10} {ours:9.1f} {theirs:9.1f} {row['torch_over_seriatim']:5.2f}×"
                f" {row['torch_over_seriatim_best']:5.2f}× {row['share_of_limit']:9.0%}{extra}",
                flush=True,
            )
    RESULTS.mkdir(exist_ok=True)
    found = {"machine": platform.processor(), "torch": torch.__version__, "threads": chosen.threads, "rows": rows}
    path = RESULTS / f"recurrent-{chosen.threads}.json"
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
