"""The temporal convolutional network: causal dilated convolutions in residual blocks.

Bai, Kolter and Koltun, "An empirical evaluation of generic convolutional and recurrent networks for sequence modeling"
(2018). Each level reaches twice as far back as the one below it, so that few levels see far, and the whole sequence is
computed at once:

    y_t = Σ_j W_j x_{t−d·j},  d = 1, 2, 4, …    block(x) = relu(F(x) + skip(x)),  F = two such, relu, dropout
    receptive field = 1 + Σ over convolutions of (k−1)·d

New since recurrent networks: no state passes from step to step, so training needs no loop over time and gradients have
a short path. Limitation: elements outside the receptive field are not seen.
Initialization: He for the directions, and the gains of weight norm (Salimans and Kingma 2016) are the norms of these
directions, so that the layer begins as He's; the skip is the identity if widths agree.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.model_info import History
from ..core.state import State
from ..kernels import layers as kernels
from ..nn.backbone import Backbone, BackboneSettings, Trace, record, trace_scope
from ..nn.layers import Dropout, equations_enabled, extend_window, last_window


class CausalConv(nn.Module):
    """A causal convolution with weight norm. Channels are last in memory, the fastest layout on a CPU."""

    def __init__(self, inputs: int, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.before = (kernel - 1) * dilation  # past elements that it reads
        self.direction = nn.Parameter(torch.empty(width, inputs, kernel))
        nn.init.kaiming_normal_(self.direction, nonlinearity="relu")
        self.gain = nn.Parameter(self.direction.detach().flatten(1).norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, mask: Tensor | None, window: Tensor | None) -> tuple[Tensor, Tensor]:
        extended = extend_window(x, window, self.before)  # (B,before+T,C)
        return self._convolve(extended, dilation=self.dilation), last_window(extended, mask, self.before)

    def sparse(self, x: Tensor, stride: int) -> Tensor:
        """Returns every stride-th output, up to the last, of every dilation-th element x, up to the last."""
        extended = extend_window(x, None, self.direction.shape[2] - 1)
        return self._convolve(extended[:, (x.shape[1] - 1) % stride :], stride=stride)

    def _convolve(self, extended: Tensor, dilation: int = 1, stride: int = 1) -> Tensor:
        norm = self.direction.flatten(1).norm(dim=1)
        weight = self.direction * (self.gain / norm)[:, None, None]  # (D,C,k)
        if stride == 1 and not equations_enabled() and kernels.convolution_is_faster(extended):
            return kernels.convolution(extended, weight, self.bias, dilation)
        rows = extended.transpose(1, 2).unsqueeze(2)  # (B,C,1,before+T), channels last in memory
        y = torch.conv2d(rows, weight.unsqueeze(2), self.bias, stride=(1, stride), dilation=(1, dilation))
        return y.squeeze(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.first = CausalConv(inputs, width, kernel, dilation)
        self.second = CausalConv(width, width, kernel, dilation)
        self.skip = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None, state: State, trace: Trace | None = None) -> tuple[Tensor, State]:
        before = (None, None) if state is None else state
        inner, first = self.first(x, mask, before[0])
        inner = self.dropout(torch.relu(inner))
        outer, second = self.second(inner, mask, before[1])
        outer = self.dropout(torch.relu(outer))
        y = torch.relu(outer + self.skip(x))
        for name, value in (("first", inner), ("second", outer), ("activation", y)):
            record(trace, name, value)
        return y, (first, second)

    def sparse(self, x: Tensor) -> Tensor:
        """Returns every second output of subsampled elements, which is all that the next level needs."""
        y = self.dropout(torch.relu(self.first.sparse(x, 1)))
        y = self.dropout(torch.relu(self.second.sparse(y, 2)))
        return torch.relu(y + self.skip(x[:, (x.shape[1] - 1) % 2 :: 2]))


class TCN(Backbone):
    def __init__(self, inputs: int, width: int, levels: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(
            Block(inputs if level == 0 else width, width, kernel, 2**level, dropout) for level in range(levels)
        )
        self.receptive_field = 1 + sum(2 * (kernel - 1) * 2**level for level in range(levels))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        states = []
        for level, block in enumerate(self.blocks):
            scope = trace_scope(trace, f"level{level}", mask)
            x, after = block(x, mask, None if state is None else state[level], scope)
            states.append(after)
        return x, states

    def last_output(self, x: Tensor) -> Tensor:
        """Computes only the elements that the last output depends on: about 3·T in total, not 2·T per level."""
        for block in self.blocks:
            x = block.sparse(x)  # type: ignore[operator]
        return x[:, -1]


class Settings(BackboneSettings):
    title: ClassVar[str] = "TCN"
    color: ClassVar[tuple[str, str] | None] = ("#cc79a7", "#de93bc")
    history: ClassVar[History] = "sequences"
    predecessors: ClassVar[tuple[str, ...]] = ("rnn", "lstm", "gru")
    novelty: ClassVar[str] = "it sees {field} at once, and its gradient has a short path"
    limitation: ClassVar[str] = "it sees {field} and nothing before them, while a state has no such limit"
    dropout_onset: ClassVar[float] = 5.0

    width: int = Field(128, ge=1, le=65_536, description="channels of every level; `--params` solves for it")
    levels: int = Field(4, ge=1, le=24, description="residual blocks; the dilation doubles with each")
    kernel: int = Field(3, ge=2, le=64, description="elements that one convolution reads")

    def input_width(self, tied: bool) -> int:
        return super().input_width(tied) if tied or self.embedding is not None else max(min(self.width // 2, 128), 1)

    def build(self, inputs: int, length: int) -> TCN:
        return TCN(inputs, self.width, self.levels, self.kernel, self.dropout)
