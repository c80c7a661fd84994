"""The residual network: a stack of convolutions so deep that it needs ways around them.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016):

    block(x) = relu(F(x) + skip(x))    F = norm(W₂ * relu(norm(W₁ * x)))    skip = x, or norm(W * x) where shapes differ

Two convolutions learn what to add to their input, not what to make of it: with weights near zero a block is nearly the
identity, and through a sum the gradient passes undiminished. Without skips (`skips=False`, the paper's "plain"
networks) more layers make even the training error worse. The resolution halves from stage to stage while the channels
double. Colours stay last in memory, the layout in which convolutions on a CPU are fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .norm import BatchNorm

Stem = Literal["small", "photographs"]


class Convolution(nn.Module):
    """k×k, around the pixel it belongs to, without a bias: the norm behind it has one. Initialisation: He's."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        weight = torch.empty(outputs, inputs, kernel, kernel).to(memory_format=torch.channels_last)
        self.weight = nn.Parameter(weight)
        self.stride, self.padding = stride, kernel // 2
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        if self.padding == 0 and self.stride > 1:  # PyTorch 2.13 writes beyond its memory here, backwards, with few
            # channels that lie last. A pool of single pixels takes every second one in a third of the time of a slice.
            return torch.conv2d(F.avg_pool2d(x, 1, self.stride), self.weight)
        return torch.conv2d(x, self.weight, None, self.stride, self.padding)


class Normed(nn.Module):
    """A convolution and its norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, kernel, stride)
        self.norm = BatchNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.convolution(x))
        return y


class Block(nn.Module):
    """Two convolutions, and past them a skip: the identity, a projection where the shape changes, or none at all."""

    def __init__(self, inputs: int, outputs: int, stride: int, skips: bool, kernel: int = 3) -> None:
        super().__init__()
        self.first = Normed(inputs, outputs, 3, stride)
        self.second = Normed(outputs, outputs, kernel)
        self.skips = skips
        self.project = Normed(inputs, outputs, 1, stride) if skips and (stride > 1 or inputs != outputs) else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x).relu_())
        if self.skips:
            y += x if self.project is None else self.project(x)
        return y.relu_()


class ResNet(nn.Module):
    """Pictures (B,C,H,W) to what is seen at each place of a grid (B,width,h,w).

    `widths` and `depths` are the channels and the blocks of each stage. The stem for photographs is 7×7 by steps of two
    and a pool, a quarter of the resolution; the one for small pictures is 3×3 by steps of `step`. `near`: in the last
    stage the second convolution of a block is 1×1, so that a place sees little beyond itself.
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int],
        depths: Sequence[int],
        stem: Stem,
        step: int = 1,
        skips: bool = True,
        near: bool = False,
    ) -> None:
        super().__init__()
        photographs = stem == "photographs"
        self.stem = Normed(channels, widths[0], *((7, 2) if photographs else (3, step)))
        self.pool = nn.MaxPool2d(3, 2, 1) if photographs else nn.Identity()
        blocks: list[Block] = []
        before = widths[0]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            kernel = 1 if near and stage == len(widths) - 1 else 3
            for index in range(depth):
                blocks.append(Block(before, width, 2 if stage and index == 0 else 1, skips, kernel))
                before = width
        self.blocks = nn.ModuleList(blocks)
        self.width = before
        self.halvings = (2 if photographs else int(step == 2)) + len(widths) - 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x).relu_())
        for block in self.blocks:
            x = block(x)
        return x

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of what it makes of a picture: each halving rounds up."""
        for _ in range(self.halvings):
            height, width = -(-height // 2), -(-width // 2)
        return height, width
