"""Images as inputs: a batch of 8-bit pixels (B,C,H,W) becomes a sequence of vectors (B,T,D), T = rows · columns.

    PatchInput        squares of pixels, each multiplied by one matrix, row by row       (Dosovitskiy et al. 2021)
    FeatureMapInput   the last feature map of a residual network, row by row

`ImageEncoderDecoder` is an encoder–decoder whose source is an image: its grid of vectors is the memory.

Residual networks are deep stacks of convolutions with skip connections and batch norm: He, Zhang, Ren and Sun, "Deep
residual learning for image recognition" (2016):

    block(x) = relu(F(x) + skip(x))    F = norm(W₂ * relu(norm(W₁ * x)))    skip = x, or norm(W * x) if shapes differ

Two convolutions learn what to add to their input: with weights near zero a block is nearly the identity, and the
gradient passes the sum unchanged. Without skips (`skips=False`, the paper's "plain" networks) more layers increase even
the training error. The resolution halves from stage to stage while the channels double. Channels are last in memory,
the fastest layout for convolutions on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.state import State
from .backbone import BackboneSettings, Trace
from .encoder_decoder import EncoderDecoder, encoder_decoder_backbone
from .layers import TokenInput, equations_enabled
from .network import TokenHead

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


ImageShape = tuple[int, int, int]  # channels, height and width
DEFAULT_PATCHES = 8  # along the longer side
POSITION_STD = 0.15  # of initial position vectors that are added to image vectors of standard deviation 1


class ImageInput(nn.Module):
    """Base of image inputs: pixels are standardized as (x/255 − mean) / std, per channel, from the training split."""

    mean: Tensor
    std: Tensor
    width: int  # of the vectors
    grid: tuple[int, int]  # rows and columns

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))

    def normalize(self, x: Tensor) -> Tensor:
        """Returns standardized pixels, channels last in memory.

        Rows are treated as one long line: an innermost loop over three channels takes seven times as long.
        """
        count, channels, height, width = x.shape
        lines = x.permute(0, 2, 3, 1).reshape(count, height, width * channels)
        scale = (1 / (255 * self.std)).repeat(width)
        shift = (-self.mean / self.std).repeat(width)
        y = (lines * scale).add_(shift)
        return y.view(count, height, width, channels).permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no forward")


class PatchInput(ImageInput):
    """Patches of size × size pixels; missing pixels at the right and bottom are the mean."""

    def __init__(self, shape: ImageShape, size: int, width: int) -> None:
        channels, height, breadth = shape
        super().__init__(channels)
        rows, columns = math.ceil(height / size), math.ceil(breadth / size)
        self.grid = rows, columns
        self.size, self.width = size, width
        self.padding = (0, columns * size - breadth, 0, rows * size - height)
        self.project = nn.Linear(channels * size * size, width)
        nn.init.trunc_normal_(self.project.weight, std=math.sqrt(1 / self.project.in_features))
        nn.init.zeros_(self.project.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalize(x)
        if any(self.padding):
            x = F.pad(x, self.padding)
        rows, columns = self.grid
        parts = x.unflatten(3, (columns, self.size)).unflatten(2, (rows, self.size))  # (B,C,h,s,w,s)
        y: Tensor = self.project(parts.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))  # (B,h·w,C·s·s)
        return y


class FeatureMapInput(ImageInput):
    """The last feature map of a residual network; `pool` × `pool` neighbors may be averaged to one position."""

    def __init__(self, shape: ImageShape, resnet: ResNet, pool: int = 1) -> None:
        super().__init__(shape[0])
        self.resnet = resnet
        self.pool = pool
        self.width = resnet.width
        rows, columns = resnet.grid(*shape[1:])
        self.grid = math.ceil(rows / pool), math.ceil(columns / pool)

    def forward(self, x: Tensor) -> Tensor:
        y = self.resnet(self.normalize(x))
        if self.pool > 1:
            y = F.avg_pool2d(y, self.pool, ceil_mode=True)
        return y.flatten(2).transpose(1, 2)  # (B,D,h,w) → (B,h·w,D)


def default_patch_size(shape: ImageShape) -> int:
    """Returns the patch size with about eight patches along the longer side."""
    return max(1, math.ceil(max(shape[1:]) / DEFAULT_PATCHES))


class ImageSource(nn.Module):
    """An image (B,C,H,W) as source vectors (B,T,size) of an encoder–decoder, rows after each other.

    Image vectors are normalized, so that all positions are compared on one scale. Each position has a learned vector,
    because content alone does not show which of two objects is above the other: added, or, for models of images only,
    concatenated (`concatenate`: 2·size numbers). Position vectors are initialized as a plane with one direction for
    down and one for right, so that coordinates can be read off linearly from the start.
    """

    def __init__(self, image: ImageInput, shape: ImageShape, size: int, concatenate: bool) -> None:
        super().__init__()
        self.shape = shape
        self.concatenate = concatenate
        self.image = image
        self.project = nn.Linear(image.width, size)
        self.norm = nn.LayerNorm(size)
        plane = _coordinates(*image.grid) @ torch.randn(2, size) * math.sqrt(0.5)
        self.positions = nn.Parameter(plane if concatenate else POSITION_STD * plane)

    def forward(self, images: Tensor) -> Tensor:
        vectors: Tensor = self.norm(self.project(self.image(images)))
        if self.concatenate:
            return torch.cat([vectors, self.positions.expand_as(vectors)], dim=-1)
        return vectors + self.positions


def _coordinates(rows: int, columns: int) -> Tensor:
    """Returns the vertical and horizontal coordinate of each position (rows·columns,2), mean 0 and std about 1."""
    down, right = (torch.linspace(-1.7, 1.7, count) if count > 1 else torch.zeros(1) for count in (rows, columns))
    return torch.cartesian_prod(down, right)


class ImageEncoderDecoder(EncoderDecoder):
    """A network from an image and the tokens so far to scores of the next token; `scale` applies to tokens only."""

    source: ImageSource  # type: ignore[assignment]

    def empty_source(self) -> Tensor:
        return torch.zeros(1, *self.source.shape, dtype=torch.uint8, device=self.head.weight.device)

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        return self.backbone.encode(self.source(source), mask, trace)

    def encoder_outputs(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        return self.backbone.encoder_outputs(self.source(source), mask, trace)


def image_encoder_decoder_network(
    settings: BackboneSettings,
    image: ImageInput,
    shape: ImageShape,
    vocab_size: int,
    longest: int,
    score: str = "general",
    learned_values: bool = False,
) -> ImageEncoderDecoder:
    """Returns the network for images of one shape, and texts of at most `longest` tokens."""
    size = settings.input_width(tied=False)
    length = max(longest, image.grid[0] * image.grid[1])
    untied = settings.model_copy(update={"tie": False})  # T5 divides its outputs if they share the tokens' vectors
    backbone = encoder_decoder_backbone(untied, size, length, score, learned_values)
    target = TokenInput(vocab_size, size, 1.0)
    head = TokenHead(backbone.width, vocab_size)
    source = ImageSource(image, shape, size, settings.modality == "image")
    return ImageEncoderDecoder(source, target, backbone, head)  # type: ignore[arg-type]
