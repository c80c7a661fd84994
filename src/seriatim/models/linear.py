"""The linear model: the last n elements, side by side, and one matrix.

The oldest model of a series is autoregression (Yule 1927): the next value is a weighted sum of the last n, and the
weights are all there is to learn. For tokens the sum is one of their vectors, the log-bilinear model of Mnih and
Hinton (2007):

    e = [x_{t−n+1}; …; x_t]    ŷ = V e + b

The backbone is the window alone; V is the head's matrix, so that a forecast of one value from 50 has 51 parameters.
What it shows: how much of a problem needs no hidden layer. Limitation: no two elements can change each other's meaning.
Initialization: that of the head.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ..nn.backbone import BackboneSettings
from .mlp import WindowMLP


class Settings(BackboneSettings):
    title: ClassVar[str] = "linear model"
    muon_lr: ClassVar[float | None] = None  # it has no hidden matrix

    width: int = Field(
        32, ge=1, le=65_536, description="size of the vector of a token; numbers are read as they are (--params)"
    )
    window: int = Field(16, ge=1, le=4_096, description="n, the number of elements it sees")

    def input_width(self, tied: bool) -> int:
        return self.width if self.embedding is None else self.embedding

    def build(self, inputs: int, length: int) -> WindowMLP:
        return WindowMLP(inputs, (), self.window, self.dropout)
