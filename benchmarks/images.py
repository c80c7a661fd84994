"""A training step of the small ResNet: Seriatim's beside plain PyTorch code of the same network, in both layouts.

Eight layers of 32, 64 and 128 channels, 64 images of 8 bits, ten labels, AdamW: forward, backward and update. Once for
gray images of 28 × 28 pixels, once for color images of 64 × 64. The plain code is nn.Conv2d and nn.BatchNorm2d as
usually written; "channels last" has the memory format that Seriatim uses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import Options, count_flops, interleaved, parse_options, report
from seriatim.models.resnet import Settings
from seriatim.nn.network import Network, VectorHead

BATCH, WIDTH, LABELS, MEAN, STD = 64, 32, 10, 0.45, 0.28
SHAPES = {"images-gray": (1, 28, 28), "images-color": (3, 64, 64)}
CASES = {
    name: f"ResNet of 8 layers, {BATCH} images of {channels} × {height} × {width}: training step"
    for name, (channels, height, width) in SHAPES.items()
}


class PlainBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip: nn.Module = nn.Identity()
        if stride > 1:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.skip(x))


class Plain(nn.Module):
    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, WIDTH, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.blocks = nn.Sequential(
            PlainBlock(WIDTH, WIDTH, 1), PlainBlock(WIDTH, 2 * WIDTH, 2), PlainBlock(2 * WIDTH, 4 * WIDTH, 2)
        )
        self.output = nn.Linear(4 * WIDTH, LABELS)

    def forward(self, pixels: Tensor) -> Tensor:
        x = (pixels.float() / 255 - MEAN) / STD
        y: Tensor = self.output(self.blocks(F.relu(self.norm(self.stem(x)))).mean(dim=(2, 3)))
        return y


def make_network(shape: tuple[int, int, int]) -> Network:
    """Returns Seriatim's network for images of a shape (channels, height, width)."""
    settings = Settings(name="resnet", width=WIDTH, layers=8)
    inputs = settings.image_input(shape)
    inputs.mean.fill_(MEAN)
    inputs.std.fill_(STD)
    return Network(inputs, settings.build(inputs.width, 1), VectorHead(inputs.width, LABELS, "mean"))


def measure(name: str, options: Options) -> None:
    channels, height, width = shape = SHAPES[name]
    batch = 4 if options.quick else BATCH
    channels_last = torch.randint(0, 256, (batch, height, width, channels), dtype=torch.uint8).permute(0, 3, 1, 2)
    contiguous = channels_last.contiguous()
    labels = torch.randint(0, LABELS, (batch,))
    stride = 1 if height <= 32 else 2  # of the stem
    ours, plain = make_network(shape), Plain(channels, stride)
    plain_last = Plain(channels, stride).to(memory_format=torch.channels_last)
    networks = (ours, plain, plain_last)
    optimizers = {id(network): torch.optim.AdamW(network.parameters(), fused=True) for network in networks}

    def step(network: nn.Module, scores: Tensor) -> None:
        optimizers[id(network)].zero_grad()
        F.cross_entropy(scores, labels).backward()
        optimizers[id(network)].step()

    competitors = {
        "seriatim": lambda: step(ours, ours(channels_last)[0]),
        "plain PyTorch": lambda: step(plain, plain(contiguous)),
        "plain, channels last": lambda: step(plain_last, plain_last(channels_last)),
    }
    flops = count_flops(competitors["plain PyTorch"])
    report(name, interleaved(competitors, options), options, flops=flops)


def main() -> None:
    options = parse_options(__doc__, CASES)
    torch.manual_seed(0)
    for name in options.cases:
        measure(name, options)


if __name__ == "__main__":
    main()
