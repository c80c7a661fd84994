"""Show, attend and tell: an LSTM that looks at another part of a picture before every word of its caption.

Xu et al., "Show, attend and tell: neural image caption generation with visual attention" (2015), soft attention:

    a = the grid of a picture      α_t = softmax_i score(h_{t−1}, a_i)      ẑ_t = β_t Σ_i α_{t,i} a_i
    h_t = LSTM([y_{t−1}; ẑ_t], h_{t−1})      β_t = σ(w·h_{t−1} + b)         p(y_t) from h_t, ẑ_t and y_{t−1}

New since Show and Tell: the picture stays in view, place by place, and the weights α show what a word was read from. It
is Bahdanau's decoder over a grid instead of words; β lets it write "of the" without looking. The first state comes from
the mean of the grid. The paper asks that every place be looked at about equally in the end (`task.penalty`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from ..nn.attending import Attending
from ..nn.attention import ScoreName
from ..nn.heads import mean
from ..nn.pair import PairSettings
from ..nn.trace import Trace
from ._cells import CellName, cell_maker, cell_rate


class ShowAttend(Attending):
    """The memory is the grid as it comes."""

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        return self.remember(x, mean(x, mask), mask)

    def read(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        return x


class Settings(PairSettings):
    pictures: ClassVar[bool] = True
    suits: ClassVar[Mapping[str, Any]] = {"penalty": 0.001}  # more spreads the weights over what is empty

    cell: CellName = Field("lstm", description="rnn, lstm or gru")
    score: ScoreName = Field("additive", description="how well a place of the picture fits: see docs/models.md")
    layers: int = Field(1, ge=1, le=64, description="recurrent layers; the first of them attends")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")

    def rate(self) -> float:
        return cell_rate(self.cell)

    def build(self, inputs: int, length: int) -> ShowAttend:
        shape = (inputs, self.source_width(inputs), self.width, self.score, self.layers, self.dropout, inputs)
        return ShowAttend(cell_maker(self.cell), *shape, gated=True, asking=True, ahead=False)
