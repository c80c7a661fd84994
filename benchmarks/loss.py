"""The loss over a vocabulary, forward and backward: in chunks, beside `linear` and `cross_entropy` of all logits.

What the last layer of a network costs in a training step. Beside the times is the peak memory of each, above what was
allocated before, measured in a process of its own.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import interleaved, parse_options, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.nn.loss import token_loss
from seriatim.training.cost import peak_memory, reset_peak_memory

SIZES = {  # vocabulary, rows, width
    "characters": (65, 4_096, 256),
    "words-2000": (2_000, 4_096, 256),
    "words-8000": (8_000, 4_096, 256),
    "gpt2": (50_257, 2_048, 256),
}
SMOOTHING = 0.1
CASES = {
    f"loss-{size}": f"Loss of {rows:,} tokens over {vocab_size:,} from a width of {width}: forward and backward"
    for size, (vocab_size, rows, width) in SIZES.items()
}
Loss = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def full_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


def make_competitors(size: str) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    vocab_size, rows, width = SIZES[size]
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = (torch.randn(vocab_size, width) / width**0.5).requires_grad_()
    bias = torch.zeros(vocab_size, requires_grad=True)
    targets = torch.randint(0, vocab_size, (rows,))

    def make_step(loss: Loss) -> Callable[[], None]:
        def step() -> None:
            hidden.grad = weight.grad = bias.grad = None
            (loss(hidden, weight, bias, targets, SMOOTHING) / rows).backward()

        return step

    return {"seriatim": make_step(token_loss), "linear + cross_entropy": make_step(full_loss)}


def measure_memory(size: str, name: str, result: multiprocessing.SimpleQueue[int]) -> None:
    """Puts out the peak memory of a competitor in bytes, above what was allocated before."""
    step = make_competitors(size)[name]
    reset_peak_memory()
    before = peak_memory()
    step()
    result.put(peak_memory() - before)


def main() -> None:
    options = parse_options(__doc__, CASES, quick=["loss-characters"], repeats=30)
    flush_denormals()
    retain_freed_memory()
    fresh = multiprocessing.get_context("spawn")
    for name in options.cases:
        size = name.removeprefix("loss-")
        vocab_size, rows, width = SIZES[size]
        competitors, memory = make_competitors(size), {}
        for competitor in competitors:
            result = fresh.SimpleQueue()
            process = fresh.Process(target=measure_memory, args=(size, competitor, result))
            process.start()
            memory[competitor] = result.get()
            process.join()
        flops = 3 * 2 * rows * vocab_size * width  # the scores and two gradients
        report(name, interleaved(competitors, options), options, flops=flops, memory=memory)


if __name__ == "__main__":
    main()
