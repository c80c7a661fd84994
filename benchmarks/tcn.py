"""A TCN, forward and backward: Seriatim's causal convolution beside the usual one, which pads and truncates.

(B,T,channels,kernel,levels) = (32,600,30,7,8), weight norm in both; the tests hold that the results are equal. Once for
the outputs of all steps, once for the last one only, as in classification.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from benchmarks.timing import count_flops, interleaved, parse_options, report
from seriatim.models.tcn import TCN

BATCH, STEPS, CHANNELS, KERNEL, LEVELS = 32, 600, 30, 7, 8
CASES = {
    "tcn": "TCN, 8 levels of 30 channels, 32 × 600 steps: forward and backward",
    "tcn-last": "TCN, the same, only the last output: forward and backward",
}


class Padded(nn.Module):
    """A level that pads on both sides and removes the outputs that depend on later inputs."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.extra = (KERNEL - 1) * dilation
        layers = (nn.Conv1d(CHANNELS, CHANNELS, KERNEL, padding=self.extra, dilation=dilation) for _ in range(2))
        self.first, self.second = (weight_norm(layer) for layer in layers)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x)[:, :, : -self.extra])
        return torch.relu(torch.relu(self.second(y)[:, :, : -self.extra]) + x)


def main() -> None:
    options = parse_options(__doc__, CASES)
    batch, steps = (2, 100) if options.quick else (BATCH, STEPS)
    ours = TCN(CHANNELS, CHANNELS, LEVELS, KERNEL)
    padded = nn.Sequential(*(Padded(2**level) for level in range(LEVELS)))
    x = torch.randn(batch, steps, CHANNELS, requires_grad=True)
    channels_first = x.detach().transpose(1, 2).contiguous().requires_grad_()

    def forward_backward(run: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: run().sum().backward()

    competitors = {
        "tcn": {
            "seriatim": forward_backward(lambda: ours(x)[0]),
            "pad and truncate": forward_backward(lambda: padded(channels_first)),
        },
        "tcn-last": {
            "seriatim": forward_backward(lambda: ours.last_output(x)),
            "seriatim, all steps": forward_backward(lambda: ours(x)[0][:, -1]),
            "pad and truncate": forward_backward(lambda: padded(channels_first)[:, :, -1]),
        },
    }
    for name in options.cases:
        flops = count_flops(competitors[name]["seriatim"])
        report(name, interleaved(competitors[name], options), options, flops=flops)


if __name__ == "__main__":
    main()
