"""Pictures as inputs: a batch of pixels (B,C,H,W) of 8 bits becomes a sequence of vectors (B,T,D), T = rows · columns.

Patches   squares of pixels, each multiplied by one matrix, row by row         (Dosovitskiy et al. 2021)
Grid      the last feature map of a residual network, row by row
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .resnet import ResNet

Shape = tuple[int, int, int]  # channels, height and width
PATCHES = 8  # along a side, where nothing else is said


class PictureInput(nn.Module):
    """Pixels in units of their spread: (x/255 − mean) / deviation, both for each channel, from the training part."""

    mean: Tensor
    deviation: Tensor
    width: int  # of the vectors
    grid: tuple[int, int]  # rows and columns of places

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def normalised(self, x: Tensor) -> Tensor:
        """Real numbers with colours last in memory. Rows are taken as one long line: a loop over three colours at the
        heart of it takes seven times as long."""
        count, channels, height, width = x.shape
        lines = x.permute(0, 2, 3, 1).reshape(count, height, width * channels)
        scale = (1 / (255 * self.deviation)).repeat(width)
        shift = (-self.mean / self.deviation).repeat(width)
        y = (lines * scale).add_(shift)
        return y.view(count, height, width, channels).permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no forward")


class Patches(PictureInput):
    """Patches of side × side pixels; what is missing at the right and below is the mean."""

    def __init__(self, shape: Shape, side: int, width: int) -> None:
        channels, *sides = shape
        super().__init__(channels)
        rows, columns = (math.ceil(one / side) for one in sides)
        self.grid = rows, columns
        self.side, self.width = side, width
        self.missing = (0, columns * side - sides[1], 0, rows * side - sides[0])
        self.project = nn.Linear(channels * side * side, width)
        nn.init.trunc_normal_(self.project.weight, std=math.sqrt(1 / self.project.in_features))
        nn.init.zeros_(self.project.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalised(x)
        if any(self.missing):
            x = F.pad(x, self.missing)
        rows, columns = self.grid
        parts = x.unflatten(3, (columns, self.side)).unflatten(2, (rows, self.side))  # (B,C,h,s,w,s)
        y: Tensor = self.project(parts.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))  # (B,h·w,C·s·s)
        return y


class Grid(PictureInput):
    """What a residual network sees at each place; `pool` × `pool` neighbours may be one place, by their mean."""

    def __init__(self, shape: Shape, resnet: ResNet, pool: int = 1) -> None:
        super().__init__(shape[0])
        self.resnet = resnet
        self.pool = pool
        self.width = resnet.width
        rows, columns = resnet.grid(*shape[1:])
        self.grid = math.ceil(rows / pool), math.ceil(columns / pool)

    def forward(self, x: Tensor) -> Tensor:
        y = self.resnet(self.normalised(x))
        if self.pool > 1:
            y = F.avg_pool2d(y, self.pool, ceil_mode=True)
        return y.flatten(2).transpose(1, 2)  # (B,D,h,w) → (B,h·w,D)


def patch_side(shape: Shape) -> int:
    """Of patches where nothing is said: about eight along the longer side."""
    return max(1, math.ceil(max(shape[1:]) / PATCHES))
