"""Residual networks: deep stacks of convolutions with skip connections, and batch norm.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016):

    block(x) = relu(F(x) + skip(x))    F = norm(W₂ * relu(norm(W₁ * x)))    skip = x, or norm(W * x) if shapes differ

Two convolutions learn what to add to their input: with weights near zero a block is nearly the identity, and the
gradient passes the sum unchanged. Without skips (`skips=False`, the paper's "plain" networks) more layers increase even
the training error. The resolution halves from stage to stage while the channels double. Channels are last in memory,
the fastest layout for convolutions on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import equations_enabled

Stem = Literal["small", "photographs"]
PER_CHANNEL = (1, -1, 1, 1)


class BatchNorm(nn.Module):
    """Batch norm of images (B,C,H,W): each channel is standardized, then scaled and shifted by learned parameters.

    Ioffe and Szegedy, "Batch normalization: accelerating deep network training by reducing internal covariate shift"
    (2015):

        y = γ (x − μ) / √(σ² + ε) + β        training: μ, σ² of the batch, and running m ← (1 − r) m + r μ, likewise v
                                             inference: μ = m, σ² = v, so that neighbors never change an answer

    In training the examples of a batch influence each other: this is the one module where batch size, accumulation and
    the number of processes change the mathematics. The running statistics are floating-point, so that averaged weights
    average them too.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum  # r
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        single = self.training and x.numel() == x.shape[1]  # one value has no variance: the kernel raises an error
        if single or equations_enabled():
            return self.equations(x)
        statistics = (self.mean, self.variance, self.training, self.momentum, self.eps)
        return torch.batch_norm(x, self.weight, self.bias, *statistics, torch.backends.cudnn.enabled)

    def equations(self, x: Tensor) -> Tensor:
        """Returns the result by the equations above."""
        mean, variance = self.mean, self.variance
        if self.training:
            variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            values = x.numel() // x.shape[1]
            with torch.no_grad():  # the running variance is the unbiased one
                self.mean.lerp_(mean.detach(), self.momentum)
                self.variance.lerp_(variance.detach() * (values / max(values - 1, 1)), self.momentum)
        factor = self.weight / (variance + self.eps).sqrt()
        return (x - mean.view(PER_CHANNEL)) * factor.view(PER_CHANNEL) + self.bias.view(PER_CHANNEL)


class Convolution(nn.Module):
    """A k×k convolution, padded to keep the size, without bias, which the norm after it has. Initialization: He."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        weight = torch.empty(outputs, inputs, kernel, kernel).to(memory_format=torch.channels_last)
        self.weight = nn.Parameter(weight)
        self.stride, self.padding = stride, kernel // 2
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        if self.padding == 0 and self.stride > 1:
            # PyTorch 2.13 writes out of bounds here in the backward pass, for few channels last in memory. Pooling of
            # single pixels subsamples in a third of the time of a slice.
            return torch.conv2d(F.avg_pool2d(x, 1, self.stride), self.weight)
        return torch.conv2d(x, self.weight, None, self.stride, self.padding)


class NormedConvolution(nn.Module):
    """A convolution and its norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = Convolution(inputs, outputs, kernel, stride)
        self.norm = BatchNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.convolution(x))
        return y


class Block(nn.Module):
    """Two convolutions and a skip connection: the identity, a projection if the shape changes, or none."""

    def __init__(self, inputs: int, outputs: int, stride: int, skips: bool, kernel: int = 3) -> None:
        super().__init__()
        self.first = NormedConvolution(inputs, outputs, 3, stride)
        self.second = NormedConvolution(outputs, outputs, kernel)
        self.skips = skips
        projects = skips and (stride > 1 or inputs != outputs)
        self.project = NormedConvolution(inputs, outputs, 1, stride) if projects else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x).relu_())
        if self.skips:
            y += x if self.project is None else self.project(x)
        return y.relu_()


class ResNet(nn.Module):
    """Images (B,C,H,W) to a feature map (B,width,h,w).

    Args:
        channels: Of the images.
        widths: The channels of each stage.
        depths: The blocks of each stage.
        stem: For photographs 7×7 with stride 2 and a pool, a quarter of the resolution; for small images 3×3.
        stride: Of the stem for small images.
        skips: Whether blocks have skip connections.
        local: Whether the second convolution of a block of the last stage is 1×1, so that a position sees little
            beyond itself.
    """

    def __init__(
        self,
        channels: int,
        widths: Sequence[int],
        depths: Sequence[int],
        stem: Stem,
        stride: int = 1,
        skips: bool = True,
        local: bool = False,
    ) -> None:
        super().__init__()
        photographs = stem == "photographs"
        self.stem = NormedConvolution(channels, widths[0], *((7, 2) if photographs else (3, stride)))
        self.pool = nn.MaxPool2d(3, 2, 1) if photographs else nn.Identity()
        blocks: list[Block] = []
        inputs = widths[0]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            kernel = 1 if local and stage == len(widths) - 1 else 3
            for index in range(depth):
                blocks.append(Block(inputs, width, 2 if stage and index == 0 else 1, skips, kernel))
                inputs = width
        self.blocks = nn.ModuleList(blocks)
        self.width = inputs
        self.halvings = (2 if photographs else int(stride == 2)) + len(widths) - 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x).relu_())
        for block in self.blocks:
            x = block(x)
        return x

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns rows and columns of the feature map of an image; each halving rounds up."""
        for _ in range(self.halvings):
            height, width = -(-height // 2), -(-width // 2)
        return height, width
