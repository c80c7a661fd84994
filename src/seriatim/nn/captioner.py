"""An encoder–decoder whose source is a picture: its grid, place by place, is a memory like any other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .backbone import BackboneSettings
from .network import TokenHead, TokenInput
from .pair import Translator, attended
from .pictures import PictureInput, Shape
from .trace import Trace

SPREAD = 0.3  # of fresh vectors of places, beside what is seen there, whose spread is 1


class PictureSource(nn.Module):
    """A picture (B,C,H,W) as vectors of the size that the encoder–decoder wants, with its rows one behind the other.

    What is seen at a place is normed, so that all places are compared on one scale, and has the vector of its place
    added: of two things seen, which is above the other cannot be told from what they look like.
    """

    def __init__(self, picture: PictureInput, shape: Shape, size: int) -> None:
        super().__init__()
        self.shape = shape
        self.picture = picture
        self.project = nn.Linear(picture.width, size)
        self.norm = nn.LayerNorm(size)
        self.places = nn.Parameter(torch.randn(picture.grid[0] * picture.grid[1], size) * SPREAD)

    def forward(self, pictures: Tensor) -> Tensor:
        y: Tensor = self.norm(self.project(self.picture(pictures))) + self.places
        return y


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
    return Captioner(PictureSource(picture, shape, size), target, backbone, head)  # type: ignore[arg-type]
