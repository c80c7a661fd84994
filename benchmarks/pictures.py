"""A training step of the small ResNet: Seriatim's beside plain PyTorch code of the same network, in both layouts.

Eight layers of 32, 64 and 128 channels, 64 pictures of 8 bits, ten labels, AdamW: forward, backward and update. Once
for grey pictures of 28 × 28 pixels, once for coloured ones of 64 × 64. The plain code is nn.Conv2d and nn.BatchNorm2d
as everybody writes them; with colours last, it is told to keep them last as Seriatim does.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import interleaved, report
from seriatim.models.resnet import Settings
from seriatim.nn.heads import VectorHead
from seriatim.nn.network import Network

BATCH, WIDTH, LABELS, MEAN, DEVIATION = 64, 32, 10, 0.45, 0.28


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
    def __init__(self, channels: int, step: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, WIDTH, 3, step, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.blocks = nn.Sequential(
            PlainBlock(WIDTH, WIDTH, 1), PlainBlock(WIDTH, 2 * WIDTH, 2), PlainBlock(2 * WIDTH, 4 * WIDTH, 2)
        )
        self.output = nn.Linear(4 * WIDTH, LABELS)

    def forward(self, pixels: Tensor) -> Tensor:
        x = (pixels.float() / 255 - MEAN) / DEVIATION
        y: Tensor = self.output(self.blocks(F.relu(self.norm(self.stem(x)))).mean(dim=(2, 3)))
        return y


def ours(shape: tuple[int, int, int]) -> Network:
    settings = Settings(name="resnet", width=WIDTH, layers=8)
    inputs = settings.picture_input(shape)
    inputs.mean.fill_(MEAN)
    inputs.deviation.fill_(DEVIATION)
    return Network(inputs, settings.build(inputs.width, 1), VectorHead(inputs.width, LABELS, "mean"))


def measure(name: str, shape: tuple[int, int, int], repeats: int) -> None:
    channels, height, width = shape
    last = torch.randint(0, 256, (BATCH, height, width, channels), dtype=torch.uint8).permute(0, 3, 1, 2)
    first = last.contiguous()
    labels = torch.randint(0, LABELS, (BATCH,))
    step_of_stem = 1 if height <= 32 else 2
    own, plain, turned = ours(shape), Plain(channels, step_of_stem), Plain(channels, step_of_stem)
    turned = turned.to(memory_format=torch.channels_last)
    optimisers = {id(one): torch.optim.AdamW(one.parameters(), fused=True) for one in (own, plain, turned)}

    def step(network: nn.Module, scores: Tensor) -> None:
        optimisers[id(network)].zero_grad()
        F.cross_entropy(scores, labels).backward()
        optimisers[id(network)].step()

    competitors = {
        "seriatim": lambda: step(own, own(last)[0]),
        "plain PyTorch": lambda: step(plain, plain(first)),
        "plain, colours last": lambda: step(turned, turned(last)),
    }
    report(name, interleaved(competitors, repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.manual_seed(0)
    measure("pictures-grey", (1, 28, 28), repeats)
    measure("pictures-colour", (3, 64, 64), repeats)


if __name__ == "__main__":
    main()
