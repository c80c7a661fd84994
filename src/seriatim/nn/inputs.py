"""Inputs: from tokens or numbers to the vectors that a backbone reads."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class TokenInput(nn.Embedding):
    """Tokens to vectors. Rows of length about 1, or as small as the backbone's paper wants them."""

    def __init__(self, vocabulary: int, width: int, spread: float | None = None) -> None:
        super().__init__(vocabulary, width)
        nn.init.normal_(self.weight, std=1 / math.sqrt(width) if spread is None else spread)


class NumberInput(nn.Module):
    """Vectors of numbers, brought to mean 0 and deviation 1 by what was measured on the training part.

    They go straight into the backbone, whose first product is the linear input; with a size, through one more.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int, size: int | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        self.project = nn.Identity() if size is None else nn.Linear(features, size)
        self.width = features if size is None else size

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project((x - self.mean) / self.deviation)
        return y


class SegmentedInput(TokenInput):
    """Tokens to vectors, each with the vector of its segment: which of two texts it belongs to.

    A separator ends a text, so the segment of an element is the number of separators before it; beyond the last
    segment known it stays that one.
    """

    def __init__(self, vocabulary: int, width: int, segments: int, separator: int | None) -> None:
        super().__init__(vocabulary, width)
        self.segments = nn.Embedding(segments, width)
        self.separator = separator

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        given = self.segments_of(tokens) if segments is None else segments
        return super().forward(tokens) + self.segments(given)

    def segments_of(self, tokens: Tensor) -> Tensor:
        if self.separator is None:
            return torch.zeros_like(tokens)
        ends = tokens == self.separator
        before = ends.cumsum(dim=1) - ends.long()
        return before.clamp(max=self.segments.num_embeddings - 1)
