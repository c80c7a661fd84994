"""The loss over a vocabulary, forward and backward: in chunks, beside `linear` and `cross_entropy` of all logits.

What the last layer of a network costs in a training step. Beside the times is the peak memory of each, above what was
allocated before, measured in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import interleaved, make_parser, parse_arguments, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.nn.loss import token_loss
from seriatim.training.cost import peak_memory, reset_peak_memory

SIZES = {  # vocabulary, rows, width
    "characters": (65, 4_096, 256),
    "words-2000": (2_000, 4_096, 256),
    "words-8000": (8_000, 4_096, 256),
    "gpt2": (50_257, 2_048, 256),
}
Loss = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def full_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


def make_competitors(size: str, smoothing: float) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    vocab_size, rows, width = SIZES[size]
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = (torch.randn(vocab_size, width) / width**0.5).requires_grad_()
    bias = torch.zeros(vocab_size, requires_grad=True)
    targets = torch.randint(0, vocab_size, (rows,))

    def make_step(loss: Loss) -> Callable[[], None]:
        def step() -> None:
            hidden.grad = weight.grad = bias.grad = None
            (loss(hidden, weight, bias, targets, smoothing) / rows).backward()

        return step

    return {"seriatim": make_step(token_loss), "linear + cross_entropy": make_step(full_loss)}


def measure_memory(size: str, smoothing: float, name: str) -> int:
    """Returns the peak memory of a competitor in bytes, above what was allocated before."""
    step = make_competitors(size, smoothing)[name]
    reset_peak_memory()
    before = peak_memory()
    step()
    return peak_memory() - before


def main() -> None:
    parser = make_parser(__doc__, repeats=15)
    parser.add_argument("--size", choices=sorted(SIZES), action="append")
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--memory", help="only print the bytes that the competitor of this name needs")
    arguments = parse_arguments(parser)
    sizes = arguments.size or (["characters"] if arguments.quick else list(SIZES))
    if arguments.memory:
        print(measure_memory(sizes[0], arguments.smoothing, arguments.memory))
        return
    flush_denormals()
    retain_freed_memory()
    for size in sizes:
        competitors = make_competitors(size, arguments.smoothing)
        memory = {}
        for name in competitors:
            options = ["--size", size, "--smoothing", str(arguments.smoothing), "--memory", name]
            command = [sys.executable, "-m", "benchmarks.loss", *options]
            memory[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        times = interleaved(competitors, arguments.repeats)
        report(f"loss-{size}", times, memory=memory, save=not arguments.quick)


if __name__ == "__main__":
    main()
