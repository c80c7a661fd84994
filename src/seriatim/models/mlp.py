"""The window MLP: the last n elements, side by side, through hidden layers.

Bengio et al., "A neural probabilistic language model" (2003). Words become vectors, so that what is learned of one
carries over to similar ones, and an unseen combination is no longer impossible:

    e = [x_{t−n+1}; …; x_t]    h = tanh(W e + b)    ŷ = softmax(V h)

New since the n-gram: similarity instead of exact matches, and a size that grows linearly in n instead of exponentially.
Limitation: it sees nothing before the window, and learns the weights of each position separately. More layers may
follow the first.
Initialization: Glorot with the gain of tanh, zero biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.model_info import History
from ..core.state import State
from ..nn.backbone import Backbone, LayeredSettings, Trace, record
from ..nn.layers import Dropout, extend_window, last_window


class WindowMLP(Backbone):
    """The state is the window: the last n−1 elements."""

    def __init__(self, inputs: int, widths: Sequence[int], window: int, dropout: float = 0.0) -> None:
        super().__init__()
        sizes = [window * inputs, *widths]
        self.width = sizes[-1]
        self.window = window
        linears = [nn.Linear(size, width) for size, width in pairwise(sizes)]
        self.layers = nn.ModuleList(linears)
        self.dropout = Dropout(dropout)
        for layer in linears:
            nn.init.xavier_uniform_(layer.weight, gain=nn.init.calculate_gain("tanh"))
            nn.init.zeros_(layer.bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        before = self.window - 1
        extended = extend_window(x, state, before)  # (B,n−1+T,D)
        y = extended.unfold(1, self.window, 1).transpose(2, 3).flatten(2)  # (B,T,n·D), oldest first
        if not self.layers:  # the linear model, whose output is the window
            y = self.dropout(y)
            record(trace, "layer0.hidden", y, mask)
        for index, layer in enumerate(self.layers):
            y = self.dropout(torch.tanh(layer(y)))
            record(trace, f"layer{index}.hidden", y, mask)
        return y, last_window(extended, mask, before)


class Settings(LayeredSettings):
    title: ClassVar[str] = "window MLP"
    color: ClassVar[tuple[str, str] | None] = ("#e69f00", "#f0b437")
    history: ClassVar[History] = "sequences"
    predecessors: ClassVar[tuple[str, ...]] = ("ngram",)
    novelty: ClassVar[str] = "its tokens are vectors, so what it learns of one helps with similar ones"
    limitation: ClassVar[str] = "exact counts are hard to beat where the same phrases come back"

    window: int = Field(16, ge=1, le=4_096, description="n, the number of elements it sees")

    def input_width(self, tied: bool) -> int:
        return super().input_width(tied) if tied or self.embedding is not None else 32

    def build(self, inputs: int, length: int) -> WindowMLP:
        return WindowMLP(inputs, self.layer_widths, self.window, self.dropout)
