"""An encoder–decoder whose source is a picture: its grid, place by place, is a memory like any other."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .backbone import BackboneSettings
from .network import TokenHead, TokenInput
from .pair import Translator, attended
from .pictures import PictureInput, Shape
from .trace import Trace

SPREAD = 0.15  # of fresh vectors of places that are added to what is seen there, whose spread is 1


class PictureSource(nn.Module):
    """A picture (B,C,H,W) as vectors of the size that the encoder–decoder wants, with its rows one behind the other.

    What is seen at a place is normed, so that all places are compared on one scale. Which of two things is above the
    other cannot be told from what they look like, so a place has a vector of its own: added, or, for models of pictures
    alone, behind it (`apart`: 2·size numbers). These vectors begin as a plane, one direction for down and one for
    right, so that where a thing stands can be read off at once.
    """

    def __init__(self, picture: PictureInput, shape: Shape, size: int, apart: bool) -> None:
        super().__init__()
        self.shape = shape
        self.apart = apart
        self.picture = picture
        self.project = nn.Linear(picture.width, size)
        self.norm = nn.LayerNorm(size)
        plane = _coordinates(*picture.grid) @ torch.randn(2, size) * math.sqrt(0.5)
        self.places = nn.Parameter(plane if apart else SPREAD * plane)

    def forward(self, pictures: Tensor) -> Tensor:
        seen: Tensor = self.norm(self.project(self.picture(pictures)))
        if self.apart:
            return torch.cat([seen, self.places.expand_as(seen)], dim=-1)
        return seen + self.places


def _coordinates(rows: int, columns: int) -> Tensor:
    """How far down and how far right each place is (rows·columns,2), with mean 0 and deviation about 1."""
    down, right = (torch.linspace(-1.7, 1.7, count) if count > 1 else torch.zeros(1) for count in (rows, columns))
    return torch.cartesian_prod(down, right)


class Captioner(Translator):
    """Pictures and the words so far in, scores of the next word out. Only vectors of tokens need `scale`."""

    source: PictureSource  # type: ignore[assignment]

    def blank(self) -> Tensor:
        return torch.zeros(1, *self.source.shape, dtype=torch.uint8, device=self.head.weight.device)

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        return self.backbone.encode(self.source(source), mask, trace)

    def read(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        return self.backbone.read(self.source(source), mask, trace)


def picture_network(
    settings: BackboneSettings, picture: PictureInput, shape: Shape, targets: int, longest: int, score: str = "general"
) -> Captioner:
    """For pictures of one shape, and captions of at most so many tokens of a vocabulary."""
    size = settings.input_width(tied=False)
    length = max(longest, picture.grid[0] * picture.grid[1])
    backbone = settings.build(size, length) if settings.pairs else attended(settings, size, length, score)
    target = TokenInput(targets, size, 1.0)
    head = TokenHead(backbone.width, targets)
    return Captioner(PictureSource(picture, shape, size, settings.pictures), target, backbone, head)  # type: ignore[arg-type]
