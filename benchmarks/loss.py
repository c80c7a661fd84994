"""The loss of a vocabulary, forward and backward: in chunks beside `linear` and `cross_entropy` of all logits.

What a network's last layer costs in a training step. Beside the times stands the highest memory of each, less what was
there before, each measured in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import interleaved, report
from seriatim.core.device import flush_denormals, keep_memory
from seriatim.nn.loss import token_loss
from seriatim.training.cost import peak_memory, reset_peak_memory

SIZES = {  # tokens, rows, width
    "letters": (65, 4_096, 256),
    "words-2000": (2_000, 4_096, 256),
    "words-8000": (8_000, 4_096, 256),
    "gpt2": (50_257, 2_048, 256),
}


def all_logits(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


def competitors(size: str, smoothing: float) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    tokens, rows, width = SIZES[size]
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = (torch.randn(tokens, width) / width**0.5).requires_grad_()
    bias = torch.zeros(tokens, requires_grad=True)
    targets = torch.randint(0, tokens, (rows,))

    def step(loss: Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]) -> Callable[[], Any]:
        def run() -> None:
            hidden.grad = weight.grad = bias.grad = None
            (loss(hidden, weight, bias, targets, smoothing) / rows).backward()

        return run

    return {"seriatim": step(token_loss), "linear + cross_entropy": step(all_logits)}


def memory(size: str, smoothing: float, name: str) -> int:
    """Bytes that one competitor needs at its highest, above what was there before."""
    run = competitors(size, smoothing)[name]
    reset_peak_memory()
    before = peak_memory()
    run()
    return peak_memory() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), action="append")
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--memory", help="print the bytes that the competitor of this name needs, and nothing else")
    arguments = parser.parse_args()
    sizes = arguments.size or list(SIZES)
    if arguments.memory:
        print(memory(sizes[0], arguments.smoothing, arguments.memory))
        return
    flush_denormals()
    keep_memory()
    for size in sizes:
        others = competitors(size, arguments.smoothing)
        needed = {name: _asked(size, arguments.smoothing, name) for name in others}
        report(f"loss-{size}", interleaved(others, arguments.repeats), memory=needed)


def _asked(size: str, smoothing: float, name: str) -> int:
    command = [sys.executable, "-m", "benchmarks.loss", "--size", size, "--smoothing", str(smoothing), "--memory", name]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
