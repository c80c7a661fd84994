"""Images as inputs: a batch of 8-bit pixels (B,C,H,W) becomes a sequence of vectors (B,T,D), T = rows · columns.

    PatchInput        squares of pixels, each multiplied by one matrix, row by row       (Dosovitskiy et al. 2021)
    FeatureMapInput   the last feature map of a residual network, row by row

`ImageEncoderDecoder` is an encoder–decoder whose source is an image: its grid of vectors is the memory.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .backbone import BackboneSettings, Trace
from .encoder_decoder import EncoderDecoder, encoder_decoder_backbone
from .layers import TokenInput
from .network import TokenHead
from .resnet import ResNet

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

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
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
) -> ImageEncoderDecoder:
    """Returns the network for images of one shape, and texts of at most `longest` tokens."""
    size = settings.input_width(tied=False)
    length = max(longest, image.grid[0] * image.grid[1])
    backbone = encoder_decoder_backbone(settings, size, length, score)
    target = TokenInput(vocab_size, size, 1.0)
    head = TokenHead(backbone.width, vocab_size)
    source = ImageSource(image, shape, size, settings.images_only)
    return ImageEncoderDecoder(source, target, backbone, head)  # type: ignore[arg-type]
