"""A TCN, forward and backward: Seriatim's causal convolution beside the usual form that pads and cuts off.

(B,T,channels,kernel,levels) = (32,600,30,7,8), weight norm in both; the results are equal (tests/test_parity.py). Once
for the outputs of all steps, once where only the last is wanted, as in classifying (tests/test_heads.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from benchmarks.timing import interleaved, report
from seriatim.models.tcn import TCN

BATCH, STEPS, CHANNELS, KERNEL, LEVELS = 32, 600, 30, 7, 8


class Padded(nn.Module):
    """Pads on both sides and cuts off what looked ahead."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.extra = (KERNEL - 1) * dilation
        convolutions = (nn.Conv1d(CHANNELS, CHANNELS, KERNEL, padding=self.extra, dilation=dilation) for _ in range(2))
        self.first, self.second = (weight_norm(one) for one in convolutions)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x)[:, :, : -self.extra])
        return torch.relu(torch.relu(self.second(y)[:, :, : -self.extra]) + x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    ours = TCN(CHANNELS, CHANNELS, LEVELS, KERNEL)
    usual = nn.Sequential(*(Padded(2**level) for level in range(LEVELS)))
    x = torch.randn(BATCH, STEPS, CHANNELS, requires_grad=True)
    turned = x.detach().transpose(1, 2).contiguous().requires_grad_()

    def both_ways(run: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: run().sum().backward()

    competitors = {"seriatim": both_ways(lambda: ours(x)[0]), "pad and cut": both_ways(lambda: usual(turned))}
    report("tcn", interleaved(competitors, repeats))
    last = {
        "seriatim": both_ways(lambda: ours.final(x)),
        "seriatim, all steps": both_ways(lambda: ours(x)[0][:, -1]),
        "pad and cut": both_ways(lambda: usual(turned)[:, :, -1]),
    }
    report("tcn-last", interleaved(last, repeats))


if __name__ == "__main__":
    main()
